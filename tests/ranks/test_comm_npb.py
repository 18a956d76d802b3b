"""The NAS parallel benchmarks among ranks: verified, equal for any number of ranks, and equal to a second
implementation."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import coo_array

from meshmark.measure.runs import launch
from support.applications_here import needs_applications
from support.comm_runs import Line, with_enough_budget
from support.mpi_here import installed, needed

KERNELS = ("ep", "cg", "is", "ft", "mg", "lu", "bt", "sp")
CPUS = len(os.sched_getaffinity(0))
Floats = NDArray[np.float64]

pytestmark = [needs_applications, pytest.mark.skipif(not installed(), reason="no MPI library is installed")]


def slow(*values: Any) -> Any:
    """Return a parameter that only `make check-all` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def npb(
    kind: str, ranks: int, *words: str, more: dict[str, str] | None = None, threads: int = 1
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Return the run that had enough budget, and its lines."""
    start = launch.launch_argv(launch.launcher(kind), ranks, CPUS, threads=threads)
    call = [*start, "npb", "--interval", "100", *(() if threads == 1 else ("--threads", str(threads))), *words]
    runs: list[subprocess.CompletedProcess[str]] = []

    def measure(budget: str) -> list[Line]:
        completed = subprocess.run(
            [*call, "--budget", budget],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**launch.environment(kind), "OMP_WAIT_POLICY": "passive", **(more or {})},
        )
        runs.append(completed)
        return [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")]

    lines = with_enough_budget(measure)
    return runs[-1], lines


def results(lines: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(r["conditions"]["kernel"], r["metric"]): r for r in lines if r["type"] == "result"}


@cache
def class_s(kind: str, ranks: int, threads: int = 1) -> dict[tuple[str, str], dict[str, Any]]:
    completed, lines = npb(kind, ranks, "--kernel", "all", "--fft", "own", threads=threads)
    assert completed.returncode == 0, completed.stderr
    return results(lines)


# ---------------------------------------------------------------- by a second way


def report_random(count: int, seed: int) -> NDArray[np.uint64]:
    """Return the random numbers of the report, times 2^46: each is the previous one times 5^13 mod 2^46."""
    mask = np.uint64((1 << 46) - 1)
    all_ = np.array([seed * 5**13 % (1 << 46)], dtype=np.uint64)
    while len(all_) < count:
        jump = np.uint64(pow(5, 13 * len(all_), 1 << 46))
        all_ = np.concatenate([all_, all_ * jump & mask])  # the overflow is beyond the mask
    return all_[:count]


def uniform(count: int, seed: int = 314159265) -> Floats:
    return report_random(count, seed).astype(np.float64) * 2.0**-46


def ep_by_numpy() -> dict[str, float]:
    sums_x, sums_y, sums_of_deviates = [], [], 0
    chunk = 1 << 20  # numbers; the 2^25 of the report at once would fill the memory of a small machine
    for first in range(0, 1 << 25, chunk):
        seed = 271828183 * pow(5**13, first, 1 << 46) % (1 << 46)
        x, y = (2 * uniform(chunk, seed) - 1).reshape(-1, 2).T
        t = x * x + y * y
        accepted = t <= 1
        factor = np.sqrt(-2 * np.log(t[accepted]) / t[accepted])
        sums_x.append(float(np.sum(x[accepted] * factor)))
        sums_y.append(float(np.sum(y[accepted] * factor)))
        sums_of_deviates += int(accepted.sum())
    return {"sum_x": math.fsum(sums_x), "sum_y": math.fsum(sums_y), "deviates": sums_of_deviates}


def cg_by_numpy() -> dict[str, float]:
    n, nonzeros, shift = 1400, 7, 10.0
    numbers = iter(uniform(60000).tolist())
    next(numbers)
    rows, columns, values = [list(range(n))], [list(range(n))], [[0.1 - shift] * n]
    for i in range(n):
        vector: dict[int, float] = {}
        while len(vector) < nonzeros:
            value, position = next(numbers), int(2048 * next(numbers))
            if position < n:
                vector.setdefault(position, value)
        vector[i] = 0.5
        at_, v = np.array(list(vector)), np.array(list(vector.values()))
        product = np.outer(v, v) * 0.1 ** (i / n)
        rows.append(np.repeat(at_, len(v)).tolist())
        columns.append(np.tile(at_, len(v)).tolist())
        values.append(product.ravel().tolist())
    a = coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(n, n)).tocsr()
    x = np.ones(n)
    zeta = 0.0
    for _ in range(15):
        z, r, p = np.zeros(n), x.copy(), x.copy()
        for _ in range(25):
            q = a @ p
            rho = r @ r
            alpha = rho / (p @ q)
            z += alpha * p
            r -= alpha * q
            p = r + (r @ r) / rho * p
        zeta = shift + 1 / float(x @ z)
        x = z / np.linalg.norm(z)
    return {"zeta": zeta}


def ft_by_numpy() -> dict[str, float]:
    n = 64
    box = uniform(2 * n**3).view(np.complex128).reshape(n, n, n)
    wave = np.fft.fftfreq(n, 1 / n) ** 2
    decay = np.exp(-4e-6 * np.pi**2 * (wave[:, None, None] + wave[None, :, None] + wave[None, None, :]))
    values = np.fft.ifftn(np.fft.fftn(box) * decay**6)
    j = np.arange(1, 1025)
    # The inverse of the report is not scaled, and its sum is divided by the number of points.
    total = values[5 * j % n, 3 * j % n, j % n].sum()
    return {"checksum_real": float(total.real), "checksum_imaginary": float(total.imag)}


def around(a: Floats, weights: tuple[float, float, float, float]) -> Floats:
    """Return sums over the 27 points around each point, weighted by the number of axes along which they differ."""
    sums = np.zeros_like(a)
    for dz in (-1, 0, 1):
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                weight = weights[abs(dz) + abs(dy) + abs(dx)]
                sums += weight * np.roll(a, (dz, dy, dx), (0, 1, 2))
    return sums


def finer(a: Floats) -> Floats:
    """Return the grid with twice as many points per axis: each value, and means between neighbours."""
    for axis in range(3):
        parts = np.stack([(a + np.roll(a, 1, axis)) / 2, a], axis + 1)
        a = parts.reshape([2 * e if i == axis else e for i, e in enumerate(a.shape)])
    return a


def mg_by_numpy() -> dict[str, float]:
    n = 32
    order = np.argsort(report_random(n**3, 314159265))
    v = np.zeros(n**3)
    v[order[:10]], v[order[-10:]] = -1, 1
    box = v.reshape(n, n, n)

    def operator(u: Floats) -> Floats:
        return around(u, (-8 / 3, 0, 1 / 6, 1 / 12))

    def smoothed(r: Floats) -> Floats:
        return around(r, (-3 / 8, 1 / 32, -1 / 64, 0))

    def cycle(r: Floats) -> Floats:
        if len(r) == 2:
            return smoothed(r)
        coarse = around(r, (1 / 2, 1 / 4, 1 / 8, 1 / 16))[1::2, 1::2, 1::2]
        z = finer(cycle(coarse))
        return z + smoothed(r - operator(z))

    u = np.zeros_like(box)
    for _ in range(4):
        u = u + cycle(box - operator(u))
    return {"residual_norm": float(np.sqrt(np.mean((box - operator(u)) ** 2)))}


SECOND_WAYS: dict[str, Callable[[], dict[str, float]]] = {
    "ep": ep_by_numpy,
    "cg": cg_by_numpy,
    "ft": ft_by_numpy,
    "mg": mg_by_numpy,
}


@pytest.mark.parametrize("kernel", sorted(SECOND_WAYS))
def test_a_second_way_finds_the_same(kernel: str) -> None:
    conditions = class_s(needed().kind, 2)[kernel, "elapsed"]["conditions"]
    expected = SECOND_WAYS[kernel]()
    # The residual of mg is a small difference of larger numbers.
    tolerance = 1e-10 if kernel == "mg" else 1e-12
    assert {name: conditions[name] for name in expected} == pytest.approx(expected, rel=tolerance, abs=0)


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("ranks", [slow(1), 2, slow(3), slow(4)])
@pytest.mark.parametrize("kind", installed())
def test_all_are_verified_and_tell_three_metrics(kind: str, ranks: int) -> None:
    results = class_s(kind, ranks)
    kernels = [k for k in KERNELS if k != "mg" or ranks != 3]
    metrics = ("elapsed", "operation_rate", "communication_share")
    assert set(results) == {(k, m) for k in kernels for m in metrics}
    for kernel in kernels:
        elapsed, rate, share = (results[kernel, m] for m in metrics)
        assert elapsed["conditions"]["class"] == "S" and elapsed["conditions"]["ranks"] == ranks
        # The clock is read for a block and then for the solution in it; an interruption of a rank between the two
        # lengthens only the block.
        operations = min(e * r for e, r in zip(elapsed["samples"], rate["samples"], strict=True))
        assert operations == pytest.approx(OPERATIONS[kernel], rel=0.02)
        assert all(0 <= s <= 1 for s in share["samples"])
        assert ranks > 1 or share["value"] < 0.02, "one rank does not communicate"
        assert ("oversubscribed" in elapsed["flags"]) == (ranks > CPUS)


# The operation counts of the programs of the report for class S.
OPERATIONS = {
    "ep": 2.0**25,
    "cg": 2 * 15 * 1400 * (3 + 56 + 25 * (5 + 56) + 3),
    "is": 10 * 65536,
    "ft": 2**18 * (14.8157 + 7.19641 * math.log(2**18) + 6 * (5.23518 + 7.21113 * math.log(2**18))),
    "mg": 58 * 4 * 32**3,
    "lu": 50 * (1984.77 * 12**3 - 10923.3 * 12**2 + 27770.9 * 12 - 144010),
    "bt": 60 * (3478.8 * 12**3 - 17655.7 * 12**2 + 28023.7 * 12),
    "sp": 100 * (881.174 * 12**3 - 4683.91 * 12**2 + 11484.5 * 12 - 19272.4),
}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_class_w_is_verified(kernel: str) -> None:
    completed, lines = npb(needed().kind, min(2, CPUS), "--kernel", kernel, "--class", "W")
    assert completed.returncode == 0, completed.stderr
    assert results(lines)[kernel, "elapsed"]["conditions"]["class"] == "W"


# With two ranks, the rows of lu pass from thread to thread and from rank to rank. Seven threads share ten planes.
@pytest.mark.parametrize(
    ("ranks", "threads"), [slow(2, 1), slow(3, 1), slow(4, 1), (1, 2), slow(2, 2), slow(1, 7), slow(2, 3), slow(3, 2)]
)
def test_the_number_of_ranks_and_threads_changes_no_digit_that_counts(ranks: int, threads: int) -> None:
    kind = needed().kind
    alone, parallel = class_s(kind, 1), class_s(kind, ranks, threads)
    assert len(parallel) == 3 * (len(KERNELS) - (ranks == 3)), "all kernels are verified"
    assert {r["conditions"]["threads"] for r in parallel.values()} == {threads}
    assert {"oversubscribed" in r["flags"] for r in parallel.values()} == {ranks * threads > CPUS}
    for kernel in ("ep", "cg", "ft", "mg"):
        if (kernel, "elapsed") not in parallel:
            continue
        single, shared = alone[kernel, "elapsed"]["conditions"], parallel[kernel, "elapsed"]["conditions"]
        names = ["sum_x", "sum_y", "deviates", "zeta", "checksum_real", "checksum_imaginary"]
        numbers = {name: single[name] for name in names if name in single}
        assert numbers == pytest.approx({name: shared[name] for name in numbers}, rel=1e-11)
    for kernel in ("lu", "bt", "sp"):
        single, shared = alone[kernel, "elapsed"]["conditions"], parallel[kernel, "elapsed"]["conditions"]
        norms = {name: n for name, n in single.items() if name.startswith(("residual_", "error_"))}
        assert len(norms) == 2 * 5  # the residual is a small difference of larger numbers
        assert norms == pytest.approx({name: shared[name] for name in norms}, rel=1e-9)


def test_more_ranks_than_pairs_of_planes_are_refused() -> None:
    kind = needed().kind
    completed, lines = npb(kind, 7, "--kernel", "lu,bt,sp")
    assert completed.returncode != 0
    errors = [line for line in lines if line["type"] == "error"]
    assert [e["field"] for e in errors] == ["ranks"] and errors[0]["allowed"] == "1 to 6"


def test_what_was_asked_for_and_does_not_fit_is_refused_in_one_line() -> None:
    for kind in installed():
        completed, lines = npb(kind, 3, "--kernel", "cg,mg")
        assert completed.returncode != 0
        errors = [line for line in lines if line["type"] == "error"]
        assert [e["field"] for e in errors] == ["ranks"]
        assert "found 3" in errors[0]["message"] and "mg" in errors[0]["message"]
        assert errors[0]["allowed"] == "powers of two to 512"
        assert not [line for line in lines if line["type"] == "result"], "nothing was measured before"
        assert completed.stderr.count("meshmark-comm: error") == 1


@pytest.mark.slow
def test_of_all_one_that_does_not_fit_is_absent_and_says_which_numbers_do() -> None:
    kind = needed().kind
    _, lines = npb(kind, 3, "--kernel", "all")
    absences = [line for line in lines if line["type"] == "absent"]
    assert [a["conditions"]["kernel"] for a in absences] == ["mg"]
    assert "3 ranks do not fit" in absences[0]["reason"] and "powers of two to 512" in absences[0]["enable"]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        slow(["--kernel", "dc"], "kernel"),
        (["--class", "D"], "class"),
        slow(["--fft", "mkl"], "fft"),
        slow(["--threads", "0"], "threads"),
        slow(["--threads", "1,2"], "threads"),
        (["--threads", "11", "--kernel", "lu"], "threads"),
    ],
)
def test_a_wrong_word_names_its_field(words: list[str], field: str) -> None:
    _, lines = npb(needed().kind, 1, *words)
    assert [line["field"] for line in lines if line["type"] == "error"] == [field]


@pytest.mark.slow
def test_fftw_finds_the_same_or_says_that_it_is_not_here() -> None:
    kind = needed().kind
    completed, lines = npb(kind, 2, "--kernel", "ft", "--fft", "fftw")
    if completed.returncode != 0:
        assert [line["reason"] for line in lines if line["type"] == "absent"]
        assert "libfftw3" in completed.stdout
        return
    fftw_conditions, own_conditions = (
        results(lines)["ft", "elapsed"]["conditions"],
        class_s(kind, 2)["ft", "elapsed"]["conditions"],
    )
    assert fftw_conditions["fft"].startswith("fftw-3") and own_conditions["fft"] == "own"
    assert fftw_conditions["checksum_real"] == pytest.approx(own_conditions["checksum_real"], rel=1e-12)


# ---------------------------------------------------------------- wrong results

# Sums of doubles are slightly too large, and the first number of each all-to-all message is wrong.
SPOILER = r"""
#include <mpi.h>
int MPI_Allreduce(const void* out, void* in, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const int status = PMPI_Allreduce(out, in, n, type, op, comm);
  if (type == MPI_DOUBLE && op == MPI_SUM && n > 0) ((double*)in)[0] *= 1 + 1e-6;
  return status;
}
int MPI_Alltoallv(const void* out, const int* give, const int* give_at, MPI_Datatype out_type, void* in,
                  const int* take, const int* take_at, MPI_Datatype in_type, MPI_Comm comm) {
  const int status = PMPI_Alltoallv(out, give, give_at, out_type, in, take, take_at, in_type, comm);
  if (in_type == MPI_INT && take[0] > 0) ((int*)in)[0] ^= 1;
  return status;
}
"""


@pytest.fixture(scope="module", params=installed())
def spoiler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    kind: str = request.param
    compiler = shutil.which(f"mpicc.{kind}")
    if compiler is None:
        pytest.skip(f"mpicc.{kind} is not installed")
    folder = tmp_path_factory.mktemp("spoiler")
    source, library = folder / "spoiler.c", folder / "spoiler.so"
    source.write_text(SPOILER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
    return kind, library


def test_a_wrong_result_is_absent_with_what_was_expected_and_what_came(spoiler: tuple[str, Path]) -> None:
    kind, library = spoiler
    completed, lines = npb(kind, 2, more={"LD_PRELOAD": str(library)})
    assert not [line for line in lines if line["type"] == "result"], "no number of what is not verified"
    absences = {line["conditions"]["kernel"]: line["reason"] for line in lines if line["type"] == "absent"}
    assert set(absences) == set(KERNELS), completed.stderr
    for reason in absences.values():
        assert "expected" in reason and "got" in reason
    assert "zeta: expected 8.5971775078648" in absences["cg"]
    assert "norm of the residual: expected 5.307707005734e-05" in absences["mg"]
    assert "checksum 1, real part" in absences["ft"]
    assert "key" in absences["is"]
    assert "residual of density: expected 0.0161963432109767" in absences["lu"]
    assert "residual of density: expected 0.170342837095413" in absences["bt"]
    assert "residual of density: expected 0.0274703154513395" in absences["sp"]
