"""Simulated networks for tests: nodes below leaf switches, and the times of messages between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshmark.fleet.data.values import FleetPoint
from meshmark.fleet.network.links import PairTimes
from meshmark.fleet.network.rounds import Pair, draw_rounds
from meshmark.fleet.network.slow_links import (
    NetworkState,
    NetworkTest,
    PairCampaign,
    draw_fresh,
    judge_exchange,
    roles,
    tests,
)
from meshmark.fleet.network.topology import SwitchTree, TreePlaces, read_tree

POINTS = [
    FleetPoint(
        f'["pingpong", "message_latency", {{"message_bytes": {size}}}]', "pingpong", "message_latency", "s", "lower"
    )
    for size in (8, 4 << 20)
]
_AT = (0.0, 1.0, 1.4, 1.7)  # logarithms of times in µs of the smallest message, by level


def leaves(count: int, each: int) -> SwitchTree:
    """Return `count` leaf switches with `each` nodes n1, n2 …, below one switch."""
    lines = [f"SwitchName=s{i} Nodes=n[{i * each + 1}-{(i + 1) * each}]" for i in range(count)]
    return read_tree("\n".join([*lines, f"SwitchName=top Switches=s[0-{count - 1}]"]), "made-up")


@dataclass
class MadeNetwork:
    """Nodes n1 to nN whose logarithms of times differ by `BETWEEN`, with noise, and disturbances of a few pairs.

    Attributes:
        slow: Added to the logarithm of the time of each message of a node, by name.
        uplinks: Added to the logarithm of the time of each message that crosses the boundary of a switch.
    """

    count: int
    tree: SwitchTree
    seed: int
    slow: Mapping[str, float] = field(default_factory=dict)
    uplinks: Mapping[str, float] = field(default_factory=dict)
    between: float = 0.01
    noise: float = 0.02
    disturbed: float = 0.05

    def __post_init__(self) -> None:
        self.nodes = [f"n{i + 1}" for i in range(self.count)]
        self.dice = np.random.default_rng(self.seed)
        node_factor = self.dice.normal(0, self.between, (self.count, len(POINTS)))
        self.own = {name: node_factor[i] + self.slow.get(name, 0.0) for i, name in enumerate(self.nodes)}

    def measure(self, campaign: str, names: Sequence[str], rounds: Sequence[Sequence[Pair]]) -> PairCampaign:
        places = TreePlaces.from_tree(self.tree, names)
        below = {s: {names[i] for i in places.below(s)} for s in self.uplinks}
        samples = []
        for r, pairs in enumerate(rounds):
            for a, b in pairs:
                level = int(places.levels(np.array(a), np.array(b)))
                time = self.own[names[a]] + self.own[names[b]] + [math.log(1e-6) + _AT[level], math.log(4e-4)]
                time = time + sum(
                    factor for s, factor in self.uplinks.items() if (names[a] in below[s]) != (names[b] in below[s])
                )
                time = time + self.dice.normal(0, self.noise, len(POINTS))
                if self.dice.random() < self.disturbed:
                    time = time + abs(self.dice.normal(0, 0.2, len(POINTS)))
                samples.append((r, a, b, time.tolist()))
        return PairCampaign(
            campaign,
            list(names),
            POINTS,
            PairTimes.from_pairs(len(names), len(rounds), len(POINTS), samples),
            len(samples),
        )

    def look(self, rounds: int = 8) -> NetworkState:
        rounds_ = draw_rounds(TreePlaces.from_tree(self.tree, self.nodes), rounds, self.seed)
        return judge_exchange(self.measure("pairs", self.nodes, rounds_), self.tree, set())

    def confirmed(self, seen: NetworkState) -> list[NetworkTest]:
        """Return the suspects after fresh measurements."""
        role = roles(seen)
        names = sorted(seen.seen.nodes[i] for i in (*role.judged, *role.healthy))
        return tests(seen, role, self.measure("confirmpairs", names, draw_fresh(seen, role, names, self.seed + 1)))
