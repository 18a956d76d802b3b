"""pyperf. The fixture is output of `pyperf timeit` of version 2.11.0 on this project's first machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.pyperf import read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "pyperf.json").read_text(encoding="utf-8")


def test_the_values_of_all_processes_are_samples() -> None:
    assert recognises(TEXT)
    (record,) = read(TEXT, "n042")
    assert len(record.samples) == 6 and record.unit == "s" and record.metric == "elapsed"
    assert record.samples[0] == pytest.approx(9.561200204188936e-08)
    assert record.samples[-1] == pytest.approx(1.4040899986866862e-07)
    assert record.conditions["benchmark"] == "sum_10" and record.conditions["loops"] == 1000
    assert record.conditions["python_version"] == "3.11.7 (64-bit)"
    assert record.provenance["tool_version"] == "2.11.0"
    assert record.provenance["start"] == "2026-11-25 18:05:17.343990"


def test_memory_is_in_bytes() -> None:
    (record,) = read(TEXT.replace('"unit":"second"', '"unit":"byte"'), "n042")
    assert (record.metric, record.unit, record.better) == ("memory_used", "B", "lower")


def test_a_calibration_has_no_values() -> None:
    calibrated = TEXT.replace('"runs":[', '"runs":[{"warmups":[[1,0.5]]},', 1)
    assert read(calibrated, "n042") == read(TEXT, "n042")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("9.561200204188936e-08", '"fast"', "runs 1: value 1: values: found"),
        ('"values"', '"value"', "found no values, at least 1 is required"),
        ('"version":"1.0"', '"version":"7.0"', "version: found 7.0, 1.0 is required"),
        ('"unit":"second"', '"unit":"apple"', "unit: found apple; allowed: second, byte, integer"),
        ('"name":"sum_10"', '"title":"sum_10"', "benchmarks 1: name: found None, str is required"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=re.escape(says)):
        read(TEXT.replace(old, new), "n042")
