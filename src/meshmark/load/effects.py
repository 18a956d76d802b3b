"""What studies conclude from repeated runs: where a curve crosses a level, whether two are alike, what lies between.

Nothing here runs anything or knows of programs: numbers in, numbers out.
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

Vector = NDArray[np.float64]

DRAWS: Final = 2000
_LEAST_SAMPLES: Final = 3  # of each point: from fewer, drawing again and again tells nothing


def rising(y: Sequence[float]) -> Vector:
    """The curve that never falls and is nearest to `y` in the sum of squares.

    Source:
        Isotonic regression by pooling adjacent violators: Ayer, Brunk, Ewing, Reid, Silverman (1955).
    """
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(np.asarray(y, dtype=np.float64)).x, dtype=np.float64)


# ---------------------------------------------------------------- crossing


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where a rising curve passes a level, in units of x.

    `low` and `high` are the ends of the interval of 95 %; an end that lies outside what was measured is None, and both
    are where too few samples were taken. `value` is None where the curve does not pass; `reason` says why.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def _passes(x: Vector, y: Vector, level: float) -> float:
    """-inf: above from the first on; inf: never."""
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
    """Where the medians of `samples`, made to rise, pass `level`: linear between the measured x.

    The interval is the percentile bootstrap's (Efron 1979), each x's samples drawn for themselves; what does not pass
    at all counts as beyond the last x, and what is above at once as before the first.

    Args:
        x: rising, at least 2.
        samples: of each x at least 1; from 3 on there is an interval.

    Raises:
        MeshmarkError: the two do not fit, or x does not rise.
    """
    at = np.asarray(x, dtype=np.float64)
    if len(at) != len(samples) or len(at) < 2 or not (np.diff(at) > 0).all() or any(not s for s in samples):
        raise MeshmarkError("crossing: at least 2 rising x are needed, each with a sample")
    value = _passes(at, rising([statistics.median(s) for s in samples]), level)
    low: float | None = None
    high: float | None = None
    if min(len(s) for s in samples) >= _LEAST_SAMPLES:
        rng = np.random.default_rng(seed)
        medians = np.stack(
            [np.median(rng.choice(np.asarray(s, dtype=np.float64), size=(draws, len(s))), axis=1) for s in samples],
            axis=1,
        )
        found = np.sort([_passes(at, rising(row), level) for row in medians])
        ends = found[int(0.025 * draws)], found[min(draws - 1, math.ceil(0.975 * draws) - 1)]
        low, high = (float(e) if math.isfinite(e) else None for e in ends)
    if value == math.inf:
        return Crossing(None, low, None, f"never passed: up to {at[-1]:g} it stays below {level:g}")
    if value == -math.inf:
        return Crossing(None, None, high, f"passed already at the lowest, {at[0]:g}")
    return Crossing(value, low, high)


# ---------------------------------------------------------------- equivalence


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Whether ratios are 1 but for a margin. `interval`: of the ratio, of 1 - 2 alpha, as goes with the test."""

    ratio: float
    interval: tuple[float, float]
    margin: float
    p: float  # of the worse of the two one-sided tests
    equivalent: bool
    pairs: int


def equivalence(ratios: Sequence[float], margin: float = 0.05, alpha: float = 0.05) -> Equivalence:
    """Two one-sided t tests of the logarithms of paired ratios, against 1 / (1 + margin) and 1 + margin.

    Not to find a difference is no proof that there is none; this asks for the proof.

    Source:
        Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987), 657-680.

    Raises:
        UsageError: the margin is not positive, or there are fewer than 2 ratios.
    """
    from scipy import stats

    if not margin > 0:
        raise UsageError(f"margin: found {margin:g}; allowed is a number above 0")
    if len(ratios) < 2 or min(ratios) <= 0:
        raise UsageError(f"repetitions: found {len(ratios)}; a test of equivalence needs at least 2")
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    n, mean, bound = len(logs), float(logs.mean()), math.log1p(margin)
    error = float(logs.std(ddof=1)) / math.sqrt(n)
    if error == 0:
        p, half = (0.0 if abs(mean) < bound else 1.0), 0.0
    else:
        p = max(float(stats.t.sf((mean + bound) / error, n - 1)), float(stats.t.cdf((mean - bound) / error, n - 1)))
        half = float(stats.t.ppf(1 - alpha, n - 1)) * error
    return Equivalence(math.exp(mean), (math.exp(mean - half), math.exp(mean + half)), margin, p, bool(p < alpha), n)


# ---------------------------------------------------------------- prediction


class Curve:
    """A rising curve through measured points: what lies between them is told without overshoot.

    Source:
        Monotone piecewise cubics: Fritsch and Carlson, SIAM J. Numer. Anal. 17 (1980), 238-246; after `rising`.
        Slowdown as one curve over the neighbour's pressure: Mars et al., Bubble-Up, MICRO 2011.
    """

    def __init__(self, x: Sequence[float], y: Sequence[float], anchor: float | None = 1.0) -> None:
        """
        Args:
            x: rising, not negative.
            y: one an x.
            anchor: what y is at 0; None: nothing is known below the lowest x.

        Raises:
            MeshmarkError: there are fewer than 2 points, or x does not rise.
        """
        from scipy.interpolate import PchipInterpolator

        at, over = list(map(float, x)), list(map(float, y))
        if anchor is not None and (not at or at[0] > 0):
            at, over = [0.0, *at], [anchor, *over]
        if len(at) < 2 or len(at) != len(over) or any(b <= a for a, b in itertools.pairwise(at)) or at[0] < 0:
            raise MeshmarkError("curve: at least 2 points with rising x are needed")
        fitted = rising(over)
        self.low, self.high = at[0], at[-1]
        self._between = PchipInterpolator(np.asarray(at, dtype=np.float64), fitted)

    def __call__(self, x: float) -> float:
        """
        Raises:
            UsageError: x lies outside what was measured: nothing is told about that.
        """
        if not self.low <= x <= self.high * (1 + 1e-9):
            raise UsageError(f"rate: found {x:g}; measured is from {self.low:g} to {self.high:g}")
        return float(self._between(min(x, self.high)))
