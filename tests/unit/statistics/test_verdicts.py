"""Tests of winner, tie and inconclusive: the rule, and how often it errs on samples with a known truth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from meshmark.measure.repetitions import run_bounds
from meshmark.statistics.verdicts import MedianEstimate, alike, judge, rank, ratio, times_text
from meshmark.store.record import median, median_interval
from support import made_run


def test_speeds_in_words() -> None:
    assert times_text(3.9, (3.1, 4.4), "the baseline") == "3.90 × as fast as the baseline (95 %: 3.10 to 4.40)"
    assert times_text(1.0214, (0.99, 1.2), "A", "good") == "1.021 × as good as A (95 %: 0.990 to 1.20)"
    assert times_text(123.4, None, "A") == "123 × as fast as A"


@pytest.mark.parametrize(
    ("interval", "word"),
    [
        ((0.99, 1.01), "equal"),
        ((1 / 1.02, 1.02), "equal"),
        ((1.005, 1.015), "equal"),  # certain, but too small to matter
        ((1.005, 1.03), "higher"),
        ((0.9, 0.999), "lower"),
        ((0.97, 1.01), "inconclusive"),
        ((0.5, 2.0), "inconclusive"),
        ((1.0, 1.5), "inconclusive"),
        ((0.5, 1.0), "inconclusive"),
        ((0.5, math.inf), "inconclusive"),
        ((1.5, math.inf), "inconclusive"),
        ((math.nan, math.nan), "inconclusive"),
        (None, "inconclusive"),
    ],
)
def test_a_ratio_is_judged_by_its_whole_interval(interval: tuple[float, float] | None, word: str) -> None:
    assert judge(interval, alike(0.02)) == word


def test_a_difference_is_judged_around_zero() -> None:
    assert judge((-0.1, 0.1), (-0.2, 0.2), 0) == "equal"
    assert judge((0.1, 0.3), (-0.2, 0.2), 0) == "higher"
    assert judge((-0.3, -0.1), (-0.2, 0.2), 0) == "lower"
    assert judge((-0.3, 0.1), (-0.2, 0.2), 0) == "inconclusive"


def near(value: float, half: float = 0.004, doubt: str = "") -> MedianEstimate:
    return MedianEstimate(value, (value * (1 - half), value * (1 + half)), doubt)


def test_a_ratio_combines_both_intervals_at_their_ends() -> None:
    comparison = ratio(MedianEstimate(3, (2, 4)), MedianEstimate(1, (0.5, 2)))
    assert (comparison.value, comparison.interval, comparison.word) == (3, (1, 8), "inconclusive")
    assert ratio(near(1.5), near(1)).word == "higher" and ratio(near(1), near(1.5)).word == "lower"
    assert ratio(near(1.001), near(1)).word == "equal"
    assert ratio(near(1.1), near(1), margin=0.2).word == "equal"


def test_what_is_not_above_zero_has_no_ratio() -> None:
    zero = MedianEstimate(0, (0, 0))
    assert zero.excluded == "not above 0" and math.isnan(ratio(near(1), zero).value)
    assert {ratio(near(1), zero).word, ratio(zero, near(1)).word, ratio(zero, zero).word} == {"inconclusive"}
    assert rank({"a": near(1), "b": zero}).word == "inconclusive"


def test_what_is_flagged_or_wide_is_not_judged_but_its_ratio_is_known() -> None:
    flagged = ratio(near(5, doubt="migrated"), near(1))
    assert flagged.word == "inconclusive" and flagged.interval is not None and not flagged.differs
    assert ratio(near(5, half=0.11), near(1)).word == "inconclusive"
    assert ratio(near(5, half=0.09), near(1)).differs
    few = ratio(MedianEstimate(5, None), near(1))
    assert (few.value, few.interval, few.word) == (5, None, "inconclusive")
    assert ratio(MedianEstimate(5, (0, 6)), near(1)).interval is None


def test_a_winner_is_better_than_each_of_the_others() -> None:
    ranking = rank({"b": near(1.2), "a": near(1), "c": near(3)})
    assert (ranking.word, ranking.best, dict(ranking.excluded)) == ("winner", ("a",), {})
    assert rank({"b": near(1.2), "a": near(1)}, better="higher").best == ("b",)


def test_ties_are_shown_between_all_of_them() -> None:
    ranking = rank({"b": near(1.001), "a": near(1), "c": near(3)})
    assert (ranking.word, ranking.best) == ("equal", ("a", "b"))
    # The first candidate ties with both others, which differ too much from each other.
    chain = rank({"b": near(1.012), "a": near(1), "c": near(0.999, 0.012)}, margin=0.025)
    assert (chain.word, chain.best) == ("inconclusive", ("c", "a", "b"))


def test_a_wide_or_flagged_one_neither_wins_nor_ties() -> None:
    others = {"a": near(1), "b": near(1.2)}
    ranking = rank({"wide": MedianEstimate(2, (1.1, 2.9)), **others, "bad": near(3, doubt="stoled disturbed")})
    assert (ranking.word, ranking.best) == ("winner", ("a",))
    assert dict(ranking.excluded) == {"wide": "±45 %", "bad": "stoled disturbed"}
    for name, inconclusive in {
        "wide": MedianEstimate(0.5, (0.2, 0.8)),
        "across": MedianEstimate(2, (1, 3)),
        "bad": near(0.4, doubt="stolen"),
        "near": near(1.001, doubt="stolen"),
        "few": MedianEstimate(9, None),
    }.items():
        ranking = rank({name: inconclusive, **others})
        assert (ranking.word, ranking.best) == ("inconclusive", ("a", name)), name
    high = {"a": near(1), "b": near(0.8)}
    assert rank({**high, "wide": MedianEstimate(0.5, (0.2, 0.8))}, better="higher").best == ("a",)
    assert rank({**high, "wide": MedianEstimate(2, (1, 3))}, better="higher").best == ("a", "wide")


def test_where_none_can_be_judged_any_may_be_the_best() -> None:
    ranking = rank({"a": MedianEstimate(1, None), "b": near(2, doubt="stolen")})
    assert (ranking.word, ranking.best) == ("inconclusive", ("a", "b"))
    assert dict(ranking.excluded) == {"a": "too few samples", "b": "stolen"}


def test_one_alone_is_no_winner() -> None:
    assert rank({"a": near(1)}).word == "inconclusive" and rank({"a": near(1)}).best == ("a",)


# ------------------------------------------------------------------ how often it errs

Sampler = Callable[[np.random.Generator], np.ndarray]
RUNS, SAMPLES, TRIALS = 3, 15, 400
POINT = made_run.record("lines", "line_latency", 1.0)


def heavy(rng: np.random.Generator) -> np.ndarray:
    """Return samples, a few of which take several times as long."""
    return 1 + 0.02 * np.abs(rng.standard_t(2, SAMPLES))


def skewed(rng: np.random.Generator) -> np.ndarray:
    return rng.lognormal(0, 0.05, SAMPLES)


def two_modes(rng: np.random.Generator) -> np.ndarray:
    """Return samples of a process that keeps one of two levels for its lifetime."""
    return (1.9 if rng.random() < 0.5 else 1.0) * rng.lognormal(0, 0.01, SAMPLES)


def two_modes_inside(rng: np.random.Generator) -> np.ndarray:
    """Return samples, each of which is at one of two levels."""
    return np.where(rng.random(SAMPLES) < 0.5, 1.9, 1.0) * rng.lognormal(0, 0.01, SAMPLES)


def drifting(rng: np.random.Generator) -> np.ndarray:
    """Return samples of a process that starts within 10 % and rises or falls by up to 10 % more."""
    return (1 + 0.1 * rng.random()) * (1 + 0.1 * rng.normal() * np.linspace(0, 1, SAMPLES))


def varying_runs(rng: np.random.Generator) -> np.ndarray:
    """Return samples that hardly vary within a process, whereas each process has a different level."""
    return rng.normal(1, 0.02) * rng.lognormal(0, 1e-4, SAMPLES)


def observed(rng: np.random.Generator, sampler: Sampler, factor: float = 1.0, runs: int = RUNS) -> MedianEstimate:
    """Return a point of several runs, with the bounds of pooled records."""
    run_samples = [(factor * sampler(rng)).tolist() for _ in range(runs)]
    records = [replace(POINT, samples=tuple(r), value=median(r), interval=median_interval(r)) for r in run_samples]
    return MedianEstimate(median([s for r in run_samples for s in r]), run_bounds(records))


@pytest.mark.parametrize("runs", [2, 3])
@pytest.mark.parametrize("sampler", [heavy, skewed, two_modes, two_modes_inside, drifting, varying_runs])
def test_equals_are_rarely_called_different(sampler: Sampler, runs: int) -> None:
    if sampler is two_modes and runs == 2:
        pytest.skip("one of eight pairs of two runs is at one mode and at the other: no evidence against it")
    rng = np.random.default_rng(19)
    words = Counter(
        ratio(observed(rng, sampler, 1, runs), observed(rng, sampler, 1, runs)).word for _ in range(3 * TRIALS)
    )
    assert words["lower"] + words["higher"] <= 0.05 * 3 * TRIALS, words


@pytest.mark.parametrize("sampler", [heavy, skewed, two_modes, two_modes_inside, drifting])
def test_of_six_equals_one_is_rarely_called_the_winner(sampler: Sampler) -> None:
    rng = np.random.default_rng(23)
    words = Counter(rank({str(i): observed(rng, sampler) for i in range(6)}).word for _ in range(TRIALS // 2))
    assert words["winner"] <= 0.05 * TRIALS / 2, words


@pytest.mark.parametrize("sampler", [heavy, skewed, two_modes, two_modes_inside, drifting])
def test_those_that_differ_by_a_twentieth_are_rarely_called_a_tie(sampler: Sampler) -> None:
    rng = np.random.default_rng(29)
    words = Counter(ratio(observed(rng, sampler, 1.05), observed(rng, sampler)).word for _ in range(TRIALS))
    assert words["equal"] <= 0.05 * TRIALS, words


@pytest.mark.parametrize(
    ("sampler", "factor", "power"), [(heavy, 1.1, 0.8), (skewed, 1.2, 0.6), (varying_runs, 1.2, 0.8)]
)
def test_what_differs_clearly_is_found(sampler: Sampler, factor: float, power: float) -> None:
    """The power is for three runs of fifteen samples. Points missed at `skewed` are wider than ±10 %, so not judged."""
    rng = np.random.default_rng(31)
    words = Counter(ratio(observed(rng, sampler, factor), observed(rng, sampler)).word for _ in range(TRIALS))
    assert words["higher"] >= power * TRIALS, words


def test_what_is_steady_and_equal_is_called_a_tie() -> None:
    rng = np.random.default_rng(37)

    def steady(rng: np.random.Generator) -> np.ndarray:
        return rng.lognormal(0, 0.003, SAMPLES)

    words = Counter(ratio(observed(rng, steady), observed(rng, steady)).word for _ in range(TRIALS))
    assert words["equal"] >= 0.95 * TRIALS, words
