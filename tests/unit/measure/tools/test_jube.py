"""JUBE. The fixtures are output of version 2.7.1 with a benchmark of two work packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.jube import read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "jube.csv").read_text(encoding="utf-8")


PRETTY = (FIXTURES / "jube-pretty.txt").read_text(encoding="utf-8")


def test_columns_with_a_unit_are_values() -> None:
    assert recognises(TEXT)
    records = read(TEXT, "n042")
    rate, mean, maximum, elapsed = records[:4]
    assert rate.value == pytest.approx(21000.5e6) and (rate.metric, rate.unit) == ("rate", "B/s")
    assert rate.conditions == {"threads": 1, "size": 100}
    assert mean.value == pytest.approx(21050.5e6) and mean.conditions["statistic"] == "mean"
    assert maximum.value == pytest.approx(21100.5e6) and maximum.conditions["statistic"] == "maximum"
    assert elapsed.value == pytest.approx(0.25) and elapsed.better == "lower"
    assert [r.conditions["threads"] for r in records] == 4 * [1] + 4 * [2]


def test_a_pretty_table() -> None:
    assert recognises(PRETTY)
    assert [r.value for r in read(PRETTY, "n042")] == pytest.approx(2 * [21000.5e6, 21050.5e6, 0.25])


def test_sizes_are_conditions() -> None:
    assert read(TEXT.replace("size", "size[KiB]"), "n042")[0].conditions["size_bytes"] == 102400


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "threads,1,2\ncopy[MB/s],21000.5,21000.5\n", "", "time [s],n\n1,2\n"])
def test_other_tables_are_not_recognised(text: str) -> None:
    assert not recognises(text)


def test_a_damaged_pretty_table_is_refused() -> None:
    with pytest.raises(FormatError, match="line 5: found 4 cells, 5 are required"):
        read(PRETTY.replace("|       2 |", "|"), "n042")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("2,100,21000.5", "2,100,fast", "line 3: rate: found 'fast', a number is required"),
        ("2,100,", "100,", "line 3: found 6 cells, 7 are required by the header"),
        ("0.25,1\n", "0.25,1", "line 3: found no end of the line"),
        ("rate[MB/s]", "rate MB/s", "found no header"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=re.escape(says)):
        read(TEXT.replace(old, new), "n042")
