"""Several recordings in one chart, windows of recordings, and recordings as CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import UsageError
from meshmark.watch.frames import Frame, Header
from meshmark.watch.marks import END, START, Mark
from meshmark.watch.recorder.overlay import interval_of_mean, overlay
from meshmark.watch.recorder.window import TimeWindow, window_of_command
from meshmark.watch.recording import Recorder, RecordingFile
from support.made_frames import frame, header


def second(n: int, *values: float | None) -> Frame:
    """Return a frame of one second that ends `n` s after the start."""
    return replace(frame(n, *values), t_s=float(n), window_s=1.0)


def machine() -> Header:
    return replace(header(), period_s=1.0)


def recorded(out: Path, uses: Sequence[float | None], start: float | None = None, elapsed_s: float = 2.0) -> Path:
    """Record frames of one second each, and a command that starts `start` s after the recording."""
    with Recorder(out, machine()) as recorder:
        if start is not None:
            recorder.add_mark(Mark(START, 1e9 + start, {"command": ["make"]}))
        for n, use in enumerate(uses, start=1):
            recorder.add(second(n, use, use, use, use))
        if start is not None:
            recorder.add_mark(Mark(END, 1e9 + start + elapsed_s, {"status": 0, "elapsed_s": elapsed_s}))
    return out


def invoke(*words: object) -> tuple[int, str, str]:
    completed = CliRunner().invoke(app, ["plot", *map(str, words)])
    if completed.exception is not None and not isinstance(completed.exception, SystemExit):
        raise completed.exception
    return completed.exit_code, completed.stdout, completed.stderr


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_means_of_bins_are_weighted_by_time() -> None:
    frames = [second(1, 0.2, 0.2, 0.2, 0.2), replace(second(2, 0.8, 0.4, None, None), t_s=1.5, window_s=0.5)]
    other = [second(1, 0.5, 0.5, 0.5, 0.5), second(2, None, None, None, None), second(3, 0.1, 0.1, 0.1, 0.1)]
    (cpu,) = overlay([(machine(), frames), (machine(), other)])
    assert cpu.at_s.tolist() == [1, 2, 3]
    assert cpu.use[0] == pytest.approx([0.2, 0.6, math.nan], nan_ok=True)
    assert cpu.use[1] == pytest.approx([0.5, math.nan, 0.1], nan_ok=True)
    assert cpu.means == pytest.approx([(0.2 + 0.5 * 0.6) / 1.5, 0.3])
    assert np.isnan(cpu.mean).all(), "two recordings have no interval"


def test_a_frame_that_spans_bins_counts_in_each() -> None:
    long = replace(second(3, 0.6, 0.6, 0.6, 0.6), window_s=3.0)
    quick = replace(machine(), period_s=0.5)
    (cpu,) = overlay([(quick, [long])])
    assert cpu.use[0] == pytest.approx([0.6] * 6)


def test_the_interval_of_the_mean_is_students() -> None:
    values = np.array([[0.2, 0.2], [0.3, math.nan], [0.4, 0.4]])
    mean, low, high = interval_of_mean(values)
    half_width = 4.302652729911275 * 0.1 / math.sqrt(3)  # t of two degrees of freedom
    assert mean[0] == pytest.approx(0.3) and high[0] == pytest.approx(0.3 + half_width)
    assert low[0] == pytest.approx(0.3 - half_width) and np.isnan([mean[1], low[1], high[1]]).all()


def test_three_recordings_are_drawn_with_their_mean(tmp_path: Path) -> None:
    files = [recorded(tmp_path / f"{n}.parquet", [n / 10] * 4, start=1.0) for n in (2, 3, 4)]
    status, stdout, stderr = invoke(*files, "--out", tmp_path / "plots")
    assert status == 0 and [Path(line).name for line in stdout.split()] == ["recordings.png", "recordings.svg"]
    assert "cpu: 2.parquet 20 %, 3.parquet 30 %, 4.parquet 40 %, mean 30 % (95 % interval 5.2 % to 55 %)" in stderr
    text = (tmp_path / "plots" / "recordings.svg").read_text()
    assert "mean, 95 % band" in text and "3.parquet" in text and "time after the start of the command" in text


def test_simulated_machines_have_microseconds(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Recorder(tmp_path / name, replace(header(), source="model", period_s=5e-7)) as recorder:
            for n in range(1, 5):
                recorder.add(replace(frame(n, 0.5, 0.5, 0.5, 0.5), t_s=n * 5e-7, window_s=5e-7))
    assert invoke(tmp_path / "a", tmp_path / "b", "--out", tmp_path)[0] == 0
    assert "time after the start (µs)" in (tmp_path / "recordings.svg").read_text()


def test_two_recordings_are_drawn_without_a_mean(tmp_path: Path) -> None:
    files = [
        recorded(tmp_path / folder / "r.parquet", [0.5]) for folder in ("a", "b") if not (tmp_path / folder).mkdir()
    ]
    assert invoke(*files, "--out", tmp_path / "plots")[0] == 0
    text = (tmp_path / "plots" / "recordings.svg").read_text()
    assert "95 % band" not in text and "a/r.parquet" in text and "time after the start (s)" in text


def test_recordings_are_aligned_at_the_start_of_their_command(tmp_path: Path) -> None:
    files = [
        recorded(tmp_path / "a.parquet", [0.0, 1.0, 1.0, 0.0], start=1.0),
        recorded(tmp_path / "b.parquet", [0.0, 0.0, 0.0, 1.0, 1.0], start=3.0),
    ]
    _, stdout, _ = invoke(*files, "--csv")
    use_by_time: dict[str, set[str]] = {}
    for row in rows_of(stdout):
        if row["metric"] == "cpu.busy" and 0 < float(row["time"]) <= 2:
            use_by_time.setdefault(row["time"], set()).add(row["value"])
    assert use_by_time == {"1.000000": {"1"}, "2.000000": {"1"}}
    recorded(tmp_path / "c.parquet", [0.5])
    assert "aligned at their starts" in invoke(files[0], tmp_path / "c.parquet", "--csv")[2]


def test_csv_has_a_row_for_each_known_value(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r.parquet", machine()) as recorder:
        recorder.add(second(1, 0.25, None, 0.5, 1.0))
    _, stdout, _ = invoke(tmp_path / "r.parquet", "--csv")
    rows = rows_of(stdout)
    assert stdout.startswith("time,component,metric,value,unit\n") and len(rows) == 7
    assert rows[0] == {"time": "1.000000", "component": "CPU 0", "metric": "cpu.busy", "value": "0.25", "unit": "1"}
    assert [r["component"] for r in rows[:3]] == ["CPU 0", "CPU 2", "CPU 3"], "an unknown value has no row"
    status, stdout, stderr = invoke(tmp_path / "r.parquet", "-o", tmp_path / "r.csv")
    assert (status, stdout, stderr) == (0, f"{tmp_path}/r.csv\n", "7 rows\n")
    assert rows_of((tmp_path / "r.csv").read_text()) == rows


def test_a_window_selects_frames(tmp_path: Path) -> None:
    file = recorded(tmp_path / "r.parquet", [0.1, 0.2, 0.3, 0.4, 0.5], start=1.25)

    def times(*words: str) -> list[str]:
        return sorted({row["time"] for row in rows_of(invoke(file, "--csv", *words)[1])})

    assert times("--from", "1s", "--to", "2500ms") == ["2.000000", "3.000000"]
    assert times("--to", "1") == ["1.000000"]
    assert times("--window", "command") == ["0.750000", "1.750000", "2.750000"]
    window = window_of_command(RecordingFile(file))
    assert (window.origin_s, window.from_s, window.to_s) == pytest.approx((1.25, 0, 2))
    assert list(TimeWindow().frames(RecordingFile(file))) == list(RecordingFile(file).frames())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "9s"], "--from, --to: found 9 s to no limit; allowed: a part of r.parquet, which ends at 2 s"),
        (["--from", "2s", "--to", "1s"], "--from: found 2 s; allowed: less than --to"),
        (["--window", "all"], "--window: found 'all'; allowed: command"),
        (["--window", "command", "--to", "1s"], "--to: found with --window"),
        (["--csv", "--out", "folder"], "--out: found folder with --csv"),
        (["--against", "r.parquet", "--csv"], "--csv: found with --against"),
        (["--against", "r.parquet", "--to", "1s"], "--to: found with --against"),
        (["r.parquet", "--against", "r.parquet"], "--against: found with 2 recordings"),
        (["r.parquet", "--low", "5"], "--low: found with several recordings"),
    ],
)
def test_spans_that_do_not_fit_are_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "r.parquet", [0.5, 0.5], start=0.5)
    with pytest.raises(UsageError) as error:
        invoke("r.parquet", *words)
    assert str(error.value).startswith(message)
    assert not (tmp_path / "plots").exists()
