"""Traces of recordings state values at the start of their windows, only when they change, and omit unknown ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import MeshmarkError
from meshmark.watch.recording import Recorder, RecordingFile
from meshmark.watch.trace import write_trace
from support.made_frames import frame, header


def recorded(folder: Path, *busy: tuple[float | None, ...]) -> RecordingFile:
    out = folder / "r.parquet"
    with Recorder(out, header()) as recorder:
        for seq, values in enumerate(busy, start=1):
            recorder.add(frame(seq, *values))
    return RecordingFile(out)


def test_a_trace_has_a_track_for_each_component(tmp_path: Path) -> None:
    recording = recorded(tmp_path, (0.25, None, 0.5, 1.0), (0.25, 0.75, None, 0.5))
    out = tmp_path / "t.json"
    count = write_trace(recording, out)
    trace: dict[str, Any] = json.loads(out.read_text())
    assert trace["otherData"]["machine"] == header().machine and len(trace["traceEvents"]) == count
    names = [c["name"] for c in header().components["cpu"]]
    (pid,) = {e["pid"] for e in trace["traceEvents"] if e["ph"] == "M" and e["args"].get("name", "").startswith("cpu")}
    values = {
        (e["name"], round(e["ts"] / 1e5)): e["args"]["%"]
        for e in trace["traceEvents"]
        if e["ph"] == "C" and e["pid"] == pid and e["name"].endswith(" busy")
    }
    assert not [
        e for e in trace["traceEvents"] if str(e.get("ts", 0)).startswith("-")
    ]  # Perfetto would drop such an event
    busy = [f"{n} busy" for n in names]
    assert values == {(busy[0], 0): 25, (busy[2], 0): 50, (busy[3], 0): 100, (busy[1], 1): 75, (busy[3], 1): 50}


def test_a_trace_can_be_compressed(tmp_path: Path) -> None:
    recording = recorded(tmp_path, (0.25, None, 0.5, 1.0))
    plain, compressed = tmp_path / "t.json", tmp_path / "t.json.gz"
    write_trace(recording, plain)
    write_trace(recording, compressed)
    assert gzip.decompress(compressed.read_bytes()) == plain.read_bytes()


def test_a_trace_of_a_damaged_recording_is_not_written(tmp_path: Path) -> None:
    recording = recorded(tmp_path, *[(0.25, None, 0.5, 1.0)] * 50)
    data = bytearray(recording.path.read_bytes())
    data[4:200] = bytes(196)
    recording.path.write_bytes(data)
    with pytest.raises(MeshmarkError, match="corrupt"):
        write_trace(RecordingFile(recording.path), tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()
