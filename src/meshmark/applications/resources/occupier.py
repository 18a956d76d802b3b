"""Keeps a part of a cache filled by a process that loads all lines of its memory in random order, one by one.

The process runs the load kernel `pointer_chase`. Dependent loads take little memory bandwidth, even if the lines come
from memory, and their time shows where the lines come from.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from meshmark.applications.resources.kernel_process import KernelProcess
from meshmark.applications.resources.load_kernels import CHASE, CHASE_LOADS, CHASE_UNIT_BYTES, pointer_chase

SMALLEST: Final = 64 << 10  # memory of an occupier, in B
_WINDOWS: Final = 4  # number of windows that a time per load needs
_LAPS: Final = 2  # passes over all lines, after which the cache contains as many of them as it can
_LONGEST_S: Final = 2.0  # time limit of these passes


class Occupier(KernelProcess):
    """A process that fills its memory and then loads from it until `end`.

    Args:
        cpu: CPU on which the process runs.
        bytes_: Size of its memory in B, at least `SMALLEST`.

    Raises:
        MeshmarkError: The process cannot be started.
    """

    def __init__(self, cpu: int, bytes_: int) -> None:
        self.loads = bytes_ // CHASE_UNIT_BYTES * CHASE_LOADS
        super().__init__((cpu,), pointer_chase("a process that occupies the cache", bytes_))

    def settle(self) -> None:
        """Wait until the process has loaded its memory so often that a cache contains as much of it as it can."""
        start_s = time.monotonic()
        self.wait_until(
            lambda: _loads_of(self.lines(0)) >= _LAPS * self.loads or time.monotonic() - start_s > _LONGEST_S
        )

    def wait(self, mark: int) -> None:
        """Wait until the time per load since a moment is known."""
        self.wait_until(lambda: len(self.lines(mark)) > _WINDOWS)

    def load_s(self, mark: int) -> float | None:
        """Return the CPU time per load since a moment, in s; None if the moment is too recent."""
        windows = self.lines(mark)[1:]  # the first window began before the mark
        loads = _loads_of(windows)
        return sum(w["cpu_s"] for w in windows) / loads if loads else None


def _loads_of(windows: Sequence[dict[str, Any]]) -> float:
    lines = sum(w.get("line_read_bytes", 0.0) for w in windows)
    return float(lines / CHASE["line_read_bytes"] * CHASE_LOADS)
