"""Names the wrong route that explains deviating loads: the entries of routing tables along one path to one target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.watch.links.even import EvenPrediction
from meshmark.watch.links.network import LinkNetwork
from meshmark.watch.links.observed import ObservedUse
from meshmark.watch.links.traffic import NodeTraffic
from meshmark.watch.links.uneven import closest_loads

Floats = NDArray[np.float64]
Scores = dict[tuple[int, ...], tuple[float, float]]  # path → rank, and share of the deviation that it explains
EXPLAINED: Final = 0.8  # share of the deviation that a route must explain
MARGIN: Final = 0.1  # share of the deviation by which it must exceed other routes
_MAX_PATHS: Final = 60  # paths that are tried from one link to one target
_MAX_LENGTH: Final = 12
_MAX_TRIED: Final = 30  # paths that are tried in uneven traffic, for each of which a linear program is solved
_LISTED: Final = 3  # other paths that are named
_SATISFACTORY: Final = 0.9  # share of the deviation below which paths that begin with any link are tried
_SMALL: Final = 1500  # links times targets up to which this is possible in seconds
_PARTS: Final = (0.3, 1.5)  # limits of the ratio of the volume on a wrong route to the predicted volume


@dataclass(frozen=True, slots=True)
class WrongRoute:
    """A route that explains deviating loads.

    Attributes:
        path: The routers along which packets for the last one move, from the first.
        shortest: The shortest paths that they would take instead, at most three.
        explained: Share of the deviation that it explains.
        alternatives: Other paths that explain nearly as much, at most three.
        others: Number of all such paths.
    """

    path: tuple[int, ...]
    shortest: tuple[tuple[int, ...], ...]
    explained: float
    alternatives: tuple[tuple[int, ...], ...] = ()
    others: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the route as JSON; routers are numbers."""
        return {
            "path": list(self.path),
            "shortest": [list(p) for p in self.shortest],
            "explained": round(self.explained, 4),
            "alternatives": [list(p) for p in self.alternatives],
            "others": self.others,
        }


