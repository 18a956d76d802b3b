"""The distribution of what healthy nodes of a class measure, and the probabilities of other values.

The value of a node is the value of its class, plus a constant difference of the node, plus noise. Noise is resampled
from what all nodes measured, whole checks at a time, so that it has the tails, modes and correlations of the class; the
differences between nodes are normal. Healthy nodes are simulated in this way, in classes as large as this one and
fitted like this one. They give the probability of every statistic, which therefore includes the errors of estimates and
the multiplicity of tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from meshmark.statistics.arrays import Array
from meshmark.statistics.estimates import correlation, deviation, location, nan_median, positive, scaled
from meshmark.statistics.tails import Tail

if TYPE_CHECKING:
    from numpy.random import Generator

MIN_NODES: Final = 8  # a smaller class has no scale to compare with
DRAWS: Final = 40_000  # simulated nodes
_CLASSES: Final = ((300, 64), (2000, 16), (math.inf, 4))  # (largest number of nodes, number of simulated classes)
_ENOUGH: Final = 2000  # nodes of a simulated class: estimates from more nodes have a negligible error
_LEAST: Final = 0.01  # least share of the variance that is between nodes
_PRECISE: Final = 0.85  # share of the nodes whose ordinary deviation is as precise as `deviation` of all nodes
_CHUNK: Final = 2000  # nodes that are simulated at once
# Standard deviations beyond which a node is not used as noise, and the largest share of such nodes.
_FAR: Final = (5.0, 0.02)


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights by which the scores of p metrics are combined.

    Attributes:
        whiten: Shape (p, p): the product of scores and this matrix has variance 1 and no correlation.
        innovate: Shape (p, p): the product of scores and this matrix shows a shift of one metric most clearly, given
            all other metrics.
    """

    whiten: Array
    innovate: Array

    @staticmethod
    def from_values(correlated: Array) -> Weights:
        """Return the weights for a matrix of correlations, shape (p, p); eigenvalues are at least 1e-6."""
        import numpy as np

        eigen, vectors = np.linalg.eigh(correlated)
        eigen = np.maximum(eigen, 1e-6)
        inverse = (vectors / eigen) @ vectors.T
        return Weights((vectors / np.sqrt(eigen)) @ vectors.T, inverse / np.sqrt(np.diag(inverse)))


@dataclass(frozen=True, slots=True)
class NodeLocations:
    """Locations of the nodes of a class.

    Attributes:
        own: Location of the values of each node, without changes that affect all nodes, shape (nodes, p).
        centre, scale: Centre and standard deviation of `own`, shape (p,).
        level: The last values of the class, shape (p,), to which `own` is relative.
    """

    own: Array
    centre: Array
    scale: Array
    level: Array

    @property
    def middle(self) -> Array:
        """Return the centre of the last values of the nodes of the class, shape (p,)."""
        return self.level + self.centre


@dataclass(frozen=True, slots=True)
class Baseline(NodeLocations):
    """The distribution of the values of a class with p metrics.

    Attributes:
        noise: Standard deviation of the noise in `own`, shape (p,).
        groups: Metrics that a fault may shift together, shape (p, g), bool.
        worse, better: Upper and lower tail of each metric.
        parts: Tails of the statistics that `statistics` returns.
        whole: Tail of the smallest probability of these statistics.
    """

    noise: Array
    groups: Array
    weights: Weights
    worse: Sequence[Tail]
    better: Sequence[Tail]
    parts: Sequence[Tail]
    whole: Tail


def locate(values: Array) -> NodeLocations:
    """Return the locations of nodes; `values` has the form that `fit` takes."""
    import numpy as np

    levels = nan_median(values, axis=0)
    own_locations = location(values - np.nan_to_num(levels))
    centre = np.nan_to_num(nan_median(own_locations, axis=0))
    # Values that are equal in most nodes have no deviation.
    return NodeLocations(
        own_locations, centre, np.maximum(deviation(own_locations - centre), 1e-9), np.nan_to_num(levels[-1])
    )


def fit(values: Array, groups: Array | None = None, draws: int = DRAWS, seed: int = 0) -> Baseline:
    """Return the baseline of a class.

    Args:
        values: Shape (nodes, k, p); the k-th values of all nodes are from about the same time. Higher is worse, as for
            logarithms of times. NaN: not measured.
        groups: Shape (p, g), bool: metrics that a fault may shift together; None: no groups.
        draws: Number of simulated nodes.
        seed: Seed of the simulation.

    Raises:
        ValueError: There are fewer than `MIN_NODES` nodes.
    """
    import numpy as np

    n, k, p = values.shape
    if n < MIN_NODES:
        raise ValueError(f"nodes: found {n}, at least {MIN_NODES} are required")
    located = locate(values)
    scale = located.scale
    rng = np.random.default_rng(seed)
    noise = _noise(rng, _singles(values, located), k, draws)
    # As robust as the covariance from which it is subtracted: noise with two modes has the same variance in both.
    noise_scale = deviation(noise)
    noise_covariance = correlation(noise / np.where(noise_scale > 0, noise_scale, 1.0)) * np.outer(
        noise_scale, noise_scale
    )
    node_covariance, correlated = _between((located.own - located.centre) / scale, scale, noise_covariance)
    simulated = noise + rng.normal(size=(draws, p)) @ np.linalg.cholesky(node_covariance).T
    classes = _simulated(rng, simulated, scale, noise_covariance, n)
    z = np.concatenate([simulated_class.z for simulated_class in classes])
    worse, better = ([Tail.from_sample(side * column) for column in z.T] for side in (1, -1))
    group_mask = np.zeros((p, 0), bool) if groups is None else np.asarray(groups, bool)
    per_class = [
        statistics(scores(simulated_class.z, worse, better), simulated_class.weights, group_mask)
        for simulated_class in classes
    ]
    samples = [np.concatenate(sample) for sample in zip(*per_class, strict=True)]
    parts = [Tail.from_sample(sample) for sample in samples]
    return Baseline(
        own=located.own,
        centre=located.centre,
        scale=scale,
        level=located.level,
        noise=np.sqrt(np.diag(noise_covariance)),
        groups=group_mask,
        weights=Weights.from_values(correlated),
        worse=worse,
        better=better,
        parts=parts,
        whole=Tail.from_sample(smallest(samples, parts)),
    )


