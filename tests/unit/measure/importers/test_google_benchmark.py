"""Google Benchmark. The fixtures are the output of a program with three benchmarks and Debian's version 1.7.1."""

from __future__ import annotations

import json

import pytest

from meshmark.measure.importers.programs.google_benchmark import recognises
from support.imports import fixture, reasons_of, records_of, results_of, taken_from

TEXT = fixture("google_benchmark.json")


def test_the_samples_are_the_repetitions() -> None:
    assert recognises(TEXT)
    records = {(r.conditions["benchmark"], r.metric): r for r in taken_from(TEXT)}
    time = records["Copy/4096/real_time/threads:2", "real_time"]
    assert time.samples == pytest.approx([1.1143295449983270e-06, 1.5645900199979226e-06, 1.5535932399961894e-06])
    assert time.unit == "s" and time.conditions["threads"] == 2
    assert time.provenance["command"] == "./b" and time.provenance["start"] == "2026-11-25T18:05:06+00:00"
    rate = records["Copy/1048576/real_time/threads:2", "bytes_per_second"]
    assert rate.value == pytest.approx(4.3316251739863182e10) and (rate.unit, rate.better) == ("B/s", "higher")
    divisions = records["Div", "cpu_time"]
    assert divisions.value == pytest.approx(6.0620915155713507e-09) and divisions.conditions["label"] == "one division"
    assert records["Copy/4096/real_time/threads:2", "misses"].samples == (6, 6, 6)


def test_a_benchmark_that_failed_has_no_record() -> None:
    assert "no device" in TEXT and not [r for r in taken_from(TEXT) if r.conditions["benchmark"] == "Fails"]


def test_a_counter_that_is_no_number_loses_itself_only() -> None:
    for number in ("NaN", "-Infinity", "nan", "-nan", "inf"):
        results = results_of(TEXT.replace('"misses": 6.0000000000000000e+00', f'"misses": {number}', 1))
        assert len(results.records) == len(taken_from(TEXT)) - 1, number
        assert str(results.left_out[0]).startswith("Copy/4096/real_time/threads:2: misses: found 'nan'"[:42])


def test_a_repetition_that_is_missing_is_reported() -> None:
    results = results_of(TEXT.replace('"repetitions": 3', '"repetitions": 4', 1))
    assert len(results.records) == len(taken_from(TEXT))
    assert "found 3 repetitions of 4" in results.left_out[0].reason


def entry(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "iterations": 10, "real_time": 2.0, "cpu_time": 1.0, "time_unit": "ns", **more}


def report(*entries: dict[str, object], **context: object) -> str:
    defaults = {"date": "2025-01-01", "num_cpus": 8, "mhz_per_cpu": 3000}
    return json.dumps({"context": {**defaults, **context}, "benchmarks": entries})


def test_threads_of_old_versions_are_in_the_name() -> None:
    text = report(entry("BM_copy/1024"), entry("BM_copy/1024/threads:4"))
    assert [r.conditions["threads"] for r in taken_from(text)] == [1, 1, 4, 4]


def test_fits_of_complexity_are_not_read() -> None:
    fit_entries = [
        {"name": "BM_BigO", "cpu_coefficient": 672, "big_o": "N", "time_unit": "ns"},
        {"name": "BM_RMS", "rms": 0},
    ]
    results = results_of(report(entry("BM/8"), *fit_entries))
    assert len(results.records) == 2 and not results.left_out


def test_statistics_of_the_author_are_read() -> None:
    aggregate = {"run_name": "BM", "run_type": "aggregate", "aggregate_unit": "time", "threads": 1}
    names = ("mean", "max", "stddev")
    text = report(*(entry(f"BM_{name}", aggregate_name=name, **aggregate) for name in names))
    assert {r.conditions["statistic"] for r in taken_from(text)} == {"mean", "max"}


def test_what_the_user_added_to_the_context_is_a_condition() -> None:
    (first, *_) = taken_from(report(entry("BM"), compiler="gcc-12", library_build_type="debug"))
    assert first.conditions["compiler"] == "gcc-12" and first.conditions["library_build_type"] == "debug"


