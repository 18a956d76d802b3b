"""Placement in real multi-node Linux kernels: memory on the requested node, threads on the requested CPUs.

Each topology is booted once for many checks. No test depends on speed: without hardware virtualisation the guest is
emulated, and its nodes share the same memory.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import booted
import pytest
from booted import ROOT

PROBE = Path(os.environ.get("MESHMARK_PROBE", ROOT / "build" / "release" / "bin" / "meshmark-probe"))

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]  # the guest may take 900 s

# name: CPUs by node, nodes with memory, distances from the first node
MACHINES: dict[str, dict[str, Any]] = {
    "numa-2": {"cpus": [[0, 1], [2, 3]], "memory": [0, 1], "from_first": [10, 21], "packages": 2, "threads": 1},
    "smt-2": {
        "cpus": [[0, 1, 2, 3], [4, 5, 6, 7]],
        "memory": [0, 1],
        "from_first": [10, 21],
        "packages": 2,
        "threads": 2,
    },
    "snc-2x2": {
        "cpus": [[0, 1], [2, 3], [4, 5], [6, 7]],
        "memory": [0, 1, 2, 3],
        "from_first": [10, 12, 21, 21],
        "packages": 2,
        "threads": 1,
    },
    "cxl-2+1": {
        "cpus": [[0, 1], [2, 3], []],
        "memory": [0, 1, 2],
        "from_first": [10, 21, 30],
        "packages": 2,
        "threads": 1,
    },
    "memless-3": {"cpus": [[0], [1], [2]], "memory": [0, 2], "from_first": None, "packages": 3, "threads": 1},
}
FOOTPRINT = "256KiB"
HUGE = "/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages"


def latency(*words: str, pages: str = "4KiB", budget: str = "30s", footprint: str = FOOTPRINT) -> list[str]:
    """Return words for the smallest measurement of the probe; the budget allows for a busy host, quick ones end before.

    Args:
        budget: "" if the step has `budgets`.
    """
    return [
        "latency",
        "--footprint",
        footprint,
        "--pages",
        pages,
        *(("--budget", budget) if budget else ()),
        "--interval",
        "50",
        "--shield",
        "off",
        *words,
    ]


@cache
def instruments() -> frozenset[str]:
    completed = subprocess.run([str(PROBE), "--describe"], capture_output=True, text=True, check=True, timeout=120)
    return frozenset(d["name"] for d in json.loads(completed.stdout))


def plan(name: str) -> list[dict[str, Any]]:
    """Return the steps that run in one guest."""
    machine = MACHINES[name]
    cpus = [c for node in machine["cpus"] for c in node]
    steps: list[dict[str, Any]] = [{"name": "topology", "topology": True}]
    steps += [
        {"name": f"from-{node_cpus[0]}", "run": latency("--cpus", str(node_cpus[0]), "--memory-node", "all")}
        for node_cpus in machine["cpus"]
        if node_cpus
    ]
    steps += [
        {"name": "default", "run": latency("--cpus", "0")},
        # Two, not all: each pointer chase takes 64 MiB on every node, and a node has only some 250 MiB.
        {"name": "two-cpus", "run": latency("--cpus", f"{cpus[0]},{cpus[-1]}", "--processes", "2")},
        {"name": "no-such-node", "run": latency("--memory-node", "9")},
        {"name": "affinity", "run": latency("--cpus", "0"), "affinity": [cpus[-1]]},
    ]
    if name in {"numa-2", "cxl-2+1"} and "bandwidth" in instruments():
        words = ["bandwidth", "--footprint", "3MiB", "--budget", "2s", "--interval", "50", "--shield", "off"]
        last = str(machine["memory"][-1])
        steps += [
            {"name": "bandwidth", "run": [*words, "--kernel", "read", "--threads", "2", "--memory-node", last]},
            {
                "name": "processes",
                "run": [
                    *words,
                    "--mode",
                    "processes",
                    "--cpus",
                    f"{cpus[0]},{cpus[-1]}",
                    "--store",
                    "ordinary",
                    "--threads",
                    "2",
                    "--memory-node",
                    last,
                ],
            },
            {
                "name": "own-memory",
                "run": [
                    *words,
                    "--mode",
                    "processes",
                    "--cpus",
                    f"{cpus[0]},{cpus[-1]}",
                    "--store",
                    "ordinary",
                    "--threads",
                    "2",
                ],
            },
        ]
    if name == "numa-2" and "lines" in instruments():
        # One CPU per node: if vCPUs share the cores of the host, every hand-over waits for a turn.
        words = ["lines", "--state", "dirty", "--cpus", "0,2", "--interval", "100", "--shield", "off"]
        steps.append({"name": "lines", "budgets": ["4s", "12s", "40s", "120s"], "run": words})
    if name == "numa-2":
        huge = latency("--cpus", "0", pages="2MiB")
        node0 = {"cpus": "0-1", "mems": "0"}
        steps += [
            {"name": "cpuset", "run": latency("--cpus", "2"), "cpuset": node0},
            {"name": "cpuset-memory", "run": latency("--memory-node", "1"), "cpuset": node0},
            {"name": "cpuset-inside", "run": latency(), "cpuset": node0},
            {
                "name": "huge",
                "write": {HUGE.format(1): "64", HUGE.format(0): "0"},
                "run": [*huge, "--memory-node", "1"],
            },
            {"name": "huge-elsewhere", "run": [*huge, "--memory-node", "0"]},
            {
                "name": "too-large",
                "write": {HUGE.format(1): "0"},
                "run": latency("--memory-node", "1", "--cpus", "0", footprint="16GiB"),
            },
            {"name": "too-large-there", "run": latency("--memory-node", "1", "--cpus", "0", footprint="512MiB")},
            {
                "name": "offline",
                "offline": 3,
                "budgets": ["8s", "100s"],
                "run": [w if w != "50" else "0.01" for w in latency("--cpus", "3", budget="")],
            },
        ]
    return steps


@cache
def gathered(name: str) -> dict[str, Any] | str:
    """Return the answers of one guest, or why there is no guest."""
    path = os.pathsep.join(p for p in (str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")) if p)
    return booted.gathered(name, "gather.py", {"probe": str(PROBE), "steps": plan(name)}, 900, {"PYTHONPATH": path})


@pytest.fixture(params=booted.first_quick(MACHINES))
def guest(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the description of the machine and the answers of its guest."""
    yield MACHINES[request.param], answers_of(request.param)


