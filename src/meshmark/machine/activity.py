"""What a machine does during an interval, and who runs the programs that do it."""

from __future__ import annotations

import pwd
import re
from dataclasses import dataclass

from meshmark.errors import AbsentError, UsageError
from meshmark.machine.tree import Files


@dataclass(frozen=True, slots=True)
class BusyProcess:
    """A busy process; `cpus` is its mean number of CPUs, 1 for a process that keeps one thread always busy."""

    name: str
    pid: int
    cpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Means over an interval.

    Attributes:
        runnable: Number of threads that run or wait for a CPU, without threads of the sampler; None if unknown.
        busy, stolen: Shares of time by CPU; CPUs with unknown shares are missing.
        devices: Share of time in use by disk or interface; devices with unknown shares are missing.
        programs: Busy processes, the busiest first.
    """

    interval_s: float
    runnable: float | None
    busy: dict[int, float]
    stolen: dict[int, float]
    devices: dict[str, float]
    programs: tuple[BusyProcess, ...]


def user_of(tree: Files, pid: int) -> str:
    """Return the name or number of the user of a process; "" if the process ended or is hidden."""
    match = re.search(r"^Uid:\s*\d+\s+(\d+)", tree.text(f"proc/{pid}/status") or "", re.M)
    if match is None:
        return ""
    try:
        return pwd.getpwuid(int(match[1])).pw_name
    except (KeyError, OverflowError):
        return match[1]


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The content of /proc/PID/stat.

    Attributes:
        name: Name of the program, at most 15 characters.
        fields: The fields after the name: the state, the number of the parent and so on, at least 20.
    """

    name: str
    fields: tuple[str, ...]

    @property
    def parent(self) -> int:
        """Return the number of the parent process; 0 if the parent is outside of this PID namespace."""
        return int(self.fields[1])

    @property
    def ended(self) -> bool:
        """Return whether the process has ended and waits for its parent."""
        return self.fields[0] in {"Z", "X"}


def process_stat(tree: Files, pid: int) -> ProcessStat | None:
    """Return the stat of a process; None if the process has ended or cannot be read."""
    stat = (tree.data(f"proc/{pid}/stat") or b"").decode("utf-8", "replace")
    opening, closing = stat.find("("), stat.rfind(")")  # the name may contain any character
    fields = tuple(stat[closing + 1 :].split())
    if opening < 0 or len(fields) < 20 or not fields[1].isdecimal():
        return None
    return ProcessStat(stat[opening + 1 : closing], fields)


def visible_process(tree: Files, pid: int, field: str, command: str) -> ProcessStat:
    """Return the stat of a process that a user named.

    Args:
        field: The option or argument that named it, for messages.
        command: The command that a privileged user would run, for the hint.

    Raises:
        UsageError: There is no such process, it has ended, or `pid` is the number of a thread.
        AbsentError: The kernel does not show the process to this user.
    """
    status = tree.text(f"proc/{pid}/status")
    stat = process_stat(tree, pid)
    if status is None or (stat is None and tree.data(f"proc/{pid}/stat") is None):
        if tree.exists(f"proc/{pid}"):
            raise AbsentError(
                f"{field}: process {pid} belongs to another user, and this system hides such processes (hidepid)",
                f"sudo {command}",
            )
        raise UsageError(
            f"{field}: found {pid}, which is not a process here; allowed: a process that runs and is visible to this "
            "user"
        )
    leader_match = re.search(r"^Tgid:\s*(\d+)", status, re.M)
    if leader_match is not None and int(leader_match[1]) != pid:
        raise UsageError(f"{field}: found {pid}, which is a thread of process {leader_match[1]}; allowed: a process")
    if stat is None:
        raise AbsentError(f"process {pid}: /proc/{pid}/stat is not readable")
    if stat.ended:
        raise UsageError(
            f"{field}: found {pid}, which has ended and waits for its parent; allowed: a process that runs"
        )
    return stat
