"""Tests of fitted power laws: known exponents, and intervals that cover the true one as often as they should."""

from __future__ import annotations

import math
import random

import pytest

from meshmark.statistics.power_law import power_law


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.0, 2.0])
def test_an_exact_power_law_has_its_exponent_and_no_width(exponent: float) -> None:
    fit = power_law({n: 3e-3 * n**exponent for n in (1, 2, 4, 8)})
    assert fit is not None and (fit.factor, fit.exponent) == pytest.approx((3e-3, exponent))
    assert fit.interval == pytest.approx((exponent, exponent), abs=1e-6)
    assert fit.at(16) == pytest.approx(3e-3 * 16**exponent)


def test_two_points_have_no_fit() -> None:
    assert power_law({1: 1.0, 2: 0.5}) is None and power_law({}) is None


@pytest.mark.parametrize("points", [3, 5])
def test_the_interval_covers_the_exponent_as_often_as_it_should(points: int) -> None:
    hits = 0
    for seed in range(400):
        rng = random.Random(seed)
        fit = power_law({2**i: 2**-i * math.exp(rng.gauss(0, 0.05)) for i in range(points)})
        assert fit is not None
        hits += fit.interval[0] <= -1 <= fit.interval[1]
    assert abs(hits / 400 - 0.95) < 0.035


def test_points_that_are_not_on_a_power_law_widen_the_interval() -> None:
    bent = power_law({n: 1 / n + 0.1 for n in (1, 2, 4, 8)})
    assert bent is not None and bent.interval[1] - bent.interval[0] > 0.2
