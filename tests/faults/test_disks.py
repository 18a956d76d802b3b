"""Full disks: 0 to 12 free pages for each command that writes.

Each command ends with one line, no file is incomplete, nothing is lost, and with space the command continues."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from given import SCENARIO, SPEC, write_results
from namespace import NAMESPACE
from small_disk import CASES, FREE_PAGES
from started import Place

from support.cli import environment
from support.paths import ROOT


@cache
def why_not() -> str:
    """Return why no file system can be mounted here; "" if it can."""
    probe = [*NAMESPACE, "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
    try:
        completed = subprocess.run(probe, capture_output=True, text=True, check=False, timeout=60)
    except OSError as error:
        return str(error)
    return completed.stderr.strip() or f"status {completed.returncode}" if completed.returncode else ""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the input of the commands: a run, a store, results to import, a scenario."""
    folder = tmp_path_factory.mktemp("disks")
    (folder / "spec.toml").write_text(SPEC)
    (folder / "sc.toml").write_text(SCENARIO)
    write_results(folder / "in.jsonl")
    place = Place(folder)
    for words in (
        ["survey", "--spec", "spec.toml", "--out", "run", "--store", "full"],
        ["store", "import", "in.jsonl", "--store", "full"],
    ):
        completed = place.run(words)
        assert completed.status == 0, completed.err
    return folder


def tried(folder: Path, name: str, pages: int | None = None) -> list[dict[str, object]]:
    script = str(Path(__file__).with_name("small_disk.py"))
    options = [] if pages is None else ["--pages", str(pages)]
    line = [*NAMESPACE, sys.executable, script, str(folder), name, *options]
    env = environment({"PYTHONPATH": str(ROOT / "tests")})
    completed = subprocess.run(line, capture_output=True, text=True, check=False, timeout=580, cwd=folder, env=env)
    assert completed.returncode == 0, completed.stderr[-2000:]
    return [json.loads(x) for x in completed.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_full_disk(prepared: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := why_not():
        pytest.skip(f"no file system can be mounted here: {reason}")
    cases = tried(prepared, name)
    assert [c["pages"] for c in cases] == [*FREE_PAGES]
    statuses = Counter(c["status"] for c in cases)
    problems = [f"{name}, {c['pages']} pages: {w}" for c in cases for w in c["wrong"]]  # type: ignore[attr-defined]
    with capsys.disabled():
        print(f"\n{name}: {len(cases)} disks, statuses {dict(sorted(statuses.items()))}, {len(problems)} faults")
    assert statuses.keys() - {0}, "the disk was never full"
    assert not problems, "\n".join(problems)


def test_a_full_disk_under_an_export(tmp_path: Path) -> None:
    """This is one of the cases above, short enough for `make test`."""
    if reason := why_not():
        pytest.skip(f"no file system can be mounted here: {reason}")
    write_results(tmp_path / "in.jsonl")
    assert Place(tmp_path).run(["store", "import", "in.jsonl", "--store", "full"]).status == 0
    (case,) = tried(tmp_path, "store export", 1)
    assert (case["status"], case["wrong"]) == (1, [])
