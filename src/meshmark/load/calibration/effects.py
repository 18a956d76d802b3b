"""Statistics of studies: where a curve crosses a level, equivalence of paired runs, and interpolation.

The functions are pure: they take and return numbers, and run nothing.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError, UsageError
from meshmark.statistics.verdicts import Word, alike, judge

Vector = NDArray[np.float64]

DRAWS: Final = 2000
_MIN_SAMPLES: Final = 3  # per point; a bootstrap of fewer samples is meaningless


def rising(y: Sequence[float]) -> Vector:
    """Return the non-decreasing curve nearest to `y` in least squares.

    Source:
        Isotonic regression by pooling adjacent violators: Ayer, Brunk, Ewing, Reid, Silverman (1955).
    """
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(np.asarray(y, dtype=np.float64)).x, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Crossing:
    """The position in units of x where a rising curve crosses a level.

    `low` and `high` are the ends of the 95 % interval; an end outside the measured range is None, and both are None if
    there are too few samples. `value` is None if the curve does not cross the level; `reason` says why.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def _crossing_x(x: Vector, y: Vector, level: float) -> float:
    """Return the crossing; -inf if y starts at or above the level, inf if y never reaches it."""
    if y[0] >= level:
        return -math.inf
    above = np.flatnonzero(y >= level)
    if not len(above):
        return math.inf
    i = int(above[0])
    return float(x[i - 1] + (x[i] - x[i - 1]) * (level - y[i - 1]) / (y[i] - y[i - 1]))


def crossing(
    x: Sequence[float], samples: Sequence[Sequence[float]], level: float, *, seed: int = 0, draws: int = DRAWS
) -> Crossing:
    """Return where the isotonic fit of the medians of `samples` crosses `level`, linear between the measured x.

    The interval comes from the percentile bootstrap (Efron 1979), which resamples each x separately. A resample that
    never crosses counts as beyond the last x; a resample that starts above the level counts as before the first x.

    Args:
        x: increasing, at least 2 values.
        samples: at least 1 per x; an interval needs at least 3 per x.
        level: value that the curve crosses.
        seed: seed of the resampling.
        draws: number of resamples.

    Raises:
        MeshmarkError: the lengths differ, a point has no sample, or x does not increase.
    """
    positions = np.asarray(x, dtype=np.float64)
    if (
        len(positions) != len(samples)
        or len(positions) < 2
        or not (np.diff(positions) > 0).all()
        or any(not s for s in samples)
    ):
        raise MeshmarkError("crossing: needs at least 2 increasing x, each with a sample")
    value = _crossing_x(positions, rising([statistics.median(s) for s in samples]), level)
    low: float | None = None
    high: float | None = None
    if min(len(s) for s in samples) >= _MIN_SAMPLES:
        rng = np.random.default_rng(seed)
        medians = np.stack(
            [np.median(rng.choice(np.asarray(s, dtype=np.float64), size=(draws, len(s))), axis=1) for s in samples],
            axis=1,
        )
        crossings = np.sort([_crossing_x(positions, rising(row), level) for row in medians])
        ends = crossings[int(0.025 * draws)], crossings[min(draws - 1, math.ceil(0.975 * draws) - 1)]
        low, high = (float(e) if math.isfinite(e) else None for e in ends)
    if value == math.inf:
        return Crossing(None, low, None, f"not crossed: below {level:g} up to {positions[-1]:g}")
    if value == -math.inf:
        return Crossing(None, None, high, f"already crossed at the lowest, {positions[0]:g}")
    return Crossing(value, low, high)


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Equivalence of ratios to 1 within a margin. `interval`: 1 - 2 alpha confidence interval of the ratio."""

    ratio: float
    interval: tuple[float, float]
    margin: float
    p: float  # the larger p of the two one-sided tests
    pairs: int

    @property
    def word(self) -> Word:
        """Return the verdict; `equal` means equivalent, which is the same as p < alpha."""
        return judge(self.interval, alike(self.margin))


def equivalence(ratios: Sequence[float], margin: float = 0.05, alpha: float = 0.05) -> Equivalence:
    """Run two one-sided t tests of the logarithms of paired ratios, against 1 / (1 + margin) and 1 + margin.

    A difference that is not significant does not show equivalence; this test does.

    Source:
        Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987), 657-680.

    Raises:
        UsageError: the margin is not positive, or there are fewer than 2 ratios.
    """
    from scipy import stats

    if not margin > 0:
        raise UsageError(f"margin: found {margin:g}; allowed: a number above 0")
    if len(ratios) < 2 or min(ratios) <= 0:
        raise UsageError(f"repetitions: found {len(ratios)}; an equivalence test needs at least 2")
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    n, mean, bound = len(logs), float(logs.mean()), math.log1p(margin)
    standard_error = float(logs.std(ddof=1)) / math.sqrt(n)
    if standard_error == 0:
        p, half_width = (0.0 if abs(mean) < bound else 1.0), 0.0
    else:
        p = max(
            float(stats.t.sf((mean + bound) / standard_error, n - 1)),
            float(stats.t.cdf((mean - bound) / standard_error, n - 1)),
        )
        half_width = float(stats.t.ppf(1 - alpha, n - 1)) * standard_error
    return Equivalence(math.exp(mean), (math.exp(mean - half_width), math.exp(mean + half_width)), margin, p, n)


class Curve:
    """A rising curve through measured points, interpolated without overshoot.

    Source:
        Monotone piecewise cubics: Fritsch and Carlson, SIAM J. Numer. Anal. 17 (1980), 238-246; after `rising`.
        Slowdown as one curve over the neighbour's pressure: Mars et al., Bubble-Up, MICRO 2011.
    """

    def __init__(self, x: Sequence[float], y: Sequence[float], anchor: float | None = 1.0) -> None:
        """Fit the curve to measured points.

        Args:
            x: increasing, not negative.
            y: one value per x.
            anchor: y at 0; None: unknown below the lowest x.

        Raises:
            MeshmarkError: there are fewer than 2 points, or x does not increase.
        """
        from scipy.interpolate import PchipInterpolator

        positions, values = list(map(float, x)), list(map(float, y))
        if anchor is not None and (not positions or positions[0] > 0):
            positions, values = [0.0, *positions], [anchor, *values]
        if (
            len(positions) < 2
            or len(positions) != len(values)
            or any(b <= a for a, b in itertools.pairwise(positions))
            or positions[0] < 0
        ):
            raise MeshmarkError("curve: needs at least 2 points with increasing x")
        fitted = rising(values)
        self.low, self.high = positions[0], positions[-1]
        self._between = PchipInterpolator(np.asarray(positions, dtype=np.float64), fitted)

    def __call__(self, x: float) -> float:
        """Return y at x.

        Raises:
            UsageError: x lies outside the measured range.
        """
        if not self.low <= x <= self.high * (1 + 1e-9):
            raise UsageError(f"rate: found {x:g}; the measured range is {self.low:g} to {self.high:g}")
        return float(self._between(min(x, self.high)))
