"""Defines the topology of a machine: packages, NUMA nodes, caches, cores and CPUs.

The native half reads all topologies (native/base/topology); `sources` requests them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshmark.machine.tree import MachineError, format_list


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A socket.

    `index` counts packages from 0 by their first CPU; `os_index` is the number from the firmware, which may have gaps
    or be unknown (on s390, and in partitions of POWER).
    """

    index: int
    os_index: int | None
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Memory at one distance. Without CPUs it is memory-only (CXL, HBM); with 0 B it is memory-less."""

    os_index: int
    cpus: tuple[int, ...]  # CPUs of the node according to the kernel
    near_cpus: tuple[int, ...]  # CPUs to which it is local, or else the nearest CPUs; empty if unknown
    memory_bytes: int | None  # as reported by the node

    @property
    def kind(self) -> str:
        """Return `ordinary`, `memory-only`, `memory-less` or `empty`."""
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
    """One core.

    `index` counts cores from 0 by their first CPU; `os_index` is unique only within a package or die; `package` is
    `Package.index`, or None if unknown.
    """

    index: int
    os_index: int | None
    package: int | None
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreKind:
    """Cores that are alike, on a machine whose cores differ: P and E cores of hybrid processors, big.LITTLE.

    `capacity` is the throughput of a CPU according to the kernel's scheduler, relative to 1024.
    """

    name: str  # performance, middle, efficiency, low-power, or the model of the processor
    cpus: tuple[int, ...]
    capacity: int | None = None
    max_hz: int | None = None
    pmu: str | None = None  # cpu_core, cpu_atom, cpu_lowpower
    model: str | None = None  # implementer and part of an Arm core, or the name in an XML file


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """A CPU as the OS schedules it.

    `core` is `Core.index`, `package` is `Package.index` and `node` is `Node.os_index`; the latter two are None if
    unknown. `kind` is the name of its `CoreKind`, or None if all cores are alike.
    """

    os_index: int
    core: int
    package: int | None
    node: int | None
    kind: str | None = None


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
    unlisted_cpus: tuple[int, ...] = ()  # CPUs that exist but are not in the XML file: offline or not allowed
    core_kinds: tuple[CoreKind, ...] = ()  # the fastest first; empty if all cores are alike or unknown
    distances: tuple[tuple[int, ...], ...] | None = None  # [from][to] in the order of `nodes`; 10 is local
    kernel_memory_bytes: int | None = None  # MemTotal of /proc/meminfo
    doubts: tuple[str, ...] = field(default=())  # contradictions between sources

    @property
    def nodes_memory_bytes(self) -> int | None:
        """Return the sum of the nodes' memory in B; None if a node does not report its memory."""
        sizes = [n.memory_bytes for n in self.nodes]
        return None if None in sizes else sum(c for c in sizes if c is not None)

    @property
    def safe_memory_bytes(self) -> int | None:
        """Return the minimum of the nodes' sum and the kernel's total in B; None if both are unknown."""
        sizes = [b for b in (self.nodes_memory_bytes, self.kernel_memory_bytes) if b is not None]
        return min(sizes, default=None)

    def safe_node_bytes(self, node: Node) -> int | None:
        """Return the memory of a node in B, at most the kernel's total; None if unknown."""
        sizes = [b for b in (node.memory_bytes, self.kernel_memory_bytes) if b is not None]
        return min(sizes, default=None) if node.memory_bytes is not None else None

    @property
    def threads_per_core(self) -> int:
        """Return the maximum number of CPUs per core, at least 1."""
        return max((len(c.cpus) for c in self.cores), default=1)

    def node_of(self, cpu: int) -> int | None:
        """Return `os_index` of the CPU's node; None if no node contains the CPU.

        Raises:
            MachineError: The CPU does not exist or is offline.
        """
        for c in self.cpus:
            if c.os_index == cpu:
                return c.node
        raise MachineError(f"cpu {cpu}: this machine has {format_list([c.os_index for c in self.cpus])}")

    def summary(self) -> str:
        """Return one line such as `2 packages, 4 NUMA nodes (1 memory-only), 8 cores, 16 CPUs`."""

        def count(n: int, word: str) -> str:
            return f"{n} {word}{'' if n == 1 else 's'}"

        packages = count(len(self.packages), "package") if self.packages else "unknown packages"
        special = [k for k in ("memory-only", "memory-less") if any(n.kind == k for n in self.nodes)]
        notes = ", ".join(f"{sum(n.kind == k for n in self.nodes)} {k}" for k in special)
        return ", ".join(
            [
                packages,
                count(len(self.nodes), "NUMA node") + (f" ({notes})" if notes else ""),
                count(len(self.cores), "core") + (f" of {len(self.core_kinds)} kinds" if self.core_kinds else ""),
                count(len(self.cpus), "CPU"),
            ]
        )

    def to_dict(self) -> dict[str, object]:
        """Return the JSON-compatible form. CPUs are lists of int; sizes are in B.

        Keys: `origin`; `summary`; `packages` [{index, os_index, cpus}], empty if unknown; `nodes` [{os_index, cpus,
        near_cpus, memory_bytes, safe_bytes, kind}]; `caches` [{level, kind, size_bytes, line_bytes, ways, cpus}];
        `cores` [{index, os_index, package, cpus}]; `core_kinds` [{name, cpus, capacity, max_hz, pmu, model}], empty if
        all cores are alike; `cpus` [{os_index, core, package, node}, and kind if there are several];
        `allowed_cpus`, `offline_cpus`, `unlisted_cpus`; `threads_per_core`; `distances` (matrix, rows and columns in
        the order of `nodes`); `doubts` [str]. An unknown value is {"absent": reason}.
        """

        def or_absent(value: object, reason: str) -> object:
            return {"absent": reason} if value is None else value

        reason = f"not reported by {self.origin}"
        return {
            "origin": self.origin,
            "summary": self.summary(),
            "packages": [
                {"index": p.index, "os_index": or_absent(p.os_index, reason), "cpus": list(p.cpus)}
                for p in self.packages
            ],
            "nodes": [
                {
                    "os_index": n.os_index,
                    "cpus": list(n.cpus),
                    "near_cpus": list(n.near_cpus),
                    "memory_bytes": or_absent(n.memory_bytes, reason),
                    "safe_bytes": or_absent(self.safe_node_bytes(n), reason),
                    "kind": n.kind,
                }
                for n in self.nodes
            ],
            "caches": [
                {
                    "level": c.level,
                    "kind": c.kind,
                    "size_bytes": or_absent(c.size_bytes, reason),
                    "line_bytes": or_absent(c.line_bytes, reason),
                    "ways": or_absent(c.ways, reason),
                    "cpus": list(c.cpus),
                }
                for c in self.caches
            ],
            "cores": [
                {
                    "index": c.index,
                    "os_index": or_absent(c.os_index, reason),
                    "package": or_absent(c.package, reason),
                    "cpus": list(c.cpus),
                }
                for c in self.cores
            ],
            "core_kinds": [
                {"name": k.name, "cpus": list(k.cpus)}
                | {key: or_absent(getattr(k, key), reason) for key in ("capacity", "max_hz", "pmu", "model")}
                for k in self.core_kinds
            ],
            "cpus": [
                {
                    "os_index": c.os_index,
                    "core": c.core,
                    "package": or_absent(c.package, reason),
                    "node": or_absent(c.node, "in no node"),
                }
                | ({"kind": or_absent(c.kind, reason)} if self.core_kinds else {})
                for c in self.cpus
            ],
            "allowed_cpus": list(self.allowed_cpus),
            "offline_cpus": list(self.offline_cpus),
            "unlisted_cpus": list(self.unlisted_cpus),
            "threads_per_core": self.threads_per_core,
            "distances": or_absent(self.distances and [list(row) for row in self.distances], reason),
            "doubts": list(self.doubts),
        }


