"""Divides CPUs between a program and the neighbours that put pressure on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshmark.errors import AbsentError, UsageError
from meshmark.machine.topology import Cache, Topology
from meshmark.machine.tree import format_list


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuDivision:
    """The CPUs of a program and of its neighbours.

    Attributes:
        program: CPUs that the program may use, in ascending order.
        neighbours: CPUs that have a neighbour each, in ascending order; none of them is a CPU of the program.
        first_bytes: Size of the first-level data cache of a neighbour's CPU.
        private_bytes: Size of its largest cache that no CPU of the program shares; 0 if all are shared.
        shared_bytes: Size of the smallest cache that a CPU of the program and one of a neighbour share; 0 if they
            share no cache.
        last_bytes: Size of the last-level cache of a neighbour's CPU.
        siblings: Whether a CPU of the program and one of a neighbour are threads of one core.
    """

    program: tuple[int, ...]
    neighbours: tuple[int, ...]
    first_bytes: int
    private_bytes: int
    shared_bytes: int
    last_bytes: int
    siblings: bool

    @property
    def text(self) -> str:
        """Return the division in words, which records have as a condition."""
        return f"program on CPUs {format_list(self.program)}, neighbours on CPUs {format_list(self.neighbours)}"


def divide(machine: Topology, program: Sequence[int] = (), neighbours: Sequence[int] = ()) -> CpuDivision:
    """Return the division of the CPUs that this process may use.

    Args:
        machine: Topology of this machine.
        program: Allowed CPUs of the program; by default half of the cores that share the largest last-level cache, and
            half of the CPUs of a single core.
        neighbours: Allowed CPUs of the neighbours; by default one CPU of each other core that shares this cache.

    Raises:
        UsageError: A CPU is requested for both, or the program has all CPUs.
        AbsentError: There is only one CPU, or the sizes of caches are unknown.
    """
    allowed = set(machine.allowed_cpus)
    if both := sorted(set(program) & set(neighbours)):
        raise UsageError(f"--neighbours: found CPU {both[0]}, which --cpus contains, too; allowed: other CPUs")
    if len(allowed) < 2:
        raise AbsentError("found one CPU for this process; a program and its neighbours need one each")
    if not program:
        program = _half(machine, allowed - set(neighbours))
    if not neighbours:
        neighbours = _others(machine, allowed, set(program))
    return _with_caches(machine, tuple(sorted(set(program))), tuple(sorted(set(neighbours))))


def _half(machine: Topology, cpus: set[int]) -> list[int]:
    """Return the CPUs of half of the cores that share the largest last-level cache."""
    last_level = max((cache.level for cache in machine.caches), default=0)
    domains = [cpus & set(cache.cpus) for cache in machine.caches if cache.level == last_level] or [cpus]
    domain = max(domains, key=len)
    cores = [shared for core in machine.cores if (shared := sorted(domain & set(core.cpus)))]
    if len(cores) < 2:
        return cores[0][: len(cores[0]) // 2] or cores[0] if cores else sorted(cpus)[:1]
    return [cpu for core in cores[: len(cores) // 2] for cpu in core]


def _others(machine: Topology, allowed: set[int], program: set[int]) -> list[int]:
    """Return one CPU of each other core that shares the last-level cache of the program; otherwise of any core."""
    last_level = max((cache.level for cache in machine.caches), default=0)
    near = {cpu for c in machine.caches if c.level == last_level and program & set(c.cpus) for cpu in c.cpus}
    for candidates in ((near or allowed) & allowed - program, allowed - program):
        cores = [sorted(candidates & set(core.cpus)) for core in machine.cores]
        apart = [
            cpus[0] for cpus, core in zip(cores, machine.cores, strict=True) if cpus and not program & set(core.cpus)
        ]
        if apart or candidates:
            return apart or sorted(candidates)
    raise UsageError("--cpus: found all CPUs; allowed: at least one must remain for neighbours")


def last_cache_bytes(machine: Topology, cpu: int) -> int:
    """Return the size of the last-level cache of a CPU; 0 if the kernel reports none."""
    return _sizes(machine, cpu)[-1][1] if _sizes(machine, cpu) else 0


def _sizes(machine: Topology, cpu: int) -> list[tuple[Cache, int]]:
    """Return the caches for data of a CPU that have a size, the first level first."""
    caches = [c for c in machine.caches if c.kind != "instruction" and c.size_bytes and cpu in c.cpus]
    return [(cache, cache.size_bytes or 0) for cache in sorted(caches, key=lambda cache: cache.level)]


def _with_caches(machine: Topology, program: tuple[int, ...], neighbours: tuple[int, ...]) -> CpuDivision:
    sizes = _sizes(machine, neighbours[0])
    if not sizes:
        raise AbsentError("the kernel reports no sizes of caches, which determine the memory of neighbours")
    shared = [size for cache, size in sizes if set(program) & set(cache.cpus)]
    private = [size for cache, size in sizes if not set(program) & set(cache.cpus)]
    return CpuDivision(
        program=program,
        neighbours=neighbours,
        first_bytes=sizes[0][1],
        private_bytes=max(private, default=0),
        shared_bytes=min(shared, default=0),
        last_bytes=sizes[-1][1],
        siblings=any(set(program) & set(core.cpus) and set(neighbours) & set(core.cpus) for core in machine.cores),
    )