@dataclass(frozen=True, slots=True)
class Scores:
    """Evidence of each single metric of each node, shape (nodes, p).

    Attributes:
        worse: Logarithm of the probability of at least this value.
        normal: The value of a normal distribution with the same probability, so that a metric with heavy tails does not
            hide the others.
    """

    worse: Array
    normal: Array


def scores(z: Array, worse: Sequence[Tail], better: Sequence[Tail]) -> Scores:
    """Return the scores of standardized values; the scores of NaN values are 0."""
    import numpy as np
    from scipy.special import ndtri_exp

    up, normal = np.zeros_like(z), np.zeros_like(z)
    for k, column in enumerate(z.T):
        up[:, k], down = worse[k].log(column), better[k].log(-column)
        least = ndtri_exp(np.minimum(np.minimum(up[:, k], down), -1e-9))
        normal[:, k] = np.where(up[:, k] < down, -least, least)
    unknown = np.isnan(z)
    if unknown.any():
        up[unknown], normal[unknown] = 0.0, 0.0
    return Scores(up, normal)


def statistics(scores: Scores, weights: Weights, groups: Array) -> list[Array]:
    """Return three statistics of each node, each of which has an approximately exponential tail.

    They state how much worse its worst metric is, how unusual the pattern of all metrics is, and how much worse several
    metrics of a group are.
    """
    import numpy as np

    normal = scores.normal
    worst_metric = -scores.worse.min(axis=1)
    distance = ((normal @ weights.whiten) ** 2).sum(axis=1)
    shifted = normal @ weights.innovate
    everything = np.ones((len(groups), 1), bool)
    group_statistic = np.zeros(len(normal))
    for group in np.concatenate([groups, everything], axis=1).T:
        # The sum of the clearest metrics, for any number of them.
        ordered = -np.sort(-shifted[:, group], axis=1)
        sums = ordered.cumsum(axis=1) / np.sqrt(np.arange(1, ordered.shape[1] + 1))
        group_statistic = np.maximum(group_statistic, sums.max(axis=1))
    return [worst_metric, distance, group_statistic**2]


def smallest(found: Sequence[Array], parts: Sequence[Tail]) -> Array:
    """Return the negative logarithm of the smallest probability among the statistics of each node."""
    import numpy as np

    return np.asarray(np.max([-tail.log(statistic) for tail, statistic in zip(parts, found, strict=True)], axis=0))


@dataclass(frozen=True, slots=True)
class _SimulatedClass:
    """A simulated class: standardized values of healthy nodes, and its weights."""

    z: Array
    weights: Weights


def _singles(values: Array, locations: NodeLocations) -> Array:
    """Return values without changes that affect all nodes, shape (n · k, p).

    NaN: not measured, or a value of one of a few nodes far away from the class.
    """
    import numpy as np

    far = np.abs(locations.own - locations.centre) > _FAR[0] * locations.scale
    far &= far.sum(axis=0) <= max(1, _FAR[1] * len(far))
    return np.asarray(np.where(far[:, None], np.nan, values - nan_median(values, axis=0)).reshape(-1, values.shape[2]))


def _noise(rng: Generator, singles: Array, k: int, draws: int) -> Array:
    """Return locations of k values of different nodes, shape (draws, p).

    Args:
        rng: Source of random numbers.
        singles: Values without changes that affect all nodes, shape (n, p).
        k: Number of values of which a location is taken.
        draws: Number of locations.
    """
    import numpy as np

    rows = singles[~np.isnan(singles).all(axis=1)]
    for column in rows.T:
        missing = np.isnan(column)
        if missing.any():
            column[missing] = rng.choice(column[~missing], missing.sum()) if not missing.all() else 0.0
    chunks = [
        location(rows[rng.integers(len(rows), size=(min(_CHUNK, draws - start), k))])
        for start in range(0, draws, _CHUNK)
    ]
    locations = np.concatenate(chunks)
    return np.asarray(locations - np.median(locations, axis=0))


def _between(z: Array, scale: Array, noise: Array) -> tuple[Array, Array]:
    """Return the covariance of the differences between nodes, and the correlation of the metrics, including noise."""
    import numpy as np

    size = np.outer(scale, scale)
    between = positive(correlation(z) - noise / size, _LEAST) * size
    return between, scaled(between + noise)


def _simulated(rng: Generator, made: Array, scale: Array, noise: Array, n: int) -> list[_SimulatedClass]:
    """Return classes of healthy nodes, each standardized with the errors of centre, scale and correlation of n nodes.

    The error of the scale is the error for a normal distribution, since the scale of values with two modes jumps.
    """
    import numpy as np

    classes = []
    for chunk in np.array_split(made / scale, next(count for most, count in _CLASSES if n <= most)):
        nodes = made[rng.integers(len(made), size=min(n, _ENOUGH))]
        centre = np.median(nodes, axis=0)
        _, correlated = _between((nodes - centre) / np.maximum(deviation(nodes - centre), 1e-9), scale, noise)
        freedom = _PRECISE * n
        factor = np.sqrt(rng.chisquare(freedom, chunk.shape[1]) / freedom)
        classes.append(_SimulatedClass((chunk - centre / scale) / factor, Weights.from_values(correlated)))
    return classes
