"""Runs scenarios in a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshmark.errors import MeshmarkError
from meshmark.load.scenario.result import LoadRun
from meshmark.load.scenario.run import run_scenario

CPUS = tuple(sorted(os.sched_getaffinity(0)))
QUIET = "[scenario]\ncanary = false\n"
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def run(folder: Path, text: str, **programs: Path) -> LoadRun:
    file = folder / "scenario.toml"
    file.write_text(text)
    return run_scenario(file, folder / "run", program_files=programs)


def one_line(why: pytest.ExceptionInfo[MeshmarkError]) -> str:
    message = str(why.value)
    assert message
    assert "\n" not in message
    assert "\n" not in why.value.hint
    assert len(message) < 700
    return message
