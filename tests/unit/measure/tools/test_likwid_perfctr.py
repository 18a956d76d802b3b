"""likwid-perfctr. The fixtures are written by hand from the source and performance groups of LIKWID 5.2.2, with numbers
of no machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.likwid_perfctr import READERS, read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "likwid_perfctr.csv").read_text(encoding="utf-8")


def test_counters_and_metrics_are_those_printed() -> None:
    assert recognises(TEXT) and [r.name for r in READERS] == ["likwid_perfctr"]
    records = {(r.metric, r.conditions["cpu"]): r for r in read(TEXT, "n042")}
    assert records["INSTR_RETIRED_ANY", 1].value == 1601283401
    assert records["INSTR_RETIRED_ANY", 1].conditions["counter"] == "FIXC0"
    read_rate = records["memory_read_bandwidth", 0]
    assert read_rate.value == pytest.approx(6458.3733e6) and read_rate.unit == "B/s" and read_rate.better == "higher"
    assert records["memory_read_data_volume", 0].value == pytest.approx(6.7109e9)
    assert records["clock", 1].value == pytest.approx(3191.3605e6)
    assert read_rate.conditions["group"] == "MEM" and "region" not in read_rate.conditions
    assert ("uncore_clock", 0) not in records, "nan"


def test_regions_of_the_marker_api() -> None:
    records = read((FIXTURES / "likwid_perfctr-region.csv").read_text(encoding="utf-8"), "n042")
    rate = next(r for r in records if r.unit == "flop/s")
    assert rate.value == pytest.approx(864.2489e6) and rate.conditions["region"] == "triad"
    assert len(records) == 8


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("6458.3733", "64..3", "Memory read bandwidth .MBytes/s.: found '64..3'"),
        (
            "Memory write bandwidth [MBytes/s],3229.2626,0,,,\n",
            "",
            "line 21: found 8 of 9 rows",
        ),
        ("TABLE,Group 1 Metric STAT,MEM,9,", "TABLE,Group 1 Metric STAT,MEM,10,", "found 0 cells, 6 are required"),
        ("[MHz]", "[Mhz]", "the unknown unit 'Mhz'"),
        ("HWThread 0", "Thread", "HWThread is required"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