@pytest.fixture
def numa_2() -> dict[str, Any]:
    return answers_of("numa-2")


def answers_of(name: str) -> dict[str, Any]:
    answers = gathered(name)
    if isinstance(answers, str):
        pytest.skip(answers)
    return answers


def results(answers: dict[str, Any], step: str) -> list[dict[str, Any]]:
    """Return the results of a step that must have measured something."""
    answer = answers[step]
    assert answer.get("status") == 0, f"{step}: {answer}"
    assert answer["lines"][-1]["type"] == "end" and answer["lines"][-1]["status"] == "ok"
    return [x for x in answer["lines"] if x["type"] == "result" and "point" in x]


def refused(answer: dict[str, Any], field: str, allowed: str) -> None:
    """Assert a usage error: status 2 and one line, which names the field and the allowed values."""
    assert answer.get("status") == 2, answer
    error = answer["lines"][-1]
    assert error["type"] == "error" and error["field"] == field, error
    assert str(error["allowed"]) == allowed, error
    messages = [x for x in answer["talk"].splitlines() if "error" in x]
    assert len(messages) == 1 and allowed in messages[0], answer["talk"]


def absent_for(answer: dict[str, Any], word: str) -> None:
    """Assert status 77, an absence whose reason has this word, and no record."""
    assert answer.get("status") == 77, answer
    absences = [x for x in answer["lines"] if x["type"] == "absent"]
    assert absences and word in absences[0]["reason"], absences
    assert not [x for x in answer["lines"] if x["type"] == "result"]


def test_the_live_topology_is_the_one_booted(guest: tuple[dict[str, Any], dict[str, Any]]) -> None:
    machine, answers = guest
    topology = answers["topology"]["sysfs"]
    assert [n["cpus"] for n in topology["nodes"]] == machine["cpus"]
    assert [n["os_index"] for n in topology["nodes"] if n["memory_bytes"]] == machine["memory"]
    assert len(topology["packages"]) == machine["packages"]
    assert topology["threads_per_core"] == machine["threads"]
    assert topology["doubts"] == []
    if machine["from_first"]:
        assert topology["distances"][0] == machine["from_first"]
    hwloc = answers["topology"].get("hwloc")
    if hwloc is None:
        pytest.skip(f"hwloc's view: {answers['topology']['hwloc_missing']}")
    assert hwloc["cores"] == topology["cores"] and hwloc["packages"] == topology["packages"]


def test_memory_is_on_the_asked_node_from_every_node(guest: tuple[dict[str, Any], dict[str, Any]]) -> None:
    machine, answers = guest
    for node_cpus in (cpus for cpus in machine["cpus"] if cpus):
        points = results(answers, f"from-{node_cpus[0]}")
        node_pairs = {r["conditions"]["memory_node"]: r for r in points if r["metric"] == "load_latency"}
        assert sorted(node_pairs) == machine["memory"], f"cpu {node_cpus[0]} does not reach every memory"
        for node, record in node_pairs.items():
            assert record["conditions"]["observed_node"] == node
            assert record["conditions"]["observed_node_share"] == 1.0
            assert record["conditions"]["observed_cpus"] == str(node_cpus[0])
            assert record["value"] > 0
            assert not {"misplaced", "migrated"} & set(record["flags"]), record["flags"]


def test_without_a_node_it_goes_to_every_one_of_them(guest: tuple[dict[str, Any], dict[str, Any]]) -> None:
    machine, answers = guest
    nodes = {r["conditions"]["observed_node"] for r in results(answers, "default") if r["metric"] == "load_latency"}
    assert sorted(nodes) == machine["memory"]


