"""Test recordings of the machine below a run's chart: aligned by the clock, with counted or estimated traffic."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshmark.cli.load.load import app
from meshmark.cli.load.load_watch import watched
from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.scenario.journal import JOURNAL, read_run
from meshmark.load.scenario.recorded import RECORDING, ValueStep, binned, machine_use, recording_in, traffic
from meshmark.views.gantt import gantt_html, gantt_svg
from meshmark.views.terminal.gantt import gantt_text
from meshmark.watch.frames import Frame, FrameMetric, Header
from meshmark.watch.recording import Recorder, RecordingError, RecordingFile
from support.made_load import BEGIN_S, EPOCH, made_load
from support.svg import texts
from support.waiting import take, until

CLOCK = EPOCH + BEGIN_S  # start of the clock of a simulated run
METRICS = {
    "busy": FrameMetric("cpu.busy", "1", "busy", "time"),
    "read": FrameMetric("memory.read", "B/s", "read"),
    "write": FrameMetric("memory.write", "B/s", "written"),
    "moved": FrameMetric("memory.moved", "B/s", "moved", "", True),
    "moved_low": FrameMetric("memory.moved_low", "B/s", "at least"),
    "moved_high": FrameMetric("memory.moved_high", "B/s", "at most"),
}


def record(
    out: Path,
    *,
    machine: str = "n042",
    source: str = "host",
    begin: float = CLOCK - 1,
    seconds: float = 4.0,
    metrics: Sequence[str] = ("busy",),
    busy: Any = lambda cpu, t: [0.25, 0.75, 1.0][cpu],
) -> Path:
    """Write a recording of three CPUs and two memories at 10 Hz that begins at `begin`, in seconds since 1970."""
    header = Header(
        source,
        machine,
        "2026-11-22T08:30:00Z",
        0.1,
        {
            "cpu": tuple({"name": f"CPU {n}", "number": n} for n in range(3)),
            "memory": ({"name": "memory 0"}, {"name": "memory 1"}),
        },
        tuple(METRICS[m] for m in metrics),
        ({"metric": "memory", "why": "no counter here"},),
    )
    rates = {"read": 3e9, "write": 1e9, "moved": 5e9, "moved_low": 4e9, "moved_high": 7e9}
    with Recorder(out, header) as recorder:
        for n in range(1, round(seconds * 10) + 1):
            values: dict[str, list[float | None]] = {
                METRICS[m].name: [rates[m]] * 2 if m in rates else [busy(c, 0.1 * n) for c in range(3)] for m in metrics
            }
            recorder.add(Frame(n, 0.1 * n, 0.1, values, at=begin + 0.1 * n))
    return out


def test_a_recording_is_laid_beside_the_run_by_the_clock_on_the_wall(tmp_path: Path) -> None:
    run = read_run(made_load(tmp_path / "run", {"a": [2.0]}))
    # All CPUs become busy 1.2 s after the start of the clock, which is 2.2 s after the start of the recording.
    path = record(tmp_path / "r.parquet", busy=lambda _, t: 1.0 if t > 2.25 else 0.0)
    use = machine_use(run, path)
    assert use.cpu[0].from_s == pytest.approx(0.0, abs=1e-3)
    assert use.cpu[-1].to_s == pytest.approx(2.0, abs=1e-3)  # cut to the run
    idle = [s for s in use.cpu if s.value == 0]
    assert idle[-1].to_s == pytest.approx(1.2, abs=1e-3)
    assert all(s.value == 1 for s in use.cpu if s.from_s > 1.21)
    assert use.memory == () and use.memory_absent == "no counter here"


def test_the_line_is_of_the_runs_own_cpus(tmp_path: Path) -> None:
    path = record(tmp_path / "r.parquet")  # CPU 2 is always busy
    run = read_run(made_load(tmp_path / "two", {"a": [2.0]}))
    assert {s.value for s in machine_use(run, path).cpu} == {0.5}
    other_run = read_run(made_load(tmp_path / "one", {"a": [2.0]}, cpus="2"))
    assert {s.value for s in machine_use(other_run, path).cpu} == {1.0}


def test_traffic_is_counted_or_estimated_and_it_is_said_which(tmp_path: Path) -> None:
    run = read_run(made_load(tmp_path / "run", {"a": [2.0]}, moved=3e9))
    counted = machine_use(run, record(tmp_path / "c.parquet", metrics=("busy", "read", "write")))
    assert {s.value for s in counted.memory} == {8e9} and not counted.estimated
    labels = texts(gantt_svg(run, counted))
    assert "machine (counted)" in labels and "these programs" in labels and "8 GB/s" in labels
    estimate_metrics = ("busy", "moved", "moved_low", "moved_high")
    estimated = machine_use(run, record(tmp_path / "e.parquet", metrics=estimate_metrics))
    assert estimated.estimated and estimated.memory[0].interval == pytest.approx((8e9, 14e9))
    svg = gantt_svg(run, estimated)
    assert (
        "machine (estimated)" in texts(svg) and 'class="band"' in svg and 'class="band"' not in gantt_svg(run, counted)
    )
    assert "its 95 % interval" in gantt_html(run, estimated) and "estimated" not in gantt_html(run, counted)
    assert "Memory traffic was not recorded: no counter here" in gantt_html(
        run, machine_use(run, record(tmp_path / "n.parquet"))
    )


def test_the_programs_own_traffic_needs_no_recording(tmp_path: Path) -> None:
    run = read_run(made_load(tmp_path / "run", {"a": [1.0, 2.0]}, moved=3e9))
    steps = traffic(run)
    assert steps[0].value == pytest.approx(6e9)  # traffic of both copies
    assert steps[-1].value == pytest.approx(3e9) and steps[-1].to_s == pytest.approx(2.0)
    assert "Memory traffic" in texts(gantt_svg(run))
    quiet = read_run(made_load(tmp_path / "quiet", {"a": [1.0]}))
    assert traffic(quiet) == () and "Memory traffic" not in texts(gantt_svg(quiet))


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"machine": "other"}, "from other; the run was on n042"),
        ({"source": "model", "machine": "gs1280-8"}, "from a model, gs1280-8"),
        ({"begin": CLOCK + 3}, "begins at 2026-11-22 08:30:03 UTC; the run lasted from"),
        ({"begin": CLOCK - 4.01}, "the run lasted from 2026-11-22 08:30:00 UTC to 2026-11-22 08:30:02 UTC"),
        ({"seconds": 0}, "contains no frame"),
    ],
)
def test_a_recording_of_another_machine_or_time_is_refused(tmp_path: Path, about: dict[str, Any], said: str) -> None:
    made_load(tmp_path / "run", {"a": [2.0]})
    path = record(tmp_path / "r.parquet", **about)
    completed = CliRunner().invoke(app, ["show", str(tmp_path / "run"), "--recording", str(path)])
    assert isinstance(completed.exception, UsageError) and said in str(completed.exception)
    assert "\n" not in str(completed.exception)
    assert not (tmp_path / "run" / "gantt.html").exists()


def test_a_spoiled_recording_is_refused_where_it_was_asked_for_and_told_where_it_lies(tmp_path: Path) -> None:
    run = made_load(tmp_path / "run", {"a": [2.0]})
    (run / RECORDING).write_text("no recording")
    with pytest.raises(RecordingError):
        machine_use(read_run(run), run / RECORDING)
    completed = CliRunner().invoke(app, ["show", str(run)])
    assert completed.exit_code == 0 and "warning: machine.parquet: not drawn" in completed.stderr
    assert (run / "gantt.html").exists()


def test_show_finds_the_runs_own_recording_whole_or_cut(tmp_path: Path) -> None:
    run = made_load(tmp_path / "run", {"a": [2.0]})
    assert recording_in(run) is None
    CliRunner().invoke(app, ["show", str(run)])
    assert "machine (recorded)" not in (run / "gantt.svg").read_text()
    record(run / RECORDING)
    assert CliRunner().invoke(app, ["show", str(run)]).exit_code == 0
    assert "machine (recorded)" in (run / "gantt.svg").read_text()
    (run / RECORDING).unlink()
    recorder = Recorder(run / RECORDING, RecordingFile(record(tmp_path / "whole.parquet")).header)
    for frame in RecordingFile(tmp_path / "whole.parquet").frames():
        recorder.add(frame)
    recorder.flush()  # the recorder is not closed, as if it was killed
    assert recording_in(run) == run / (RECORDING + ".part")
    assert CliRunner().invoke(app, ["show", str(run)]).exit_code == 0
    assert "machine (recorded)" in (run / "gantt.svg").read_text()


def test_flags_are_on_the_chart_and_in_the_text(tmp_path: Path) -> None:
    quiet = read_run(made_load(tmp_path / "quiet", {"a": [1.0]}))
    assert "flags" not in gantt_text(quiet) and not [t for t in texts(gantt_svg(quiet)) if "flags" in t]
    cut = read_run(made_load(tmp_path / "cut", {"a": [1.0]}, cut=True))
    assert "flags: stopped" in gantt_text(cut)
    assert [t for t in texts(gantt_svg(cut)) if t.endswith("the run was killed · flags: stopped")]


def test_bins_keep_the_mean_and_leave_out_what_is_not_known() -> None:
    steps = [ValueStep(0.0, 1.0, 1.0), ValueStep(1.0, 1.5, 4.0, (2.0, 6.0)), ValueStep(3.0, 4.0, 2.0)]
    bins = binned(steps, 4.0, 4)
    assert [None if s is None else s.value for s in bins] == [1.0, 4.0, None, 2.0]
    assert bins[1] is not None and bins[1].interval == (2.0, 6.0)
    wide_bin = binned(steps, 4.0, 1)[0]
    assert wide_bin is not None and wide_bin.value == pytest.approx((1 + 2 + 2) / 2.5)
    assert [s.value for s in binned(steps, 4.0, 400) if s][:3] == [1.0] * 3


def test_what_is_recorded_beside_covers_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begin_s = time.time()
    with watched(folder):
        take(0.5)
        end_s = time.time()
    frames = list(RecordingFile(folder / RECORDING).frames())
    assert begin_s < frames[0].at - frames[0].window_s < end_s
    assert frames[-1].at >= end_s
    assert recording_in(folder) == folder / RECORDING
    with watched(tmp_path / "none", enabled=False):
        pass
    assert not (tmp_path / "none").exists()


def test_a_recorder_that_cannot_start_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHMARK_WATCH", str(tmp_path / "nothing"))
    with pytest.raises(MeshmarkError, match=r"^--watch: .*nothing"), watched(tmp_path / "run"):
        pytest.fail("went on")
    made_load(tmp_path / "there", {"a": [1.0]})
    with pytest.raises(UsageError, match="contains a run already"), watched(tmp_path / "there"):
        pytest.fail("went on")
    assert sorted(p.name for p in (tmp_path / "there").iterdir()) == [JOURNAL, "scenario.json"]


def test_a_run_that_is_watched_has_the_machine_below_it(tmp_path: Path) -> None:
    scenario = tmp_path / "s.toml"
    scenario.write_text("[scenario]\ncanary = false\n[[program]]\ncommand = ['sh', '-c', 'sleep 0.5']\n")
    words = ["run", str(scenario), "--out", str(tmp_path / "run"), "--no-store", "--watch"]
    completed = CliRunner().invoke(app, words)
    assert completed.exit_code == 0, completed.output
    run = read_run(tmp_path / "run")
    use = machine_use(run, tmp_path / "run" / RECORDING)
    assert use.cpu[0].from_s == 0
    assert use.cpu[-1].to_s == pytest.approx(run.bench_s, abs=0.2)  # the last frame may come before the end
    assert sum(s.to_s - s.from_s for s in use.cpu) > 0.5 * run.bench_s
    assert "machine (recorded)" in (tmp_path / "run" / "gantt.svg").read_text()
    completed = CliRunner().invoke(app, [*words, "--alone"])
    assert isinstance(completed.exception, UsageError) and "--watch" in str(completed.exception)


WATCHED = """
import signal, sys
from pathlib import Path
from meshmark.cli.load.load_watch import watched
with watched(Path(sys.argv[1])):
    print("in", flush=True)
    signal.pause()
"""


def test_the_recorder_ends_with_a_run_that_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", WATCHED, str(folder)], stdout=subprocess.PIPE) as python:
        assert python.stdout is not None and python.stdout.readline() == b"in\n"
        python.kill()
    assert until((folder / RECORDING).exists) and RecordingFile(folder / RECORDING).count() >= 0
