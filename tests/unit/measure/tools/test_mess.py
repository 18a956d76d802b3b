"""Mess. memory_curves.csv is written by hand from the plotter of Mess 2.0, with numbers of no machine; bwlat.txt has
points of the published curve of Graviton 3 with 64 % reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.mess import READERS, read, read_bwlat, recognises, recognises_bwlat

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "mess.csv").read_text(encoding="utf-8")
CURVE = (FIXTURES / "mess_bwlat.txt").read_text(encoding="utf-8")


def test_points_are_those_stored_without_the_points_of_no_bandwidth() -> None:
    assert recognises(TEXT) and not recognises(CURVE) and [r.name for r in READERS] == ["mess", "mess_bwlat"]
    records = read(TEXT, "n042")
    assert len(records) == 2 * 10 and {r.instrument for r in records} == {"loaded"}
    point = [r for r in records if r.conditions["read_share"] == 0.5 and r.conditions["injected_pause"] == 100]
    assert {r.metric: r.value for r in point} == pytest.approx({"bandwidth_net": 121.337e9, "load_latency": 112.05e-9})
    assert point[0].conditions["statistic"] == "mean" and "tool_version" not in point[0].provenance


def test_a_curve_of_the_simulator_has_cycles() -> None:
    assert recognises_bwlat(CURVE) and not recognises_bwlat(TEXT)
    records = read_bwlat(CURVE, "n042")
    second = [r for r in records if r.conditions["point"] == 2]
    assert {r.metric: r.value for r in second} == pytest.approx(
        {"bandwidth_net": 257479.70631953792e6, "load_cycles": 454.0715898779584}
    )
    assert min(r.value for r in records) == pytest.approx(-1219.3302019606165e6), "as published"


def test_other_text_of_two_columns_is_no_curve() -> None:
    assert not recognises_bwlat("0.00049 1.439\n0.00098 1.439\n0.00195 1.439\n0.00293 1.439\n0.00391 1.439\n")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("379.60015198793", "-379.6", "line 4: found '255511"),
        ("98.2547212300698\n", "98.25", "no end of the last line"),
    ],
)
def test_a_damaged_curve_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read_bwlat(CURVE.replace(old, new), "n042")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (",112.05,", ",x,", "line 5: latency_mean: found 'x'"),
        ("121.337,", "", "line 5: found 7 cells, 9 are required"),
        ("latency_mean", "latency_median", "no column latency_mean"),
        ("\n100,20,", "\n400,20,", "a percentage is required"),
        ("214.36\n", "214", "no end of the last line"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
