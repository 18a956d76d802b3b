"""JUBE. The fixtures are the output of version 2.7.1 for a benchmark of two work packages."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.programs.jube import recognises
from support.imports import fixture, problems_of, results_of, taken_from

TEXT = fixture("jube.csv")


PRETTY = fixture("jube-pretty.txt")


def test_columns_with_a_unit_are_values() -> None:
    assert recognises(TEXT)
    records = taken_from(TEXT)
    rate, mean, maximum, elapsed = records[:4]
    assert rate.value == pytest.approx(21000.5e6) and (rate.metric, rate.unit) == ("rate", "B/s")
    assert rate.conditions == {"threads": 1, "size": 100}
    assert mean.value == pytest.approx(21050.5e6) and mean.conditions["statistic"] == "mean"
    assert maximum.value == pytest.approx(21100.5e6) and maximum.conditions["statistic"] == "maximum"
    assert elapsed.value == pytest.approx(0.25) and elapsed.better == "lower"
    assert [r.conditions["threads"] for r in records] == 4 * [1] + 4 * [2]


def test_a_pretty_table() -> None:
    assert recognises(PRETTY)
    assert [r.value for r in taken_from(PRETTY)] == pytest.approx(2 * [21000.5e6, 21050.5e6, 0.25])


def test_sizes_are_conditions() -> None:
    assert taken_from(TEXT.replace("size", "size[KiB]"))[0].conditions["size_bytes"] == 102400


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "threads,1,2\ncopy[MB/s],21000.5,21000.5\n", "", "time [s],n\n1,2\n"])
def test_other_tables_are_not_recognised(text: str) -> None:
    assert not recognises(text)


def test_a_damaged_row_of_a_pretty_table_is_left_out() -> None:
    results = results_of(PRETTY.replace("|       2 |", "|"))
    assert len(results.records) == 3
    assert [str(item) for item in results.left_out] == ["line 5: found 4 cells, 5 are required by the header"]


@pytest.mark.parametrize(
    ("cell", "unit"), [("-0.25", "s"), ("0", "s"), ("-5", "MB/s"), ("1e305", "GB/s"), ("-1", "KiB")]
)
def test_impossible_values_are_left_out(cell: str, unit: str) -> None:
    results = results_of(f"n,a[{unit}],b[s]\n1,{cell},2\n2,3,4\n")
    assert [r.metric for r in results.records if r.conditions["n"] == 2][-1] == "b"
    assert [item.where for item in results.left_out] == ["line 2"]


def test_several_tables_are_told_apart() -> None:
    records = taken_from(f"first:\n{TEXT}\nsecond:\n{TEXT}")
    assert [r.conditions["table"] for r in records] == 8 * ["first"] + 8 * ["second"]


def test_other_marks_and_text_before_the_table() -> None:
    assert [r.value for r in taken_from(TEXT.replace(",", ";"))] == [r.value for r in taken_from(TEXT)]
    assert len(taken_from(f"jube 2.7.1 started\n\n{PRETTY}")) == 6
    aligned = "threads | rate[MB/s]\n--------+-----------\n      1 |    21000.5\n      2 |    22000.5\n"
    assert [r.value for r in taken_from(aligned)] == pytest.approx([21000.5e6, 22000.5e6])


def test_the_last_number_of_a_table_that_is_cut_off_is_not_certain() -> None:
    text = "n,a[s],b[s]\n1,0.25,0.5\n2,0.25,0.5"
    assert len(taken_from(text)) == 3 and problems_of(text) == ["line 3: b: found no end of the line; it is cut off"]
