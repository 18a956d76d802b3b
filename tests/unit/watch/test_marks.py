"""Marks of commands survive in incomplete and finished recordings, and damaged ones are named."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.watch.frames import Frame, FrameError, FrameMetric, Header, header_of
from meshmark.watch.marks import END, GAP, START, Mark
from meshmark.watch.recorder.summary import RecorderCost, command_text, summarise, value_text
from meshmark.watch.recorder.window import CommandWindow, command_window
from meshmark.watch.recording import Recorder, RecordingError, RecordingFile, opened
from support.made_frames import frame, header

BEGIN = Mark(START, 1e9 + 1.5, {"command": ["make", "-j2"], "pid": 4})
FINISH = Mark(END, 1e9 + 3.5, {"status": 3, "elapsed_s": 2.0, "user_s": 1.0, "system_s": 0.5, "peak_bytes": 2**30})


def made(n: int, *values: float | None) -> Frame:
    """Return a frame of one second, whose end is `n` s after the start."""
    return replace(frame(n, *values), t_s=float(n), window_s=1.0)


def test_marks_are_read_from_every_form_of_a_recording(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.parquet", header())
    recorder.add_mark(BEGIN)
    for n in range(1, 5):
        recorder.add(made(n, 0.5, 0.5, 0.5, 0.5))
    recorder.add_mark(FINISH)
    part = RecordingFile(recorder.part)
    assert part.header.marks == (BEGIN, FINISH) and part.count() == 4 and len(part.some(1, 9)) == 3
    recorder.close()
    finished = RecordingFile(tmp_path / "r.parquet")
    assert finished.header.marks == (BEGIN, FINISH) and finished.count() == 4
    lines = [finished.header.to_json(), *(f.to_json() for f in finished.frames())]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert opened(tmp_path / "r.jsonl").header.marks == (BEGIN, FINISH)


def test_a_recording_without_marks_is_read() -> None:
    assert "marks" not in header().to_json()
    assert header_of(header().to_json()).marks == ()


@pytest.mark.parametrize(
    "mark",
    [
        {"type": "mark", "kind": "pause", "at": 1},
        {"type": "mark", "kind": "start"},
        {"type": "mark", "kind": "start", "at": "now"},
        {"type": "mark", "kind": "start", "at": -1},
        {"type": "mark", "kind": "start", "at": 1, "command": "make"},
        {"type": "mark", "kind": "end", "at": 1, "status": [1]},
        {"type": "mark", "kind": "end", "at": 1, "status": True},
        {"type": "mark", "kind": "end", "at": 1, "elapsed_s": float("nan")},
    ],
)
def test_a_damaged_mark_is_an_error_of_one_line(mark: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(FrameError, match="the header has a missing or invalid value"):
        header_of({**header().to_json(), "marks": [mark]})
    part = tmp_path / "r.parquet.part"
    lines = json.dumps(header().to_json()) + "\n" + json.dumps(mark, separators=(",", ":")) + "\n"
    part.write_bytes(gzip.compress(lines.encode()))
    with pytest.raises(RecordingError, match="corrupt"):
        RecordingFile(part)


def test_the_window_of_a_command_lies_between_its_marks() -> None:
    assert command_window([]) is None and command_window([FINISH, Mark(GAP, 1.0)]) is None
    window = command_window([BEGIN, FINISH])
    assert window is not None and (window.begin, window.end) == (BEGIN.at, FINISH.at)
    assert list(command_text(window)) == [
        "the command took 2.00 s, status 3",
        "CPU time 1.00 s user, 500 ms system (0.75 CPUs on average), largest process 1 GiB",
    ]
    killed = command_window([BEGIN])
    assert killed is not None and "killed" in next(command_text(killed))


def test_frames_count_by_the_part_that_is_in_the_window() -> None:
    window = CommandWindow(BEGIN.at, FINISH.at, BEGIN, FINISH)
    uses = {1: 0.9, 2: 0.2, 3: 0.6, 4: 0.4, 5: 0.9}  # by the end of the frame, in s
    processes = [{"pid": 7, "name": "cc", "cpu": 1.0, "rss": 5e6}, {"pid": 8, "name": "cc", "cpu": 0.5, "rss": 6e6}]
    frames = [made(n, use, use, None, use) for n, use in uses.items()]
    frames[2].processes = processes
    summary = summarise(header(), frames, window)
    (busy,) = summary.metrics
    assert summary.frames == 3
    assert busy.mean == pytest.approx((0.5 * 0.2 + 0.6 + 0.5 * 0.4) / 2)
    assert (busy.peak, busy.peak_at_s) == (pytest.approx(0.6), pytest.approx(1.5))
    (program,) = summary.programs
    assert (program.name, program.cpus, program.peak_bytes, program.processes) == ("cc", 1.5, 1.1e7, 2)


def test_a_short_frame_is_the_peak_only_if_there_is_no_other() -> None:
    window = CommandWindow(BEGIN.at, FINISH.at, BEGIN, FINISH)
    whole, short = made(3, 0.4, 0.4, 0.4, 0.4), replace(made(3, 1.0, 1.0, 1.0, 1.0), at=1e9 + 3.04, window_s=0.04)
    (busy,) = summarise(header(), [whole, short], window).metrics
    assert (busy.peak, busy.peak_at_s) == (pytest.approx(0.4), pytest.approx(1.5))
    (busy,) = summarise(header(), [short], window).metrics
    assert (busy.peak, busy.peak_at_s) == (1.0, pytest.approx(1.54))


def test_what_is_unknown_is_absent_with_its_reason() -> None:
    absent = ({"metric": "memory.busy", "why": "no counters"},)
    machine: Header = replace(header(), absent=absent, components={**header().components, "memory": ({"name": "m"},)})
    window = CommandWindow(BEGIN.at, FINISH.at, BEGIN, FINISH)
    summary = summarise(machine, [made(3, None, None, None, None)], window)
    assert summary.metrics == [] and summary.absent["memory"] == "no counters" and summary.programs_absent
    assert summarise(machine, [made(9, 1.0, 1.0, 1.0, 1.0)], window).frames == 0


def test_the_recorder_states_its_cost() -> None:
    assert str(RecorderCost(0.02, 0.01, 5.0, 2)) == "the recorder used 0.30 % of 2 CPUs"
    assert "unknown" in str(RecorderCost(0.0, 0.0, 0.0, 2))
    estimate = FrameMetric("memory.moved", "B/s", "moved", estimated=True)
    assert value_text(estimate, 2e9) == "~2.00 GB/s"
