"""Decides which of several measurements is better.

This is the only place that declares a winner, equality or an inconclusive result. Every comparison supplies an estimate
with a 95 % interval of its own method, and the smallest difference that matters. The rule is the same for all: a
difference counts if the interval excludes equality and reaches beyond what matters; two are equal only if the whole
interval lies within what does not matter; everything else is inconclusive. Equality is thus shown, never assumed from
missing evidence.

Source: intervals in place of two one-sided tests: Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987), 657-680.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, Literal

from meshmark.values.units import ratio_text

Word = Literal["lower", "higher", "equal", "inconclusive"]
Spoken = Literal["faster", "slower", "better", "worse", "higher", "lower", "equal", "inconclusive"]
Interval = tuple[float, float]

MARGIN: Final = 0.02  # smallest relative difference that matters by default
WIDE: Final = 0.1  # half the width of an interval, divided by the value; above it, a measurement is not judged


def judge(interval: Interval | None, alike: Interval, equal: float = 1.0) -> Word:
    """Judge a ratio or a difference by its interval.

    Args:
        interval: 95 % interval; None if there are too few samples.
        alike: The range that does not matter, which includes `equal`; for a ratio see the function `alike`.
        equal: 1 for a ratio, 0 for a difference.
    """
    if interval is None or not all(map(math.isfinite, interval)):
        return "inconclusive"
    low, high = interval
    if alike[0] <= low and high <= alike[1]:
        return "equal"
    return "higher" if low > equal else "lower" if high < equal else "inconclusive"


def is_speed(unit: str) -> bool:
    """Return whether values of this unit are times, rates or frequencies."""
    return unit in {"s", "Hz", "cycles"} or unit.endswith(("/s", "/cycle"))


def spoken(word: Word, better: Literal["lower", "higher", "none"], unit: str) -> Spoken:
    """Return the word that every view uses for a verdict about a value of this unit.

    Times, rates and frequencies are faster or slower, other values with a direction better or worse.
    """
    if word in ("equal", "inconclusive") or better == "none":
        return word
    if is_speed(unit):
        return "faster" if word == better else "slower"
    return "better" if word == better else "worse"


def alike(margin: float) -> Interval:
    """Return the range of ratios that does not matter, for the smallest relative difference that does."""
    return 1 / (1 + margin), 1 + margin


@dataclass(frozen=True, slots=True)
class MedianEstimate:
    """A median with the bounds of its 95 % interval, in any unit. Only medians above 0 are judged.

    Attributes:
        bounds: Bounds of the interval; None if there are too few samples.
        doubt: Why the value cannot be judged, such as its flags; empty if it can.
    """

    value: float
    bounds: Interval | None
    doubt: str = ""

    @property
    def excluded(self) -> str:
        """Return why the value is not judged: a doubt, or too wide an interval; empty if it is judged."""
        if self.doubt:
            return self.doubt
        if self.bounds is None or not all(map(math.isfinite, self.bounds)):
            return "too few samples"
        if self.value <= 0:
            return "not above 0"
        half_width = (self.bounds[1] - self.bounds[0]) / 2 / self.value
        return f"±{100 * half_width:.0f} %" if half_width > WIDE else ""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two medians. `interval` covers at least 95 %; it is None if a median has too few samples."""

    value: float
    interval: Interval | None
    word: Word  # "inconclusive" if one of them is in doubt or too wide

    @property
    def differs(self) -> bool:
        """Return whether the medians differ: the interval excludes 1 and reaches beyond the margin."""
        return self.word in {"lower", "higher"}


def ratio(one: MedianEstimate, other: MedianEstimate, margin: float = MARGIN) -> Ratio:
    """Return the ratio of the first median to the second.

    Its bounds are the ratios of opposite ends of both intervals, so the interval is conservative: with two 95 %
    intervals of independent medians it covers about 99 %.
    """
    interval = None
    if one.bounds is not None and other.bounds is not None and min(one.bounds[0], other.bounds[0]) > 0:
        interval = one.bounds[0] / other.bounds[1], one.bounds[1] / other.bounds[0]
    usable = not one.excluded and not other.excluded
    value = one.value / other.value if other.value else math.nan
    return Ratio(value, interval, judge(interval if usable else None, alike(margin)))


def times_text(speed: float, interval: Interval | None, other: str = "", quality: str = "fast") -> str:
    """Return how many times as fast one is as another: `3.90 × as fast as the baseline (95 %: 3.10 to 4.40)`.

    Args:
        speed: Speed of the one over the speed of the other, above 0.
        interval: 95 % interval of this ratio; None if it is unknown.
        other: Name of the other; "" if the surrounding sentence names it.
        quality: `fast` for times and rates, `good` for other figures.
    """
    bounds = f" (95 %: {ratio_text(interval[0])} to {ratio_text(interval[1])})" if interval else ""
    return f"{ratio_text(speed)} × as {quality}{f' as {other}' if other else ''}{bounds}"


@dataclass(frozen=True, slots=True)
class MedianRanking:
    """The result of comparing several medians.

    Attributes:
        word: `winner`: the only name in `best` is better than each of the others; `equal`: the names in `best` are
            shown to be alike, and better than the others; `inconclusive`: any name in `best` may be the best.
        best: Names of which any may be the best, in the order of their medians; names that were not judged come last.
        excluded: Names that were not judged, with the reason. No winner or equality is declared if their possible
            values could contradict it.
    """

    word: Literal["winner", "equal", "inconclusive"]
    best: tuple[str, ...]
    excluded: Mapping[str, str] = field(default_factory=dict)


def rank(
    measured: Mapping[str, MedianEstimate], margin: float = MARGIN, better: Literal["lower", "higher"] = "lower"
) -> MedianRanking:
    """Compare several medians of one quantity."""
    excluded = {name: m.excluded for name, m in measured.items() if m.excluded}
    order = sorted(
        (n for n in measured if n not in excluded), key=lambda n: measured[n].value, reverse=better == "higher"
    )
    if not order:
        return MedianRanking("inconclusive", tuple(excluded), excluded)
    first = measured[order[0]]
    worse = "higher" if better == "lower" else "lower"
    best = [n for n in order if n == order[0] or ratio(measured[n], first, margin).word != worse]
    possible = [n for n in excluded if _may_reach(measured[n], first, better)]
    if possible or len(order) == 1:
        return MedianRanking("inconclusive", (*best, *possible), excluded)
    equal = all(ratio(measured[a], measured[b], margin).word == "equal" for a, b in combinations(best, 2))
    return MedianRanking("winner" if len(best) == 1 else "equal" if equal else "inconclusive", tuple(best), excluded)


def _may_reach(one: MedianEstimate, first: MedianEstimate, better: Literal["lower", "higher"]) -> bool:
    if one.bounds is None or first.bounds is None:
        return True
    return one.bounds[0] <= first.bounds[1] if better == "lower" else one.bounds[1] >= first.bounds[0]
