"""Test `meshmark watch`, `record` and `replay`: the form of their frames, requested colours and one-line errors."""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import UsageError
from meshmark.views.terminal.live.map import UNKNOWN
from meshmark.watch.frames import USE, frame_of, header_of
from meshmark.watch.recording import Recorder
from support.cli import meshmark
from support.made_frames import frame, header


def test_live_recorded_and_simulated_frames_have_one_form(tmp_path: Path) -> None:
    recording = tmp_path / "m.parquet"
    words = ("--on", "gs1280-8", "--workload", "hot_spot", "--frames", "6")
    live = [json.loads(x) for x in meshmark("watch", *words, "--json").stdout.splitlines()]
    assert meshmark("record", *words, "--out", str(recording)).returncode == 0
    replayed = [json.loads(x) for x in meshmark("replay", str(recording), "--json").stdout.splitlines()]
    host = [json.loads(x) for x in meshmark("watch", "--rate", "20", "--duration", "0.2", "--json").stdout.splitlines()]
    assert len(live) == len(replayed) == 7 and len(host) == 5
    for lines in (live, replayed, host):
        h = header_of(lines[0])
        assert set(lines[1]) == {"type", "seq", "t_s", "window_s", "at", "late_s", "cost_s", "dropped", "values"}
        for line in lines[1:]:
            for name, values in frame_of(line, h).values.items():
                assert len(values) == h.count(name.partition(".")[0])
    busy = live[-1]["values"][USE["memory"]]
    assert busy[0] > 0.5 > max(busy[2:])


def test_a_cut_recording_is_replayed_in_the_terminal(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.parquet", header())
    for n in range(1, 25):
        recorder.add(frame(n, 0.1, None, 0.55, 1.0))
    completed = meshmark("replay", str(tmp_path / "r.parquet.part"))
    assert completed.returncode == 0, completed.stderr
    assert "55" in completed.stdout and UNKNOWN in completed.stdout and "100 %" in completed.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["watch", "--low", "50", "--high", "10"], "--low"),
        (["watch", "--palette", "grey"], "--palette"),
        (["watch", "--on", "nothing"], "nothing"),
        (["watch", "--on", "gs1280-8", "--workload", "moon"], "moon"),
        (["replay", "/proc/nowhere.parquet"], "nowhere"),
        (["watch", "--web", "--host", "0.0.0.0", "--no-token", "--on", "gs1280-4"], "--no-token"),
    ],
)
def test_wrong_words_of_the_command_are_one_line(words: list[str], said: str) -> None:
    completed = meshmark(*words)
    assert completed.returncode in {1, 2}
    assert said in completed.stderr and "Traceback" not in completed.stderr


def packed_header(page: Path) -> dict[str, Any]:
    """Return the header that is packed into a self-contained page."""
    data = re.search(r'id="data">([^<]+)<', page.read_text())
    assert data
    raw = gzip.decompress(base64.b64decode(data[1]))
    (words,) = struct.unpack_from("<I", raw)
    return json.loads(raw[4 : 4 + words])["header"]  # type: ignore[no-any-return]


VIEWS: list[tuple[list[str], dict[str, Any] | None]] = [
    (["--low", "1", "--high", "10", "--palette", "cividis"], {"low": 1.0, "high": 10.0, "palette": "cividis"}),
    (["--high", "50"], {"low": 0.0, "high": 50.0}),
    # A requested default also replaces the palette that the reader used last.
    (
        ["--palette", "inferno"],
        {"palette": "inferno"},
    ),
    ([], None),
]


@pytest.mark.parametrize(("words", "view"), VIEWS)
def test_the_colours_that_were_asked_for_go_into_the_page(
    words: list[str], view: dict[str, Any] | None, tmp_path: Path
) -> None:
    with Recorder(tmp_path / "r", header()) as recorder:
        recorder.add(frame(1, 0.1, 0.2, 0.3, 0.4))
    completed = CliRunner().invoke(app, ["replay", str(tmp_path / "r"), "--html", str(tmp_path / "r.html"), *words])
    assert completed.exit_code == 0, completed.stderr
    assert packed_header(tmp_path / "r.html").get("view") == view


@pytest.mark.parametrize("words", [["--low", "1"], ["--high", "10"], ["--palette", "cividis"]])
def test_a_change_has_colours_of_its_own(words: list[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Recorder(tmp_path / name, header()) as recorder:
            recorder.add(frame(1, 0.1, 0.2, 0.3, 0.4))
    line = ["replay", str(tmp_path / "a"), "--against", str(tmp_path / "b"), "--html", str(tmp_path / "page.html")]
    wrong = CliRunner().invoke(app, [*line, *words])
    assert isinstance(wrong.exception, UsageError) and str(wrong.exception).startswith(f"{words[0]}: found with --ag")
    assert not (tmp_path / "page.html").exists()
