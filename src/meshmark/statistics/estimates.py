"""Robust estimates of location, deviation and correlation, and the fairness of a distribution.

Source:
    Scale: Huber, Ann. Math. Statist. 35 (1964), 73-101. Wrapping: Raymaekers, Rousseeuw, Technometrics 63 (2021),
    184-198. Clipping of eigenvalues: Laloux et al., Phys. Rev. Lett. 83 (1999), 1467.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from meshmark.statistics.arrays import Array

_NORMAL: Final = 0.6744897501960817  # the median of |z| of a normal distribution
_WRAP: Final = (1.5, 4.0, 1.540793, 0.8622731)  # b, c, q1, q2 of the wrapping function
# Standard deviations at which values are cut, and the variance of a normal distribution cut in this way.
_HUBER: Final = (2.0, 0.92054)
_STEPS: Final = 3  # iterations towards Huber's scale
_TRIM: Final = 0.3  # share of the values that is left out at each end
_LEAST: Final = 1e-3  # least eigenvalue of a correlation


def jain(values: Sequence[float]) -> float:
    """Return (sum x)^2 / (n sum x^2), after Jain, Chiu, Hawe, DEC-TR-301 (1984); NaN without values above 0."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else math.nan


def location(values: Array) -> Array:
    """Return the trimmed mean over axis 1, shape (nodes, k, p) to (nodes, p); NaN where no value is known.

    For noise with two modes, the median jumps from one mode to the other, and more values do not improve it.
    """
    import numpy as np

    ordered = np.sort(values, axis=1)  # NaN last
    k = values.shape[1]
    if k and not np.isnan(ordered[:, -1]).any():
        cut = int(_cut(np.asarray(k)))
        return np.asarray(ordered[:, cut : k - cut].mean(axis=1))
    known_counts = (~np.isnan(ordered)).sum(axis=1)
    cuts = _cut(known_counts)
    rank = np.arange(k)[None, :, None]
    in_range = (rank >= cuts[:, None]) & (rank < (known_counts - cuts)[:, None])
    count = in_range.sum(axis=1)
    return np.asarray(np.where(in_range, ordered, 0.0).sum(axis=1) / np.where(count, count, np.nan))


def _cut(known: Array) -> Array:
    """Return the number of values that are left out at each end; of three or four values, the median remains."""
    import numpy as np

    return np.asarray(np.where(known >= 5, _TRIM * known, np.maximum(known - 1, 0) // 2).astype(int))


def nan_median(values: Array, axis: int) -> Array:
    """Return the median of the known values; NaN if no value is known."""
    import warnings

    import numpy as np

    if not values.size:
        return np.full(np.delete(values.shape, axis), np.nan)
    if not np.isnan(values).any():  # takes less than half of the time of nanmedian
        return np.asarray(np.median(values, axis=axis))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # "All-NaN slice encountered"
        return np.asarray(np.nanmedian(values, axis=axis))


def deviation(away: Array) -> Array:
    """Return the standard deviation of each column around 0, without the influence of values far away.

    This is Huber's proposal 2. For the same precision, it needs 1.1 times as many values of a normal distribution as
    the ordinary deviation; the median deviation, with which the iteration begins, needs 2.7 times as many.
    """
    import numpy as np

    cut, variance = _HUBER
    scale = np.nan_to_num(nan_median(np.abs(away), axis=0)) / _NORMAL
    known_counts = np.maximum((~np.isnan(away)).sum(axis=0), 1)
    for _ in range(_STEPS):
        z = away / np.where(scale > 0, scale, 1.0)
        scale = scale * np.sqrt(np.nansum(np.minimum(z**2, cut**2), axis=0) / known_counts / variance)
    return np.asarray(scale)


def wrapped(z: Array) -> Array:
    """Return standardized values, with values far away moved back to the centre by a smooth function."""
    import numpy as np

    b, c, q1, q2 = _WRAP
    magnitude = np.abs(z)
    tail = q1 * np.tanh(q2 * (c - np.minimum(magnitude, c)))
    return np.asarray(np.sign(z) * np.where(magnitude < b, magnitude, tail))


def correlation(z: Array) -> Array:
    """Return the correlation of standardized values, shape (n, p) to (p, p).

    Eigenvalues within the range of uncorrelated noise are replaced by their mean, so that the matrix is not singular if
    there are few nodes.
    """
    import numpy as np

    n, p = z.shape
    with np.errstate(invalid="ignore"):  # a metric that never varies has no correlation
        matrix = np.nan_to_num(np.corrcoef(wrapped(np.nan_to_num(z)), rowvar=False).reshape(p, p), nan=0.0)
    np.fill_diagonal(matrix, 1.0)
    eigen, vectors = np.linalg.eigh(matrix)
    noise = eigen <= (1 + np.sqrt(p / n)) ** 2
    if noise.any():
        eigen = np.where(noise, max(float(eigen[noise].mean()), _LEAST), eigen)
    return scaled((vectors * eigen) @ vectors.T)


def scaled(covariance: Array) -> Array:
    """Return the correlation matrix of a covariance matrix."""
    import numpy as np

    root = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / root[:, None] / root)


def positive(covariance: Array, least: float) -> Array:
    """Return a matrix with all eigenvalues raised to at least `least`."""
    import numpy as np

    eigen, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.maximum(eigen, least)) @ vectors.T)
