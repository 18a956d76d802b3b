"""Recordings return what was written, survive kills, signals and full disks, and name what is damaged."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.watch.recording import HOLD_S, Recorder, RecordingError, RecordingFile
from support.cli import start
from support.made_frames import frame, header
from support.waiting import until


def test_a_recording_gives_back_what_went_in(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    frames = [frame(n, 0.1234, None, n / 100, 1.0) for n in range(1, 40)]
    with Recorder(out, header()) as recorder:
        for f in frames:
            recorder.add(f)
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]
    recording = RecordingFile(out)
    assert recording.header == header()
    assert recording.count() == 39
    for written, restored in zip(frames, recording.frames(), strict=True):
        assert restored.seq == written.seq and restored.t_s == written.t_s and restored.at == written.at
        for a, b in zip(written.values["cpu.busy"], restored.values["cpu.busy"], strict=True):
            assert (a is None) == (b is None) and (a is None or b == pytest.approx(a, abs=0.0005))
        assert restored.values["cpu.m0"] == pytest.approx(written.values["cpu.m0"], rel=1e-6)
    assert [f.seq for f in recording.frames(begin_s=3.75)] == [38, 39]
    assert [f.seq for f in recording.some(5, 2)] == [6, 7]


def test_others_can_open_it(tmp_path: Path) -> None:
    import duckdb

    out = tmp_path / "r.parquet"
    with Recorder(out, header()) as recorder:
        recorder.add(frame(1, 0.25, None, 0.5, 1.0))
    rows = duckdb.sql(f'select t_s, "cpu.busy"[1]::double, "cpu.busy"[2] from \'{out}\'').fetchall()
    assert rows == [(0.1, 0.25, None)]


@pytest.mark.parametrize("rate_hz", [1, 7, 10, 100])
def test_a_killed_recorder_loses_less_than_a_second(tmp_path: Path, rate_hz: int) -> None:
    """A recorder that is killed loses the frames that the sampler and the recorder still hold.

    Both are checked after every burst of the sampler, just before the next burst."""
    out = tmp_path / "r.parquet"
    recorder = Recorder(out, header())
    period_s = 1 / rate_hz
    held_frames = [frame(seq, 0.5) for seq in range(1, max(1, round(HOLD_S * rate_hz)) + 1)]
    for burst in range(8):
        for held_frame in held_frames:
            seq = burst * len(held_frames) + held_frame.seq
            jitter_s = 1e-4 * (-1) ** seq
            recorder.add(replace(held_frame, seq=seq, t_s=seq * period_s + jitter_s, window_s=period_s + 2 * jitter_s))
        killed_s = (burst + 2) * len(held_frames) * period_s
        # At 1 Hz, the incomplete frame alone is one second.
        assert killed_s - RecordingFile(recorder.part).extent()[1] < 0.9 + max(0.0, period_s - HOLD_S)


def test_what_a_killed_recorder_leaves_can_be_read(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    child = start("record", "--rate", "20", "--out", out, stdout=None, stderr=subprocess.DEVNULL)
    part = out.with_name("r.parquet.part")

    def grown() -> bool:
        try:
            return RecordingFile(part).count() > 20
        except RecordingError:  # the header is not written yet
            return False

    assert until(grown)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not out.exists()
    retained = list(RecordingFile(part).frames())
    numbers = [f.seq for f in retained]
    assert numbers == sorted(set(numbers)), "a machine that was held skips numbers; none comes twice"
    with part.open("r+b") as file:  # cut the file in the middle of a batch
        file.truncate(part.stat().st_size - 40)
    frames_before = list(RecordingFile(part).frames())
    assert 0 < len(frames_before) < len(retained)
    with pytest.raises(RecordingError, match="the file exists"):
        Recorder(out, header())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_line_loses_nothing_of_it(tmp_path: Path, number: signal.Signals) -> None:
    """The signal arrives when the sampler has written half a frame; it writes the rest later."""
    lines = [json.dumps(frame(n, 0.5, 0.5, 0.5, 0.5).to_json()) for n in (1, 2)]
    sampler = tmp_path / "sampler"
    sampler.write_text(
        f"#!{sys.executable}\n"
        "import signal, sys\n"
        "def end(*_):\n"
        f"    print({lines[0][60:]!r}, {lines[1]!r}, sep=chr(10), flush=True)\n"
        "    sys.exit(0)\n"
        "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, end)\n"
        f"print({json.dumps(header().to_json())!r})\n"
        f"print({lines[0][:60]!r}, end='', flush=True)\n"
        f"open({str(tmp_path / 'half')!r} if '--hold' in sys.argv else '/dev/null', 'w').close()\n"
        "while True: signal.pause()\n"
    )
    sampler.chmod(0o755)
    out = tmp_path / "r.parquet"
    env = {"MESHMARK_WATCH": str(sampler)}
    child = start("record", "--no-canary", "--out", out, env=env, stdout=subprocess.DEVNULL)
    assert child.stderr is not None and until((tmp_path / "half").exists)
    assert "stop with Ctrl-C" in child.stderr.readline()
    child.send_signal(number)
    _, output = child.communicate(timeout=60)
    assert child.returncode == 0, output
    assert [f.seq for f in RecordingFile(out).frames()] == [1, 2]


def test_a_strangers_file_beside_a_recording_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "r.tmp").symlink_to("victim")
    with Recorder(tmp_path / "r", header()) as recorder:
        recorder.add(frame(1, 0.5))
    assert (tmp_path / "victim").read_text() == "mine" and RecordingFile(tmp_path / "r").count() == 1


def test_a_recording_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.parquet")
    with pytest.raises(RecordingError, match="a pipe; a regular file is required"):
        RecordingFile(tmp_path / "r.parquet")


def test_sigterm_ends_a_recording_whole(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    child = start("record", "--rate", "20", "--out", out)
    assert child.stderr is not None
    assert "recording" in child.stderr.readline()
    part = out.with_name("r.parquet.part")
    assert until(lambda: part.exists() and part.stat().st_size and RecordingFile(part).count() >= 5)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=120)
    assert child.returncode == 0
    assert RecordingFile(out).count() >= 5


def test_a_full_disk_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "r.parquet"
    recorder = Recorder(out, header())
    for n in range(1, 11):
        recorder.add(frame(n, 0.1, 0.2, 0.3, 0.4))
    recorder.flush()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordingError, match="No space left") as raised:
        for n in range(11, 40):
            recorder.add(frame(n, 0.1, 0.2, 0.3, 0.4))
    assert "meshmark replay" in raised.value.hint
    assert RecordingFile(tmp_path / "r.parquet.part").count() >= 10


def test_a_foreign_or_cut_file_is_one_line(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    other_machine, text, cut = tmp_path / "a.parquet", tmp_path / "b", tmp_path / "c.parquet"
    pq.write_table(pa.table({"x": [1]}), other_machine)
    text.write_text("no recording")
    with Recorder(cut, header()) as recorder:
        recorder.add(frame(1, 0.1, 0.2, 0.3, 0.4))
    cut.write_bytes(cut.read_bytes()[:-20])
    for path in (other_machine, text, cut, tmp_path / "nothing", tmp_path):
        with pytest.raises(RecordingError, match=path.name) as raised:
            RecordingFile(path)
        assert "\n" not in str(raised.value)


def test_names_of_metrics_are_no_sql(tmp_path: Path) -> None:
    """A recording may come from anybody."""
    (tmp_path / "secret").write_text("secret")
    name = f"""cpu.x", (SELECT content FROM read_text('{tmp_path / "secret"}')) AS "seq"""
    metrics = tuple(replace(m, name=name if m.name == "cpu.busy" else m.name) for m in header().metrics)
    hostile = replace(header(), metrics=metrics)
    frames = [replace(frame(1, 0.1, None, 0.3, 0.4), values={name: [0.1, None, 0.3, 0.4]})]
    with Recorder(tmp_path / "r", hostile) as recorder:
        for f in frames:
            recorder.add(f)
    assert [f.values[name] for f in RecordingFile(tmp_path / "r").frames()] == [[0.1, None, 0.3, 0.4]]


def test_a_line_beyond_any_frame_ends_a_recording(tmp_path: Path) -> None:
    """A few KiB of a damaged recording may unpack to a line of terabytes."""
    with Recorder(tmp_path / "r", header()) as recorder:
        recorder.add(frame(1, 0.1, None, 0.3, 0.4))
        recorder.flush()
        (tmp_path / "s").write_bytes(recorder.part.read_bytes() + gzip.compress(b"0" * (64 << 20), 1))
    recording = RecordingFile(tmp_path / "s")
    tracemalloc.start()
    assert len(list(recording.frames())) == recording.count() == 1
    assert tracemalloc.get_traced_memory()[1] < 48 << 20
    tracemalloc.stop()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_spoiled_recording_is_one_line_or_frames(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spoiled")
    with Recorder(folder / "r", header()) as recorder:
        for n in range(1, 30):
            recorder.add(frame(n, 0.1, None, 0.3, 0.4))
        recorder.flush()
        part = recorder.part.read_bytes()
    for name, content in (("r", (folder / "r").read_bytes()), ("r.part", part)):
        bytes_ = bytearray(content)
        for _ in range(data.draw(st.integers(1, 3))):
            bytes_[data.draw(st.integers(4, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
        (folder / "s").write_bytes(bytes_)
        with contextlib.suppress(RecordingError):
            assert len(list(RecordingFile(folder / "s").frames())) <= 29, name
