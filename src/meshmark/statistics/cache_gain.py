"""Names the caches that a program gains with more CPUs. They can make it faster than in proportion to its CPUs.

Applications and load kernels use the same rule: a program gains a cache level if its memory fits in the caches of that
level that its CPUs reach, but not in the caches that fewer CPUs reach.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from meshmark.values.units import size

UNKNOWN: Final = "the reason is not known"


class CacheProperties(Protocol):
    """The properties of a cache that the rule needs. The caches of a machine's topology have them."""

    @property
    def level(self) -> int:
        """Return the level, from 1."""
        ...

    @property
    def kind(self) -> str:
        """Return `data`, `unified` or `instruction`."""
        ...

    @property
    def size_bytes(self) -> int | None:
        """Return the size in B; None if it is unknown."""
        ...

    @property
    def cpus(self) -> tuple[int, ...]:
        """Return the CPUs that share the cache."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedCache:
    """A cache of a recorded topology, with a known size."""

    level: int
    kind: str
    size_bytes: int
    cpus: tuple[int, ...]


def superlinear_reason(
    caches: Sequence[CacheProperties], memory_bytes: float, few: Collection[int], many: Collection[int]
) -> str:
    """Return why a program is faster than in proportion to its CPUs.

    The reason is the cache level that holds its memory with `many` CPUs, but not with `few`.

    Args:
        caches: All caches of the machine.
        memory_bytes: Memory that the program uses, in B.
        few: CPUs of the run that it is compared to.
        many: CPUs of the run that is faster than in proportion.
    """
    if memory_bytes <= 0:
        return f"it has no data that a cache could hold; {UNKNOWN}"
    levels = cache_sizes(caches, (few, many))
    if not levels:
        return f"the sizes of the caches are not recorded; {UNKNOWN}"
    for level, name, (before, after) in levels:
        if before < memory_bytes <= after:
            return (
                f"its memory of {size(memory_bytes)} fits in the {name} caches of {len(many)} CPUs "
                f"({size(after)}), not in the caches of {len(few)} ({size(before)})"
            )
        if level == 1 and memory_bytes <= before:
            break
    return f"the added CPUs do not make its memory of {size(memory_bytes)} fit in a further cache level; {UNKNOWN}"


def cache_sizes(
    caches: Sequence[CacheProperties], cpus: tuple[Collection[int], Collection[int]]
) -> list[tuple[int, str, tuple[float, float]]]:
    """Return level, name and total size, in B, of the data caches that each of two sets of CPUs reaches."""
    levels = []
    sized_caches = [(c, c.size_bytes) for c in caches if c.kind != "instruction" and c.size_bytes]
    for level in sorted({c.level for c, _ in sized_caches}):

        def total(reached: Collection[int], level: int = level) -> float:
            return float(sum(size_b for c, size_b in sized_caches if c.level == level and set(c.cpus) & set(reached)))

        levels.append((level, f"L{level}", (total(cpus[0]), total(cpus[1]))))
    return levels


def recorded_caches(topology: Mapping[str, Any]) -> list[RecordedCache]:
    """Return the caches of a recorded topology (JSON) whose level, size and CPUs are known."""
    caches = topology.get("caches", [])
    return [
        RecordedCache(c["level"], str(c.get("kind", "unified")), c["size_bytes"], tuple(c["cpus"]))
        for c in (caches if isinstance(caches, list) else [])
        if isinstance(c, Mapping)
        and isinstance(c.get("level"), int)
        and isinstance(c.get("size_bytes"), int)
        and isinstance(c.get("cpus"), list)
    ]
