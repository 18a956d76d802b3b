"""How equal nodes vary: centre, scale, tail and correlation of each metric, estimated so that a few bad nodes do not
matter.

Source:
    Covariance of wrapped values: Raymaekers, Rousseeuw, Technometrics 63 (2021), 184-198. Clipping of eigenvalues:
    Laloux et al., Phys. Rev. Lett. 83 (1999), 1467.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from meshmark.fleet.arrays import Array

MIN_NODES: Final = 8  # below, a class has no scale to compare with
_NORMAL: Final = 0.6744897501960817  # the median of |z| of a normal distribution
_WRAP: Final = (1.5, 4.0, 1.540793, 0.8622731)  # b, c, q1, q2 of the wrapping function
_WRAPPED_VARIANCE: Final = 0.7533  # of a standard normal variable
_FREEDOMS: Final = (2.1, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 25.0, 50.0, 100.0, 200.0)  # of tails, heaviest first
_HEAVY: Final = (0.1, 0.02)  # shares of the values between which metrics with heavy tails differ; fewer are bad
_ENOUGH: Final = 1000  # values for a tail
_TAIL: Final = 0.01  # share of the values whose distance fits the tail; fewer are bad


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a healthy node of a class looks like, with p metrics.

    Attributes:
        centre, scale: Of each metric, shape (p,); the scale is a standard deviation.
        freedom: Of Student's distribution, for each metric, shape (p,).
        whiten: Shape (p, p): normal scores times this have no correlation and variance 1.
        groups: Shape (p, g): a contrast in each column: the weights that find a common shift of a group best.
        groups_freedom: Of Student's distribution, for contrasts.
        distance_scale, distance_freedom: Of squared distances, which are those of a multivariate Student distribution.
    """

    centre: Array
    scale: Array
    freedom: Array
    whiten: Array
    groups: Array
    groups_freedom: float
    distance_scale: float
    distance_freedom: float


def fit(values: Array, groups: Array | None = None) -> Baseline:
    """The baseline of a class.

    Args:
        values: Shape (nodes, k, p), k values of each node in any order, higher is worse, such as logarithms of times.
            NaN: not measured.
        groups: Shape (p, g), bool: metrics that a fault may shift together; None: none.

    Raises:
        ValueError: Fewer than `MIN_NODES` nodes.
    """
    import numpy as np

    n, _, p = values.shape
    if n < MIN_NODES:
        raise ValueError(f"nodes: found {n}, at least {MIN_NODES} are required")
    own = nan_median(values, axis=1)
    centre = nan_median(own, axis=0)
    # Values that are equal in most nodes have no deviation.
    scale = np.maximum(deviation(own - centre), 1e-9)
    z = np.nan_to_num((own - centre) / scale)
    freedom = _both(tail_freedoms(z), 0.9 * n)
    u = scores(z, freedom)
    with np.errstate(invalid="ignore"):  # a metric that never varies has no correlation
        correlation = _clipped(np.corrcoef(wrapped(u), rowvar=False).reshape(p, p), n)
    whiten = _whitening(correlation)
    contrasts = _contrasts(np.zeros((p, 0), bool) if groups is None else groups, correlation)
    if contrasts.shape[1]:  # weights amplify errors of the correlation
        spread = deviation(u @ contrasts)
        contrasts = contrasts / np.where(spread > 0, spread, 1.0)
    # What is estimated from few nodes is uncertain, which is as if tails were heavier.
    joint = max(n - p, n / 4)
    tail = float(_both(tail_freedom(u.ravel()), joint))
    distance_scale, distance_freedom = _distances(((u @ whiten) ** 2).sum(axis=1), p, joint)
    return Baseline(centre, scale, freedom, whiten, contrasts, tail, distance_scale, distance_freedom)


def scores(z: Array, freedom: Array) -> Array:
    """Standardized values as those of a normal distribution with the same probabilities, so that a metric with heavy
    tails does not hide what the others say.

    Args:
        z: Shape (nodes, p).
        freedom: Of Student's distribution, shape (p,).
    """
    import numpy as np
    from scipy.special import ndtri

    return np.asarray(-np.sign(z) * ndtri(student_tail(np.abs(z), freedom)))


def student_tail(z: Array, freedom: Array | float) -> Array:
    """The probability of at least these standardized values."""
    import numpy as np
    from scipy.special import stdtr

    wide = np.array([student_deviation(round(float(f), 2)) for f in np.atleast_1d(freedom)])
    return np.asarray(stdtr(freedom, -z * wide), float)


def _both(one: Array | float, other: float) -> Any:
    """Degrees of freedom of two reasons for heavy tails."""
    return 1 / (1 / one + 1 / other)


def nan_median(values: Array, axis: int) -> Array:
    """The median of those values that are known; NaN if none is."""
    import warnings

    import numpy as np

    if not np.isnan(values).any():  # which takes less than half of the time
        return np.asarray(np.median(values, axis=axis))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # "All-NaN slice encountered"
        return np.asarray(np.nanmedian(values, axis=axis))


