"""Bindings in real kernels of several nodes: cpusets of both versions, memory policies, and the location of pages.

Each machine is booted once and runs many commands. No test depends on speed: the guest is emulated.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, Final

import booted
import pytest
from booted import ROOT

PLACE = Path(os.environ.get("MESHMARK_PLACE", ROOT / "build" / "release" / "bin" / "meshmark-place"))

pytestmark = pytest.mark.guest

PAGES: Final = (24 << 20) // 4096
NOBODY: Final = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "run"]

MEMORY: Final = {
    "local": ["--bind", "list=2", "--memory", "local"],
    "default": ["--bind", "list=2"],
    "bind here": ["--bind", "list=0", "--memory", "bind"],
    "bind there": ["--bind", "list=0", "--memory", "bind=1"],
    "preferred": ["--bind", "list=0", "--memory", "preferred=1"],
    "preferred many": ["--bind", "list=0", "--memory", "preferred=0-1"],
    "interleave": ["--bind", "none", "--memory", "interleave"],
    "interleave one": ["--bind", "list=2", "--memory", "interleave=0"],
    "weighted": ["--memory", "weighted=0:3,1:1"],
    "no such node": ["--memory", "bind=5"],
    "watched": ["--bind", "list=0", "--memory", "bind=1", "--verify=strict"],
}
HARD: Final = {
    "hard": ["--hard", "--bind", "list=2,3", "--verbose"],
    "hard memory": ["--hard", "--bind", "list=2", "--memory", "bind", "--verify"],
    "soft": ["--bind", "list=2"],
    "nobody": [*NOBODY, "--hard", "--bind", "list=2"],
}
OLD_JOB = pytest.param("numa-2 in an old job", marks=pytest.mark.slow)  # with control groups of version 1
# CPUs 2 and 3 belong to node 1 of numa-2.
MACHINES: dict[str, dict[str, Any]] = {
    "numa-2": {"cgroup": 2, "inside": "", "cases": MEMORY | HARD},
    "numa-2 in a job": {"cgroup": 2, "inside": "1-3", "cases": HARD | {"outside": ["--bind", "list=0"]}},
    "numa-2 in an old job": {"cgroup": 1, "inside": "1-3", "cases": HARD | {"outside": ["--bind", "list=0"]}},
    "memless-3": {
        "cgroup": 1,
        "inside": "",
        "cases": {
            "without": ["--bind", "list=1", "--memory", "bind"],
            "empty node": ["--bind", "list=1", "--memory", "bind=1"],
            "hard": ["--hard", "--bind", "list=1", "--memory", "local"],
        },
    },
}


@cache
def gathered(name: str) -> dict[str, Any] | str:
    """Return the answers of one guest, or why there is no guest."""
    plan = MACHINES[name] | {"place": str(PLACE)}
    return booted.gathered(name.split(maxsplit=1)[0], "place_bind_inside.py", plan, 180)


def told(machine: str) -> dict[str, Any]:
    answers = gathered(machine)
    if isinstance(answers, str):
        pytest.skip(answers)
    assert "failed" not in answers, f"{machine}: {answers['failed']}"
    return answers


def saw(machine: str, case: str) -> dict[str, Any]:
    """Return the report of the program itself."""
    answer = told(machine)["cases"][case]
    assert answer["status"] == 0, answer
    report: dict[str, Any] = answer["saw"]
    return report


@pytest.mark.parametrize(
    ("case", "policy", "nodes"),
    [
        ("local", "local", {1: 1.0}),
        ("default", "default", {1: 1.0}),
        ("bind here", "bind:0", {0: 1.0}),
        ("bind there", "bind:1", {1: 1.0}),
        ("preferred", "prefer:1", {1: 1.0}),
        ("preferred many", None, {0: 1.0}),
        ("interleave", "interleave:0-1", {0: 0.5, 1: 0.5}),
        ("interleave one", "interleave:0", {0: 1.0}),
    ],
)
def test_pages_lie_where_the_policy_says(case: str, policy: str | None, nodes: dict[int, float]) -> None:
    report = saw("numa-2", case)
    assert policy is None or report["policy"] == policy
    for node in (0, 1):
        assert report["nodes"].get(str(node), 0) / PAGES == pytest.approx(nodes.get(node, 0), abs=0.01), report


def test_a_watched_program_that_widens_its_mask_is_found() -> None:
    answer = told("numa-2")["cases"]["watched"]
    assert answer["saw"]["cpus"] == [0] and answer["saw"]["nodes"]["1"] / PAGES == pytest.approx(1, abs=0.01)
    assert answer["status"] == 3 and "did not hold" in answer["talk"], answer


def test_what_the_kernel_cannot_do_is_absent() -> None:
    answer = told("numa-2")["cases"]["weighted"]
    if answer["status"] == 0:  # the kernel supports it
        assert answer["saw"]["nodes"]["0"] / PAGES == pytest.approx(0.75, abs=0.01)
    else:
        assert answer["status"] == 77 and "Linux 6.9" in answer["talk"], answer


def test_a_node_without_memory_is_refused_by_name() -> None:
    for machine, case, node, allowed in (("numa-2", "no such node", 5, "0-1"), ("memless-3", "empty node", 1, "0,2")):
        answer = told(machine)["cases"][case]
        assert answer["status"] == 2, answer
        assert f"found node {node}, which has no memory; allowed: {allowed}" in answer["talk"]


def test_where_the_cpus_node_has_no_memory_any_will_do() -> None:
    report = saw("memless-3", "without")
    assert report["policy"] == "bind:0,2" and sum(report["nodes"].values()) >= PAGES


@pytest.mark.parametrize("machine", ["numa-2", "numa-2 in a job", OLD_JOB])
def test_a_cpuset_cannot_be_left(machine: str) -> None:
    report = saw(machine, "hard")
    assert report["cpus"] == report["widened"] == [2, 3] and "/meshmark-" in report["cgroup"]
    assert ", hard" in told(machine)["cases"]["hard"]["talk"]
    soft = saw(machine, "soft")
    assert soft["cpus"] == [2] and len(soft["widened"]) > 1 and "/meshmark-" not in soft["cgroup"]


@pytest.mark.parametrize("machine", ["numa-2", "numa-2 in a job", OLD_JOB])
def test_bound_memory_is_the_cpusets_too(machine: str) -> None:
    report = saw(machine, "hard memory")
    assert report["cpus"] == report["widened"] == [2] and report["mems"] == "1", report
    assert report["nodes"]["1"] >= PAGES * 0.99


@pytest.mark.parametrize("machine", ["numa-2 in a job", OLD_JOB])
def test_numbers_are_absolute_and_relative_to_the_job(machine: str) -> None:
    assert "CPUs 2-3 (relative 1-2)" in told(machine)["cases"]["hard"]["talk"]
    answer = told(machine)["cases"]["outside"]
    assert answer["status"] == 2 and "1-3" in answer["talk"], answer


@pytest.mark.parametrize("machine", ["numa-2", "numa-2 in a job", OLD_JOB])
def test_without_permission_it_is_absent(machine: str) -> None:
    answer = told(machine)["cases"]["nobody"]
    assert answer["status"] == 77 and "no hard binding: cannot" in answer["talk"] and "--soft" in answer["talk"], answer


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_left(machine: str) -> None:
    answers = told(machine)
    assert answers["left"] == [] and answers["slots"]["claims"] == []
