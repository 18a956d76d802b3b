"""`meshmark claims` as a user types it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.cli import meshmark, start
from support.waiting import until

COMPUTED = ("P06", "P08", "R01", "M01")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path / "data")}


def lines(ran: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert ran.returncode == 0, ran.stderr
    return [json.loads(text) for text in ran.stdout.splitlines()]


def test_a_run_is_kept_and_listed_and_a_second_one_agrees(home: dict[str, str], tmp_path: Path) -> None:
    first = lines(meshmark("claims", *COMPUTED, "--on", "computed", "--json", env=home))
    assert [(v["claim"], v["verdict"], v["counts"]) for v in first] == [
        ("M01", "holds", True),
        ("P06", "holds", False),
        ("P08", "does not hold", False),
        ("R01", "does not hold", False),
    ]
    pages = tmp_path / "pages"
    second_run = meshmark("claims", *COMPUTED, "--on", "computed", "--html", pages, env=home)
    assert second_run.returncode == 0 and "tests: 4, of claims: 4; holds: 2, does not hold: 2" in second_run.stdout
    assert "wrote 5 pages" in second_run.stderr and "R01" in (pages / "index.html").read_text(encoding="utf-8")
    listing = lines(meshmark("claims", "--list", "--theme", "programs", "--json", env=home))
    assert listing[0]["id"] == "R01" and listing[0]["verdicts"][0]["verdict"] == "does not hold"
    assert all(not c["verdicts"] for c in listing[1:])


def test_a_model_gives_the_same_verdict_each_time(home: dict[str, str]) -> None:
    runs = [lines(meshmark("claims", "N03", "P20", "P21", "--on", m, "--json", env=home)) for m in ("gs1280-64",) * 2]
    assert [(v["claim"], v["verdict"], v["effect"]) for v in runs[0]] == [
        (v["claim"], v["verdict"], v["effect"]) for v in runs[1]
    ]
    assert {v["basis"] for v in runs[0]} == {"modelled"} and {v["claim"] for v in runs[0]} == {"P20", "P21"}


def test_a_killed_run_keeps_its_verdicts_and_resumes(home: dict[str, str], tmp_path: Path) -> None:
    data = tmp_path / "data" / "meshmark" / "store"
    child = start("claims", "--on", "computed", "--json", env=home)
    try:
        assert until(lambda: list(data.glob("date=*/machine=*/*--M01*.parquet")), 110)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    completed = meshmark("claims", "--resume", "--json", env=home)
    reports = lines(completed)
    assert "meshmark: resuming claims-" in completed.stderr
    assert len(reports) == len({(v["claim"], v["machine"]) for v in reports}) > 40
    empty_run = meshmark("claims", "--resume", env=home)
    assert empty_run.returncode == 2 and "found no incomplete run of claims" in empty_run.stderr


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["X01"], 2, "claims: found 'X01'; allowed: H01 to"),
        (["--theme", "memory"], 2, "--theme: found 'memory'; allowed: memory hierarchy"),
        (["--on", "gs1280-61"], 2, "--on: found 'gs1280-61'; allowed: host, guest, computed"),
        (["M01", "--on", "es45"], 77, "none of these claims is tested on es45"),
        (["--resume", "H05"], 2, "--resume: found with other options"),
        (["--budget", "soon"], 2, "--budget"),
        (["--budget", "1ms"], 2, "--budget"),
        (["M01", "--html", "no/where"], 2, "--html: found no folder no"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    home: dict[str, str], tmp_path: Path, words: list[str], status: int, says: str
) -> None:
    completed = meshmark("claims", *words, env=home)
    assert completed.returncode == status and says in completed.stderr, completed.stderr
    assert completed.stdout == "" and "Traceback" not in completed.stderr
    assert not (tmp_path / "data").exists(), "nothing is made"


def test_the_help_has_an_example() -> None:
    completed = meshmark("claims", "--help")
    assert completed.returncode == 0 and "example: meshmark claims H05 H09" in completed.stdout
