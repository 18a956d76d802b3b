"""The cost of memory access from each node to each node, and what another placement of a program would gain."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.machine.topology import Topology
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
    """Mean cost of memory access now over the cost with another placement, with its 95 % interval, dimensionless."""

    ratio: float
    low: float
    high: float
    measured: bool


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
    ratios.sort()
    cut = round(0.025 * _DRAWS)
    return AccessSlowdown(cost.mean(now) / cost.mean(after), ratios[cut], ratios[-1 - cut], cost.measured)
