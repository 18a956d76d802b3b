"""Faults of a real Slurm, of its nodes and of the shared disk, and nodes that a policy drains."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from meshmark.fleet.cases import CasesState, NamedNode, WorseMetric
from meshmark.fleet.folder import Fleet
from support.cli import command
from support.made_fleet import lines_of, write_result
from support.many_nodes import ManyNodes, points
from support.mini_slurm import CannotStart, Cluster, slurm_cluster
from support.waiting import until

pytestmark = pytest.mark.slow
COUNT = 16
STEP = """[[step]]
instrument = "peak"
options = {{ type = "fp64", threads = "1", budget = "{budget}", interval = "{interval}" }}
repetitions = {repetitions}
"""


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    try:
        with slurm_cluster(COUNT) as cluster:
            yield cluster
    except CannotStart as error:
        pytest.skip(str(error))


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    """Return the cluster of all tests. After a fault, its nodes may be away or completing for half a minute."""
    assert until(lambda: {*started.ask("sinfo", "-h", "-o", "%t").split()} == {"idle"}, 180, step_s=0.5)
    return started


class Campaign:
    """A check of some nodes that runs in the background."""

    def __init__(self, cluster: Cluster, folder: Path, nodes: list[str], spec: Path) -> None:
        self.cluster, self.fleet, self.nodes = cluster, Fleet(folder), nodes
        self.words = command("fleet", "check", folder, "--spec", spec, "--beside", "--json", "--nodes", ",".join(nodes))
        self.env = {**os.environ, **cluster.env}

    def start(self, said: IO[str] | int | None, *more: str) -> subprocess.Popen[str]:
        words = [*self.words, *more]
        return subprocess.Popen(
            words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True
        )

    def inbox(self) -> Path:
        return self.fleet.campaign(self.fleet.campaigns()[-1]) / "inbox"

    def running(self) -> list[str]:
        """Return the IDs of the running jobs of the campaign."""
        if not self.fleet.campaigns():
            return []
        prefix = f"mm-{self.fleet.campaigns()[-1].rpartition('-')[2]}-"
        lines = self.cluster.ask("squeue", "-h", "-o", "%j %A", "--states=R").splitlines()
        return [line.split()[1] for line in lines if line.startswith(prefix)]

    def measuring(self) -> bool:
        """Return whether each node writes results, so that its job has processes."""
        return {path.name.split(".")[1] for path in self.fleet.root.glob("campaigns/*/inbox/.*")} >= {*self.nodes}


def started_from(folder: Path) -> list[int]:
    """Return the processes whose program is in this folder."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "exe").readlink().parent == folder:
                pids.append(int(process.name))
    return pids


def spec(folder: Path, budget: str = "100ms", repetitions: int = 1, interval: str = "2") -> Path:
    path = folder / "tiny.toml"
    step = STEP.format(budget=budget, repetitions=repetitions, interval=interval)
    path.write_text('name = "tiny"\n' + step, encoding="utf-8")
    return path


