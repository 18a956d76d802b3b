"""The input files that `init` writes are valid, also after any of their commented-out lines is enabled."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from meshmark.load.scenario.scenario import read_scenario
from meshmark.measure.runs.plan import make_plan
from meshmark.measure.runs.spec import parse_spec
from meshmark.model.instruments import measure
from meshmark.model.machine import find_machine
from support.cli import meshmark

GROUPS = {"survey": "survey.toml", "load": "scenario.toml", "model": "machine.toml"}
READ: dict[str, Callable[[Path], object]] = {
    "survey": lambda path: make_plan(parse_spec(path.read_text(), str(path))),
    "load": read_scenario,
    "model": lambda path: measure("latency", find_machine(str(path)), {}),
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_template_is_written_is_valid_and_never_overwrites(tmp_path: Path, group: str) -> None:
    first = meshmark(group, "init", cwd=tmp_path)
    assert (first.returncode, first.stdout) == (0, GROUPS[group] + "\n") and "next: meshmark " in first.stderr
    (path,) = tmp_path.iterdir()
    assert READ[group](path)
    path.write_text("mine")
    second = meshmark(group, "init", cwd=tmp_path)
    assert second.returncode == 2 and "exists; allowed: a new file, or --force" in second.stderr
    assert path.read_text() == "mine"
    assert meshmark(group, "init", path, "--force").returncode == 0 and path.read_text() != "mine"


def test_every_line_that_a_scenario_shows_as_a_comment_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    meshmark("load", "init", path)
    lines = path.read_text().splitlines()
    commented_lines = [n for n, line in enumerate(lines) if re.match(r"# \w+ = ", line)]
    assert len(commented_lines) > 8
    for n in commented_lines:
        path.write_text("\n".join([*lines[:n], lines[n][2:], *lines[n + 1 :]]))
        assert read_scenario(path), lines[n]
