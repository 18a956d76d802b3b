"""Fleets of any size, written as the tables that ingestion creates, for views and for measurements of speed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from meshmark.fleet.campaigns.campaign import NodeSelection, begin
from meshmark.fleet.cases import CasesState, NamedNode, WorseMetric
from meshmark.fleet.data.values import CampaignValues, FleetPoint, write_matrix
from meshmark.fleet.folder import NODE_TYPES, Fleet
from meshmark.store.parquet import write_parquet
from meshmark.values.arrow import table_of
from support.made_fleet import PLAN, MadeEngine

Array = NDArray[np.float64]
HASH = "0123abcd4567"
FACTS = {
    "product": "Maker Blade",
    "cpu": "Model A",
    "memory": "256 GiB",
    "dimms": "16 × 16 GiB DDR5 4800 MT/s",
    "firmware": "Maker 1.0 2026-01-01",
    "kernel": "6.1.0-30",
    "microcode": "0x10",
    "governor": "performance",
}


def points(count: int) -> list[FleetPoint]:
    """Return metrics at points: bandwidths of many footprints and latencies, half of each."""
    points_ = []
    for i in range(count):
        name, metric, unit, better = (
            ("bandwidth", "bandwidth_net", "B/s", "higher") if i % 2 else ("latency", "latency", "s", "lower")
        )
        conditions = {"footprint_bytes": 1 << (14 + i // 2)} if i < 40 else {"from_cpu": i}
        points_.append(FleetPoint(json.dumps([name, metric, conditions]), name, metric, unit, better))
    return points_


@dataclass
class ManyNodes:
    """A fleet whose nodes differ by 0.5 %, with noise of 0.5 %, and with faults.

    Attributes:
        slow: By node: the day from which on it is slower, the factor, and the number of slow points.
        facts: By day, the facts that differ from then on.
        levels: By day and point, factors of the values of all nodes from then on.
    """

    fleet: Fleet
    nodes: Sequence[str]
    points: Sequence[FleetPoint]
    slow: Mapping[str, tuple[int, float, int]] = field(default_factory=dict)
    facts: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    levels: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    cluster: str = "cluster"

    def write(self, days: int, last: datetime = datetime(2026, 11, 26, 6, tzinfo=UTC)) -> list[str]:
        """Write one campaign per day and return their names."""
        rng = np.random.default_rng(1)
        shape = len(self.points), len(self.nodes)
        node_factor = rng.normal(0, 0.005, shape)
        base = np.where([p.better == "higher" for p in self.points], 1e11, 1e-7)[:, None]
        sign = np.array([p.sign for p in self.points])[:, None]
        names = []
        facts = dict(FACTS)
        level = np.ones((len(self.points), 1))
        for day in range(days):
            date = last - timedelta(days=days - 1 - day)
            name = f"check-{date:%Y%m%dT%H%M%S}-{day:04x}"
            facts |= self.facts.get(day, {})
            for point, factor in self.levels.get(day, {}).items():
                level[point] *= factor
            deviations = node_factor + rng.standard_t(5, shape) * 0.004
            for node, (start, slowdown, count) in self.slow.items():
                if day >= start:
                    deviations[:count, self.nodes.index(node)] += slowdown
            values = base * level * np.exp(sign * deviations)
            self._write_nodes(name, date, facts)
            rows = list(self.points), [1] * shape[0], values.astype(np.float32)
            matrix = CampaignValues(name, list(self.nodes), *rows)
            write_matrix(self.fleet, self.cluster, matrix, [f"{name}--0.parquet"])
            engine = MadeEngine.of(self.nodes, lambda *_: None)
            begin(self.fleet, name, PLAN, engine, NodeSelection(), {"cluster": self.cluster, "beside": False})
            names.append(name)
        return names

    def _write_nodes(self, name: str, at: datetime, facts: Mapping[str, str]) -> None:
        same = {"campaign": name, "hash": HASH, "started": at.isoformat(), "status": "ok", "damage": "", "doubt": ""}
        same["facts"] = json.dumps(facts)
        rows = [{**same, "node": node, "attempt": f"{name} {i}", "wrong": []} for i, node in enumerate(self.nodes)]
        path = self.fleet.table("nodes", name, self.cluster) / f"{name}--0.parquet"
        write_parquet(path, table_of(rows, NODE_TYPES))


def fleet_with_cases(fleet: Fleet, nodes: Sequence[str], of: Sequence[FleetPoint]) -> list[str]:
    """Write twenty days of a fleet that got another kernel on the ninth, with two open cases and a closed one."""
    facts, levels = {8: {"kernel": "6.1.0-31"}}, {8: {1: 0.96}}
    names = ManyNodes(fleet, nodes, of, slow={nodes[6]: (10, 0.08, 3)}, facts=facts, levels=levels).write(20)
    p = of[0]
    worse = WorseMetric(p.key, p.instrument, p.metric, p.conditions, 0.083, 0.06, 0.11, 1e-9)
    differs = {"kernel": ("6.1.0-29", "6.1.0-31")}
    slow = NamedNode(nodes[6], "Maker", 1e-8, [worse], [], differs, names[-2], names[10])
    failures = ["dgemm: a kernel computed a wrong result"]
    failed_node = NamedNode(nodes[8], "Maker", 0.0, [], failures, {}, names[-1], names[-1])
    node = NamedNode(nodes[10], "Maker", 1e-8, [worse], [], {}, names[3], names[2])
    CasesState(open={slow.node: slow, failed_node.node: failed_node}, closed=[(node, names[9])]).save(fleet, "cluster")
    return names