def results(process: subprocess.Popen[str]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the states of the nodes, and what was ingested."""
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    *nodes, ingestion = map(json.loads, out.splitlines())
    return {n["node"]: n for n in nodes}, ingestion


def test_a_controller_that_stops_and_starts_again(cluster: Cluster, tmp_path: Path) -> None:
    campaign = Campaign(cluster, tmp_path / "fleet", cluster.names[:4], spec(tmp_path, repetitions=40))
    with (tmp_path / "said").open("w") as raised:
        process = campaign.start(raised)
        try:
            assert until(campaign.running, 60)
            controller = cluster.running.pop(0)
            controller.terminate()  # the controller saves its state
            controller.wait()
            assert until(lambda: "trying again" in (tmp_path / "said").read_text(), 120)
            cluster.start_controller()
            states, ingestion = results(process)
        finally:
            process.kill()
    assert {s["status"] for s in states.values()} == {"done"}
    assert sorted(ingestion["nodes"]) == sorted(campaign.nodes)


def test_a_controller_that_does_not_answer_creates_no_job_twice(cluster: Cluster, tmp_path: Path) -> None:
    campaign = Campaign(cluster, tmp_path / "fleet", cluster.names[4:8], spec(tmp_path))
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "fleet.toml").write_text("max_nodes = 1\nmax_jobs = 1\n", encoding="utf-8")
    controller = next(p for p in cluster.running if b"slurmctld" in Path(f"/proc/{p.pid}/cmdline").read_bytes())
    with (tmp_path / "said").open("w") as raised:
        process = campaign.start(raised)
        try:
            assert until(lambda: len(list(campaign.fleet.root.glob("campaigns/*/inbox/*.gz"))) > 0, 60)
            controller.send_signal(signal.SIGSTOP)
            assert until(lambda: "trying again" in (tmp_path / "said").read_text(), 120)
            controller.send_signal(signal.SIGCONT)
            states, _ = results(process)
        finally:
            controller.send_signal(signal.SIGCONT)
            process.kill()
    assert {(s["status"], s["tries"]) for s in states.values()} == {("done", 1)}


def test_a_job_that_is_killed_is_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    # No interval becomes that narrow, so the instrument uses its whole budget.
    long = spec(tmp_path, budget="25s", interval="0.01")
    campaign = Campaign(cluster, tmp_path / "fleet", cluster.names[8:10], long)
    process = campaign.start(None)
    try:
        assert until(campaign.measuring, 60)  # Slurm reports a job as running before it has processes to be killed
        cluster.ask("scancel", "--signal=KILL", *campaign.running())
        states, ingestion = results(process)
    finally:
        process.kill()
    assert {(s["status"], s["tries"]) for s in states.values()} == {("done", 2)}
    assert sorted(ingestion["nodes"]) == sorted(campaign.nodes)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_loses_nothing(cluster: Cluster, tmp_path: Path, small_disk: Path) -> None:
    campaign = Campaign(cluster, small_disk / "fleet", cluster.names[10:14], spec(tmp_path, repetitions=40))
    filling = small_disk / "filling"
    with (tmp_path / "said").open("w") as raised:
        process = campaign.start(raised)
        assert until(campaign.running, 60)
        with contextlib.suppress(OSError), filling.open("wb", buffering=0) as out:
            while True:
                out.write(bytes(4096))
        assert process.wait(200) == 1
    assert "no node has returned measurements" in (tmp_path / "said").read_text()
    filling.unlink()
    with (tmp_path / "said").open("w") as raised:
        states, ingestion = results(campaign.start(raised, "--resume"))
    assert {s["status"] for s in states.values()} == {"done"}
    assert sorted(ingestion["nodes"]) == sorted(campaign.nodes)


def test_a_node_that_has_another_name_is_refused_and_measured_on_resume(cluster: Cluster, tmp_path: Path) -> None:
    campaign = Campaign(cluster, tmp_path / "fleet", cluster.names[13:], spec(tmp_path))
    liar = campaign.nodes[1]
    cluster.ask("scontrol", "update", f"nodename={liar}", "state=drain", "reason=later")
    states, first = results(campaign.start(subprocess.DEVNULL))
    assert states[liar]["status"] == "out" and len(first["nodes"]) == 2
    write_result(campaign.inbox(), liar, lines_of("other"))
    _, second = results(campaign.start(subprocess.DEVNULL, "--resume"))
    assert second["skipped"] == {f"{liar}.jsonl.gz": f"{liar}.jsonl.gz: the file names the node other"}
    cluster.ask("scontrol", "update", f"nodename={liar}", "state=resume")
    assert until(lambda: cluster.ask("sinfo", "-h", "-n", liar, "-o", "%t").strip() == "idle", 60, step_s=0.2)
    states, third = results(campaign.start(subprocess.DEVNULL, "--resume"))
    assert {s["status"] for s in states.values()} == {"done"} and third["nodes"] == [liar]


def test_a_plan_that_may_take_longer_than_the_partition_allows_runs(cluster: Cluster, tmp_path: Path) -> None:
    """The jobs of the partition may run for 10 min; at worst, the plan takes 620 s."""
    campaign = Campaign(cluster, tmp_path / "fleet", cluster.names[9:10], spec(tmp_path, "400ms", repetitions=100))
    states, _ = results(campaign.start(subprocess.DEVNULL))
    assert states[cluster.names[9]]["status"] == "done"


def case(node: str, campaign: str) -> NamedNode:
    worse = WorseMetric("key", "bandwidth", "bandwidth_net", {}, 0.3, 0.2, 0.4, 1e-9)
    return NamedNode(node, "blade", 0.0, [worse], [], {}, campaign, campaign)


def test_named_nodes_are_drained_by_policy_once_and_those_drained_by_hand_left_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path)
    slow = dict.fromkeys(cluster.names[5:7], (3, 0.3, 4))
    names = ManyNodes(fleet, cluster.names, points(4), slow=slow).write(10)
    (tmp_path / "policy.toml").write_text("[drain]\nworse_by = 0.1\nmost = 16\n", encoding="utf-8")
    first, second = cluster.names[5], cluster.names[6]
    CasesState(open={node: case(node, names[5]) for node in (first, second)}).save(fleet, "cluster")
    cluster.ask("scontrol", "update", f"nodename={second}", "state=drain", "reason=bad fan")

    def reasons() -> dict[str, str]:
        lines = cluster.ask("sinfo", "-h", "-N", "-o", "%N|%t|%E").splitlines()
        return {n: reason for n, state, reason in (line.split("|") for line in lines) if state in {"drain", "drng"}}

    def judge() -> str:
        words = command("fleet", "judge", tmp_path)
        env = {**os.environ, **cluster.env}
        completed = subprocess.run(words, env=env, capture_output=True, text=True, timeout=200, check=False)
        assert completed.returncode == 0, completed.stderr
        return completed.stderr

    text = judge()
    reason = "meshmark: bandwidth bandwidth_net 30% worse than its class"
    assert reasons() == {first: reason, second: "bad fan"}
    assert f"drained {first}: {reason}" in text and f"{second} is out of service already: drain: bad fan" in text
    cluster.ask("scontrol", "update", f"nodename={first}", "state=resume")
    ManyNodes(fleet, cluster.names, points(4), slow=slow).write(11)
    assert "drained" not in judge().replace("drain: bad fan", "") and reasons() == {second: "bad fan"}
    cluster.ask("scontrol", "update", f"nodename={second}", "state=resume")
