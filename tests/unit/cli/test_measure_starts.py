"""A measurement starts few programs beside the instrument."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from meshmark.describe import KINDS, find_probe
from support.cli import meshmark

WRAPPER = """#!/bin/sh
echo "$0 $*" >> '{log}'
exec '{program}' "$@"
"""


@pytest.mark.parametrize("options", [("--budget", "0.3s"), ()])
def test_at_most_two_programs_describe_and_plan_a_measurement(options: tuple[str, ...], tmp_path: Path) -> None:
    log = tmp_path / "log"
    comm_names = [f"meshmark-comm-{kind}" for kind in KINDS]
    for name, program in (("meshmark-probe", find_probe()), *((name, "/bin/false") for name in comm_names)):
        (tmp_path / name).write_text(WRAPPER.format(log=log, program=program), encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "MESHMARK_PROBE": str(tmp_path / "meshmark-probe"),
        "MESHMARK_COMM": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    arguments = ["clock", "--repetitions", "1", "--json", *options]
    completed = meshmark("measure", *arguments, env=environment)
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout.splitlines()[0])["instrument"] == "clock"
    started = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    plans = [] if options else [["clock", "--plan"]]
    assert {Path(words[0]).name for words in started} == {"meshmark-probe"}
    assert [words[1:3] for words in started[:-1]] == [["--describe"], *plans]
    assert started[-1][1] == "clock" and "--plan" not in started[-1]