_ORIGINS = {"tree": "sysfs", "xml": "hwloc-xml"}


def topology_of(native: Mapping[str, Any]) -> Topology:
    """Return the topology in the JSON object of the native half (native/base/topology/topology_json.hpp)."""
    kinds = tuple(CoreKind(**(kind | {"cpus": tuple(kind["cpus"])})) for kind in native["core_kinds"])
    members: dict[int, list[Mapping[str, Any]]] = {}  # CPUs by the native number of their core
    packages: dict[int, tuple[int | None, list[int]]] = {}
    for cpu in native["cpus"]:
        members.setdefault(cpu["core"], []).append(cpu)
        if cpu["package"] is not None:
            packages.setdefault(cpu["package"], (cpu["package_id"], []))[1].append(cpu["os_index"])
    order = {package: position for position, package in enumerate(sorted(packages, key=lambda p: packages[p][1][0]))}

    def index_of(package: int | None) -> int | None:
        return None if package is None else order[package]

    groups = sorted(members.values(), key=lambda cpus: cpus[0]["os_index"])
    core_of = {cpu["os_index"]: index for index, cpus in enumerate(groups) for cpu in cpus}
    distances = native["distances"]
    return Topology(
        origin=_ORIGINS.get(native["origin"], native["origin"]),
        packages=tuple(
            Package(index=order[number], os_index=packages[number][0], cpus=tuple(packages[number][1]))
            for number in order
        ),
        nodes=tuple(
            Node(**(node | {"cpus": tuple(node["cpus"]), "near_cpus": tuple(node["near_cpus"])}))
            for node in native["nodes"]
        ),
        caches=tuple(Cache(**(cache | {"cpus": tuple(cache["cpus"])})) for cache in native["caches"]),
        cores=tuple(
            Core(
                index=index,
                os_index=cpus[0]["core_id"],
                package=index_of(cpus[0]["package"]),
                cpus=tuple(cpu["os_index"] for cpu in cpus),
            )
            for index, cpus in enumerate(groups)
        ),
        cpus=tuple(
            Cpu(
                os_index=cpu["os_index"],
                core=core_of[cpu["os_index"]],
                package=index_of(cpu["package"]),
                node=cpu["node"],
                kind=None if cpu["kind"] is None else kinds[cpu["kind"]].name,
            )
            for cpu in native["cpus"]
        ),
        allowed_cpus=tuple(native["allowed_cpus"]),
        offline_cpus=tuple(native["offline_cpus"]),
        unlisted_cpus=tuple(native["unlisted_cpus"]),
        core_kinds=kinds,
        distances=None if distances is None else tuple(tuple(row) for row in distances),
        kernel_memory_bytes=native["kernel_memory_bytes"],
        doubts=tuple(native["doubts"]),
    )
