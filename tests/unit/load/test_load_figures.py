"""Figures of a run: fairness, slowdowns with intervals, spans that fill the time."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError
from meshmark.load.journal import spans_of
from meshmark.load.lanes import shares
from meshmark.load.result import jain, rank_sum_bound, slowdown


def test_jain_is_one_where_all_are_alike_and_one_nth_where_one_has_all() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert math.isnan(jain([]))


def test_the_bound_of_a_rank_sum_is_that_of_all_arrangements() -> None:
    for n, m in ((3, 3), (4, 4), (5, 6), (2, 9)):
        counts: dict[int, int] = {}
        for ranks in itertools.combinations(range(n + m), n):
            u = sum(ranks) - n * (n - 1) // 2
            counts[u] = counts.get(u, 0) + 1
        total = math.comb(n + m, n)
        k = rank_sum_bound(n, m)
        below = sum(c for u, c in counts.items() if u < k) / total
        assert 1 - 2 * below >= 0.95 or k == 0
        below += counts.get(k, 0) / total
        assert k == n * m // 2 or 1 - 2 * below < 0.95
    assert rank_sum_bound(3, 3) == 0
    assert rank_sum_bound(4, 4) == 1


def test_a_slowdown_has_an_interval_once_there_are_runs_enough() -> None:
    assert slowdown([10.0], [12.0]).interval is None
    got = slowdown([10.0, 10.1, 9.9, 10.0, 10.05], [12.4, 12.5, 12.6, 12.5, 12.45])
    assert got.ratio == pytest.approx(1.25, abs=0.01)
    assert got.interval is not None
    assert got.interval[0] < got.ratio < got.interval[1]
    with pytest.raises(MeshmarkError):
        slowdown([], [1.0])
    with pytest.raises(MeshmarkError):
        slowdown([0.0], [1.0])


def test_spans_fill_the_time_and_what_was_waited_before_is_put_before() -> None:
    # Asleep for 1 s, then a look during which it only waited, then one that tells 0.15 s of waiting.
    looks = [[1.1, "R", 0, 0, 0, 0, 0], [1.2, "R", 1, 40_000_000, 150_000_000, 3, 1], [1.3, "S", 1, 0, 0, 0, 0]]
    spans, moves, ran_on = spans_of(looks, 0.0, 1.4, 0.0, 0.1)
    assert moves == 1
    assert ran_on == (1,)
    assert spans[0].from_s == 0
    assert spans[-1].to_s == 1.4
    assert all(a.to_s == b.from_s for a, b in itertools.pairwise(spans))
    for s in spans:
        assert s.user_s + s.system_s + s.waiting_s + s.sleeping_s == pytest.approx(s.wall_s)
    assert sum(s.waiting_s for s in spans) == pytest.approx(0.15)
    assert sum(s.user_s for s in spans) == pytest.approx(0.03)
    assert sum(s.system_s for s in spans) == pytest.approx(0.01)
    assert [s.moved for s in spans].count(True) == 1


look = st.tuples(
    st.floats(0.005, 0.4),
    st.sampled_from("RSD"),
    st.integers(0, 3),
    st.integers(0, 120_000_000),
    st.integers(0, 300_000_000),
    st.integers(0, 12),
    st.integers(0, 12),
)


@given(st.lists(look, max_size=30))
def test_spans_never_hold_more_than_their_time(steps: list[tuple[Any, ...]]) -> None:
    at, looks = 0.0, []
    for width, *rest in steps:
        at += width
        looks.append([at, *rest])
    spans, _, _ = spans_of(looks, 0.0, at + 0.1 if looks else None, 0.0, 0.1)
    for s in spans:
        assert min(s.user_s, s.system_s, s.waiting_s, s.sleeping_s) >= -1e-12
        assert s.user_s + s.system_s + s.waiting_s <= s.wall_s + 1e-9
        assert s.user_s + s.system_s + s.waiting_s + s.sleeping_s == pytest.approx(s.wall_s, abs=1e-9)
    assert all(a.to_s == b.from_s for a, b in itertools.pairwise(spans))
    if spans:
        bins = shares(spans, 0.0, spans[-1].to_s, 17)
        assert sum(sum(b) for b in bins) * spans[-1].to_s / 17 == pytest.approx(spans[-1].to_s, rel=1e-6)
