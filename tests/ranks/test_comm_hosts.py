"""Four hosts that are network namespaces of this one, joined by a bridge.

The counters of the kernel show what carries the messages, even if a library uses a shortcut that looks like a fast
network."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from support.comm_runs import SHORT, with_enough_budget
from support.mpi_here import installed
from support.net_hosts import Cluster

HOSTS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not installed():
        pytest.skip("no MPI library is installed")
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    network = Cluster(tmp_path_factory.mktemp("cluster"), HOSTS)
    try:
        network.open()
        subprocess.run([network.agent, network.addresses[0], "true"], check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        network.close()
        pytest.skip(f"network namespaces may not be made here: {error}")
    yield network
    network.close()


# Options with which each library uses the network between hosts with one kernel.
NETWORK = {"openmpi": ["--mca", "osc", "rdma,sm,pt2pt"], "mpich": ["-genv", "UCX_TLS", "tcp,self"]}
kinds = pytest.mark.parametrize("kind", ["openmpi", "mpich"])


@pytest.mark.parametrize("kind", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow)])
def test_four_hosts_over_their_network(cluster: Cluster, kind: str) -> None:
    words = (kind, NETWORK[kind], "halo", "--protocol", "mpi", "--words", "8", *SHORT, "--budget")
    lines = with_enough_budget(lambda budget: cluster.run(*words, budget))
    results = [line for line in lines if line["type"] == "result" and line["metric"] == "exchange_time"]
    assert {"sendrecv", "irecv_isend", "neighbour", "rma_fence", "rma_lock_all"} <= {
        r["conditions"]["protocol"] for r in results
    }
    oversubscribed = len(os.sched_getaffinity(0)) < HOSTS
    for r in results:
        c = r["conditions"]
        assert (c["hosts"], c["memory_groups"], c["ranks"]) == (HOSTS, HOSTS, HOSTS)
        assert c["host_names"] == ",".join(f"{cluster.name}h{i}" for i in range(1, HOSTS + 1))
        assert c["transport"] == "network eth0"
        assert ("oversubscribed" in r["flags"]) == oversubscribed  # the hosts share the CPUs of this one
    absences = [line for line in lines if line["type"] == "absent" and line["conditions"]["protocol"] == "shared"]
    assert [line["reason"].rpartition(": ")[2] for line in absences] == ["not all ranks share memory"]


@kinds
def test_messages_between_hosts_go_over_their_network(cluster: Cluster, kind: str) -> None:
    """Times mean nothing on a busy machine, where ranks within one host wait for a CPU."""
    before = cluster.sent_bytes()
    words = (kind, NETWORK[kind], "pingpong", "--protocol", "send", "--bytes", "1MiB", *SHORT, "--budget")
    lines = with_enough_budget(lambda budget: cluster.run(*words, budget, ranks=2))
    (results,) = [r for r in lines if r["type"] == "result" and r["metric"] == "message_latency"]
    assert results["conditions"]["transport"] == "network eth0"
    assert cluster.sent_bytes() - before > len(results["samples"]) << 20


def test_a_short_cut_through_shared_memory_is_called_so(cluster: Cluster) -> None:
    """UCX detects that the hosts share a kernel, and bypasses the network between them."""
    lines = cluster.run("mpich", [], "barrier", "--budget", "1s")
    (conditions,) = [line["conditions"] for line in lines if line["type"] == "result"]
    assert conditions["hosts"] == HOSTS
    assert conditions["transport"] in {"shared memory between hosts of one kernel", "network eth0"}
    if conditions["transport"] == "network eth0":
        pytest.skip("this MPICH takes no short cut")


def test_a_library_without_one_sided_messages_over_the_network_has_the_others(cluster: Cluster) -> None:
    protocols = "rma_fence,rma_lock_all,sendrecv"
    words = ("openmpi", ["--mca", "osc", "sm"], "halo", "--protocol", protocols, "--words", "8", *SHORT, "--budget")
    lines = with_enough_budget(lambda budget: cluster.run(*words, budget))
    reasons = {line["conditions"]["protocol"]: line["reason"] for line in lines if line["type"] == "absent"}
    assert set(reasons) == {"rma_fence", "rma_lock_all"} and all(
        "MPI_Win_allocate: " in reason for reason in reasons.values()
    )
    assert {line["conditions"]["protocol"] for line in lines if line["type"] == "result"} == {"sendrecv"}
