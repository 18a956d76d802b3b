"""What a command line names and is not there is a usage error: one line, status 2, and no file is made."""

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
    done = meshmark(*words.split(), env={"XDG_DATA_HOME": str(tmp_path / "data")}, cwd=tmp_path / "cwd")
    (error,) = [x for x in done.stderr.splitlines() if not x.startswith(("hint: ", "warning: "))]
    assert done.returncode == 2 and error.startswith("meshmark: error: "), done.stderr
    assert "nosuch" in error or "--resume" in error
    assert done.stdout == "" and not any((tmp_path / "cwd").iterdir())
