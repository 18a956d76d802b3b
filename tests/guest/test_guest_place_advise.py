"""Checks of the operating system and an advice in a real kernel of two nodes.

Everything runs in one boot. No test depends on speed: the guest is emulated; a remote page is as near as a local
one.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import booted
import pytest
from booted import ROOT

PLACE = Path(os.environ.get("MESHMARK_PLACE", ROOT / "build" / "release" / "bin" / "meshmark-place"))

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,  # a guest that runs an advice takes a minute and a half
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of set_mempolicy is that of x86_64"),
]


FILLED = {"ring-4": 1, "cxl-2+1": 2}  # by machine, the node that is filled until all nodes have pages


@cache
def gathered_orders(machine: str) -> dict[str, Any] | str:
    plan = {"check": ["--starts", "0", "--json"], "fill": FILLED[machine]}
    return booted.gathered(machine, "place_advise_inside.py", plan, 300, {"MESHMARK_PLACE": str(PLACE)})


@cache
def gathered() -> dict[str, Any] | str:
    """Return the answers of the guest, or why there is no guest."""
    plan = {
        "check": ["--provoke", "--starts", "0", "--json"],
        "advise": [
            "--budget",
            "60s",
            "--policies",
            "none,balance",
            "--pages",
            "default",
            "--memory",
            "default,bind",
            "--no-store",
            "--json",
        ],
        "folder": "/run/advice",
    }
    return booted.gathered("numa-2", "place_advise_inside.py", plan, 300, {"MESHMARK_PLACE": str(PLACE)})


def told() -> dict[str, Any]:
    answers = gathered()
    if isinstance(answers, str):
        pytest.skip(answers)
    assert "failed" not in answers, answers["failed"]
    return answers


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NUMA description", "2 nodes, 2 packages"),
        ("node distances", "local 10, remote 21"),
        ("spill order", "0→1; 1→0"),
        ("thread affinity", "kept on 4 CPUs"),
        ("first touch", "pages are on the node of the first touch: 0-1"),
        ("home allocation", "bound pages are on their node: 0-1"),
        ("NUMA balancing", "off"),
    ],
)
def test_what_is_right_is_said_to_be_right(name: str, found: str) -> None:
    answer = told()["check"]
    assert answer["status"] == 0, answer
    (check,) = [c for c in map(json.loads, answer["out"].splitlines()) if c["name"] == name]
    assert check["judged"] == "ok" and found in check["found"], check


def test_a_provoked_spill_goes_to_the_other_node_and_nobody_is_killed() -> None:
    (check,) = [c for c in map(json.loads, told()["check"]["out"].splitlines()) if c["name"] == "spill, provoked"]
    if "not full after" in check["found"]:
        pytest.skip(f"the emulated processor is too slow to fill a node in a minute: {check['found']}")
    assert check["judged"] == "ok", check
    assert "node 0 spills to 1 (distance 21) after" in check["found"]
    assert "node 1 spills to 0 (distance 21) after" in check["found"]


@pytest.mark.parametrize("machine", ["ring-4", "cxl-2+1"])
def test_the_order_of_all_nodes_is_found_without_filling_any(machine: str) -> None:
    answers = gathered_orders(machine)
    if isinstance(answers, str):
        pytest.skip(answers)
    checks = [json.loads(x) for x in answers["check"]["out"].splitlines()]
    (check,) = [c for c in checks if c["name"] == "spill order, tried"]
    assert check["judged"] == "ok", check
    orders = dict(part.split("→") for part in check["found"].split("; "))
    node, nodes = FILLED[machine], set(map(str, answers["order"]))
    assert set(orders) == nodes and all({n, *order.split(",")} == nodes for n, order in orders.items())
    # Actually filling the nodes gives the same order, to the last node.
    assert [str(node), *orders[str(node)].split(",")] == list(map(str, answers["order"]))


def test_an_advice_names_the_remote_pages_and_claims_nothing_that_it_did_not_see() -> None:
    answers = told()
    assert answers["advise"]["status"] == 0, answers["advise"]["talk"]
    answer = json.loads(answers["advise"]["out"].splitlines()[-1])
    remote: dict[str, list[float]] = {}
    for run in answers["journal"]:
        if "remote_share" in run["evidence"]:
            remote.setdefault(run["candidate"], []).append(run["evidence"]["remote_share"])
    assert statistics.median(remote["balance"]) > 0.5, remote
    assert statistics.median(remote["balance, bind"]) < 0.2, remote
    # The placement with which the program was started is reported, and is not a candidate; its removal is.
    assert answer["as_it_is"] == {"cpus": "", "memory": "preferred=1"}
    assert "the baseline runs with memory preferred=1" in answers["advise"]["talk"]
    assert answer["left_out"]["none"] == "the same as 'as it is'"
    assert "none, bind" in remote, remote
    assert answer["verdict"] in {"better", "no gain", "inconclusive"}
    if answer["verdict"] != "better":
        assert answer["choice"] == "as it is"
