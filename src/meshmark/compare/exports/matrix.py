"""Finds the latency and the bandwidth between NUMA nodes among the results of a machine.

All values of a matrix have the same conditions: the conditions under which most pairs of nodes were measured. Values
of other conditions would differ for reasons other than the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark.compare.exports.base import ExportMaterial, nothing, words
from meshmark.machine.topology import Topology
from meshmark.machine.tree import MachineError, format_list, parse_list
from meshmark.store.record import Record, Scalar

Pair = tuple[int, int]  # node of the CPUs, node of the memory
_PAGES: Final = ("4KiB", "thp", "2MiB", "1GiB")  # the greater, the less address translation is measured
_KERNELS: Final = ("mix", "write", "update", "scale", "copy", "add", "triad", "read")  # the last is preferred
_STATES: Final = ("clean", "dirty", "flag", "swap")
_OWN: Final = "own node"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePairMatrix:
    """One value for each pair of nodes that was measured.

    Attributes:
        cells: By node of the CPUs and node of the memory.
        conditions: Conditions that all values have in common, in words.
    """

    cells: Mapping[Pair, Record] = field(default_factory=dict)
    conditions: str = ""

    def value(self, initiator: int, target: int) -> float | None:
        """Return the value of a pair, in the unit of the records; None if it was not measured."""
        record = self.cells.get((initiator, target))
        return None if record is None else record.value

    def full(self, nodes: Iterable[int]) -> bool:
        """Return whether all pairs of these nodes were measured."""
        node_list = list(nodes)
        return all((a, b) in self.cells for a in node_list for b in node_list)


def node_of(topology: Topology) -> dict[int, int]:
    """Return the node of each CPU."""
    return {c.os_index: c.node for c in topology.cpus if c.node is not None}


def latency_command(topology: Topology) -> str:
    """Return the command that measures the latency of every pair."""
    cpus = [node.cpus[0] for node in topology.nodes if node.cpus]
    return f"meshmark measure latency --cpus {format_list(cpus)} --memory-node all --footprint 1GiB"


def bandwidth_commands(topology: Topology) -> list[str]:
    """Return the commands that measure the bandwidth of every pair."""
    return [
        f"meshmark measure bandwidth --kernel read --threads all --cpus {format_list(node.cpus)} --memory-node all"
        for node in topology.nodes
        if node.cpus
    ]


def latencies(material: ExportMaterial) -> NodePairMatrix:
    """Return the idle latency from the CPUs of each node to the memory of each, in s; empty if no pair was measured.

    A result counts if it is of a pointer chase in random order, by one CPU, that exceeds the largest cache. If several
    CPUs of a node were measured, their middle value counts.
    """
    topology = material.topology
    nodes = node_of(topology)
    cache = max((c.size_bytes or 0 for c in topology.caches), default=0)
    candidates: list[tuple[Pair, Record]] = []
    for r in material.take("latency", "load_latency"):
        c = r.conditions
        footprint = c.get("footprint_bytes")
        if c.get("processes") not in {None, 1} or c.get("pattern") not in {None, "random"} or c.get("locality_bytes"):
            continue  # another quantity
        if isinstance(footprint, int) and footprint <= cache:
            continue  # the latency of a cache
        if (pair := _pair(material, r, [c.get("cpu")], nodes)) is not None:
            candidates.append((pair, r))
    names = ("footprint_bytes", "pages", "stride_bytes", "pattern", "state")
    return _matrix(material, candidates, lambda r: {k: r.conditions.get(k) for k in names}, _by_latency)


def known_latencies(material: ExportMaterial) -> NodePairMatrix:
    """Return the matrix of `latencies`, which is not empty.

    Raises:
        AbsentError: No latency was measured.
    """
    matrix = latencies(material)
    if not matrix.cells:
        raise nothing("latency of a memory", latency_command(material.topology))
    return matrix


def bandwidths(material: ExportMaterial) -> NodePairMatrix:
    """Return the bandwidth from the CPUs of each node to the memory of each, in B/s; empty if no pair was measured."""
    topology = material.topology
    nodes = node_of(topology)
    candidates = [
        (pair, r)
        for r in material.take("bandwidth", "bandwidth_net")
        if in_memory(r, topology) and (pair := _pair(material, r, _cpus(r), nodes)) is not None
    ]
    return _matrix(material, candidates, lambda r: _stream(r, _team(r, topology)), _by_stream)


def node_bandwidths(material: ExportMaterial) -> tuple[dict[int, Record], str]:
    """Return the bandwidth of the memory of each node, in B/s, and its conditions.

    Either the same CPUs access the memory of every node, or the CPUs of each node access their own memory, whichever
    covers more nodes.

    Raises:
        AbsentError: No bandwidth was measured.
    """
    topology = material.topology
    nodes = node_of(topology)
    candidates: list[tuple[Pair, Record]] = []
    for r in material.take("bandwidth", "bandwidth_net"):
        if not in_memory(r, topology):
            continue
        homes = {nodes.get(c) for c in _cpus(r)} | ({r.conditions["cpu_node"]} if "cpu_node" in r.conditions else set())
        target = _target(r, homes)
        if target is not None and target in {n.os_index for n in topology.nodes}:
            candidates.append(((0, target), r))
    local_candidates = [((1, pair[1]), r) for pair, r in candidates if _where(r, nodes) == _OWN]

    def conditions(of: Callable[[Record], str]) -> Callable[[Record], dict[str, Scalar]]:
        return lambda r: {**_stream(r, _team(r, topology)), "cpus": of(r)}

    same_cpus = _matrix(
        material, candidates, conditions(lambda r: str(r.conditions.get("cpus", ""))), _by_stream, say=False
    )
    local = _matrix(material, local_candidates, conditions(lambda r: _OWN), _by_stream, say=False)
    best = local if len(local.cells) >= len(same_cpus.cells) else same_cpus
    if not best.cells:
        raise nothing("bandwidth of a memory node", _all_nodes_command(topology))
    return {target: r for (_, target), r in sorted(best.cells.items())}, best.conditions


def _all_nodes_command(topology: Topology) -> str:
    first = next((n for n in topology.nodes if n.cpus), None)
    cpus = format_list(first.cpus) if first else "0"
    return f"meshmark measure bandwidth --kernel read --threads all --cpus {cpus} --memory-node all"


def line_latencies(material: ExportMaterial) -> NodePairMatrix:
    """Return the transfer latency of a cache line between CPUs, in s, by CPU that has the line and CPU that gets it."""
    candidates = []
    for r in material.take("lines", "line_latency"):
        a, b = r.conditions.get("from_cpu"), r.conditions.get("to_cpu")
        if isinstance(a, int) and isinstance(b, int) and a != b:
            candidates.append(((a, b), r))
    names = ("state", "trip", "home_node", "pages")
    return _matrix(material, candidates, lambda r: {k: r.conditions.get(k) for k in names}, _by_line)


def distances(latency: NodePairMatrix, nodes: Sequence[int]) -> dict[Pair, int] | None:
    """Return relative distances as in an ACPI SLIT, 10 for a node's own memory, at most 254; None if one is unknown.

    A node without CPUs has no latencies of its own. They are assumed to equal the latencies of the opposite direction,
    and two such nodes are assumed to be as far apart as the farthest pair.
    """
    distance_by_pair: dict[Pair, int] = {}
    for a in nodes:
        local_latency = latency.value(a, a)
        for b in nodes:
            if a == b:
                distance_by_pair[a, b] = 10
            elif local_latency and (value := latency.value(a, b)) is not None:
                distance_by_pair[a, b] = max(11, min(254, round(10 * value / local_latency)))
    for a in nodes:
        for b in nodes:
            if (a, b) not in distance_by_pair and (b, a) in distance_by_pair and (a, a) not in latency.cells:
                distance_by_pair[a, b] = distance_by_pair[b, a]
    memory_only = {n for n in nodes if (n, n) not in latency.cells}
    farthest = max(distance_by_pair.values(), default=10)
    distance_by_pair |= {
        (a, b): farthest for a in memory_only for b in memory_only if a != b and (a, b) not in distance_by_pair
    }
    return distance_by_pair if all((a, b) in distance_by_pair for a in nodes for b in nodes) else None


# ------------------------------------------------------------------ properties of a record


def _cpus(record: Record) -> tuple[int, ...]:
    try:
        return parse_list(str(record.conditions.get("cpus", "")))
    except MachineError:
        return ()


def _target(record: Record, homes: Iterable[Any]) -> int | None:
    """Return the node of the memory, or the node of the CPUs if the memory is `local` and they are all on one node."""
    node = record.conditions.get("memory_node")
    if isinstance(node, int) and not isinstance(node, bool):
        return node
    if node not in {"local", None}:
        return None
    cpu_nodes = set(homes)
    if len(cpu_nodes) != 1:
        return None
    home = cpu_nodes.pop()
    return home if isinstance(home, int) and record.conditions.get("observed_node", home) == home else None


def _pair(material: ExportMaterial, record: Record, cpus: Iterable[Any], nodes: Mapping[int, int]) -> Pair | None:
    """Return the nodes between which a result was measured; None if its CPUs are on several, or a node is unknown."""
    known_nodes = {n.os_index for n in material.topology.nodes}
    cpu_node = record.conditions.get("cpu_node")
    cpu_numbers = [c for c in cpus if isinstance(c, int)]
    if unknown_cpus := [c for c in cpu_numbers if c not in nodes]:
        material.omit(record, f"measured on CPU {unknown_cpus[0]}, which no node of the topology has")
        return None
    homes: set[Any] = {cpu_node} if isinstance(cpu_node, int) else {nodes[c] for c in cpu_numbers}
    if len(homes) != 1:
        return None
    target = _target(record, homes)
    home = homes.pop()
    if target is None:
        return None
    if home not in nodes.values() or target not in known_nodes:
        material.omit(record, f"between nodes {home} and {target}, which the topology does not have")
        return None
    return home, target


def _where(record: Record, nodes: Mapping[int, int]) -> str:
    homes: set[Any] = {nodes.get(c) for c in _cpus(record)}
    if isinstance(cpu_node := record.conditions.get("cpu_node"), int):
        homes = {cpu_node}
    return _OWN if homes == {_target(record, homes)} else ""


def in_memory(record: Record, topology: Topology) -> bool:
    """Return whether the arrays exceed the caches; arrays of unknown size do."""
    footprint = record.conditions.get("footprint_bytes")
    last = max((c.level for c in topology.caches), default=0)
    caches = sum(c.size_bytes or 0 for c in topology.caches if c.level == last)
    return not isinstance(footprint, int) or footprint > caches


def _team(record: Record, topology: Topology) -> str:
    """Return how many threads measured: `all of a node` if each CPU of the node had one, or the number."""
    threads = record.conditions.get("threads")
    cpus = set(_cpus(record))
    is_whole_node = any(set(n.cpus) == cpus for n in topology.nodes if n.cpus)
    return "all of a node" if threads is None or (is_whole_node and threads == len(cpus)) else str(threads)


def _stream(record: Record, team: str) -> dict[str, Scalar]:
    names = ("kernel", "store", "isa", "pages", "mode", "footprint_bytes", "thread_buffer_bytes")
    return {**{k: record.conditions.get(k) for k in names}, "threads": team}


def _place(value: object, order: Sequence[str]) -> int:
    return order.index(str(value)) if str(value) in order else -1


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _by_latency(c: Mapping[str, Scalar]) -> tuple[float, ...]:
    return _place(c["pages"], _PAGES), _number(c["footprint_bytes"])


def _by_stream(c: Mapping[str, Scalar]) -> tuple[float, ...]:
    threads = str(c["threads"])
    team = float(threads) if threads.isdigit() else float("inf")
    is_streaming = float(c.get("store") == "streaming")
    return team, _place(c["kernel"], _KERNELS), is_streaming, _place(c["pages"], _PAGES), _number(c["footprint_bytes"])


def _by_line(c: Mapping[str, Scalar]) -> tuple[float, ...]:
    return (_place(c["state"], _STATES),)


def _matrix(
    material: ExportMaterial,
    found: Sequence[tuple[Pair, Record]],
    conditions: Callable[[Record], dict[str, Scalar]],
    rank: Callable[[Mapping[str, Scalar]], tuple[float, ...]],
    say: bool = True,
) -> NodePairMatrix:
    """Return the values of the conditions that cover most pairs; of several such conditions, `rank` decides."""
    groups: dict[tuple[Any, ...], dict[Pair, list[Record]]] = {}
    conditions_by_key: dict[tuple[Any, ...], dict[str, Scalar]] = {}
    for pair, r in found:
        c = {"source": r.source, **conditions(r)}
        key = tuple(c.values())
        conditions_by_key[key] = c
        groups.setdefault(key, {}).setdefault(pair, []).append(r)
    if not groups:
        return NodePairMatrix()
    best = max(groups, key=lambda key: (len(groups[key]), *rank(conditions_by_key[key]), str(key)))
    cells = {}
    for pair, records in sorted(groups[best].items()):
        ordered = sorted(records, key=lambda r: r.value)
        cells[pair] = ordered[(len(ordered) - 1) // 2]
    if say:
        matrix_ids = {id(r) for r in cells.values()}
        for _, r in found:
            if id(r) not in matrix_ids:
                material.omit(r, f"other conditions or CPUs than the matrix of {r.metric}")
    return NodePairMatrix(cells=cells, conditions=words(conditions_by_key[best]))
