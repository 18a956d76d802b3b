"""Journals: nonsense is read without an error, and a value derived anew takes the place of the old one."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from meshmark.measure.journal import read_journal
from support.result_line import LINE


@given(st.binary(max_size=300))
def test_a_journal_of_nonsense_is_read_without_an_error(noise: bytes) -> None:
    good = json.dumps(LINE).encode()
    reading = read_journal([noise, good, good[:-7], noise + good], "s")
    assert any(r.metric == "load_latency" for r in reading.records)


def test_a_value_derived_anew_takes_the_place_of_the_old_one() -> None:
    """A run that goes on derives once more, and by then others stand beside it among the conditions observed."""

    def derived(grid: str, uncertainty: float) -> bytes:
        conditions = {"grid": grid, "derived_from": "iteration_time", "clock_offset_uncertainty": uncertainty}
        return json.dumps({**LINE, "metric": "best_time", "conditions": conditions}).encode()

    lines = [derived("2x1", 1e-7), derived("1x2", 1e-7), derived("2x1", 2e-7)]
    records = read_journal(lines, "s").records
    assert sorted(str(r.conditions["grid"]) for r in records) == ["1x2", "2x1"]
    assert {r.conditions["clock_offset_uncertainty"] for r in records} == {1e-7, 2e-7}


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(list(LINE)), x, max_size=5),
)
KINDS = st.sampled_from(["header", "result", "absent", "end", "error", "point"])


@given(ANY_VALUE, st.sampled_from(list(LINE)), KINDS)
def test_a_journal_of_wrong_types_is_read_without_an_error(value: object, key: str, kind: str) -> None:
    line = json.dumps({**LINE, key: value, "type": kind}, default=str).encode()
    read_journal([line], "s")
