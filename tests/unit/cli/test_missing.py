"""A command line that names something that does not exist is a usage error: one line, status 2, no file created."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import meshmark

LINES = (
    "report nosuch",
    "replay nosuch.parquet",
    "replay nosuch.jsonl",
    "plot nosuch.parquet",
    "machine show nosuch",
    "machine show nosuch/x.xml",
    "store list --store nosuch",
    "store export --store nosuch",
    "store verify --store nosuch",
    "store import nosuch",
    "load run nosuch.toml",
    "load make nosuch.toml",
    "load show nosuch",
    "load compare nosuch nosuch",
    "load variants --metrics nosuch",
    "model show nosuch",
    "model fit nosuch",
    "model sweep nosuch --vary links.bandwidth=1..2/2",
    "model place-io nosuch",
    "model measure trace gs1280-4 --trace nosuch",
    "advise --resume nosuch -- true",
    "survey --resume --out nosuch",
    "survey --spec nosuch",
    "place --topology nosuch --policy pack --jobs 2",
    "place --topology host --policy pack --jobs 1 --matrix nosuch",
    "measure latency --on nosuch",
    "serve --token-file nosuch",
    "record --root nosuch --out x",
    "watch --root nosuch",
    "load base --spec nosuch --force",
    "measure --resume --store nosuch",
    "measure latency --resume",
    "store export --run nosuch",
    "store rm nosuch",
)


@pytest.mark.parametrize("words", LINES)
def test_what_is_not_there_is_a_usage_error(tmp_path: Path, words: str) -> None:
    (tmp_path / "cwd").mkdir()
    completed = meshmark(*words.split(), env={"XDG_DATA_HOME": str(tmp_path / "data")}, cwd=tmp_path / "cwd")
    (error,) = [x for x in completed.stderr.splitlines() if not x.startswith(("hint: ", "warning: "))]
    assert completed.returncode == 2 and error.startswith("meshmark: error: "), completed.stderr
    assert "nosuch" in error or "--resume" in error
    assert completed.stdout == "" and not any((tmp_path / "cwd").iterdir())


@pytest.mark.parametrize(
    "line",
    [
        "record --out nosuch/r.parquet",
        "replay r --html nosuch/r.html",
        "replay r --trace nosuch/r.json",
        "store export --out nosuch/r.csv",
        "model show gs1280-4 --svg nosuch/r.svg",
        "model fit latest --out nosuch/r.toml",
        "load compare a b --html nosuch/r.html",
    ],
)
def test_a_folder_that_was_not_asked_for_is_not_made(line: str, tmp_path: Path) -> None:
    (tmp_path / "r").touch()
    env = {"HOME": str(tmp_path / "home"), "XDG_DATA_HOME": str(tmp_path / "data")}
    completed = meshmark(*line.split(), env=env, cwd=tmp_path)
    option = next(word for word in line.split() if word.startswith("--"))
    assert completed.returncode == 2 and completed.stdout == ""
    assert completed.stderr == f"meshmark: error: {option}: found no folder nosuch\nhint: mkdir -p nosuch\n"
    assert not (tmp_path / "nosuch").exists()


@pytest.mark.parametrize(
    "line",
    [
        "measure latency --footprint 1ZB",
        "measure latency --stride 7",
        "measure bandwidth --kernel nonsense",
        "measure clock --cpus 90000",
        "measure io --target /nosuch",
        "measure halo --words none",
        "measure latency --on gs1280-4 --pages thp",
    ],
)
def test_refused_input_leaves_nothing_in_the_store(line: str, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path / "home"), "XDG_DATA_HOME": str(tmp_path / "data")}
    completed = meshmark(*line.split(), env=env, cwd=tmp_path)
    assert completed.returncode == 2 and "error: " in completed.stderr, completed.stderr
    remaining_files = {p.name for p in (tmp_path / "data").rglob("*") if p.is_file()} - {"meshmark-store.json"}
    assert all(name.endswith(".machine.parquet") for name in remaining_files)  # facts about the machine are not results
