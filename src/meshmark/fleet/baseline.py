"""What healthy nodes of a class measure, and how unlikely other values are for them.

Values of a node are those of its class, plus a difference between nodes that stays, plus noise. Noise is resampled from
what all nodes measured, whole checks at a time, so that its tails, modes and correlations are those of the class; the
differences between nodes are normal. Healthy nodes that are simulated so, in classes as large as this one and fitted as
this one is, give the probability of every statistic: errors of estimates and tests of several questions are part of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from meshmark.fleet.arrays import Array
from meshmark.fleet.estimates import correlation, deviation, location, nan_median, positive, scaled
from meshmark.fleet.tails import Tail

if TYPE_CHECKING:
    from numpy.random import Generator

MIN_NODES: Final = 8  # below, a class has no scale to compare with
DRAWS: Final = 40_000  # simulated nodes
_CLASSES: Final = ((300, 64), (2000, 16), (math.inf, 4))  # up to so many nodes, so many simulated classes
_ENOUGH: Final = 2000  # nodes of a simulated class: estimates from more have no error that matters
_LEAST: Final = 0.01  # of the variance that is between nodes
_PRECISE: Final = 0.85  # share of the nodes whose ordinary deviation is as precise as `deviation` of all
_CHUNK: Final = 2000  # simulated nodes at once
_FAR: Final = (5.0, 0.02)  # standard deviations beyond which a node shows no noise, and share of such nodes at most


@dataclass(frozen=True, slots=True)
class Weights:
    """How scores of p metrics are combined.

    Attributes:
        whiten: Shape (p, p): scores times this have no correlation and variance 1.
        innovate: Shape (p, p): scores times this show a shift of one metric most clearly, beside all others.
    """

    whiten: Array
    innovate: Array

    @staticmethod
    def of(correlated: Array) -> Weights:
        import numpy as np

        eigen, vectors = np.linalg.eigh(correlated)
        eigen = np.maximum(eigen, 1e-6)
        inverse = (vectors / eigen) @ vectors.T
        return Weights((vectors / np.sqrt(eigen)) @ vectors.T, inverse / np.sqrt(np.diag(inverse)))


@dataclass(frozen=True, slots=True)
class Located:
    """Where the nodes of a class are.

    Attributes:
        own: The location of each node's values, without what changed for all, shape (nodes, p).
        centre, scale: Of these, shape (p,); the scale is a standard deviation.
        level: What the class measured last, shape (p,), to which `own` is relative.
    """

    own: Array
    centre: Array
    scale: Array
    level: Array

    @property
    def middle(self) -> Array:
        """What the nodes of the class measured last, shape (p,)."""
        return self.level + self.centre


@dataclass(frozen=True, slots=True)
class Baseline(Located):
    """A class with p metrics.

    Attributes:
        noise: The standard deviation of `own` that is noise, shape (p,).
        groups: Metrics that a fault may shift together, shape (p, g), bool.
        worse, better: Tails of each metric, upwards and downwards.
        parts: Tails of the statistics of `statistics`.
        whole: The tail of the smallest of their probabilities.
    """

    noise: Array
    groups: Array
    weights: Weights
    worse: Sequence[Tail]
    better: Sequence[Tail]
    parts: Sequence[Tail]
    whole: Tail


def locate(values: Array) -> Located:
    """Where nodes are; `values` is that of `fit`."""
    import numpy as np

    levels = nan_median(values, axis=0)
    own = location(values - np.nan_to_num(levels))
    centre = np.nan_to_num(nan_median(own, axis=0))
    # Values that are equal in most nodes have no deviation.
    return Located(own, centre, np.maximum(deviation(own - centre), 1e-9), np.nan_to_num(levels[-1]))


def fit(values: Array, groups: Array | None = None, draws: int = DRAWS, seed: int = 0) -> Baseline:
    """The baseline of a class.

    Args:
        values: Shape (nodes, k, p), the k-th value of all nodes of about the same time, higher is worse, such as
            logarithms of times. NaN: not measured.
        groups: Shape (p, g), bool: metrics that a fault may shift together; None: none.
        draws: Simulated nodes.

    Raises:
        ValueError: Fewer than `MIN_NODES` nodes.
    """
    import numpy as np

    n, k, p = values.shape
    if n < MIN_NODES:
        raise ValueError(f"nodes: found {n}, at least {MIN_NODES} are required")
    found = locate(values)
    scale = found.scale
    dice = np.random.default_rng(seed)
    noise = _noise(dice, _singles(values, found), k, draws)
    # As robust as what it is subtracted from: noise of two modes has no other variance.
    alone = deviation(noise)
    spread = correlation(noise / np.where(alone > 0, alone, 1.0)) * np.outer(alone, alone)
    between, correlated = _between((found.own - found.centre) / scale, scale, spread)
    made = noise + dice.normal(size=(draws, p)) @ np.linalg.cholesky(between).T
    classes = _simulated(dice, made, scale, spread, n)
    z = np.concatenate([of.z for of in classes])
    worse, better = ([Tail.of(side * column) for column in z.T] for side in (1, -1))
    marked = np.zeros((p, 0), bool) if groups is None else np.asarray(groups, bool)
    each = [statistics(scores(of.z, worse, better), of.weights, marked) for of in classes]
    joined = [np.concatenate(one) for one in zip(*each, strict=True)]
    parts = [Tail.of(one) for one in joined]
    return Baseline(
        own=found.own,
        centre=found.centre,
        scale=scale,
        level=found.level,
        noise=np.sqrt(np.diag(spread)),
        groups=marked,
        weights=Weights.of(correlated),
        worse=worse,
        better=better,
        parts=parts,
        whole=Tail.of(smallest(joined, parts)),
    )


@dataclass(frozen=True, slots=True)
class Scores:
    """What each metric of each node says alone, shape (nodes, p).

    Attributes:
        worse: Logarithms of the probability of at least its value.
        normal: The value of a normal distribution with the same probability, so that a metric with heavy tails does not
            hide what the others say.
    """

    worse: Array
    normal: Array


def scores(z: Array, worse: Sequence[Tail], better: Sequence[Tail]) -> Scores:
    """The scores of standardized values; those that are NaN say nothing."""
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


def statistics(found: Scores, weights: Weights, groups: Array) -> list[Array]:
    """Three questions for each node: is one metric worse, is the pattern of all unusual, are several metrics of a group
    worse? Each statistic has about an exponential tail."""
    import numpy as np

    normal = found.normal
    single = -found.worse.min(axis=1)
    distance = ((normal @ weights.whiten) ** 2).sum(axis=1)
    shifted = normal @ weights.innovate
    everything = np.ones((len(groups), 1), bool)
    several = np.zeros(len(normal))
    for group in np.concatenate([groups, everything], axis=1).T:
        # The clearest metrics, however many they are.
        ordered = -np.sort(-shifted[:, group], axis=1)
        sums = ordered.cumsum(axis=1) / np.sqrt(np.arange(1, ordered.shape[1] + 1))
        several = np.maximum(several, sums.max(axis=1))
    return [single, distance, several**2]


def smallest(found: Sequence[Array], parts: Sequence[Tail]) -> Array:
    """The smallest probability of the statistics of each node, as minus its logarithm."""
    import numpy as np

    return np.asarray(np.max([-tail.log(one) for tail, one in zip(parts, found, strict=True)], axis=0))


@dataclass(frozen=True, slots=True)
class _Class:
    """A simulated class: standardized values of healthy nodes, and its weights."""

    z: Array
    weights: Weights


def _singles(values: Array, found: Located) -> Array:
    """Values without what changed for all, shape (n · k, p). NaN: not measured, or of one of a few nodes far away."""
    import numpy as np

    far = np.abs(found.own - found.centre) > _FAR[0] * found.scale
    far &= far.sum(axis=0) <= max(1, _FAR[1] * len(far))
    return np.asarray(np.where(far[:, None], np.nan, values - nan_median(values, axis=0)).reshape(-1, values.shape[2]))


def _noise(dice: Generator, singles: Array, k: int, draws: int) -> Array:
    """Locations of k values of different nodes, shape (draws, p).

    Args:
        singles: Values without what changed for all, shape (n, p).
    """
    import numpy as np

    rows = singles[~np.isnan(singles).all(axis=1)]
    for column in rows.T:
        unknown = np.isnan(column)
        if unknown.any():
            column[unknown] = dice.choice(column[~unknown], unknown.sum()) if not unknown.all() else 0.0
    made = [
        location(rows[dice.integers(len(rows), size=(min(_CHUNK, draws - at), k))]) for at in range(0, draws, _CHUNK)
    ]
    found = np.concatenate(made)
    return np.asarray(found - np.median(found, axis=0))


def _between(z: Array, scale: Array, noise: Array) -> tuple[Array, Array]:
    """The covariance between nodes, and the correlation of all that differs."""
    import numpy as np

    size = np.outer(scale, scale)
    between = positive(correlation(z) - noise / size, _LEAST) * size
    return between, scaled(between + noise)


def _simulated(dice: Generator, made: Array, scale: Array, noise: Array, n: int) -> list[_Class]:
    """Healthy nodes as classes of n nodes see them: with errors of centre, scale and correlation.

    The scale's error is that of a normal distribution, since the scale of values with two modes jumps.
    """
    import numpy as np

    found = []
    for part in np.array_split(made / scale, next(count for most, count in _CLASSES if n <= most)):
        nodes = made[dice.integers(len(made), size=min(n, _ENOUGH))]
        centre = np.median(nodes, axis=0)
        _, correlated = _between((nodes - centre) / np.maximum(deviation(nodes - centre), 1e-9), scale, noise)
        freedom = _PRECISE * n
        factor = np.sqrt(dice.chisquare(freedom, part.shape[1]) / freedom)
        found.append(_Class((part - centre / scale) / factor, Weights.of(correlated)))
    return found
