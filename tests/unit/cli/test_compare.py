"""`meshmark compare` as a user types it."""

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
        made = []
        for r in repeated(bandwidth()):
            samples = tuple(s * factor for s in r.samples)
            made.append(replace(r, samples=samples, value=median(samples), interval=median_interval(samples)))
        (tmp_path / f"{name}.jsonl").write_text(to_jsonl([(name, "s", r) for r in made]), encoding="utf-8")
    return {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}


def test_two_files_side_by_side(home: dict[str, str], tmp_path: Path) -> None:
    ran = meshmark("compare", "a.jsonl", "b.jsonl", "--html", "c.html", cwd=tmp_path, env=home)
    assert ran.returncode == 0, ran.stderr
    assert "slower" in ran.stdout and "faster" not in ran.stdout and "geometric mean" in ran.stdout
    assert (tmp_path / "c.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not (tmp_path / "data").exists(), "reading makes no folder"


def test_objects_of_json_for_programs(home: dict[str, str], tmp_path: Path) -> None:
    ran = meshmark("compare", "a.jsonl", "b.jsonl", "a.jsonl", "--json", cwd=tmp_path, env=home)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {(x["a"], x["b"]) for x in lines} == {("a.jsonl", "b.jsonl"), ("a.jsonl", "a.jsonl")}
    assert {x["verdict"] for x in lines if x["type"] == "pair" and x["b"] == "b.jsonl"} == {"slower"}


def test_several_sides_have_one_table_and_one_page(home: dict[str, str], tmp_path: Path) -> None:
    ran = meshmark("compare", "gs1280-4", "es45", "gs320-16", "--html", "c.html", cwd=tmp_path, env=home)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("A: gs1280-4") == 1 and "C: gs320-16" in ran.stdout
    assert "C is" in (tmp_path / "c.html").read_text(encoding="utf-8")


def test_markdown_goes_with_a_gate(home: dict[str, str], tmp_path: Path) -> None:
    words = ["compare", "a.jsonl", "b.jsonl", "--fail-on", "5%", "--markdown"]
    ran = meshmark(*words, cwd=tmp_path, env=home)
    assert ran.returncode == 1 and ran.stdout.startswith("### B is slower in ")
    assert "results judged" in ran.stderr and "results judged" not in ran.stdout


@pytest.mark.parametrize(("limit", "status"), [("5%", 1), ("15%", 0)])
def test_a_gate_fails_on_what_is_worse_by_more(home: dict[str, str], tmp_path: Path, limit: str, status: int) -> None:
    ran = meshmark("compare", "a.jsonl", "b.jsonl", "--fail-on", limit, cwd=tmp_path, env=home)
    assert ran.returncode == status, ran.stderr
    assert "results judged" in ran.stderr and ("is 0.9 of a.jsonl's" in ran.stderr) == bool(status)
    better = meshmark("compare", "b.jsonl", "a.jsonl", "--fail-on", limit, cwd=tmp_path, env=home)
    assert better.returncode == 0, "what is better passes"


def test_a_gate_that_judged_too_little_is_inconclusive(home: dict[str, str], tmp_path: Path) -> None:
    """It ended with status 0 and "0 of 1 results judged", which a pipeline takes for a proof."""
    flagged = to_jsonl([("flagged", "s", replace(r, flags=frozenset({"disturbed"}))) for r in bandwidth()])
    (tmp_path / "flagged.jsonl").write_text(flagged, encoding="utf-8")
    words = ["compare", "a.jsonl", "flagged.jsonl", "--fail-on", "5%"]
    ran = meshmark(*words, cwd=tmp_path, env=home)
    assert ran.returncode == 3, ran.stderr
    assert "compare: 0 of " in ran.stderr and "requires at least 1: inconclusive: disturbed (" in ran.stderr
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
    ran = meshmark("compare", *words, cwd=tmp_path, env=home)
    first, *hints = ran.stderr.splitlines()
    assert ran.returncode == 2 and says in first and all(h.startswith("hint: ") for h in hints), ran.stderr
    assert ran.stdout == ""
