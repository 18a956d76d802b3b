"""core-to-core-latency.

`core_to_core_latency.csv` is written by hand in the layout of the results that its repository publishes;
`core_to_core_latency-two.csv` is a real run of version 1.2.0 on two CPUs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.core_to_core_latency import read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "core_to_core_latency.csv").read_text(encoding="utf-8")


def test_each_pair_of_cores_has_a_one_way_time() -> None:
    assert recognises(TEXT)
    records = read(TEXT, "n042")
    times = {(r.conditions["from_cpu"], r.conditions["to_cpu"]): r.value for r in records}
    assert len(times) == len(records) == 15
    assert times[0, 1] == pytest.approx(21.4381e-9) and times[2, 3] == pytest.approx(98.1156e-9)
    assert times[4, 5] == pytest.approx(21.5937e-9)
    assert records[0].instrument == "lines" and records[0].conditions["trip"] == "one_way"


def test_two_cores_are_the_smallest_file() -> None:
    assert recognises(",\n25.25,\n") and not recognises("\n25.25\n") and not recognises("a,b\n1,2\n")
    (only,) = read((FIXTURES / "core_to_core_latency-two.csv").read_text(encoding="utf-8"), "n042")
    assert only.value == pytest.approx(110.14e-9)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("97.9102", "97..102", "line 4: column 2: found '97..102', a number is required"),
        ("97.9102", "0.0", "line 4: column 2: found 0.0, a number above 0 is required"),
        ("97.9102,", "", "line 4: .*required: 3 numbers and 3 empty cells"),
        ("98.7719,98.2504,97.8843,22.1608,21.5937,\n", "", "found 5 rows; required: 6"),
        (",,,,,\n21", ",,,,,\n21.0,,,,,\n21", "found 7 rows; required: 6"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
