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
    found = scores(shift / baseline.scale, baseline.worse, baseline.better)
    node = smallest(statistics(found, baseline.weights, baseline.groups), baseline.parts)
    return Evidence(shift, np.exp(found.worse), np.exp(baseline.whole.log(node)))


def excess(own: Array, baseline: Baseline) -> float:
    """By which factor the squared distances of healthy nodes are larger than the baseline says; `own` as above."""
    import numpy as np

    found = scores((own - baseline.centre) / baseline.scale, baseline.worse, baseline.better)
    _, distance, _ = statistics(found, baseline.weights, baseline.groups)
    return float(np.median(distance)) / baseline.parts[1].median()
