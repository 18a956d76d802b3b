"""Infers the centre of paired log-ratios with an interval that is valid however often one looks at it.

An interval for a fixed number of samples covers the truth in 95 % of the experiments at that number. Whoever looks
after every pair, and stops as soon as the interval excludes equality, sees a false difference far more often. A
confidence sequence covers the truth at all times at once in 95 % of the experiments, so one may stop at any time.

The two runs of a pair are in random order. If B changes the cost by a constant factor, the difference between a pair's
log-ratio and the log of that factor therefore has a fair sign, whatever the noise: heavy tails, modes, drift and
dependence between the runs only affect its size. For a factor that is tested, each sign is a bet: a stake that
depends on earlier pairs and on the size of the deviation, never on its sign. No strategy gains on fair signs, and by
Ville's inequality the wealth exceeds 1/p with a probability of at most p at any time. The factors that no bet has
refuted form the interval.

The stake is the hyperbolic tangent of a bounded multiple of the deviation, in units of the spread of the last pairs:
nearly the likelihood ratio of normal noise where deviations are small, and limited where they are outliers. As the
wealth is monotone in the factor, the interval has two ends, found by bisection. Each end is allowed half of the error
probability.

The module is pure: callers pass log-ratios to `add`.

Sources: tests by betting and Ville's inequality: Ramdas, Grünwald, Vovk, Shafer, Statist. Sci. 38 (2023), 576-601;
bets on symmetric signs: de la Peña, Ann. Probab. 27 (1999), 537-564, and Vovk, Wang, "Nonparametric e-tests of
symmetry", New England J. Stat. Data Sci. 2 (2024), 261-270; confidence sequences: Howard, Ramdas, McAuliffe, Sekhon,
Ann. Statist. 49 (2021), 1055-1080; random order as the basis of inference: Fisher, The Design of Experiments (1935).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

CONFIDENCE: Final = 0.95
# Multiples of the deviation over the spread, and their shares of the initial wealth: large ones win early if the effect
# is large, small ones make narrow intervals of many pairs.
STAKES: Final = ((0.25, 0.25), (0.5, 0.5), (1.0, 0.25))
# Largest multiple of the deviation over the spread: one bet multiplies the wealth by at most 1 + tanh(1) = 1.76.
LIMIT: Final = 1.0
FIRST: Final = 0.5  # argument of tanh for every deviation before the spread is known
KNOWN: Final = 3  # pairs after which the spread is known
WINDOW: Final = 20  # pairs that the spread is estimated from, so that it follows a changing machine
_NORMAL: Final = 1.048  # standard deviation of normal values over the median of their absolute differences
_EXACT: Final = 1e-7  # precision of the ends: far below the differences that any number of runs can show


class ConfidenceSequence:
    """The centre of log-ratios so far, with an interval that holds at all times.

    Args:
        points: Centres whose exclusion is tracked pair by pair, at constant cost.
        confidence: Probability that the interval covers the centre at all times.
    """

    def __init__(self, points: Iterable[float] = (0.0,), confidence: float = CONFIDENCE) -> None:
        self.values: list[float] = []  # log-ratios
        self._scales: list[float] = []  # spread before each pair; 0: unknown
        self._needed = math.log(2 / (1 - confidence))  # log of the wealth that excludes a centre
        self._known: tuple[float, float] | None = None  # interval of the first `_known_at` pairs
        self._known_at = 0
        self._tracked = {point: ([0.0] * len(STAKES), [0.0] * len(STAKES)) for point in points}

    def add(self, value: float) -> None:
        """Add the log-ratio of the next pair.

        Raises:
            ValueError: It is not finite.
        """
        if not math.isfinite(value):
            raise ValueError(f"log-ratio: found {value!r}, a finite number is required")
        scale = spread(self.values[-WINDOW:]) if len(self.values) >= KNOWN else 0.0
        self.values.append(value)
        self._scales.append(scale)
        for point, (above, below) in self._tracked.items():
            _bet(above, value - point, scale)
            _bet(below, point - value, scale)

    def above(self, point: float) -> bool:
        """Return whether the interval now lies above one of the tracked points."""
        return _log_wealth(self._tracked[point][0]) >= self._needed

    def below(self, point: float) -> bool:
        """Return whether the interval now lies below one of the tracked points."""
        return _log_wealth(self._tracked[point][1]) >= self._needed

    def interval(self) -> tuple[float, float] | None:
        """Return the interval of the centre; None if there are too few pairs, fewer than eight at 95 %."""
        if self._known_at != len(self.values):
            low, high = self._end(1), self._end(-1)
            self._known = None if low is None or high is None else (low, high)
            self._known_at = len(self.values)
        return self._known

    def _end(self, sign: int) -> float | None:
        """Return the lower end (sign 1) or the upper end (-1); None if there are too few pairs."""
        if not self.values:
            return None
        values = [sign * v for v in self.values]

        def excludes(centre: float) -> bool:
            logs = [0.0] * len(STAKES)
            for value, scale in zip(values, self._scales, strict=True):
                _bet(logs, value - centre, scale)
            return _log_wealth(logs) >= self._needed

        ordered = sorted(values)
        reach = LIMIT / STAKES[0][0] * max(self._scales)  # beyond it, every bet is at its limit
        low, high = ordered[0] - reach - 1e-9, ordered[-1]
        if not excludes(low):
            return None
        while high - low > _EXACT:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if excludes(middle) else (low, middle)
        return sign * low


def spread(values: Sequence[float]) -> float:
    """Return a robust standard deviation of at least two values, in their unit: Shamos' median of differences."""
    differences = [abs(a - b) for n, a in enumerate(values) for b in values[n + 1 :]]
    return _NORMAL * median(differences)


def _bet(logs: list[float], deviation: float, scale: float) -> None:
    """Add the win of each stake on a deviation to the logs of the wealth; positive deviations win.

    A stake of tanh(y) wins e^y/cosh(y) - 1: with a fair sign, nothing on average.
    """
    for n, (multiple, _) in enumerate(STAKES):
        if scale > 0:
            y = max(-LIMIT, min(LIMIT, multiple * deviation / scale))
        else:
            y = math.copysign(FIRST, deviation) if deviation else 0.0
        logs[n] += math.log(2) - math.log1p(math.exp(-2 * y))


def _log_wealth(logs: Sequence[float]) -> float:
    largest = max(logs)
    return largest + math.log(
        math.fsum(share * math.exp(v - largest) for v, (_, share) in zip(logs, STAKES, strict=True))
    )
