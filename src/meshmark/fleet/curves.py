"""Loaded latencies as distances from the curve of their class.

Under load, a node with a slightly lower bandwidth has a slightly lower latency, too: both together say whether it is
worse. At each load, a node is therefore judged by its distance from the latency-bandwidth curve of its class, measured
perpendicularly to the curve: where it is flat, that is the excess of latency, where it is steep, the lack of bandwidth.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from meshmark.fleet.arrays import Array
from meshmark.fleet.estimates import nan_median
from meshmark.fleet.values import Point

_LATENCY: Final = "load_latency"
_BANDWIDTH: Final = "bandwidth_net"
_INSTRUMENT: Final = "loaded"
_LOADS: Final = ("chains", "pause")  # conditions along a curve
_FEWEST: Final = 3  # loads of a curve


def as_distances(values: Array, points: Sequence[Point], members: Sequence[Sequence[int]]) -> None:
    """Replace, in place, loaded latencies by the latency of the class plus the node's distance from its curve, and the
    bandwidths of these loads by NaN.

    Args:
        values: As of `Panel.values`.
        members: The nodes of each class.
    """
    import numpy as np

    for latency, bandwidth in _curves(points):
        for nodes in members:
            at = np.ix_(list(nodes), range(values.shape[1]), latency)
            beside = np.ix_(list(nodes), range(values.shape[1]), bandwidth)
            own, rate = values[at], -values[beside]  # of a bandwidth, higher is better
            middle, level = (nan_median(of.reshape(-1, len(latency)), axis=0) for of in (own, rate))
            order = np.argsort(level)
            known = order[~np.isnan(level[order] + middle[order])]
            if len(known) < _FEWEST or len(np.unique(level[known])) < len(known):
                continue
            slope = np.zeros(len(latency))
            slope[known] = np.maximum(np.gradient(middle[known], level[known]), 0.0)
            # What changed for all nodes in one campaign moves the curve, and is no distance from it.
            excess, more = (of - nan_median(of, axis=0) for of in (own, rate))
            values[at] = nan_median(own, axis=0) + (excess - slope * more) / np.hypot(1.0, slope)
            values[beside] = np.nan


def _curves(points: Sequence[Point]) -> list[tuple[list[int], list[int]]]:
    """For each curve the places of its latencies and of its bandwidths, in the same order of loads."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for i, point in enumerate(points):
        if point.instrument == _INSTRUMENT and point.metric in {_LATENCY, _BANDWIDTH}:
            conditions = point.conditions
            load = json.dumps([conditions.get(name) for name in _LOADS])
            curve = json.dumps({k: v for k, v in conditions.items() if k not in _LOADS}, sort_keys=True)
            found.setdefault(curve, {}).setdefault(load, {})[point.metric] = i
    made = []
    for loads in found.values():
        both = [of for of in loads.values() if len(of) == 2]
        if len(both) >= _FEWEST:
            made.append(([of[_LATENCY] for of in both], [of[_BANDWIDTH] for of in both]))
    return made
