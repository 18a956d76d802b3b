"""Judges the measured effect of a test against a claim, by the rule of `values.verdicts`.

The effect is compared with the published value: a claim of a ratio of 1.5 holds if the measured ratio over 1.5 is a tie
within the margin of the claim; a claim that a value grows holds if the ratio is higher. The verdict is inconclusive if
the interval allows both, for claims and counter-evidence alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from meshmark.statistics.verdicts import Interval, MedianEstimate, alike, judge
from meshmark.store.record import Metric, Record, Source
from meshmark.store.run import Absence
from meshmark.validation.claims.catalogue import Claim

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
    """The measured effect of a test.

    Attributes:
        what: Description, such as `random latency, 8 processes over 1`.
        value: A value that is not negative: a ratio, or in the unit that `what` names.
        interval: Interval of at least 95 % confidence; None if there are too few samples. For an exact value, both ends
            are the value.
        doubt: Why the effect cannot be judged; "" if it can.
        rounded: Whether the value follows from printed numbers. In this case, the interval is the range that their
            rounding allows, and no part of it is more likely than another.
    """

    what: str
    value: float
    interval: Interval | None
    doubt: str = ""
    rounded: bool = False


def exact(what: str, value: float) -> Effect:
    """Return an effect without uncertainty, from a computation or a closed form."""
    return Effect(what, value, (value, value))


def product(what: str, terms: Sequence[tuple[MedianEstimate, float]], factor: float = 1.0) -> Effect:
    """Return the product of measured values, each to the power of 1 or -1; its bounds combine the worst cases.

    For two terms, the result is the same as of `values.verdicts.ratio`. If a term is in doubt or too wide, so is the
    effect.
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
    """Return whether the effect agrees with the claim, and why this is inconclusive; "" if it is conclusive."""
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
    """Return whether the effect agrees with the claim; None if the interval allows both.

    A claim that states a range of values holds if the interval lies within the range, and does not hold if the interval
    lies outside. Claims that a value is higher or lower follow the rule of `judge`.
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
        # The printed value is rounded: a result outside of its range may agree with the value before rounding.
        stated = claim.value - claim.half_digit, claim.value + claim.half_digit
        return False if _inside((interval[0] / stated[1], interval[1] / stated[0]), (low, high)) is False else None
    ratio = interval[0] / claim.value, interval[1] / claim.value
    if claim.relation in {"at least", "at most"}:
        return _inside(ratio, (low, math.inf) if claim.relation == "at least" else (0.0, high))
    outcome = judge(ratio, (low, high))
    return None if outcome == "inconclusive" else outcome == claim.relation


def _inside(interval: Interval, allowed: Interval) -> bool | None:
    """Return whether an interval lies inside a range (False if outside); None if only a part of it does."""
    if not all(map(math.isfinite, interval)):
        return None
    if allowed[0] <= interval[0] and interval[1] <= allowed[1]:
        return True
    return False if interval[1] < allowed[0] or interval[0] > allowed[1] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """The result of one test of a claim on one machine.

    Attributes:
        word: The verdict; `indicative only` if a claim about timing was measured on a guest, which never supports it.
        indication: Result of the measurement on a guest if `word` is `indicative only`; "" otherwise.
        effect: The measured effect; None if no test was made.
        reason: Why the verdict is missing or limited; "" otherwise.
        run, step: Run and step of the evidence in the store.
        start: Start of the test, ISO 8601, UTC.
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
        """Return whether the verdict is evidence about the claim: conclusive, and not only from printed numbers."""
        return self.word in DECIDED and self.basis != "printed"

    @property
    def text(self) -> str:
        """Return the verdict and its limitation, if any."""
        if self.word == "indicative only":
            return f"on a guest: indicative only ({self.indication})"
        return self.word

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON, of type `verdict`."""
        effect = self.effect
        return {
            "type": "verdict",
            "claim": self.claim,
            "machine": self.machine,
            "basis": self.basis,
            "verdict": self.word,
            "indication": self.indication,
            "counts": self.counts,
            "effect": None
            if effect is None
            else {"what": effect.what, "value": effect.value, "interval": effect.interval},
            "expected": self.expected,
            "reason": self.reason,
            "run": self.run,
            "step": self.step,
            "start": self.start,
        }


def of_effects(claim: Claim, machine: str, basis: Basis, effects: Sequence[Effect], start: str) -> ClaimVerdict:
    """Return the verdict of a test with its decisive effect. A test with several effects holds if all effects do."""
    judged = [(word_of(claim, e), e) for e in effects]
    order: tuple[Word, ...] = ("does not hold", "inconclusive", "holds")
    (word, reason), effect = min(judged, key=lambda j: order.index(j[0][0]))
    indication = ""
    if basis == "measured on a guest" and claim.timing and word in DECIDED:
        word, indication = "indicative only", word
    return ClaimVerdict(
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


def untested(claim: Claim, machine: str, basis: Basis, reason: str, start: str) -> ClaimVerdict:
    """Return the verdict of a test that could not be made."""
    return ClaimVerdict(
        claim=claim.id,
        machine=machine,
        basis=basis,
        word="cannot be tested here",
        expected=claim.expected,
        reason=reason,
        start=start,
    )


def to_record(verdict: ClaimVerdict, build: str) -> Record | Absence:
    """Return a verdict as a row of the store."""
    conditions = {
        "claim": verdict.claim,
        "basis": verdict.basis,
        "verdict": verdict.word,
        "indication": verdict.indication,
        "expected": verdict.expected,
    }
    effect = verdict.effect
    if effect is None:
        return Absence(instrument=INSTRUMENT, metric=EFFECT.name, reason=verdict.reason, conditions=conditions)
    low, high = effect.interval or (None, None)
    return Record.from_samples(
        EFFECT,
        [effect.value],
        source=_SOURCE[verdict.basis],
        machine=verdict.machine,
        instrument=INSTRUMENT,
        conditions={
            **conditions,
            "effect": effect.what,
            "reason": verdict.reason,
            "run_low": low,
            "run_high": high,
            "rounded": effect.rounded,
        },
        provenance={"build": build, "start": verdict.start, "command": f"claims {verdict.claim}"},
    )


def from_record(record: Record, run: str, step: str) -> ClaimVerdict:
    """Return the verdict in a row from `to_record`.

    Raises:
        KeyError, ValueError: The row does not contain a verdict.
    """
    c = record.conditions
    low, high = c.get("run_low"), c.get("run_high")
    has_interval = isinstance(low, int | float) and isinstance(high, int | float)
    word = WORDS[WORDS.index(c["verdict"])]
    return ClaimVerdict(
        claim=str(c["claim"]),
        machine=record.machine,
        basis=next(b for b in BASIS_TEXT if b == c["basis"]),
        word=word,
        indication=str(c.get("indication") or ""),
        effect=Effect(
            str(c.get("effect", "")),
            record.value,
            (float(low), float(high)) if has_interval else None,  # type: ignore[arg-type]
            rounded=c.get("rounded") is True,
        ),
        expected=str(c.get("expected", "")),
        reason=str(c.get("reason") or ""),
        run=run,
        step=step,
        start=str(record.provenance.get("start", "")),
    )