def test_a_context_that_is_not_an_object_states_nothing() -> None:
    for context in (None, [1], "x"):
        assert len(taken_from(json.dumps({"context": context, "benchmarks": [entry("BM")]}))) == 2


def test_csv() -> None:
    header = "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label"
    header += ",error_occurred,error_message"
    rows = [
        '"BM_copy/1024/threads:2",1000,12.5,12.4,ns,8.192e+10,,,,,7',
        '"BM_copy/1024/threads:2",1000,13.5,13.4,ns,8.1e+10,,,,,8',
        '"BM_bad",,,,,,,,true,"no device",',
        '"BM_neg",1000,-12.5,12.4,ns,,,,,,nan',
        '"BM_copy_BigO",,0.01,0.01,N,,,,,,',
    ]
    results = results_of("Running ./b\n" + "\n".join((header + ',"misses"', *rows)) + "\n")
    records = {(r.conditions["benchmark"], r.metric): r for r in results.records}
    assert records["BM_copy/1024/threads:2", "real_time"].samples == pytest.approx([12.5e-9, 13.5e-9])
    assert records["BM_copy/1024/threads:2", "misses"].samples == (7, 8)
    assert records["BM_copy/1024/threads:2", "bytes_per_second"].unit == "B/s"
    assert records["BM_neg", "cpu_time"].conditions["threads"] == 1 and len(records) == 5
    assert [item.where for item in results.left_out] == ["line 5", "BM_neg", "BM_neg"]


def test_keys_may_be_in_any_order_and_runs_may_be_appended() -> None:
    text = json.dumps(json.loads(report(entry("BM"))), sort_keys=True)
    assert recognises(text[: text.index('"context"')]) and len(taken_from(f"Running ./b\n{text}\n{text}\n")) == 4


def test_aggregates_alone_are_mean_and_median() -> None:
    text = fixture("google_benchmark-aggregates.json")
    times = {r.conditions["statistic"]: r.value for r in taken_from(text) if r.metric == "real_time"}
    assert times == pytest.approx({"mean": 2.8338795866754174e-07, "median": 3.1842112400045147e-07})


def test_the_version_is_that_of_newer_files() -> None:
    text = TEXT.replace('"library_build_type"', '"library_version": "v1.9.1", "library_build_type"')
    assert {r.provenance["tool_version"] for r in taken_from(text)} == {"v1.9.1"}


CONSOLE = """Run on (8 X 4200 MHz CPU s)
-----------------------------------------------------------------------------
Benchmark                   Time             CPU   Iterations UserCounters...
-----------------------------------------------------------------------------
BM_copy/8                1.05 ns         1.05 ns    663123456 bytes_per_second=7.11G/s
BM_copy/64/threads:4     12.5 us         50.0 us        13996 bytes_per_second=38Gi/s items_per_second=1.5M/s a label
BM_broken                ERROR OCCURRED: 'no device'
BM_sum_BigO              2.50 N          2.50 N
BM_sum_RMS                  3 %             3 %
"""


def test_the_text_has_times_and_counters_of_certain_prefix() -> None:
    records = taken_from(CONSOLE)
    values = {(r.conditions["benchmark"], r.metric): r.value for r in records}
    assert values["BM_copy/8", "real_time"] == pytest.approx(1.05e-9)
    assert values["BM_copy/64/threads:4", "cpu_time"] == pytest.approx(50e-6)
    assert values["BM_copy/64/threads:4", "bytes_per_second"] == 38 * 2**30
    assert values["BM_copy/64/threads:4", "items_per_second"] == 1.5e6 and len(values) == 6
    threads = {(r.conditions["threads"], r.conditions.get("label")) for r in records}
    assert threads == {(1, None), (4, "a label")}
    assert reasons_of(CONSOLE) == [
        "line 5: bytes_per_second: found 7.11G/s; the prefix may be decimal or binary",
        "line 7: BM_broken: no device",
    ]


def test_runs_in_one_text_and_columns_of_counters() -> None:
    text = "Benchmark      Time    CPU Iterations  items_per_second\nBM_a   1.0 ns   1.0 ns   100  2k/s\n" * 2
    rates = [r.value for r in records_of(text) if r.metric == "items_per_second"]
    assert rates == [2000, 2000]
