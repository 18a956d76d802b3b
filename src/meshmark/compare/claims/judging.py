"""Judges the effect that a test found against what a claim states, by the rule of `values.verdicts`.

The effect is compared with the published value: a claim of a ratio of 1.5 holds if the measured ratio over 1.5 is a tie
within the claim's margin, a claim that something grows if the ratio is higher. What the interval does not decide is not
distinguishable, for claims and counter-evidence alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from meshmark.compare.claims.catalogue import Claim
from meshmark.store.record import Metric, Record, Source
from meshmark.store.run import Absence
from meshmark.values.verdicts import Interval, Measured, alike, judge

Word = Literal["holds", "does not hold", "not distinguishable", "indicative only", "cannot be tested here"]
WORDS: Final[tuple[Word, ...]] = (
    "holds",
    "does not hold",
    "not distinguishable",
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
    """

    what: str
    value: float
    interval: Interval | None
    doubt: str = ""


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
        return "not distinguishable", effect.doubt or "too few samples"
    holds = _holds(claim, effect.interval)
    if holds is None:
        low, high = effect.interval
        return "not distinguishable", f"the interval {low:.3g} to {high:.3g} allows both"
    return ("holds" if holds else "does not hold"), ""


def _holds(claim: Claim, interval: Interval) -> bool | None:
    low, high = alike(claim.margin)
    if claim.relation == "none":
        found = judge(interval, (-claim.margin, claim.margin), 0.0)
        return None if found == "not distinguishable" else found == "tie"
    if claim.relation == "within":
        ends = claim.range[0] * low, claim.range[1] * high
        if judge(interval, ends, ends[0]) == "tie":
            return True
        outside = judge(interval, (math.inf, -math.inf), ends[1]) == "higher" or (
            judge(interval, (math.inf, -math.inf), ends[0]) == "lower"
        )
        return False if outside else None
    over = interval[0] / claim.value, interval[1] / claim.value
    if claim.relation in {"at least", "at most"}:
        allowed = (low, math.inf) if claim.relation == "at least" else (0.0, high)
        found = judge(over, allowed)
        return None if found == "not distinguishable" else found == "tie"
    found = judge(over, (low, high))
    if found == "not distinguishable":
        return None
    return found == {"higher": "higher", "lower": "lower", "equal": "tie"}[claim.relation]


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
    order: tuple[Word, ...] = ("does not hold", "not distinguishable", "holds")
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
        conditions={**conditions, "effect": e.what, "reason": verdict.reason, "run_low": low, "run_high": high},
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
    word = next(w for w in WORDS if w == c["verdict"])
    return Verdict(
        claim=str(c["claim"]),
        machine=record.machine,
        basis=next(b for b in BASIS_TEXT if b == c["basis"]),
        word=word,
        indication=str(c.get("indication") or ""),
        effect=Effect(str(c.get("effect", "")), record.value, (float(low), float(high)) if known else None),  # type: ignore[arg-type]
        expected=str(c.get("expected", "")),
        reason=str(c.get("reason") or ""),
        run=run,
        step=step,
        start=str(record.provenance.get("start", "")),
    )
