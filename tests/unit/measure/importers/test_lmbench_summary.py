"""lmbench's summary. The fixture is written by hand in the layout of version 3, with invented numbers."""

from __future__ import annotations

import pytest

from support.imports import fixture, records_of, results_of

TEXT = fixture("lmbench_summary.txt")


def test_cells_are_named_by_the_words_above_them() -> None:
    values = {(r.conditions["operation"], r.unit): r.value for r in records_of(TEXT)}
    expected = {
        ("null call", "s"): 0.11e-6,
        ("null I/O", "s"): 0.17e-6,
        ("stat", "s"): 0.71e-6,
        ("sh proc", "s"): 1304e-6,
        ("Mmap Latency", "s"): 12900e-6,
        ("Page Fault", "s"): 5.0748e-6,
        ("AF UNIX", "B/s"): 8288e6,
        ("Mem read", "B/s"): 13e9,
        ("Bcopy (hand)", "B/s"): 6214.8e6,
        ("L1 $", "s"): 1.542e-9,
        ("Main mem", "s"): 26.1e-9,
        ("Rand mem", "s"): 139.1e-9,
    }
    assert {k: values[k] for k in expected} == pytest.approx(expected)
    assert len(values) == 10 + 4 + 9 + 4
    assert {r.conditions["host"] for r in records_of(TEXT)} == {"n042"}


def test_a_damaged_row_is_left_out_and_cells_that_were_not_measured_are_none() -> None:
    results = results_of(TEXT.replace("0.71 1.33", "0.x1 1.33").replace(" 5.4010", "   -   "))
    assert len(results.records) == len(records_of(TEXT)) - 10 - 1
    assert [str(item) for item in results.left_out] == ["line 20: stat: found '0.x1', a number is required"]
