"""HPCG. The fixture is written by hand in the layout of version 3.1, with invented numbers."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, records_of, results_of

TEXT = fixture("hpcg.txt")


def test_rates_and_times_are_read_with_ranks_and_all_threads() -> None:
    records = records_of(TEXT)
    rates = {r.conditions["kernel"]: r.value for r in records if r.unit == "flop/s"}
    assert rates == pytest.approx({"rating": 1.04e9, "spmv": 1.18e9, "total": 1.07e9})
    assert {r.conditions["traffic"]: r.value for r in records if r.unit == "B/s"} == pytest.approx(
        {"read": 6.59e9, "total": 8.11e9}
    )
    assert {r.conditions["kernel"]: r.value for r in records if r.unit == "s"} == pytest.approx(
        {"ddot": 0.447, "mg": 60.5, "total": 72.3}
    )
    common = {"nx": 104, "ny": 104, "nz": 104, "ranks": 2, "threads": 8}
    assert all(common.items() <= r.conditions.items() for r in records)


def test_invalid_runs_and_damaged_values_are_left_out() -> None:
    invalid = TEXT.replace("is VALID with a GFLOP/s rating of=1.04", "is INVALID.=1")
    with pytest.raises(FormatError, match="only results that are VALID"):
        results_of(invalid)
    assert results_of(TEXT + invalid).left_out_count == 1
    damaged = results_of(TEXT.replace("Raw SpMV=1.18", "Raw SpMV=1.x8"))
    assert [str(item) for item in damaged.left_out] == [
        "line 23: GFLOP/s Summary::Raw SpMV: found '1.x8', a number is required"
    ]


def test_the_yaml_of_former_versions_is_read_alike() -> None:
    text = """HPCG-Benchmark version: 3.0
Machine Summary:
  Distributed Processes: 2
  Threads per processes: 4
Local Domain Dimensions:
  nx: 104
GFLOP/s Summary:
  Raw SpMV: 1.18
  Total with convergence overhead: 1.07
__________ Final Summary __________:
  HPCG result is VALID with a GFLOP/s rating of: 1.04
"""
    rates = {r.conditions["kernel"]: r for r in records_of(text)}
    assert {k: r.value for k, r in rates.items()} == pytest.approx({"rating": 1.04e9, "spmv": 1.18e9})
    assert rates["spmv"].conditions["threads"] == 8 and rates["spmv"].provenance["tool_version"] == "3.0"
