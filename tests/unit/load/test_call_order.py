"""The order of the calls of a synthetic program: evenly spread, as a heap of next times gives it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshmark.load.order import best_phases, golden_phases, sequence, uniformity


def heap_order(calls: Sequence[int], phases: Sequence[float]) -> list[int]:
    """As an executor does it: the least time first, ties by index."""
    heap = [((0 + phi) / n, k, 0) for k, (n, phi) in enumerate(zip(calls, phases, strict=True))]
    heapq.heapify(heap)
    out = []
    while heap:
        _, k, c = heapq.heappop(heap)
        out.append(k)
        if c + 1 < calls[k]:
            heapq.heappush(heap, ((float(c + 1) + phases[k]) / float(calls[k]), k, c + 1))
    return out


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 200), st.booleans())
@example([7, 7, 7, 14], 5, True)
def test_the_order_is_that_of_a_heap_of_next_times(calls: list[int], at_once: int, tied: bool) -> None:
    phases = [0.0] * len(calls) if tied else golden_phases(len(calls)).tolist()
    pieces = list(sequence(calls, phases, at_once))
    together = np.concatenate(pieces).tolist()
    assert together == heap_order(calls, phases)
    assert [together.count(k) for k in range(len(calls))] == calls


def test_phases_are_multiples_of_a_power_of_two_and_spread() -> None:
    phases = golden_phases(1000)
    assert np.all(phases * 2**24 == np.floor(phases * 2**24))
    assert phases[1] == pytest.approx(0.618034, abs=1e-6)
    assert np.diff(np.sort(phases)).max() < 3 / 1000


def test_deviation_is_that_of_a_count_by_hand() -> None:
    # a, b, a, b; b does all the work: after a, none of it is done at 1/4 of the time, after b half of it at 1/2.
    found = uniformity([2, 2], [0.0, 0.5], np.array([1.0, 1.0]), {"work": np.array([0.0, 1.0])})
    assert found.worst == pytest.approx(0.25)
    # All of a first would be half of the time off.
    assert uniformity([1, 1], [0.0, 0.5], np.array([2.0, 2.0]), {"work": np.array([0.0, 1.0])}).worst == pytest.approx(
        0.5
    )
    even = uniformity([40], [0.0], np.array([0.25]), {"work": np.array([3.0])})
    assert even.worst == pytest.approx(0, abs=1e-12)
    assert even.window_s == 1
    assert even.window_cov["work"] == pytest.approx(0, abs=1e-9)


def test_windows_vary_as_a_count_by_hand_says() -> None:
    # 20 windows of 1 s with a call of a and one of b of 0.5 s each, but the phases put b's first call last.
    found = uniformity([20, 20], [0.0, 0.5], np.array([0.5, 0.5]), {"work": np.array([0.0, 2.0])})
    assert found.window_cov["work"] == pytest.approx(0, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_searched_phases_are_no_worse_than_golden_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    calls = rng.integers(2, 60, 30).tolist()
    seconds = rng.uniform(1e-4, 1e-3, 30)
    sums = {"bytes": rng.exponential(size=30)}
    phases, found = best_phases(calls, seconds, sums)
    assert found.worst <= uniformity(calls, golden_phases(30), seconds, sums).worst
    assert np.all(phases * 2**24 == np.floor(phases * 2**24))


def test_millions_of_calls_are_gone_through_in_pieces() -> None:
    calls = [500_000, 300_000, 400_001]
    pieces = list(sequence(calls, golden_phases(3), at_once=100_000))
    assert max(len(p) for p in pieces) <= 110_000
    assert sum(np.bincount(p, minlength=3) for p in pieces).tolist() == calls
