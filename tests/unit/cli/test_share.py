"""Test `meshmark share` and `meshmark site` with a survey of this host, as a user runs them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.cli import meshmark

SURVEY = """
name = "small"
[[step]]
instrument = "peak"
options = { budget = "300ms", threads = "1" }
[[step]]
instrument = "bandwidth"
options = { budget = "600ms", threads = "1", footprint = "1MiB", kernel = "triad" }
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("home")
    (folder / "small.toml").write_text(SURVEY)
    env = {**os.environ, "XDG_DATA_HOME": str(folder)}
    completed = meshmark("survey", "--spec", "small.toml", cwd=folder, env=env)
    assert completed.returncode == 0, completed.stderr
    return env


def test_what_a_file_contains_is_shown_before_it_is_written(home: dict[str, str], tmp_path: Path) -> None:
    completed = meshmark("share", "--title", "A small host", cwd=tmp_path, env=home)
    assert completed.returncode == 0, completed.stderr
    assert "A small host" in completed.stdout and "Peak fp64" in completed.stdout
    assert "Not in it: names of hosts and users" in completed.stdout
    assert "nothing was written; to write this to a file: -o FILE" in completed.stderr
    assert list(tmp_path.iterdir()) == []
    completed = meshmark("share", "latest", "-o", "m.json", "--title", "A small host", cwd=tmp_path, env=home)
    assert completed.returncode == 0 and "wrote m.json" in completed.stderr
    card = json.loads((tmp_path / "m.json").read_text())
    assert card["title"] == "A small host" and "peak_fp64" in card["figures"]
    assert os.uname().nodename not in (tmp_path / "m.json").read_text() or len(os.uname().nodename) < 4
    imported = meshmark("store", "import", "m.json", cwd=tmp_path, env={**home, "XDG_DATA_HOME": str(tmp_path / "d")})
    assert imported.returncode == 0 and "left out" not in imported.stderr, imported.stderr


def test_files_are_checked_and_bad_ones_are_left_out_of_a_site(home: dict[str, str], tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    meshmark("share", "latest", "-o", "files/m.json", "--title", "A small host", cwd=tmp_path, env=home)
    (files / "bad.json").write_text('{"type": "card"}')
    (files / "list.json").write_text("[1, 2]")
    (files / "none.json").write_text("{")
    checked = meshmark("share", "--check", "files/bad.json", "files/list.json", cwd=tmp_path, env=home)
    assert checked.returncode == 1
    lines = checked.stdout.splitlines()
    assert lines[0] == "files/bad.json: refused" and "files/bad.json: schema: found nothing" in lines[1], lines
    assert lines[2] == "files/list.json: refused" and "Traceback" not in checked.stderr
    site = meshmark("site", "files", "-o", "html", "--title", "Ours", cwd=tmp_path, env=home)
    assert site.returncode == 0 and site.stdout == "html/index.html\n", site.stderr
    assert site.stderr.count("left out: ") == 3 and "meshmark: 1 machine, 3 files left out" in site.stderr
    assert "A small host" in (tmp_path / "html" / "index.html").read_text()
    strict = meshmark("site", "files", "-o", "other", "--strict", cwd=tmp_path, env=home)
    assert strict.returncode == 1 and not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["share", "nosuch"], "nosuch"),
        (["share", "--check"], "--check: found no file; at least one is required"),
        (["share", "--check", "a.json", "-o", "b.json"], "--check: found another option"),
        (["share", "a", "b"], "found 2 runs; allowed: one run"),
        (["share", "--title", "see /etc"], "title: found 'see /etc'"),
        (["share", "--without", "nosuch"], "--without: found 'nosuch'; allowed: triad_all"),
        (["share", "-o", "/nosuch/folder/m.json"], "/nosuch/folder"),
        (["site", "nosuch"], "nosuch: is not a folder"),
        (["site", "."], "has no shared result"),
    ],
)
def test_bad_requests_are_refused_in_one_line(
    home: dict[str, str], tmp_path: Path, words: list[str], message: str
) -> None:
    completed = meshmark(*words, cwd=tmp_path, env=home)
    assert completed.returncode in (1, 2) and completed.stdout == "", completed.stdout
    errors = [line for line in completed.stderr.splitlines() if not line.startswith("hint: ")]
    assert len(errors) == 1 and message in errors[0], completed.stderr
    assert list(tmp_path.iterdir()) == []
