"""Node files satisfy schema/node.json, and Python reads the files that the runner writes."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from meshmark.fleet.data.results import read_result
from meshmark.fleet.plan import NodePlan
from meshmark.native import find_native
from support.made_fleet import lines_of, write_result
from support.paths import ROOT
from support.waiting import until

SCHEMAS: dict[str, Any] = {n: json.loads((ROOT / "schema" / f"{n}.json").read_text()) for n in ("node", "record")}
VALIDATOR = Draft202012Validator(
    SCHEMAS["node"],
    registry=Registry[Any]().with_resources(
        (f"{name}.json", Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
    ),
)
CLOCK = {"id": "01-clock.r1", "argv": ["clock", "--budget", "300ms", "--clocks", "tsc"], "limit_s": 20.0}
UNKNOWN = {"id": "02-unknown", "argv": ["none-such"], "limit_s": 5.0}
VERIFY = {"verify": ["cat", "result"], "verify_timeout_s": 9.0, "verify_output": 1 << 20}
ROOM = {"timeout_s": 9.0, "output": 1 << 20, "kept": 1 << 10, "failures": 2, "results": "result", **VERIFY}
PROGRAM = {"id": "03-program", "argv": ["sh", "-c", "echo 5 > result"], "limit_s": 20.0, "program": {**ROOM, "runs": 2}}
MISSING = {"id": "04-missing", "argv": ["none-such"], "limit_s": 20.0, "program": ROOM}


def wrong(path: Path) -> list[str]:
    """Return the lines of a file that the schema does not allow."""
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [f"{line['type']}: {e.message[:300]}" for line in lines for e in VALIDATOR.iter_errors(line)]


def runner(folder: Path, *steps: dict[str, Any]) -> list[str]:
    """Return the command of the runner for a node named n1."""
    plan = folder / "plan.json"
    plan.write_bytes(NodePlan("made-up", "check", False, 60.0, list(steps)).to_bytes())
    return list(map(str, (find_native("meshmark-node"), plan, "--out", folder, "--name", "n1", "--beside")))


def test_files_of_the_runner_have_the_form_and_are_read(tmp_path: Path) -> None:
    completed = subprocess.run(
        runner(tmp_path, CLOCK, UNKNOWN), timeout=60, check=False, capture_output=True, text=True
    )
    path = tmp_path / "n1.jsonl.gz"
    assert wrong(path) == [], completed.stderr
    result = read_result(path)
    assert (result.name, result.status, result.damage) == ("n1", "ok", "")
    assert [(s.id, s.status) for s in result.steps] == [(CLOCK["id"], "ok"), (UNKNOWN["id"], "failed")]
    assert result.steps[0].reading.records and not result.steps[0].reading.invalid_records
    assert result.files["proc/meminfo"].startswith(b"MemTotal")


def test_programs_of_users_leave_lines_of_the_form(tmp_path: Path) -> None:
    completed = subprocess.run(
        [*runner(tmp_path, PROGRAM, MISSING), "--scratch", tmp_path], timeout=60, check=False, capture_output=True
    )
    path = tmp_path / "n1.jsonl.gz"
    assert wrong(path) == [], completed.stderr
    steps = read_result(path).steps
    assert [(s.status, s.reason) for s in steps] == [("ok", ""), ("absent", "its program is not installed")]
    assert [run["number"] for run in steps[0].runs] == [1, 2] and all(s.program for s in steps)
    assert [run["verify"]["out"] for run in steps[0].runs] == ["5\n", "5\n"]


def test_an_interrupted_runner_leaves_a_file_of_the_form(tmp_path: Path) -> None:
    long = {**CLOCK, "argv": ["clock", "--budget", "30s"], "limit_s": 60.0}
    with subprocess.Popen(runner(tmp_path, long, CLOCK)) as child:
        assert until(lambda: any(path.stat().st_size for path in tmp_path.glob(".n1*")))
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=120)
    path = tmp_path / "n1+interrupted.jsonl.gz"
    assert not (tmp_path / "n1.jsonl.gz").exists()
    assert wrong(path) == []
    assert read_result(path).status == "interrupted"


def test_files_made_up_for_tests_have_the_form(tmp_path: Path) -> None:
    assert wrong(write_result(tmp_path, "n1", lines_of("n1", repetitions=2, problems=["a wrong result"]))) == []


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("node", {"version": 2}),
        ("node", {"name": "-n"}),
        ("file", {"path": "etc/passwd"}),
        ("file", {"content": "€"}),
        ("step", {"argv": []}),
        ("step end", {"status": "fine"}),
        ("finished", {"status": "done"}),
        ("result", {"flags": ["perfect"]}),
        ("result", {"type": "rumour"}),
    ],
)
def test_what_is_no_line_of_such_a_file_is_found(kind: str, change: dict[str, Any]) -> None:
    line = next(line for line in lines_of("n1") if line["type"] == kind)
    assert VALIDATOR.is_valid(line) and not VALIDATOR.is_valid({**line, **change})
