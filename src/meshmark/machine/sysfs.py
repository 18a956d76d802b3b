"""Reads a topology from sysfs, of this machine or of a recorded tree."""

from __future__ import annotations

import os
import re
from pathlib import Path

from meshmark.machine.topology import MAX_NODES, Cache, Node, Topology, assemble
from meshmark.machine.tree import MAX_CPUS, MachineError, Tree, kilobytes, parse_list

# ------------------------------------------------------------------ sysfs


def from_sysfs(root: Path = Path("/")) -> Topology:
    """The topology of the online CPUs below `root`.

    `allowed_cpus` is the affinity of this process for `/`, otherwise `Cpus_allowed_list` of the recorded
    /proc/self/status, or else all online CPUs.

    Raises:
        MachineError: `root` contains no CPU in sys/devices/system/cpu.
    """
    tree, base, doubts = Tree(root), "sys/devices/system", list[str]()
    present = tree.numbered(f"{base}/cpu", "cpu")
    online = tree.cpus(f"{base}/cpu/online")
    if online is None:
        online = tuple(c for c in present if tree.number(f"{base}/cpu/cpu{c}/online") != 0)
    known = frozenset(present)
    online = tuple(c for c in online if c in known)
    here = frozenset(online)
    if not online or len(present) > MAX_CPUS:
        raise MachineError(f"{root}: no CPU in sys/devices/system/cpu: not the tree of a Linux machine")

    package_of: dict[int, int] = {}
    siblings: dict[int, tuple[int, ...]] = {}
    core_id: dict[int, int | None] = {}
    for cpu in online:
        at = f"{base}/cpu/cpu{cpu}/topology"
        package = tree.number(f"{at}/physical_package_id")
        package_of[cpu] = package if package is not None and package >= 0 else 0
        shared = tree.cpus(f"{at}/core_cpus_list") or tree.cpus(f"{at}/thread_siblings_list") or ()
        siblings[cpu] = tuple(sorted({cpu, *(here & set(shared))}))
        core_id[cpu] = tree.number(f"{at}/core_id")
    nodes, distances = _sysfs_nodes(tree, online, doubts)
    return assemble(
        origin="sysfs",
        package_of=package_of,
        core_groups=[(core_id[c], siblings[c]) for c in online],
        nodes=nodes,
        caches=_sysfs_caches(tree, online),
        allowed=_allowed(tree, online),
        offline=tuple(sorted(set(present) - set(online))),
        distances=distances,
        kernel_memory=kilobytes(tree.text("proc/meminfo"), "MemTotal"),
        doubts=doubts,
    )


def _allowed(tree: Tree, online: tuple[int, ...]) -> tuple[int, ...]:
    if tree.live:
        return tuple(sorted(os.sched_getaffinity(0)))
    status = tree.text("proc/self/status") or ""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.M)
    if match:
        try:
            return tuple(sorted(frozenset(online) & set(parse_list(match[1])))) or online
        except MachineError:
            return online
    return online


def _sysfs_nodes(
    tree: Tree, online: tuple[int, ...], doubts: list[str]
) -> tuple[list[Node], tuple[tuple[int, ...], ...] | None]:
    base = "sys/devices/system/node"
    numbers = tree.numbered(base, "node")[:MAX_NODES]
    if not numbers:
        doubts.append("the kernel reports no NUMA nodes: all CPUs and memory are treated as node 0")
        total = kilobytes(tree.text("proc/meminfo"), "MemTotal")
        return [Node(os_index=0, cpus=online, near_cpus=online, memory_bytes=total)], None
    here = frozenset(online)
    rows: list[tuple[int, ...]] = []
    for n in numbers:
        row = tuple(
            int(w) for w in (tree.text(f"{base}/node{n}/distance") or "").split() if re.fullmatch("[0-9]{1,5}", w)
        )
        rows.append(row)
    complete = all(len(row) == len(numbers) for row in rows)
    distances = tuple(rows) if complete else None
    if not complete and any(rows):
        doubts.append(f"node distances are not a {len(numbers)} x {len(numbers)} matrix: ignored")
    own: dict[int, tuple[int, ...]] = {}
    for n in numbers:
        listed = tree.cpus(f"{base}/node{n}/cpulist")
        if listed is None:
            listed = tuple(tree.numbered(f"{base}/node{n}", "cpu"))
        own[n] = tuple(sorted(here & set(listed)))
    nodes = []
    for at, n in enumerate(numbers):
        near = own[n]
        if not near:
            names = tree.numbered(f"{base}/node{n}/access0/initiators", "node")
            near = tuple(sorted({c for i in names for c in own.get(i, ())}))
        if not near and distances:
            reach = {i: distances[at][j] for j, i in enumerate(numbers) if own[i]}
            near = tuple(sorted({c for i, d in reach.items() if d == min(reach.values()) for c in own[i]}))
        memory = kilobytes(tree.text(f"{base}/node{n}/meminfo"), "MemTotal")
        nodes.append(Node(os_index=n, cpus=own[n], near_cpus=near, memory_bytes=memory))
    return nodes, distances


def _sysfs_caches(tree: Tree, online: tuple[int, ...]) -> list[Cache]:
    found: dict[tuple[int, str, tuple[int, ...]], Cache] = {}
    here = frozenset(online)
    kinds = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
    for cpu in online:
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index in tree.numbered(folder, "index"):
            at = f"{folder}/index{index}"
            level, kind = tree.number(f"{at}/level"), kinds.get(tree.text(f"{at}/type") or "")
            if level is None or kind is None:
                continue
            shared = tuple(sorted(here & {cpu, *(tree.cpus(f"{at}/shared_cpu_list") or ())}))
            size = re.fullmatch(r"([0-9]{1,12})([KMG]?)", tree.text(f"{at}/size") or "", re.ASCII)
            scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
            found[level, kind, shared] = Cache(
                level=level,
                kind=kind,
                size_bytes=(int(size[1]) * scale[size[2]] or None) if size else None,
                line_bytes=tree.number(f"{at}/coherency_line_size") or None,
                ways=tree.number(f"{at}/ways_of_associativity") or None,
                cpus=shared,
            )
    return list(found.values())
