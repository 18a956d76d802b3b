"""likwid-bench. The fixture is a real run of LIKWID 5.2.2 (`-t triad -W N:16MB:1 -s 1`) on a busy virtual machine."""

from __future__ import annotations

import re

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, records_of, results_of

TEXT = fixture("likwid_bench.txt")


def test_rate_and_cycles_are_those_printed() -> None:
    records = {r.metric: r for r in records_of(TEXT)}
    assert {k: r.value for k, r in records.items()} == pytest.approx(
        {
            "bandwidth_net": 1220.05e6,
            "flop_rate": 76.25e6,
            "cycles_per_update": 68.091582,
            "cpu_clock": 2596095221.0,
            "elapsed": 6.714486,
        }
    )
    rate = records["bandwidth_net"]
    assert rate.instrument == "bandwidth" and rate.conditions["kernel"] == "vector_triad"
    assert rate.conditions["threads"] == 1 and rate.conditions["footprint_bytes"] == 16_000_000


def test_the_name_of_the_test_gives_kernel_stores_and_instructions() -> None:
    (rate, *_) = records_of(TEXT.replace("Test: triad", "Test: stream_mem_sse"))
    assert rate.conditions["kernel"] == "triad" and rate.conditions["isa"] == "sse2"
    assert rate.conditions["store"] == "streaming"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("MByte/s:\t\t1220.05", "MByte/s:\t\t12e0.e5", "MByte/s: found '12e0.e5', a number is required"),
        ("MByte/s:\t\t1220.05", "MByte/s:\t\t220.05", "do not give the rate; a number is damaged"),
        ("Data volume", "Data", "the run has no 'Data volume (Byte):'"),
        ("Using 1 threads", "Using 2 threads", "found 1 lines 'Group"),
    ],
)
def test_a_damaged_run_is_left_out_of_several(old: str, new: str, reason: str) -> None:
    with pytest.raises(FormatError, match=re.escape(reason)):
        results_of(TEXT.replace(old, new))
    results = results_of(TEXT + TEXT.replace(old, new) + TEXT)
    assert len(results.records) == 2 * len(records_of(TEXT)) and results.left_out_count == 1


def test_runs_of_version_4_have_another_name_of_the_size() -> None:
    text = TEXT.replace("Size (Byte):", "Size:").replace("hwthread", "core")
    assert [r.value for r in records_of(text)] == [r.value for r in records_of(TEXT)]
