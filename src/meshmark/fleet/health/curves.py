"""Loaded latencies as distances from the curve of their class.

Under load, a node with a slightly lower bandwidth has a slightly lower latency, too: only both together show whether it
is worse. At each load, a node is therefore judged by its distance from the latency-bandwidth curve of its class,
measured perpendicularly to the curve: the excess of latency where the curve is flat, the lack of bandwidth where it is
steep.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from meshmark.fleet.data.values import FleetPoint
from meshmark.statistics.arrays import Array
from meshmark.statistics.estimates import nan_median

_LATENCY: Final = "load_latency"
_BANDWIDTH: Final = "bandwidth_net"
_INSTRUMENT: Final = "loaded"
_LOADS: Final = ("chains", "pause")  # conditions along a curve
_FEWEST: Final = 3  # least number of loads of a curve


def as_distances(values: Array, points: Sequence[FleetPoint], members: Sequence[Sequence[int]]) -> None:
    """Replace loaded latencies in place by the latency of the class plus the distance of the node from its curve.

    The bandwidths of these loads are replaced by NaN.

    Args:
        values: Values in the form of `NodePanel.values`.
        points: The points of the values.
        members: The nodes of each class.
    """
    import numpy as np

    for latency, bandwidth in _curves(points):
        for nodes in members:
            latency_index = np.ix_(list(nodes), range(values.shape[1]), latency)
            bandwidth_index = np.ix_(list(nodes), range(values.shape[1]), bandwidth)
            latencies, rates = values[latency_index], -values[bandwidth_index]  # higher bandwidth is better
            latency_median, rate_median = (
                nan_median(array.reshape(-1, len(latency)), axis=0) for array in (latencies, rates)
            )
            order = np.argsort(rate_median)
            measured = order[~np.isnan(rate_median[order] + latency_median[order])]
            if len(measured) < _FEWEST or len(np.unique(rate_median[measured])) < len(measured):
                continue
            slope = np.zeros(len(latency))
            slope[measured] = np.maximum(np.gradient(latency_median[measured], rate_median[measured]), 0.0)
            # A change of all nodes in one campaign moves the curve; it is not a distance from it.
            latency_excess, rate_excess = (array - nan_median(array, axis=0) for array in (latencies, rates))
            values[latency_index] = nan_median(latencies, axis=0) + (latency_excess - slope * rate_excess) / np.hypot(
                1.0, slope
            )
            values[bandwidth_index] = np.nan


def _curves(points: Sequence[FleetPoint]) -> list[tuple[list[int], list[int]]]:
    """Return the indices of the latencies and of the bandwidths of each curve, in the same order of loads."""
    curves: dict[str, dict[str, dict[str, int]]] = {}
    for i, point in enumerate(points):
        if point.instrument == _INSTRUMENT and point.metric in {_LATENCY, _BANDWIDTH}:
            conditions = point.conditions
            load = json.dumps([conditions.get(name) for name in _LOADS])
            curve = json.dumps({k: v for k, v in conditions.items() if k not in _LOADS}, sort_keys=True)
            curves.setdefault(curve, {}).setdefault(load, {})[point.metric] = i
    indices = []
    for loads in curves.values():
        complete = [index_by_metric for index_by_metric in loads.values() if len(index_by_metric) == 2]
        if len(complete) >= _FEWEST:
            indices.append(
                (
                    [index_by_metric[_LATENCY] for index_by_metric in complete],
                    [index_by_metric[_BANDWIDTH] for index_by_metric in complete],
                )
            )
    return indices
