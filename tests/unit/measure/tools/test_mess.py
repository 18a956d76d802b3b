"""Mess. memory_curves.csv is written by hand from the plotter of Mess 2.0, with numbers of no machine; bwlat.txt has
points of the published curve of Graviton 3 with 64 % reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.mess import READERS, recognises, recognises_bwlat
from support.imports import problems_of, results_of, taken_from

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "mess.csv").read_text(encoding="utf-8")
CURVE = (FIXTURES / "mess_bwlat.txt").read_text(encoding="utf-8")


def test_points_are_those_stored_without_the_points_of_no_bandwidth() -> None:
    assert recognises(TEXT) and not recognises(CURVE) and [r.name for r in READERS] == ["mess", "mess_bwlat"]
    records = taken_from(TEXT)
    assert len(records) == 2 * 10 and {r.instrument for r in records} == {"loaded"}
    point = [r for r in records if r.conditions["read_share"] == 0.5 and r.conditions["injected_pause"] == 100]
    assert {r.metric: r.value for r in point} == pytest.approx({"bandwidth_net": 121.337e9, "load_latency": 112.05e-9})
    assert point[0].conditions["statistic"] == "mean" and "tool_version" not in point[0].provenance


def test_a_curve_of_the_simulator_has_cycles() -> None:
    assert recognises_bwlat(CURVE) and not recognises_bwlat(TEXT)
    records = taken_from(CURVE)
    second = [r for r in records if r.conditions["point"] == 2]
    assert {r.metric: r.value for r in second} == pytest.approx(
        {"bandwidth_net": 257479.70631953792e6, "load_cycles": 454.0715898779584}
    )


def test_impossible_points_are_left_out() -> None:
    negative = CURVE.replace("257479.70631953792 ", "-1219.3302019606165 ")
    assert len(taken_from(negative)) == len(taken_from(CURVE)) - 2
    assert problems_of(negative) == ["line 2: bandwidth: found -1219.3302019606165, a number above 0 is required"]
    for old, new in (("121.337,", "-121.337,"), (",112.05,", ",-112.05,"), (",112.05,", ",0.0,"), ("121.337", "1e305")):
        results = results_of(TEXT.replace(old, new, 1))
        assert len(results.records) == 18 and [item.where for item in results.left_out] == ["line 5"]


def test_columns_that_are_not_known_are_conditions() -> None:
    text = "\n".join(f"{line},{'node' if not at else at % 2}" for at, line in enumerate(TEXT.splitlines())) + "\n"
    assert {r.conditions["node"] for r in taken_from(text)} == {0, 1}


def test_text_around_and_a_second_header_are_passed_over() -> None:
    results = results_of(f"plotted\n{TEXT}{TEXT}")
    assert len(results.records) == 40 and results.other_lines == 1 and not results.left_out


def test_other_text_of_two_columns_is_no_curve() -> None:
    assert not recognises_bwlat("0.00049 1.439\n0.00098 1.439\n0.00195 1.439\n0.00293 1.439\n0.00391 1.439\n")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("379.60015198793", "-379.6", "line 4: latency: found -379.6"),
        ("98.2547212300698\n", "98.25", "a whole bandwidth and a whole latency is required"),
    ],
)
def test_a_damaged_point_of_a_curve_is_left_out(old: str, new: str, says: str) -> None:
    assert any(says in reason for reason in problems_of(CURVE.replace(old, new))), problems_of(CURVE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (",112.05,", ",x,", "line 5: latency_mean: found 'x'"),
        ("121.337,", "", "line 5: found 7 cells, 9 are required"),
        ("latency_mean", "latency_median", "found no column latency_mean"),
        ("\n100,20,", "\n400,20,", "a percentage is required"),
    ],
)
def test_what_is_damaged_is_left_out(old: str, new: str, says: str) -> None:
    assert old in TEXT
    assert any(says in reason for reason in problems_of(TEXT.replace(old, new))), problems_of(TEXT.replace(old, new))
