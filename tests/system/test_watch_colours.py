"""Requested colours reach the served page."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from meshmark.watch.recording import Recorder
from support.cli import start
from support.made_frames import frame, header
from support.waiting import listening, until


@pytest.mark.parametrize("what", ["live", "simulated", "recorded"])
def test_the_colours_that_were_asked_for_are_served(what: str, tmp_path: Path) -> None:
    with Recorder(tmp_path / "r", header()) as recorder:
        recorder.add(frame(1, 0.1, 0.2, 0.3, 0.4))
    words = {
        "live": ["watch"],
        "simulated": ["watch", "--on", "gs1280-4", "--frames", "5"],
        "recorded": ["replay", str(tmp_path / "r")],
    }[what]
    line = [*words, "--web", "--port", "0", "--no-token", "--low", "1", "--high", "10", "--palette", "cividis"]
    with start(*line, stderr=subprocess.DEVNULL) as child:
        try:
            assert child.stdout is not None
            address = child.stdout.readline().strip()
            assert until(lambda: listening(address))
            with urllib.request.urlopen(address + "api/header", timeout=60) as answer:
                assert json.loads(answer.read())["view"] == {"low": 1.0, "high": 10.0, "palette": "cividis"}
        finally:
            child.kill()
