"""The static programs on the oldest supported kernel, which lacks the system calls that later versions added."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.fleet.plan import NodePlan
from support.made_program import made_program
from support.paths import ROOT

OLD_KERNEL = [sys.executable, str(ROOT / "tests" / "release" / "old_kernel.py")]
TRAFFIC = {
    "machine": {
        "topology": {"kind": "torus", "shape": [8, 8]},
        "links": {"wire": {"bandwidth_gb_per_s": 8, "latency_ns": 1}},
        "router": {"message_classes": 1},
    },
    "runs": [{"kind": "traffic", "load": 0.3, "packets": 1000}],
}

pytestmark = pytest.mark.timeout(300)


def old(*words: str | Path, text: str = "") -> str:
    """Run a command on an old kernel, and return its standard output."""
    argv = [*OLD_KERNEL, *map(str, words)]
    completed = subprocess.run(argv, capture_output=True, text=True, input=text, check=False, timeout=240)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_the_filter_hides_what_came_later() -> None:
    program = "import os, select; select.epoll(); os.pidfd_open(1)"
    completed = subprocess.run(
        [*OLD_KERNEL, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 1 and "Function not implemented" in completed.stderr


def test_the_survey_works(static: Path, tmp_path: Path) -> None:
    text = old(static / "meshmark-probe", "survey", "--out", tmp_path, "--budget", "10s")
    (path,) = tmp_path.glob("*.jsonl.gz")
    assert path.name in text
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert len({line["instrument"] for line in lines if line["type"] == "result"}) >= 2
    assert not [line for line in lines if "not implemented" in line.get("reason", "")]


def test_a_watcher_samples(static: Path) -> None:
    lines = [json.loads(x) for x in old(static / "meshmark-watch", "--rate", "10", "--duration", "1s").splitlines()]
    assert [line["type"] for line in lines].count("frame") >= 2


@pytest.mark.parametrize("verify", [True, False])
def test_programs_are_placed(verify: bool, static: Path) -> None:
    place = static / "meshmark-place"
    words = ["--verify"] if verify else []
    assert old(place, "run", "--bind", "compact", *words, "--", "echo", "placed") == "placed\n"
    assert old(place, "slots").startswith("free: ")


def test_a_synthetic_program_runs(static: Path, tmp_path: Path) -> None:
    load = static / "meshmark-load"
    program = made_program(load, tmp_path / "program.json", calls=10)
    lines = [json.loads(x) for x in old(load, "program", program).splitlines()]
    assert lines[0]["type"] == "ready" and lines[-1]["type"] == "end"


def test_a_model_is_simulated(static: Path) -> None:
    lines = [json.loads(x) for x in old(static / "meshmark-model", text=json.dumps(TRAFFIC)).splitlines()]
    assert [line["type"] for line in lines] == ["answer"]


def test_a_node_carries_out_a_plan(static: Path, tmp_path: Path) -> None:
    step = {"argv": ["peak", "--type", "fp64", "--threads", "1", "--budget", "200ms"], "limit_s": 30.0, "id": "01-peak"}
    plan = tmp_path / "plan.json"
    plan.write_bytes(NodePlan("tiny", "check", False, 60.0, [step]).to_bytes())
    old(static / "meshmark-node", plan, "--out", tmp_path, "--name", "n1")
    assert [path.name for path in tmp_path.glob("*.gz")] == ["n1.jsonl.gz"]