def table_with(network: LinkNetwork, path: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the links towards the last router of a path, if packets follow the path from each of its routers."""
    table = dict(network.shortest[path[-1]])
    for begin, end in pairwise(path):
        table[begin] = tuple(link for link in network.outputs[begin] if network.ends[link][1] == end)
    return table


def route_in_even_traffic(
    network: LinkNetwork, volumes: Floats, prediction: EvenPrediction, observed: ObservedUse, half_widths: Floats
) -> WrongRoute | None:
    """Return the route that best explains the deviation from a prediction; None if no single one does.

    Every route that begins with a link whose load is too high is tried, for every target; in a small network also the
    routes that begin with any link, because many deviating links distort the prediction.
    """
    deviation = observed.mean - prediction.expected
    tested = ~network.is_bus
    errors = np.maximum(half_widths, 1e-9)[tested]
    relative = deviation[tested] / errors
    # The wrong route also changed the estimates of the prediction, which are therefore adjusted together with it.
    adjustments = prediction.sensitivity[tested] / errors[:, None]

    def scores_of(links: Sequence[int]) -> Scores:
        return _scores(network, volumes, prediction, links, relative, errors, adjustments)

    scores = scores_of([int(e) for e in np.flatnonzero((deviation > half_widths) & tested)])
    everything = len(network.ends) * len(network.vertex_of_node)
    if max(scores.values(), default=(0.0, 0.0))[1] < _SATISFACTORY and everything <= _SMALL:
        scores |= scores_of([int(e) for e in np.flatnonzero(tested)])
    return _best(network, scores)


def _scores(
    network: LinkNetwork,
    volumes: Floats,
    prediction: EvenPrediction,
    links: Sequence[int],
    relative: Floats,
    errors: Floats,
    adjustments: Floats,
) -> Scores:
    """Return the share of the deviation that each path explains which begins with one of the links.

    Args:
        network: The network.
        volumes: Volumes between its vertices.
        prediction: The prediction for the shortest paths.
        links: First links of the paths.
        relative: Deviation of each tested link from the prediction, in units of its error.
        errors: Error of each tested link.
        adjustments: Change of the prediction with its estimated parameters, in units of the errors.
    """
    tested = ~network.is_bus
    total = _residual(relative, adjustments)
    scores: Scores = {}
    for target in dict.fromkeys(network.vertex_of_node):
        usual = network.loads_to(target, volumes[:, target], network.shortest[target], prediction.weights)
        for path in _candidates(network, links, target):
            try:
                loads = network.loads_to(target, volumes[:, target], table_with(network, path), prediction.weights)
            except ValueError:
                continue  # packets would move in a circle
            change = (prediction.per_volume * (loads - usual) / network.bytes_per_s)[tested] / errors
            # Other routers may divide their packets for the target differently, so only a part may meet the route.
            part = np.linalg.lstsq(np.column_stack([change, adjustments]), relative, rcond=None)[0][0]
            part = min(_PARTS[1], max(_PARTS[0], float(part)))
            explained = 1.0 - _residual(relative - part * change, adjustments) / max(total, 1e-300)
            scores[path] = (explained, explained)
    return scores


def route_in_uneven_traffic(
    network: LinkNetwork, traffic: NodeTraffic, mean: Floats, half_widths: Floats, beyond: Floats
) -> WrongRoute | None:
    """Return the route that best explains loads which shortest paths cannot cause; None if no single one does.

    For each target, the smallest volume off the shortest paths that explains the loads names the links to try.
    """
    total, tested = float(beyond.sum()), ~network.is_bus
    scores: Scores = {}
    detours: dict[int, dict[int, float]] = {}
    for target in dict.fromkeys(network.vertex_of_node):
        closest = closest_loads(network, traffic, mean, half_widths, detours_to=target)
        if float(closest.beyond.sum()) <= (1 - EXPLAINED) * total:
            detours[target] = closest.detours
    candidates = [
        path
        for target in sorted(detours, key=lambda t: sum(detours[t].values()))
        for path in _candidates(network, sorted(detours[target], key=lambda e: -detours[target][e]), target)
    ]
    for path in candidates[:_MAX_TRIED]:
        table = table_with(network, path)
        # Packets that find the wrong link blocked may take a deadlock-free route, which is a shortest path.
        table[path[0]] = (*table[path[0]], *network.shortest[path[-1]][path[0]])
        closest = closest_loads(network, traffic, mean, half_widths, {path[-1]: table})
        explained = 1.0 - float(closest.beyond.sum()) / total
        # Of two routes that explain the loads within their intervals, the one that comes closer is more likely.
        distance = float(np.mean(np.abs(mean - closest.use)[tested] / half_widths[tested]))
        scores[path] = (explained - distance, explained)
    return _best(network, scores)


def _residual(values: Floats, adjustments: Floats) -> float:
    """Return the sum of squares that remains after the best adjustment."""
    best = np.linalg.lstsq(adjustments, values, rcond=None)[0]
    rest = values - adjustments @ best
    return float(rest @ rest)


def _candidates(network: LinkNetwork, links: Sequence[int], target: int) -> Iterator[tuple[int, ...]]:
    """Yield paths to a target that begin with one of these links, each path once.

    They continue on the shortest paths that avoid the first router, or on others of these links.
    """
    given = set()
    allowed = set(links)
    for link in links:
        begin, end = network.ends[link]
        if target == begin or begin not in network.shortest[target]:
            continue
        distance = network.distances_to(target, without=begin)
        start = [begin, end]
        along = _paths(network, start, target, allowed.__contains__, _MAX_LENGTH)
        for path in [*_shortening(network, start, target, distance), *along]:
            is_usual = all(
                len(network.shortest[target][a]) == 1 and network.ends[network.shortest[target][a][0]][1] == b
                for a, b in pairwise(path)
            )
            if path not in given and not is_usual:
                given.add(path)
                yield path


def _paths(
    network: LinkNetwork, begin: list[int], target: int, allows: Callable[[int], bool], longest: int
) -> list[tuple[int, ...]]:
    """Return paths to a target that begin with these routers and continue along allowed links, each router once.

    Args:
        network: The network.
        begin: The first routers.
        target: The last router.
        allows: Whether a link may be used.
        longest: Number of routers from which a path is not continued.
    """
    paths: list[tuple[int, ...]] = []
    waiting = [begin]
    while waiting and len(paths) < _MAX_PATHS:
        path = waiting.pop()
        if path[-1] == target:
            paths.append(tuple(path))
        elif len(path) < longest:
            ends = {network.ends[link][1] for link in network.outputs[path[-1]] if allows(link)} - set(path)
            waiting += [[*path, e] for e in sorted(ends)]
    return paths


def _shortening(network: LinkNetwork, begin: list[int], target: int, distance: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the paths that begin with these routers and come closer to the target with every further link."""
    ends = network.ends
    return _paths(network, begin, target, lambda e: distance[ends[e][1]] < distance[ends[e][0]], network.vertices + 1)


def _best(network: LinkNetwork, scores: Scores) -> WrongRoute | None:
    ranked = sorted((p for p in scores if scores[p][1] >= EXPLAINED), key=lambda p: (-scores[p][0], len(p), p))
    if not ranked:
        return None
    best = ranked[0]
    others = [p for p in ranked[1:] if scores[p][0] > scores[best][0] - MARGIN]
    shortest = _shortening(network, [best[0]], best[-1], [int(d) for d in network.distances[:, best[-1]]])
    return WrongRoute(best, tuple(sorted(shortest)[:3]), scores[best][1], tuple(others[:_LISTED]), len(others))
