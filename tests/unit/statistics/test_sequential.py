"""Tests of the confidence sequence: valid at any time, whatever the noise, and narrow enough to be useful."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from statistics import median

import pytest

from meshmark.statistics.sequential import ConfidenceSequence, spread


def of(values: list[float]) -> ConfidenceSequence:
    sequence = ConfidenceSequence((-0.02, 0.0, 0.02))
    for value in values:
        sequence.add(value)
    return sequence


def fair(seed: int, n: int, scale: float, shift: float = 0.0, drift: float = 0.0) -> list[float]:
    """Return differences of heavy-tailed runs in random order, on a machine that drifts within each pair."""
    rng = random.Random(seed)

    def noise() -> float:
        return scale * rng.gauss(0, 1) / math.sqrt(rng.expovariate(1))

    return [shift + rng.choice((-1, 1)) * (noise() - noise() + drift) for _ in range(n)]


def test_there_is_no_interval_before_the_eighth_pair_and_one_from_then_on() -> None:
    values = [0.5 + 0.01 * n for n in range(9)]
    assert [of(values[:n]).interval() is None for n in range(10)] == [True] * 8 + [False] * 2


def test_the_interval_agrees_with_what_is_tracked_pair_by_pair() -> None:
    sequence = ConfidenceSequence((-0.02, 0.0, 0.02))
    for value in fair(3, 60, 0.01, 0.012):
        sequence.add(value)
        low, high = sequence.interval() or (-math.inf, math.inf)
        for point in (-0.02, 0.0, 0.02):
            assert sequence.above(point) == (low > point), len(sequence.values)
            assert sequence.below(point) == (high < point), len(sequence.values)
    assert sequence.above(-0.02) and not sequence.below(-0.02)


def test_the_interval_moves_and_turns_with_the_values() -> None:
    values = fair(5, 30, 0.05, 0.1)
    low, high = of(values).interval() or (0.0, 0.0)
    assert low < median(values) < high
    assert of([v + 3 for v in values]).interval() == pytest.approx((low + 3, high + 3), abs=1e-6)
    assert of([-v for v in values]).interval() == pytest.approx((-high, -low), abs=1e-6)


def test_looking_after_every_pair_excludes_the_truth_in_at_most_a_twentieth_of_the_experiments() -> None:
    def ever_excluded(seed: int) -> bool:
        sequence = ConfidenceSequence((0.0,))
        for value in fair(seed, 60, 0.05, drift=0.1):
            sequence.add(value)
            if sequence.above(0.0) or sequence.below(0.0):
                return True
        return False

    exclusions = sum(map(ever_excluded, range(300)))
    # The limit is 5 % and three standard deviations of the count.
    assert exclusions <= 0.05 * 300 + 3 * math.sqrt(300 * 0.05 * 0.95)


def test_a_fair_sign_wins_nothing_on_average() -> None:
    """All sign sequences of the pairs share the wealth, so at most the allowed share of them excludes equality."""
    sizes = [0.01 * (n + 1) for n in range(10)]
    exclusions = 0
    for bits in range(1 << 10):
        sequence = ConfidenceSequence((0.0,))
        for n, size in enumerate(sizes):
            sequence.add(size if bits >> n & 1 else -size)
        exclusions += sequence.above(0.0) or sequence.below(0.0)
    assert 0 < exclusions <= 0.05 * (1 << 10)


def test_more_pairs_narrow_the_interval_and_noise_widens_it() -> None:
    def width(n: int, scale: float) -> float:
        low, high = of(fair(1, n, scale)).interval() or (-math.inf, math.inf)
        return high - low

    assert all(a > b for a, b in pairwise(width(n, 0.02) for n in (10, 25, 60, 150)))
    assert width(40, 0.1) > 2 * width(40, 0.02)


def test_one_outlier_moves_the_interval_by_less_than_its_width() -> None:
    values = fair(2, 40, 0.005, 0.05)
    low, high = of(values).interval() or (0.0, 0.0)
    outlier_interval = of([*values[:-1], 50.0]).interval() or (0.0, 0.0)
    assert abs(outlier_interval[0] - low) < high - low and abs(outlier_interval[1] - high) < high - low


def test_values_without_scatter_are_judged_by_their_signs() -> None:
    low, high = of([0.1] * 12).interval() or (0.0, 0.0)
    assert low == pytest.approx(0.1, abs=1e-6) and high == pytest.approx(0.1, abs=1e-6)
    assert not of([0.0] * 40).above(0.0) and not of([0.0] * 40).below(0.0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="log-ratio: found"):
        ConfidenceSequence().add(wrong)


def test_the_spread_is_that_of_normal_values_and_resists_outliers() -> None:
    rng = random.Random(4)
    values = [rng.gauss(0, 2) for _ in range(400)]
    assert spread(values) == pytest.approx(2, rel=0.1)
    assert spread([*values, 1e9]) == pytest.approx(spread(values), rel=0.05)
