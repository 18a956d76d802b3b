"""c2clat. The fixture is written by hand in the layout that its repository shows."""

from __future__ import annotations

import pytest

from support.imports import fixture, records_of, results_of

TEXT = fixture("c2clat.txt")


def test_each_pair_has_one_time() -> None:
    records = records_of("some shell prompt\n" + TEXT)
    times = {(r.conditions["from_cpu"], r.conditions["to_cpu"]): r.value for r in records}
    assert len(times) == len(records) == 6 and times[1, 3] == pytest.approx(61e-9)
    assert records[0].instrument == "lines" and records[0].conditions["trip"] == "one_way"


def test_a_row_that_is_cut_off_is_left_out_and_its_pairs_come_from_the_other_rows() -> None:
    results = results_of(TEXT.rstrip("\n")[:-6])
    assert len(results.records) == 6 and results.left_out_count == 1
    assert len(records_of(TEXT.rstrip("\n"))) == 6


def test_a_pair_whose_directions_differ_is_left_out() -> None:
    results = results_of(TEXT.replace("   1   31", "   1   32"))
    assert len(results.records) == 5 and "CPUs 0 and 1" in str(results.left_out[0])
