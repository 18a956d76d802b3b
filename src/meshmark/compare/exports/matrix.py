"""Finds the latency and the bandwidth between NUMA nodes among the results of a machine.

All values of a matrix have the same conditions: those under which most pairs of nodes were measured. Values of other
conditions would differ from these for reasons other than the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark.compare.exports.base import Material, nothing, words
from meshmark.machine.topology import Topology
from meshmark.machine.tree import MachineError, format_list, parse_list
from meshmark.store.record import Record, Scalar

Pair = tuple[int, int]  # node of the CPUs, node of the memory
_PAGES: Final = ("4KiB", "thp", "2MiB", "1GiB")  # the greater, the less address translation is measured
_KERNELS: Final = ("mix", "write", "update", "scale", "copy", "add", "triad", "read")  # the last is preferred
_STATES: Final = ("clean", "dirty", "flag", "swap")
_OWN: Final = "own node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One value for each pair of nodes that was measured.

    Attributes:
        cells: By node of the CPUs and node of the memory.
        conditions: What all values have in common, in words.
    """

    cells: Mapping[Pair, Record] = field(default_factory=dict)
    conditions: str = ""

    def value(self, initiator: int, target: int) -> float | None:
        """The value of a pair, in the unit of the records; None if it was not measured."""
        found = self.cells.get((initiator, target))
        return None if found is None else found.value

    def full(self, nodes: Iterable[int]) -> bool:
        """Whether all pairs of these nodes were measured."""
        known = list(nodes)
        return all((a, b) in self.cells for a in known for b in known)


def node_of(topology: Topology) -> dict[int, int]:
    """The node of each CPU."""
    return {c.os_index: c.node for c in topology.cpus if c.node is not None}


def latency_command(topology: Topology) -> str:
    """The command that measures the latency of every pair."""
    cpus = [node.cpus[0] for node in topology.nodes if node.cpus]
    return f"meshmark measure latency --cpus {format_list(cpus)} --memory-node all --footprint 1GiB"


def bandwidth_commands(topology: Topology) -> list[str]:
    """The commands that measure the bandwidth of every pair."""
    return [
        f"meshmark measure bandwidth --kernel read --threads all --cpus {format_list(node.cpus)} --memory-node all"
        for node in topology.nodes
        if node.cpus
    ]


def latencies(material: Material) -> Matrix:
    """Idle latency from the CPUs of each node to the memory of each, in s; empty if no pair was measured.

    Counts a dependent load of a random cycle that no cache holds, with one CPU; of several CPUs of a node the middle
    value.
    """
    topology = material.topology
    nodes = node_of(topology)
    cache = max((c.size_bytes or 0 for c in topology.caches), default=0)
    found: list[tuple[Pair, Record]] = []
    for r in material.take("latency", "load_latency"):
        c = r.conditions
        footprint = c.get("footprint_bytes")
        if c.get("processes") not in {None, 1} or c.get("pattern") not in {None, "random"} or c.get("locality_bytes"):
            continue  # another quantity
        if isinstance(footprint, int) and footprint <= cache:
            continue  # the latency of a cache
        if (pair := _pair(material, r, [c.get("cpu")], nodes)) is not None:
            found.append((pair, r))
    same = ("footprint_bytes", "pages", "stride_bytes", "pattern", "state")
    return _matrix(material, found, lambda r: {k: r.conditions.get(k) for k in same}, _by_latency)


def known_latencies(material: Material) -> Matrix:
    """Those of `latencies`.

    Raises:
        AbsentError: None was measured.
    """
    found = latencies(material)
    if not found.cells:
        raise nothing("latency of a memory", latency_command(material.topology))
    return found


def bandwidths(material: Material) -> Matrix:
    """Bandwidth from the CPUs of each node to the memory of each, in B/s; empty if no pair was measured."""
    topology = material.topology
    nodes = node_of(topology)
    found = [
        (pair, r)
        for r in material.take("bandwidth", "bandwidth_net")
        if in_memory(r, topology) and (pair := _pair(material, r, _cpus(r), nodes)) is not None
    ]
    return _matrix(material, found, lambda r: _stream(r, _team(r, topology)), _by_stream)


