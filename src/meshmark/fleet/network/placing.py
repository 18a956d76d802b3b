"""Chooses nodes near one another, by measured times of messages, or else by the levels of the switches.

The time between two nodes is the time of their distance, times the factors of both nodes and of the switches whose
boundary the message crosses (see `links`); no pair needs to have been measured. Sets are grown from several nodes, each
time by the node that adds least, and then improved by exchanges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.fleet.network.links import TimeTerms
from meshmark.fleet.network.topology import SwitchTree, TreePlaces
from meshmark.fleet.nodesets import fold
from meshmark.statistics.arrays import Array, Ints

_STARTS: Final = 24  # nodes from which sets are grown
_IMPROVED: Final = 4  # best sets that are improved
_EXCHANGES: Final = 4  # largest number of exchanges, relative to the number of nodes
RANDOM: Final = 200  # random sets


@dataclass(frozen=True, slots=True)
class Spread:
    """Expected times between the nodes of a set, in s, or in levels of switches if no times were measured."""

    median: float
    mean: float
    worst: float


class Distances:
    """Expected times between nodes.

    Args:
        tree: The switches.
        nodes: Names of nodes.
        terms: Terms of measured nodes; None: distances are levels of switches.
        measured: Names of the nodes in `terms.nodes`.
        metric: Index of the metric in `terms`.
    """

    def __init__(
        self, tree: SwitchTree, nodes: Sequence[str], terms: TimeTerms | None, measured: Sequence[str], metric: int = 0
    ) -> None:
        import numpy as np

        self.nodes = list(nodes)
        self.places = TreePlaces.from_tree(tree, nodes)
        heights = np.arange(self.places.above.shape[1] + 1)
        self._level = heights * 1.0
        self._node = np.ones(len(nodes))
        self._crossed: list[tuple[Array, float]] = []
        if terms is None:
            return
        measured_levels = np.flatnonzero(terms.levels[:, metric])
        self._level = np.exp(np.interp(heights, measured_levels, terms.levels[measured_levels, metric]))
        factor_by_node = {name: float(np.exp(terms.nodes[i, metric])) for i, name in enumerate(measured)}
        self._node = np.array([factor_by_node.get(name, 1.0) for name in nodes])
        for name, term in terms.switches.items():
            below = np.zeros(len(nodes), bool)
            below[self.places.below(name)] = True
            self._crossed.append((below, float(np.exp(term[metric]))))

    def fastest(self, among: Ints) -> int:
        """Return the node with the smallest factor."""
        return int(among[self._node[among].argmin()])

    def between(self, a: int | Ints, b: Ints) -> Array:
        """Return the times between nodes given by their indices; 0 between a node and itself."""
        import numpy as np

        times = self._level[self.places.levels(a, b)] * self._node[a] * self._node[b]
        for below, factor in self._crossed:
            times = np.where(below[a] != below[b], times * factor, times)
        return np.asarray(np.where(np.equal(a, b), 0.0, times))

    def spread(self, chosen: Ints) -> Spread:
        """Return the spread of the times between all pairs of a set."""
        import numpy as np

        if len(chosen) < 2:
            return Spread(0.0, 0.0, 0.0)
        a, b = np.triu_indices(len(chosen), 1)
        times = self.between(chosen[a], chosen[b])
        return Spread(float(np.median(times)), float(times.mean()), float(times.max()))


def choose(distances: Distances, among: Ints, count: int) -> Ints:
    """Choose nodes with a small mean time between two of them.

    Args:
        distances: Times of messages between nodes.
        among: Indices of at least `count` nodes that may be chosen.
        count: Number of nodes.

    Returns:
        Indices of nodes, in ascending order.
    """
    import numpy as np

    if count >= len(among):
        return np.sort(among)
    candidates = [_grown(distances, among, start, count) for start in _starts(distances, among, count)]
    candidates.sort(key=lambda of: of[1])
    improved = [_improved(distances, among, chosen) for chosen, _ in candidates[:_IMPROVED]]
    return np.sort(min(improved, key=lambda of: of[1])[0])


def random_spread(distances: Distances, among: Ints, count: int, seed: int = 0) -> Spread:
    """Return the mean spread of random sets."""
    import numpy as np

    rng = np.random.default_rng(seed)
    spreads = [distances.spread(rng.permutation(among)[:count]) for _ in range(RANDOM)]
    return Spread(
        *(float(np.mean([getattr(spread, key) for spread in spreads])) for key in ("median", "mean", "worst"))
    )


def _starts(distances: Distances, among: Ints, count: int) -> list[int]:
    """Return nodes from which sets are grown: the fastest of each smallest branch with enough nodes, and others."""
    import numpy as np

    for height in range(1, distances.places.above.shape[1]):
        branch = distances.places.above[among, height]
        names, sizes = np.unique(branch, return_counts=True)
        parts = [among[branch == name] for name in names[sizes >= count]]
        if parts:
            part_by_node = {distances.fastest(part): part for part in parts}
            order = sorted(part_by_node, key=lambda i: float(np.median(distances.between(i, part_by_node[i]))))
            return list(dict.fromkeys([*order[:_STARTS], *_quick(distances, among)]))
    return _quick(distances, among)


def _quick(distances: Distances, among: Ints) -> list[int]:
    """Return nodes over the whole range of speeds, the fastest first; most of them are fast."""
    import numpy as np

    order = among[np.argsort(distances.between(distances.fastest(among), among), kind="stable")]
    ranks = np.unique((np.linspace(0, 1, _STARTS) ** 2 * (len(order) - 1)).astype(int))
    return [int(i) for i in order[ranks]]


def _grown(distances: Distances, among: Ints, start: int, count: int) -> tuple[Ints, float]:
    """Grow a set from a node, and return it with the sum of its times."""
    import numpy as np

    chosen = [start]
    cost = distances.between(start, among)
    total = 0.0
    taken = among == start
    while len(chosen) < count:
        k = int(np.where(taken, np.inf, cost).argmin())
        total += float(cost[k])
        taken[k] = True
        chosen.append(int(among[k]))
        cost = cost + distances.between(chosen[-1], among)
    return np.array(chosen), total


def _improved(distances: Distances, among: Ints, chosen: Ints) -> tuple[Ints, float]:
    """Exchange nodes of a set as long as the sum of its times decreases; return the set and the sum."""
    import numpy as np

    chosen = chosen.copy()
    rows = np.array([distances.between(int(i), among) for i in chosen])
    for _ in range(_EXCHANGES * len(chosen)):
        cost = rows.sum(axis=0)
        inside = np.isin(among, chosen)
        chosen_cost = cost[np.searchsorted(among, chosen)]
        change = cost[None, :] - rows - chosen_cost[:, None]
        change[:, inside] = np.inf
        removed, added = np.unravel_index(int(change.argmin()), change.shape)
        if change[removed, added] >= -1e-12 * chosen_cost.max():
            break
        chosen[removed] = among[added]
        rows[removed] = distances.between(int(among[added]), among)
    return chosen, float(rows[:, np.searchsorted(among, chosen)].sum() / 2)


def exported(tree: SwitchTree, names: Sequence[str]) -> dict[str, str]:
    """Return the options that request these nodes from batch systems and launchers, by name.

    Source:
        sbatch(1), qsub(1B) and pbs_resources(7B), bsub(1), flux-submit(1), mpirun(1) of Open MPI.
    """
    count, folded = len(names), fold(names)
    options = {
        "slurm": f"--nodes={count} --nodelist={folded}",
        "pbs": "-l select=" + "+".join(f"1:host={name}" for name in names) + " -l place=scatter",
        "lsf": f'-n {count} -R "span[ptile=1]" -m "{" ".join(names)}"',
        "flux": f"--nodes={count} --requires=hosts:{','.join(names)}",
        "mpirun": "-H " + ",".join(f"{name}:1" for name in names),
    }
    lowest = [s for s in tree.switches if s.height == 1 and not set(names).isdisjoint(s.nodes)]
    if lowest and not tree.missing(names):
        options["slurm, any nodes as near"] = f"--nodes={count} --switches={len(lowest)}"
    return options
