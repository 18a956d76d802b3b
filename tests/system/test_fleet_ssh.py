"""A fleet behind ssh; every node has a separate network, host name and sshd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cli import meshmark, start
from support.ssh_nodes import CannotStart, SshNodes, ssh_nodes
from support.waiting import until

pytestmark = pytest.mark.slow
STEP = """[[step]]
instrument = "peak"
options = { type = "fp64", threads = "1", budget = "200ms" }
"""


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshNodes]:
    try:
        with ssh_nodes(tmp_path_factory.mktemp("ssh"), 5) as ssh_cluster:
            yield ssh_cluster
    except CannotStart as error:
        pytest.skip(str(error))


@pytest.fixture
def folder(nodes: SshNodes, tmp_path: Path) -> Path:
    """Return the folder of a fleet of these nodes."""
    fleet = tmp_path / "a 100% fleet"
    fleet.mkdir()
    (tmp_path / "tiny.toml").write_text('name = "tiny"\n' + STEP * 8, encoding="utf-8")
    options = ["-F", str(nodes.config), "-oServerAliveInterval=1", "-oServerAliveCountMax=2", "-oConnectTimeout=3"]
    site = f'engine = "ssh"\nnodes = "n[1-5]"\n[ssh]\noptions = {json.dumps(options)}\n'
    (fleet / "fleet.toml").write_text(site, encoding="utf-8")
    return fleet


def words(folder: Path, *more: str) -> list[str]:
    spec = folder.parent / "tiny.toml"
    return ["fleet", "check", str(folder), "--spec", str(spec), "--beside", "--json", *more]


def states(text: str) -> dict[str, dict[str, Any]]:
    return {line["node"]: line for line in map(json.loads, text.splitlines()) if line["type"] == "node"}


def measuring(folder: Path) -> set[str]:
    """Return the nodes that measure at this moment."""
    return {path.name.split(".")[1] for path in folder.glob("campaigns/*/inbox/.n*")}


def test_nodes_that_cannot_be_reached_are_named_and_do_not_keep_the_others(nodes: SshNodes, folder: Path) -> None:
    nodes.kill("n3")
    nodes.forget_key("n4")
    run = start(*words(folder))
    assert until(lambda: any(folder.glob("campaigns/*/inbox/.n5.*")), 60)
    nodes.silence("n5")
    out, error = run.communicate(timeout=120)
    assert run.returncode == 0, error
    statuses = states(out)
    assert [statuses[n]["status"] for n in nodes.names] == ["done", "done", "failed", "failed", "failed"]
    assert "Connection refused" in statuses["n3"]["why"]
    assert "Host key verification failed" in statuses["n4"]["why"]
    assert any(word in statuses["n5"]["why"] for word in ("No route", "timed out", "timeout")), statuses["n5"]
    assert all(statuses[n]["tries"] == 2 for n in ("n3", "n4", "n5"))


def test_a_killed_campaign_finds_its_connections_again(nodes: SshNodes, folder: Path) -> None:
    first = start(*words(folder))
    assert until(lambda: len(measuring(folder)) == 5, 60)
    first.kill()
    first.wait()
    completed = meshmark(*words(folder, "--resume"))
    assert completed.returncode == 0, completed.stderr
    assert {n: (s["status"], s["tries"]) for n, s in states(completed.stdout).items()} == dict.fromkeys(
        nodes.names, ("done", 1)
    )
    assert [nodes.logins(n) for n in nodes.names] == [1] * 5
