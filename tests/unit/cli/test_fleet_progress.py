"""Test the progress that is printed while a campaign runs."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.cli.fleet.fleet_progress import fleet_progress
from meshmark.fleet.campaigns.campaign import CampaignProgress, NodeState, Status
from support.cli import command

NAMES = [f"n{i}" for i in range(1, 11)]


def look(elapsed_s: float, done: int, out: int = 0, trouble: str = "") -> CampaignProgress:
    statuses: list[Status] = ["done"] * done + ["out"] * out + ["running"] * (10 - done - out)
    states = {name: NodeState(status) for name, status in zip(NAMES, statuses, strict=True)}
    return CampaignProgress("check-1", states, elapsed_s, trouble)


def on_terminal(words: list[str]) -> str:
    """Return what a command writes to its standard error if that is a terminal."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writer)
    os.close(writer)
    output = b""
    try:
        while part := os.read(reader, 1 << 16):
            output += part
    except OSError:
        pass  # the other end of the terminal is closed
    finally:
        os.close(reader)
    assert process.wait(60) == 0
    return output.decode()


def test_a_line_now_and_then_has_the_counts_and_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with fleet_progress("check") as show:
        for elapsed_s, done_count in ((0, 0), (5, 1), (10, 2), (15, 4), (20, 8), (21, 10)):
            show(look(elapsed_s, done_count))
    assert capsys.readouterr().err.splitlines() == [
        "check-1: 10 running (0 s)",
        "check-1: 8 running, 2 done (10 s, about 40 s left)",
        "check-1: 2 running, 8 done (20 s, about 5 s left)",
        "check-1: 10 done (21 s)",
    ]


def test_a_resumed_campaign_is_estimated_by_what_it_did_since(capsys: pytest.CaptureFixture[str]) -> None:
    with fleet_progress("check") as show:
        show(look(0, 5, out=1))
        show(look(60, 7, out=1))
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == "check-1: 2 running, 7 done, 1 out (1 min 00 s, about 1 min 00 s left)"
    )


def test_trouble_is_printed_when_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    with fleet_progress("check") as show:
        for elapsed_s, trouble in enumerate(["", "sinfo: no answer", "sinfo: no answer", "", "sbatch: limit"]):
            show(look(elapsed_s, 0, trouble=trouble))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert lines == ["warning: sinfo: no answer; trying again", "warning: sbatch: limit; trying again"]


@pytest.mark.slow
def test_a_terminal_gets_a_bar_and_keeps_the_last_counts(tmp_path: Path) -> None:
    spec = tmp_path / "tiny.toml"
    spec.write_text(
        'name = "tiny"\n[[step]]\ninstrument = "peak"\noptions = { type = "fp64", budget = "100ms" }\n',
        encoding="utf-8",
    )
    text = on_terminal(command("fleet", "check", tmp_path / "fleet", "--engine", "local", "--spec", spec, "--beside"))
    assert "━" in text and "1 done (" in text.splitlines()[-2] + text.splitlines()[-1], text


def test_a_bar_also_shows_what_is_taken_in() -> None:
    script = (
        "from meshmark.cli.fleet.fleet_progress import fleet_progress\n"
        "with fleet_progress('check') as show:\n"
        "    for read in (0, 250, 500): show.took_in(read, 500); show.bar.refresh()\n"
    )
    assert "500 of 500 files read" in on_terminal([sys.executable, "-c", script])
