"""A fleet of 10,000 nodes behind a real Slurm: the nodes are only names, for which the test writes the results."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark.fleet.folder import Fleet
from support.cli import command
from support.mini_slurm import CannotStart, Cluster, slurm_of_names
from support.standing_in import StandingIn
from support.waiting import until

COUNT = 10_000
MAX_BYTES = 500 << 20
TINY = """name = "tiny"
[[step]]
instrument = "peak"
options = { type = "fp64", threads = "1", budget = "100ms" }
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    try:
        with slurm_of_names(COUNT) as found:
            yield found
    except CannotStart as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_a_campaign_of_10000_nodes_is_killed_and_resumed(cluster: Cluster, tmp_path: Path) -> None:
    for node, state in (("n5000", "drain"), ("n7000", "down")):
        cluster.ask("scontrol", "update", f"nodename={node}", f"state={state}", "reason=bad DIMM")
    spec, folder = tmp_path / "tiny.toml", tmp_path / "fleet"
    spec.write_text(TINY, encoding="utf-8")
    words = command("fleet", "check", folder, "--spec", spec, "--json")
    env, fleet = {**os.environ, **cluster.env}, Fleet(folder)
    with StandingIn(cluster, folder) as nodes:
        first = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert until(lambda: len(nodes.measured) >= COUNT // 3, 150)
        finally:
            first.kill()
            first.wait()
        out = tmp_path / "out"
        with out.open("w") as file:
            second = subprocess.Popen([*words, "--resume"], env=env, stdin=subprocess.DEVNULL, stdout=file)
            _, status, usage = os.wait4(second.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    *states, ingestion = map(json.loads, out.read_text().splitlines())
    leftovers = {s["node"]: (s["status"], s["why"]) for s in states if s["status"] != "done"}
    assert leftovers == {
        "n5000": ("out", "drain~: powered off: bad DIMM"),
        "n7000": ("out", "down~: powered off: bad DIMM"),
    }
    assert len(ingestion["nodes"]) == COUNT - 2 and len(fleet.campaigns()) == 1
    assert set(nodes.measured.values()) == {1} and len(nodes.measured) == COUNT - 2
    assert len(nodes.jobs) <= COUNT // 64 + 3
    assert usage.ru_maxrss << 10 < MAX_BYTES
