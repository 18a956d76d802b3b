"""Mess. memory_curves.csv is written by hand from the plotter of Mess 2.0, with invented numbers; bwlat.txt contains
points of the published curve of Graviton 3 with 64 % reads."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.memory.mess import READERS, recognises, recognises_bwlat
from support.imports import fixture, problems_of, results_of, taken_from

TEXT = fixture("mess.csv")
CURVE = fixture("mess_bwlat.txt")


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
    text = (
        "\n".join(f"{line},{'node' if not number else number % 2}" for number, line in enumerate(TEXT.splitlines()))
        + "\n"
    )
    assert {r.conditions["node"] for r in taken_from(text)} == {0, 1}


def test_text_around_and_a_second_header_are_passed_over() -> None:
    results = results_of(f"plotted\n{TEXT}{TEXT}")
    assert len(results.records) == 40 and results.other_lines == 1 and not results.left_out


def test_other_text_of_two_columns_is_no_curve() -> None:
    assert not recognises_bwlat("0.00049 1.439\n0.00098 1.439\n0.00195 1.439\n0.00293 1.439\n0.00391 1.439\n")