def node_bandwidths(material: Material) -> tuple[dict[int, Record], str]:
    """The bandwidth of the memory of each node, in B/s, and its conditions.

    Either the same CPUs reach the memory of every node, or those of each node their own: what covers more nodes.

    Raises:
        AbsentError: None was measured.
    """
    topology = material.topology
    nodes = node_of(topology)
    found: list[tuple[Pair, Record]] = []
    for r in material.take("bandwidth", "bandwidth_net"):
        if not in_memory(r, topology):
            continue
        homes = {nodes.get(c) for c in _cpus(r)} | ({r.conditions["cpu_node"]} if "cpu_node" in r.conditions else set())
        target = _target(r, homes)
        if target is not None and target in {n.os_index for n in topology.nodes}:
            found.append(((0, target), r))
    own_too = [((1, pair[1]), r) for pair, r in found if _where(r, nodes) == _OWN]

    def conditions(of: Callable[[Record], str]) -> Callable[[Record], dict[str, Scalar]]:
        return lambda r: {**_stream(r, _team(r, topology)), "cpus": of(r)}

    one = _matrix(material, found, conditions(lambda r: str(r.conditions.get("cpus", ""))), _by_stream, say=False)
    own = _matrix(material, own_too, conditions(lambda r: _OWN), _by_stream, say=False)
    best = own if len(own.cells) >= len(one.cells) else one
    if not best.cells:
        raise nothing("bandwidth of a memory node", _all_nodes_command(topology))
    return {target: r for (_, target), r in sorted(best.cells.items())}, best.conditions


def _all_nodes_command(topology: Topology) -> str:
    first = next((n for n in topology.nodes if n.cpus), None)
    cpus = format_list(first.cpus) if first else "0"
    return f"meshmark measure bandwidth --kernel read --threads all --cpus {cpus} --memory-node all"


def line_latencies(material: Material) -> Matrix:
    """Latency of the transfer of a cache line between CPUs, in s, by CPU that has the line and CPU that gets it."""
    found = []
    for r in material.take("lines", "line_latency"):
        a, b = r.conditions.get("from_cpu"), r.conditions.get("to_cpu")
        if isinstance(a, int) and isinstance(b, int) and a != b:
            found.append(((a, b), r))
    same = ("state", "trip", "home_node", "pages")
    return _matrix(material, found, lambda r: {k: r.conditions.get(k) for k in same}, _by_line)


def distances(latency: Matrix, nodes: Sequence[int]) -> dict[Pair, int] | None:
    """Relative distances as in an ACPI SLIT, 10 for a node's own memory, at most 254; None if one cannot be derived.

    A node without CPUs has no latencies of its own: they are taken to be those of the opposite direction, and two such
    nodes to be as far apart as the farthest pair.
    """
    found: dict[Pair, int] = {}
    for a in nodes:
        own = latency.value(a, a)
        for b in nodes:
            if a == b:
                found[a, b] = 10
            elif own and (value := latency.value(a, b)) is not None:
                found[a, b] = max(11, min(254, round(10 * value / own)))
    for a in nodes:
        for b in nodes:
            if (a, b) not in found and (b, a) in found and (a, a) not in latency.cells:
                found[a, b] = found[b, a]
    alone = {n for n in nodes if (n, n) not in latency.cells}
    far = max(found.values(), default=10)
    found |= {(a, b): far for a in alone for b in alone if a != b and (a, b) not in found}
    return found if all((a, b) in found for a in nodes for b in nodes) else None


# ------------------------------------------------------------------ of a record


def _cpus(record: Record) -> tuple[int, ...]:
    try:
        return parse_list(str(record.conditions.get("cpus", "")))
    except MachineError:
        return ()


def _target(record: Record, homes: Iterable[Any]) -> int | None:
    """The node of the memory; that of the CPUs if it is `local` and they are all of one node."""
    node = record.conditions.get("memory_node")
    if isinstance(node, int) and not isinstance(node, bool):
        return node
    if node not in {"local", None}:
        return None
    only = set(homes)
    if len(only) != 1:
        return None
    home = only.pop()
    return home if isinstance(home, int) and record.conditions.get("observed_node", home) == home else None


