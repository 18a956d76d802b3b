"""Limits how much of a last-level cache the runs of a configuration may fill, by processes that occupy the rest of it.

The program runs on some cores that share a last-level cache, and on each of the others an `Occupier` walks through a
part of the rest. How well the occupiers keep their parts is what the time of their own loads tells: a program that
replaces many lines takes theirs, and they then wait for memory.

Sources: Eklov, Nikoleris, Black-Schaffer, Hagersten: Cache Pirating, ICPP 2011, whose pirate's misses tell the same;
Casas, Bronevetsky: Active Measurement of Memory Resource Consumption, IPDPS 2014, whose interference walks at random.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from meshmark.errors import AbsentError, UsageError
from meshmark.machine.topology import Topology
from meshmark.machine.tree import format_list
from meshmark.place.app.application import COUNTS
from meshmark.place.app.machine_limits import ALL, NEIGHBOURS, RESCTRL_METHOD, cache_bytes, has_resctrl
from meshmark.place.app.occupier import SMALLEST, Occupier
from meshmark.place.app.undoing import alone
from meshmark.values.units import plain, size

HELD: Final = 0.9  # share of their loads that the occupiers' caches must serve
CPUS: Final = Path("/sys/devices/system/cpu")
_ADVICE: Final = "vary the size of the problem instead, or mount -t resctrl resctrl /sys/fs/resctrl, as root"
_MOST_BYTES: Final = 1 << 30  # that a walk through memory takes, unless the cache is larger
_FLAT: Final = 1.5  # times a load out of the cache: memory that is not slower says nothing
_AT: Final = "dimensions.cache"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Cores that share a last-level cache, divided among a program and occupiers.

    Attributes:
        program: CPUs that it may use.
        occupiers: One CPU of each of the other cores.
        cache_bytes: What the machine says about the size of the cache.
        private_bytes: Of the caches of a core above it, which its occupier fills besides its part.
    """

    program: tuple[int, ...]
    occupiers: tuple[int, ...]
    cache_bytes: int
    private_bytes: int

    @staticmethod
    def of(machine: Topology, workers: int) -> Sharing:
        """That of a program whose workers have a core each.

        Raises:
            AbsentError: No core is left for occupiers.
        """
        allowed = set(machine.allowed_cpus)
        last = max((c.level for c in machine.caches if c.kind != "instruction"), default=0)
        best: Sharing | None = None
        for cache in machine.caches:
            if cache.level != last or cache.kind == "instruction" or not cache.size_bytes:
                continue
            here = allowed & set(cache.cpus)
            cores = [usable for c in machine.cores if (usable := tuple(sorted(here & set(c.cpus))))]
            if len(cores) <= workers or (best is not None and len(best.occupiers) >= len(cores) - workers):
                continue
            private = max(
                (c.size_bytes or 0 for c in machine.caches if c.level < last and c.kind != "instruction"), default=0
            )
            best = Sharing(
                tuple(cpu for core in cores[:workers] for cpu in core),
                tuple(core[0] for core in cores[workers:]),
                cache.size_bytes,
                private,
            )
        if best is None:
            raise AbsentError(
                f"{_AT}: found no last-level cache of known size that {workers + 1} cores of this process share; "
                "neighbours need one besides those of the program",
                _ADVICE,
            )
        return best

    def parts(self, total: int) -> list[tuple[int, int]]:
        """CPU and memory of each occupier, so that together they fill so many bytes of the last-level cache."""
        each = max(SMALLEST, total // len(self.occupiers) + self.private_bytes)
        return [(cpu, each) for cpu in self.occupiers]


@dataclass(frozen=True, slots=True)
class Scale:
    """Times of a load of the occupiers, in s: out of the cache, and out of memory."""

    near_s: float
    far_s: float

    def held(self, load_s: float, alone_s: float) -> float:
        """The share of the loads that the cache served, if it served all when they were alone."""
        return min(1.0, max(0.0, (self.far_s - load_s) / (self.far_s - alone_s)))

    def is_near(self, load_s: float) -> bool:
        """Whether most loads came out of the cache; a larger part of it may have longer ones, by page tables."""
        return load_s < (self.near_s + self.far_s) / 2


@dataclass(slots=True)
class Beside:
    """What runs beside a program, and what is known about it when the program has ended.

    Attributes:
        cpus: That the program may use; None: all.
        cpu_s: CPU time of the occupiers, so far.
        counts: For the run.
    """

    cpus: tuple[int, ...] | None = None
    cpu_s: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    occupiers: Sequence[Occupier] = ()
    scale: Scale | None = None
    alone_s: float = 0.0
    marks: Sequence[int] = ()
    failure: str = ""

    def begin(self) -> None:
        """The program starts."""
        self.marks = [one.mark() for one in self.occupiers]

    def end(self) -> str:
        """The program has ended: why its run does not count, "" if the occupiers kept their parts."""
        if self.failure or not self.occupiers or self.scale is None:
            return self.failure
        load_s = _slowest(self.occupiers, self.marks)
        if load_s is None:
            return "it ended before the neighbours that occupy the cache could say whether they kept their part"
        held = self.scale.held(load_s, self.alone_s)
        self.counts |= {"neighbours_held_share": held, "neighbours_load_s": load_s, "neighbours_alone_s": self.alone_s}
        if held >= HELD:
            return ""
        return (
            f"neighbours kept only {100 * held:.0f} % of their part; runs count from {100 * HELD:.0f} % on: "
            f"their loads took {plain(load_s, 's', 3)}, alone {plain(self.alone_s, 's', 3)}, "
            f"from memory {plain(self.scale.far_s, 's', 3)}"
        )


def method(dimensions: Mapping[str, Sequence[str]]) -> str:
    """How the cache is limited if the user has not chosen: `resctrl` where it is mounted, otherwise `neighbours`; "" if
    nothing limits it."""
    limits = any(text != ALL for text in dimensions.get("cache", ()))
    if not limits or "cache_method" in dimensions:
        return ""
    return RESCTRL_METHOD if has_resctrl() else NEIGHBOURS


def check_neighbours(dimensions: Mapping[str, Sequence[str]], machine: Callable[[], Topology]) -> None:
    """Check that neighbours can limit the cache on this machine as the dimensions say, by measuring them.

    Raises:
        AbsentError: They cannot.
        UsageError: They cannot leave one of the sizes.
    """
    if NEIGHBOURS not in dimensions.get("cache_method", ()):
        return
    workers = math.prod(max(map(int, dimensions.get(name, ("1",)))) for name in COUNTS)
    sharing = Sharing.of(machine(), workers)
    for text in dimensions.get("cache", ()):
        _left(text, sharing)
    with alone(CPUS):
        scale_of(sharing)


@contextlib.contextmanager
def beside(values: Mapping[str, str], machine: Callable[[], Topology]) -> Iterator[Beside]:
    """Occupies what a program with the values of a configuration may not fill, until the end of the context.

    Raises:
        AbsentError, UsageError: As `check_neighbours`.
        MeshmarkError: An occupier fails.
    """
    found = Beside()
    if values.get("cache_method") != NEIGHBOURS:
        yield found
        return
    sharing = Sharing.of(machine(), math.prod(int(values.get(name, "1")) for name in COUNTS))
    found.cpus = sharing.program  # also without a limit, so that the limit is all that differs
    with alone(CPUS):
        if (left := _left(values["cache"], sharing)) is None:
            yield found
            return
        found.scale = scale_of(sharing)
        found.counts["cache_claimed_bytes"] = float(sharing.cache_bytes)
        started: list[Occupier] = []
        try:
            with occupying(sharing.parts(sharing.cache_bytes - left)) as started:
                found.occupiers = started
                found.alone_s = _settled(started)
                if not found.scale.is_near(found.alone_s):
                    found.failure = _too_small(sharing, sharing.cache_bytes - left, found.alone_s, found.scale)
                yield found
        finally:
            found.cpu_s = sum(one.cpu_s for one in started)


@contextlib.contextmanager
def occupying(parts: Sequence[tuple[int, int]]) -> Iterator[list[Occupier]]:
    """Occupiers on these CPUs with so much memory each, until the end of the context."""
    started: list[Occupier] = []
    try:
        for cpu, bytes_ in parts:
            started.append(Occupier(cpu, bytes_))
        yield started
    finally:
        for one in started:
            one.end()


@lru_cache(maxsize=16)
def scale_of(sharing: Sharing) -> Scale:
    """The times of loads of the occupiers, measured, and whether the cache is what the machine says about it.

    Raises:
        AbsentError: It is not.
    """

    def measured(total: int) -> float:
        with occupying(sharing.parts(total)) as started:
            return _settled(started)

    whole = sharing.cache_bytes
    scale = Scale(measured(whole // 8), measured(max(2 * whole, min(4 * whole, _MOST_BYTES))))
    if scale.far_s < _FLAT * scale.near_s:
        raise AbsentError(
            f"{_AT}: loads of neighbours take {plain(scale.near_s, 's', 3)} out of {size(whole // 8)} and "
            f"{plain(scale.far_s, 's', 3)} out of memory, too little difference to tell whether they occupy the cache",
            _ADVICE,
        )
    most = whole * 3 // 4
    alone_s = measured(most)
    if not scale.is_near(alone_s):
        raise AbsentError(f"{_AT}: {_too_small(sharing, most, alone_s, scale)}", _ADVICE)
    with occupying([*sharing.parts(most), (sharing.program[0], most + sharing.private_bytes)]) as started:
        together_s = _settled(started)
    if scale.held(together_s, alone_s) >= HELD:
        raise AbsentError(
            f"{_AT}: processes on CPUs {format_list((*sharing.occupiers, sharing.program[0]))} keep more than the "
            f"{size(whole)} of the last-level cache that they share according to the system, so they do not share it",
            _ADVICE,
        )
    return scale


def _left(text: str, sharing: Sharing) -> int | None:
    """What a value of `cache` leaves the program; None for all."""
    wanted = cache_bytes(_AT, text)
    if wanted is not None and wanted >= sharing.cache_bytes:
        raise UsageError(f"{_AT}: found {size(wanted)}; allowed: less than {size(sharing.cache_bytes)}, {ALL}")
    return wanted


def _settled(started: Sequence[Occupier]) -> float:
    """The time of a load of occupiers once they have what they can have."""
    for one in started:
        one.settle()
    marks = [one.mark() for one in started]
    for one, mark in zip(started, marks, strict=True):
        one.wait(mark)
    return _slowest(started, marks) or 0.0


def _slowest(occupiers: Sequence[Occupier], marks: Sequence[int]) -> float | None:
    """The time of a load of the one that waits longest; None if one has none yet."""
    times = [one.load_s(mark) for one, mark in zip(occupiers, marks, strict=True)]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def _too_small(sharing: Sharing, part: int, alone_s: float, scale: Scale) -> str:
    return (
        f"neighbours cannot occupy {size(part)} of the {size(sharing.cache_bytes)} that the last-level cache has "
        f"according to the system: even alone, their loads take {plain(alone_s, 's', 3)}, out of "
        f"{size(sharing.cache_bytes // 8)} {plain(scale.near_s, 's', 3)} and out of memory {plain(scale.far_s, 's', 3)}"
    )
