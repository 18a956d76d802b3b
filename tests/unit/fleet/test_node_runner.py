"""The runner on a node: one runs at a time, and a folder gets no second measurement of the same node."""

from __future__ import annotations

import subprocess
from pathlib import Path

from meshmark.fleet.plan import NodePlan
from meshmark.native import find_native
from support.waiting import until

STEP = {"argv": ["peak", "--type", "fp64", "--threads", "1", "--budget", "200ms"], "limit_s": 30.0}


def runner(folder: Path, name: str, *more: str) -> subprocess.Popen[str]:
    plan = folder / "plan.json"
    if not plan.exists():
        plan.write_bytes(NodePlan("tiny", "check", False, 60.0, [{**STEP, "id": "01-peak"}]).to_bytes())
    words = [find_native("meshmark-node"), plan, "--out", folder, "--name", name, *more]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def test_a_second_runner_waits_and_does_not_measure_again(tmp_path: Path) -> None:
    first = runner(tmp_path, "n1", "--once")
    assert until(lambda: any(tmp_path.glob(".n1.*")), 30)
    other, second = runner(tmp_path, "n2"), runner(tmp_path, "n1", "--once")
    errors = {name: run.communicate(timeout=60)[1] for name, run in (("n1", first), ("n2", other), ("again", second))}
    assert first.returncode == other.returncode == second.returncode == 0, errors
    assert errors == {"n1": "", "n2": "", "again": "meshmark-node: n1 has already been measured\n"}
    assert sorted(path.name for path in tmp_path.glob("*.gz")) == ["n1.jsonl.gz", "n2.jsonl.gz"]


def test_a_killed_runner_holds_up_nobody(tmp_path: Path) -> None:
    first = runner(tmp_path, "n1")
    assert until(lambda: any(tmp_path.glob(".n1.*")), 30)
    first.kill()
    first.communicate()
    assert runner(tmp_path, "n1").wait(timeout=60) == 0
