"""Short vector loops by their length, and reads by the distance of a prefetch."""

from __future__ import annotations

import math
from typing import Any

import pytest

from meshmark.store.record import Record
from meshmark.views.charts.loops import half_length_table, half_lengths, loops, prefetch
from support.made_run import record

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)


def times(half: float, rate: float, *, wrong: float = 0.0, **more: Any) -> list[Record]:
    """Return loops of n elements that take (n + half) / rate, alternately longer and shorter by the share `wrong`."""
    c = {"kernel": "axpy", "isa": "avx2", "cpu": 0, **more}
    return [
        record("loops", "loop_time", (n + half) / rate * (1 + wrong * (-1) ** i), length=n, **c)
        for i, n in enumerate(LENGTHS)
    ]


@pytest.mark.parametrize(("half", "rate"), [(0.5, 1e9), (7.0, 3e9), (40.0, 2e10)])
def test_a_line_is_found_again(half: float, rate: float) -> None:
    (result,) = half_lengths(times(half, rate))
    assert (result.name, result.flags) == ("axpy, avx2", frozenset())
    assert (result.half, result.rate) == pytest.approx((half, rate), rel=0.02)  # medians of scattered samples
    assert result.half_interval == pytest.approx((half, half), rel=0.1)


def test_times_that_are_on_no_line_widen_the_intervals() -> None:
    (result,) = half_lengths(times(7.0, 3e9, wrong=0.1))
    assert result.half_interval[0] < 7.0 < result.half_interval[1]
    assert result.rate_interval[0] < 3e9 < result.rate_interval[1]
    assert 0.5 < result.half_interval[1] - result.half_interval[0] < 14


def test_all_processes_that_measured_a_loop_count() -> None:
    (result,) = half_lengths([*times(4.0, 1e9), *times(12.0, 1e9)])
    assert 4.0 < result.half < 12.0 and result.half_interval[0] < 8.0 < result.half_interval[1]


def test_a_few_lengths_have_no_half_length() -> None:
    assert half_lengths(times(7.0, 3e9)[:3]) == [] and half_length_table(times(7.0, 3e9)[:3]) == ""


def test_every_loop_and_instruction_set_has_a_row() -> None:
    records = [*times(7.0, 3e9), *times(2.0, 1e9, isa="sse2"), *times(2.0, 1e9, kernel="dot")]
    assert [result.name for result in half_lengths(records)] == ["axpy, avx2", "axpy, sse2", "dot, avx2"]
    page = half_length_table(records)
    assert page.count("<tr") >= 4 and "3.00\u00a0Gop/s" in page


def test_rates_and_distances_are_drawn_and_no_prefetch_has_a_place() -> None:
    assert loops([]) is None and prefetch([]) is None
    rates = [record("loops", "element_rate", 1e9 * n, kernel="dot", isa="avx2", length=n, cpu=0) for n in LENGTHS]
    drawing = loops(rates)
    assert drawing is not None and [r["x"] for r in next(iter(drawing.data.values()))] == list(LENGTHS)
    c = {"access": "gather", "threads": 1, "footprint_bytes": 1 << 29, "pages": "thp", "memory_node": "local"}
    reads = [record("prefetch", "access_time", 4e-8 / (1 + math.log2(1 + d)), distance=d, **c) for d in (0, 1, 8)]
    drawing = prefetch(reads)
    assert drawing is not None
    (rows, *_) = drawing.data.values()
    assert [(r["x"], r["ahead"]) for r in rows] == [(0, "0 accesses"), (1, "1 access"), (8, "8 accesses")]
