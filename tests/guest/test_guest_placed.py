"""The verdict about running programs in a real kernel of two nodes, the change that it suggests, and its restoration.

Everything runs in one boot. No test depends on speed: the guest is emulated and shares the processors of the host.
"""

from __future__ import annotations

import tempfile
from functools import cache
from typing import Any, Final

import booted
import pytest
from booted import ROOT

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.timeout(1200)]  # the guest may take 900 s

# CPUs 0 and 1 belong to node 0 of numa-2, CPUs 2 and 3 to node 1.
MISPLACED: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "bound to node 0, memory on node 1": (
        {"cpus": [0, 1], "node": 1, "processes": 1, "fix": True},
        "remote-memory",
        "meshmark migrate PID --to 0",
    ),
    "bound to a CPU of node 1, memory on node 0": (
        {"cpus": [3], "node": 0, "processes": 1, "fix": True},
        "remote-memory",
        "meshmark migrate PID --to 1",
    ),
    "two processes on node 1, memory on node 0": (
        {"cpus": [2, 3], "node": 0, "processes": 2, "fix": True},
        "remote-memory",
        "meshmark migrate PID --to 1 --children --shared",
    ),
    "a process on each CPU, all with memory on node 0": (
        {"cpus": [0, 1, 2, 3], "node": 0, "processes": 4, "fix": True},
        "first-touch",
        "meshmark migrate PID --to 0-1 --spread --children --shared",
    ),
    "three processes on one CPU": (
        {"cpus": [0], "node": 0, "processes": 3, "fix": True},
        "few-cpus",
        "taskset -acp 0-3 PID",
    ),
}
WELL_PLACED: Final[dict[str, dict[str, Any]]] = {
    "bound to the node of its memory": {"cpus": [0, 1], "node": 0, "processes": 1, "fix": True},
    "one CPU, and its memory": {"cpus": [2], "node": 1, "processes": 1, "fix": True},
}


@cache
def answers() -> dict[str, Any] | str:
    programs = {name: program for name, (program, _, _) in MISPLACED.items()} | WELL_PLACED
    with tempfile.TemporaryDirectory(prefix="meshmark-placed-", dir=ROOT / "build") as folder:
        plan = {"folder": folder, "programs": {n: {"mib": 24, **p} for n, p in programs.items()}}
        return booted.gathered("numa-2", "placed_inside.py", plan, 900)


def of(name: str) -> dict[str, Any]:
    result = answers()
    if isinstance(result, str):
        pytest.skip(result)
    assert "failed" not in result, result["failed"]
    program: dict[str, Any] = result[name]
    return program


@pytest.mark.parametrize("name", MISPLACED)
def test_a_misplaced_program_is_recognised_mended_and_restored(name: str) -> None:
    program, cause, command = MISPLACED[name]
    result = of(name)
    first = result["first"]
    assert (first["verdict"], first["cause"]) == ("badly placed", cause), first
    assert first["command"] == command.replace("PID", first["target"]["name"])
    fixed, restored = result["fixed"], result["restored"]
    assert fixed["cause"] != cause, (fixed, result["changes"])
    if cause == "remote-memory":
        (node,) = {program["cpus"][0] // 2}
        local = next(a["share"] for a in fixed["accesses"] if a["from"] == a["to"] == node)
        assert local > 0.9, (fixed["accesses"], result["changes"])
        assert restored["cause"] == cause, (restored["sentence"], result["undone"])
    if cause == "first-touch":
        # A process that was not observed for long enough has no pages.
        process = next(process for process in fixed["processes"] if process["pages"] is not None)
        pages = process["pages"]["by_node"]
        assert min(pages.get("0", 0), pages.get("1", 0)) > 0.4 * sum(pages.values()), (pages, result["changes"])
        assert restored["cause"] == cause, (restored["sentence"], result["undone"])
    assert restored["masks"] == first["masks"] and all(m == program["cpus"] for m in first["masks"].values())


@pytest.mark.parametrize("name", WELL_PLACED)
def test_a_well_placed_program_is_left_alone(name: str) -> None:
    result = of(name)
    first = result["first"]
    assert (first["verdict"], first["command"]) == ("well placed", ""), first["sentence"]
    assert "changes" not in result
