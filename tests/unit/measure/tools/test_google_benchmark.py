"""Google Benchmark. The fixtures are output of a program of three benchmarks with Debian's version 1.7.1."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.google_benchmark import read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "google_benchmark.json").read_text(encoding="utf-8")


def test_the_samples_are_the_repetitions() -> None:
    assert recognises(TEXT)
    records = {(r.conditions["benchmark"], r.metric): r for r in read(TEXT, "n042")}
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
    assert "no device" in TEXT and not [r for r in read(TEXT, "n042") if r.conditions["benchmark"] == "Fails"]


def test_aggregates_alone_are_mean_and_median() -> None:
    text = (FIXTURES / "google_benchmark-aggregates.json").read_text(encoding="utf-8")
    real = {r.conditions["statistic"]: r.value for r in read(text, "n042") if r.metric == "real_time"}
    assert real == pytest.approx({"mean": 2.8338795866754174e-07, "median": 3.1842112400045147e-07})


def test_the_version_is_that_of_newer_files() -> None:
    text = TEXT.replace('"library_build_type"', '"library_version": "v1.9.1", "library_build_type"')
    assert {r.provenance["tool_version"] for r in read(text, "n042")} == {"v1.9.1"}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            '"real_time": 1.1143295449983270e+03',
            '"real_time": "1.1"',
            "real_time: found '1.1', int or float is required",
        ),
        ('"real_time": 1.1143295449983270e+03', '"real_time": 1e999', "a number is required"),
        ('"repetitions": 3', '"repetitions": 4', "found 3 repetitions of 4"),
        ('"time_unit": "us"', '"time_unit": "MB"', "time_unit: found MB; allowed: ns, us, ms, s"),
        ('"run_type": "iteration"', '"run_type": "other"', "run_type: found other; allowed: iteration, aggregate"),
        ('"benchmarks": [', '"benchmarks": ', "line 57: found no JSON"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=re.escape(says)):
        read(TEXT.replace(old, new), "n042")
