"""The speed-up of a recorded command by its number of threads, and the use of the machine meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import MeshmarkError, UsageError
from meshmark.watch.marks import END, START, Mark
from meshmark.watch.recorder.speedup import speed_up
from meshmark.watch.recording import Recorder, opened
from support.made_recordings import frames, header


def recorded(folder: Path, name: str, elapsed_s: float, use: float, status: int = 0) -> Path:
    """Record ten frames of 0.1 s, of which the command covers all but the first two."""
    file, made = folder / name, frames([(0.0,) * 4, (0.0,) * 4, *[(use,) * 4] * 8])
    with Recorder(file, header()) as recorder:
        recorder.add_mark(Mark(START, made[1].at, {"command": ["a.out"], "pid": 7}))
        for frame in made:
            recorder.add(frame)
        recorder.add_mark(Mark(END, made[-1].at, {"status": status, "elapsed_s": elapsed_s}))
    return file


def test_points_are_in_the_order_of_threads(tmp_path: Path) -> None:
    files = [recorded(tmp_path, f"{n}.parquet", s, use) for n, s, use in ((4, 3.0, 0.9), (1, 8.0, 0.25), (2, 4.0, 0.5))]
    points = speed_up([opened(f) for f in files], [4, 1, 2])
    assert [p.threads for p in points] == [1, 2, 4]
    assert [p.speed_up for p in points] == pytest.approx([1.0, 2.0, 8 / 3])
    assert [p.use["cpu"] for p in points] == pytest.approx([0.25, 0.5, 0.9])
    assert "memory" not in points[0].use, "no counter states it"


@pytest.mark.parametrize("threads", [[1], [2, 2], [0, 1]])
def test_each_recording_needs_its_own_number(tmp_path: Path, threads: list[int]) -> None:
    files = [recorded(tmp_path, f"{n}.parquet", 1.0, 0.5) for n in (1, 2)]
    with pytest.raises(UsageError, match=r"--threads: found .*; allowed: a different number for each of the 2"):
        speed_up([opened(f) for f in files], threads)


def test_a_command_that_failed_has_no_speed(tmp_path: Path) -> None:
    files = [recorded(tmp_path, "1.parquet", 1.0, 0.5), recorded(tmp_path, "2.parquet", 1.0, 0.5, status=1)]
    with pytest.raises(MeshmarkError, match="a command that did not end, or failed"):
        speed_up([opened(f) for f in files], [1, 2])


def test_the_chart_has_the_ideal_and_the_table_the_use(tmp_path: Path) -> None:
    files = [recorded(tmp_path, f"{n}.parquet", 4.0 / n, 0.2 * n) for n in (1, 2)]
    drawn = CliRunner().invoke(app, ["plot", *map(str, files), "--threads", "1,2", "--out", str(tmp_path / "out")])
    assert drawn.exit_code == 0, drawn.output
    rows = [line.split() for line in drawn.stdout.splitlines()]
    assert rows[-2:] == [["1", "4.00", "s", "1.00", "20", "%"], ["2", "2.00", "s", "2.00", "40", "%"]]
    picture = (tmp_path / "out/speed-up.svg").read_text(encoding="utf-8")
    assert "speed-up over 1 thread" in picture and "ideal" in picture and "mean use (%)" in picture
    refused = CliRunner().invoke(app, ["plot", *map(str, files), "--threads", "1,x"])
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception).startswith("--threads: found '1,x'; allowed: numbers such as 1,2,4")
