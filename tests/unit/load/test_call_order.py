"""Test that the calls of a synthetic program are evenly spread, in the order that a heap of next times gives."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshmark.load.calibration.order import best_phases, golden_phases, sequence, uniformity


def heap_order(calls: Sequence[int], phases: Sequence[float]) -> list[int]:
    """Return the order of calls from a heap, like an executor: the least next time first, ties by index."""
    heap = [((0 + phi) / n, k, 0) for k, (n, phi) in enumerate(zip(calls, phases, strict=True))]
    heapq.heapify(heap)
    order = []
    while heap:
        _, k, c = heapq.heappop(heap)
        order.append(k)
        if c + 1 < calls[k]:
            heapq.heappush(heap, ((float(c + 1) + phases[k]) / float(calls[k]), k, c + 1))
    return order


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 200), st.booleans())
@example([7, 7, 7, 14], 5, True)
def test_the_order_is_that_of_a_heap_of_next_times(calls: list[int], at_once: int, tied: bool) -> None:
    phases = [0.0] * len(calls) if tied else golden_phases(len(calls)).tolist()
    pieces = list(sequence(calls, phases, at_once))
    order = np.concatenate(pieces).tolist()
    assert order == heap_order(calls, phases)
    assert [order.count(k) for k in range(len(calls))] == calls


def test_phases_are_multiples_of_a_power_of_two_and_spread() -> None:
    phases = golden_phases(1000)
    assert np.all(phases * 2**24 == np.floor(phases * 2**24))
    assert phases[1] == pytest.approx(0.618034, abs=1e-6)
    assert np.diff(np.sort(phases)).max() < 3 / 1000


def test_deviation_is_that_of_a_count_by_hand() -> None:
    # The order is a, b, a, b, and b does all the work: at 1/4 of the time, after a, no work is done; at 1/2 of the
    # time, after b, half of the work is done.
    deviation = uniformity([2, 2], [0.0, 0.5], np.array([1.0, 1.0]), {"work": np.array([0.0, 1.0])})
    assert deviation.worst == pytest.approx(0.25)
    # With all calls of a first, the deviation would be a half.
    assert uniformity([1, 1], [0.0, 0.5], np.array([2.0, 2.0]), {"work": np.array([0.0, 1.0])}).worst == pytest.approx(
        0.5
    )
    even = uniformity([40], [0.0], np.array([0.25]), {"work": np.array([3.0])})
    assert even.worst == pytest.approx(0, abs=1e-12)
    assert even.window_s == 1
    assert even.window_cov["work"] == pytest.approx(0, abs=1e-9)


def test_windows_vary_as_a_count_by_hand_says() -> None:
    # Each of 20 windows of 1 s has a call of a and one of b, which take 0.5 s each; the phases put a before b.
    deviation = uniformity([20, 20], [0.0, 0.5], np.array([0.5, 0.5]), {"work": np.array([0.0, 2.0])})
    assert deviation.window_cov["work"] == pytest.approx(0, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_searched_phases_are_no_worse_than_golden_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    calls = rng.integers(2, 60, 30).tolist()
    seconds = rng.uniform(1e-4, 1e-3, 30)
    sums = {"bytes": rng.exponential(size=30)}
    phases, deviation = best_phases(calls, seconds, sums)
    assert deviation.worst <= uniformity(calls, golden_phases(30), seconds, sums).worst
    assert np.all(phases * 2**24 == np.floor(phases * 2**24))


def test_millions_of_calls_are_gone_through_in_pieces() -> None:
    calls = [500_000, 300_000, 400_001]
    pieces = list(sequence(calls, golden_phases(3), at_once=100_000))
    assert max(len(p) for p in pieces) <= 110_000
    assert sum(np.bincount(p, minlength=3) for p in pieces).tolist() == calls
