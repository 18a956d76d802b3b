"""Test the statistics of studies: crossings, equivalence, interpolation and serialisation."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.effects import Curve, crossing, equivalence, rising
from meshmark.load.studies.omp_overload import serialisation
from meshmark.load.studies.results import table
from support.scenarios import one_line


def test_a_crossing_lies_where_the_line_between_two_measured_rates_passes() -> None:
    estimate = crossing([1, 2, 4], [[1.0], [1.05], [1.25]], 1.1)
    assert estimate.value == pytest.approx(2.5)
    assert (estimate.low, estimate.high) == (None, None)  # single samples give no interval


def test_a_crossing_outside_what_was_measured_is_absent_with_a_reason() -> None:
    absent = crossing([1, 2], [[1.0] * 5, [1.05] * 5], 1.1)
    assert absent.value is None
    assert "not crossed" in absent.reason
    assert "2" in absent.reason
    below_range = crossing([1, 2], [[1.2] * 5, [1.5] * 5], 1.1)
    assert below_range.value is None
    assert "lowest" in below_range.reason


def test_a_crossing_has_the_interval_of_its_scatter() -> None:
    covered = 0
    for seed in range(60):
        rng = random.Random(seed)
        x = [1.0, 2.0, 3.0, 4.0, 5.0]
        samples = [[1 + 0.04 * v + rng.gauss(0, 0.01) for _ in range(9)] for v in x]
        estimate = crossing(x, samples, 1.1, seed=seed, draws=400)
        assert estimate.value is not None
        assert estimate == crossing(x, samples, 1.1, seed=seed, draws=400)  # same input, same output
        if estimate.low is not None and estimate.high is not None:
            assert estimate.low <= estimate.value <= estimate.high
            covered += estimate.low <= 2.5 <= estimate.high
    assert covered >= 51  # the nominal coverage is 95 %; bootstrapped medians of nine samples cover somewhat less


def test_an_interval_that_reaches_beyond_what_was_measured_is_open_there() -> None:
    estimate = crossing([1, 2, 3], [[1.0] * 6, [1.02, 1.04] * 3, [1.05, 1.09, 1.11, 1.12, 1.2, 1.3]], 1.1)
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is None


@given(st.lists(st.floats(0.5, 3), min_size=2, max_size=20))
def test_a_rising_curve_never_falls_and_keeps_the_mean(y: list[float]) -> None:
    fitted = rising(y)
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(fitted))
    assert statistics.fmean(fitted) == pytest.approx(statistics.fmean(y))


@pytest.mark.parametrize(("x", "samples"), [([1], [[1.0]]), ([2, 1], [[1.0], [1.0]]), ([1, 2], [[1.0], []])])
def test_a_crossing_needs_rising_points_with_samples(x: list[float], samples: list[list[float]]) -> None:
    with pytest.raises(MeshmarkError):
        crossing(x, samples, 1.1)


# ------------------------------------------------------------------ equivalence


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.8, 1.25), min_size=2, max_size=12), st.sampled_from([0.02, 0.05, 0.2]))
def test_equivalence_is_that_of_two_one_sided_tests(ratios: list[float], margin: float) -> None:
    logs = [math.log(r) for r in ratios]
    if statistics.stdev(logs) < 1e-9:
        return
    result = equivalence(ratios, margin)
    bound = math.log1p(margin)
    above = stats.ttest_1samp(logs, -bound, alternative="greater").pvalue
    below = stats.ttest_1samp(logs, bound, alternative="less").pvalue
    assert result.p == pytest.approx(max(above, below), abs=1e-12)
    assert (result.word == "equal") == (max(above, below) < 0.05)
    # Equivalently, the 90 % interval lies within the margin.
    low, high = stats.t.interval(0.9, len(logs) - 1, statistics.fmean(logs), stats.sem(logs))
    assert result.interval == pytest.approx((math.exp(low), math.exp(high)))
    assert (result.word == "equal") == (low > -bound and high < bound)


def test_no_difference_found_is_no_equivalence_shown() -> None:
    assert equivalence([1.0, 1.001, 0.999, 1.0]).word == "equal"
    assert equivalence([0.8, 1.25, 1.1, 0.9]).word == "inconclusive"  # the mean is 1, but the scatter is too large
    assert equivalence([1.2, 1.2, 1.2]).word == "higher"
    assert equivalence([1.0, 1.0]).p == 0
    for ratios, margin in (([1.0], 0.05), ([1.0, 1.0], 0.0)):
        with pytest.raises(UsageError):
            equivalence(ratios, margin)


# ------------------------------------------------------------------ prediction


@settings(deadline=None)
@given(st.lists(st.floats(0.9, 3), min_size=2, max_size=8), st.floats(0, 1))
def test_a_prediction_rises_with_the_rate_and_stays_between_its_points(y: list[float], share: float) -> None:
    x = [float(2 + i) for i in range(len(y))]
    curve = Curve(x, y)
    steps = [curve.low + (curve.high - curve.low) * i / 50 for i in range(51)]
    predictions = [curve(s) for s in steps]
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(predictions))
    assert min(*y, 1.0) - 1e-9 <= curve(share * curve.high) <= max(*y, 1.0) + 1e-9


def test_a_prediction_goes_through_rising_points_and_not_beyond_them() -> None:
    curve = Curve([5, 10, 20], [1.01, 1.1, 1.5])
    assert [curve(x) for x in (0, 5, 10, 20)] == pytest.approx([1, 1.01, 1.1, 1.5])
    with pytest.raises(UsageError) as error:
        curve(21)
    assert "0 to 20" in one_line(error)
    with pytest.raises(MeshmarkError):
        Curve([5, 5], [1, 2])


# ------------------------------------------------------------------ serialisation


def test_serialisation_is_the_time_in_which_fewer_than_two_threads_ran() -> None:
    assert serialisation([(1.0, 2.0), (1.0, 2.0)]) == 0
    assert serialisation([(1.0, 1.0), (3.0, 2.0)]) == 0.25
    assert serialisation([(1.0, 1.5)]) == 0.5
    assert serialisation([(1.0, 0.2), (1.0, 8.0)]) == 0.5
    assert math.isnan(serialisation([]))


def test_a_table_has_names_at_the_left_and_numbers_at_the_right() -> None:
    text = table(["copies", "slowdown", "flags"], [["1", "1.0", "-"], ["20", "10.4", "stolen"]], left=(0, 2))
    assert text.splitlines() == ["copies  slowdown  flags", "1            1.0  -", "20          10.4  stolen"]
