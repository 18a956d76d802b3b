"""Drawings of recordings: means over time, differences, estimates, and the data that is not drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import MeshmarkError, UsageError
from meshmark.views.pages.recording import binned, draw_difference, draw_recording
from meshmark.watch.frames import USE, Frame, FrameMetric, Header
from meshmark.watch.palette import PALETTES
from meshmark.watch.recording import Recorder
from support.made_frames import frame, header


def test_bins_are_means_of_what_was_known() -> None:
    frames = [frame(n, n / 10, None if n < 5 else 1.0, None, 0.5) for n in range(1, 9)]
    (cpus,) = binned(header(), frames, bins=2)
    assert cpus.names == ("CPU 0", "CPU 1", "CPU 2", "CPU 3")
    assert cpus.use[0] == pytest.approx([0.25, 0.65])
    assert cpus.use[1] == [None, 1.0] and cpus.use[2] == [None, None]
    with pytest.raises(MeshmarkError, match="no frame"):
        binned(header(), [])


def test_a_recording_and_a_difference_are_drawn(tmp_path: Path) -> None:
    frames = [frame(n, 0.2, None, 0.55, 1.0) for n in range(1, 31)]
    two = [frame(n, 0.2, 0.5, 0.25, 1.0) for n in range(1, 21)]
    paths = draw_recording(header(), frames, tmp_path)
    assert sorted(p.name for p in paths) == ["cpu.png", "cpu.svg"]
    text = (tmp_path / "cpu.svg").read_text()
    for step in (2, 5, 9):
        assert PALETTES["inferno"][step] in text
    assert "CPU 3" in text and "use (%)" in text and "#ddd" in text
    paths = draw_difference((header(), frames), (header(), two), tmp_path / "d")
    assert "change (points)" in paths[1].read_text()
    with pytest.raises(MeshmarkError, match="CPUs: 4 and 5"):
        draw_difference((header(), frames), (header(5), two), tmp_path)


def estimated(use: str = "memory.pressure") -> Header:
    """Return a header with two CPUs, whose metric is counted, and two memories, whose metric `use` is estimated."""
    parts = {k: ({"name": f"{k} 0"}, {"name": f"{k} 1"}) for k in ("cpu", "memory", "link")}
    metrics = (
        FrameMetric("cpu.busy", "1", "busy", "time"),
        FrameMetric(use, "1", "told from latency", "bandwidth", True),
    )
    return Header(
        "host",
        "test",
        "",
        1.0,
        parts,
        metrics,
        ({"metric": "link", "why": "no counters here"},),
        {"use": {"memory": use}},
    )


def told(of: Header, memory: float) -> list[Frame]:
    return [Frame(n, n, 1.0, {"cpu.busy": [0.1, 0.2], of.use["memory"]: [memory, None]}) for n in range(1, 11)]


def test_what_colours_a_class_is_drawn_and_an_estimate_says_so(tmp_path: Path) -> None:
    estimated_header = estimated()
    cpus, memories = binned(estimated_header, told(estimated_header, 0.45))
    assert (cpus.metric, cpus.estimated) == ("cpu.busy", False)
    assert (memories.metric, memories.estimated) == ("memory.pressure", True)
    assert memories.use[0] == pytest.approx([0.45] * 10) and memories.use[1] == [None] * 10
    paths = draw_recording(estimated_header, told(estimated_header, 0.45), tmp_path)
    assert sorted(p.name for p in paths) == ["cpu.png", "cpu.svg", "memory.png", "memory.svg"]
    text = (tmp_path / "memory.svg").read_text()
    assert "Memory, estimated (memory.pressure)" in text and PALETTES["inferno"][4] in text
    assert "estimated" not in (tmp_path / "cpu.svg").read_text()
    # A header cannot declare another metric as the use of a class.
    assert Header("host", "t", "", 1.0, {}, (), (), {"use": {"memory": "cpu.busy"}}).use == USE


def test_plot_says_what_it_does_not_draw(tmp_path: Path) -> None:
    for name, use in (("a", "memory.pressure"), ("b", "memory.busy")):
        with Recorder(tmp_path / name, estimated(use)) as recorder:
            for f in told(estimated(use), 0.5):
                recorder.add(f)
    result = CliRunner().invoke(app, ["plot", str(tmp_path / "a"), "--out", str(tmp_path / "plots")])
    assert result.exit_code == 0 and "memory.svg" in result.stdout
    assert result.stderr.strip() == "link: not drawn: no counters here"
    words = ["plot", str(tmp_path / "a"), "--against", str(tmp_path / "b"), "--out", str(tmp_path / "change")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0 and "cpu-difference.svg" in result.stdout and "memory-difference" not in result.stdout
    assert "memory: not drawn: it is memory.busy before and memory.pressure after" in result.stderr
    wrong = CliRunner().invoke(app, [*words, "--palette", "cividis"])
    assert isinstance(wrong.exception, UsageError) and str(wrong.exception).startswith(
        "--palette: found with --against"
    )
