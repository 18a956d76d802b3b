"""Recordings with damaged lines: every reader returns frames or fails with one line that names what is wrong."""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import MeshmarkError
from meshmark.views.pages.recording import binned
from meshmark.views.terminal.live.map import draw
from meshmark.watch.difference import RecordingSide, compare
from meshmark.watch.findings.hotspots import Detector
from meshmark.watch.frames import Frame, FrameError, FrameMetric, Header, frame_of, header_of, parse_line
from meshmark.watch.layout import map_of
from meshmark.watch.recording import RecordingFile
from meshmark.watch.trace import write_trace
from meshmark.watch.whole import whole_frame, whole_header
from meshmark.web.hub import StoredFrames
from meshmark.web.page import packed_recording
from support.cli import meshmark

RAW = "RAW:"  # marks a text that is inserted into a line as it is, since `json` does not write such values
HOSTILE: tuple[Any, ...] = (
    RAW + "1" + "0" * 399,
    RAW + "1e400",
    RAW + "NaN",
    RAW + "-Infinity",
    RAW + "[" * 5000 + "]" * 5000,
    RAW + "[" * 900 + "]" * 900,
    2**63,
    1e308,
    -1,
    99,
    True,
    None,
    "",
    "\ud800",
    "x" * 2000,
    "\n\x1b[31m",
    [],
    {},
    [[]],
    {"a": []},
)
HEADER = Header(
    "host",
    "test",
    "2026-01-01T00:00:00Z",
    0.1,
    {
        "node": ({"name": "node 0", "number": 0}, {"name": "node 1", "number": 1}),
        "cpu": tuple({"name": f"CPU {i}", "number": i, "node": i // 2} for i in range(4)),
        "memory": ({"name": "memory 0", "node": 0}, {"name": "memory 1", "node": 1}),
        "link": ({"name": "0-1", "from": 0, "to": 1}, {"name": "1-0", "from": 1, "to": 0}),
        "cache": ({"level": 3, "size_bytes": 1 << 20, "cpus": [0, 1]},),
    },
    (
        FrameMetric("cpu.busy", "1", "busy", "time"),
        FrameMetric("memory.busy", "1", "busy", "capacity"),
        FrameMetric("link.busy", "1", "busy", "capacity"),
        FrameMetric("cpu.clock", "Hz", "clock"),
    ),
    ({"metric": "io", "why": "none here"},),
    {"use": {"cpu": "cpu.busy"}, "topology": "graph"},
)
PROCESSES = [{"pid": 7, "name": "a", "cpu": 1.5, "threads": 2, "rss": 4096, "on": 0, "nodes": [0.5, 0.5]}]


def frames() -> list[Frame]:
    values: dict[str, list[float | None]] = {
        "cpu.busy": [1.0, 0.1, 0.1, None],
        "memory.busy": [0.9, 0.1],
        "link.busy": [0.1, 0.9],
        "cpu.clock": [1e9] * 4,
    }
    return [Frame(n, 0.1 * n, 0.1, values, 1e9 + n, processes=PROCESSES) for n in range(1, 9)]


def places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


def damaged(line: dict[str, Any], rng: random.Random) -> str:
    """Return the line with a hostile value at a random place."""
    line = copy.deepcopy(line)
    *parents, last = rng.choice(list(places(line)))
    inner: Any = line
    for key in parents:
        inner = inner[key]
    inner[last] = rng.choice(HOSTILE)
    return re.sub(rf'"{RAW}([^"]*)"', r"\1", json.dumps(line))


def write_part(path: Path, header: str, lines: list[str]) -> None:
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in (header, *lines)).encode()))


def uses(folder: Path) -> dict[str, Callable[[RecordingFile], object]]:
    """Return functions that do with a recording what the commands do, by name."""

    def drawn(recording: RecordingFile) -> None:
        machine_map, detector = map_of(recording.header), Detector(recording.header)
        for frame in recording.frames():
            draw(recording.header, machine_map, frame, 0.0, 1.0, "inferno")
            [str(spot) for spot in detector.add(frame)]

    def compared(recording: RecordingFile) -> None:
        before = RecordingSide("a", HEADER, 8, frames())
        compare(before, RecordingSide("b", recording.header, recording.count(), recording.frames())).to_json()

    def plotted(recording: RecordingFile) -> None:
        binned(recording.header, recording.frames())

    def summarised(recording: RecordingFile) -> None:
        for frame in recording.frames():
            whole_frame(recording.header, frame)
        whole_header(recording.header)

    return {
        "draw": drawn,
        "page": lambda r: packed_recording(r.header, r.frames(), r.count()),
        "trace": lambda r: write_trace(r, folder / "trace.json"),
        "web": lambda r: json.dumps(StoredFrames(r.header, r.count(), r.some).some(0, 9)),
        "difference": compared,
        "plot": plotted,
        "whole": summarised,
    }