def _pair(material: Material, record: Record, cpus: Iterable[Any], nodes: Mapping[int, int]) -> Pair | None:
    """The nodes between which a result was measured; None if its CPUs are on several, or it is of no such pair."""
    known = {n.os_index for n in material.topology.nodes}
    stated = record.conditions.get("cpu_node")
    listed = [c for c in cpus if isinstance(c, int)]
    if strange := [c for c in listed if c not in nodes]:
        material.omit(record, f"measured on CPU {strange[0]}, which no node of the topology has")
        return None
    homes: set[Any] = {stated} if isinstance(stated, int) else {nodes[c] for c in listed}
    if len(homes) != 1:
        return None
    target = _target(record, homes)
    home = homes.pop()
    if target is None:
        return None
    if home not in nodes.values() or target not in known:
        material.omit(record, f"between nodes {home} and {target}, which the topology does not have")
        return None
    return home, target


def _where(record: Record, nodes: Mapping[int, int]) -> str:
    homes: set[Any] = {nodes.get(c) for c in _cpus(record)}
    if isinstance(stated := record.conditions.get("cpu_node"), int):
        homes = {stated}
    return _OWN if homes == {_target(record, homes)} else ""


def in_memory(record: Record, topology: Topology) -> bool:
    """Whether the arrays exceed the caches; unknown sizes count."""
    footprint = record.conditions.get("footprint_bytes")
    last = max((c.level for c in topology.caches), default=0)
    caches = sum(c.size_bytes or 0 for c in topology.caches if c.level == last)
    return not isinstance(footprint, int) or footprint > caches


def _team(record: Record, topology: Topology) -> str:
    """How many threads measured: as many as the node of its CPUs has CPUs (`all of a node`), or the number."""
    threads = record.conditions.get("threads")
    cpus = set(_cpus(record))
    full = any(set(n.cpus) == cpus for n in topology.nodes if n.cpus)
    return "all of a node" if threads is None or (full and threads == len(cpus)) else str(threads)


def _stream(record: Record, team: str) -> dict[str, Scalar]:
    same = ("kernel", "store", "isa", "pages", "mode", "footprint_bytes", "thread_buffer_bytes")
    return {**{k: record.conditions.get(k) for k in same}, "threads": team}


def _place(value: object, order: Sequence[str]) -> int:
    return order.index(str(value)) if str(value) in order else -1


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _by_latency(c: Mapping[str, Scalar]) -> tuple[float, ...]:
    return _place(c["pages"], _PAGES), _number(c["footprint_bytes"])


def _by_stream(c: Mapping[str, Scalar]) -> tuple[float, ...]:
    threads = str(c["threads"])
    team = float(threads) if threads.isdigit() else float("inf")
    own = float(c.get("store") == "streaming")
    return team, _place(c["kernel"], _KERNELS), own, _place(c["pages"], _PAGES), _number(c["footprint_bytes"])


def _by_line(c: Mapping[str, Scalar]) -> tuple[float, ...]:
    return (_place(c["state"], _STATES),)


def _matrix(
    material: Material,
    found: Sequence[tuple[Pair, Record]],
    conditions: Callable[[Record], dict[str, Scalar]],
    rank: Callable[[Mapping[str, Scalar]], tuple[float, ...]],
    say: bool = True,
) -> Matrix:
    """The values of the conditions that cover most pairs; of equals those that `rank` puts first."""
    groups: dict[tuple[Any, ...], dict[Pair, list[Record]]] = {}
    of: dict[tuple[Any, ...], dict[str, Scalar]] = {}
    for pair, r in found:
        c = {"source": r.source, **conditions(r)}
        key = tuple(c.values())
        of[key] = c
        groups.setdefault(key, {}).setdefault(pair, []).append(r)
    if not groups:
        return Matrix()
    best = max(groups, key=lambda key: (len(groups[key]), *rank(of[key]), str(key)))
    cells = {}
    for pair, records in sorted(groups[best].items()):
        ordered = sorted(records, key=lambda r: r.value)
        cells[pair] = ordered[(len(ordered) - 1) // 2]
    if say:
        kept = {id(r) for r in cells.values()}
        for _, r in found:
            if id(r) not in kept:
                material.omit(r, f"other conditions or CPUs than those of the matrix of {r.metric}")
    return Matrix(cells=cells, conditions=words(of[best]))
