"""Recordings in parts: rotation, removal of the oldest, continuation after a kill, and gaps."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.errors import UsageError
from meshmark.watch.frames import Frame
from meshmark.watch.marks import END, GAP, START, Mark
from meshmark.watch.recorder.parts import RotatingRecorder, RotationPlan, command_marks, parts_of, rotation_plan
from meshmark.watch.recorder.window import command_window
from meshmark.watch.recording import Recorder, RecordingError, RecordingFile
from support.cli import command, environment, meshmark, start
from support.made_frames import frame, header
from support.waiting import until


def line(n: int) -> str:
    """Return a frame of one second that ends `n` s after the start, as the sampler writes it."""
    made: Frame = replace(frame(n, 0.5, 0.5, 0.5, 0.5), t_s=float(n), window_s=1.0, cost_s=0.01)
    return json.dumps(made.to_json())


def unexpected(text: str) -> None:
    raise AssertionError(text)


def recorder(out: Path, plan: RotationPlan) -> RotatingRecorder:
    return RotatingRecorder(out, header(), plan, unexpected)


def numbers(out: Path) -> dict[int, list[int]]:
    """Return the sequence numbers of the frames of each finished part."""
    return {n: [f.seq for f in RecordingFile(path).frames()] for n, path in parts_of(out).items()}


@pytest.mark.parametrize(
    ("rotate", "keep", "plan"),
    [
        ("1h", "", RotationPlan(every_s=3600)),
        ("500MiB", "10", RotationPlan(every_bytes=500 << 20, keep_parts=10)),
        ("90s", "5GiB", RotationPlan(every_s=90, keep_bytes=5 << 30)),
    ],
)
def test_limits_are_times_sizes_and_numbers(rotate: str, keep: str, plan: RotationPlan) -> None:
    assert rotation_plan(rotate, keep) == plan


@pytest.mark.parametrize(
    ("rotate", "keep", "message"),
    [
        ("", "5", "--keep: found without --rotate"),
        ("10", "", "--rotate: found '10'; allowed: a time or a size with its unit"),
        ("1ms", "", "--rotate: found '1ms'"),
        ("1KiB", "", "--rotate: found '1KiB'; allowed: sizes from 64KiB"),
        ("often", "", "--rotate: found 'often'"),
        ("1h", "0", "--keep: found '0'"),
        ("1h", "-3", "--keep: found '-3'"),
        ("1h", "2.5", "--keep: found '2.5'"),
        ("1h", "manyB", "--keep: found 'manyB'"),
    ],
)
def test_other_limits_are_refused(rotate: str, keep: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        rotation_plan(rotate, keep)
    assert str(error.value).startswith(message)
    words = ["--rotate", rotate] if rotate else []
    completed = meshmark("record", "--out", tmp_path / "r", *words, *(["--keep", keep] if keep else []))
    assert completed.returncode == 2 and not list(tmp_path.iterdir())


def test_each_part_is_a_recording_and_no_frame_is_lost(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    with recorder(out, RotationPlan(every_s=3)) as parts:
        for n in range(1, 8):
            parts.add_line(line(n))
    assert numbers(out) == {1: [1, 2, 3], 2: [4, 5, 6], 3: [7]}
    assert [p.name for p in sorted(tmp_path.iterdir())] == [f"r-00000{n}.parquet" for n in (1, 2, 3)]
    assert parts.paths == sorted(tmp_path.iterdir())
    assert (parts.frames, parts.recorded_s) == (7, 7.0) and parts.sampler_s == pytest.approx(0.07)


def test_a_recorder_that_ends_with_a_part_leaves_no_empty_one(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    with recorder(out, RotationPlan(every_s=2)) as parts:
        for n in range(1, 5):
            parts.add_line(line(n))
    assert numbers(out) == {1: [1, 2], 2: [3, 4]} and not parts_of(out, ".part")


def test_parts_end_at_their_size(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    with recorder(out, RotationPlan(every_bytes=1500)) as parts:
        for n in range(1, 31):
            parts.add_line(line(n))
    assert 3 <= len(numbers(out)) <= 15
    assert [seq for seqs in numbers(out).values() for seq in seqs] == list(range(1, 31))


def test_the_oldest_parts_are_removed(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    (tmp_path / "r-x.parquet").write_text("another file")
    (tmp_path / "other-000001.parquet").write_text("another recording")
    with recorder(out, RotationPlan(every_s=1, keep_parts=2)) as parts:
        for n in range(1, 6):
            parts.add_line(line(n))
    assert numbers(out) == {4: [4], 5: [5]} and len(list(tmp_path.iterdir())) == 4
    size = out.with_name("r-000005.parquet").stat().st_size
    with recorder(out, RotationPlan(every_s=1, keep_bytes=3 * size + size // 2)) as parts:
        for n in range(6, 9):
            parts.add_line(line(n))
    assert sorted(numbers(out)) == [6, 7, 8]
    with recorder(out, RotationPlan(every_s=1, keep_bytes=1)) as parts:
        parts.add_line(line(9))
    assert sorted(numbers(out)) == [9], "the newest part is always retained"


def test_a_series_is_continued_with_a_gap(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    killed = recorder(out, RotationPlan(every_s=3))
    for n in range(1, 6):
        killed.add_line(line(n))
    killed.close_part()  # leaves what a killed recorder leaves
    assert list(parts_of(out, ".part")) == [2]
    begin = time.time()
    with recorder(out, RotationPlan(every_s=3)) as parts:
        for n in range(11, 13):
            parts.add_line(line(n))
    assert numbers(out) == {1: [1, 2, 3], 2: [4, 5], 3: [11, 12]} and not parts_of(out, ".part")
    (gap,) = RecordingFile(parts_of(out)[3]).header.marks
    assert gap.kind == GAP and gap.details["from"] == 1e9 + 5 and begin <= gap.at <= time.time()
    assert RecordingFile(parts_of(out)[2]).header.marks == ()


def test_a_recorder_that_was_killed_at_a_bad_moment_is_continued(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    with recorder(out, RotationPlan(every_s=3)) as parts:
        parts.add_line(line(1))
    finished = parts_of(out)[1]
    finished.with_name(finished.name + ".part").write_bytes(b"converted, but not removed")
    (tmp_path / "r-000002.parquet.part").touch()  # the header was not written
    with recorder(out, RotationPlan(every_s=3)) as parts:
        parts.add_line(line(2))
    assert numbers(out) == {1: [1], 3: [2]} and not parts_of(out, ".part")


def test_a_damaged_part_is_reported_and_remains(tmp_path: Path) -> None:
    out, warnings = tmp_path / "r.parquet", list[str]()
    (tmp_path / "r-000004.parquet.part").write_bytes(b"damaged")
    with RotatingRecorder(out, header(), RotationPlan(every_s=3), warnings.append) as parts:
        parts.add_line(line(2))
    assert numbers(out) == {5: [2]} and list(parts_of(out, ".part")) == [4]
    assert len(warnings) == 1 and "r-000004.parquet.part" in warnings[0]


def test_two_recorders_do_not_write_one_series(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    with recorder(out, RotationPlan(every_s=3)) as parts:
        parts.add_line(line(1))
        with pytest.raises(RecordingError, match="another recorder is running"):
            recorder(out, RotationPlan(every_s=3))
    assert numbers(out) == {1: [1]}
    with Recorder(out, header()), pytest.raises(RecordingError, match="another recorder is running"):
        Recorder(out, header())


def test_every_part_knows_the_command_that_runs(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    begin, end = Mark(START, 1e9 + 0.5, {"command": ["make"]}), Mark(END, 1e9 + 4.5, {"status": 0})
    with recorder(out, RotationPlan(every_s=2)) as parts:
        parts.add_mark(begin)
        for n in range(1, 6):
            parts.add_line(line(n))
        parts.add_mark(end)
    recordings = [RecordingFile(path) for path in parts.paths]
    assert [r.header.marks for r in recordings] == [(begin,), (begin,), (begin, end)]
    assert command_marks(recordings) == [begin, end]
    window = command_window(recordings[2].header.marks)
    assert window is not None and (window.begin, window.end) == (begin.at, end.at)


def test_a_killed_recorder_continues_when_it_is_started_again(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    words = ("record", "--rate", "20", "--no-canary", "--rotate", "1s", "--keep", "50", "--out", out)
    child = start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert until(lambda: len(parts_of(out)) >= 2 and parts_of(out, ".part"))
    child.send_signal(signal.SIGKILL)
    child.wait()
    left = max(parts_of(out, ".part"))
    completed = meshmark(*words, "--duration", "0.3s")
    assert completed.returncode == 0, completed.stderr
    assert not parts_of(out, ".part")
    continued = RecordingFile(parts_of(out)[left + 1])
    assert [m.kind for m in continued.header.marks] == [GAP]
    seqs = [f.seq for n, path in parts_of(out).items() if n <= left for f in RecordingFile(path).frames()]
    assert seqs == sorted(set(seqs)) and completed.stdout == f"{parts_of(out)[left + 1]}\n"


def test_a_command_is_summarised_over_all_parts(tmp_path: Path) -> None:
    words = ("--rate", "20", "--no-canary", "--rotate", "1s", "--out", tmp_path / "r.parquet")
    completed = meshmark("record", *words, "--", "sh", "-c", "sleep 2.3; exit 3")
    assert completed.returncode == 3
    assert "status 3" in completed.stderr and "in 3 files" in completed.stderr
    assert sorted(parts_of(tmp_path / "r.parquet")) == [1, 2, 3] and len(list(tmp_path.iterdir())) == 3


LIMITED = ["sh", "-c", 'ulimit -f 40; exec "$@"', "sh"]  # a file may have 40 blocks of 512 B


@pytest.mark.parametrize("rotation", [[], ["--rotate", "1h"]])
def test_a_full_disk_ends_a_recording_with_one_line(rotation: list[str], tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    words = command("record", "--rate", "100", "--no-canary", "--out", out, "--duration", "60s", *rotation)
    completed = subprocess.run([*LIMITED, *words], capture_output=True, text=True, env=environment(), check=False)
    assert completed.returncode == 1
    lines = completed.stderr.splitlines()
    assert len(lines) == 3 and "File too large" in lines[1] and lines[2].startswith("hint: earlier frames are intact")
    (part,) = tmp_path.iterdir()
    assert part.name.endswith(".part") and RecordingFile(part).count() > 20


def test_a_full_disk_does_not_end_the_command(tmp_path: Path) -> None:
    words = command("record", "--rate", "100", "--no-canary", "--out", tmp_path / "r.parquet", "--")
    script = f"while kill -0 $PPID && ! [ -e {tmp_path}/stop ]; do sleep 0.1; done; echo end; exit 6"
    with subprocess.Popen(
        [*LIMITED, *words, "sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as child:
        assert child.stderr is not None
        warning = child.stderr.readline()
        (tmp_path / "stop").touch()
        stdout, rest = child.communicate()
    assert (child.returncode, stdout, rest) == (6, "end\n", "")
    assert warning.startswith("warning: ") and "File too large; the command continues" in warning
    assert [m.kind for m in RecordingFile(tmp_path / "r.parquet.part").header.marks] == [START]
