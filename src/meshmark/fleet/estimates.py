"""Estimates that a few bad values do not disturb: location, deviation, correlation.

Source:
    Scale: Huber, Ann. Math. Statist. 35 (1964), 73-101. Wrapping: Raymaekers, Rousseeuw, Technometrics 63 (2021),
    184-198. Clipping of eigenvalues: Laloux et al., Phys. Rev. Lett. 83 (1999), 1467.
"""

from __future__ import annotations

from typing import Final

from meshmark.fleet.arrays import Array

_NORMAL: Final = 0.6744897501960817  # the median of |z| of a normal distribution
_WRAP: Final = (1.5, 4.0, 1.540793, 0.8622731)  # b, c, q1, q2 of the wrapping function
_HUBER: Final = (2.0, 0.92054)  # standard deviations at which values are cut, and the variance of a normal one so cut
_STEPS: Final = 3  # towards Huber's scale
_TRIM: Final = 0.3  # share of the values that is left out at each end
_LEAST: Final = 1e-3  # of an eigenvalue of a correlation


def location(values: Array) -> Array:
    """The trimmed mean over axis 1, shape (nodes, k, p) to (nodes, p); NaN where no value is known.

    Of noise with two modes, the median jumps from one to the other, and is no better for more values.
    """
    import numpy as np

    ordered = np.sort(values, axis=1)  # NaN last
    k = values.shape[1]
    if k and not np.isnan(ordered[:, -1]).any():
        cut = int(_cut(np.asarray(k)))
        return np.asarray(ordered[:, cut : k - cut].mean(axis=1))
    known = (~np.isnan(ordered)).sum(axis=1)
    cuts = _cut(known)
    at = np.arange(k)[None, :, None]
    kept = (at >= cuts[:, None]) & (at < (known - cuts)[:, None])
    count = kept.sum(axis=1)
    return np.asarray(np.where(kept, ordered, 0.0).sum(axis=1) / np.where(count, count, np.nan))


def _cut(known: Array) -> Array:
    """How many values are left out at each end; of three or four, the median remains."""
    import numpy as np

    return np.asarray(np.where(known >= 5, _TRIM * known, np.maximum(known - 1, 0) // 2).astype(int))


def nan_median(values: Array, axis: int) -> Array:
    """The median of those values that are known; NaN if none is."""
    import warnings

    import numpy as np

    if not values.size:
        return np.full(np.delete(values.shape, axis), np.nan)
    if not np.isnan(values).any():  # which takes less than half of the time
        return np.asarray(np.median(values, axis=axis))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # "All-NaN slice encountered"
        return np.asarray(np.nanmedian(values, axis=axis))


def deviation(away: Array) -> Array:
    """The standard deviation of each column around 0, of which values far away are no part.

    Huber's proposal 2, which needs 1.1 times as many values of a normal distribution as the ordinary deviation, while
    the median deviation, from which it begins, needs 2.7 times as many.
    """
    import numpy as np

    cut, variance = _HUBER
    found = np.nan_to_num(nan_median(np.abs(away), axis=0)) / _NORMAL
    known = np.maximum((~np.isnan(away)).sum(axis=0), 1)
    for _ in range(_STEPS):
        z = away / np.where(found > 0, found, 1.0)
        found = found * np.sqrt(np.nansum(np.minimum(z**2, cut**2), axis=0) / known / variance)
    return np.asarray(found)


def wrapped(z: Array) -> Array:
    """Standardized values, of which those far away are brought back to the centre, smoothly."""
    import numpy as np

    b, c, q1, q2 = _WRAP
    away = np.abs(z)
    middle = q1 * np.tanh(q2 * (c - np.minimum(away, c)))
    return np.asarray(np.sign(z) * np.where(away < b, away, middle))


def correlation(z: Array) -> Array:
    """The correlation of standardized values, shape (n, p) to (p, p).

    Eigenvalues within those of uncorrelated noise are replaced by their mean, so that few nodes do not make it
    singular.
    """
    import numpy as np

    n, p = z.shape
    with np.errstate(invalid="ignore"):  # a metric that never varies has no correlation
        found = np.nan_to_num(np.corrcoef(wrapped(np.nan_to_num(z)), rowvar=False).reshape(p, p), nan=0.0)
    np.fill_diagonal(found, 1.0)
    eigen, vectors = np.linalg.eigh(found)
    noise = eigen <= (1 + np.sqrt(p / n)) ** 2
    if noise.any():
        eigen = np.where(noise, max(float(eigen[noise].mean()), _LEAST), eigen)
    return scaled((vectors * eigen) @ vectors.T)


def scaled(covariance: Array) -> Array:
    """The correlation of a covariance."""
    import numpy as np

    root = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / root[:, None] / root)


def positive(covariance: Array, least: float) -> Array:
    """A matrix without negative eigenvalues: they are at least `least`."""
    import numpy as np

    eigen, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.maximum(eigen, least)) @ vectors.T)
