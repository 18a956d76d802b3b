"""core-to-core-latency.

`core_to_core_latency.csv` is written by hand in the layout of the results that its repository publishes;
`core_to_core_latency-two.csv` is a real run of version 1.2.0 on two CPUs.
"""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from meshmark.measure.importers.formats import recognised
from support.imports import fixture, records_of, results_of

TEXT = fixture("core_to_core_latency.csv")


def test_each_pair_of_cores_has_a_one_way_time() -> None:
    records = records_of(TEXT)
    times = {(r.conditions["from_cpu"], r.conditions["to_cpu"]): r.value for r in records}
    assert len(times) == len(records) == 15
    assert times[0, 1] == pytest.approx(21.4381e-9) and times[2, 3] == pytest.approx(98.1156e-9)
    assert times[4, 5] == pytest.approx(21.5937e-9)
    assert records[0].instrument == "lines" and records[0].conditions["trip"] == "one_way"


def test_two_cores_are_the_smallest_file() -> None:
    assert recognised("\n25.25\n") == recognised("a,b\n1,2\n") == []
    (record,) = records_of(fixture("core_to_core_latency-two.csv"))
    assert record.value == pytest.approx(110.14e-9)


@pytest.mark.parametrize(
    ("old", "new", "reason", "records"),
    [
        ("97.9102", "97..102", "line 4: core 1: found '97..102', a number is required", 12),
        ("97.9102", "0.0", "line 4: core 1: found 0.0, a number above 0 is required", 12),
        ("97.9102,", "", "line 4: found", 12),
        ("98.7719,98.2504,97.8843,22.1608,21.5937,\n", "", "line 1: the matrix has 5 of 6 whole rows", 10),
        (",,,,,\n21", ",,,,,\n21.0,,,,,\n21", "line 3: found", 15),
    ],
)
def test_a_damaged_row_is_left_out_and_the_others_keep_their_cores(
    old: str, new: str, reason: str, records: int
) -> None:
    results = results_of(TEXT.replace(old, new))
    assert len(results.records) == records and reason in " ".join(map(str, results.left_out))
    values = {r.value: r.conditions for r in records_of(TEXT)}
    assert [r.conditions for r in results.records if r.value in values] == [
        values[r.value] for r in results.records if r.value in values
    ]


def test_lines_of_standard_error_are_passed_over_and_other_units_refused() -> None:
    note = "Num cores: 6\nShowing latency=round-trip-time/2 in nanoseconds:\n\n"
    assert len(records_of(note + TEXT.rstrip("\n"))) == 15
    with pytest.raises(FormatError, match="nanoseconds are required"):
        results_of(note.replace("nanoseconds", "cycles") + TEXT)


def test_the_table_for_terminals_states_the_cpus() -> None:
    text = """CPU: Some CPU
1) CAS latency on a single shared cache line

           0       4       8
      0
      4   \x1b[1m52±0\x1b[0m
      8   38±6    39±4

    Min  latency: 38.0ns ±6.0 cores: (8,0)
"""
    times = {
        (r.conditions["from_cpu"], r.conditions["to_cpu"]): r.value
        for r in records_of(text.replace("\x1b[1m", "").replace("\x1b[0m", ""))
    }
    assert times == pytest.approx({(0, 4): 52e-9, (0, 8): 38e-9, (4, 8): 39e-9})
    damaged = results_of(text.replace("      4   \x1b[1m52±0\x1b[0m", "      1e999   52±0"))
    assert [str(item) for item in damaged.left_out] == ["line 6: CPU: found '1e999', a count is required"]
