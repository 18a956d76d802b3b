"""The contributions of nodes, switches and distances to the time of messages between pairs of nodes.

The logarithm of a time is modelled as the sum of a term for the distance, a term for each of the two nodes, and a term
for each switch whose boundary the message crosses. Terms are fitted by backfitting: each is a trimmed mean or a median
of the residuals of the others. Most switches have no term; a term is added for a switch if the nodes below it are slow
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.fleet.network.topology import SwitchTree, TreePlaces
from meshmark.statistics.arrays import Array, Ints
from meshmark.statistics.estimates import deviation, location, nan_median

_TURNS: Final = 24  # iterations of the fit; each moves the terms of nodes halfway
MIN_BELOW: Final = 3  # least number of nodes below a switch that is judged
MIN_SWITCHES: Final = 4  # least number of switches of a height; slow and fast ones cannot be distinguished among fewer
_MOST: Final = 5  # largest number of switches with a term
_TRIMMED: Final = 1.3  # variance of a trimmed mean of a few values, relative to the variance of the mean
_FAR: Final = 4.0  # standard deviations from which the term of a node is not noise
_CLEAR: Final = 4.0  # standard deviations from which a switch has a term


@dataclass(frozen=True, slots=True)
class PairTimes:
    """Times of messages by node; the time of each pair is stored for both of its nodes.

    Attributes:
        partner: Partner of each node in each round, shape (nodes, rounds); -1: no partner.
        times: Logarithms of times, shape (nodes, rounds, metrics); NaN: not measured.
    """

    partner: Ints
    times: Array

    @staticmethod
    def from_pairs(
        nodes: int, rounds: int, metrics: int, pairs: Sequence[tuple[int, int, int, Sequence[float]]]
    ) -> PairTimes:
        """Return the times of the pairs.

        Args:
            nodes: Number of nodes.
            rounds: Number of rounds.
            metrics: Number of metrics, which is the number of times of a pair.
            pairs: Round, both nodes and times of each pair.
        """
        import numpy as np

        partner = np.full((nodes, rounds), -1)
        times = np.full((nodes, rounds, metrics), np.nan)
        for r, a, b, values in pairs:
            partner[a, r], partner[b, r] = b, a
            times[a, r] = times[b, r] = values
        return PairTimes(partner, times)


@dataclass(frozen=True, slots=True)
class TimeTerms:
    """Terms of logarithms of times.

    Attributes:
        levels: Term of each distance from 0 (which no pair has), shape (heights, metrics).
        nodes: Term of each node, shape (nodes, metrics).
        switches: Terms by the name of the switch, shape (metrics,).
    """

    levels: Array
    nodes: Array
    switches: dict[str, Array]


@dataclass(frozen=True, slots=True)
class SlowSwitch:
    """How slow the nodes below a switch are for nodes outside.

    Attributes:
        by: Difference of logarithms from other switches, shape (metrics,).
        z: The same difference in standard deviations.
    """

    name: str
    by: Array
    z: Array


def fit_terms(pair_times: PairTimes, places: TreePlaces, tree: SwitchTree) -> TimeTerms:
    """Return the terms of a campaign."""
    terms = _fitted(pair_times, places, {})
    while len(terms.switches) < _MOST:
        candidates = [s for s in slow_switches(pair_times, places, tree, terms) if s.name not in terms.switches]
        worst = max(candidates, key=lambda s: float(s.z.max()), default=None)
        if worst is None or worst.z.max() < _CLEAR:
            break
        terms = _fitted(pair_times, places, {**terms.switches, worst.name: worst.by})
    return terms


def own_times(pair_times: PairTimes, places: TreePlaces, terms: TimeTerms, *, without: str = "") -> Array:
    """Return the times of each node without the terms of distances, partners and switches.

    Args:
        pair_times: Times of the pairs.
        places: Places of the nodes in the tree.
        terms: Terms that were fitted to the times.
        without: A switch whose term is not subtracted.

    Returns:
        Logarithms, shape (nodes, rounds, metrics).
    """
    import numpy as np

    rows = np.arange(len(pair_times.partner))[:, None]
    residuals = (
        pair_times.times - terms.levels[places.levels(rows, pair_times.partner)] - terms.nodes[pair_times.partner]
    )
    for name, term in terms.switches.items():
        if name != without:
            residuals -= crossings(pair_times, places, name)[:, :, None] * term
    return np.asarray(residuals)


def without_noise(pair_times: PairTimes, places: TreePlaces, terms: TimeTerms) -> TimeTerms:
    """Return terms for the prediction of other times, in which the terms of nodes are shrunk by their share of noise.

    The term of each node is multiplied by the share of the variance between nodes that is not noise. The terms of nodes
    far away are unchanged.
    """
    import numpy as np

    residuals = own_times(pair_times, places, terms) - terms.nodes[:, None]
    count = np.maximum((~np.isnan(residuals)).sum(axis=1), 1)
    noise = _TRIMMED * deviation(residuals.reshape(-1, residuals.shape[2])) ** 2 / count
    total = deviation(terms.nodes) ** 2
    share = np.maximum(0.0, 1 - noise / np.maximum(total, 1e-18))
    far = np.abs(terms.nodes) > _FAR * np.sqrt(total)
    return TimeTerms(terms.levels, np.where(far, 1.0, share) * terms.nodes, terms.switches)


def crossings(pair_times: PairTimes, places: TreePlaces, switch: str) -> Array:
    """Return whether each message crosses the boundary of a switch, shape (nodes, rounds)."""
    import numpy as np

    below = np.zeros(len(pair_times.partner), bool)
    below[places.below(switch)] = True
    return np.asarray((below[:, None] != below[pair_times.partner]) & (pair_times.partner >= 0))


def slow_switches(pair_times: PairTimes, places: TreePlaces, tree: SwitchTree, terms: TimeTerms) -> list[SlowSwitch]:
    """Return the switches that can be judged, with how slow the nodes below them are for nodes outside."""
    import numpy as np

    switches = []
    for height in range(1, tree.height + 1):
        names = [s.name for s in tree.switches if s.height == height and len(places.below(s.name)) >= MIN_BELOW]
        if len(names) < MIN_SWITCHES:
            continue
        times_by_switch = {name: outside(pair_times, places, terms, name) for name in names}
        median = nan_median(np.array([nan_median(times, axis=0) for times in times_by_switch.values()]), axis=0)
        spread = deviation(np.concatenate([times - nan_median(times, axis=0) for times in times_by_switch.values()]))
        for name, times in times_by_switch.items():
            count = np.maximum((~np.isnan(times)).sum(axis=0), 1)
            by = np.nan_to_num(nan_median(times, axis=0) - median)
            switches.append(SlowSwitch(name, by, by / np.maximum(spread * np.sqrt(np.pi / 2 / count), 1e-9)))
    return switches


def outside(pair_times: PairTimes, places: TreePlaces, terms: TimeTerms, switch: str) -> Array:
    """Return how slow each node below a switch is with partners outside, shape (nodes below, metrics)."""
    import numpy as np

    below = places.below(switch)
    residuals = own_times(pair_times, places, terms, without=switch)
    return location(np.where(crossings(pair_times, places, switch)[below, :, None], residuals[below], np.nan))


def _fitted(pair_times: PairTimes, places: TreePlaces, switches: dict[str, Array]) -> TimeTerms:
    import numpy as np

    n, _, p = pair_times.times.shape
    rows = np.arange(n)[:, None]
    level = np.where(pair_times.partner >= 0, places.levels(rows, pair_times.partner), 0)
    heights = places.above.shape[1] + 1
    terms = TimeTerms(np.zeros((heights, p)), np.zeros((n, p)), dict(switches))
    for turn in range(_TURNS):
        residuals = own_times(pair_times, places, terms)
        change = np.zeros((heights, p))
        for h in np.unique(level[level > 0]):
            change[h] = np.nan_to_num(nan_median((residuals - terms.nodes[:, None])[level == h], axis=0))
        nodes = np.nan_to_num(location(residuals - change[level]))
        nodes -= np.median(nodes, axis=0)
        step = 1.0 if turn == 0 else 0.5
        terms = TimeTerms(
            terms.levels + change, terms.nodes + step * (nodes - terms.nodes) if turn else terms.nodes, terms.switches
        )
        for name in terms.switches:
            switch_term = nan_median(outside(pair_times, places, terms, name) - terms.nodes[places.below(name)], axis=0)
            terms.switches[name] = np.nan_to_num(switch_term)
    return terms
