"""Tests of file modes: runs, stores and plans are private; outputs that a user names follow the umask."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark.store.files import make_folder, open_private, write_file
from meshmark.store.session import held
from support import cli
from support.result_line import LINE

SCENARIO = '[[program]]\nname = "one"\ncommand = ["true"]\n'


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    old_umask = os.umask(0o022)
    yield
    os.umask(old_umask)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def readable_by_others(folder: Path) -> list[str]:
    paths = [folder, *folder.rglob("*")]
    assert len(paths) > 1
    return [str(path) for path in paths if not path.is_symlink() and mode(path) & 0o077]


@pytest.mark.parametrize(
    "words",
    [
        ("measure", "clock", "--budget", "0.1s"),
        ("survey", "--spec", "clock.toml", "--out", "run"),
        ("measure", "app", "--command", "true", "--repetitions", "1", "--budget", "5s"),
        ("experiment", "A=1", "A=2", "--budget", "0.5s", "--", "true"),
        ("load", "run", "scenario.toml", "--out", "run", "--force"),
        ("store", "import", "results.jsonl"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_leaves_nothing_that_others_may_read(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "clock.toml").write_text(
        'name = "c"\nsummary = "s"\n[[step]]\ninstrument = "clock"\noptions = { budget = "0.1s" }\n'
    )
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    (tmp_path / "results.jsonl").write_text(json.dumps(LINE))
    home = tmp_path / "data"
    completed = cli.meshmark(*words, cwd=tmp_path, env={"XDG_DATA_HOME": str(home)})
    assert completed.returncode == 0, completed.stderr
    for folder in (home, tmp_path / "run"):
        assert not folder.exists() or readable_by_others(folder) == []
    assert home.exists() or (tmp_path / "run").exists()


def test_a_folder_that_exists_keeps_its_mode_and_gets_private_files(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(0o755)
    with held(folder):
        write_file(folder / "plan.json", b"{}", private=True)
        with open_private(folder / "journal.jsonl", "ab") as journal:
            journal.write(b"x\n")
    assert mode(folder) == 0o755
    assert {path.name: mode(path) for path in folder.iterdir()} == {
        ".lock": 0o600,
        "plan.json": 0o600,
        "journal.jsonl": 0o600,
    }


def test_a_folder_that_a_group_shares_stays_shared(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    make_folder(shared / "date" / "machine")
    write_file(shared / "date" / "machine" / "run.parquet", b"", private=True)
    assert mode(shared / "date") == mode(shared / "date" / "machine") == 0o2770
    assert mode(shared / "date" / "machine" / "run.parquet") == 0o640


def test_an_output_that_a_user_names_is_as_the_umask_says(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    write_file(tmp_path / "reports" / "report.html", b"")
    assert mode(tmp_path / "reports" / "report.html") == 0o644 and mode(tmp_path / "reports") == 0o755


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"directory|exists"):
            make_folder(path)
