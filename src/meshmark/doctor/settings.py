"""Checks of kernel settings and of what the kernel says of nodes; they read files only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from meshmark.doctor.check import Check
from meshmark.machine.topology import Topology
from meshmark.machine.tree import Tree, chosen, format_list

NODE, _CPU, _VM, _KERNEL = "sys/devices/system/node", "sys/devices/system/cpu", "proc/sys/vm", "proc/sys/kernel"
NEARLY: Final = 2  # so much the kernel adds to distances, for a node's CPUs and its number (find_next_best_node)
# ------------------------------------------------------------------ what can be read


def _description(tree: Tree, topology: Topology) -> Iterator[Check]:
    means = "what the firmware hides no policy can use: near and far memory look alike"
    name, nodes, packages = "NUMA description", topology.nodes, topology.packages
    if not tree.numbered(NODE, "node"):
        yield Check(name, "absent", "this kernel shows no NUMA nodes", means, "a kernel with CONFIG_NUMA")
        return
    with_memory = [n for n in nodes if n.memory_bytes != 0]
    shape = f"{len(nodes)} nodes, {len(packages)} packages"
    if len(with_memory) < 2 and len(packages) > 1:
        yield Check(
            name,
            "wrong",
            f"{shape}: the memory of all packages is one node",
            means,
            "in the firmware turn node interleaving off; no numa=off on the kernel's command line",
        )
    elif lost := [c.os_index for c in topology.cpus if c.node is None]:
        yield Check(name, "wrong", f"{shape}: no node has CPUs {format_list(lost)}", means, "update the firmware")
    else:
        yield Check(name, "ok", shape if len(nodes) > 1 else "one node, one package", means)
    yield _distances(topology)


def _distances(topology: Topology) -> Check:
    """ACPI 6.5, 5.2.17: 10 is local, less than 10 is reserved, 255 unreachable."""
    name, means = "node distances", "the kernel spills and policies choose by them"
    remedy = "update the firmware; meshmark place --matrix measured takes measured ones instead"
    table, nodes = topology.distances, topology.nodes
    if len(nodes) < 2:
        return Check(name, "ok", "one node: there are none", means)
    if table is None:
        return Check(name, "wrong", "the nodes have no matrix of distances", means, remedy)
    pairs = [(i, j) for i in range(len(table)) for j in range(len(table)) if i != j]
    if any(table[i][i] != 10 for i in range(len(table))) or any(table[i][j] < 10 for i, j in pairs):
        return Check(name, "wrong", "not a valid SLIT: local must be 10 and remote more", means, remedy)
    if any(table[i][j] == 10 for i, j in pairs):
        return Check(name, "wrong", "flattened: some other node is said to be as near as the own one", means, remedy)
    remote = sorted({table[i][j] for i, j in pairs})
    package = {n.os_index: {c.package for c in topology.cpus if c.node == n.os_index} for n in nodes}
    inside = {table[i][j] for i, j in pairs if _same(package[nodes[i].os_index], package[nodes[j].os_index])}
    across = {table[i][j] for i, j in pairs} - inside
    if inside and any(not _same(package[a.os_index], package[b.os_index]) for a in nodes for b in nodes) and not across:
        return Check(name, "wrong", f"flattened: {remote[0]} within packages and between them", means, remedy)
    doubt = "" if all(table[i][j] == table[j][i] for i, j in pairs) else "; not the same in both directions"
    return Check(name, "ok", f"local 10, remote {', '.join(map(str, remote[:6]))}{doubt}", means)


def _same(a: set[int], b: set[int]) -> bool:
    return bool(a & b)


def _spill(tree: Tree, topology: Topology) -> Iterator[Check]:
    name, means = "spill order", "when a node is full its pages go to these, in this order, without a word"
    table, nodes = topology.distances, topology.nodes
    full = [n for n in full_nodes(tree) if n in {x.os_index for x in nodes}]
    if len(nodes) < 2:
        yield Check(name, "ok", "one node: nowhere to spill to", means)
        return
    if table is None:
        yield Check(name, "absent", "the nodes have no matrix of distances", means)
        return
    orders = []
    for i, node in enumerate(nodes):
        others = sorted((table[i][j], n.os_index) for j, n in enumerate(nodes) if j != i and n.memory_bytes != 0)
        orders.append(f"{node.os_index}→" + ",".join(str(n) for _, n in others))
    said = "; ".join(orders[:8]) + (" …" if len(orders) > 8 else "")
    if full:
        yield Check(
            name,
            "wrong",
            f"node {format_list(full)} is full now and spills; {said}",
            means,
            "free memory there (meshmark placed PID shows whose), or bind with --memory bind",
        )
    else:
        yield Check(name, "ok", said, means)


def full_nodes(tree: Tree) -> list[int]:
    """Nodes whose free pages are below the low watermarks of their zones, by /proc/zoneinfo."""
    free: dict[int, int] = {}
    low: dict[int, int] = {}
    node = -1
    for line in (tree.text("proc/zoneinfo") or "").splitlines():
        if found := re.match(r"Node +([0-9]{1,6}), zone", line):
            node = int(found[1])
        elif found := re.match(r" +pages free +([0-9]{1,18})$", line):
            free[node] = free.get(node, 0) + int(found[1])
        elif found := re.match(r" +low +([0-9]{1,18})$", line):
            low[node] = low.get(node, 0) + int(found[1])
    return [n for n in free if low.get(n, 0) and free[n] < low[n]]


def _settings(tree: Tree, topology: Topology) -> Iterator[Check]:
    nodes = len([n for n in topology.nodes if n.memory_bytes != 0])
    name, means = "NUMA balancing", "moves pages after threads: it mends unbound programs and costs bound ones time"
    value = tree.number(f"{_KERNEL}/numa_balancing")
    if value is None:
        yield Check(name, "absent", "not in this kernel, or not to be read", means)
    else:
        also = ", but one node has nothing to balance" if value and nodes < 2 else ""
        advice = "meshmark advise tells for one program; sudo sysctl kernel.numa_balancing=0 turns it off"
        yield Check(name, "ok", ("on" if value else "off") + also, means, advice if value and nodes > 1 else "")
    name, means = "zone reclaim", "if on, a full node throws its page cache away before it spills: programs stall"
    value = tree.number(f"{_VM}/zone_reclaim_mode")
    if value is None:
        yield Check(name, "absent", "not in this kernel, or not to be read", means)
    elif value and nodes > 1:
        yield Check(name, "wrong", f"on ({value})", means, "sudo sysctl vm.zone_reclaim_mode=0")
    else:
        yield Check(name, "ok", "off" if not value else f"on ({value}), but there is one node", means)
    name, means = "transparent huge pages", "never: --pages thp cannot be had; always: programs get them unasked"
    mode = chosen(tree.text("sys/kernel/mm/transparent_hugepage/enabled"))
    if mode is None:
        yield Check(name, "absent", "not in this kernel, or not to be read", means)
    elif mode == "never":
        yield Check(
            name, "wrong", "never", means, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        )
    else:
        yield Check(name, "ok", mode, means)


def _kernel_memory(tree: Tree, topology: Topology) -> Iterator[Check]:
    name, means = "kernel memory per node", "on a crowded node the kernel's own data is remote to all other nodes"
    amounts: dict[int, int] = {}
    for node in (n for n in topology.nodes if n.memory_bytes != 0):
        text = tree.text(f"{NODE}/node{node.os_index}/meminfo") or ""
        parts = re.findall(r"(?:Slab|KernelStack|PageTables): *([0-9]{1,15}) kB", text)
        if parts:
            amounts[node.os_index] = sum(map(int, parts)) * 1024
    if not amounts:
        yield Check(name, "absent", "the nodes do not tell", means)
        return
    said = ", ".join(f"node {n} {b / 2**20:.0f} MiB" for n, b in list(amounts.items())[:8])
    every = sum(amounts.values())
    crowded = [n for n, b in amounts.items() if len(amounts) > 1 and every and b > (1 + 1 / len(amounts)) / 2 * every]
    if crowded:
        yield Check(
            name,
            "wrong",
            f"{said}: most is on node {crowded[0]}",
            means,
            "start what fills the caches of files on all nodes: meshmark run --memory interleave",
        )
    else:
        yield Check(name, "ok", said, means)


def _cpus(tree: Tree, topology: Topology) -> Iterator[Check]:
    name, means = "SMT", "two threads of one core share it: --slots cores gives a job whole cores"
    per_core = topology.threads_per_core
    yield Check(name, "ok", f"{per_core} threads a core" if per_core > 1 else "one thread a core", means)
    name, means = "isolated CPUs", "nothing is put there unless it is bound, and threads bound to several stay on one"
    isolated = tree.cpus(f"{_CPU}/isolated")
    here = sorted(set(isolated or ()) & set(topology.allowed_cpus))
    if isolated is None:
        yield Check(name, "absent", f"/{_CPU}/isolated is not there", means)
    elif len(here) > 1:
        yield Check(
            name,
            "wrong",
            f"{format_list(here)}: several threads in one mask there share one CPU",
            means,
            "bind one thread to each: meshmark run --each",
        )
    else:
        yield Check(name, "ok", format_list(isolated), means)
    name, means = "offline CPUs", "a CPU that goes away widens the masks of what was bound to it"
    yield Check(name, "ok", format_list(topology.offline_cpus), means)
    name, means = (
        "allowed CPUs",
        "launchers that count from 0 within the cgroup mean other CPUs than the kernel's numbers",
    )
    online = [c.os_index for c in topology.cpus]
    allowed = format_list(topology.allowed_cpus)
    more = "" if len(topology.allowed_cpus) == len(online) else f" of {format_list(online)}"
    yield Check(name, "ok", allowed + more, means)


BY_READING: Final[tuple[Callable[[Tree, Topology], Iterator[Check]], ...]] = (
    _description,
    _spill,
    _settings,
    _kernel_memory,
    _cpus,
)