def test_no_line_of_a_recording_makes_a_reader_fail_in_another_way(tmp_path: Path) -> None:
    path = tmp_path / "r.part"
    sound = [json.dumps(frame.to_json()) for frame in frames()]
    read = 0
    for seed in range(120):
        rng = random.Random(seed)
        header, lines = json.dumps(HEADER.to_json()), list(sound)
        if rng.random() < 0.5:
            header = damaged(HEADER.to_json(), rng)
        else:
            lines[rng.randrange(8)] = damaged(frames()[0].to_json(), rng)
        write_part(path, header, lines)
        for use in uses(tmp_path).values():
            try:
                use(RecordingFile(path))
                read += 1
            except MeshmarkError as error:
                assert str(error).isprintable() and len(str(error)) < 500, (seed, error)
    assert read > 120  # many values are allowed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"period_s": 10**400}, "period_s: found 1000"),
        ({"period_s": "1"}, "period_s: found 1; allowed: a number"),
        ({"components": {"cpu": [{"name": [1]}]}}, r"cpu 0: name: found \[1\]; allowed: a text"),
        ({"components": {"cpu": [{"node": 1e9}]}}, "cpu 0: node: found 1000000000.0; allowed: an index"),
        ({"components": {"cpu": [{}] * 100_001}}, "found more than 100000 components or 1000 metrics"),
        ({"components": {"cache": [{"level": "3"}]}}, "cache 0: level: found 3; allowed: an index"),
    ],
)
def test_a_value_of_a_header_of_another_type_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FrameError, match=message):
        header_of({**HEADER.to_json(), **change})


@pytest.mark.parametrize(
    ("component_class", "component", "message"),
    [
        ("cpu", {"node": 2}, "cpu 4: node: found 2; allowed: -1 to 1"),
        ("link", {"from": 0}, "link 2: to: found nothing"),
        ("link", {"from": 0, "to": 2}, "link 2: to: found 2; allowed: 0 to 1"),
        ("cache", {"level": 3}, "cache 1: size_bytes: found nothing"),
    ],
)
def test_a_component_that_refers_to_no_other_is_named(
    component_class: str, component: dict[str, Any], message: str
) -> None:
    line = HEADER.to_json()
    line["components"].setdefault(component_class, []).append(component)
    header = header_of(line)
    for use in (map_of, Detector):
        with pytest.raises(FrameError, match=message):
            use(header)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 10**400},
        {"seq": True},
        {"t_s": float("nan")},
        {"at": 1e12},
        {"values": {"cpu.busy": [10**400]}},
        {"values": {"cpu.busy": ["1"]}},
        {"values": {"cpu.busy": [True]}},
        {"values": {"cpu.busy": 7}},
        {"values": {"cpu.busy": [float("inf")]}},
        {"processes": [{"cpu": "x"}]},
        {"processes": [{"nodes": 7}]},
        {"processes": 7},
    ],
)
def test_a_value_of_a_frame_of_another_type_is_one_line(change: dict[str, Any]) -> None:
    with pytest.raises(FrameError, match="a frame has a missing or invalid value"):
        frame_of({**frames()[0].to_json(), **change}, HEADER)


def test_deep_nesting_is_one_line() -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000):
        with pytest.raises(FrameError, match="too deeply nested"):
            parse_line(text)


def test_a_damaged_line_ends_every_form_of_replay_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "night.parquet.part"
    lines = [json.dumps(frame.to_json()) for frame in frames()]
    lines[3] = lines[3].replace('"seq": 4', '"seq": 1' + "0" * 400)
    write_part(path, json.dumps(HEADER.to_json()), lines)
    for words in (["--html", tmp_path / "page.html"], ["--trace", tmp_path / "trace.json"]):
        completed = meshmark("replay", path, *words)
        assert completed.returncode == 1 and completed.stderr.count("\n") == 1, completed.stderr
        assert "corrupt: frames: a frame has a missing or invalid value: seq: found" in completed.stderr
