"""Frames and their headers survive being written and read; invalid ones are reported in one line."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshmark.watch.frames import Frame, FrameError, FrameMetric, Header, frame_of, header_of, parse_line
from support.made_frames import frame, header


def test_a_header_comes_back_as_it_went() -> None:
    first = header(absent=({"metric": "memory", "why": "none here"},), more={"kernel": "6"})
    assert header_of(json.loads(json.dumps(first.to_json()))) == first
    assert first.why_unknown("memory.busy") == "none here"
    assert first.why_unknown("cpu.busy", 1) == "not known at this tick"
    only_frame = frame(3, 0.5, None, 0.25, 1.0)
    assert frame_of(json.loads(json.dumps(only_frame.to_json())), first) == only_frame


def test_values_of_the_wrong_number_are_unknown_and_not_shifted() -> None:
    line = {"seq": 1, "t_s": 1, "window_s": 1, "values": {"cpu.busy": [0.1, 0.2]}}
    assert frame_of(line, header()).values["cpu.busy"] == [0.1, 0.2, None, None]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"type":"frame"}', '{"type":"header","format":2}', '{"type":"header","format":1,"source":"host"}'],
)
def test_what_is_no_header_is_one_line(text: str) -> None:
    with pytest.raises(FrameError, match="frames: ") as raised:
        header_of(parse_line(text))
    assert "\n" not in str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "format", "components", "metrics", "absent", "values", "cpu.busy", "seq", "name"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(JSON)
@example(
    {
        "type": "header",
        "format": 1,
        "source": 1,
        "machine": 2,
        "started": 3,
        "period_s": 4,
        "components": {"cpu": [1]},
        "metrics": [],
    }
)
def test_no_line_is_a_traceback(line: Any) -> None:
    for read in (header_of, lambda x: frame_of(x, header())):
        with contextlib.suppress(FrameError):
            read(line if isinstance(line, dict) else {"type": "header", "format": 1, "metrics": line})


def test_the_most_specific_reason_for_what_is_unknown_counts() -> None:
    reasons = ({"metric": "cpu", "why": "no clock"}, {"metric": "cpu.m0", "why": "no counters"})
    absence = {"metric": "cpu.busy:CPU 1", "why": "it is offline"}
    first = header(absent=(*reasons, absence))
    assert [first.why_unknown("cpu.busy", i) for i in (0, 1, 2, 4)] == ["no clock", "it is offline"] + ["no clock"] * 2
    assert first.why_unknown("cpu.busy") == "no clock"
    assert [first.why_unknown("cpu.m0", i) for i in (0, 1)] == ["no counters"] * 2
    assert first.why_unknown("memory.busy", 0) == "no source says it"
    assert header().why_unknown("cpu.other", 1) == "no source says it"
    assert header().why_unknown("cpu.m0", 1) == "not known at this tick"
    first = header(absent=({"metric": "cpu.busy", "why": "no clock"}, absence))  # the first entry counts
    assert [first.why_unknown("cpu.busy", i) for i in (0, 1)] == ["no clock", "it is offline"]


def test_every_key_of_a_header_and_a_frame_is_written_and_read() -> None:
    metrics = (
        FrameMetric("cpu.busy", "1", "busy", "time"),
        FrameMetric("link.busy", "1", "busy", "capacity", estimated=True),
    )
    components = {"cpu": ({"name": "CPU 0", "node": 1},), "link": ({"name": "0-1"},)}
    absent = ({"metric": "memory", "why": "none", "hint": "add some"},)
    first = Header("host", "m", "2026-01-01T00:00:00Z", 0.25, components, metrics, absent, {"kernel": "6"})
    line = {
        "type": "header",
        "format": 1,
        "source": "host",
        "machine": "m",
        "started": "2026-01-01T00:00:00Z",
        "period_s": 0.25,
        "components": {"cpu": [{"name": "CPU 0", "node": 1}], "link": [{"name": "0-1"}]},
        "metrics": [
            {"name": "cpu.busy", "unit": "1", "what": "busy", "of": "time"},
            {"name": "link.busy", "unit": "1", "what": "busy", "of": "capacity", "estimated": True},
        ],
        "absent": [{"metric": "memory", "why": "none", "hint": "add some"}],
        "kernel": "6",
    }
    assert first.to_json() == line
    assert header_of(line) == first
    only_frame = Frame(7, 1.5, 0.25, {"cpu.busy": [0.5]}, 1e9, 0.125, 0.0625, 3, [{"pid": 1}])
    line = {
        "type": "frame",
        "seq": 7,
        "t_s": 1.5,
        "window_s": 0.25,
        "at": 1e9,
        "late_s": 0.125,
        "cost_s": 0.0625,
        "dropped": 3,
        "values": {"cpu.busy": [0.5]},
        "processes": [{"pid": 1}],
    }
    assert only_frame.to_json() == line
    assert frame_of(line, first) == only_frame
    short = {"seq": 7, "t_s": 1.5, "window_s": 0.25, "values": {}}
    assert frame_of(short, first) == Frame(7, 1.5, 0.25, {})
    assert "processes" not in Frame(7, 1.5, 0.25, {}).to_json()


def test_values_are_cut_or_padded_to_the_components_of_their_class() -> None:
    line = {
        "seq": 1,
        "t_s": 1,
        "window_s": 1,
        "values": {"cpu.busy": [1, None, 3, 4, 5], "fan.speed": [9], "cpu.m0": []},
    }
    assert frame_of(line, header()).values == {
        "cpu.busy": [1.0, None, 3.0, 4.0],
        "fan.speed": [],  # belongs to a class that the header does not have
        "cpu.m0": [None] * 4,
    }


def test_metrics_of_use_are_those_of_the_header_if_they_are_of_their_class() -> None:
    plain = {"cpu": "cpu.busy", "memory": "memory.busy", "link": "link.busy", "io": "io.busy"}
    assert header().use == plain
    use = {"cpu": "cpu.user", "memory": "cpu.user", "fan": "fan.speed", "io": "iostat"}
    assert header(more={"use": use}).use == {**plain, "cpu": "cpu.user"}
    assert header(more={"use": "cpu.user"}).use == plain


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ({"type": "frame"}, "found a frame; the first line must be a header"),
        ({"type": "x" * 50}, f"found a {'x' * 39}…;"),
        ({}, "found a line without type;"),
        ({"type": "header", "format": 2}, "found format 2; this version reads format 1"),
        ({"type": "header", "format": "y" * 30}, f"found format {'y' * 19}…;"),
        ({"type": "header"}, "found format None;"),
        ({"type": "header", "format": 1}, "the header has a missing or invalid value: 'source'"),
    ],
)
def test_what_is_no_header_is_named(line: dict[str, Any], found: str) -> None:
    with pytest.raises(FrameError, match=f"^frames: {found}"):
        header_of(line)


def test_what_is_no_line_or_no_frame_is_named() -> None:
    with pytest.raises(FrameError, match=f"^frames: found '{'z' * 59}…'; each line must be JSON$"):
        parse_line("  " + "z" * 70)
    with pytest.raises(FrameError, match=r"^frames: found '\[1\]'; each line must be a JSON object$"):
        parse_line("[1]\n")
    with pytest.raises(FrameError, match=r"^frames: a frame has a missing or invalid value: 'values'"):
        frame_of({"type": "frame"}, header())


def test_only_absences_with_a_reason_are_read() -> None:
    line = {**header().to_json(), "absent": [{"metric": "io"}, {"metric": "link", "why": 7}]}
    assert header_of(line).absent == ({"metric": "link", "why": "7"},)
    del line["absent"]
    assert header_of(line).absent == ()
