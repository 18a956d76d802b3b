"""How unlikely the values of a node are for a healthy one of its class.

Three questions are asked of each node: is one metric worse (a marginal test of each), is a group of metrics worse
together (a contrast of each), is their pattern unusual in any direction (the distance). They share the error evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshmark.fleet.arrays import Array
from meshmark.fleet.baseline import Baseline, nan_median, scores, student_tail


@dataclass(frozen=True, slots=True)
class Evidence:
    """p-values of nodes, one row each.

    Attributes:
        shift: Of each metric relative to the centre of the class, in the unit of the values, shape (nodes, p).
        metrics: One-sided, shape (nodes, p).
        groups: One-sided, shape (nodes, g).
        distance: Shape (nodes,).
        node: Of the node as a whole, shape (nodes,).
    """

    shift: Array
    metrics: Array
    groups: Array
    distance: Array
    node: Array


def evidence(values: Array, baseline: Baseline) -> Evidence:
    """The evidence against each node.

    Args:
        values: As of `baseline.fit`, shape (nodes, k, p), of these or of other nodes; k is at least that of the
            baseline, otherwise medians vary more than it says.
    """
    import numpy as np
    from scipy.special import fdtrc

    shift = nan_median(values, axis=1) - baseline.centre
    z = shift / baseline.scale
    unknown = np.isnan(z)
    known = np.where(unknown, 0.0, z)
    metrics = np.where(unknown, 1.0, student_tail(known, baseline.freedom))
    normal = scores(known, baseline.freedom)
    groups = student_tail(normal @ baseline.groups, baseline.groups_freedom)
    p = values.shape[2]
    squared = ((normal @ baseline.whiten) ** 2).sum(axis=1)
    distance = fdtrc(p, baseline.distance_freedom, squared / baseline.distance_scale / p)
    parts = [metrics.min(axis=1) * p, distance]
    if groups.shape[1]:
        parts.append(groups.min(axis=1) * groups.shape[1])
    node = np.minimum(1.0, np.min(parts, axis=0) * len(parts))
    return Evidence(shift, metrics, groups, distance, node)
