"""Test `meshmark history` as a user runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from meshmark.cli.results.history import age
from meshmark.errors import UsageError
from meshmark.store.machines import add_machine
from meshmark.store.record import Record, median, median_interval
from meshmark.store.store import Store
from support.cli import meshmark
from support.made_run import bandwidth

FIRST = datetime.now(UTC) - timedelta(days=50)


def stamp(day: int) -> str:
    return (FIRST + timedelta(days=day)).strftime("%Y-%m-%dT%H:%M:%SZ")


def runs() -> Iterator[list[Record]]:
    for day in range(20):
        records = []
        for n, r in enumerate(bandwidth()[:4]):
            factor = (1 + ((7 * day + n) % 5 - 2) / 500) * (0.9 if day >= 10 else 1)
            samples = tuple(s * factor for s in r.samples)
            changes = {"samples": samples, "value": median(samples), "interval": median_interval(samples)}
            records.append(replace(r, machine="n042", provenance={**r.provenance, "start": stamp(day)}, **changes))
        yield records


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("home")
    store = Store(folder / "meshmark" / "store")
    for day, records in enumerate(runs()):
        store.add(f"run-{day:02}", "r1", records)
    add_machine(store, "n042", {"kernel": "6.1"}, stamp(-1))
    add_machine(store, "n042", {"kernel": "6.12"}, stamp(10))
    return {**os.environ, "XDG_DATA_HOME": str(folder)}


def test_changes_what_else_changed_and_what_is_old(home: dict[str, str], tmp_path: Path) -> None:
    completed = meshmark("history", "n042", "--html", "h.html", "--fail-on", "5%", cwd=tmp_path, env=home)
    assert completed.returncode == 1 and "2 of 2 points judged, 2 worse by more than 5%" in completed.stderr, (
        completed.stderr
    )
    assert (
        f"{stamp(9)[:10]} " in completed.stdout
        and "runs run-09 → run-10" in completed.stdout
        and "slower" in completed.stdout
    )
    assert "also changed: kernel 6.1 → 6.12" in completed.stdout and "2 changed" in completed.stdout
    assert "bandwidth 31 days ago (older than 30 days)" in completed.stdout
    page = (tmp_path / "h.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "kernel 6.1 → 6.12" in page


def test_objects_of_json_and_a_gate_that_passes(home: dict[str, str], tmp_path: Path) -> None:
    words = ["--json", "--stale", "60d", "--fail-on", "20%", "--metric", "bandwidth_net"]
    completed = meshmark("history", "n042", *words, cwd=tmp_path, env=home)
    assert completed.returncode == 0, completed.stderr
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    assert {x["verdict"] for x in lines if x["type"] == "change"} == {"slower"}
    assert [x["stale"] for x in lines if x["type"] == "instrument"] == [False]
    assert lines[-1]["type"] == "history" and lines[-1]["runs"] == 20


def test_a_gate_without_enough_runs_is_inconclusive(home: dict[str, str], tmp_path: Path) -> None:
    words = ["history", "n042", "--since", stamp(17)[:10], "--fail-on", "5%"]
    completed = meshmark(*words, cwd=tmp_path, env=home)
    assert completed.returncode == 3 and "requires at least 1: too few runs (" in completed.stderr, completed.stderr
    assert meshmark(*words, "--allow-unjudged", cwd=tmp_path, env=home).returncode == 0


@pytest.mark.parametrize(
    ("words", "status", "says", "hint"),
    [
        (["n04"], 2, "HOST: found no machine 'n04' in the store", "did you mean n042?"),
        ([], 77, "history: found no result of", "meshmark survey --quick"),
        (["n042", "--since", "2030"], 77, "with a start between --since and --until", "meshmark store list"),
        (["n042", "--metric", "speed"], 77, "that matches 'speed'", "meshmark list metrics"),
        (["n042", "--until", "soon"], 2, "--until: found 'soon', a date such as 2026-11-25 is required", ""),
        (["n042", "--stale", "soon"], 2, "--stale: found 'soon'; allowed: a time such as 30d, 12h or 5m", ""),
        (["n042", "--min-judged", "5"], 2, "--min-judged: found without --fail-on", ""),
        (["n042", "--fail-on", "5"], 2, "--fail-on: found '5', a share", ""),
        (["n042", "--html", "no/h.html"], 2, "--html: found no folder no", "mkdir -p no"),
    ],
)
def test_bad_input_is_one_line(
    home: dict[str, str], tmp_path: Path, words: list[str], status: int, says: str, hint: str
) -> None:
    completed = meshmark("history", *words, cwd=tmp_path, env=home)
    error_line, *hints = completed.stderr.splitlines()
    assert completed.returncode == status and says in error_line, completed.stderr
    assert not hint or hints == [f"hint: {hint}"], completed.stderr
    assert completed.stdout == ""


def test_ages_have_days() -> None:
    assert [age("--stale", text) for text in ("30d", "0.5d", "12h", "90")] == [2592000, 43200, 43200, 90]
    for text in ("-1d", "d", "1d2h", "30 days"):
        with pytest.raises(UsageError, match=r"--stale: found '.*'; allowed: a time such as 30d, 12h or 5m"):
            age("--stale", text)
