"""Every command works with a store of hundreds of runs and ends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from meshmark.machine.identity import identity
from support import cli
from support.store_of_runs import RUNS, fill

CLOCK = 'name = "clock"\nsummary = "one step"\n[[step]]\ninstrument = "clock"\noptions = { budget = "0.1s" }\n'
SCENARIO = '[[program]]\nname = "one"\ncommand = ["true"]\n'
STARTS = 3  # starts of each command that starts programs: one in ten to thirty used to hang


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    fill(folder / "data", identity()["id"])
    (folder / "clock.toml").write_text(CLOCK)
    (folder / "scenario.toml").write_text(SCENARIO)
    return folder


def meshmark(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return cli.meshmark(*words, env={"XDG_DATA_HOME": str(home / "data")}, cwd=home, timeout_s=120)


@pytest.mark.parametrize(
    "words",
    [
        ("survey", "--spec", "clock.toml"),
        ("measure", "clock", "--budget", "0.1s", "--json"),
        ("experiment", "A=1", "A=2", "--budget", "1s", "--", "true"),
        ("measure", "app", "--command", "true", "--repetitions", "1", "--budget", "5s"),
        ("load", "run", "scenario.toml", "--force"),
        ("model", "measure", "latency", "gs1280-4"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_that_starts_programs_ends(home: Path, words: tuple[str, ...]) -> None:
    for number in range(STARTS):
        options = ("--out", f"{'-'.join(words[:2])}-{number}".replace(" ", "")) if words[:2] == ("load", "run") else ()
        completed = meshmark(home, *words, *options)
        assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("store", "list"),
        ("store", "verify"),
        ("store", "machines"),
        ("store", "export", "--format", "jsonl"),
        ("history",),
        ("compare", "host", "host", "--all"),
        ("machine", "show", "host"),
        ("report", "latest"),
        ("export", "hwloc-xml"),
        ("claims", "--on", "computed"),
    ],
    ids=" ".join,
)
def test_a_command_that_reads_the_store_ends_with_a_status_of_its_own(home: Path, words: tuple[str, ...]) -> None:
    completed = meshmark(home, *words)
    assert completed.returncode in {0, 1, 77}, completed.stderr
    assert "Traceback" not in completed.stderr and "unexpected" not in completed.stderr


def test_all_runs_are_listed(home: Path) -> None:
    completed = meshmark(home, "store", "list", "--json")
    assert (
        len([line for line in map(json.loads, completed.stdout.splitlines()) if line["run"].startswith("measure-2026")])
        >= RUNS
    )
