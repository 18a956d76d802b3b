"""Judges the effect that a test found against what a claim states, by the rule of `values.verdicts`.

The effect is compared with the published value: a claim of a ratio of 1.5 holds if the measured ratio over 1.5 is a tie
within the claim's margin, a claim that something grows if the ratio is higher. What the interval does not decide is
inconclusive, for claims and counter-evidence alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from meshmark.store.record import Metric, Record, Source
from meshmark.store.run import Absence
from meshmark.validation.claims.catalogue import Claim
from meshmark.values.verdicts import Interval, Measured, alike, judge

Word = Literal["holds", "does not hold", "inconclusive", "indicative only", "cannot be tested here"]
WORDS: Final[tuple[Word, ...]] = (
    "holds",
    "does not hold",
    "inconclusive",
    "indicative only",
    "cannot be tested here",
)
DECIDED: Final[frozenset[Word]] = frozenset({"holds", "does not hold"})
Basis = Literal["measured", "measured on a guest", "modelled", "computed", "printed"]
BASIS_TEXT: Final[Mapping[Basis, str]] = {
    "measured": "measured",
    "measured on a guest": "measured on a guest",
    "modelled": "by a model",
    "computed": "by computation",
    "printed": "by computation from printed numbers, no test",
}
_SOURCE: Final[Mapping[Basis, Source]] = {
    "measured": "host",
    "measured on a guest": "host",
    "modelled": "model",
    "computed": "paper",
    "printed": "paper",
}
INSTRUMENT: Final = "claims"
EFFECT: Final = Metric("claim_effect", "1", "none", "effect of a claim, a ratio unless its text says otherwise")


@dataclass(frozen=True, slots=True)
class Effect:
    """What a test found.

    Attributes:
        what: `random latency, 8 processes over 1`.
        value: Not negative; a ratio, or in the unit that `what` names.
        interval: At least 95 %; None if there are too few samples. An exact value is its own interval.
        doubt: Why it cannot be judged; "" if it can.
        rounded: Whether the value follows from printed numbers, and the interval is the range that their rounding
            allows. Then no part of the interval is more likely than another.
    """

    what: str
    value: float
    interval: Interval | None
    doubt: str = ""
    rounded: bool = False


def exact(what: str, value: float) -> Effect:
    """An effect without uncertainty: of a computation, or of a closed form."""
    return Effect(what, value, (value, value))


def product(what: str, terms: Sequence[tuple[Measured, float]], factor: float = 1.0) -> Effect:
    """The product of measured values, each to the power of 1 or -1, with the bounds of all intervals at their ends.

    For two terms it is `values.verdicts.ratio`. A term in doubt or too wide leaves the effect in doubt.
    """
    value, low, high = factor, factor, factor
    doubts = []
    for m, power in terms:
        if m.value <= 0:
            return Effect(what, 0.0, None, "a value is not above 0")
        value *= m.value**power
        if m.excluded:
            doubts.append(m.excluded)
        bounds = m.bounds if m.bounds is not None and min(m.bounds) > 0 else (math.nan, math.nan)
        low *= min(bounds[0] ** power, bounds[1] ** power)
        high *= max(bounds[0] ** power, bounds[1] ** power)
    interval = (low, high) if math.isfinite(low) and math.isfinite(high) else None
    return Effect(what, value, interval, "; ".join(dict.fromkeys(doubts)))


def word_of(claim: Claim, effect: Effect) -> tuple[Word, str]:
    """Whether the effect is what the claim states, and why this cannot be told; "" if it can."""
    if effect.doubt or effect.interval is None:
        return "inconclusive", effect.doubt or "too few samples"
    holds = _holds(claim, effect.interval)
    if effect.rounded and claim.relation in _RANGES and _holds(claim, (effect.value, effect.value)):
        holds = True  # the numbers agree as they are printed
    if holds is None:
        low, high = effect.interval
        source = "rounding allows" if effect.rounded else "the interval"
        return "inconclusive", f"{source} {low:.3g} to {high:.3g}" + ("" if effect.rounded else " allows both")
    return ("holds" if holds else "does not hold"), ""


_RANGES: Final = frozenset({"equal", "within", "none"})  # relations that state a range around a value


def _holds(claim: Claim, interval: Interval) -> bool | None:
    """Whether the effect is what the claim states; None if the interval allows both.

    Where a range of values is stated, the claim holds if the interval lies within the range, and does not hold if the
    interval lies outside. Whether something is higher or lower follows the rule of `judge`.
    """
    low, high = alike(claim.margin)
    if claim.relation == "none":
        return _inside(interval, (-claim.margin, claim.margin))
    if claim.relation == "within":
        return _inside(interval, (claim.range[0] * low, claim.range[1] * high))
    if claim.relation == "equal":
        as_printed = _inside((interval[0] / claim.value, interval[1] / claim.value), (low, high))
        if as_printed is not False:
            return as_printed
        # The printed value was rounded: a result outside of the range around it may agree with the value before.
        stated = claim.value - claim.half_digit, claim.value + claim.half_digit
        return False if _inside((interval[0] / stated[1], interval[1] / stated[0]), (low, high)) is False else None
    over = interval[0] / claim.value, interval[1] / claim.value
    if claim.relation in {"at least", "at most"}:
        return _inside(over, (low, math.inf) if claim.relation == "at least" else (0.0, high))
    found = judge(over, (low, high))
    return None if found == "inconclusive" else found == claim.relation


def _inside(interval: Interval, allowed: Interval) -> bool | None:
    """Whether all of an interval is in a range; None if only a part of it is."""
    if not all(map(math.isfinite, interval)):
        return None
    if allowed[0] <= interval[0] and interval[1] <= allowed[1]:
        return True
    return False if interval[1] < allowed[0] or interval[0] > allowed[1] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one test of a claim on one machine.

    Attributes:
        word: `indicative only`: a claim about timing was measured on a guest, which never supports it.
        indication: What the measurement on the guest says; "" otherwise.
        effect: None if there was no test.
        reason: Why there is no verdict, or no firmer one; "" otherwise.
        run, step: Of the evidence in the store.
        start: ISO 8601, UTC.
    """

    claim: str
    machine: str
    basis: Basis
    word: Word
    indication: str = ""
    effect: Effect | None = None
    expected: str = ""
    reason: str = ""
    run: str = ""
    step: str = ""
    start: str = ""

    @property
    def counts(self) -> bool:
        """Whether it is evidence for or against the claim: decided, and more than printed numbers repeated."""
        return self.word in DECIDED and self.basis != "printed"

    @property
    def text(self) -> str:
        """The verdict, with what limits it."""
        if self.word == "indicative only":
            return f"on a guest: indicative only ({self.indication})"
        return self.word

    def to_json(self) -> dict[str, Any]:
        e = self.effect
        return {
            "type": "verdict",
            "claim": self.claim,
            "machine": self.machine,
            "basis": self.basis,
            "verdict": self.word,
            "indication": self.indication,
            "counts": self.counts,
            "effect": None if e is None else {"what": e.what, "value": e.value, "interval": e.interval},
            "expected": self.expected,
            "reason": self.reason,
            "run": self.run,
            "step": self.step,
            "start": self.start,
        }


