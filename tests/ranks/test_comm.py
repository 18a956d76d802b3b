"""`meshmark-comm` with two and four ranks on any CPUs, with each MPI library.

The tests check relations only, what it refuses, and what a build without a library lacks."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from meshmark.describe import find_comm
from meshmark.measure.runs import launch
from support.applications_here import needs_applications
from support.comm_runs import CPUS, SHORT, Line, comm, kinds, measured, of, slow, started_by
from support.mpi_here import installed, needed
from support.paths import ROOT

pytestmark = pytest.mark.skipif(not installed(), reason="no MPI library is installed")


def protocols() -> list[str]:
    completed = subprocess.run([str(find_comm()), "halo", "--describe"], capture_output=True, timeout=120, check=True)
    parameter = next(p for p in json.loads(completed.stdout)["parameters"] if p["name"] == "protocol")["choices"]
    return [name for name in parameter if name not in {"all", "mpi", "shmem", "caf"}]


# ------------------------------------------------------------------ every paradigm


@pytest.mark.parametrize(
    ("ranks", "dimensions", "grid", "words", "kind"),
    [
        (2, 2, "2x1", (7, 1000), "openmpi"),
        (2, 2, "2x1", (7, 1000), "mpich"),
        (4, 2, "2x2", (7,), "openmpi"),
        slow(4, 2, "2x2", (7,), "mpich"),  # its waiting ranks do not yield: half a minute on two CPUs
        (1, 1, "1", (7,), "openmpi"),
        (1, 1, "1", (7,), "mpich"),
        *(
            slow(*case, kind)
            for kind in ("openmpi", "mpich")
            for case in (
                (4, 2, "2x2", (1, 1000)),
                (3, 2, "3x1", (7, 1000)),
                (3, 1, "3", (7, 1000)),
                (4, 3, "2x2x1", (7, 1000)),
                (1, 3, "1x1x1", (7,)),
            )
        ),
    ],
)
def test_every_protocol_transfers_the_right_data(
    ranks: int, dimensions: int, grid: str, words: tuple[int, ...], kind: str
) -> None:
    sizes = ("--words", ",".join(map(str, words)), "--dimensions", str(dimensions))
    lines = measured(kind, ranks, "halo", *sizes, *SHORT)
    assert [line["type"] for line in lines].count("header") == 1 and lines[0]["type"] == "header"
    assert len(lines[0]["processes"]) == ranks
    results = of(lines, "result", "exchange_time")
    missing = of(lines, "absent")
    for line in missing:  # a library lacks these; they are never wrong results
        assert re.search("this build has no|older than MPI 4|ompi#14416", line["reason"]), line
    assert {(r["conditions"]["protocol"], r["conditions"]["words"]) for r in results} == {
        (p, n) for p in protocols() for n in words
    } - {(line["conditions"]["protocol"], n) for line in missing for n in words}
    for r in results:
        c = r["conditions"]
        assert r["value"] > 0 and (c["grid"], c["ranks"], c["mpi"], c["hosts"]) == (grid, ranks, kind, 1)
        assert ("oversubscribed" in r["flags"]) == (ranks > CPUS)
        assert len(c["rank_cpus"].split(",")) == ranks
        assert c["transport"] == ("none" if ranks == 1 else "shared memory")
        assert c["thread_level"] == "single"  # above it, Open MPI uses locks
        assert c["fastest_rank"] <= c["slowest_rank"]
    bandwidth = {
        (r["conditions"]["protocol"], r["conditions"]["words"]): r for r in of(lines, "result", "bandwidth_net")
    }
    for r in results:
        c = r["conditions"]
        rates = sorted(8 * c["words"] * 2 * dimensions * ranks / s for s in r["samples"])
        assert sorted(bandwidth[c["protocol"], c["words"]]["samples"]) == pytest.approx(rates)


@kinds
@pytest.mark.slow
def test_a_short_budget_is_short(kind: str) -> None:
    words = started_by(kind, 2)
    start_s = time.monotonic()
    completed = subprocess.run(
        [*words, "halo", "--budget", "1s", "--words", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=launch.environment(kind),
    )
    assert completed.returncode == 0, completed.stderr
    assert time.monotonic() - start_s < 100  # seconds on an idle machine


@kinds
@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("halo", "--words", "8"), pytest.param(("pop",), marks=needs_applications)], ids=" ".join
)
def test_a_budget_shorter_than_the_proofs_still_yields_a_result(kind: str, words: tuple[str, ...]) -> None:
    """Ranks that share CPUs take turns; the proofs come first, and must still leave time for a sample."""
    lines = measured(kind, 2 * CPUS, *words, "--protocol", "mpi", "--budget", "100ms")
    assert of(lines, "result")


def by_size(lines: list[Line], metric: str, **only: Any) -> dict[int, Line]:
    return {
        r["conditions"]["message_bytes"]: r
        for r in of(lines, "result", metric)
        if all(r["conditions"].get(k) == v for k, v in only.items())
    }


def grows(few: Line, many: Line) -> bool:
    """Return whether the longer message takes longer; on a busy machine either may have waited."""
    return few["value"] < many["value"] or not {"disturbed", "oversubscribed"}.isdisjoint(few["flags"] + many["flags"])


@kinds
@pytest.mark.parametrize("ranks", [2, slow(4)])
def test_messages(kind: str, ranks: int) -> None:
    lines = measured(kind, ranks, "pingpong", "--bytes", "0,8,13,1MiB", "--partner", "all", *SHORT)
    assert not of(lines, "absent"), of(lines, "absent")
    for target in range(1, ranks):
        for method in ("send", "put", "get"):
            times = by_size(lines, "message_latency", protocol=method, to_rank=target)
            assert set(times) == {8, 13, 1 << 20} | ({0} if method == "send" else set())
            assert grows(times[8], times[1 << 20])


@kinds
@pytest.mark.parametrize("ranks", [2, slow(4)])
@pytest.mark.parametrize(
    ("operation", "algorithms"),
    [
        slow("barrier", {"library"}),
        slow("bcast", {"library"}),
        slow("reduce", {"library"}),
        slow("alltoall", {"library", "pairs"}),
        slow("exchange", {"library"}),
        ("allreduce", {"library", "recursive_doubling", "tree", "one_sided"}),
    ],
)
def test_collectives(kind: str, ranks: int, operation: str, algorithms: set[str]) -> None:
    sizes = () if operation == "barrier" else ("--bytes", "8,256KiB")
    lines = measured(kind, ranks, operation, *sizes, *SHORT)
    assert not of(lines, "absent")
    assert {r["conditions"]["algorithm"] for r in of(lines, "result", "collective_time")} == algorithms
    if sizes:
        for a in algorithms - {"pairs"}:
            times = by_size(lines, "collective_time", algorithm=a)
            assert set(times) == {8, 1 << 18} and grows(times[8], times[1 << 18])
    shares = of(lines, "result", "bisection_share")
    assert len(shares) == (2 if operation == "alltoall" else 0) and all(r["value"] > 0 for r in shares)


@kinds
@pytest.mark.slow
def test_swaps_alone_and_together_and_what_that_costs(kind: str) -> None:
    lines = measured(kind, 4, "swap", "--bytes", "8,64KiB", "--pairs", "all", *SHORT)
    pairs = {
        (r["conditions"]["from_rank"], r["conditions"]["to_rank"])
        for r in of(lines, "result", "exchange_time")
        if r["conditions"]["mode"] == "alone"
    }
    assert pairs == {(a, b) for a in range(4) for b in range(a + 1, 4)}
    for r in of(lines, "result", "contention"):
        c = r["conditions"]
        in_order = [
            x
            for x in of(lines, "result", "exchange_time")
            if (x["conditions"]["distance"], x["conditions"]["message_bytes"]) == (c["distance"], c["message_bytes"])
        ]
        alone = [
            x["value"]
            for x in in_order
            if x["conditions"]["mode"] == "alone" and x["conditions"]["from_rank"] // c["distance"] % 2 == 0
        ]
        together = next(x["value"] for x in in_order if x["conditions"]["mode"] == "together")
        assert len(alone) == c["pairs_at_once"] and r["value"] == pytest.approx(together / max(alone))
    assert len(of(lines, "result", "contention")) == 4  # distances 1 and 2; with 3 there is only one pair


@kinds
def test_samples_state_when_they_began(kind: str) -> None:
    before = time.monotonic()
    lines = measured(kind, 2, "halo", "--words", "8", "--protocol", "sendrecv,shared", *SHORT)
    after = time.monotonic()
    for point in (0, 1):
        start_times = [line["begun_s"] for line in of(lines, "sample") if line["point"] == point]
        assert (
            start_times and start_times == sorted(start_times) and before < start_times[0] and start_times[-1] < after
        )


# ------------------------------------------------------------------ what is refused


@kinds
@pytest.mark.parametrize(
    ("ranks", "words", "status", "says"),
    [
        (2, ("halo", "--protocol", "pigeon"), 2, r"protocol: found 'pigeon'; allowed: all, mpi, "),
        slow(2, ("halo", "--dimensions", "4"), 2, r"dimensions: "),
        (2, ("halo", "--ranks", "3"), 2, r"ranks: found 2, which the launcher started; allowed: 3"),
        (2, ("halo", "--words", "0"), 2, r"words: found '0'; allowed: 1 to \d+"),
        slow(2, ("halo", "--words", "x"), 2, r"words: found 'x'; allowed: "),
        slow(2, ("pingpong", "--partner", "2"), 2, r"partner: found 2; allowed: 1 to 1"),
        slow(2, ("swap", "--distance", "5"), 2, r"distance: found 5; allowed: 1 to 1"),
        slow(2, ("allreduce", "--bytes", "12"), 2, r"bytes: found '12'; allowed: multiples of 8 B"),
        slow(2, ("tango",), 2, r"instrument: found 'tango'"),
        (1, ("pingpong",), 77, r"absent: needs at least 2 ranks, found 1"),
        slow(1, ("barrier",), 77, r"absent: needs at least 2 ranks, found 1"),
    ],
)
def test_errors_are_reported_once(kind: str, ranks: int, words: tuple[str, ...], status: int, says: str) -> None:
    refused_status, _lines, output = comm(kind, ranks, *words, "--budget", "1s")
    messages = [line for line in output.splitlines() if line.startswith("meshmark-comm: ")]
    assert refused_status == status and len(messages) == 1 and re.search(says, messages[0]), output


@kinds
@pytest.mark.slow
def test_the_wrong_library_is_refused(kind: str) -> None:
    other = "mpich" if kind == "openmpi" else "openmpi"
    status, _lines, messages = comm(kind, 2, "barrier", "--mpi", other)
    assert status == 2 and f"mpi: found {kind}, whose launcher started this; allowed: {other}" in messages


@kinds
@pytest.mark.slow
def test_what_exceeds_memory_is_absent_and_the_rest_is_measured(kind: str) -> None:
    words = 1 << 24
    needed = 2 * 16 * 6 * 8 * words  # two ranks, rows of six sides with a stride, in and out
    with Path("/proc/meminfo").open() as info:
        available_kib = next(int(line.split()[1]) for line in info if line.startswith("MemAvailable")) * 1024
    if available_kib * 0.9 > needed:
        pytest.skip("this machine has memory for all that may be asked for")
    arguments = ("--protocol", "datatype,sendrecv", "--dimensions", "3", "--words", f"8,{words}")
    lines = measured(kind, 2, "halo", *arguments, *SHORT)
    absences = [line for line in of(lines, "absent") if line["conditions"]["protocol"] == "datatype"]
    assert [line["conditions"]["words"] for line in absences] == [words]
    assert re.search(r"words 16777216: needs \d+ MiB on each rank, available are \d+", absences[0]["reason"])
    assert {r["conditions"]["protocol"] for r in of(lines, "result") if r["conditions"]["words"] == 8} == {
        "datatype",
        "sendrecv",
    }


# ------------------------------------------------------------------ builds that lack something


@pytest.mark.slow
@pytest.mark.parametrize("lacks", ["MPI", "OpenSHMEM and Fortran"])
def test_a_build_without_a_library_reports_what_it_lacks(lacks: str, tmp_path: Path) -> None:
    hides = tmp_path / "pkg-config"
    hides.write_text(
        '#!/bin/sh\nfor word in "$@"; do case "$word" in\n'
        f'  caf-*{"|ompi-c*|mpich*" if lacks == "MPI" else ""}) exit 1;;\nesac; done\nexec pkg-config "$@"\n'
    )
    hides.chmod(0o755)
    build = tmp_path / "build"
    without = (
        ["-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"]
        if lacks == "MPI"
        else ["-DCMAKE_Fortran_COMPILER=NOTFOUND", "-DMM_OSHMEM=OFF"]
    )
    targets = ["meshmark-comm"] if lacks == "MPI" else ["meshmark-comm", "meshmark-comm-openmpi"]
    if lacks != "MPI":
        needed("openmpi")
    subprocess.run(
        [
            "cmake",
            "-S",
            str(ROOT),
            "-B",
            str(build),
            "-G",
            "Ninja",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DMM_TESTS=OFF",
            f"-DPKG_CONFIG_EXECUTABLE={hides}",
            *without,
        ],
        check=True,
        timeout=300,
        capture_output=True,
    )
    subprocess.run(
        ["cmake", "--build", str(build), "--target", *targets], check=True, timeout=1200, capture_output=True
    )
    program = build / "bin" / "meshmark-comm"
    if lacks == "MPI":
        completed = subprocess.run([program, "halo"], capture_output=True, text=True, timeout=60, check=False)
        assert completed.returncode == 77
        assert completed.stderr == "meshmark-comm: absent: no program for any MPI library; installed: none\n"
        return
    line = started_by("openmpi", 2)
    line[-1] = str(program)
    line += ["halo", "--words", "8", "--budget", "1s"]
    env = launch.environment("openmpi")
    completed = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert completed.returncode == 0, completed.stderr
    lines = [json.loads(text) for text in completed.stdout.splitlines()]
    assert {r["conditions"]["paradigm"] for r in of(lines, "result")} == {"mpi"}
    assert {(a["conditions"]["protocol"], a["reason"]) for a in of(lines, "absent")} >= {
        ("shmem_put", "shmem_put: this build has no OpenSHMEM"),
        ("caf_sync", "caf_sync: this build has no co-arrays"),
        ("caf_events", "caf_events: this build has no co-arrays"),
    }
