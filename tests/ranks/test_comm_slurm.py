"""Ranks inside an allocation of Slurm.

They are started by the launchers that `meshmark measure` uses, by srun, and by an srun that does not join its tasks."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshmark.describe import find_comm
from meshmark.measure.runs import launch
from support.cli import COMMAND, command
from support.mini_slurm import CannotStart, mini_slurm
from support.mpi_here import installed, needed
from support.waiting import until

SHORT = ("--bytes", "8", "--protocol", "send", "--budget", "300ms")
MANAGER = {"openmpi": "pmix", "mpich": "pmi2"}  # the plugin of srun that joins the tasks of a library
kinds = pytest.mark.parametrize("kind", ["openmpi", "mpich"])


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """Yield the variables with which a cluster is found whose two nodes are this machine."""
    if not installed():
        pytest.skip("no MPI library is installed")
    try:
        with mini_slurm(nodes=2) as (_, cluster):
            yield cluster
    except CannotStart as error:
        pytest.skip(str(error))


def program(kind: str) -> str:
    return str(needed(kind).program)


def start(words: list[str], slurm: dict[str, str], kind: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**launch.environment(kind), **slurm, "XDG_DATA_HOME": str(folder)}
    for _ in range(3):
        completed = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
        )
        if "launch failed: Unspecified error" not in completed.stderr:
            break  # else Slurm gave up on a busy machine, before it started the program
    return completed


def joined_by(manager: str, slurm: dict[str, str]) -> list[str]:
    completed = subprocess.run(
        ["srun", "--mpi=list"], env={**os.environ, **slurm}, capture_output=True, text=True, timeout=60, check=False
    )
    if manager not in (completed.stdout + completed.stderr).split():
        pytest.skip(f"this Slurm has no {manager}")
    return ["srun", f"--mpi={manager}", "-n", "2"]


def latency(lines: str) -> dict[str, Any]:
    (values,) = [x for x in map(json.loads, lines.splitlines()) if x.get("metric") == "message_latency"]
    return values["conditions"]  # type: ignore[no-any-return]


@kinds
@pytest.mark.parametrize(("nodes", "tasks"), [(1, 2), (2, 4)])
def test_measure_starts_its_ranks_inside_an_allocation(
    kind: str, nodes: int, tasks: int, slurm: dict[str, str], tmp_path: Path
) -> None:
    program(kind)
    job = ["salloc", "-Q", "-N", str(nodes), "-n", str(tasks), "sh", "-c", 'echo "$SLURM_JOB_ID" >&2; exec "$@"', "sh"]
    process = start(
        [*job, *COMMAND, "measure", "pingpong", "--mpi", kind, "--ranks", "2", *SHORT, "--json", "--no-store"],
        slurm,
        kind,
        tmp_path,
    )
    assert process.returncode == 0, process.stderr
    latencies = latency(process.stdout)
    assert (latencies["ranks"], latencies["mpi"]) == (2, kind)
    assert latencies["slurm_job_id"] == process.stderr.split()[0]


@pytest.mark.parametrize("kind", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow)])
def test_a_batch_job_that_is_cancelled_is_gone_on_with_by_the_next(
    kind: str, slurm: dict[str, str], tmp_path: Path
) -> None:
    program(kind)
    script, log, out = tmp_path / "job.sh", tmp_path / "talk", tmp_path / "out"

    def submit(*words: str, wait: tuple[str, ...] = ()) -> str:
        script.write_text(f"#!/bin/sh\nexec {shlex.join(command('measure', *words))}\n")
        job = ["sbatch", "--parsable", *wait, "-N", "1", "-n", "2", "-o", str(out), "-e", str(log), str(script)]
        process = start(job, slurm, kind, tmp_path)
        assert process.returncode == 0, process.stderr + log.read_text()
        return process.stdout.strip()

    def journalled() -> str:
        return "".join(x.read_text() for x in (tmp_path / "meshmark/store/.measuring").glob("*/journal/*"))

    job = submit(
        "halo", "--protocol", "mpi", "--words", "1..10000", "--mpi", kind, "--ranks", "2", *ONE_START, "--budget", "8s"
    )
    assert until(lambda: '"type":"point"' in journalled()), log.read_text()
    assert start(["scancel", job], slurm, kind, tmp_path).returncode == 0
    assert until(lambda: not start(["squeue", "-h"], slurm, kind, tmp_path).stdout)
    lines = [json.loads(x) for x in journalled().splitlines(keepends=True) if x.endswith("\n")]
    finished = {x["index"] for x in lines if x["type"] == "point"}
    before = [x for x in lines if x["type"] == "result" and x.get("point") in finished]
    assert before and not out.read_text()

    submit("--resume", "--json", wait=("--wait",))
    assert "meshmark: resuming " in log.read_text()
    reports = [r for x in out.read_text().splitlines() if not (r := json.loads(x))["metric"].endswith("_mode")]
    after = {key(x): x["samples"] for x in reports}
    assert len(reports) == len(after) > len(before)
    assert all(after[key(x)] == x["samples"] for x in before), "a point that was finished was measured again"


ONE_START = ("--repetitions", "1")  # samples of several starts are pooled, which hides which of them are kept


def key(record: dict[str, Any]) -> tuple[Any, ...]:
    conditions = record["conditions"]
    return record["metric"], conditions.get("protocol"), conditions.get("words")


@kinds
def test_srun_starts_the_ranks_of_one_job(kind: str, slurm: dict[str, str], tmp_path: Path) -> None:
    program(kind)
    # The library that the variables of the manager name.
    words = [*joined_by(MANAGER[kind], slurm), str(find_comm()), "pingpong", *SHORT]
    process = start(words, slurm, kind, tmp_path)
    assert process.returncode == 0, process.stderr
    latencies = latency(process.stdout)
    assert (latencies["ranks"], latencies["mpi"]) == (2, kind) and latencies["slurm_job_id"]


@pytest.mark.parametrize(
    ("kind", "manager"),
    [("openmpi", "none"), ("mpich", "none"), ("mpich", "pmix")],
)
def test_tasks_that_nobody_joins_are_no_ranks(kind: str, manager: str, slurm: dict[str, str], tmp_path: Path) -> None:
    """Each task would measure alone, or fail with a page of text; two of them would be mistaken for two ranks."""
    process = start([*joined_by(manager, slurm), program(kind), "pingpong", *SHORT], slurm, kind, tmp_path)
    assert process.returncode == 2, process.stderr
    messages = [line for line in process.stderr.splitlines() if line.startswith("meshmark-comm: ")]
    assert len(messages) == 1, process.stderr
    assert "found 2 tasks of srun that are not connected to one another" in messages[0] and "--mpi=pmix" in messages[0]
    assert '"type":"result"' not in process.stdout
