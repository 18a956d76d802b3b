"""Results state the kinds of cores on which they were measured, and jobs can be limited to one kind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from machines.shapes import Shape, write_shape
from meshmark.native import find_native


@pytest.fixture
def hybrid(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which this host has the CPUs 0 and 1, which are of two kinds."""
    files = {"sys/devices/cpu_core/cpus": "0\n", "sys/devices/cpu_atom/cpus": "1\n"}
    root = write_shape(tmp_path, Shape(cores=[[0], [1]], files=files))
    return os.environ | {"HWLOC_FSROOT": str(root), "HWLOC_THISSYSTEM": "1"}


@pytest.mark.parametrize(("cpus", "kinds"), [("0", "performance"), ("1", "efficiency")])
def test_a_result_states_the_kinds_of_its_cores(hybrid: dict[str, str], cpus: str, kinds: str) -> None:
    if not set(map(int, cpus.split(","))) <= os.sched_getaffinity(0):
        pytest.skip(f"this process may not use CPU {cpus}")
    words = [str(find_native("meshmark-probe")), "clock", "--cpus", cpus, "--budget", "100ms"]
    completed = subprocess.run(words, env=hybrid, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    kinds_of_results = [line["conditions"]["core_kinds"] for line in lines if line["type"] == "result"]
    assert kinds_of_results and set(kinds_of_results) == {kinds}, completed.stderr


def test_a_job_takes_the_fast_cores_first_or_the_kind_that_is_named(hybrid: dict[str, str]) -> None:
    for policy, cpus in (("balance", [0]), ("balance,kind=efficiency", [1])):
        words = [
            str(find_native("meshmark-place")),
            "plan",
            "--topology",
            "host",
            "--policy",
            policy,
            "--jobs",
            "1",
            "--json",
        ]
        completed = subprocess.run(words, env=hybrid, capture_output=True, text=True, check=False)
        assert json.loads(completed.stdout)["jobs"][0]["cpus"] == cpus, completed.stderr
