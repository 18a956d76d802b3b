"""A folder that does not belong to a fleet is refused before anything is written to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import UsageError


@pytest.mark.parametrize(
    "words",
    [
        "run {} --engine local",
        "check {} --engine local",
        "pairs {} --engine local --nodes n[1-2]",
        "ingest {}",
        "judge {}",
        "close {} n1",
        "report {}",
        "limits {} -o limits.json",
        "manifests {} --image i --claim c",
        "compact {}",
        "serve {}",
        "place {} --engine local --nodes 2",
    ],
)
def test_no_command_writes_to_a_folder_of_something_else(words: str, tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root")
    result = CliRunner().invoke(app, ["fleet", *words.format(tmp_path).split()], catch_exceptions=True)
    assert isinstance(result.exception, UsageError), result.output
    assert str(result.exception).startswith(f"FOLDER: found {tmp_path}, which is not the folder of a fleet"), words
    assert [path.name for path in tmp_path.iterdir()] == ["passwd"]
