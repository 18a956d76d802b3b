"""Limits how much of a last-level cache the runs of a configuration may fill, by processes that occupy the rest of it.

The program runs on some cores that share a last-level cache, and on each of the other cores an `Occupier` repeatedly
loads a part of the rest. The time of the occupiers' loads shows how well they keep their parts: a program that replaces
many lines evicts their lines, and then they wait for memory.

Sources: Eklov, Nikoleris, Black-Schaffer, Hagersten: Cache Pirating, ICPP 2011, where the misses of the pirate show the
same; Casas, Bronevetsky: Active Measurement of Memory Resource Consumption, IPDPS 2014, where the interference accesses
memory in random order.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from meshmark.applications.application import COUNTS
from meshmark.applications.resources.machine_limits import ALL, NEIGHBOURS, RESCTRL_METHOD, cache_bytes, has_resctrl
from meshmark.applications.resources.occupier import SMALLEST, Occupier
from meshmark.applications.resources.undoing import alone
from meshmark.errors import AbsentError, UsageError
from meshmark.machine.topology import Topology
from meshmark.machine.tree import format_list
from meshmark.values.units import plain, size

HELD: Final = 0.9  # minimum share of the occupiers' loads that caches must serve
CPUS: Final = Path("/sys/devices/system/cpu")
_ADVICE: Final = "vary the size of the problem instead, or mount -t resctrl resctrl /sys/fs/resctrl, as root"
_MOST_BYTES: Final = 1 << 30  # maximum footprint for the time of loads from memory, unless the cache is larger
_FLAT: Final = 1.5  # minimum ratio of the load times of memory and cache; with a smaller one, times show no evictions
_AT: Final = "dimensions.cache"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Cores that share a last-level cache, divided among a program and occupiers.

    Attributes:
        program: CPUs that the program may use.
        occupiers: One CPU of each of the other cores.
        cache_bytes: Size of the cache that the kernel reports.
        private_bytes: Size of the largest private cache of a core, which its occupier fills in addition to its part.
    """

    program: tuple[int, ...]
    occupiers: tuple[int, ...]
    cache_bytes: int
    private_bytes: int

    @staticmethod
    def from_topology(machine: Topology, workers: int) -> Sharing:
        """Return the sharing for a program whose workers have a core each.

        Raises:
            AbsentError: No core is left for occupiers.
        """
        allowed_cpus = set(machine.allowed_cpus)
        last_level = max((c.level for c in machine.caches if c.kind != "instruction"), default=0)
        best: Sharing | None = None
        for cache in machine.caches:
            if cache.level != last_level or cache.kind == "instruction" or not cache.size_bytes:
                continue
            cpus = allowed_cpus & set(cache.cpus)
            cores = [core_cpus for c in machine.cores if (core_cpus := tuple(sorted(cpus & set(c.cpus))))]
            if len(cores) <= workers or (best is not None and len(best.occupiers) >= len(cores) - workers):
                continue
            private_bytes = max(
                (c.size_bytes or 0 for c in machine.caches if c.level < last_level and c.kind != "instruction"),
                default=0,
            )
            best = Sharing(
                tuple(cpu for core in cores[:workers] for cpu in core),
                tuple(core[0] for core in cores[workers:]),
                cache.size_bytes,
                private_bytes,
            )
        if best is None:
            raise AbsentError(
                f"{_AT}: found no last-level cache of known size that {workers + 1} cores of this process share; "
                "neighbours need a CPU that the program does not use",
                _ADVICE,
            )
        return best

    def parts(self, total: int) -> list[tuple[int, int]]:
        """Return CPU and memory in B of each occupier, so that together they fill `total` bytes of the cache."""
        bytes_each = max(SMALLEST, total // len(self.occupiers) + self.private_bytes)
        return [(cpu, bytes_each) for cpu in self.occupiers]


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """Times of a load of the occupiers, in s: from the cache and from memory."""

    near_s: float
    far_s: float

    def held(self, load_s: float, alone_s: float) -> float:
        """Return the share of the loads that the cache served, provided that it served all loads of occupiers alone."""
        return min(1.0, max(0.0, (self.far_s - load_s) / (self.far_s - alone_s)))

    def is_near(self, load_s: float) -> bool:
        """Return whether the cache served most loads.

        A large part of the cache may have longer load times, because of page tables.
        """
        return load_s < (self.near_s + self.far_s) / 2


@dataclass(slots=True)
class Neighbours:
    """The occupiers that run beside a program, and their state when the program has ended.

    Attributes:
        cpus: CPUs that the program may use; None for all.
        cpu_s: CPU time of the occupiers so far, in s.
        counts: Counts for the run.
    """

    cpus: tuple[int, ...] | None = None
    cpu_s: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    occupiers: Sequence[Occupier] = ()
    scale: LoadTimes | None = None
    alone_s: float = 0.0
    marks: Sequence[int] = ()
    failure: str = ""

    def begin(self) -> None:
        """Mark the start of the program."""
        self.marks = [occupier.mark() for occupier in self.occupiers]

    def end(self) -> str:
        """Mark the end of the program. Return why its run does not count; "" if the occupiers kept their parts."""
        if self.failure or not self.occupiers or self.scale is None:
            return self.failure
        load_s = _slowest(self.occupiers, self.marks)
        if load_s is None:
            return "it ended before the neighbours that occupy the cache could report whether they kept their part"
        held_share = self.scale.held(load_s, self.alone_s)
        self.counts |= {
            "neighbours_held_share": held_share,
            "neighbours_load_s": load_s,
            "neighbours_alone_s": self.alone_s,
        }
        if held_share >= HELD:
            return ""
        return (
            f"neighbours kept only {100 * held_share:.0f} % of their part; a run counts from {100 * HELD:.0f} % on: "
            f"their loads took {plain(load_s, 's', 3)}, alone {plain(self.alone_s, 's', 3)}, "
            f"from memory {plain(self.scale.far_s, 's', 3)}"
        )


def method(dimensions: Mapping[str, Sequence[str]]) -> str:
    """Return how the cache is limited if the user has not chosen a method.

    The method is `resctrl` where it is mounted, otherwise `neighbours`; "" if nothing limits the cache.
    """
    limits = any(text != ALL for text in dimensions.get("cache", ()))
    if not limits or "cache_method" in dimensions:
        return ""
    return RESCTRL_METHOD if has_resctrl() else NEIGHBOURS


def check_neighbours(dimensions: Mapping[str, Sequence[str]], machine: Callable[[], Topology]) -> None:
    """Check by measurements that neighbours can limit the cache of this machine as the dimensions request.

    Raises:
        AbsentError: Neighbours cannot limit the cache.
        UsageError: Neighbours cannot leave one of the sizes to the program.
    """
    if NEIGHBOURS not in dimensions.get("cache_method", ()):
        return
    workers = math.prod(max(map(int, dimensions.get(name, ("1",)))) for name in COUNTS)
    sharing = Sharing.from_topology(machine(), workers)
    for text in dimensions.get("cache", ()):
        _left(text, sharing)
    with alone(CPUS):
        scale_of(sharing)


@contextlib.contextmanager
def beside(values: Mapping[str, str], machine: Callable[[], Topology]) -> Iterator[Neighbours]:
    """Occupy the part of the cache that a configuration may not fill, until the end of the context.

    Raises:
        AbsentError, UsageError: See `check_neighbours`.
        MeshmarkError: An occupier fails.
    """
    result = Neighbours()
    if values.get("cache_method") != NEIGHBOURS:
        yield result
        return
    sharing = Sharing.from_topology(machine(), math.prod(int(values.get(name, "1")) for name in COUNTS))
    result.cpus = sharing.program  # also without a limit, so that configurations differ only in the limit
    with alone(CPUS):
        if (part_bytes := _left(values["cache"], sharing)) is None:
            yield result
            return
        result.scale = scale_of(sharing)
        result.counts["cache_claimed_bytes"] = float(sharing.cache_bytes)
        occupiers: list[Occupier] = []
        try:
            with occupying(sharing.parts(sharing.cache_bytes - part_bytes)) as occupiers:
                result.occupiers = occupiers
                result.alone_s = _settled(occupiers)
                if not result.scale.is_near(result.alone_s):
                    result.failure = _too_small(sharing, sharing.cache_bytes - part_bytes, result.alone_s, result.scale)
                yield result
        finally:
            result.cpu_s = sum(occupier.cpu_s for occupier in occupiers)


@contextlib.contextmanager
def occupying(parts: Sequence[tuple[int, int]]) -> Iterator[list[Occupier]]:
    """Run occupiers on these CPUs with these amounts of memory, until the end of the context."""
    occupiers: list[Occupier] = []
    try:
        for cpu, bytes_ in parts:
            occupiers.append(Occupier(cpu, bytes_))
        yield occupiers
    finally:
        for occupier in occupiers:
            occupier.end()


@lru_cache(maxsize=16)
def scale_of(sharing: Sharing) -> LoadTimes:
    """Measure the times of loads of the occupiers, and check that the cache is as the kernel reports it.

    Raises:
        AbsentError: The cache differs from the report.
    """

    def measured(total: int) -> float:
        with occupying(sharing.parts(total)) as occupiers:
            return _settled(occupiers)

    total_bytes = sharing.cache_bytes
    scale = LoadTimes(measured(total_bytes // 8), measured(max(2 * total_bytes, min(4 * total_bytes, _MOST_BYTES))))
    if scale.far_s < _FLAT * scale.near_s:
        raise AbsentError(
            f"{_AT}: loads of neighbours take {plain(scale.near_s, 's', 3)} from {size(total_bytes // 8)} and "
            f"{plain(scale.far_s, 's', 3)} from memory; the difference is too small to show whether they occupy "
            "the cache",
            _ADVICE,
        )
    most_bytes = total_bytes * 3 // 4
    alone_s = measured(most_bytes)
    if not scale.is_near(alone_s):
        raise AbsentError(f"{_AT}: {_too_small(sharing, most_bytes, alone_s, scale)}", _ADVICE)
    with occupying([*sharing.parts(most_bytes), (sharing.program[0], most_bytes + sharing.private_bytes)]) as occupiers:
        together_s = _settled(occupiers)
    if scale.held(together_s, alone_s) >= HELD:
        raise AbsentError(
            f"{_AT}: processes on CPUs {format_list((*sharing.occupiers, sharing.program[0]))} keep more than the "
            f"{size(total_bytes)} of last-level cache that the kernel reports as shared by them, so they do not "
            "share it",
            _ADVICE,
        )
    return scale


def _left(text: str, sharing: Sharing) -> int | None:
    """Return the bytes that a value of `cache` leaves to the program; None for all."""
    part_bytes = cache_bytes(_AT, text)
    if part_bytes is not None and part_bytes >= sharing.cache_bytes:
        raise UsageError(f"{_AT}: found {size(part_bytes)}; allowed: less than {size(sharing.cache_bytes)}, {ALL}")
    return part_bytes


def _settled(started: Sequence[Occupier]) -> float:
    """Return the time of a load of occupiers, in s, once they occupy as much of the cache as they can."""
    for occupier in started:
        occupier.settle()
    marks = [occupier.mark() for occupier in started]
    for occupier, mark in zip(started, marks, strict=True):
        occupier.wait(mark)
    return _slowest(started, marks) or 0.0


def _slowest(occupiers: Sequence[Occupier], marks: Sequence[int]) -> float | None:
    """Return the time of a load of the slowest occupier, in s; None if an occupier has no time yet."""
    times = [occupier.load_s(mark) for occupier, mark in zip(occupiers, marks, strict=True)]
    known_times = [time_s for time_s in times if time_s is not None]
    return max(known_times) if known_times and len(known_times) == len(times) else None


def _too_small(sharing: Sharing, part: int, alone_s: float, scale: LoadTimes) -> str:
    return (
        f"neighbours cannot occupy {size(part)} of the {size(sharing.cache_bytes)} that the kernel "
        f"reports for the last-level cache: even alone, their loads take {plain(alone_s, 's', 3)}, from "
        f"{size(sharing.cache_bytes // 8)} {plain(scale.near_s, 's', 3)} and from memory {plain(scale.far_s, 's', 3)}"
    )
