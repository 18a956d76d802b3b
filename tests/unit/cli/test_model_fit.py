"""Test `meshmark model fit` with results of other tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshmark.model.machine import read_machine
from support.cli import meshmark
from support.imports import FIXTURES


def run(tmp_path: Path, *words: object) -> tuple[int, str, str]:
    completed = meshmark("model", "fit", *words, env={"XDG_DATA_HOME": str(tmp_path / "data")}, cwd=tmp_path)
    return completed.returncode, completed.stdout, completed.stderr


def test_a_file_is_fitted_and_tested(tmp_path: Path) -> None:
    status, table, messages = run(tmp_path, FIXTURES / "mlc-pair.txt", "--cores", "56", "--out", "pair.toml")
    assert status == 0, messages
    assert "idle-remote" in table and "predicted" in table
    assert "note: triad: streaming stores are assumed" in messages and "machine file: pair.toml" in messages
    assert read_machine(tmp_path / "pair.toml").data["node"]["cpus"] == 28


def test_a_machine_of_the_store_is_fitted_with_numbers_in_si_units(tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    imported = meshmark("store", "import", FIXTURES / "mlc-pair.txt", "--machine", "rival", env=env, cwd=tmp_path)
    assert imported.returncode == 0, imported.stderr
    status, lines, messages = run(tmp_path, "rival", "--cores", "56", "--json")
    assert status == 0, messages
    rows = {row["point"]: row for row in map(json.loads, lines.splitlines())}
    assert rows["idle-local"]["host"] == pytest.approx(81.8e-9) and rows["idle-local"]["unit"] == "s"
    assert rows["read"]["fitted"] is True and rows["transfer inside a socket"]["fitted"] is False
    assert (tmp_path / "rival.toml").is_file()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("mlc-pair.txt", 77, "fit: the results do not state the number of cores of the machine"),
        ("mlc-pair.txt --cores 7", 2, "cores: found 7; allowed: an even number up to 1024"),
        ("mlc-pair.txt --cores x", 2, "--cores: found 'x'; allowed: a whole number"),
        ("mlc-pair.txt --cores 56 --idle-local 1", 2, "--idle-local: found '1'; allowed: a time with its unit"),
        ("osu.txt --cores 4", 77, "fit: the results have no read or triad bandwidth"),
    ],
)
def test_what_cannot_be_fitted_is_one_line(words: str, status: int, message: str, tmp_path: Path) -> None:
    name, *options = words.split()
    exit_status, table, messages = run(tmp_path, FIXTURES / name, *options)
    (line,) = [x for x in messages.splitlines() if not x.startswith("hint: ")]
    assert (exit_status, table) == (status, "") and message in line
    assert not list(tmp_path.glob("*.toml"))


def test_a_model_is_not_fitted_to_itself(tmp_path: Path) -> None:
    status, _, messages = run(tmp_path, "gs1280-4")
    assert status == 2 and "fit: found the model gs1280-4; allowed:" in messages
