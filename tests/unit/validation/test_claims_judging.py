"""Tests of when an effect supports a claim, and of what a verdict stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshmark.statistics.verdicts import MedianEstimate, ratio
from meshmark.store.record import Record
from meshmark.store.run import Absence
from meshmark.validation.claims.catalogue import Claim, ClaimTest, Relation, Source
from meshmark.validation.claims.judging import (
    Effect,
    exact,
    from_record,
    of_effects,
    product,
    to_record,
    untested,
    word_of,
)

START = "2026-11-25T20:00:00Z"


def claim(relation: Relation, value: float = 1.0, margin: float = 0.02, **changed: object) -> Claim:
    base_claim = Claim(
        id="H05",
        theme="memory hierarchy",
        statement="A statement.",
        published="1.5 times",
        source=Source(title="A paper", year=2003, place="figure 4"),
        relation=relation,
        value=value,
        range=(),
        margin=margin,
        timing=True,
        printed=False,
        note="",
        tests=(ClaimTest(where="host", method="ratio"),),
    )
    return replace(base_claim, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("relation", "value", "interval", "word"),
    [
        ("higher", 1.0, (1.1, 1.2), "holds"),
        ("higher", 1.0, (0.8, 0.9), "does not hold"),
        ("higher", 1.0, (0.99, 1.01), "does not hold"),
        ("higher", 1.0, (0.9, 1.2), "inconclusive"),
        ("lower", 1.0, (0.8, 0.9), "holds"),
        ("lower", 2.0, (1.8, 1.9), "holds"),
        ("lower", 1.0, (1.1, 1.2), "does not hold"),
        ("equal", 1.5, (1.49, 1.52), "holds"),
        ("equal", 1.5, (1.1, 1.2), "does not hold"),
        ("equal", 1.5, (1.4, 1.6), "inconclusive"),
        ("at least", 0.9, (0.95, 1.4), "holds"),
        ("at least", 0.9, (0.5, 0.6), "does not hold"),
        ("at least", 0.9, (0.85, 0.95), "inconclusive"),
        ("at most", 1.0, (0.2, 1.01), "holds"),
        ("at most", 1.0, (1.1, 1.2), "does not hold"),
        ("at most", 1.0, (0.9, 1.2), "inconclusive"),
        ("none", 1.0, (0.0, 0.0), "holds"),
        ("none", 1.0, (1.0, 2.0), "does not hold"),
        ("none", 1.0, (0.0, 2.0), "inconclusive"),
    ],
)
def test_a_claim_holds_if_the_interval_excludes_the_opposite(
    relation: Relation, value: float, interval: tuple[float, float], word: str
) -> None:
    result, reason = word_of(claim(relation, value), Effect("e", sum(interval) / 2, interval))
    assert result == word and bool(reason) == (word == "inconclusive")


@pytest.mark.parametrize(
    ("interval", "word"),
    [
        ((0.7, 0.8), "holds"),
        ((0.1, 0.2), "does not hold"),
        ((0.9, 1.0), "does not hold"),
        ((0.5, 0.8), "inconclusive"),
        ((0.8, 0.95), "inconclusive"),
    ],
)
def test_a_range_holds_if_the_interval_lies_in_it(interval: tuple[float, float], word: str) -> None:
    range_claim = claim("within", range=(0.69, 0.86))
    assert range_claim.expected == "0.69 to 0.86"
    assert word_of(range_claim, Effect("e", sum(interval) / 2, interval))[0] == word


@pytest.mark.parametrize(
    ("relation", "value", "interval"),
    [
        ("equal", 1.0, (0.90, 0.97)),
        ("at least", 1.0, (0.90, 0.99)),
        ("at most", 1.0, (1.01, 1.10)),
        ("none", 1.0, (0.01, 0.10)),
    ],
)
def test_an_interval_partly_in_the_stated_range_decides_nothing(
    relation: Relation, value: float, interval: tuple[float, float]
) -> None:
    assert word_of(claim(relation, value, margin=0.05), Effect("x", 0.95, interval))[0] == "inconclusive"


def test_a_stated_value_may_have_been_rounded() -> None:
    rounded_claim = claim("equal", 3.2, margin=0.01)
    assert word_of(rounded_claim, exact("x", 3.2))[0] == "holds"
    assert word_of(rounded_claim, exact("x", 3.24))[0] == "inconclusive"
    assert word_of(rounded_claim, exact("x", 3.4))[0] == "does not hold"


def test_printed_numbers_hold_as_printed_and_fail_only_if_no_rounding_helps() -> None:
    equality = claim("equal", margin=0.02)
    assert word_of(equality, Effect("x", 1.0, (0.9, 1.1), rounded=True))[0] == "holds"
    assert word_of(equality, Effect("x", 1.05, (0.97, 1.13), rounded=True))[0] == "inconclusive"
    assert word_of(equality, Effect("x", 1.05, (1.04, 1.06), rounded=True))[0] == "does not hold"


def test_a_doubt_or_a_missing_interval_decides_nothing() -> None:
    assert word_of(claim("higher"), Effect("e", 9.0, (8.0, 10.0), "disturbed")) == ("inconclusive", "disturbed")
    assert word_of(claim("higher"), Effect("e", 9.0, None)) == ("inconclusive", "too few samples")


def test_a_product_of_two_is_the_ratio_of_verdicts() -> None:
    a, b = MedianEstimate(3.0, (2.9, 3.1)), MedianEstimate(2.0, (1.95, 2.05))
    quotient, combined = ratio(a, b), product("e", [(a, 1.0), (b, -1.0)])
    assert combined.value == pytest.approx(quotient.value) and combined.interval == pytest.approx(quotient.interval)
    assert not combined.doubt
    wide_product = product("e", [(a, 1.0), (MedianEstimate(2.0, (1.0, 3.0)), -1.0)])
    assert "50 %" in wide_product.doubt, "what is too wide to win is too wide to prove"
    assert product("e", [(a, 1.0), (MedianEstimate(0.0, (0.0, 0.0)), -1.0)]).doubt


def test_a_guest_never_supports_a_claim_about_timing() -> None:
    verdict = of_effects(claim("higher"), "vm", "measured on a guest", [exact("e", 2.0)], START)
    assert verdict.word == "indicative only" and verdict.indication == "holds" and not verdict.counts
    assert verdict.text == "on a guest: indicative only (holds)"
    untimed = of_effects(claim("higher", timing=False), "vm", "measured on a guest", [exact("e", 2.0)], START)
    assert untimed.word == "holds" and untimed.counts


def test_printed_numbers_repeated_are_no_evidence() -> None:
    verdict = of_effects(claim("higher"), "publications", "printed", [exact("e", 2.0)], START)
    assert verdict.word == "holds" and not verdict.counts


def test_of_several_effects_the_one_that_refutes_decides() -> None:
    effects = [exact("one", 2.0), Effect("two", 1.0, None), exact("three", 0.5)]
    verdict = of_effects(claim("higher"), "m", "modelled", effects, START)
    assert verdict.word == "does not hold" and verdict.effect == effects[2]
    assert of_effects(claim("higher"), "m", "modelled", effects[:2], START).word == "inconclusive"


@pytest.mark.parametrize("interval", [(1.4, 1.6), None])
def test_a_verdict_returns_from_the_store_as_it_went(interval: tuple[float, float] | None) -> None:
    verdict = of_effects(claim("higher"), "n042", "measured", [Effect("copy", 1.5, interval)], START)
    row = to_record(verdict, "0.1.0")
    assert isinstance(row, Record) and row.source == "host" and row.unit == "1"
    assert Record.from_json(row.to_json()) == row
    assert from_record(row, "claims-1", "H05-host") == replace(verdict, run="claims-1", step="H05-host")
    with pytest.raises(ValueError, match="not in tuple"):
        from_record(replace(row, conditions={**row.conditions, "verdict": "perhaps"}), "claims-1", "H05-host")


def test_a_test_that_was_not_made_is_an_absence_with_its_reason() -> None:
    verdict = untested(claim("higher"), "n042", "measured", "it needs 8 CPUs, this machine has 2", START)
    row = to_record(verdict, "0.1.0")
    assert isinstance(row, Absence) and row.reason == verdict.reason and row.conditions["claim"] == "H05"
    assert verdict.word == "cannot be tested here" and not verdict.counts
    assert verdict.to_json()["effect"] is None
