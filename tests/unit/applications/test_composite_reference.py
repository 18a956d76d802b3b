"""Tests of files of composites: a reference alone, and members that are instruments."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.applications.composite import read_composite, read_reference
from meshmark.applications.verification import by_pattern
from meshmark.errors import UsageError

REFERENCE = """
[reference]
machine = "old"
source = "a report"
figure = [{ member = "a", unit = "B/s", runs = [1, 2.5] }, { member = "b", unit = "s", runs = 3 }]
"""


def test_a_file_may_have_the_reference_alone(tmp_path: Path) -> None:
    file = tmp_path / "reference.toml"
    file.write_text(REFERENCE)
    reference = read_reference(file)
    assert (reference.machine, reference.source) == ("old", "a report")
    assert reference.runs == {"a": (1.0, 2.5), "b": (3.0,)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "reference: missing"),
        ("name = 'x'", "reference: missing"),
        ("reference = 3", "reference: found 3; allowed: a table with machine, source, figure"),
        (REFERENCE.replace("2.5", "0"), "reference.figure[0].runs[1]: found 0; allowed: a number above 0"),
        (REFERENCE.replace("source", "sources"), "reference.sources: unknown key; did you mean source?"),
        ("[reference]\nmachine = 'x'\nfigure = []", "reference.figure: found []"),
    ],
)
def test_another_file_is_refused_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "reference.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as refusal:
        read_reference(file)
    assert str(refusal.value).startswith(f"{file}: {message}")


RESULT = '{"metric": "unit_time", "value": 1e-09, "flags": [%s]}\n'
ABSENT = "absent: %s: the budget of 0.1 s ended before its first sample (to enable: a larger --budget)\n"


@pytest.mark.parametrize(
    ("output", "is_verified"),
    [
        (RESULT % "", True),
        (RESULT % '"disturbed"', True),
        (RESULT % "" + "absent: kernels: the processor does not count this event\n", True),
        (RESULT % '"unverified"', False),
        ("", False),
        (RESULT % "" + RESULT % "", False),
        (RESULT % "" + ABSENT % "unit_time at kernel copy", False),  # the only result of two points
    ],
)
def test_an_instrument_must_have_one_result(tmp_path: Path, output: str, is_verified: bool) -> None:
    file = tmp_path / "composite.toml"
    file.write_text('[[member]]\ninstrument = "kernels"\nmetric = "unit_time"\n')
    (member,) = read_composite(str(file)).members
    assert (by_pattern(member.application.verify, output) == "") == is_verified
