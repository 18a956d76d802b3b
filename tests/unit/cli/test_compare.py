"""Test `meshmark compare` as a user runs it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.store.export import to_jsonl
from meshmark.store.record import median, median_interval
from support.cli import meshmark
from support.made_run import bandwidth, repeated


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    for name, factor in (("a", 1.0), ("b", 0.9)):
        records = []
        for r in repeated(bandwidth()):
            samples = tuple(s * factor for s in r.samples)
            records.append(replace(r, samples=samples, value=median(samples), interval=median_interval(samples)))
        (tmp_path / f"{name}.jsonl").write_text(to_jsonl([(name, "s", r) for r in records]), encoding="utf-8")
    return {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}


def test_two_files_side_by_side(home: dict[str, str], tmp_path: Path) -> None:
    completed = meshmark("compare", "a.jsonl", "b.jsonl", "--html", "c.html", cwd=tmp_path, env=home)
    assert completed.returncode == 0, completed.stderr
    assert "slower" in completed.stdout and "faster" not in completed.stdout and "geometric mean" in completed.stdout
    assert (tmp_path / "c.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not (tmp_path / "data").exists(), "reading makes no folder"


def test_objects_of_json_for_programs(home: dict[str, str], tmp_path: Path) -> None:
    completed = meshmark("compare", "a.jsonl", "b.jsonl", "a.jsonl", "--json", cwd=tmp_path, env=home)
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    assert {(x["a"], x["b"]) for x in lines} == {("a.jsonl", "b.jsonl"), ("a.jsonl", "a.jsonl")}
    assert {x["verdict"] for x in lines if x["type"] == "pair" and x["b"] == "b.jsonl"} == {"slower"}


def test_several_sides_have_one_table_and_one_page(home: dict[str, str], tmp_path: Path) -> None:
    completed = meshmark("compare", "gs1280-4", "es45", "gs320-16", "--html", "c.html", cwd=tmp_path, env=home)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.count("A: gs1280-4") == 1 and "C: gs320-16" in completed.stdout
    assert "C: gs320-16" in (tmp_path / "c.html").read_text(encoding="utf-8")


def test_markdown_goes_with_a_gate(home: dict[str, str], tmp_path: Path) -> None:
    words = ["compare", "a.jsonl", "b.jsonl", "--fail-on", "5%", "--markdown"]
    completed = meshmark(*words, cwd=tmp_path, env=home)
    assert completed.returncode == 1 and completed.stdout.startswith("### B is slower in ")
    assert "results judged" in completed.stderr and "results judged" not in completed.stdout


@pytest.mark.parametrize(("limit", "status"), [("5%", 1), ("15%", 0)])
def test_a_gate_fails_on_what_is_worse_by_more(home: dict[str, str], tmp_path: Path, limit: str, status: int) -> None:
    completed = meshmark("compare", "a.jsonl", "b.jsonl", "--fail-on", limit, cwd=tmp_path, env=home)
    assert completed.returncode == status, completed.stderr
    assert "results judged" in completed.stderr and ("is 0.9 of a.jsonl's" in completed.stderr) == bool(status)
    better = meshmark("compare", "b.jsonl", "a.jsonl", "--fail-on", limit, cwd=tmp_path, env=home)
    assert better.returncode == 0, "what is better passes"


def test_a_gate_that_judged_too_little_is_inconclusive(home: dict[str, str], tmp_path: Path) -> None:
    """Status 0 with "0 of 1 results judged" would be taken for a proof by a pipeline."""
    flagged = to_jsonl([("flagged", "s", replace(r, flags=frozenset({"disturbed"}))) for r in bandwidth()])
    (tmp_path / "flagged.jsonl").write_text(flagged, encoding="utf-8")
    words = ["compare", "a.jsonl", "flagged.jsonl", "--fail-on", "5%"]
    completed = meshmark(*words, cwd=tmp_path, env=home)
    assert completed.returncode == 3, completed.stderr
    assert "compare: 0 of " in completed.stderr and "requires at least 1: inconclusive: disturbed (" in completed.stderr
    allowed = meshmark(*words, "--allow-unjudged", cwd=tmp_path, env=home)
    assert allowed.returncode == 0 and "warning: compare: 0 of " in allowed.stderr
    few = meshmark("compare", "a.jsonl", "a.jsonl", "--fail-on", "5%", "--min-judged", "1000", cwd=tmp_path, env=home)
    assert few.returncode == 3 and "requires at least 1000" in few.stderr
    slower = meshmark(
        "compare", "a.jsonl", "b.jsonl", "--fail-on", "5%", "--min-judged", "1000", cwd=tmp_path, env=home
    )
    assert slower.returncode == 1, "what is shown to be worse decides"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a.jsonl", "b.jsonl", "--min-judged", "2"], "--min-judged: found without --fail-on"),
        (["a.jsonl", "b.jsonl", "--allow-unjudged"], "--allow-unjudged: found without --fail-on"),
        (["a.jsonl"], "found 1 side; allowed: 2 to 26"),
        (["a.jsonl"] * 27, "found 27 sides; allowed: 2 to 26"),
        (["a.jsonl", "b.jsonl", "--json", "--markdown"], "--markdown: found with --json"),
        (["a.jsonl", "c.jsonl"], "found no file, run or machine 'c.jsonl'"),
        (["a.jsonl", "b.jsonl", "--per", "watt"], "--per: found 'watt'; allowed: thread, clock"),
        (["a.jsonl", "b.jsonl", "--fail-on", "5"], "--fail-on: found '5', a share from 0% to 1000% is required"),
        (["a.jsonl", "b.jsonl", "--margin", "-1%"], "--margin: found '-1%'"),
        (["a.jsonl", "b.jsonl", "--metric", "latency"], "found no metric in common"),
        (["a.jsonl", "b.jsonl", "--html", "no/c.html"], "--html: found no folder no"),
    ],
)
def test_bad_input_is_one_line(home: dict[str, str], tmp_path: Path, words: list[str], says: str) -> None:
    completed = meshmark("compare", *words, cwd=tmp_path, env=home)
    error_line, *hints = completed.stderr.splitlines()
    assert completed.returncode == 2 and says in error_line and all(h.startswith("hint: ") for h in hints), (
        completed.stderr
    )
    assert completed.stdout == ""
