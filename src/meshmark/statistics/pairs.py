"""Compares two configurations by their runs within rounds: their values, and the spread of the values.

Sources: centre of the log-ratios within rounds: Hodges and Lehmann (1963), by `values.shift`; interval of the ratio of
two mean absolute deviations from the median: Bonett, Seier, Statist. Probab. Lett. 63 (2003), 245-254.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final, Literal

from meshmark.statistics.scaling import confidence_of_each
from meshmark.statistics.shift import shift
from meshmark.statistics.verdicts import Interval, Word, alike, is_speed, judge, spoken, times_text

_USUAL_ROUNDS: Final = 7
_SPREAD_VALUES: Final = 5  # the smallest number of values that have a spread
_LIGHTEST: Final = 1 / 3  # value of a uniform distribution; the tails of a few values can seem lighter by chance


@dataclass(frozen=True, slots=True)
class MeritUnit:
    """The unit of a figure of merit, and whether lower or higher values are better."""

    better: Literal["lower", "higher"]
    unit: str


@dataclass(frozen=True, slots=True)
class ConfigurationPair:
    """The comparison of one configuration with another.

    Attributes:
        ratio: Ratio of their values; above 1 the first is larger. None if no round has both.
        interval: Interval of the ratio at the requested confidence; None with too few rounds.
        spread: Ratio of their relative spreads; None with too few rounds or without spread.
        spread_interval: Interval of `spread` at the same confidence; None if `spread` is None.
        rounds: Number of rounds in which both ran.
        needed: Number of rounds that an interval needs.
    """

    of: str
    to: str
    ratio: float | None
    interval: Interval | None
    spread: float | None
    spread_interval: Interval | None
    rounds: int
    needed: int
    word: Word
    best: str

    def text(self, merit: MeritUnit) -> str:
        """Return the verdict about the first configuration in words."""
        if self.interval is None or self.ratio is None:
            return f"too few rounds: {self.rounds}, at least {self.needed} are needed"
        low, high = self.interval
        if self.word in ("equal", "inconclusive"):
            change = f"{100 * (self.ratio - 1):+.1f} % ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %)"
            return f"{'equal within the margin' if self.word == 'equal' else self.word}: {change}"
        speed, bounds = self.ratio, (low, high)
        if merit.better == "lower":
            speed, bounds = 1 / speed, (1 / high, 1 / low)
        text = times_text(speed, bounds, quality="fast" if is_speed(merit.unit) else "good")
        return f"{spoken(self.word, merit.better, merit.unit)}: {text}"


def compare(
    of: str,
    to: str,
    values: tuple[Mapping[int, float], Mapping[int, float]],
    merit: MeritUnit,
    margin: float,
    confidence: float = 0.95,
) -> ConfigurationPair:
    """Compare the values of two configurations, by round.

    Args:
        of: Label of the first configuration, whose values are the numerators of the ratios.
        to: Label of the second.
        values: Their values by round; only rounds in which both have a value count.
        merit: Unit of the values, and which direction is better.
        margin: Smallest relative difference that matters.
        confidence: Confidence of the interval of each ratio, and of each comparison if there are several.
    """
    rounds = sorted(values[0].keys() & values[1].keys())
    logs = [math.log(values[0][r] / values[1][r]) for r in rounds]
    estimate, log_interval = shift(logs, confidence) if logs else (None, None)
    value = None if estimate is None else math.exp(estimate)
    interval = None if log_interval is None else (math.exp(log_interval[0]), math.exp(log_interval[1]))
    word = judge(interval, alike(margin))
    spread, spread_interval = spreads([values[0][r] for r in rounds], [values[1][r] for r in rounds], confidence)
    best = "" if word not in ("lower", "higher") else of if word == merit.better else to
    min_rounds = rounds_needed(confidence)
    return ConfigurationPair(of, to, value, interval, spread, spread_interval, len(rounds), min_rounds, word, best)


def rounds_needed(confidence: float) -> int:
    """Return the smallest number of rounds whose interval has this confidence."""
    return math.ceil(1 - math.log2(1 - confidence) - 1e-9)


def usual_rounds(configurations: int) -> int:
    """Return a number of rounds that suffices to compare each configuration with the first."""
    return max(_USUAL_ROUNDS, rounds_needed(confidence_of_each(configurations - 1)))


def relative_deviation(values: Sequence[float]) -> float | None:
    """Return the mean absolute deviation from the median, as a share of the median, corrected for small samples.

    It is None with fewer than 5 values or a median that is not positive.
    """
    if len(values) < _SPREAD_VALUES or (middle := median(values)) <= 0:
        return None
    return math.fsum(abs(v / middle - 1) for v in values) / (len(values) - 1)


def spreads(
    one: Sequence[float], other: Sequence[float], confidence: float = 0.95
) -> tuple[float | None, Interval | None]:
    """Return the ratio of the relative mean absolute deviations from the median, and its interval.

    The interval uses a quantile of Student's t, since a normal quantile gives too narrow intervals for few values. Both
    are None with fewer than 5 values, a median that is not positive, or no deviation.
    """
    from scipy.special import stdtrit

    if min(len(one), len(other)) < _SPREAD_VALUES:
        return None, None
    logs, variance = [], 0.0
    for absolute in (one, other):
        deviation = relative_deviation(absolute)
        if not deviation:
            return None, None
        middle = median(absolute)
        n, values = len(absolute), [v / middle for v in absolute]  # relative values, independent of the unit
        mean = fmean(values)
        shape = math.fsum((v - mean) ** 2 for v in values) / (n - 1) / deviation**2
        skew = (mean - 1) / deviation
        variance += max(_LIGHTEST, shape + skew**2 - 1) / n
        logs.append(math.log(deviation))
    half_width = float(stdtrit(min(len(one), len(other)) - 1, (1 + confidence) / 2)) * math.sqrt(variance)
    centre = logs[0] - logs[1]
    return math.exp(centre), (math.exp(centre - half_width), math.exp(centre + half_width))
