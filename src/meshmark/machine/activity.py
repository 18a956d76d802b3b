"""What a machine does during an interval, and who runs the programs that do it."""

from __future__ import annotations

import pwd
import re
from dataclasses import dataclass

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
