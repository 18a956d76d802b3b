"""What a machine does during an interval, and who runs the programs that do it."""

from __future__ import annotations

import pwd
import re
from dataclasses import dataclass

from meshmark.machine.tree import Files


@dataclass(frozen=True, slots=True)
class Program:
    """A busy process; `cpus` is its mean number of CPUs, 1 for one that is always busy with one thread."""

    name: str
    pid: int
    cpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Means over an interval.

    Attributes:
        runnable: Threads that run or wait for a CPU, without the sampler's; None if unknown.
        busy, stolen: Shares of time by CPU; without those that are unknown.
        devices: Share of time in use by disk or interface; without those that are unknown.
        programs: The busiest first.
    """

    interval_s: float
    runnable: float | None
    busy: dict[int, float]
    stolen: dict[int, float]
    devices: dict[str, float]
    programs: tuple[Program, ...]


def user_of(tree: Files, pid: int) -> str:
    """The name or number of the user of a process; "" if the process ended or is hidden."""
    match = re.search(r"^Uid:\s*\d+\s+(\d+)", tree.text(f"proc/{pid}/status") or "", re.M)
    if match is None:
        return ""
    try:
        return pwd.getpwuid(int(match[1])).pw_name
    except (KeyError, OverflowError):
        return match[1]
