"""Limits for health checks: they are derived from the results of node classes and applied by the runner on a node."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.errors import AbsentError
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.assessment import look
from meshmark.fleet.health.limits import with_limits
from meshmark.fleet.plan import NodePlan, load_plan
from meshmark.native import find_native
from support.many_nodes import HASH, ManyNodes, points


def test_limits_are_far_from_the_class_on_its_worse_side(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    ManyNodes(fleet, [f"n{i}" for i in range(20)], points(2)).write(3)
    plan = with_limits(fleet, "cluster", look(fleet, "cluster"))
    latency, bandwidth = plan.limits[HASH]
    assert latency["instrument"] == "latency" and latency["conditions"] == {"footprint_bytes": 16384}
    # Single values vary by 0.6 %, so that 10 % is more than six standard deviations.
    assert latency["high"] == pytest.approx(1.1e-7, rel=0.01) and "low" not in latency
    assert bandwidth["low"] == pytest.approx(1e11 / 1.1, rel=0.01) and "high" not in bandwidth
    path = tmp_path / "health.json"
    path.write_bytes(plan.to_bytes())
    assert load_plan(path) == plan and plan.id != load_plan(next(fleet.plans.glob("*.json"))).id


def test_too_few_nodes_have_no_limits(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    ManyNodes(fleet, ["a", "b"], points(2)).write(1)
    with pytest.raises(AbsentError, match="no class has enough nodes"):
        with_limits(fleet, "cluster", look(fleet, "cluster"))


@pytest.mark.parametrize(("low", "status", "text"), [(1.0, 0, "healthy: "), (1e18, 1, "problem: peak ")])
def test_a_node_says_whether_it_is_within_its_limits(tmp_path: Path, low: float, status: int, text: str) -> None:
    argv = ["peak", "--type", "fp64", "--threads", "1", "--budget", "200ms"]
    plan = NodePlan("tiny", "check", False, 60.0, [{"id": "01-peak", "argv": argv, "limit_s": 30.0}])

    def run(plan: NodePlan) -> subprocess.CompletedProcess[str]:
        (tmp_path / "plan.json").write_bytes(plan.to_bytes())
        words = [find_native("meshmark-node"), tmp_path / "plan.json", "--out", tmp_path, "--health"]
        return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    unknown = run(plan)
    assert unknown.returncode == 2 and unknown.stdout.startswith("unknown: "), unknown.stdout + unknown.stderr
    hash_ = unknown.stdout.split()[-1]
    limit = {"instrument": "peak", "metric": "flop_rate", "conditions": {"type": "fp64"}, "low": low}
    completed = run(replace(plan, limits={hash_: [limit]}))
    if "no result without a flag" in completed.stdout:
        pytest.skip("another process disturbed the measurement")
    assert completed.returncode == status and completed.stdout.startswith(text), completed.stdout + completed.stderr
    assert json.loads((tmp_path / "plan.json").read_text())["limits"][hash_] == [limit]
