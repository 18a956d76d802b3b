"""ReFrame. The log and the report are output of version 4.10.4 with a test of two cases, of which one misses its
reference; the log of version 3 is written by hand from that version's documentation.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.reframe import read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "reframe.txt").read_text(encoding="utf-8")


REPORT = (FIXTURES / "reframe-report.json").read_text(encoding="utf-8")
OLD = (FIXTURES / "reframe-3.txt").read_text(encoding="utf-8")


def test_a_log_with_a_header() -> None:
    assert recognises(TEXT)
    copy, elapsed, missed, _ = read(TEXT, "n042")
    assert copy.metric == "copy" and copy.value == pytest.approx(41000.5e6) and copy.unit == "B/s"
    assert copy.conditions == {
        "test": "tiny",
        "n": 1,
        "system": "generic",
        "partition": "default",
        "environ": "builtin",
        "ranks": 1,
    }
    assert elapsed.value == pytest.approx(0.25) and elapsed.better == "lower"
    assert elapsed.provenance["start"] == "2026-11-25T18:05:41"
    assert missed.value == pytest.approx(82001.0e6) and missed.conditions["result"] == "fail"


def test_a_log_with_commas() -> None:
    text = TEXT.replace("|", ",")
    assert recognises(text) and [r.value for r in read(text, "n042")] == [r.value for r in read(TEXT, "n042")]


def test_the_report_has_the_values_of_the_log() -> None:
    assert recognises(REPORT)
    records = read(REPORT, "n042")
    assert [(r.metric, r.value, r.conditions) for r in records] == [
        (r.metric, r.value, r.conditions) for r in read(TEXT, "n042")
    ]
    assert records[0].provenance["tool_version"] == "4.10.4"


def test_a_log_of_version_3() -> None:
    assert recognises(OLD)
    records = read(OLD, "n042")
    assert [r.value for r in records] == pytest.approx([18440.8e6, 14043.1e6, 18391.2e6, 14101.7e6])
    assert records[1].metric == "triad" and records[1].conditions["partition"] == "compute"
    assert records[1].provenance["tool_version"] == "3.10.1"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"num_cases": 2', '"num_cases": 3', "runs 1: found 2 of 3 testcases"),
        ("41000.5,", '"fast",', "copy: found 'fast', int or float is required"),
        ('"testcases"', '"cases"', "runs 1: testcases: found None, list is required"),
    ],
)
def test_a_damaged_report_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(FormatError, match=re.escape(says)):
        read(REPORT.replace(old, new), "n042")


def test_a_damaged_log_of_version_3_is_refused() -> None:
    with pytest.raises(FormatError, match=r"line 2: found '2022-10-18T21:41:25.* 7 cells with jobid="):
        read(OLD.replace("jobid=4123|triad", "triad"), "n042")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("|82001.0|", "|8200l|", "line 3: copy_value: found '8200l', a number is required"),
        ("|82001.0|", "|", "line 3: found 35 cells, 36 are required by the header"),
        ("fail|", "gone|", "line 3: result: found 'gone'; allowed: pass, fail"),
        ("_value", "_val", "line 1: found"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=re.escape(says)):
        read(TEXT.replace(old, new), "n042")
