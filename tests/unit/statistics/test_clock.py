"""Tests of how a rate follows the core clock: known exponents, plateaus and inconclusive cases."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from meshmark.statistics.clock import ClockEffect, clock_effect

CLOCKS = (1.4e9, 1.6e9, 1.8e9, 2.0e9, 2.2e9)


def sweep(
    rate: Callable[[float], float], noise: float = 0.002, rounds: int = 8, clocks: tuple[float, ...] = CLOCKS
) -> ClockEffect:
    """Return the clock effect of rates with random deviations."""
    rng = random.Random(1)
    return clock_effect({c: {r: rate(c) * math.exp(rng.gauss(0, noise)) for r in range(rounds)} for c in clocks})


def computed(rate: Callable[[float], float], clocks: tuple[float, ...] = CLOCKS) -> ClockEffect:
    return clock_effect({c: {1: rate(c)} for c in clocks}, computed=True)


def test_a_rate_through_the_origin_is_proportional() -> None:
    effect = sweep(lambda c: 3 * c)
    assert (effect.word, effect.plateau_hz, effect.computed) == ("proportional", None, False)
    assert effect.exponent and effect.exponent.interval
    assert effect.exponent.interval[0] < 1 < effect.exponent.interval[1]
    assert effect.text.startswith("the rate is proportional to the clock: exponent 1.00 (95 %: ")
    assert "from 1.4 GHz to 2.2 GHz, within 0.9 to 1.1" in effect.text


def test_a_straight_line_that_misses_the_origin_is_not_proportional() -> None:
    effect = sweep(lambda c: 1e9 + c)
    assert effect.word == "less" and "rises less than in proportion" in effect.text
    assert effect.exponent and 0.55 < effect.exponent.value < 0.75
    assert sweep(lambda c: c - 0.8e9).word == "more"


@pytest.mark.parametrize("begin", [1.4e9, 1.8e9, 2.0e9])
def test_a_plateau_begins_where_the_rate_no_longer_rises(begin: float) -> None:
    effect = sweep(lambda c: min(c, begin))
    assert (effect.word, effect.plateau_hz) == ("plateau", begin)
    assert f"no longer rises with the clock from {begin / 1e9:g} GHz on (plateau)" in effect.text
    assert "such as memory" in effect.text and ("below it" in effect.text) == (begin > 1.4e9)


def test_the_highest_clock_alone_is_no_plateau() -> None:
    assert sweep(lambda c: min(c, 2.2e9)).word == "proportional"
    late = sweep(lambda c: min(c, 2.05e9))
    assert late.plateau_hz is None and late.word != "plateau"


def test_a_kink_within_the_tolerance_of_the_whole_range_is_uneven() -> None:
    effect = sweep(lambda c: c * (1.05 if c > 1.5e9 else 1.0) * (1 - 0.02 * (c > 2.1e9)), 0.0005)
    assert effect.word == "uneven" and "exponent 1.37" in effect.text and "from 1.4 GHz to 1.6 GHz" in effect.text


@pytest.mark.parametrize(
    ("noise", "rounds", "clocks", "reason"),
    [
        (0.002, 8, (1.4e9, 2.2e9), "2 clocks, at least 3 are needed; exponent 1.00 (95 %"),
        (0.002, 5, CLOCKS, "5 common rounds, at least 6 are needed; exponent"),
        (0.2, 8, CLOCKS, "an interval that is neither within nor outside of 0.9 to 1.1"),
        (0.002, 8, (1.4e9,), "1 clock is known, at least 3 clocks are needed"),
        (0.002, 0, CLOCKS, "no round has all clocks"),
    ],
)
def test_what_cannot_be_judged_is_inconclusive_with_the_reason(
    noise: float, rounds: int, clocks: tuple[float, ...], reason: str
) -> None:
    effect = sweep(lambda c: c, noise, rounds, clocks)
    assert effect.word == "inconclusive" and reason in effect.text


def test_only_rounds_with_all_clocks_count() -> None:
    rates = {c: dict.fromkeys(range(8), c) for c in CLOCKS}
    rates[1.8e9] = dict.fromkeys(range(4, 12), 1800000000.0)
    assert "4 common rounds" in clock_effect(rates).text


def test_rates_of_a_model_have_exponents_without_intervals() -> None:
    effect = computed(lambda c: c)
    assert effect.text.startswith("computed: the rate is proportional to the clock: exponent 1.00 from")
    assert effect.exponent and effect.exponent.interval is None and "95 %" not in effect.text
    rate_by_clock = {1.4e9: 6.27, 1.6e9: 6.69, 1.8e9: 7.04, 2.0e9: 7.35, 2.2e9: 7.20}
    effect = computed(rate_by_clock.__getitem__)
    assert (effect.word, effect.plateau_hz) == ("plateau", 2.0e9)
    assert [round(e.value, 2) for e in effect.neighbours] == [0.49, 0.43, 0.41, -0.22]
    assert computed(lambda c: c, CLOCKS[:2]).word == "inconclusive"


def test_false_plateaus_and_false_denials_of_proportion_are_rare() -> None:
    words = []
    for seed in range(200):
        rng = random.Random(seed)
        rates = {c: {r: c * math.exp(rng.gauss(0, 0.02)) for r in range(8)} for c in CLOCKS}
        words.append(clock_effect(rates).word)
    assert words.count("plateau") <= 10 and words.count("less") + words.count("more") <= 10


def test_what_was_left_out_is_at_the_end() -> None:
    rates = {c: dict.fromkeys(range(8), c) for c in CLOCKS}
    assert clock_effect(rates, left_out="all is left out").text.endswith("; all is left out")