def of_effects(claim: Claim, machine: str, basis: Basis, effects: Sequence[Effect], start: str) -> Verdict:
    """The verdict of a test. A test with several effects holds if all of them do; the one that decides is shown."""
    judged = [(word_of(claim, e), e) for e in effects]
    order: tuple[Word, ...] = ("does not hold", "inconclusive", "holds")
    (word, reason), effect = min(judged, key=lambda j: order.index(j[0][0]))
    indication = ""
    if basis == "measured on a guest" and claim.timing and word in DECIDED:
        word, indication = "indicative only", word
    return Verdict(
        claim=claim.id,
        machine=machine,
        basis=basis,
        word=word,
        indication=indication,
        effect=effect,
        expected=claim.expected,
        reason=reason or claim.note,
        start=start,
    )


def untested(claim: Claim, machine: str, basis: Basis, reason: str, start: str) -> Verdict:
    """The verdict of a test that could not be made."""
    return Verdict(
        claim=claim.id,
        machine=machine,
        basis=basis,
        word="cannot be tested here",
        expected=claim.expected,
        reason=reason,
        start=start,
    )


def to_record(verdict: Verdict, build: str) -> Record | Absence:
    """A verdict as a row of the store."""
    conditions = {
        "claim": verdict.claim,
        "basis": verdict.basis,
        "verdict": verdict.word,
        "indication": verdict.indication,
        "expected": verdict.expected,
    }
    e = verdict.effect
    if e is None:
        return Absence(instrument=INSTRUMENT, metric=EFFECT.name, reason=verdict.reason, conditions=conditions)
    low, high = e.interval or (None, None)
    return Record.of(
        EFFECT,
        [e.value],
        source=_SOURCE[verdict.basis],
        machine=verdict.machine,
        instrument=INSTRUMENT,
        conditions={
            **conditions,
            "effect": e.what,
            "reason": verdict.reason,
            "run_low": low,
            "run_high": high,
            "rounded": e.rounded,
        },
        provenance={"build": build, "start": verdict.start, "command": f"claims {verdict.claim}"},
    )


def from_record(record: Record, run: str, step: str) -> Verdict:
    """The verdict that `to_record` made a row of.

    Raises:
        KeyError, ValueError: The row is not that of a verdict.
    """
    c = record.conditions
    low, high = c.get("run_low"), c.get("run_high")
    known = isinstance(low, int | float) and isinstance(high, int | float)
    word = WORDS[WORDS.index(c["verdict"])]
    return Verdict(
        claim=str(c["claim"]),
        machine=record.machine,
        basis=next(b for b in BASIS_TEXT if b == c["basis"]),
        word=word,
        indication=str(c.get("indication") or ""),
        effect=Effect(
            str(c.get("effect", "")),
            record.value,
            (float(low), float(high)) if known else None,  # type: ignore[arg-type]
            rounded=c.get("rounded") is True,
        ),
        expected=str(c.get("expected", "")),
        reason=str(c.get("reason") or ""),
        run=run,
        step=step,
        start=str(record.provenance.get("start", "")),
    )
