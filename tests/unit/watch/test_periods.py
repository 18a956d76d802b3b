"""The test for hot spots bounds its error: a place stands out only if a balanced load does not explain it."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from meshmark.watch.findings.periods import (
    FALSE_PER_FRAME,
    HISTORY,
    SHORTEST,
    Periods,
    period_probability,
    required_length,
    usual_use,
)


def places(count: int) -> Periods:
    return Periods([[i] for i in range(count)], 0.35, 1)


def alternating(periods: Periods, rng: Random, frames: int, high: float, low: float, steady: int = -1) -> list[int]:
    """Let all places be high in alternation for exponential times; return the frames in which each stood out."""
    count = len(periods.places)
    ends, is_high = [0.0] * count, [True] * count
    stood_out = [0] * count
    for n in range(frames):
        for i in range(count):
            while ends[i] <= n:
                is_high[i] = not is_high[i]
                ends[i] += rng.expovariate(1 / (high if is_high[i] else low))
        periods.add([0.9 if is_high[i] or i == steady else 0.05 for i in range(count)], float(n))
        for i in np.flatnonzero(periods.standing):
            stood_out[i] += 1
    return stood_out


def test_the_probability_of_a_longer_period_is_exact() -> None:
    rng = Random(1)
    count, trials = 4, 20_000
    longer = 0
    for _ in range(trials):
        total = sum(rng.expovariate(1 / 7.0) for _ in range(count))
        longer += rng.expovariate(1 / 7.0) > 1.5 * total / count
    expected = period_probability(1.5 / count, count, 1.0)
    assert longer / trials == pytest.approx(expected, abs=4 * math.sqrt(expected / trials))


def test_the_required_length_grows_with_the_mean_of_the_periods_and_falls_with_their_number() -> None:
    nothing = required_length(1e-9, np.zeros(1), np.zeros(1))
    assert SHORTEST - 1 < nothing[0] <= SHORTEST
    few, many, longer = (required_length(1e-9, np.array([k]), np.array([t])) for k, t in ((5, 20), (100, 400), (5, 40)))
    assert many[0] < 1.1 * 4 * math.log(1e9) * 1.1  # the exponential distribution with mean 4
    assert few[0] > 70 and longer[0] > few[0]


def test_the_usual_use_leaves_each_value_out() -> None:
    rng = Random(2)
    for count in range(2, 9):
        values = [rng.choice([0.1, 0.2, rng.random()]) for _ in range(count)]
        others = [values[:i] + values[i + 1 :] for i in range(count)]
        expected = [max(float(np.median(o)), float(np.mean(o))) for o in others]
        assert usual_use(np.array(values)) == pytest.approx(expected)
    assert usual_use(np.array([0.5])) == [0.0]
    with_unknown = usual_use(np.array([0.2, math.nan, 0.4, 0.6]))
    assert with_unknown[[0, 2, 3]] == pytest.approx([0.5, 0.4, 0.3])


@pytest.mark.parametrize("count", [2, 4, 16, 64])
def test_alternating_places_never_stand_out(count: int) -> None:
    for seed, (high, low) in enumerate([(4.0, 12.0), (1.5, 60.0), (12.0, 12.0)]):
        assert sum(alternating(places(count), Random(seed), 2000, high, low)) == 0


@pytest.mark.parametrize("count", [2, 4, 16])
def test_a_place_that_is_always_high_beside_alternating_ones_stands_out(count: int) -> None:
    stood_out = alternating(places(count), Random(3), 1000, 4.0, 12.0, steady=1)
    assert stood_out[1] >= 800 and sum(stood_out) == stood_out[1]


def test_a_lone_place_stands_out_after_the_shortest_time_and_not_after_its_end() -> None:
    periods = places(8)
    standing = []
    for n in range(400):
        periods.add([0.8 if 10 <= n < 200 else 0.0, *[0.0] * 7], n / 10)
        standing.append(bool(periods.standing[0]))
    assert standing.index(True) == 10 + SHORTEST - 1
    assert periods.since_s[0] == pytest.approx(1.0)
    assert not any(standing[200 + 2 * SHORTEST :]) and not np.any(periods.standing[1:])


def test_unknown_values_and_equal_use_do_not_stand_out() -> None:
    periods = places(4)
    for n in range(HISTORY + 200):
        periods.add([None, 0.95, 0.94, 0.95] if n % 2 else [], float(n))
    assert not np.any(periods.standing)
    periods = places(8)
    for n in range(2 * SHORTEST):
        periods.add([0.9, 0.9, *[None] * 6], float(n))  # the others may be as busy
    assert not np.any(periods.standing)
    assert places(0).components(np.zeros(0, dtype=bool)) == set()


def test_the_bound_is_divided_by_the_number_of_tests() -> None:
    few, many = places(2), places(64)
    for n in range(SHORTEST):
        few.add([0.9, 0.0], float(n))
        many.add([0.9, *[0.0] * 63], float(n))
    assert few.standing[0] and many.standing[0]  # nothing to compare with: the same time
    assert FALSE_PER_FRAME * 1000 <= 0.01  # in a thousand frames, over all components
