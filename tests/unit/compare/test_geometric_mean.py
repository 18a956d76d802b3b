"""Tests of geometric means of ratios and their intervals: known answers, properties and coverage."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.statistics.geometric import MIN_RUNS, mean_of, over, ratios_to, rounded

RUNS = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=7)
PROGRAMS = st.dictionaries(st.sampled_from("abcdefgh"), RUNS, min_size=1)


def test_known_answers() -> None:
    assert mean_of({"a": [2.0], "b": [8.0]}).value == pytest.approx(4.0)
    assert mean_of({"a": [1.0, 2.0, 90.0], "b": [8.0, 8.0, 7.0]}).value == pytest.approx(4.0)  # the mean of medians
    assert mean_of({"a": [2.0], "b": [8.0, 8.0]}).interval is None
    assert mean_of({"a": [2.0, 2.0, 2.0]}).interval == (2.0, 2.0)
    assert ratios_to([2.0, 4.0], 8.0, "lower") == [4.0, 2.0]
    assert ratios_to([2.0, 4.0], 8.0, "higher") == [0.25, 0.5]


def test_the_interval_of_one_program_is_that_of_student() -> None:
    # Logarithms -0.1, 0, 0.1: variance 0.01; variance of the median pi/2 * 0.01 / 3; t quantile for 2 degrees 4.3027.
    low, high = mean_of({"a": [math.exp(-0.1), 1.0, math.exp(0.1)]}).interval or (0, 0)
    half_width = 4.302653 * math.sqrt(math.pi / 2 * 0.01 / 3)
    assert (math.log(low), math.log(high)) == pytest.approx((-half_width, half_width), rel=1e-6)


@given(PROGRAMS)
def test_a_mean_lies_between_its_ratios_and_in_its_interval(programs: dict[str, list[float]]) -> None:
    mean = mean_of(programs)
    lowest = min(min(runs) for runs in programs.values())
    assert lowest * (1 - 1e-9) <= mean.value <= max(max(runs) for runs in programs.values()) * (1 + 1e-9)
    assert mean.interval is not None and mean.interval[0] <= mean.value <= mean.interval[1]


@given(PROGRAMS, st.floats(1e-3, 1e3))
def test_a_mean_scales_with_all_ratios_and_its_relative_interval_does_not_change(
    programs: dict[str, list[float]], factor: float
) -> None:
    mean, scaled_mean = mean_of(programs), mean_of({k: [factor * v for v in runs] for k, runs in programs.items()})
    assert scaled_mean.value == pytest.approx(factor * mean.value)
    widths = [(m.interval or (1, 1))[1] / m.value for m in (mean, scaled_mean)]
    assert widths[0] == pytest.approx(widths[1], rel=1e-6)


@given(PROGRAMS)
def test_the_reference_does_not_matter_for_odd_numbers_of_runs(programs: dict[str, list[float]]) -> None:
    odd_runs = {k: runs[: len(runs) - 1 + len(runs) % 2] for k, runs in programs.items()}
    forward, inverse = mean_of(odd_runs), mean_of({k: [1 / v for v in runs] for k, runs in odd_runs.items()})
    assert forward.value * inverse.value == pytest.approx(1)
    assert forward.interval is not None and inverse.interval is not None
    assert forward.interval[0] * inverse.interval[1] == pytest.approx(1, rel=1e-6)


@given(PROGRAMS, PROGRAMS)
def test_a_ratio_of_two_means_is_less_certain_than_either(a: dict[str, list[float]], b: dict[str, list[float]]) -> None:
    quotient = over(mean_of(a), mean_of(b))
    assert quotient.value == pytest.approx(mean_of(a).value / mean_of(b).value)
    assert quotient.terms is not None
    assert sum(t.variance for t in quotient.terms) >= max(
        sum(t.variance for t in m.terms or ()) for m in (mean_of(a), mean_of(b))
    ) * (1 - 1e-12)
    assert over(mean_of(a), mean_of({"a": [1.0]})).interval is None


@pytest.mark.parametrize(("programs", "runs"), [(13, MIN_RUNS), (3, 3), (5, 5), (2, 4)])
@pytest.mark.parametrize("skewed", [False, True])
def test_intervals_cover_the_true_mean(programs: int, runs: int, skewed: bool) -> None:
    rng = random.Random(f"{programs} {runs} {skewed}")
    # Programs differ in noise; skewed noise only makes runs slower and is relative to its median.
    noise = (lambda: math.log(2) - rng.expovariate(1.0)) if skewed else (lambda: rng.gauss(0, 1))
    inside, trials = 0, 600
    for _ in range(trials):
        mean = mean_of({str(p): [math.exp(0.01 * (1 + p % 3) * noise()) for _ in range(runs)] for p in range(programs)})
        assert mean.interval is not None
        inside += mean.interval[0] <= 1 <= mean.interval[1]
    assert inside / trials >= 0.92, inside / trials


def test_rounded_values_bound_their_mean() -> None:
    low, high = rounded([0.48, 0.55], 2)
    assert low == pytest.approx(math.sqrt(0.475 * 0.545)) and high == pytest.approx(math.sqrt(0.485 * 0.555))
    assert rounded([0.0, 1.0], 2)[0] == 0.0
