"""A fleet behind a real Slurm; every node is this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark.fleet.folder import Fleet
from support.cli import command
from support.made_application import SCRIPT, SPEC, SUM, write_sum
from support.mini_slurm import CannotStart, mini_slurm
from support.waiting import until

COUNT = 16
TINY = """name = "tiny"
[[step]]
instrument = "peak"
options = { type = "fp64", threads = "1", budget = "100ms" }
"""


@pytest.fixture
def slurm() -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the nodes, and the variables with which the commands of Slurm find the cluster."""
    try:
        with mini_slurm(nodes=COUNT) as cluster:
            yield cluster
    except CannotStart as error:
        pytest.skip(str(error))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path / "tiny.toml"


def start(words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def read_bytes(path: Path) -> bytes:
    """Return the content of a file of a process, which may end meanwhile."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def daemon_of(node: str) -> int:
    """Return the process ID of the slurmd of a node."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = read_bytes(path).split(b"\0")
        if words[:1] and words[0].endswith(b"slurmd") and words[-2:-1] == [node.encode()]:
            return int(path.parent.name)
    raise AssertionError(node)


def test_a_drained_and_a_killed_node_do_not_keep_the_others(
    slurm: tuple[list[str], dict[str, str]], spec: Path, tmp_path: Path
) -> None:
    names, env = slurm
    drained, killed = names[3], names[7]
    drain = ["scontrol", "update", f"nodename={drained}", "state=drain", "reason=bad DIMM"]
    assert start(drain, env).returncode == 0
    os.kill(daemon_of(killed), signal.SIGKILL)
    folder = tmp_path / "fleet"
    process = start(command("fleet", "check", str(folder), "--spec", str(spec), "--beside", "--json"), env)
    assert process.returncode == 0, process.stderr
    *nodes, ingestion = map(json.loads, process.stdout.splitlines())
    states = {n["node"]: n for n in nodes}
    assert {n for n, s in states.items() if s["status"] == "done"} == {*names} - {drained, killed}
    assert states[drained]["status"] == "out" and "bad DIMM" in states[drained]["why"]
    assert states[killed]["status"] in {"failed", "out"} and states[killed]["why"]
    assert sorted(ingestion["nodes"]) == sorted({*names} - {drained, killed})


def test_a_killed_campaign_is_resumed_and_no_node_measures_twice(
    slurm: tuple[list[str], dict[str, str]], spec: Path, tmp_path: Path
) -> None:
    names, env = slurm
    folder = tmp_path / "fleet"
    (folder).mkdir()
    (folder / "fleet.toml").write_text('cluster = "mini"\nengine = "slurm"\nmax_nodes = 4\nmax_jobs = 2\n')
    words = command("fleet", "check", str(folder), "--spec", str(spec), "--beside")
    first = subprocess.Popen(words, env={**os.environ, **env}, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    fleet = Fleet(folder)
    try:
        assert until(lambda: any(fleet.root.glob("campaigns/*/inbox/*.gz")), 60)
    finally:
        first.kill()
        first.wait()
    process = start([*words, "--resume", "--json"], env)
    assert process.returncode == 0, process.stderr
    states = [json.loads(line) for line in process.stdout.splitlines()][:-1]
    assert {s["node"]: (s["status"], s["tries"]) for s in states} == dict.fromkeys(names, ("done", 1))
    assert len(fleet.campaigns()) == 1


def test_nodes_run_applications_and_end_what_they_leave(
    slurm: tuple[list[str], dict[str, str]], tmp_path: Path
) -> None:
    names, env = slurm
    step = '[[step]]\napplication = "left.toml"\nruns = 1\n'
    spec = write_sum(tmp_path, spec=SPEC + step)
    (tmp_path / "left.toml").write_text(SUM.replace('name = "sum"', 'name = "left"').replace("sum.sh", "left.sh"))
    (tmp_path / "left.sh").write_text(SCRIPT + "setsid sleep 987654 &\n")  # the process is in a new session
    process = start(command("fleet", "check", str(tmp_path / "fleet"), "--spec", str(spec), "--beside", "--json"), env)
    assert process.returncode == 0, process.stderr
    *nodes, ingestion = map(json.loads, process.stdout.splitlines())
    assert {n["node"]: n["status"] for n in nodes} == dict.fromkeys(names, "done")
    reason = "left size=100: left 1 process running, which was killed"
    assert {failure: sorted(failed) for failure, failed in ingestion["failures"].items()} == {reason: sorted(names)}
    assert not any(b"\x00987654\x00" in read_bytes(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
