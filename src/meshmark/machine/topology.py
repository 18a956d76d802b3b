"""Defines the topology of a machine: packages, NUMA nodes, caches, cores and CPUs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from meshmark.machine.tree import MachineError, format_list

MAX_NODES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A socket. `os_index` is the number from the firmware, which may not start at 0."""

    os_index: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Memory at one distance. Without CPUs it is memory-only (CXL, HBM); with 0 B it is memory-less."""

    os_index: int
    cpus: tuple[int, ...]  # CPUs of the node according to the kernel
    near_cpus: tuple[int, ...]  # CPUs for which it is local, or the nearest ones if it has no CPUs
    memory_bytes: int | None  # as reported by the node

    @property
    def kind(self) -> str:
        """`ordinary`, `memory-only`, `memory-less` or `empty`."""
        names = {(True, True): "ordinary", (False, True): "memory-only", (True, False): "memory-less"}
        return names.get((bool(self.cpus), self.memory_bytes != 0), "empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One cache; `kind` is data, instruction or unified. Unknown sizes are None."""

    level: int
    kind: str
    size_bytes: int | None
    line_bytes: int | None
    ways: int | None
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """One core. `index` counts cores from 0 by their first CPU; `os_index` is unique only within a package."""

    index: int
    os_index: int | None
    package: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """A CPU as the OS schedules it. `core` is `Core.index`; `package` and `node` are os_index; `node` may be None."""

    os_index: int
    core: int
    package: int
    node: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The components of a machine, sorted by number. Components contain only online CPUs."""

    origin: str  # sysfs, hwloc-xml or synthetic
    packages: tuple[Package, ...]
    nodes: tuple[Node, ...]
    caches: tuple[Cache, ...]
    cores: tuple[Core, ...]
    cpus: tuple[Cpu, ...]
    allowed_cpus: tuple[int, ...]
    offline_cpus: tuple[int, ...] = ()
    distances: tuple[tuple[int, ...], ...] | None = None  # [from][to], order of `nodes`, 10 = local
    kernel_memory_bytes: int | None = None  # MemTotal of /proc/meminfo
    doubts: tuple[str, ...] = field(default=())  # contradictions between sources

    @property
    def nodes_memory_bytes(self) -> int | None:
        """Sum of the nodes' memory, in B; None if a node does not report it."""
        claims = [n.memory_bytes for n in self.nodes]
        return None if None in claims else sum(c for c in claims if c is not None)

    @property
    def safe_memory_bytes(self) -> int | None:
        """The minimum of the nodes' sum and the kernel's total, in B; None if both are unknown."""
        known = [b for b in (self.nodes_memory_bytes, self.kernel_memory_bytes) if b is not None]
        return min(known, default=None)

    def safe_node_bytes(self, node: Node) -> int | None:
        """The memory of a node in B, at most the kernel's total; None if unknown."""
        known = [b for b in (node.memory_bytes, self.kernel_memory_bytes) if b is not None]
        return min(known, default=None) if node.memory_bytes is not None else None

    @property
    def threads_per_core(self) -> int:
        """The maximum number of CPUs per core, at least 1."""
        return max((len(c.cpus) for c in self.cores), default=1)

    def node_of(self, cpu: int) -> int | None:
        """os_index of the CPU's node; None if no node contains the CPU.

        Raises:
            MachineError: The CPU does not exist or is offline.
        """
        for c in self.cpus:
            if c.os_index == cpu:
                return c.node
        raise MachineError(f"cpu {cpu}: this machine has {format_list([c.os_index for c in self.cpus])}")

    def summary(self) -> str:
        """One line such as `2 packages, 4 NUMA nodes (1 memory-only), 8 cores, 16 CPUs`."""

        def count(n: int, word: str) -> str:
            return f"{n} {word}{'' if n == 1 else 's'}"

        special = [k for k in ("memory-only", "memory-less") if any(n.kind == k for n in self.nodes)]
        notes = ", ".join(f"{sum(n.kind == k for n in self.nodes)} {k}" for k in special)
        return ", ".join(
            [
                count(len(self.packages), "package"),
                count(len(self.nodes), "NUMA node") + (f" ({notes})" if notes else ""),
                count(len(self.cores), "core"),
                count(len(self.cpus), "CPU"),
            ]
        )

    def to_dict(self) -> dict[str, object]:
        """JSON-compatible form. CPUs are lists of int; sizes are in B.

        Keys: `origin`; `summary`; `packages` [{os_index, cpus}]; `nodes` [{os_index, cpus, near_cpus,
        memory_bytes, safe_bytes, kind}]; `caches` [{level, kind, size_bytes, line_bytes, ways, cpus}];
        `cores` [{index, os_index, package, cpus}]; `cpus` [{os_index, core, package, node}];
        `allowed_cpus`, `offline_cpus`; `threads_per_core`; `distances` (matrix, rows and columns in the
        order of `nodes`); `doubts` [str]. An unknown value is {"absent": reason}.
        """

        def known(value: object, reason: str) -> object:
            return {"absent": reason} if value is None else value

        reason = f"not reported by {self.origin}"
        return {
            "origin": self.origin,
            "summary": self.summary(),
            "packages": [{"os_index": p.os_index, "cpus": list(p.cpus)} for p in self.packages],
            "nodes": [
                {
                    "os_index": n.os_index,
                    "cpus": list(n.cpus),
                    "near_cpus": list(n.near_cpus),
                    "memory_bytes": known(n.memory_bytes, reason),
                    "safe_bytes": known(self.safe_node_bytes(n), reason),
                    "kind": n.kind,
                }
                for n in self.nodes
            ],
            "caches": [
                {
                    "level": c.level,
                    "kind": c.kind,
                    "size_bytes": known(c.size_bytes, reason),
                    "line_bytes": known(c.line_bytes, reason),
                    "ways": known(c.ways, reason),
                    "cpus": list(c.cpus),
                }
                for c in self.caches
            ],
            "cores": [
                {"index": c.index, "os_index": known(c.os_index, reason), "package": c.package, "cpus": list(c.cpus)}
                for c in self.cores
            ],
            "cpus": [
                {"os_index": c.os_index, "core": c.core, "package": c.package, "node": known(c.node, "in no node")}
                for c in self.cpus
            ],
            "allowed_cpus": list(self.allowed_cpus),
            "offline_cpus": list(self.offline_cpus),
            "threads_per_core": self.threads_per_core,
            "distances": known(self.distances and [list(row) for row in self.distances], reason),
            "doubts": list(self.doubts),
        }


