"""`meshmark experiment` as a user types it, with programs that a test controls."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from support.cli import meshmark, start
from support.waiting import until

# Print a figure that depends on the environment, with no two alike, without the time that a measurement would take.
PROGRAM = """import os, random, sys
print("rate: %.4f" % (float(os.environ.get("RATE", 100)) * random.uniform(0.995, 1.005)))
"""
RATE = ("--pattern", r"rate: (\S+)", "--better", "higher")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str | None]:
    (tmp_path / "program.py").write_text(PROGRAM)
    return {"XDG_DATA_HOME": str(tmp_path / "data"), "RATE": None}


def program(tmp_path: Path) -> list[str]:
    return ["--", sys.executable, "-SE", str(tmp_path / "program.py")]


def answer(ran: CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert document["type"] == "experiment"
    return document


def test_the_better_of_two_settings_is_found_stored_and_gates(tmp_path: Path, home: dict[str, str | None]) -> None:
    result = meshmark(
        "experiment",
        "RATE=100",
        "RATE=90",
        *RATE,
        "--seed",
        3,
        "--fail-on",
        "5%",
        "--json",
        *program(tmp_path),
        env=home,
    )
    reply = answer(result)
    assert result.returncode == 1 and "B is worse than A by more than 5%: B over A 0." in result.stderr
    assert "seed 3" in result.stderr and "Traceback" not in result.stderr
    assert reply["verdict"] == "worse" and reply["best"] == "A" and reply["pairs"] >= 8
    assert 0.85 < reply["low"] < reply["high"] < 0.95
    completed = meshmark("store", "list", "--json", env=home)
    assert reply["run"] in completed.stdout and '"experiment"' in completed.stdout
    better = meshmark("experiment", "RATE=90", "RATE=100", *RATE, "--fail-on", "5%", *program(tmp_path), env=home)
    assert better.returncode == 0 and "B is better: B over A 1.1" in better.stdout


def test_a_gate_of_an_experiment_that_ends_too_early_is_inconclusive(
    tmp_path: Path, home: dict[str, str | None]
) -> None:
    words = ["experiment", "same", "same", "--max-pairs", 2, "--fail-on", "5%"]
    completed = meshmark(*words, *program(tmp_path), env=home)
    assert completed.returncode == 3 and "0 of 1 result judged; --fail-on requires at least 1: " in completed.stderr, (
        completed.stderr
    )
    assert meshmark(*words, "--allow-unjudged", *program(tmp_path), env=home).returncode == 0


def test_a_setting_of_the_machine_is_changed_before_each_run_and_restored(
    tmp_path: Path, home: dict[str, str | None]
) -> None:
    state, log = tmp_path / "state", tmp_path / "log"
    command = ["--", "sh", "-c", f"cat {state} >> {log}"]
    a, b = (f"shell:echo {name} > {state}" for name in ("one", "two"))
    completed = meshmark(
        "experiment", a, b, "--max-pairs", 4, "--seed", 1, "--restore", f"echo end >> {state}", *command, env=home
    )
    assert completed.returncode == 0, completed.stderr
    lines = log.read_text().split()
    assert sorted(lines) == ["one"] * 5 + ["two"] * 5
    assert state.read_text().split() == ["one", "end"]


def test_another_machine_is_reached_through_ssh(tmp_path: Path, home: dict[str, str | None]) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\nshift 4\nexec sh -c "$1"\n')
    (tools / "ssh").chmod(0o755)
    env = {**home, "PATH": f"{tools}:{os.environ['PATH']}"}
    completed = meshmark(
        "experiment", "ssh:n1", "ssh:n2 + RATE=80", *RATE, "--max-pairs", 3, "--json", *program(tmp_path), env=env
    )
    assert completed.returncode == 0, completed.stderr
    records = [json.loads(x) for x in completed.stdout.splitlines()]
    assert {r["machine"] for r in records if r["type"] == "result" and r["metric"] == "figure_of_merit"} == {"n1", "n2"}
    assert 0.75 < answer(completed)["ratio"] < 0.85
    assert (tmp_path / "log").read_text().count("-o BatchMode=yes n2 -- env RATE=80") == 4


def test_records_that_a_command_prints_are_compared(tmp_path: Path, home: dict[str, str | None]) -> None:
    line = {
        **dict.fromkeys(("source", "machine", "instrument", "metric", "unit"), "x"),
        "type": "result",
        "source": "host",
        "metric": "m",
        "unit": "B/s",
        "better": "higher",
        "value": 2.0,
        "samples": [2.0],
        "interval": None,
        "conditions": {},
        "flags": [],
        "provenance": {},
    }
    (tmp_path / "lines").write_text(json.dumps(line) + "\n")
    command = ["--", "cat", str(tmp_path / "lines")]
    completed = meshmark("experiment", "same", "same", "--metric", "m", "--json", *command, env=home)
    reply = answer(completed)
    assert (reply["verdict"], reply["unit"], reply["better"], reply["ratio"]) == ("equal", "B/s", "higher", 1.0)
    result = meshmark("experiment", "same", "same", "--metric", "n", *command, env=home)
    assert result.returncode == 2 and "--metric: found no record of n in the output; found m" in result.stderr


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        ((), 2, "A B COMMAND: found neither settings nor a command"),
        (("same", "same"), 2, "A B COMMAND: found no command"),
        (("same", "bind:nosuch", "--", "true"), 2, "B: bind: found 'nosuch'; allowed: "),
        (("same", "same", "--", "nosuch-program"), 2, "COMMAND: cannot run nosuch-program: No such file"),
        (("same", "same", "--", "sh", "-c", "echo it broke; exit 3"), 1, "ended with status 3: it broke"),
        (("same", "same", "--", "sh", "-c", "kill -9 $$"), 1, "ended with SIGKILL: no output"),
        (("same", "same", "--timeout", "50ms", "--", "sleep", "60"), 1, "took longer than 0.05 s"),
        (("same", "same", "--pattern", "x", "--better", "lower", "--", "true"), 2, "--pattern: found no match"),
        (("same", "same", "--margin", "2", "--", "true"), 2, "--margin: found '2'"),
        (("--resume", "nosuch"), 2, "--resume: found no experiment.json"),
        (("shell:exit 4", "shell:exit 4", "--", "true"), 1, "exit 4: ended with status 4: no output"),
    ],
)
def test_what_cannot_work_is_one_line(
    words: tuple[str, ...], status: int, why: str, tmp_path: Path, home: dict[str, str | None]
) -> None:
    completed = meshmark("experiment", *words, env=home)
    assert completed.returncode == status and why in completed.stderr, completed.stderr
    assert "Traceback" not in completed.stderr and completed.stdout == ""
    assert not list(tmp_path.glob("data/meshmark/runs/*/run.*"))  # the output of runs is kept only if they failed


def test_an_interrupted_experiment_prints_what_is_known_and_resumes(
    tmp_path: Path, home: dict[str, str | None]
) -> None:
    log = tmp_path / "log"
    command = ["--", "sh", "-c", f"echo x >> {log}; echo rate: 1; test $(wc -l < {log}) -ne 23 || exec sleep 60"]
    words = ("experiment", "same", "same", *RATE, "--margin", "0%", "--max-pairs", 12, "--json", *command)
    child = start(*words, env=home)  # the figures are equal, and no margin makes that a result
    until(lambda: log.exists() and len(log.read_text()) == 2 * 23)  # the first run of the twelfth pair
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    document = json.loads(out.splitlines()[-1])
    assert child.returncode == 130 and "Traceback" not in err
    assert document["stopped"] == "it was interrupted" and document["pairs"] == 10
    second_run = meshmark("experiment", "--resume", document["run"], "--json", env=home)
    assert second_run.returncode == 0, second_run.stderr
    assert answer(second_run)["pairs"] == 12 and answer(second_run)["seed"] == document["seed"]
