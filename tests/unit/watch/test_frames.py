"""Frames and their header: they come back as they went, and what is none is one line."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshmark.watch.frames import FrameError, frame_of, header_of, parse_line
from support.made_frames import frame, header


def test_a_header_comes_back_as_it_went() -> None:
    first = header(absent=({"metric": "memory", "why": "none here"},), more={"kernel": "6"})
    assert header_of(json.loads(json.dumps(first.to_json()))) == first
    assert first.why_unknown("memory.busy") == "none here"
    assert first.why_unknown("cpu.busy", 1) == "not known at this tick"
    one = frame(3, 0.5, None, 0.25, 1.0)
    assert frame_of(json.loads(json.dumps(one.to_json())), first) == one


def test_values_of_the_wrong_number_are_unknown_and_not_shifted() -> None:
    line = {"seq": 1, "t_s": 1, "window_s": 1, "values": {"cpu.busy": [0.1, 0.2]}}
    assert frame_of(line, header()).values["cpu.busy"] == [0.1, 0.2, None, None]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"type":"frame"}', '{"type":"header","format":2}', '{"type":"header","format":1,"source":"host"}'],
)
def test_what_is_no_header_is_one_line(text: str) -> None:
    with pytest.raises(FrameError, match="frames: ") as why:
        header_of(parse_line(text))
    assert "\n" not in str(why.value)


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