def deviation(away: Array) -> Array:
    """The standard deviation of each column around 0, of which values far away are no part.

    The median deviation chooses what is far away; wrapped values are then as precise as all values of a normal
    distribution, where the median deviation alone needs 2.7 times as many.
    """
    import numpy as np

    first = np.nan_to_num(nan_median(np.abs(away), axis=0)) / _NORMAL
    z = away / np.where(first > 0, first, 1.0)
    known = np.maximum((~np.isnan(z)).sum(axis=0), 1)
    return np.asarray(first * np.sqrt(np.nansum(wrapped(z) ** 2, axis=0) / known / _WRAPPED_VARIANCE))


def wrapped(z: Array) -> Array:
    """Standardized values, of which those far away are brought back to the centre, smoothly."""
    import numpy as np

    b, c, q1, q2 = _WRAP
    away = np.abs(z)
    middle = q1 * np.tanh(q2 * (c - np.minimum(away, c)))
    return np.asarray(np.sign(z) * np.where(away < b, away, middle))


def tail_freedoms(z: Array) -> Array:
    """The degrees of freedom of each metric's tail, shape (p,).

    Metrics of few nodes have too few values far away for a tail of their own; they share that of others like them.
    """
    import numpy as np

    n, p = z.shape
    first, last = (max(1, round(share * n)) for share in _HEAVY)
    heaviness = np.sort(np.abs(z), axis=0)[n - first : max(n - first + 1, n - last)].mean(axis=0)
    found = np.empty(p)
    for alike in np.array_split(np.argsort(heaviness), max(1, p * n // _ENOUGH)):
        if len(alike):
            found[alike] = tail_freedom(z[:, alike].ravel())
    return found


def tail_freedom(z: Array) -> float:
    """The degrees of freedom of Student's distribution whose upper tail fits standardized values.

    The tail begins at the share `_TAIL`, at ten values if they are few.
    """
    import numpy as np
    from scipy.special import stdtrit

    share = max(_TAIL, min(0.1, 10 / z.size))
    upper = float(np.quantile(z, 1 - share))
    ratios = [float(-stdtrit(freedom, share)) / student_deviation(freedom) for freedom in _FREEDOMS]
    return _interpolated(upper, ratios)


def _interpolated(found: float, ratios: list[float]) -> float:
    """The degrees of freedom whose ratio is `found`; ratios fall as `_FREEDOMS` grow."""
    import numpy as np

    return float(np.exp(np.interp(found, ratios[::-1], np.log(_FREEDOMS[::-1]))))


@cache
def student_deviation(freedom: float) -> float:
    """What `deviation` makes of Student's distribution."""
    import numpy as np
    from scipy.special import stdtrit

    quantiles = np.asarray(stdtrit(freedom, (np.arange(500) + 0.5) / 500), float)
    return float(deviation(quantiles[:, None])[0])


def _clipped(correlation: Array, n: int) -> Array:
    """A correlation matrix whose eigenvalues within those of uncorrelated noise are replaced by their mean, so that few
    nodes do not make it singular."""
    import numpy as np

    p = len(correlation)
    correlation = np.nan_to_num(correlation, nan=0.0)
    np.fill_diagonal(correlation, 1.0)
    eigen, vectors = np.linalg.eigh(correlation)
    noise = eigen <= (1 + np.sqrt(p / n)) ** 2
    if noise.any():
        eigen = np.where(noise, max(float(eigen[noise].mean()), 1e-3), eigen)
    full = (vectors * eigen) @ vectors.T
    root = np.sqrt(np.diag(full))
    return np.asarray(full / root[:, None] / root)


def _whitening(correlation: Array) -> Array:
    import numpy as np

    eigen, vectors = np.linalg.eigh(correlation)
    return np.asarray((vectors / np.sqrt(np.maximum(eigen, 1e-6))) @ vectors.T)


def _contrasts(groups: Array, correlation: Array) -> Array:
    """The best linear weights for a common shift of each group's metrics, with variance 1."""
    import numpy as np

    inverse = np.linalg.inv(correlation)
    shift = np.asarray(groups, float)
    weights = inverse @ shift
    return np.asarray(weights / np.sqrt(np.maximum((shift * weights).sum(axis=0), 1e-12)))


def _distances(squared: Array, p: int, joint: float) -> tuple[float, float]:
    """Scale and degrees of freedom of squared distances: squared / scale / p follows F(p, freedom).

    Args:
        joint: Degrees of freedom that the number of nodes allows.
    """
    import numpy as np
    from scipy.special import fdtri

    share = max(_TAIL, min(0.25, 5 / len(squared)))
    middle, upper = float(np.median(squared)), float(np.quantile(squared, 1 - share))
    ratios = [float(fdtri(p, freedom, 1 - share) / fdtri(p, freedom, 0.5)) for freedom in _FREEDOMS]
    freedom = _both(_interpolated(upper / middle, ratios), joint)
    return middle / (p * float(fdtri(p, freedom, 0.5))), freedom
