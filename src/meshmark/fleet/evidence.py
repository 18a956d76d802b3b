"""How unlikely the values of a node are for a healthy one of its class."""

from __future__ import annotations

from dataclasses import dataclass

from meshmark.fleet.arrays import Array
from meshmark.fleet.baseline import Baseline, scores, smallest, statistics


@dataclass(frozen=True, slots=True)
class Evidence:
    """p-values of nodes, one row each.

    Attributes:
        shift: Of each metric relative to the centre of the class, in the unit of the values, shape (nodes, p).
        metrics: One-sided, shape (nodes, p).
        node: Of the node as a whole, shape (nodes,).
    """

    shift: Array
    metrics: Array
    node: Array


def evidence(own: Array, baseline: Baseline) -> Evidence:
    """The evidence against each node.

    Args:
        own: Locations of values, such as `Baseline.own`, shape (nodes, p), of as many values as those of the baseline.
    """
    import numpy as np

    shift = own - baseline.centre
    metrics = np.exp([tail.log(z) for tail, z in zip(baseline.worse, (shift / baseline.scale).T, strict=True)]).T
    node = np.exp(baseline.whole.log(smallest(_statistics(own, baseline), baseline.parts)))
    return Evidence(shift, np.where(np.isnan(shift), 1.0, metrics), node)


def excess(own: Array, baseline: Baseline) -> float:
    """By which factor the squared distances of healthy nodes are larger than the baseline says; `own` as above."""
    import numpy as np

    _, distance, _ = _statistics(own, baseline)
    return float(np.median(distance)) / baseline.parts[1].median()


def _statistics(own: Array, baseline: Baseline) -> list[Array]:
    import numpy as np

    z = (own - baseline.centre) / baseline.scale
    unknown = np.isnan(z)
    normal = np.where(unknown, 0.0, scores(np.nan_to_num(z), baseline.worse, baseline.better))
    return statistics(np.where(unknown, -np.inf, z), normal, baseline.weights, baseline.groups, baseline.worse)
