"""The probability of the values of a node if it were a healthy node of its class."""

from __future__ import annotations

from dataclasses import dataclass

from meshmark.fleet.health.baseline import Baseline, scores, smallest, statistics
from meshmark.statistics.arrays import Array


@dataclass(frozen=True, slots=True)
class Evidence:
    """p-values of nodes, one row each.

    Attributes:
        shift: Shift of each metric from the centre of the class, in the unit of the values, shape (nodes, p).
        metrics: One-sided p-value of each metric, shape (nodes, p).
        node: p-value of the node as a whole, shape (nodes,).
    """

    shift: Array
    metrics: Array
    node: Array


def evidence(own: Array, baseline: Baseline) -> Evidence:
    """Return the evidence against each node.

    Args:
        own: Locations of as many values as the baseline has, such as `Baseline.own`, shape (nodes, p).
        baseline: The baseline of the class.
    """
    import numpy as np

    shift = own - baseline.centre
    metric_scores = scores(shift / baseline.scale, baseline.worse, baseline.better)
    node = smallest(statistics(metric_scores, baseline.weights, baseline.groups), baseline.parts)
    return Evidence(shift, np.exp(metric_scores.worse), np.exp(baseline.whole.log(node)))


def excess(own: Array, baseline: Baseline) -> float:
    """Return the factor by which the squared distances of healthy nodes exceed those that the baseline predicts.

    `own` has the form that `evidence` takes.
    """
    import numpy as np

    metric_scores = scores((own - baseline.centre) / baseline.scale, baseline.worse, baseline.better)
    _, distance, _ = statistics(metric_scores, baseline.weights, baseline.groups)
    return float(np.median(distance)) / baseline.parts[1].median()
