"""nvbandwidth. The fixture is written by hand from the source of version 0.8, with invented numbers."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, reasons_of, records_of, results_of

TEXT = fixture("nvbandwidth.json")


def test_cells_are_those_stored() -> None:
    cells = {
        (r.conditions["testcase"], r.conditions["row_index"], r.conditions["column_index"]): r for r in records_of(TEXT)
    }
    first = cells["host_to_device_memcpy_ce", 0, 1]
    assert first.value == pytest.approx(55.3318e9) and first.metric == "bandwidth" and first.unit == "B/s"
    assert (first.conditions["row"], first.conditions["direction"], first.conditions["column"]) == ("CPU", "->", "GPU")
    assert first.provenance["tool_version"] == "0.8"
    latency = cells["host_device_latency_sm", 0, 0]
    assert latency.value == pytest.approx(772.58e-9) and latency.better == "lower"


def test_cells_without_a_number_and_waived_tests_are_left_out_and_totals_are_read() -> None:
    records = records_of(TEXT)
    bidirectional = [
        r.value for r in records if str(r.conditions["testcase"]).startswith("device_to_device_bidirectional")
    ]
    assert bidirectional == pytest.approx([552.18e9, 552.71e9])
    assert not any(r.conditions["testcase"] == "device_to_device_latency_sm" for r in records)


def test_unknown_units_and_errors_are_refused() -> None:
    with pytest.raises(FormatError, match=r"\(GB/s\) or \(ns\) is required"):
        results_of(TEXT.replace("(GB/s)", "(MB/s)"))
    with pytest.raises(FormatError, match="such output is not imported"):
        results_of(TEXT.replace('"version": "v0.8"', '"error": "no driver"'))


def test_the_text_has_the_cells_of_each_part() -> None:
    text = """nvbandwidth Version: v0.8
Device 0: NVIDIA H100 80GB HBM3

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.33     55.34

SUM host_to_device_memcpy_ce 110.67

Running device_to_device_bidirectional_memcpy_read_ce.
memcpy CE GPU(row) <-> GPU(column) Read1 bandwidth (GB/s)
           0         1
 0       N/A    276.07
 1    276.36       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_read1 552.43
memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)
           0         1
 0       N/A    551.02
 1    550.9x       N/A

Running host_device_latency_sm.
memory latency SM CPU(row) <-> GPU(column) (ns)
           0
 0    772.58
"""
    results = results_of(text)
    assert [str(item) for item in results.left_out] == [
        "line 21: found '550.9x', a number with two decimals is required"
    ]
    values = {
        (r.conditions["testcase"], r.conditions.get("part"), r.conditions["column_index"]): r for r in results.records
    }
    assert values["host_to_device_memcpy_ce", None, 1].value == pytest.approx(55.34e9)
    assert values["device_to_device_bidirectional_memcpy_read_ce", "read1", 1].value == pytest.approx(276.07e9)
    assert values["device_to_device_bidirectional_memcpy_read_ce", None, 1].value == pytest.approx(551.02e9)
    assert values["host_device_latency_sm", None, 0].value == pytest.approx(772.58e-9)


def test_a_sum_of_too_many_digits_is_left_out() -> None:
    reasons = reasons_of(TEXT.replace('"sum": 110.6583', f'"sum": {"9" * 400}'))
    assert len(reasons) == 1 and "sum: found '9999" in reasons[0]