def test_two_at_once_are_each_on_their_own_cpu(guest: tuple[dict[str, Any], dict[str, Any]]) -> None:
    machine, answers = guest
    cpus = [c for node in machine["cpus"] for c in node]
    points = results(answers, "two-cpus")
    assert points
    for record in points:
        assert record["conditions"]["processes"] == 2
        assert expand(record["conditions"]["observed_cpus"]) == [min(cpus), max(cpus)]
        assert "migrated" not in record["flags"]


def test_a_node_that_is_not_there_is_refused(guest: tuple[dict[str, Any], dict[str, Any]]) -> None:
    machine, answers = guest
    refused(answers["no-such-node"], "memory_node", kernel_list(machine["memory"]))


def test_a_cpu_outside_the_affinity_is_refused(guest: tuple[dict[str, Any], dict[str, Any]]) -> None:
    machine, answers = guest
    refused(answers["affinity"], "cpus", str(max(c for node in machine["cpus"] for c in node)))


@pytest.mark.parametrize("name", booted.first_quick(["numa-2", "cxl-2+1"]))
def test_bandwidth_comes_from_the_asked_node(name: str) -> None:
    answers = answers_of(name)
    points = results(answers, "bandwidth")
    assert points
    for record in points:
        assert record["conditions"]["observed_node"] == MACHINES[name]["memory"][-1]
        assert not {"misplaced", "migrated"} & set(record["flags"])


@pytest.mark.parametrize("name", booted.first_quick(["numa-2", "cxl-2+1"]))
def test_processes_have_their_memory_where_it_was_asked_for(name: str) -> None:
    answers, machine = answers_of(name), MACHINES[name]
    cpus = [c for node in machine["cpus"] for c in node]
    for step in ("processes", "own-memory"):
        points = results(answers, step)
        assert points
        for record in points:
            assert record["conditions"]["mode"] == "processes"
            assert expand(record["conditions"]["observed_cpus"]) == [cpus[0], cpus[-1]]
            assert not {"misplaced", "migrated", "unverified"} & set(record["flags"])
            variables = expand(record["conditions"]["observed_node"])
            homes = sorted({n for n, node_cpus in enumerate(machine["cpus"]) if {cpus[0], cpus[-1]} & set(node_cpus)})
            assert variables == ([machine["memory"][-1]] if step == "processes" else homes)


def test_lines_go_both_ways_between_the_nodes(numa_2: dict[str, Any]) -> None:
    points = results(numa_2, "lines")
    missing = [x["reason"] for x in numa_2["lines"]["lines"] if x["type"] == "absent"]
    assert {(r["conditions"]["from_cpu"], r["conditions"]["to_cpu"]) for r in points} == {(0, 2), (2, 0)}, missing
    assert not [r["flags"] for r in points if "migrated" in r["flags"]]


def test_a_cpuset_hides_cpus_and_memory(numa_2: dict[str, Any]) -> None:
    refused(numa_2["cpuset"], "cpus", "0-1")
    refused(numa_2["cpuset-memory"], "memory_node", "0")
    for record in results(numa_2, "cpuset-inside"):
        assert record["conditions"]["observed_node"] == 0


def test_huge_pages_are_taken_from_the_asked_node(numa_2: dict[str, Any]) -> None:
    points = results(numa_2, "huge")
    assert points
    for record in points:
        assert record["conditions"]["page_bytes"] == 2 << 20
        assert record["conditions"]["observed_node"] == 1
        assert not {"page_size", "misplaced"} & set(record["flags"])


def test_huge_pages_of_another_node_do_not_stand_in(numa_2: dict[str, Any]) -> None:
    absent_for(numa_2["huge-elsewhere"], "huge")


def test_a_footprint_larger_than_memory_is_absent(numa_2: dict[str, Any]) -> None:
    absent_for(numa_2["too-large"], "memory")


def test_a_footprint_larger_than_its_node_is_absent(numa_2: dict[str, Any]) -> None:
    absent_for(numa_2["too-large-there"], "memory")


def test_a_cpu_taken_offline_is_told(numa_2: dict[str, Any]) -> None:
    answer = numa_2["offline"]
    assert answer.get("status") in {0, 1, 2, 77}, answer
    reports = [x for x in answer["lines"] if x["type"] in {"error", "absent"} and "cpu" in json.dumps(x).lower()]
    points = [x for x in answer["lines"] if x["type"] == "result" and "point" in x]
    clean = [r for r in points if not {"migrated", "misplaced"} & set(r["flags"])]
    assert reports or (points and not clean), f"a run whose CPU went offline says nothing of it: {answer}"
    if answer["status"]:
        assert len(answer["talk"].strip().splitlines()) == 1, "not one line on standard error"


def expand(text: str) -> list[int]:
    """Return the numbers of a list such as 0-3,8."""
    numbers: list[int] = []
    for part in str(text).split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return sorted(numbers)


def kernel_list(numbers: list[int]) -> str:
    """Return a list as the kernel writes it: 0-1,3."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
