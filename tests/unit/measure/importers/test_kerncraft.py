"""kerncraft. The fixture is written by hand from the layout of its machine descriptions, with the rates in the
description of the Xeon Gold 5122.
"""

from __future__ import annotations

import pytest

from meshmark.measure.importers.programs.kerncraft import recognises
from support.imports import fixture, results_of, taken_from

TEXT = fixture("kerncraft.yaml")


def test_measurements_are_bandwidths() -> None:
    assert recognises(TEXT)
    records = [r for r in taken_from(TEXT) if r.metric == "bandwidth_net"]
    assert len(records) == 4 * 5 * 4
    rates = {
        (r.conditions["level"], r.conditions["kernel"], r.conditions["threads"], r.conditions["cores"]): r
        for r in records
    }
    load = rates["L1", "read", 1, 1]
    assert load.value == pytest.approx(42.98e9) and load.conditions["footprint_bytes"] == 21120
    assert load.instrument == "bandwidth" and load.provenance["tool_version"] == "0.7.1"
    assert rates["MEM", "copy", 4, 4].value == pytest.approx(37.00e9)
    assert rates["MEM", "schoenauer", 8, 4].value == pytest.approx(44.01e9)
    assert rates["MEM", "daxpy", 8, 4].conditions["threads_per_core"] == 2
    assert rates["L3", "update", 3, 3].value == pytest.approx(122.22e9)


def test_stated_quantities() -> None:
    records = taken_from(TEXT)
    assert {r.conditions["level"]: r.value for r in records if r.metric == "cache_size"} == {
        "L1": 32768,
        "L3": 16.5 * 2**20,
    }
    assert [r.value for r in records if r.metric == "clock"] == pytest.approx([3.6e9])
    double = {r.conditions["operation"]: r.value for r in records if r.conditions.get("precision") == "DP"}
    assert double == {"total": 32, "FMA": 32, "ADD": 16, "MUL": 16}


def test_a_line_size_may_have_a_unit() -> None:
    values = [[r.value for r in taken_from(text)] for text in (TEXT, TEXT.replace("cl_size: 64", "cl_size: 64 B"))]
    assert values[0] == values[1]


def test_rates_that_kerncraft_did_not_know_are_left_out() -> None:
    records = taken_from(TEXT.replace("    MUL: 16", "    MUL: INFORMATION_REQUIRED"))
    assert len([r for r in records if r.metric == "flops_per_cycle"]) == 7


def test_one_level_without_measurements_does_not_lose_the_others() -> None:
    results = results_of(TEXT.replace("    L3:\n", "    L4:\n"))
    levels = {r.conditions["level"] for r in results.records if r.metric == "bandwidth_net"}
    assert levels == {"L1", "MEM"} and results.left_out_count == 1
    assert len(taken_from(TEXT.replace("- 42.98 GB/s", "- INFORMATION_REQUIRED"))) == len(taken_from(TEXT)) - 1
