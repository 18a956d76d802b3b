"""Programs among ranks: each run is verified, wrong messages are detected, and the reported values are consistent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from meshmark.measure.runs import launch
from support.applications_here import needs_applications
from support.mpi_here import installed

CPUS = len(os.sched_getaffinity(0))
KINDS = installed()
# As few blocks as an interval needs; on a busy machine, no undisturbed block may come before the budget ends, and the
# first ones only late.
SHORT = ("--interval", "100", "--budget", "25s")
ENOUGH = ("--interval", "100", "--budget", "100s")  # enough for four ranks on two busy CPUs
pytestmark = [needs_applications, pytest.mark.skipif(not KINDS, reason="no MPI library is installed")]

# The library between the program and MPI changes one bit of each message from a given one on, or a sum. A
# self-correcting method tolerates small errors of a sum, and the same factor for all sums: so every third sum is
# doubled.
SPOILER = r"""
#include <mpi.h>
#include <stdlib.h>
static long seen;
static int due(void) { return ++seen >= atol(getenv("SPOIL_FROM")); }
int MPI_Sendrecv(const void* out, int n, MPI_Datatype t, int to, int tag, void* in, int m, MPI_Datatype u, int from,
                 int tag2, MPI_Comm comm, MPI_Status* status) {
  const int rc = PMPI_Sendrecv(out, n, t, to, tag, in, m, u, from, tag2, comm, status);
  if (t == MPI_UINT64_T && m > 4 && due()) ((unsigned char*)in)[5] ^= 1;
  return rc;
}
int MPI_Alltoall(const void* out, int n, MPI_Datatype t, void* in, int m, MPI_Datatype u, MPI_Comm comm) {
  const int rc = PMPI_Alltoall(out, n, t, in, m, u, comm);
  if (due()) ((unsigned char*)in)[5] ^= 1;
  return rc;
}
int MPI_Allreduce(const void* out, void* in, int n, MPI_Datatype t, MPI_Op op, MPI_Comm comm) {
  const int rc = PMPI_Allreduce(out, in, n, t, op, comm);
  if (getenv("SPOIL_SUMS") && t == MPI_DOUBLE && out == MPI_IN_PLACE && n < 3 && due() && seen % 3 == 0)
    *(double*)in *= 2;
  return rc;
}
"""


def ask(kind: str, ranks: int, *words: str, **environment: str) -> tuple[int, list[dict[str, Any]], str]:
    """Return the status, lines and messages of a run with so many ranks."""
    completed = subprocess.run(
        [*launch.launch_argv(launch.launcher(kind), ranks, CPUS), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**launch.environment(kind), **environment},
        stdin=subprocess.DEVNULL,
    )
    return (
        completed.returncode,
        [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")],
        completed.stderr,
    )


def results(lines: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == "result" and line["metric"] == metric]


def absences(lines: list[dict[str, Any]]) -> list[str]:
    return [line["reason"] for line in lines if line["type"] == "absent"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    mpi: str = request.param
    return mpi


@pytest.fixture
def spoiler(kind: str, tmp_path: Path) -> dict[str, str]:
    """Return the environment in which messages are corrupted."""
    compiler = shutil.which(f"mpicc.{kind}") or shutil.which("mpicc")
    if compiler is None:
        pytest.skip("no mpicc")
    source, library = tmp_path / "spoiler.c", tmp_path / "spoiler.so"
    source.write_text(SPOILER)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True, timeout=60)
    return {"LD_PRELOAD": str(library), "SPOIL_FROM": "3"}


def can_share_cpus(kind: str, ranks: int) -> bool:
    """Return whether so many ranks can share the CPUs.

    A solve is thousands of messages. Ranks of MPICH never yield, so if there are more ranks than CPUs, each message
    waits for a turn of the scheduler: minutes."""
    return ranks <= CPUS or kind == "openmpi"


@pytest.mark.slow
def test_pop_needs_the_same_iterations_however_it_is_cut(kind: str) -> None:
    checksums: dict[tuple[str, int], int] = {}
    expected: set[str] = set()
    for ranks, grids in ((1, {"1x1"}), (2, {"1x2", "2x1"}), (4, {"1x4", "2x2", "4x1"})):
        if not can_share_cpus(kind, ranks):
            continue
        expected |= grids
        status, lines, _ = ask(kind, ranks, "pop", "--grid", "all", "--protocol", "sendrecv", *ENOUGH)
        assert status == 0, lines
        assert absences(lines) == []
        for line in results(lines, "iteration_time"):
            c = line["conditions"]
            checksums[c["grid"], c["reductions"]] = c["iterations"]
        assert all(max(line["samples"]) < 1e-12 for line in results(lines, "residual"))
        assert len(results(lines, "best_time")) == 1
    assert {grid for grid, _ in checksums} == expected
    assert max(checksums.values()) - min(checksums.values()) <= 1
    assert min(checksums.values()) > 50


@pytest.mark.slow
def test_every_way_to_exchange_solves(kind: str) -> None:
    """2 x 2 ranks include the corners of a 9-point operator, which arrive through the ghost cells of a neighbour."""
    if not can_share_cpus(kind, 4):
        pytest.skip("four ranks of MPICH need four CPUs")
    for protocol in ("sendrecv", "irecv_isend", "neighbour", "rma_fence", "shared", "packed"):
        status, lines, _ = ask(kind, 4, "pop", "--grid", "2x2", "--protocol", protocol, "--reductions", "1", *ENOUGH)
        assert status == 0 and absences(lines) == [], protocol
        assert [line["conditions"]["protocol"] for line in results(lines, "iteration_time")] == [protocol]


@pytest.mark.slow
def test_the_parts_of_an_iteration_add_up(kind: str) -> None:
    status, lines, _ = ask(kind, 2, "pop", "--protocol", "irecv_isend", "--reductions", "2", *SHORT)
    assert status == 0
    [by_metric] = results(lines, "iteration_time")
    parts = [results(lines, f"{name}_time")[0]["value"] for name in ("halo", "reduce", "compute")]
    assert min(parts) > 0
    # The total is that of the slowest rank; the parts are means over ranks.
    assert sum(parts) <= by_metric["value"] * 1.2
    assert sum(parts) >= by_metric["value"] * 0.5
    assert results(lines, "imbalance")[0]["value"] >= 1
    [best] = results(lines, "best_time")
    assert best["value"] == pytest.approx(by_metric["value"])
    assert best["conditions"]["best"] == by_metric["conditions"]["grid"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(
            ["pop", "--protocol", "sendrecv", "--grid", "2x1", "--reductions", "2"], "wrong", marks=pytest.mark.slow
        ),
        (["swim", "--protocol", "sendrecv"], "wrong"),
        (["gyro", "--modes", "16"], "wrong data"),
    ],
)
def test_a_spoilt_message_is_no_number(kind: str, spoiler: dict[str, str], words: list[str], says: str) -> None:
    status, lines, _ = ask(kind, 2, *words, *SHORT, **spoiler)
    assert status == 77
    assert not [line for line in lines if line["type"] == "result"]
    assert any(says in reason for reason in absences(lines)), absences(lines)


@pytest.mark.slow
def test_a_spoilt_sum_is_no_number(kind: str, spoiler: dict[str, str]) -> None:
    """Every third sum after the first solves is wrong: results before the timed part may be right."""
    environment = spoiler | {"SPOIL_SUMS": "1", "SPOIL_FROM": "1500"}
    words = ["pop", "--protocol", "irecv_isend", "--grid", "2x1", "--reductions", "2", *SHORT]
    status, lines, _ = ask(kind, 2, *words, **environment)
    assert status == 77
    assert any("wrong solution" in reason for reason in absences(lines)), absences(lines)


@pytest.mark.slow
def test_swim_keeps_what_it_must(kind: str) -> None:
    for ranks in (1, 3):
        status, lines, _ = ask(
            kind,
            ranks,
            "swim",
            "--cells",
            "40,65",
            "--steps",
            "60",
            "--protocol",
            "irecv_isend,shared",
            *SHORT,
        )
        assert status == 0
        assert absences(lines) == []
        by_metric = results(lines, "step_time")
        assert len(by_metric) == 4
        for line in by_metric:
            c = line["conditions"]
            assert c["mass_drift"] < 1e-12
            assert 0 < c["energy_drift"] < 1e-4  # the leapfrog method is not exact
            assert 0 < c["enstrophy_drift"] < 1e-4


@pytest.mark.slow
def test_gyro_says_how_much_is_transposed(kind: str) -> None:
    status, lines, _ = ask(kind, 2, "gyro", "--modes", "16,64", "--radii", "8", *SHORT)
    assert status == 0
    assert absences(lines) == []
    assert {line["conditions"]["modes"] for line in results(lines, "step_time")} == {16, 64}
    for line in results(lines, "transpose_share"):
        assert 0 < line["value"] < 1
        assert line["conditions"]["grid"] == "1x2"
    fewest, most = sorted(results(lines, "step_time"), key=lambda line: line["conditions"]["modes"])
    assert most["value"] > fewest["value"]


def test_gyro_in_a_grid_of_ranks(kind: str) -> None:
    status, lines, _ = ask(kind, 4, "gyro", "--modes", "16", "--radii", "8", "--grid", "2x2", *SHORT)
    assert status == 0
    assert absences(lines) == []
    assert len(results(lines, "step_time")) == 1


@pytest.mark.parametrize(
    ("ranks", "words", "says"),
    [
        (3, ["gyro", "--modes", "16"], "allowed: 1, 2, 4, 8, 16, 32, 64, 128, 256, 512"),
        (2, ["gyro", "--grid", "3x1"], "grid: found '3x1'; allowed: auto, 1x2, 2x1"),
        (2, ["pop", "--grid", "3x1"], "grid: found '3x1'; allowed: all, best, 1x2, 2x1"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(kind: str, ranks: int, words: list[str], says: str) -> None:
    status, _, messages = ask(kind, ranks, *words, *SHORT)
    assert status == 2
    assert says in launch.failure_message(messages), messages
    assert messages.count("allowed") == 1


@pytest.mark.slow
def test_anatomy_explains_its_step() -> None:
    """The test checks only sums: on a shared machine the times may be anything."""
    status, lines, _ = ask(KINDS[0], 2, "anatomy", "--program", "pop,gyro,swim", *SHORT[:2], "--budget", "100s")
    assert status == 0
    samples = [line for line in lines if line["type"] == "sample"]
    for program, kinds in (("pop", ("halo", "sum")), ("gyro", ("alltoall",)), ("swim", ("halo",))):
        application = [line for line in lines if line.get("conditions", {}).get("program") == program]

        def one(metric: str, factor: float, among: list[dict[str, Any]] = application) -> dict[str, Any]:
            [line] = [r for r in results(among, metric) if r["conditions"]["latency_factor"] == factor]
            return line

        step, slow = one("step_time", 1), one("step_time", 2)
        latency = one("latency_time", 1)
        # The counted messages, and the time of an operation without bytes.
        assert latency["value"] == pytest.approx(
            sum(
                line["value"] * latency["conditions"][f"{line['conditions']['operation']}s_per_step"]
                for line in results(application, "operation_latency")
            )
        )
        assert {line["conditions"]["operation"] for line in results(application, "operation_time")} == set(kinds)
        assert latency["conditions"][f"{kinds[0]}s_per_step"] == pytest.approx(2 if program == "gyro" else 1)
        assert one("predicted_time", 2)["value"] == pytest.approx(step["value"] + latency["value"])
        assert one("predicted_time", 0.5)["value"] == pytest.approx(step["value"] - latency["value"] / 2)
        # Both have the same number of rounds, unless the budget ended between the two; the error is that of the ratio
        # of both.
        error = one("prediction_error", 2)
        rounds = [[x for x in samples if x["point"] == r["point"]] for r in (step, slow)]
        assert abs(len(rounds[0]) - len(rounds[1])) <= 1 and min(map(len, rounds)) >= len(error["samples"]) > 0
        if len(step["samples"]) == len(slow["samples"]) == len(rounds[0]):  # none was left out
            assert error["samples"] == pytest.approx(
                [(a + latency["value"]) / b - 1 for a, b in zip(step["samples"], slow["samples"], strict=True)]
            )
        names = ("halo_time", "reduce_time", "transpose_time")
        messages = sum(one(name, 1)["value"] for name in names if results(application, name))
        explained_s = sum(
            one(name, 1)["value"] for name in ("latency_time", "bandwidth_time", "imbalance_time", "other_time")
        )
        assert explained_s == pytest.approx(messages, rel=0.5)


@pytest.mark.slow
def test_delays_are_really_added() -> None:
    """The delays are far longer than the variation of the machine."""
    status, lines, _ = ask(KINDS[0], 2, "anatomy", "--program", "swim", *SHORT, "--factor", "200")
    assert status == 0
    halo = {line["conditions"]["latency_factor"]: line["value"] for line in results(lines, "halo_time")}
    [latency] = results(lines, "latency_time")
    assert set(halo) == {1, 200}
    # Each halo exchange includes the delay.
    assert halo[200] >= 199 * latency["value"] * 0.99
