"""STREAM. The fixture is written by hand from the program's source, with rates of this project's first machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.stream import read, recognises

TEXT = (Path(__file__).parent / "fixtures" / "stream.txt").read_text(encoding="utf-8")


def test_the_best_rates_are_those_printed() -> None:
    assert recognises(TEXT)
    rates = {r.conditions["kernel"]: r for r in read(TEXT, "n042")}
    assert {k: r.value for k, r in rates.items()} == pytest.approx(
        {"copy": 41903.2e6, "scale": 26412.7e6, "add": 28561.0e6, "triad": 28102.4e6}
    )
    triad = rates["triad"]
    assert triad.conditions["threads"] == 2 and triad.conditions["footprint_bytes"] == 3 * 8 * 100_000_000
    assert triad.source == "tool" and triad.machine == "n042" and triad.provenance["tool_version"] == "5.10"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("28102.4", "28..4", "line 30: rate of triad: found '28..4', a number is required"),
        ("28102.4", "0.0", "above 0"),
        ("Array size", "Size", "no array size"),
        ("Triad:", "T:", "found 3 of 4 rates"),
        ("Solution Validates", "Failed Validation", "no 'Solution Validates'"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
