"""Pressures on a program: load kernels that neighbours run, of three kinds and several strengths.

- *compute*: a neighbour computes in registers, which slows a program only by the clock and by what threads of a core
  share.
- *cache*: a neighbour reads and writes memory of a certain size over and over, which fills caches.
- *memory*: a neighbour reads and writes memory that no cache can hold, at a certain rate.

Every neighbour keeps its CPU busy all the time, so that pressures differ only in what they access.

Sources: the bubble of Mars, Tang, Hundt, Skadron, Soffa: Bubble-Up, MICRO 2011, which grows from a cache's to the
memory's size; the rulers of Zhang, Laurenzano, Mars, Tang: SMiTe, MICRO 2014, one for each resource.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Final, Literal

from meshmark.applications.resources.kernel_process import KernelProcess, KernelWork
from meshmark.applications.resources.load_kernels import comparison_sort, horner, pointer_chase, triad
from meshmark.profiles.division import CpuDivision
from meshmark.values.units import NBSP, percent, size

Kind = Literal["compute", "integer", "cache", "latency", "memory"]
ALONE: Final = "alone"
MEMORY: Final[Kind] = "memory"  # the strongest pressure on memory
RATES: Final = (0.25, 0.5, 0.75)  # of the weaker ones, as shares of its rate
_PARTS: Final = (0.25, 0.5, 1.0)  # of the shared cache
_MEMORY_BYTES: Final = 1 << 26  # smallest footprint of a pressure on memory
_MOST_BYTES: Final = 1 << 30
_TIMES: Final = 4  # footprint of a pressure on memory as a multiple of the last-level cache
_SETTLED_LAPS: Final = 2  # passes over its memory after which a neighbour is in its usual state
_SETTLING_S: Final = 2.0  # time limit of these passes


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourPressure:
    """A load kernel that each neighbour of a program runs, with its memory and its rate.

    Attributes:
        name: Its name: `compute`, `cache 8 MiB`, `memory`, `memory 50 %`, `integer`, `latency 16 MiB`.
        kind: `compute`, `cache` or `memory`; of kernels that are only probes, `integer` or `latency`.
        footprint_bytes: Memory of all neighbours together.
        share: Share of the rate of the strongest pressure of its kind; 1 for as fast as possible.
    """

    name: str
    kind: Kind
    footprint_bytes: int = 0
    share: float = 1.0

    @property
    def is_probe(self) -> bool:
        """Return whether its rate shows how much a program slows it. A neighbour with a fixed rate does not show it."""
        return self.share == 1

    def work(self, neighbours: int, full_rate: float = 0.0) -> KernelWork:
        """Return what one neighbour runs.

        Args:
            neighbours: Number of neighbours, which share the footprint.
            full_rate: Units per s of one neighbour at full speed, for a pressure with a lower rate.
        """
        if self.kind == "compute":
            return horner(self.name)
        if self.kind == "integer":
            return comparison_sort(self.name)
        bytes_each = self.footprint_bytes // neighbours
        if self.kind == "latency":
            return pointer_chase(self.name, bytes_each)
        return triad(self.name, bytes_each, 0.0 if self.is_probe else self.share * full_rate)


def pressures(division: CpuDivision) -> list[NeighbourPressure]:
    """Return the pressures for a division of the CPUs, in the order of their expected effect."""
    count = len(division.neighbours)
    sizes = [division.first_bytes // 2 * count] if division.siblings else []
    if division.private_bytes > division.first_bytes:
        sizes.append(division.private_bytes // 2 * count)
    if division.shared_bytes > division.first_bytes:
        sizes += [round(part * division.shared_bytes) + division.private_bytes * count for part in _PARTS]
    memory_bytes = max(_beyond_caches(division), 2 * division.last_bytes) + division.private_bytes * count
    to_memory = NeighbourPressure(name=MEMORY, kind=MEMORY, footprint_bytes=memory_bytes)
    return [
        NeighbourPressure(name="compute", kind="compute"),
        *(
            NeighbourPressure(name=f"cache {_plain(size(s))}", kind="cache", footprint_bytes=s)
            for s in dict.fromkeys(sizes)
        ),
        *(replace(to_memory, name=f"{MEMORY} {_plain(percent(rate))}", share=rate) for rate in RATES),
        to_memory,
    ]


def _beyond_caches(division: CpuDivision) -> int:
    """Return a footprint in B that the last-level cache cannot hold, unless it is extremely large."""
    return min(max(_TIMES * division.last_bytes, _MEMORY_BYTES), _MOST_BYTES)


def _plain(text: str) -> str:
    return text.replace(NBSP, " ")


def other_probes(division: CpuDivision) -> list[NeighbourPressure]:
    """Return probes that are no pressures: integer arithmetic with branches, and chains of loads."""
    count = len(division.neighbours)
    sizes = [division.shared_bytes // 2] if division.shared_bytes > division.first_bytes else []
    sizes.append(_beyond_caches(division))
    return [
        NeighbourPressure(name="integer", kind="integer"),
        *(
            NeighbourPressure(name=f"latency {_plain(size(s))}", kind="latency", footprint_bytes=s * count)
            for s in dict.fromkeys(sizes)
        ),
    ]


@dataclass(slots=True)
class RunningPressure:
    """Running neighbours of one kind.

    Attributes:
        processes: A process on each CPU.
        pressure: What they do.
    """

    processes: list[KernelProcess]
    pressure: NeighbourPressure

    def marks(self) -> list[int]:
        """Return the current moment, for `rate`."""
        return [process.mark() for process in self.processes]

    def rate(self, start: Sequence[int], end: Sequence[int] | None = None) -> float | None:
        """Return the units of the kernel per second of CPU time between two moments, the mean of the processes.

        Returns None if a process reported no complete window in between.
        """
        ends: Sequence[int | None] = end or [None] * len(self.processes)
        rates = []
        for process, first, last in zip(self.processes, start, ends, strict=True):
            windows = process.lines(first, last)[1:]  # the first window began before the mark
            cpu_s = math.fsum(window["cpu_s"] for window in windows)
            if cpu_s <= 0:
                return None
            rates.append(process.work.units * math.fsum(window["calls"] for window in windows) / cpu_s)
        return fmean(rates)

    def cpu_s(self, start: Sequence[int], end: Sequence[int]) -> float:
        """Return the CPU time in s of all processes in the windows between two moments."""
        moments = zip(self.processes, start, end, strict=True)
        return math.fsum(window["cpu_s"] for process, a, b in moments for window in process.lines(a, b))

    def settle(self) -> None:
        """Wait until every neighbour has passed through its memory twice, for at most 2 s."""
        start_s = time.monotonic()
        passes = _SETTLED_LAPS * self.pressure.footprint_bytes / len(self.processes)
        for process in self.processes:
            process.wait_until(partial(_settled, process, passes, start_s + _SETTLING_S))

    def wait(self, start: Sequence[int], cpu_s: float) -> None:
        """Wait until every process has reported the progress of so much CPU time since a moment.

        Raises:
            MeshmarkError: A process ended, or has not reported it after a minute.
        """
        for process, mark in zip(self.processes, start, strict=True):
            process.wait_until(partial(_has_worked, process, mark, cpu_s))


def _has_worked(process: KernelProcess, mark: int, cpu_s: float) -> bool:
    windows = process.lines(mark)
    return len(windows) > 1 and math.fsum(window["cpu_s"] for window in windows[1:]) >= cpu_s


def _settled(process: KernelProcess, passes_bytes: float, until_s: float) -> bool:
    windows = process.lines(0)[1:]
    touched_bytes = math.fsum(w.get("line_read_bytes", 0.0) for w in windows)
    return len(windows) > 1 and (touched_bytes >= passes_bytes or time.monotonic() > until_s)


@contextlib.contextmanager
def running(pressure: NeighbourPressure, cpus: Sequence[int], full_rate: float = 0.0) -> Iterator[RunningPressure]:
    """Run a pressure on these CPUs until the end of the context; when the context begins, it is in its usual state.

    Raises:
        MeshmarkError: A process cannot be started, or ends.
    """
    neighbours = RunningPressure([], pressure)
    try:
        for cpu in cpus:
            neighbours.processes.append(KernelProcess((cpu,), pressure.work(len(cpus), full_rate)))
        neighbours.settle()
        yield neighbours
    finally:
        for process in neighbours.processes:
            process.end()
