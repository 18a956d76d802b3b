"""nccl-tests. The fixture is written by hand in the layout of version 2.17, with invented numbers."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, records_of, results_of

TEXT = fixture("nccl_tests.txt")


def test_times_and_rates_are_read_out_of_place_and_in_place() -> None:
    records = records_of(TEXT)
    large = {
        (r.metric, r.conditions["place"]): r.value for r in records if r.conditions.get("message_bytes") == 33554432
    }
    assert large == pytest.approx(
        {
            ("operation_time", "out"): 185.2e-6,
            ("algorithm_bandwidth", "out"): 181.18e9,
            ("bus_bandwidth", "out"): 181.18e9,
            ("operation_time", "in"): 184.9e-6,
            ("algorithm_bandwidth", "in"): 181.47e9,
            ("bus_bandwidth", "in"): 181.47e9,
        }
    )
    common = {"operation": "all_reduce", "ranks": 2, "gpus_per_thread": 2}
    assert all(common.items() <= r.conditions.items() for r in records) and len(records) == 13
    assert records[0].conditions["datatype"] == "float" and records[0].conditions["reduction"] == "sum"


def test_runs_without_a_reduction_and_of_other_collectives_are_told_apart() -> None:
    gather = TEXT.replace("all_reduce", "all_gather").replace("   redop    root", "").replace("     sum      -1", "")
    records = records_of(TEXT + gather)
    assert {r.conditions["operation"] for r in records} == {"all_reduce", "all_gather"}
    assert all(r.conditions["ranks"] == 2 for r in records)


def test_wrong_results_and_cut_rows_are_left_out_and_other_units_refused() -> None:
    wrong = results_of(TEXT.replace("181.18      0 ", "181.18      3 "))
    assert len(wrong.records) == 7 and "#wrong: found '3', 0 is required" in str(wrong.left_out[0])
    cut = results_of(TEXT[: TEXT.index("181.47  181.47") + 10])
    assert len(cut.records) == 6 and cut.left_out_count == 1
    with pytest.raises(FormatError, match=r"\(us\) and \(GB/s\) are required"):
        results_of(TEXT.replace("(GB/s)", "(Gb/s)"))