# ------------------------------------------------------------------ assembly


def assemble(
    *,
    origin: str,
    package_of: dict[int, int],
    core_groups: Iterable[tuple[int | None, tuple[int, ...]]],
    nodes: list[Node],
    caches: list[Cache],
    allowed: tuple[int, ...],
    offline: tuple[int, ...],
    distances: tuple[tuple[int, ...], ...] | None,
    kernel_memory: int | None,
    doubts: list[str],
) -> Topology:
    """Build a topology from its components, and append contradictions between them to `doubts`."""
    core_of: dict[int, int] = {}
    cores: list[Core] = []
    for os_index, cpus in sorted(core_groups, key=lambda g: g[1]):
        free = tuple(c for c in cpus if c not in core_of)
        if not free:
            continue
        if len(free) != len(cpus):
            doubts.append(f"core of CPUs {format_list(cpus)} overlaps another core")
        core_of.update(dict.fromkeys(free, len(cores)))
        cores.append(Core(index=len(cores), os_index=os_index, package=package_of[free[0]], cpus=free))
    node_of: dict[int, int] = {}
    for node in nodes:
        twice = [c for c in node.cpus if node_of.setdefault(c, node.os_index) != node.os_index]
        if twice:
            doubts.append(f"CPUs {format_list(twice)} are in node {node.os_index} and an earlier one, which is used")
    lost = [c for c in package_of if c not in node_of]
    if lost:
        doubts.append(f"no node has CPUs {format_list(lost)}")
    if distances is not None and any(row[i] > min(row) for i, row in enumerate(distances)):
        doubts.append("according to the distances, a node is nearer to another node than to itself")
    claims = [n.memory_bytes for n in nodes if n.memory_bytes is not None]
    if kernel_memory and len(claims) == len(nodes) and not math.isclose(sum(claims), kernel_memory, rel_tol=0.02):
        doubts.append(
            f"the nodes report {sum(claims) / 2**30:.2f} GiB in total, the kernel {kernel_memory / 2**30:.2f} GiB: the "
            "smaller value is used"
        )
    members: dict[int, list[int]] = {}
    for cpu, package in package_of.items():
        members.setdefault(package, []).append(cpu)
    return Topology(
        origin=origin,
        packages=tuple(Package(os_index=p, cpus=tuple(sorted(c))) for p, c in sorted(members.items())),
        nodes=tuple(sorted(nodes, key=lambda n: n.os_index)),
        caches=tuple(sorted(caches, key=lambda c: (c.level, c.kind, c.cpus))),
        cores=tuple(cores),
        cpus=tuple(
            Cpu(os_index=c, core=core_of[c], package=package_of[c], node=node_of.get(c)) for c in sorted(package_of)
        ),
        allowed_cpus=allowed,
        offline_cpus=offline,
        distances=distances,
        kernel_memory_bytes=kernel_memory,
        doubts=tuple(doubts),
    )
