"""The cost of memory access from each node to each node, and what another placement of a program would gain."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from meshmark.machine.topology import Topology
from meshmark.machine.tree import parse_list
from meshmark.place.native import records_by_pair
from meshmark.store.record import Record

Share = Mapping[tuple[int, int], float]  # share of the accesses from each node of CPUs to each memory node
_DRAWS: Final = 400  # of the bootstrap
_Z: Final = 1.96
_UNKNOWN_ERROR: Final = 0.05  # relative, of a measured latency without an interval


@dataclass(frozen=True, slots=True)
class AccessCost:
    """The cost of an access for pairs of nodes.

    Attributes:
        value: Idle latency in s if `measured`; otherwise the distance that the firmware declares.
        error: Standard error of each value, in its unit.
    """

    value: Mapping[tuple[int, int], float]
    error: Mapping[tuple[int, int], float]
    measured: bool

    def mean(self, share: Share) -> float:
        """Return the mean cost of accesses with these shares."""
        return sum(s * self.value[pair] for pair, s in share.items()) / sum(share.values())


@dataclass(frozen=True, slots=True)
class AccessSlowdown:
    """Mean cost of memory access now over the cost with another placement, with its 95 % interval, dimensionless.

    Attributes:
        of: What the cost is: the measured latency, the time per byte at the measured bandwidth, or the distance that
            the firmware declares.
    """

    ratio: float
    low: float
    high: float
    of: Literal["latency", "bandwidth", "distance"]

    @property
    def measured(self) -> bool:
        """Return whether the costs were measured."""
        return self.of != "distance"


def access_cost(topology: Topology, records: Sequence[Record]) -> AccessCost | None:
    """Return the cost of access between all nodes with CPUs and all nodes with memory.

    Args:
        topology: The machine.
        records: Its measurements. If they do not cover every pair, the distances of the firmware are returned.

    Returns:
        The costs; None if neither measurements nor distances cover every pair.
    """
    node_of = {cpu: n.os_index for n in topology.nodes for cpu in n.cpus}
    targets = [n.os_index for n in topology.nodes if n.memory_bytes != 0]
    pairs = [(a, b) for a in sorted(set(node_of.values())) for b in targets]
    measured = records_by_pair([r for r in records if r.instrument == "latency"], "load_latency", node_of)
    if all(pair in measured for pair in pairs):
        value = {pair: measured[pair].value for pair in pairs}
        return AccessCost(value, {pair: _error(measured[pair]) for pair in pairs}, measured=True)
    if topology.distances is None:
        return None
    index = {n.os_index: i for i, n in enumerate(topology.nodes)}
    value = {(a, b): float(topology.distances[index[a]][index[b]]) for a, b in pairs}
    return AccessCost(value, dict.fromkeys(pairs, 0.0), measured=False)


def _error(record: Record) -> float:
    bounds = record.bounds
    return (bounds[1] - bounds[0]) / (2 * _Z) if bounds else _UNKNOWN_ERROR * record.value


def joint(ran_by_node: Mapping[int, float], pages_by_node: Mapping[int, float]) -> dict[tuple[int, int], float]:
    """Return the shares of accesses between nodes if each thread uses all pages alike; empty if one side is."""
    ran, pages = sum(ran_by_node.values()), sum(pages_by_node.values())
    if ran <= 0 or pages <= 0:
        return {}
    return {
        (a, b): s / ran * (p / pages)
        for a, s in ran_by_node.items()
        for b, p in pages_by_node.items()
        if s > 0 and p > 0
    }


def slowdown(cost: AccessCost, now: Share, after: Share, sampled: int) -> AccessSlowdown:
    """Return how many times longer an access takes now than after a change.

    The interval covers the errors of the measured latencies and of the shares of pages, by a parametric bootstrap.

    Args:
        cost: Costs of all pairs in `now` and `after`.
        now: Shares of accesses at present.
        after: Shares of accesses after the change.
        sampled: Number of pages on which `now` rests.
    """
    random_draw = random.Random(1)
    pairs = sorted({*now, *after})
    ratios = []
    for _ in range(_DRAWS):
        value = {pair: max(1e-12, random_draw.gauss(cost.value[pair], cost.error[pair])) for pair in pairs}
        drawn_cost = AccessCost(value, {}, cost.measured)
        drawn_now = {pair: random_draw.gammavariate(max(1e-9, s * sampled), 1.0) for pair, s in now.items()}
        ratios.append(drawn_cost.mean(drawn_now) / drawn_cost.mean(after))
    low, high = _interval(ratios)
    return AccessSlowdown(cost.mean(now) / cost.mean(after), low, high, "latency" if cost.measured else "distance")


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the bootstrap."""
    ordered, cut = sorted(ratios), round(0.025 * len(ratios))
    return ordered[cut], ordered[-1 - cut]


def read_bandwidth(topology: Topology, records: Sequence[Record]) -> dict[int, Record]:
    """Return how fast the CPUs of each node together read its own memory, B/s.

    Args:
        topology: The machine.
        records: Its measurements. For each node, the one with most threads counts, and the newest of several.

    Returns:
        The record of each node for which there is one.
    """
    nodes_of_cpus = {tuple(sorted(n.cpus)): n.os_index for n in topology.nodes if n.cpus}
    chosen: dict[int, Record] = {}
    for record in sorted(records, key=lambda r: str(r.provenance.get("start", ""))):
        conditions = record.conditions
        if record.metric != "bandwidth_net" or conditions.get("kernel") != "read" or record.value <= 0:
            continue
        node = next((n for cpus, n in nodes_of_cpus.items() if set(cpus) >= _cpus(conditions)), None)
        if node is None or str(conditions.get("memory_node")) != str(node):
            continue
        if node not in chosen or _threads(record) >= _threads(chosen[node]):
            chosen[node] = record
    return chosen


def _cpus(conditions: Mapping[str, object]) -> set[int]:
    try:
        return set(parse_list(str(conditions.get("cpus", "")))) or {-1}
    except ValueError:
        return {-1}


def _threads(record: Record) -> int:
    return int(str(record.conditions.get("threads") or 0))


def bandwidth_slowdown(
    bandwidth: Mapping[int, Record], pages_by_node: Mapping[int, float], nodes: Sequence[int]
) -> AccessSlowdown | None:
    """Return how many times longer a program needs that memory bandwidth limits than with its pages spread over nodes.

    All pages are used alike, so that the node with most pages for its bandwidth sets the time.

    Args:
        bandwidth: Read bandwidth of each node, B/s.
        pages_by_node: Pages at present, B.
        nodes: Nodes that would hold equal parts.

    Returns:
        The slowdown; None if the bandwidth of a node is unknown.
    """
    present = {n: b for n, b in pages_by_node.items() if b > 0}
    if not present or not nodes or not set(bandwidth) >= {*present, *nodes}:
        return None

    def ratio(rate: Mapping[int, float]) -> float:
        now = max(b / rate[n] for n, b in present.items()) / sum(present.values())
        return now / max(1 / len(nodes) / rate[n] for n in nodes)

    random_draw = random.Random(1)
    ratios = [
        ratio({n: max(1e-3 * r.value, random_draw.gauss(r.value, _error(r))) for n, r in bandwidth.items()})
        for _ in range(_DRAWS)
    ]
    low, high = _interval(ratios)
    return AccessSlowdown(ratio({n: r.value for n, r in bandwidth.items()}), low, high, "bandwidth")
