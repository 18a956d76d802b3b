"""Chooses nodes near one another, by the times of messages that were measured, or else by the levels of the switches.

The time between two nodes is that of their distance, times the factors of both nodes and of the switches whose boundary
it crosses (see `links`); no pair needs to have been measured. Sets are grown from several nodes, each time by the node
that adds least, and then improved by exchanges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.fleet.arrays import Array, Ints
from meshmark.fleet.links import Terms
from meshmark.fleet.nodesets import fold
from meshmark.fleet.topology import Places, Tree

_STARTS: Final = 24
_IMPROVED: Final = 4  # of the sets that were grown, the best
_EXCHANGES: Final = 4  # times the number of nodes, at most
RANDOM: Final = 200  # random sets


@dataclass(frozen=True, slots=True)
class Spread:
    """Expected times between the nodes of a set, in s, or in levels of switches if none were measured."""

    median: float
    mean: float
    worst: float


class Distances:
    """Expected times between nodes.

    Args:
        nodes: Names.
        terms: Those of measured nodes; None: levels.
        measured: The names that `terms.nodes` has.
        metric: Of `terms`.
    """

    def __init__(
        self, tree: Tree, nodes: Sequence[str], terms: Terms | None, measured: Sequence[str], metric: int = 0
    ) -> None:
        import numpy as np

        self.nodes = list(nodes)
        self.places = Places.of(tree, nodes)
        heights = np.arange(self.places.above.shape[1] + 1)
        self._level = heights * 1.0
        self._node = np.ones(len(nodes))
        self._crossed: list[tuple[Array, float]] = []
        if terms is None:
            return
        known = np.flatnonzero(terms.levels[:, metric])
        self._level = np.exp(np.interp(heights, known, terms.levels[known, metric]))
        of = {name: float(np.exp(terms.nodes[i, metric])) for i, name in enumerate(measured)}
        self._node = np.array([of.get(name, 1.0) for name in nodes])
        for name, term in terms.switches.items():
            below = np.zeros(len(nodes), bool)
            below[self.places.below(name)] = True
            self._crossed.append((below, float(np.exp(term[metric]))))

    def fastest(self, among: Ints) -> int:
        """The node whose own messages are fastest."""
        return int(among[self._node[among].argmin()])

    def between(self, a: int | Ints, b: Ints) -> Array:
        """Times between nodes given by indices; 0 between a node and itself."""
        import numpy as np

        times = self._level[self.places.levels(a, b)] * self._node[a] * self._node[b]
        for below, factor in self._crossed:
            times = np.where(below[a] != below[b], times * factor, times)
        return np.asarray(np.where(np.equal(a, b), 0.0, times))

    def spread(self, chosen: Ints) -> Spread:
        """Of all pairs of a set."""
        import numpy as np

        if len(chosen) < 2:
            return Spread(0.0, 0.0, 0.0)
        a, b = np.triu_indices(len(chosen), 1)
        times = self.between(chosen[a], chosen[b])
        return Spread(float(np.median(times)), float(times.mean()), float(times.max()))


def choose(distances: Distances, among: Ints, count: int) -> Ints:
    """Nodes of which the mean time between two is small.

    Args:
        among: Indices of nodes that may be chosen, at least `count`.

    Returns:
        Indices, in ascending order.
    """
    import numpy as np

    if count >= len(among):
        return np.sort(among)
    grown = [_grown(distances, among, start, count) for start in _starts(distances, among, count)]
    grown.sort(key=lambda of: of[1])
    improved = [_improved(distances, among, chosen) for chosen, _ in grown[:_IMPROVED]]
    return np.sort(min(improved, key=lambda of: of[1])[0])


def random_spread(distances: Distances, among: Ints, count: int, seed: int = 0) -> Spread:
    """The mean of random sets."""
    import numpy as np

    dice = np.random.default_rng(seed)
    found = [distances.spread(dice.permutation(among)[:count]) for _ in range(RANDOM)]
    return Spread(*(float(np.mean([getattr(of, key) for of in found])) for key in ("median", "mean", "worst")))


def _starts(distances: Distances, among: Ints, count: int) -> list[int]:
    """Nodes from which sets are grown: the fastest of each smallest branch that has enough nodes, and others."""
    import numpy as np

    for height in range(1, distances.places.above.shape[1]):
        branch = distances.places.above[among, height]
        names, sizes = np.unique(branch, return_counts=True)
        parts = [among[branch == name] for name in names[sizes >= count]]
        if parts:
            near = {distances.fastest(part): part for part in parts}
            order = sorted(near, key=lambda i: float(np.median(distances.between(i, near[i]))))
            return list(dict.fromkeys([*order[:_STARTS], *_quick(distances, among)]))
    return _quick(distances, among)


def _quick(distances: Distances, among: Ints) -> list[int]:
    """Nodes over the whole range of speeds, the fastest first, most of them fast."""
    import numpy as np

    order = among[np.argsort(distances.between(distances.fastest(among), among), kind="stable")]
    at = np.unique((np.linspace(0, 1, _STARTS) ** 2 * (len(order) - 1)).astype(int))
    return [int(i) for i in order[at]]


def _grown(distances: Distances, among: Ints, start: int, count: int) -> tuple[Ints, float]:
    """A set and the sum of its times."""
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
    """Exchanges one node for another as long as the sum of times becomes smaller."""
    import numpy as np

    chosen = chosen.copy()
    rows = np.array([distances.between(int(i), among) for i in chosen])
    for _ in range(_EXCHANGES * len(chosen)):
        cost = rows.sum(axis=0)
        inside = np.isin(among, chosen)
        own = cost[np.searchsorted(among, chosen)]
        change = cost[None, :] - rows - own[:, None]
        change[:, inside] = np.inf
        out, into = np.unravel_index(int(change.argmin()), change.shape)
        if change[out, into] >= -1e-12 * own.max():
            break
        chosen[out] = among[into]
        rows[out] = distances.between(int(among[into]), among)
    return chosen, float(rows[:, np.searchsorted(among, chosen)].sum() / 2)


def exported(tree: Tree, names: Sequence[str]) -> dict[str, str]:
    """Options that ask batch systems and launchers for these nodes.

    Source:
        sbatch(1), qsub(1B) and pbs_resources(7B), bsub(1), flux-submit(1), mpirun(1) of Open MPI.
    """
    count, folded = len(names), fold(names)
    found = {
        "slurm": f"--nodes={count} --nodelist={folded}",
        "pbs": "-l select=" + "+".join(f"1:host={name}" for name in names) + " -l place=scatter",
        "lsf": f'-n {count} -R "span[ptile=1]" -m "{" ".join(names)}"',
        "flux": f"--nodes={count} --requires=hosts:{','.join(names)}",
        "mpirun": "-H " + ",".join(f"{name}:1" for name in names),
    }
    lowest = [s for s in tree.switches if s.height == 1 and not set(names).isdisjoint(s.nodes)]
    if lowest and not tree.missing(names):
        found["slurm, any nodes as near"] = f"--nodes={count} --switches={len(lowest)}"
    return found
