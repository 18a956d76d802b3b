"""Computes geometric means of ratios, for example of programs, with the interval that the spread of runs implies.

The ratio of a program is the median of the ratios of its runs. The logarithm of the mean is a sum of independent
terms, so their variances add up. The variance of a median is assumed to be pi/2 times the variance of an arithmetic
mean: with normal noise this is exact for many runs, and 17 % too large for three. Student's quantile has the degrees
of freedom after Welch and Satterthwaite. The interval states how well the same machine repeats the mean; it does not
state how well these programs represent others.

Sources: geometric means of ratios do not depend on the reference: Fleming, Wallace, Comm. ACM 29 (1986), 218-221;
degrees of freedom: Satterthwaite, Biometrics Bull. 2 (1946), 110-114; variance of the median: Kenney, Keeping,
Mathematics of Statistics I (1962), 211.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, variance
from typing import Final

from meshmark.statistics.verdicts import Interval

MIN_RUNS: Final = 3
CONFIDENCE: Final = 0.95
_OF_MEDIAN: Final = math.pi / 2


@dataclass(frozen=True, slots=True)
class VarianceTerm:
    """The contribution of the runs of one program: variance of the logarithm, and its degrees of freedom."""

    variance: float
    freedom: int


@dataclass(frozen=True, slots=True)
class GeometricMean:
    """A geometric mean of ratios, or the ratio of two.

    Attributes:
        terms: One per program; None if a program has a single run, so that its spread is not known.
    """

    value: float
    terms: tuple[VarianceTerm, ...] | None

    @property
    def interval(self) -> Interval | None:
        """Return the 95 % interval; None if the spread of a program is not known."""
        if self.terms is None:
            return None
        total = math.fsum(t.variance for t in self.terms)
        if total <= 0:
            return self.value, self.value
        from scipy.special import stdtrit

        freedom = 1 / math.fsum((t.variance / total) ** 2 / t.freedom for t in self.terms)
        factor = math.exp(float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(total))
        return self.value / factor, self.value * factor


def mean_of(ratios: Mapping[str, Sequence[float]]) -> GeometricMean:
    """Return the geometric mean of the medians of at least one program.

    Args:
        ratios: Ratios of the runs, above 0, by program.
    """
    count = len(ratios)
    logs = [math.log(median(runs)) for runs in ratios.values()]
    has_spread = all(len(runs) > 1 for runs in ratios.values())
    terms = tuple(_term(runs, count) for runs in ratios.values()) if has_spread else None
    return GeometricMean(math.exp(math.fsum(logs) / count), terms)


def _term(runs: Sequence[float], count: int) -> VarianceTerm:
    spread = variance([math.log(run) for run in runs])
    return VarianceTerm(_OF_MEDIAN * spread / len(runs) / count**2, len(runs) - 1)


def over(one: GeometricMean, other: GeometricMean) -> GeometricMean:
    """Return the ratio of the first mean to the second, which was measured independently."""
    terms = None if one.terms is None or other.terms is None else one.terms + other.terms
    return GeometricMean(one.value / other.value, terms)


def ratios_to(runs: Sequence[float], reference: float, better: str) -> list[float]:
    """Return the ratios of runs to a reference, above 1 where a run is better.

    Args:
        runs: Times or rates above 0.
        reference: Time or rate above 0.
        better: `lower` or `higher`.
    """
    return [reference / run if better == "lower" else run / reference for run in runs]


def rounded(values: Sequence[float], decimals: int) -> Interval:
    """Return the bounds between which the geometric mean of rounded values lies.

    Args:
        values: Values as printed, above 0.
        decimals: Number of decimals of each value.
    """
    half = 0.5 * 10.0**-decimals
    low, high = ([v + sign * half for v in values] for sign in (-1, 1))
    return (_mean(low) if min(low) > 0 else 0.0), _mean(high)


def _mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
