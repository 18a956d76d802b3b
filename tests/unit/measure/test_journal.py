"""Journals: invalid lines are read without an error, and a value that is derived again replaces the old value."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from meshmark.measure.runs.journal import parse_line, read_journal
from meshmark.store.run import Absence
from support.result_line import LINE


@given(st.binary(max_size=300))
def test_a_journal_of_nonsense_is_read_without_an_error(noise: bytes) -> None:
    good = json.dumps(LINE).encode()
    reading = read_journal([noise, good, good[:-7], noise + good], "s")
    assert any(r.metric == "load_latency" for r in reading.records)


def test_a_value_derived_anew_takes_the_place_of_the_old_one() -> None:
    """A resumed run derives the value again, and by then the observed conditions may have other values."""

    def derived(grid: str, uncertainty: float) -> bytes:
        conditions = {"grid": grid, "derived_from": "iteration_time", "clock_offset_uncertainty": uncertainty}
        return json.dumps({**LINE, "metric": "best_time", "conditions": conditions}).encode()

    lines = [derived("2x1", 1e-7), derived("1x2", 1e-7), derived("2x1", 2e-7)]
    records = read_journal(lines, "s").records
    assert sorted(str(r.conditions["grid"]) for r in records) == ["1x2", "2x1"]
    assert {r.conditions["clock_offset_uncertainty"] for r in records} == {1e-7, 2e-7}


def lines(*said: object) -> list[bytes]:
    return [line if isinstance(line, bytes) else json.dumps(line).encode() for line in said]


def test_every_kind_of_line_is_read() -> None:
    header = {"type": "header", "machine": "n042"}
    absent = {
        "type": "absent",
        "instrument": "latency",
        "metric": "load_latency",
        "conditions": {"pages": "1GiB", "cpu": 3, "no": None, "list": [1]},
        "reason": "no such pages",
        "enable": "reserve some",
    }
    reading = read_journal(
        lines(header, LINE, {**LINE, "value": 7}, absent, b"nonsense", {"type": "end", "status": "ok"}), "03-latency"
    )
    assert reading.header == header
    assert [r.metric for r in reading.records] == ["load_latency"]
    assert len(reading.invalid_records) == 1
    assert reading.invalid_records[0].startswith("value: found 7")
    assert reading.absences == [
        Absence(
            instrument="latency",
            metric="load_latency",
            conditions={"pages": "1GiB", "cpu": 3, "no": None},
            reason="no such pages",
            enable="reserve some",
            step="03-latency",
        )
    ]
    assert (reading.invalid_lines, reading.ended, reading.error) == (1, "ok", None)


def test_an_absence_that_says_little_is_one_all_the_same_and_the_same_one_is_said_once() -> None:
    bare = {"type": "absent", "metric": 3, "conditions": None}
    reading = read_journal(lines(bare, bare, {**bare, "reason": "another"}), "s")
    assert reading.absences == [
        Absence(instrument="", reason="", step="s"),
        Absence(instrument="", reason="another", step="s"),
    ]


def test_a_journal_that_is_resumed_has_one_header_and_the_last_end() -> None:
    first, second = {"type": "header", "run": 1}, {"type": "header", "run": 2}
    error = {"type": "error", "message": "too large"}
    torn = read_journal(lines(first, {"type": "end", "status": "truncated"}, error, second), "s")
    assert torn.header == first
    assert (torn.ended, torn.error) == (None, None), "the second part is under way"
    reading = read_journal(lines(first, error, second, {"type": "end", "status": "ok"}), "s")
    assert (reading.ended, reading.error) == ("ok", None)
    assert read_journal(lines({"type": "end"}), "s").ended == ""


def test_an_error_names_its_field_and_what_is_allowed() -> None:
    def error(**more: object) -> str | None:
        return read_journal(lines({"type": "error", "message": "found 7", **more}), "s").error

    assert error() == "found 7"
    assert error(field="--stride") == "--stride: found 7"
    assert error(field="--stride", allowed="8 to 64") == "--stride: found 7; allowed: 8 to 64"
    assert error(allowed="8 to 64") == "found 7; allowed: 8 to 64"


def test_results_of_one_point_count_once_and_those_of_another_beside_it() -> None:
    def result(metric: str, point: int, value: float) -> dict[str, object]:
        samples = [value] * 6
        return {**LINE, "metric": metric, "point": point, "value": value, "samples": samples, "interval": [value] * 2}

    reading = read_journal(
        lines(result("a", 1, 3.0), result("a", 2, 4.0), result("b", 1, 5.0), result("a", 1, 6.0)), "s"
    )
    assert [(r.metric, r.value) for r in reading.records] == [("a", 6.0), ("a", 4.0), ("b", 5.0)]
    derived = read_journal(
        lines({**LINE, "conditions": {"a": 1, "b": 2}}, {**LINE, "conditions": {"b": 2, "a": 1}}), "s"
    )
    assert len(derived.records) == 1, "the order of the conditions makes no difference"


def test_derived_values_are_told_apart_by_the_conditions_that_were_set() -> None:
    two = [{**LINE, "conditions": {"grid": grid, "load_1min": 0.5}} for grid in ("1x2", "2x1")]
    assert len(read_journal(lines(*two), "s").records) == 2


def test_a_line_is_an_object_with_a_type_and_of_a_bounded_length() -> None:
    assert parse_line(b'{"type": "end"}') == {"type": "end"}
    for wrong in (b"", b"[]", b'"end"', b"{}", b'{"type": 3}', b'{"type": "end"', b"[" * 100_000):
        assert parse_line(wrong) is None
    longest = b'{"type": "end"}'.ljust(16 << 20)
    assert parse_line(longest) == {"type": "end"}
    assert parse_line(longest + b" ") is None


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(list(LINE)), x, max_size=5),
)
KINDS = st.sampled_from(["header", "result", "absent", "end", "error", "point"])


@given(ANY_VALUE, st.sampled_from(list(LINE)), KINDS)
def test_a_journal_of_wrong_types_is_read_without_an_error(value: object, key: str, kind: str) -> None:
    line = json.dumps({**LINE, key: value, "type": kind}, default=str).encode()
    read_journal([line], "s")
