"""Tests of the first configuration of an application, for commands that measure a single command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from meshmark.applications.application import Application, parse_application
from meshmark.applications.single import single
from meshmark.errors import MeshmarkError, UsageError

TEXT = """
[application]
command = "sh -c 'cat in-{n}.txt > out.txt'"
env = { A = "{n}" }
[files]
"in-4.txt" = "sum 4\\n"
[verify]
command = ["grep", "-q", "sum {n}", "out.txt"]
[dimensions]
n = [4, 5]
"""


def application(text: str, folder: Path) -> Application:
    return parse_application(text, "a", folder)


def test_the_command_has_its_files_its_variables_and_its_verification(tmp_path: Path) -> None:
    command, context = single(application(TEXT, tmp_path), tmp_path / "run", lambda _: None)
    assert command[:2] == ["sh", "-c"] and "in-4.txt" in command[2]
    assert context.environment["A"] == "4" and context.folder is not None
    assert context.folder.is_relative_to(tmp_path / "run")
    for _ in range(2):
        context.begin()
        assert [path.name for path in context.folder.iterdir()] == ["in-4.txt"]
        assert context.wrong("") != ""
        subprocess.run(command, cwd=context.folder, env={**os.environ, **context.environment}, check=True)
        assert context.wrong("") == ""


@pytest.mark.parametrize(
    ("dimension", "message"),
    [
        ("ranks = 2", "app: dimensions.ranks: found 2 as the first value; allowed here: 1"),
        ("copies = 3", "app: dimensions.copies: found 3 as the first value; allowed here: 1"),
    ],
)
def test_a_dimension_that_only_measure_app_varies_is_refused(tmp_path: Path, dimension: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        single(application(f"[application]\ncommand = 'a'\n[dimensions]\n{dimension}\n", tmp_path), tmp_path, print)
    assert not list(tmp_path.iterdir())


def test_a_build_that_fails_is_an_error(tmp_path: Path) -> None:
    text = "[application]\ncommand = '{build}/a'\n[build.o2]\ncommands = [['false']]\n"
    with pytest.raises(MeshmarkError, match="o2"):
        single(application(text, tmp_path), tmp_path / "run", lambda _: None)
