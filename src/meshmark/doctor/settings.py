"""Checks of kernel settings and node descriptions, which only read files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from meshmark.doctor.finding import HostFinding
from meshmark.machine.topology import Topology
from meshmark.machine.tree import Files, FileTree, chosen, format_list
from meshmark.values.units import counted

NODE, _CPU, _VM, _KERNEL = "sys/devices/system/node", "sys/devices/system/cpu", "proc/sys/vm", "proc/sys/kernel"
NEARLY: Final = 2  # the kernel adds up to this to a distance, because of CPUs and node number (find_next_best_node)


def _description(tree: FileTree, topology: Topology) -> Iterator[HostFinding]:
    effect = "policies need a correct description: without it, local and remote memory look the same"
    name, nodes, packages = "NUMA description", topology.nodes, topology.packages
    if not tree.numbered(NODE, "node"):
        yield HostFinding(
            name, "this kernel reports no NUMA nodes", "unknown", effect, "boot a kernel with CONFIG_NUMA"
        )
        return
    with_memory = [n for n in nodes if n.memory_bytes != 0]
    shape = f"{counted(len(nodes), 'node')}, {counted(len(packages), 'package') if packages else 'unknown packages'}"
    unreported_nodes = [n.os_index for n in nodes if not _states_cpus(tree, n.os_index)]
    cpus_without_node = [c.os_index for c in topology.cpus if c.node is None]
    if len(with_memory) < 2 and len(packages) > 1:
        is_guest = "hypervisor" in (tree.text("proc/cpuinfo") or "").split()
        yield HostFinding(
            name,
            f"{shape}: the memory of all packages is one node",
            "wrong",
            effect,
            "on the hypervisor: give this guest a NUMA node for each package"
            if is_guest
            else "disable node interleaving in the firmware; remove numa=off from the kernel command line",
        )
    elif cpus_without_node and unreported_nodes:
        observation = f"{shape}: the CPUs of node {format_list(unreported_nodes)} are not reported"
        yield HostFinding(name, observation, "unknown", effect)
    elif cpus_without_node:
        yield HostFinding(
            name, f"{shape}: no node has CPUs {format_list(cpus_without_node)}", "wrong", effect, "update the firmware"
        )
    else:
        yield HostFinding(name, shape if len(nodes) > 1 else "one node, one package", "ok", effect)
    yield _distances(tree, topology)


def _states_cpus(tree: FileTree, node: int) -> bool:
    """Return whether the tree states which CPUs a node has, in one of the three forms of the kernel."""
    folder = f"{NODE}/node{node}"
    return any(tree.text(f"{folder}/{name}") is not None for name in ("cpulist", "cpumap")) or bool(
        tree.numbered(folder, "cpu")
    )


def _distances(tree: FileTree, topology: Topology) -> HostFinding:
    """Check the node distances. ACPI 6.5, 5.2.17: 10 is local, less than 10 is reserved, 255 is unreachable."""
    name, effect = "node distances", "the kernel and placement policies choose nodes by distance"
    remedy = "update the firmware; meshmark place --matrix measured uses measured distances instead"
    table, nodes = topology.distances, topology.nodes
    if len(nodes) < 2:
        return HostFinding(name, "one node: no distances", "ok", effect)
    silent_nodes = [n.os_index for n in nodes if not tree.text(f"{NODE}/node{n.os_index}/distance")]
    if table is None and silent_nodes:
        subject = (
            "no node reports"
            if len(silent_nodes) == len(nodes)
            else f"node {format_list(silent_nodes)} does not report"
        )
        return HostFinding(name, f"{subject} distances", "unknown", effect)
    if table is None:
        return HostFinding(name, "the nodes have no matrix of distances", "wrong", effect, remedy)
    pairs = [(i, j) for i in range(len(table)) for j in range(len(table)) if i != j]
    if any(table[i][i] != 10 for i in range(len(table))) or any(table[i][j] < 10 for i, j in pairs):
        return HostFinding(name, "not a valid SLIT: local must be 10, remote greater", "wrong", effect, remedy)
    if any(table[i][j] == 10 for i, j in pairs):
        return HostFinding(name, "flattened: a remote node has the local distance", "wrong", effect, remedy)
    remote_distances = sorted({table[i][j] for i, j in pairs})
    package = {
        n.os_index: {c.package for c in topology.cpus if c.node == n.os_index and c.package is not None} for n in nodes
    }
    inner_distances = {table[i][j] for i, j in pairs if _same(package[nodes[i].os_index], package[nodes[j].os_index])}
    outer_distances = {table[i][j] for i, j in pairs} - inner_distances
    known_packages = [p for p in package.values() if p]  # without nodes that have no CPU in a package
    if inner_distances and any(not _same(a, b) for a in known_packages for b in known_packages) and not outer_distances:
        return HostFinding(
            name, f"flattened: {remote_distances[0]} both within and between packages", "wrong", effect, remedy
        )
    suffix = "" if all(table[i][j] == table[j][i] for i, j in pairs) else "; asymmetric"
    return HostFinding(name, f"local 10, remote {', '.join(map(str, remote_distances[:6]))}{suffix}", "ok", effect)


def _same(a: set[int], b: set[int]) -> bool:
    return bool(a & b)


def _spill(tree: FileTree, topology: Topology) -> Iterator[HostFinding]:
    name, effect = "spill order", "if a node is full, its pages are silently allocated on these nodes, in this order"
    table, nodes = topology.distances, topology.nodes
    exhausted_nodes = [n for n in full_nodes(tree) if n in {x.os_index for x in nodes}]
    if len(nodes) < 2:
        yield HostFinding(name, "one node: nothing to spill to", "ok", effect)
        return
    if table is None:
        yield HostFinding(name, "the nodes have no matrix of distances", "unknown", effect)
        return
    orders = []
    for i, node in enumerate(nodes):
        other_nodes = sorted((table[i][j], n.os_index) for j, n in enumerate(nodes) if j != i and n.memory_bytes != 0)
        orders.append(f"{node.os_index}→" + ",".join(str(n) for _, n in other_nodes))
    orders_text = "; ".join(orders[:8]) + (" …" if len(orders) > 8 else "")
    if exhausted_nodes:
        yield HostFinding(
            name,
            f"node {format_list(exhausted_nodes)} is full and spills; {orders_text}",
            "wrong",
            effect,
            "free memory on it (meshmark placed PID shows usage), or bind with --memory bind",
        )
    else:
        yield HostFinding(name, orders_text, "ok", effect)


def full_nodes(tree: FileTree) -> list[int]:
    """Return the nodes whose free pages are below the low watermarks of their zones, according to /proc/zoneinfo."""
    free: dict[int, int] = {}
    low: dict[int, int] = {}
    node = -1
    for line in (tree.text("proc/zoneinfo") or "").splitlines():
        if match := re.match(r"Node +([0-9]{1,6}), zone", line):
            node = int(match[1])
        elif match := re.match(r" +pages free +([0-9]{1,18})$", line):
            free[node] = free.get(node, 0) + int(match[1])
        elif match := re.match(r" +low +([0-9]{1,18})$", line):
            low[node] = low.get(node, 0) + int(match[1])
    return [n for n in free if low.get(n, 0) and free[n] < low[n]]


_THP: Final = "sys/kernel/mm/transparent_hugepage"


def thp_mode(tree: Files) -> tuple[str | None, str]:
    """Return when programs get transparent huge pages (always, madvise, never), and the file that decides it.

    Since Linux 6.8, each page size has its own file, which may inherit the setting for all sizes.
    The first value is None if the kernel does not report it.
    """
    size = tree.number(f"{_THP}/hpage_pmd_size") or 0
    for file in (f"{_THP}/hugepages-{size >> 10}kB/enabled", f"{_THP}/enabled"):
        mode = chosen(tree.text(file))
        if mode not in (None, "inherit"):
            return mode, file
    return None, f"{_THP}/enabled"


def _settings(tree: FileTree, topology: Topology) -> Iterator[HostFinding]:
    nodes = len([n for n in topology.nodes if n.memory_bytes != 0])
    name, effect = "NUMA balancing", "migrates pages towards threads: helps unbound programs, slows bound ones down"
    value = tree.number(f"{_KERNEL}/numa_balancing")
    if value is None:
        yield HostFinding(name, "not in this kernel, or not readable", "unknown", effect)
    else:
        suffix = ", but one node has nothing to balance" if value and nodes < 2 else ""
        advice = "test a program with meshmark advise; disable with sudo sysctl kernel.numa_balancing=0"
        yield HostFinding(
            name, ("on" if value else "off") + suffix, "ok", effect, advice if value and nodes > 1 else ""
        )
    name, effect = "zone reclaim", "if on, a full node reclaims its page cache before it spills: programs stall"
    value = tree.number(f"{_VM}/zone_reclaim_mode")
    if value is None:
        yield HostFinding(name, "not in this kernel, or not readable", "unknown", effect)
    elif value and nodes > 1:
        yield HostFinding(name, f"on ({value})", "wrong", effect, "sudo sysctl vm.zone_reclaim_mode=0")
    else:
        yield HostFinding(name, "off" if not value else f"on ({value}), but there is one node", "ok", effect)
    name, effect = (
        "transparent huge pages",
        "never: --pages thp has no effect; always: programs get them without a request",
    )
    mode, file = thp_mode(tree)
    if mode is None:
        yield HostFinding(name, "not in this kernel, or not readable", "unknown", effect)
    elif mode == "never":
        yield HostFinding(name, "never", "wrong", effect, f"echo madvise | sudo tee /{file}")
    else:
        yield HostFinding(name, mode, "ok", effect)


def _kernel_memory(tree: FileTree, topology: Topology) -> Iterator[HostFinding]:
    name, effect = "kernel memory per node", "kernel data on one node are remote for all other nodes"
    amounts: dict[int, int] = {}
    for node in (n for n in topology.nodes if n.memory_bytes != 0):
        text = tree.text(f"{NODE}/node{node.os_index}/meminfo") or ""
        parts = re.findall(r"(?:Slab|KernelStack|PageTables): *([0-9]{1,15}) kB", text)
        if parts:
            amounts[node.os_index] = sum(map(int, parts)) * 1024
    if not amounts:
        yield HostFinding(name, "not reported per node", "unknown", effect)
        return
    amounts_text = ", ".join(f"node {n} {b / 2**20:.0f} MiB" for n, b in list(amounts.items())[:8])
    total = sum(amounts.values())
    crowded_nodes = [
        n for n, b in amounts.items() if len(amounts) > 1 and total and b > (1 + 1 / len(amounts)) / 2 * total
    ]
    if crowded_nodes:
        yield HostFinding(
            name,
            f"{amounts_text}: mostly on node {crowded_nodes[0]}",
            "wrong",
            effect,
            "start programs that fill the page cache with meshmark run --memory interleave",
        )
    else:
        yield HostFinding(name, amounts_text, "ok", effect)


def _cpus(tree: FileTree, topology: Topology) -> Iterator[HostFinding]:
    name, effect = "SMT", "hardware threads share a core: --slots cores allocates whole cores"
    per_core = topology.threads_per_core
    if per_core == 1 and not any(_states_core(tree, c.os_index) for c in topology.cpus):
        yield HostFinding(name, "the CPUs of each core are not reported", "unknown", effect)
    else:
        yield HostFinding(name, f"{per_core} threads per core" if per_core > 1 else "one thread per core", "ok", effect)
    name, effect = "isolated CPUs", "only bound threads run there, and threads bound to several of them share one"
    isolated_cpus = tree.cpus(f"{_CPU}/isolated")
    shared_cpus = sorted(set(isolated_cpus or ()) & set(topology.allowed_cpus))
    if isolated_cpus is None:
        yield HostFinding(name, f"/{_CPU}/isolated does not exist", "unknown", effect)
    elif len(shared_cpus) > 1:
        yield HostFinding(
            name,
            f"{format_list(shared_cpus)}: threads that share a mask run on one CPU",
            "wrong",
            effect,
            "bind one thread per CPU: meshmark run --each",
        )
    else:
        yield HostFinding(name, format_list(isolated_cpus), "ok", effect)
    name, effect = "offline CPUs", "if a CPU goes offline, the kernel widens the masks of threads bound to it"
    yield HostFinding(name, format_list(topology.offline_cpus), "ok", effect)
    name, effect = (
        "allowed CPUs",
        "launchers that number CPUs from 0 within the cgroup differ from the kernel's numbers",
    )
    online_cpus = [c.os_index for c in topology.cpus]
    allowed_list = format_list(topology.allowed_cpus)
    suffix = "" if len(topology.allowed_cpus) == len(online_cpus) else f" of {format_list(online_cpus)}"
    yield HostFinding(name, allowed_list + suffix, "ok", effect)


def _states_core(tree: FileTree, cpu: int) -> bool:
    """Return whether the tree states which CPUs share the core of a CPU, in one of the four forms of the kernel."""
    forms = ("core_cpus_list", "core_cpus", "thread_siblings_list", "thread_siblings")
    return any(tree.text(f"{_CPU}/cpu{cpu}/topology/{name}") for name in forms)


BY_READING: Final[tuple[Callable[[FileTree, Topology], Iterator[HostFinding]], ...]] = (
    _description,
    _spill,
    _settings,
    _kernel_memory,
    _cpus,
)
