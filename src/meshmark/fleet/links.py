"""What each node, each switch and each distance contributes to the time of messages between pairs of nodes.

The logarithm of a time is taken as the sum of a term of the distance, one of each of both nodes, and one of each switch
whose boundary the message crosses. Terms are fitted in turns, each by a trimmed mean or a median of what the others
leave. Most switches have no term: one is added where the nodes below it are slow together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.fleet.arrays import Array, Ints
from meshmark.fleet.estimates import deviation, location, nan_median
from meshmark.fleet.topology import Places, Tree

_TURNS: Final = 24  # of the fit, each halfway
MIN_BELOW: Final = 3  # nodes below a switch that is judged
MIN_SWITCHES: Final = 4  # of a height: with fewer, what is slow cannot be told from what is fast
_MOST: Final = 5  # switches with a term
_TRIMMED: Final = 1.3  # variance of a trimmed mean of a few values, relative to that of the mean
_FAR: Final = 4.0  # standard deviations from which the term of a node is no noise
_CLEAR: Final = 4.0  # standard deviations from which a switch has a term


@dataclass(frozen=True, slots=True)
class Meetings:
    """Times of messages, as each node sees them: each time is there twice.

    Attributes:
        partner: Of each node in each round, shape (nodes, rounds); -1: none.
        times: Logarithms, shape (nodes, rounds, metrics); NaN: not measured.
    """

    partner: Ints
    times: Array

    @staticmethod
    def of(nodes: int, rounds: int, metrics: int, met: Sequence[tuple[int, int, int, Sequence[float]]]) -> Meetings:
        """Args:
        met: Round, both nodes and times of each pair.
        """
        import numpy as np

        partner = np.full((nodes, rounds), -1)
        times = np.full((nodes, rounds, metrics), np.nan)
        for r, a, b, values in met:
            partner[a, r], partner[b, r] = b, a
            times[a, r] = times[b, r] = values
        return Meetings(partner, times)


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of logarithms of times.

    Attributes:
        levels: Of each distance from 0 (which none has), shape (heights, metrics).
        nodes: Shape (nodes, metrics).
        switches: By name.
    """

    levels: Array
    nodes: Array
    switches: dict[str, Array]


@dataclass(frozen=True, slots=True)
class SlowSwitch:
    """The nodes below a switch, seen from outside.

    Attributes:
        by: Shape (metrics,), in units of logarithms.
        z: The same in standard deviations.
    """

    name: str
    by: Array
    z: Array


def fit_terms(met: Meetings, places: Places, tree: Tree) -> Terms:
    """The terms of a campaign."""
    terms = _fitted(met, places, {})
    while len(terms.switches) < _MOST:
        found = [s for s in slow_switches(met, places, tree, terms) if s.name not in terms.switches]
        worst = max(found, key=lambda s: float(s.z.max()), default=None)
        if worst is None or worst.z.max() < _CLEAR:
            break
        terms = _fitted(met, places, {**terms.switches, worst.name: worst.by})
    return terms


def own_times(met: Meetings, places: Places, terms: Terms, *, without: str = "") -> Array:
    """What is left of times for each node: without the terms of the distance, the partner and of switches, shape
    (nodes, rounds, metrics).

    Args:
        without: A switch whose term stays.
    """
    import numpy as np

    rows = np.arange(len(met.partner))[:, None]
    left = met.times - terms.levels[places.levels(rows, met.partner)] - terms.nodes[met.partner]
    for name, term in terms.switches.items():
        if name != without:
            left -= crossings(met, places, name)[:, :, None] * term
    return np.asarray(left)


def without_noise(met: Meetings, places: Places, terms: Terms) -> Terms:
    """Terms whose nodes differ by as much as other times are expected to: less than these, whose noise they contain.

    Each is multiplied by the share of the variance between nodes that is not noise, but not those of nodes far away.
    """
    import numpy as np

    left = own_times(met, places, terms) - terms.nodes[:, None]
    count = np.maximum((~np.isnan(left)).sum(axis=1), 1)
    noise = _TRIMMED * deviation(left.reshape(-1, left.shape[2])) ** 2 / count
    total = deviation(terms.nodes) ** 2
    share = np.maximum(0.0, 1 - noise / np.maximum(total, 1e-18))
    far = np.abs(terms.nodes) > _FAR * np.sqrt(total)
    return Terms(terms.levels, np.where(far, 1.0, share) * terms.nodes, terms.switches)


def crossings(met: Meetings, places: Places, switch: str) -> Array:
    """Whether messages cross the boundary of a switch, shape (nodes, rounds)."""
    import numpy as np

    below = np.zeros(len(met.partner), bool)
    below[places.below(switch)] = True
    return np.asarray((below[:, None] != below[met.partner]) & (met.partner >= 0))


def slow_switches(met: Meetings, places: Places, tree: Tree, terms: Terms) -> list[SlowSwitch]:
    """The switches that can be judged, and how slow the nodes below them are, seen from outside."""
    import numpy as np

    found = []
    for height in range(1, tree.height + 1):
        names = [s.name for s in tree.switches if s.height == height and len(places.below(s.name)) >= MIN_BELOW]
        if len(names) < MIN_SWITCHES:
            continue
        each = {name: outside(met, places, terms, name) for name in names}
        middle = nan_median(np.array([nan_median(of, axis=0) for of in each.values()]), axis=0)
        spread = deviation(np.concatenate([of - nan_median(of, axis=0) for of in each.values()]))
        for name, of in each.items():
            count = np.maximum((~np.isnan(of)).sum(axis=0), 1)
            by = np.nan_to_num(nan_median(of, axis=0) - middle)
            found.append(SlowSwitch(name, by, by / np.maximum(spread * np.sqrt(np.pi / 2 / count), 1e-9)))
    return found


def outside(met: Meetings, places: Places, terms: Terms, switch: str) -> Array:
    """How slow each node below a switch is with nodes that are not, shape (nodes below, metrics)."""
    import numpy as np

    below = places.below(switch)
    left = own_times(met, places, terms, without=switch)
    return location(np.where(crossings(met, places, switch)[below, :, None], left[below], np.nan))


def _fitted(met: Meetings, places: Places, switches: dict[str, Array]) -> Terms:
    import numpy as np

    n, _, p = met.times.shape
    rows = np.arange(n)[:, None]
    level = np.where(met.partner >= 0, places.levels(rows, met.partner), 0)
    heights = places.above.shape[1] + 1
    terms = Terms(np.zeros((heights, p)), np.zeros((n, p)), dict(switches))
    for turn in range(_TURNS):
        own = own_times(met, places, terms)
        change = np.zeros((heights, p))
        for h in np.unique(level[level > 0]):
            change[h] = np.nan_to_num(nan_median((own - terms.nodes[:, None])[level == h], axis=0))
        nodes = np.nan_to_num(location(own - change[level]))
        nodes -= np.median(nodes, axis=0)
        step = 1.0 if turn == 0 else 0.5
        terms = Terms(
            terms.levels + change, terms.nodes + step * (nodes - terms.nodes) if turn else terms.nodes, terms.switches
        )
        for name in terms.switches:
            seen = nan_median(outside(met, places, terms, name) - terms.nodes[places.below(name)], axis=0)
            terms.switches[name] = np.nan_to_num(seen)
    return terms
