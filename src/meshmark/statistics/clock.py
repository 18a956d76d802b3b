"""Determines how a rate follows the core clock: in proportion, less than that, or not at all from some clock on.

The rate is modelled by a power of the clock, rate ∝ clock^e, so that e = 1 is a straight line through the origin and
e = 0 a rate that does not depend on the clock. The exponent of one round is the slope of a least-squares line through
the logarithms (NumPy); the exponent of a sweep is the Hodges-Lehmann estimate over its rounds, with the exact 95 %
interval of Wilcoxon's signed ranks (`shift`).

Rule, with 0.1 as the largest deviation of an exponent that does not matter:

1. A plateau begins at the lowest clock from which the exponents to all higher clocks are shown to be below 0.1. Clocks
   are tested from the highest down, up to the first that fails, so that the probability of a false plateau is 5 %.
2. Otherwise the rate is proportional to the clock if the interval of the exponent is within 0.9 to 1.1, and the
   intervals between neighbouring clocks reach into this range.
3. Otherwise it rises less or more than in proportion if the interval is outside of this range; it is uneven if only the
   interval between two neighbouring clocks is.
4. Otherwise it is inconclusive, and so are fewer than 3 clocks or fewer than 6 rounds.

Rates that a model computes have no interval: the rule then uses the exponents alone.

Sources: rates of Linpack and SPEC CPU over the clock, where a plateau shows a limit by memory: Pase, Performance of the
IBM eServer 325 (2004), figures 11 to 13; equivalence by intervals: Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987),
657-680; tests in a fixed order: Maurer, Hothorn, Lehmacher (1995); intervals: Hodges, Lehmann (1963).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from meshmark.statistics.shift import shift
from meshmark.statistics.verdicts import Interval
from meshmark.values.units import counted

TOLERANCE: Final = 0.1  # largest deviation of an exponent that does not matter
MIN_CLOCKS: Final = 3
MIN_ROUNDS: Final = 6

ClockWord = Literal["plateau", "proportional", "less", "more", "uneven", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Exponent:
    """Exponent of the rate over the clock, from one clock to another. `interval`: 95 % interval; None if unknown."""

    from_hz: float
    to_hz: float
    value: float
    interval: Interval | None

    @property
    def ends(self) -> Interval:
        """Return the interval; for a computed exponent, its value twice."""
        return self.interval or (self.value, self.value)


@dataclass(frozen=True, slots=True)
class ClockEffect:
    """How a rate follows the clock.

    Attributes:
        exponent: Exponent over all clocks; None if there is only one clock.
        neighbours: Exponents between neighbouring clocks, ascending.
        plateau_hz: The clock from which on the rate no longer rises; None if there is no plateau.
        computed: Whether a model computed the rates, so that exponents have no interval.
        text: The effect in one sentence.
    """

    word: ClockWord
    exponent: Exponent | None
    neighbours: tuple[Exponent, ...]
    plateau_hz: float | None
    computed: bool
    text: str


def clock_effect(
    rates: Mapping[float, Mapping[int, float]], *, computed: bool = False, left_out: str = ""
) -> ClockEffect:
    """Judge the rates by the rule of this module.

    Args:
        rates: Rates above 0, in any unit, by clock in Hz and round; a model has one round.
        computed: Whether a model computed the rates.
        left_out: What was left out and why, for the end of the sentence.
    """
    clocks = sorted(rates)
    rounds = sorted(set.intersection(*(set(by_round) for by_round in rates.values()))) if rates else []
    prefix, suffix = ("computed: " if computed else ""), (f"; {left_out}" if left_out else "")
    if len(clocks) < 2 or not rounds:
        reason = "no round has all clocks" if len(clocks) > 1 else f"{counted(len(clocks), 'clock')} is known"
        text = f"{prefix}inconclusive how the rate follows the clock: {reason}, at least {MIN_CLOCKS} clocks are needed"
        return ClockEffect("inconclusive", None, (), None, computed, text + suffix)

    def over(some: Sequence[float]) -> Exponent:
        return _exponent(some, [[rates[c][r] for r in rounds] for c in some], computed)

    whole = over(clocks)
    neighbours = tuple(over(pair) for pair in pairwise(clocks))
    too_few = ""
    if len(clocks) < MIN_CLOCKS:
        too_few = f"{counted(len(clocks), 'clock')}, at least {MIN_CLOCKS} are needed"
    elif whole.interval is None and not computed:
        too_few = f"{counted(len(rounds), 'common round')}, at least {MIN_ROUNDS} are needed"
    plateau = None
    if not too_few:
        for i in range(len(clocks) - 2, -1, -1):
            if any(over((clocks[i], c)).ends[1] >= TOLERANCE for c in clocks[i + 1 :]):
                break
            plateau = clocks[i]
    word, sentence = _judged(whole, neighbours, plateau, too_few)
    return ClockEffect(word, whole, neighbours, plateau, computed, prefix + sentence + suffix)


def _exponent(clocks: Sequence[float], rates: Sequence[Sequence[float]], computed: bool) -> Exponent:
    """Return the exponent over these clocks, of rates by clock and round."""
    import numpy as np

    slopes = np.polyfit(np.log(np.array(clocks) / clocks[0]), np.log(np.array(rates)), 1)[0]
    centre, interval = shift([float(s) for s in slopes])
    return Exponent(clocks[0], clocks[-1], centre, None if computed else interval)


def _judged(
    whole: Exponent, neighbours: Sequence[Exponent], plateau: float | None, too_few: str
) -> tuple[ClockWord, str]:
    """Return the verdict and its sentence."""
    low, high = 1 - TOLERANCE, 1 + TOLERANCE
    whole_range = f"from {_clock(whole.from_hz)} to {_clock(whole.to_hz)}"
    exponents = f"exponent {_text(whole)} {whole_range}"
    if too_few:
        return "inconclusive", f"inconclusive whether the rate is proportional to the clock: {too_few}; {exponents}"
    neighbour_texts = ", ".join(_text(e) for e in neighbours)
    if plateau is not None:
        lower = [e for e in neighbours if e.to_hz <= plateau]
        exponent = f"; below it, exponents between neighbouring clocks: {', '.join(map(_text, lower))}" if lower else ""
        return "plateau", (
            f"the rate no longer rises with the clock from {_clock(plateau)} on (plateau), so something other than "
            f"the core clock limits it there, such as memory{exponent}; {exponents}"
        )
    outlier = next((e for e in neighbours if e.ends[1] < low or e.ends[0] > high), None)
    if whole.ends[0] >= low and whole.ends[1] <= high and outlier is None:
        return "proportional", f"the rate is proportional to the clock: {exponents}, within {low:g} to {high:g}"
    comparison = f"than in proportion to the clock: {exponents}, between neighbouring clocks {neighbour_texts}"
    if whole.ends[1] < low:
        return "less", f"the rate rises less {comparison}; no plateau is shown"
    if whole.ends[0] > high:
        return "more", f"the rate rises more {comparison}"
    if outlier is not None:
        span = f"from {_clock(outlier.from_hz)} to {_clock(outlier.to_hz)}"
        return "uneven", f"the rate is not proportional to the clock: exponent {_text(outlier)} {span}; {exponents}"
    return "inconclusive", (
        f"inconclusive whether the rate is proportional to the clock: {exponents}, an interval that is neither within "
        f"nor outside of {low:g} to {high:g}"
    )


def _clock(hz: float) -> str:
    return f"{hz / 1e9:.4g} GHz"


def _text(exponent: Exponent) -> str:
    """Return an exponent such as `0.98 (95 %: 0.97 to 0.99)`, or its value alone if it has no interval."""
    value = _number(exponent.value)
    if exponent.interval is None:
        return value
    return f"{value} (95 %: {_number(exponent.interval[0])} to {_number(exponent.interval[1])})"


def _number(value: float) -> str:
    text = f"{value:.2f}"
    return text.removeprefix("-") if float(text) == 0 else text
