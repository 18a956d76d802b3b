"""pyperf. The fixture is the output of `pyperf timeit` of version 2.11.0 on this project's first machine."""

from __future__ import annotations

import gzip
import json

import pytest

from meshmark.measure.importers.output import decoded
from meshmark.measure.importers.programs.pyperf import recognises
from support.imports import fixture, results_of, taken_from

TEXT = fixture("pyperf.json")


def test_the_values_of_all_processes_are_samples() -> None:
    assert recognises(TEXT)
    (record,) = taken_from(TEXT)
    assert len(record.samples) == 6 and record.unit == "s" and record.metric == "elapsed"
    assert record.samples[0] == pytest.approx(9.561200204188936e-08)
    assert record.samples[-1] == pytest.approx(1.4040899986866862e-07)
    assert record.conditions["benchmark"] == "sum_10" and record.conditions["loops"] == 1000
    assert record.conditions["python_version"] == "3.11.7 (64-bit)"
    assert record.provenance["tool_version"] == "2.11.0"
    assert record.provenance["start"] == "2026-11-25 18:05:17.343990"


def test_memory_is_in_bytes() -> None:
    (record,) = taken_from(TEXT.replace('"unit":"second"', '"unit":"byte"'))
    assert (record.metric, record.unit, record.better) == ("memory_used", "B", "lower")


def test_a_calibration_has_no_values() -> None:
    calibrated = TEXT.replace('"runs":[', '"runs":[{"warmups":[[1,0.5]]},', 1)
    assert [r.samples for r in taken_from(calibrated)] == [r.samples for r in taken_from(TEXT)]


def test_keys_may_be_in_any_order() -> None:
    text = json.dumps(json.loads(TEXT), sort_keys=True)
    document = json.dumps(dict(reversed(json.loads(TEXT).items())))
    assert (
        [r.samples for r in taken_from(text)]
        == [r.samples for r in taken_from(document)]
        == [taken_from(TEXT)[0].samples]
    )


def test_one_benchmark_that_is_damaged_does_not_lose_the_others() -> None:
    suite = json.loads(TEXT)
    suite["benchmarks"].append({"runs": [], "metadata": {"name": "empty"}})
    results = results_of(json.dumps(suite))
    assert len(results.records) == 1
    assert [str(item) for item in results.left_out] == ["benchmarks 2: found no values, at least 1 is required"]


def test_statements_of_one_name_are_told_apart() -> None:
    suite = json.loads(TEXT)
    suite["metadata"] = {**suite.get("metadata", {}), "timeit_stmt": "'sum(range(7))'"}
    assert taken_from(json.dumps(suite))[0].conditions["timeit_stmt"] == "'sum(range(7))'"


def test_a_compressed_file_is_read() -> None:
    assert decoded(gzip.compress(TEXT.encode())) == TEXT
    assert decoded(b"\x1f\x8bdamaged") == "" and len(decoded(gzip.compress(bytes(70 << 20)))) == 0
