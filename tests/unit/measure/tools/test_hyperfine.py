"""hyperfine. The fixtures are output of version 1.15.0 on this project's first machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.hyperfine import read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "hyperfine.json").read_text(encoding="utf-8")


def test_all_runs_are_samples() -> None:
    assert recognises(TEXT)
    records = read(TEXT, "n042")
    elapsed = [r for r in records if r.metric == "elapsed"]
    assert [len(r.samples) for r in elapsed] == [8, 8]
    assert elapsed[0].value == pytest.approx(0.035235611) and elapsed[0].samples[1] == pytest.approx(0.011453001)
    assert elapsed[1].best == pytest.approx(0.043951272) and elapsed[1].conditions == {"benchmark": "sleep 0.02"}
    assert elapsed[1].provenance["command"] == "sleep 0.02" and elapsed[1].unit == "s"
    user = next(r for r in records if r.metric == "user_time")
    assert user.value == pytest.approx(0.00134375) and user.conditions["statistic"] == "mean"


def test_parameters_are_conditions() -> None:
    text = (FIXTURES / "hyperfine-parameters.json").read_text(encoding="utf-8")
    assert [r.conditions["n"] for r in read(text, "n042") if r.metric == "elapsed"] == [1, 2]


def test_a_parameter_may_have_the_name_of_an_argument() -> None:
    text = (FIXTURES / "hyperfine-parameters.json").read_text(encoding="utf-8").replace('"n":', '"unit":')
    assert read(text, "n042")[0].conditions["unit_"] == 1


def test_runs_that_failed_are_counted() -> None:
    failed = TEXT.replace("        0,", "        1,", 2)
    assert read(failed, "n042")[0].conditions["failures"] == 2


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("        0.011453001,\n", "", "results 1: min: found 0.011453001, the times give 0.0196292"),
        ('"times": [', '"times": ["1",', "value 1: times: found"),
        ("        0\n", "        0,\n        0\n", "exit_codes: found 9, 8 are required"),
        ('"median": 0.035235611', '"median": 0.36', "median: found 0.36, the times give 0.0352356"),
        ('"command": "sleep 0.02"', '"command": 7', "results 2: command: found 7, str is required"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=re.escape(says)):
        read(TEXT.replace(old, new), "n042")
