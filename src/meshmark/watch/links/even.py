"""Predicts the loads of links for even traffic, in which every node sends every other node the same volume.

The links with which shortest paths begin share the volume. Adaptive routers prefer some of them, for example the first
one of two equal ones, but all routers by the same rule, and in even traffic they see the same load. A weight for each
group of links (`LinkNetwork.tie_groups`) is therefore estimated from the observation; the rest of the prediction has no
free parameter, except the total load. The estimate is robust, so that a few deviating links do not change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.watch.links.network import LinkNetwork
from meshmark.watch.links.observed import ObservedUse
from meshmark.watch.links.traffic import NodeTraffic

Floats = NDArray[np.float64]
TOLERANCE: Final = 0.01  # of the mean load: smaller errors of the prediction are allowed
_STEP: Final = 1e-3  # of the logarithm of a weight, for derivatives
_LARGEST: Final = 6.0  # logarithm of the largest ratio of two weights


@dataclass(frozen=True, slots=True)
class EvenPrediction:
    """The predicted use of each link.

    Attributes:
        weights: Weight of each link where shortest paths divide, shape (links,).
        expected: Predicted use, shape (links,).
        per_volume: Use of a link with bandwidth 1 per unit of the traffic.
        sensitivity: Change of `expected` with each estimated parameter, shape (links, parameters).
    """

    weights: Floats
    expected: Floats
    per_volume: float
    sensitivity: Floats


def vertex_volumes(network: LinkNetwork, traffic: NodeTraffic) -> Floats:
    """Return the volumes between the vertices of a network, shape (vertices, vertices)."""
    volumes = np.zeros((network.vertices, network.vertices))
    vertices = list(network.vertex_of_node)
    np.add.at(volumes, np.ix_(vertices, vertices), traffic.volumes)
    np.fill_diagonal(volumes, 0.0)
    return volumes


def predict(network: LinkNetwork, volumes: Floats, observed: ObservedUse) -> EvenPrediction:
    """Return the use of links that even traffic and the topology predict.

    Args:
        network: The network.
        volumes: Volumes between its vertices, in any unit.
        observed: The observed use, to which the total load and the weights of tie groups are fitted.
    """
    from scipy.optimize import least_squares

    group = np.array(network.tie_groups)  # 0: the weight of the link is 1
    tested = ~network.is_bus
    mean = observed.mean
    scale = max(float(mean[tested].mean()), 1e-9)
    errors = np.maximum(observed.error, TOLERANCE * scale / 3)[tested]

    def weights(logarithms: Floats) -> Floats:
        return np.asarray(np.exp(np.append(0.0, logarithms))[group])

    def use_per_volume(logarithms: Floats) -> Floats:
        return np.asarray(network.loads(volumes, weights(logarithms)) / network.bytes_per_s)

    def scaled(logarithms: Floats) -> Floats:
        use = use_per_volume(logarithms)
        return np.asarray(use * _median_ratio(mean[tested], use[tested]))

    def residuals(logarithms: Floats) -> Floats:
        return np.asarray((mean - scaled(logarithms))[tested] / errors)

    best = np.zeros(group.max())
    if best.size:
        best = least_squares(
            residuals, best, bounds=(-_LARGEST, _LARGEST), loss="soft_l1", diff_step=np.full(best.size, _STEP)
        ).x
    use = use_per_volume(best)
    per_volume = _median_ratio(mean[tested], use[tested])
    steps = _STEP * np.eye(best.size)
    changes = [(per_volume * use_per_volume(best + step) - per_volume * use) / _STEP for step in steps]
    return EvenPrediction(weights(best), per_volume * use, per_volume, np.column_stack([per_volume * use, *changes]))


def _median_ratio(observed: Floats, use: Floats) -> float:
    """Return the factor between the observed use and the use per volume of most links."""
    is_used = use > 0
    return float(np.median(observed[is_used] / use[is_used])) if np.any(is_used) else 0.0
