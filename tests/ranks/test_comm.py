"""Ranks for real, two and four on whatever CPUs there are, under each MPI library: relations only, and faults."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.describe import find_comm
from meshmark.measure import launch
from meshmark.measure.plan import Step
from meshmark.measure.runner import Runner, StepResult
from support.mpi_here import has_coarrays, has_openshmem, installed, needed
from support.paths import ROOT
from support.waiting import alive, until

CPUS = len(os.sched_getaffinity(0))
SOURCE = ROOT
pytestmark = pytest.mark.skipif(not installed(), reason="no MPI library is installed")
# As few blocks as make an interval; the budget is for a machine on which others work.
# Each point ends with its least samples: a budget that is not needed is not used, and busy CPUs need it.
SHORT = ("--interval", "100", "--budget", "60s")
kinds = pytest.mark.parametrize("kind", ["openmpi", "mpich"])
Line = dict[str, Any]


def slow(*values: Any) -> Any:
    """A case that only `make check-all` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def started_by(kind: str, ranks: int, *more: str) -> list[str]:
    return launch.launch_argv(needed(kind), ranks, CPUS, more)


def comm(kind: str, ranks: int, *words: str, more: Sequence[str] = ()) -> tuple[int, list[Line], str]:
    """Status, lines and talk of ranks that were started."""
    done = subprocess.run(
        [*started_by(kind, ranks, *more), *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
        env=launch.environment(kind),
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def measured(kind: str, ranks: int, *words: str, more: Sequence[str] = ()) -> list[Line]:
    status, lines, talk = comm(kind, ranks, *words, more=more)
    assert status == 0 and lines[-1]["type"] == "end" and lines[-1]["status"] == "ok", talk
    return lines


def of(lines: list[Line], kind: str, metric: str = "") -> list[Line]:
    return [line for line in lines if line["type"] == kind and metric in ("", line.get("metric"))]


def protocols() -> list[str]:
    done = subprocess.run([str(find_comm()), "halo", "--describe"], capture_output=True, timeout=30, check=True)
    found = next(p for p in json.loads(done.stdout)["parameters"] if p["name"] == "protocol")["choices"]
    return [name for name in found if name not in {"all", "mpi", "shmem", "caf"}]


# ------------------------------------------------------------------ every paradigm


@kinds
@pytest.mark.parametrize(
    ("ranks", "dimensions", "grid", "words"),
    [
        (2, 2, "2x1", (7, 1000)),
        (4, 2, "2x2", (7,)),
        slow(4, 2, "2x2", (1, 1000)),
        slow(3, 2, "3x1", (7, 1000)),
        slow(3, 1, "3", (7, 1000)),
        slow(4, 3, "2x2x1", (7, 1000)),
        slow(1, 3, "1x1x1", (7,)),
        (1, 1, "1", (7,)),
    ],
)
def test_every_protocol_brings_the_right_data(
    kind: str, ranks: int, dimensions: int, grid: str, words: tuple[int, ...]
) -> None:
    sizes = ("--words", ",".join(map(str, words)), "--dimensions", str(dimensions))
    lines = measured(kind, ranks, "halo", *sizes, *SHORT)
    assert [line["type"] for line in lines].count("header") == 1 and lines[0]["type"] == "header"
    assert len(lines[0]["processes"]) == ranks
    found = of(lines, "result", "exchange_time")
    missing = of(lines, "absent")
    for line in missing:  # what a library lacks; never what it got wrong
        assert re.search("this build has no|older than MPI 4|ompi#14416", line["reason"]), line
    assert {(r["conditions"]["protocol"], r["conditions"]["words"]) for r in found} == {
        (p, n) for p in protocols() for n in words
    } - {(line["conditions"]["protocol"], n) for line in missing for n in words}
    for r in found:
        c = r["conditions"]
        assert r["value"] > 0 and (c["grid"], c["ranks"], c["mpi"], c["hosts"]) == (grid, ranks, kind, 1)
        assert ("oversubscribed" in r["flags"]) == (ranks > CPUS)
        assert len(c["rank_cpus"].split(",")) == ranks
        assert c["transport"] == ("none" if ranks == 1 else "shared memory")
        assert c["thread_level"] == "single"  # above it Open MPI takes its locks
        assert c["fastest_rank"] <= c["slowest_rank"]
    bandwidth = {
        (r["conditions"]["protocol"], r["conditions"]["words"]): r for r in of(lines, "result", "bandwidth_net")
    }
    for r in found:
        c = r["conditions"]
        rates = sorted(8 * c["words"] * 2 * dimensions * ranks / s for s in r["samples"])
        assert sorted(bandwidth[c["protocol"], c["words"]]["samples"]) == pytest.approx(rates)


@kinds
@pytest.mark.slow
def test_a_short_budget_is_short(kind: str) -> None:
    words = started_by(kind, 2)
    began = time.monotonic()
    done = subprocess.run(
        [*words, "halo", "--budget", "1s", "--words", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=launch.environment(kind),
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 100  # seconds where nobody else wants the CPUs


@kinds
@pytest.mark.slow
@pytest.mark.parametrize("words", [("halo", "--words", "8"), ("pop",)], ids=" ".join)
def test_a_budget_that_proofs_outlast_still_brings_a_number(kind: str, words: tuple[str, ...]) -> None:
    """More ranks than CPUs take turns, and what is proven first of all has to be timed before it is too late for it."""
    lines = measured(kind, 2 * CPUS, *words, "--protocol", "mpi", "--budget", "100ms")
    assert of(lines, "result")


def by_size(lines: list[Line], metric: str, **only: Any) -> dict[int, Line]:
    return {
        r["conditions"]["message_bytes"]: r
        for r in of(lines, "result", metric)
        if all(r["conditions"].get(k) == v for k, v in only.items())
    }


def grows(few: Line, many: Line) -> bool:
    """… or somebody else wanted the CPUs: then either may have waited."""
    return few["value"] < many["value"] or not {"noisy", "oversubscribed"}.isdisjoint(few["flags"] + many["flags"])


@kinds
@pytest.mark.parametrize("ranks", [2, slow(4)])
def test_messages(kind: str, ranks: int) -> None:
    patient = ("--budget", "40s") if ranks > CPUS else ()  # a message between ranks that take turns: 30 ms
    lines = measured(
        kind, ranks, "pingpong", "--bytes", "0,8,13,1MiB", "--partner", "all", *SHORT[:2], *(patient or SHORT[2:])
    )
    assert not of(lines, "absent"), of(lines, "absent")
    for to in range(1, ranks):
        for how in ("send", "put", "get"):
            times = by_size(lines, "message_latency", protocol=how, to_rank=to)
            assert set(times) == {8, 13, 1 << 20} | ({0} if how == "send" else set())
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
        same = [
            x
            for x in of(lines, "result", "exchange_time")
            if (x["conditions"]["distance"], x["conditions"]["message_bytes"]) == (c["distance"], c["message_bytes"])
        ]
        alone = [
            x["value"]
            for x in same
            if x["conditions"]["mode"] == "alone" and x["conditions"]["from_rank"] // c["distance"] % 2 == 0
        ]
        together = next(x["value"] for x in same if x["conditions"]["mode"] == "together")
        assert len(alone) == c["pairs_at_once"] and r["value"] == pytest.approx(together / max(alone))
    assert len(of(lines, "result", "contention")) == 4  # distances 1 and 2; at 3 there is one pair


@kinds
def test_samples_tell_when_they_began(kind: str) -> None:
    before = time.monotonic()
    lines = measured(kind, 2, "halo", "--words", "8", "--protocol", "sendrecv,shared", "--budget", "1s")
    after = time.monotonic()
    for point in (0, 1):
        begun = [line["begun_s"] for line in of(lines, "sample") if line["point"] == point]
        assert len(begun) >= 7 and begun == sorted(begun) and before < begun[0] and begun[-1] < after


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
def test_what_is_wrong_is_said_once(kind: str, ranks: int, words: tuple[str, ...], status: int, says: str) -> None:
    got, _lines, talk = comm(kind, ranks, *words, "--budget", "1s")
    said = [line for line in talk.splitlines() if line.startswith("meshmark-comm: ")]
    assert got == status and len(said) == 1 and re.search(says, said[0]), talk


@kinds
@pytest.mark.slow
def test_the_wrong_library_is_refused(kind: str) -> None:
    other = "mpich" if kind == "openmpi" else "openmpi"
    status, _lines, talk = comm(kind, 2, "barrier", "--mpi", other)
    assert status == 2 and f"mpi: found {kind}, whose launcher started this; allowed: {other}" in talk


@kinds
@pytest.mark.slow
def test_what_memory_does_not_hold_is_absent_and_the_rest_goes_on(kind: str) -> None:
    words = 1 << 24
    needed = 2 * 16 * 6 * 8 * words  # two ranks, rows of six sides with a stride, in and out
    with Path("/proc/meminfo").open() as info:
        there = next(int(line.split()[1]) for line in info if line.startswith("MemAvailable")) * 1024
    if there * 0.9 > needed:
        pytest.skip("this machine has memory for all that may be asked for")
    asked = ("--protocol", "datatype,sendrecv", "--dimensions", "3", "--words", f"8,{words}")
    lines = measured(kind, 2, "halo", *asked, "--interval", "100", "--budget", "20s")
    gone = [line for line in of(lines, "absent") if line["conditions"]["protocol"] == "datatype"]
    assert [line["conditions"]["words"] for line in gone] == [words]
    assert re.search(r"words 16777216: needs \d+ MiB on each rank, available are \d+", gone[0]["reason"])
    assert {r["conditions"]["protocol"] for r in of(lines, "result") if r["conditions"]["words"] == 8} == {
        "datatype",
        "sendrecv",
    }


# ------------------------------------------------------------------ wrong data, failures of one rank

SPOILER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* On one rank, from one call on: a bit is flipped, or what was there before is left there. */
static long calls = 0;
static int now(const char *call) {
  const char *wanted = getenv("SPOIL");
  int rank = -1;
  if (!wanted || strcmp(wanted, call)) return 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank == atoi(getenv("SPOIL_RANK")) && calls++ >= atol(getenv("SPOIL_FROM"));
}
static void *kept = NULL;
static size_t kept_bytes = 0;
static void before(const void *buffer, int count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  kept_bytes = (size_t)size * (size_t)count;
  kept = realloc(kept, kept_bytes + 1);
  memcpy(kept, buffer, kept_bytes);
}
static void after(void *buffer) {
  if (getenv("SPOIL_STALE")) memcpy(buffer, kept, kept_bytes);
  else ((char *)buffer)[0] ^= 1;
}

int MPI_Recv(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s) {
  int spoil = (tag == 1 || tag == 6) && now("recv");
  if (spoil) before(b, n, t);
  int r = PMPI_Recv(b, n, t, from, tag, c, s);
  if (spoil) after(b);
  return r;
}
int MPI_Sendrecv(const void *o, int on, MPI_Datatype ot, int to, int otag, void *b, int n, MPI_Datatype t, int from,
                 int tag, MPI_Comm c, MPI_Status *s) {
  int spoil = tag < 6 && now("sendrecv");
  if (spoil) before(b, n, t);
  int r = PMPI_Sendrecv(o, on, ot, to, otag, b, n, t, from, tag, c, s);
  if (spoil) after(b);
  return r;
}
static void *last = NULL;
int MPI_Irecv(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *q) {
  last = b;
  return PMPI_Irecv(b, n, t, from, tag, c, q);
}
int MPI_Recv_init(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *q) {
  last = b;
  return PMPI_Recv_init(b, n, t, from, tag, c, q);
}
int MPI_Waitall(int n, MPI_Request *q, MPI_Status *s) {
  int r = PMPI_Waitall(n, q, s);
  if (last && now("waitall")) ((char *)last)[0] ^= 1;
  return r;
}
int MPI_Neighbor_alltoall(const void *o, int on, MPI_Datatype ot, void *b, int n, MPI_Datatype t, MPI_Comm c) {
  int r = PMPI_Neighbor_alltoall(o, on, ot, b, n, t, c);
  if (now("neighbour")) ((char *)b)[0] ^= 1;
  return r;
}
int MPI_Put(const void *o, int on, MPI_Datatype ot, int to, MPI_Aint at, int n, MPI_Datatype t, MPI_Win w) {
  if (!now("put")) return PMPI_Put(o, on, ot, to, at, n, t, w);
  if (getenv("SPOIL_STALE")) return MPI_SUCCESS;
  int size = 0;
  PMPI_Type_size(ot, &size);
  char *copy = malloc((size_t)size * (size_t)on + 1); /* it lives until the flush */
  memcpy(copy, o, (size_t)size * (size_t)on);
  copy[0] ^= 1;
  return PMPI_Put(copy, on, ot, to, at, n, t, w);
}
int MPI_Get(void *o, int on, MPI_Datatype ot, int to, MPI_Aint at, int n, MPI_Datatype t, MPI_Win w) {
  return now("get") ? MPI_SUCCESS : PMPI_Get(o, on, ot, to, at, n, t, w);
}
int MPI_Allreduce(const void *o, void *b, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
  int r = PMPI_Allreduce(o, b, n, t, op, c);
  if (t == MPI_UINT64_T && op == MPI_SUM && now("allreduce")) ((char *)b)[0] ^= 1;
  return r;
}
int MPI_Bcast(void *b, int n, MPI_Datatype t, int root, MPI_Comm c) {
  int r = PMPI_Bcast(b, n, t, root, c);
  if (t == MPI_BYTE && now("bcast")) ((char *)b)[0] ^= 1;
  return r;
}
int MPI_Alltoall(const void *o, int on, MPI_Datatype ot, void *b, int n, MPI_Datatype t, MPI_Comm c) {
  int r = PMPI_Alltoall(o, on, ot, b, n, t, c);
  if (now("alltoall")) ((char *)b)[0] ^= 1;
  return r;
}
int MPI_Win_allocate(MPI_Aint bytes, int unit, MPI_Info i, MPI_Comm c, void *base, MPI_Win *w) {
  int r = PMPI_Win_allocate(bytes, unit, i, c, base, w);
  return now("win") ? MPI_ERR_NO_MEM : r;
}
int MPI_Dims_create(int n, int d, int *dims) { return now("dims") ? MPI_ERR_DIMS : PMPI_Dims_create(n, d, dims); }
void shmem_put64(void *to, const void *from, size_t n, int pe) {
  void (*put)(void *, const void *, size_t, int) = dlsym(RTLD_NEXT, "shmem_put64");
  if (!now("shmem")) {
    put(to, from, n, pe);
    return;
  }
  uint64_t *copy = malloc(8 * n);
  memcpy(copy, from, 8 * n);
  copy[0] ^= 1;
  put(to, copy, n, pe);
  free(copy);
}
"""


@pytest.fixture(scope="module")
def spoilers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A library for each kind that stands before the MPI library and spoils a call."""
    folder = tmp_path_factory.mktemp("spoil")
    (folder / "spoil.c").write_text(SPOILER)
    made = {}
    for kind in launch.launchers():
        compiler = shutil.which(f"mpicc.{kind}") or shutil.which("mpicc")
        if compiler is None:
            continue
        made[kind] = folder / f"spoil-{kind}.so"
        line = [compiler, "-w", "-shared", "-fPIC", "-O1", str(folder / "spoil.c"), "-o", str(made[kind]), "-ldl"]
        subprocess.run(line, check=True, timeout=120)
    return made


def spoilt(spoilers: dict[str, Path], kind: str, call: str, rank: int, first: int, stale: bool = False) -> list[str]:
    """Words that put the library before those of the ranks."""
    needed(kind)
    if kind not in spoilers:
        pytest.skip(f"{kind} has no compiler wrapper here")
    given = {"LD_PRELOAD": str(spoilers[kind]), "SPOIL": call, "SPOIL_RANK": str(rank), "SPOIL_FROM": str(first)}
    if stale:
        given["SPOIL_STALE"] = "1"
    if kind == "openmpi":
        return [word for name, value in given.items() for word in ("-x", f"{name}={value}")]
    return [word for name, value in given.items() for word in ("-genv", name, value)]


@kinds
# Each of the four untimed exchanges is at most four calls.
@pytest.mark.parametrize("first", [0, 30], ids=["before it is timed", "while it is timed"])
@pytest.mark.parametrize(
    ("call", "stale", "rank", "words", "named"),
    [
        ("sendrecv", False, 1, "halo --protocol sendrecv --words 100", "paradigm mpi, protocol sendrecv, words 100"),
        slow("sendrecv", True, 1, "halo --protocol sendrecv --words 100", "paradigm mpi, protocol sendrecv, words 100"),
        slow("waitall", False, 0, "halo --protocol irecv_isend --words 5", "protocol irecv_isend, words 5"),
        slow(
            "waitall", False, 1, "halo --protocol persistent_irecv_isend --words 9", "persistent_irecv_isend, words 9"
        ),
        slow("neighbour", False, 1, "halo --protocol neighbour --words 64", "protocol neighbour, words 64"),
        ("put", False, 0, "halo --protocol rma_lock_all --words 100", "protocol rma_lock_all, words 100"),
        slow("put", True, 0, "halo --protocol rma_fence --words 100", "protocol rma_fence, words 100"),
        ("shmem", False, 0, "halo --protocol shmem_put --words 100", "paradigm shmem, protocol shmem_put, words 100"),
        slow("recv", False, 1, "pingpong --protocol send --bytes 64KiB", "from_rank 0, to_rank 1, message_bytes 65536"),
        slow(
            "put",
            False,
            0,
            "pingpong --protocol put --bytes 8",
            "put, from_rank 0, to_rank 1, message_bytes 8",
        ),
        slow("get", True, 0, "pingpong --protocol get --bytes 8", "get, from_rank 0, to_rank 1, message_bytes 8"),
        slow("sendrecv", False, 1, "swap --bytes 8", "mode alone, distance 1, from_rank 0, to_rank 1, message_bytes 8"),
        slow("allreduce", False, 1, "allreduce --algorithm library --bytes 64", "algorithm library, message_bytes 64"),
        slow("bcast", False, 1, "bcast --bytes 64", "operation bcast, algorithm library, message_bytes 64"),
        slow("recv", False, 1, "exchange --bytes 64", "operation exchange, algorithm library, message_bytes 64"),
        slow("alltoall", False, 1, "alltoall --bytes 64", "operation alltoall, algorithm library, message_bytes 64"),
    ],
)
def test_wrong_data_are_never_a_number(
    spoilers: dict[str, Path], kind: str, call: str, stale: bool, rank: int, words: str, named: str, first: int
) -> None:
    if call == "shmem" and kind != "openmpi":
        pytest.skip("OpenSHMEM is Open MPI's")
    if call == "shmem" and not has_openshmem():
        pytest.skip("no OpenSHMEM is installed")
    before = spoilt(spoilers, kind, call, rank, first, stale)
    _status, lines, talk = comm(kind, 2, *words.split(), "--interval", "0.01", "--budget", "2s", more=before)
    wrong = [line["reason"] for line in of(lines, "absent")]
    shows = rf"{named}: wrong data: rank [01], [\w ]+, word \d+: expected [0-9a-f]{{16}}, got [0-9a-f]{{16}}$"
    assert len(wrong) == 1 and re.search(shows, wrong[0]), (wrong, talk)
    assert not [r for r in of(lines, "result") if r["conditions"].get("algorithm") != "pairs"]
    assert lines[-1]["type"] == "end"


@kinds
def test_the_spoiler_alone_spoils_nothing(spoilers: dict[str, Path], kind: str) -> None:
    """Else the tests above would prove nothing."""
    lines = measured(
        kind,
        2,
        "halo",
        "--protocol",
        "sendrecv",
        "--words",
        "100",
        "--budget",
        "1s",
        more=spoilt(spoilers, kind, "nothing", 0, 0),
    )
    assert not of(lines, "absent")


@kinds
@pytest.mark.parametrize("rank", [slow(0), 1])
def test_what_one_rank_cannot_have_none_has_and_the_rest_goes_on(
    spoilers: dict[str, Path], kind: str, rank: int
) -> None:
    lines = measured(
        kind,
        2,
        "halo",
        "--protocol",
        "rma_fence,sendrecv,shared",
        "--words",
        "8,64",
        "--budget",
        "1s",
        more=spoilt(spoilers, kind, "win", rank, 0),
    )
    gone = of(lines, "absent")
    assert [(line["conditions"]["protocol"], line["conditions"]["words"]) for line in gone] == [("rma_fence", 8)]
    assert f"rank {rank}: MPI_Win_allocate: " in gone[0]["reason"]
    assert {(r["conditions"]["protocol"], r["conditions"]["words"]) for r in of(lines, "result")} == {
        (p, n) for p in ("sendrecv", "shared") for n in (8, 64)
    }


@kinds
@pytest.mark.parametrize("rank", [0, slow(1)])
def test_a_rank_that_fails_alone_says_so_in_one_line_and_ends_all(
    spoilers: dict[str, Path], kind: str, rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = spoilt(spoilers, kind, "dims", rank, 0)
    plain = launch.launch_argv

    def with_spoiler(with_: launch.Launcher, ranks: int, cpus: int, _more: Sequence[str] = ()) -> list[str]:
        return plain(with_, ranks, cpus, more)

    monkeypatch.setattr(launch, "launch_argv", with_spoiler)
    result = Runner(tmp_path).run_step(Step("s", "halo", ("halo", "--words", "8", "--budget", "2s"), 2, 2, kind))
    assert result.status == "failed"
    assert re.fullmatch(rf"rank {rank}: MPI_Dims_create: .*", result.message), result.message


# ------------------------------------------------------------------ what libraries get wrong


@kinds
def test_co_arrays_and_windows_whose_parts_are_multiples_of_16_bytes_are_brought_whole(kind: str) -> None:
    """On that all our own rely; what becomes of others is the library's, and what the instrument counts."""
    lines = measured(kind, 2, "defects", "--words", "1..64")
    found = of(lines, "result", "wrong_words")
    coarrays = {"caf_scalar", "caf_element", "caf_event"} if has_coarrays(kind) else set()
    assert {r["conditions"]["trial"] for r in found} == {"window"} | coarrays
    even = [r for r in found if r["conditions"]["window_bytes"] % 16 == 0]
    assert len(even) >= 14 and not any(r["value"] for r in even)
    odd = [r for r in found if r["conditions"]["window_bytes"] % 16 and r["conditions"]["trial"] != "window"]
    assert all(r["value"] <= r["conditions"]["sent_words"] for r in odd)


@kinds
def test_events_of_any_number_of_sides_are_not_anothers(kind: str) -> None:
    """In windows of no multiple of 16 bytes ranks took each other's events: some wait for ever."""
    if not has_coarrays(kind):
        pytest.skip(f"no co-arrays over {kind} are installed")
    events = ("--protocol", "caf_events", "--budget", "2s", "--interval")
    for words in (
        ["halo", *events, "1", "--dimensions", "3", "--words", "1"],
        ["swim", *events, "100", "--cells", "16", "--steps", "2000"],
    ):
        lines = comm(kind, 2, *words)[1]
        reasons = [line["reason"] for line in of(lines, "absent")]
        assert not reasons and of(lines, "result") and lines[-1]["status"] == "ok"


# ------------------------------------------------------------------ killed

# One size after the other, each as many blocks as it may have: about two seconds.
LONG = ("swap", "--bytes", "8,16,32,64,128,256,512,1024", "--interval", "0.01", "--budget", "20s")


def journalled(runner: Runner, step: Step, kind: str) -> list[Line]:
    """Whole lines of that type, as they are now."""
    journal = runner.journal(step)
    raw = journal.read_bytes() if journal.exists() else b""
    lines = [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]
    return [line for line in lines if line["type"] == kind]


def shared_files(pid: int) -> set[Path]:
    maps = Path(f"/proc/{pid}/maps").read_text()
    return {Path(name) for name in re.findall(r"(/dev/shm/\S+)", maps) if Path(name).exists()}


def injured(
    runner: Runner, step: Step, injure: Callable[[int, list[int]], None], *, orderly: bool = True
) -> tuple[StepResult, list[Line]]:
    """How a step went to whose launcher and ranks something was done after the first point; the ranks. None is left,
    nor any memory that they shared (which `orderly` launchers see to), but what was measured."""
    found: list[StepResult] = []
    thread = threading.Thread(target=lambda: found.append(runner.run_step(step)))
    thread.start()
    assert until(lambda: journalled(runner, step, "point") or not thread.is_alive())
    ranks: list[Line] = journalled(runner, step, "header")[0]["processes"]
    pids = [p["pid"] for p in ranks]
    files = set().union(*map(shared_files, pids))
    children = Path(f"/proc/self/task/{thread.native_id}/children")  # others start browsers and guests
    (launcher,) = map(int, children.read_text().split())
    injure(launcher, pids)
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert until(lambda: not any(map(alive, [launcher, *pids])), 10)
    left = [f for f in files if f.exists()]
    for file in left:
        file.unlink()
    assert not (left and orderly), left
    assert 0 < len(journalled(runner, step, "point")) < 8
    return found[0], ranks


@kinds
@pytest.mark.parametrize("victim", [slow(0), 1])
def test_a_killed_rank_is_named_nothing_hangs_and_the_rest_is_measured_later(
    kind: str, victim: int, tmp_path: Path
) -> None:
    started_by(kind, 2)
    runner, step = Runner(tmp_path), Step("s", "swap", LONG, 20, 2, kind)
    result, ranks = injured(runner, step, lambda _launcher, pids: os.kill(pids[victim], signal.SIGKILL))
    assert result.status == "failed"
    assert result.message == f"rank {victim} on {ranks[victim]['host']} died of SIGKILL"
    again = runner.run_step(step)
    assert again.status == "ok", again.message
    assert Counter(line["index"] for line in journalled(runner, step, "point")) == Counter(range(8))
    assert len([r for r in again.reading.records if r.metric == "exchange_time"]) == 8


@kinds
@pytest.mark.slow
@pytest.mark.parametrize("whom", ["a rank", "all ranks", "the launcher and all ranks"])
def test_who_hangs_is_ended_and_the_rest_is_measured_later(kind: str, whom: str, tmp_path: Path) -> None:
    started_by(kind, 2)
    step = Step("s", "swap", LONG, 1, 2, kind)

    def stop(launcher: int, pids: list[int]) -> None:
        for pid in {"a rank": pids[1:], "all ranks": pids}.get(whom, [launcher, *pids]):
            os.kill(pid, signal.SIGSTOP)

    result, _ranks = injured(Runner(tmp_path, silence_s=3), step, stop)
    assert result.status == "failed" and re.fullmatch(r"no output for \d+ s: killed", result.message), result.message
    runner = Runner(tmp_path)
    assert runner.run_step(step).status == "ok"
    assert Counter(line["index"] for line in journalled(runner, step, "point")) == Counter(range(8))


@kinds
@pytest.mark.slow
def test_a_launcher_that_is_killed_is_named_and_takes_its_ranks_along(kind: str, tmp_path: Path) -> None:
    started_by(kind, 2)
    step = Step("s", "swap", LONG, 20, 2, kind)
    result, _ranks = injured(
        Runner(tmp_path), step, lambda launcher, _pids: os.kill(launcher, signal.SIGKILL), orderly=False
    )
    assert (result.status, result.message) == ("failed", "the launcher died of SIGKILL")


@kinds
def test_no_rank_survives_its_launcher(kind: str) -> None:
    files = set(Path("/dev/shm").glob("*"))
    child = subprocess.Popen(
        [*started_by(kind, 2), *LONG], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=launch.environment(kind)
    )
    try:
        assert child.stdout is not None
        pids = [p["pid"] for p in json.loads(child.stdout.readline())["processes"]]
        assert len(pids) == 2 and all(map(alive, pids))
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    child.stdout.close()
    assert until(lambda: not any(map(alive, pids)), 10)
    for left in set(Path("/dev/shm").glob("vader_segment*")) - files:  # nobody was left to do it
        left.unlink()


@kinds
@pytest.mark.slow
def test_a_run_that_was_cut_derives_what_it_lacked_from_what_was_kept(kind: str, tmp_path: Path) -> None:
    words = ("swap", "--bytes", "8", "--distance", "1", "--budget", "1s")
    status, lines, talk = comm(kind, 4, *words)
    assert status == 0, talk
    (whole,) = of(lines, "result", "contention")
    ends = [i for i, line in enumerate(lines) if line["type"] == "point"]
    journal = tmp_path / "cut.jsonl"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines[: ends[0] + 1]))
    again = measured(kind, 4, *words, "--resume", str(journal))
    assert again[-1]["resumed"] == 1 and again[-1]["points"] == 1
    (later,) = of(again, "result", "contention")
    assert later["value"] > 0 and later["conditions"] == whole["conditions"]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, nothing, talk = comm(kind, 4, *words, "--resume", str(journal))
    assert status == 0 and not of(nothing, "sample") and not of(nothing, "point"), talk


# ------------------------------------------------------------------ builds that lack something


@pytest.mark.slow
@pytest.mark.parametrize("lacks", ["MPI", "OpenSHMEM and Fortran"])
def test_what_a_machine_lacks_the_build_leaves_out_and_the_program_says(lacks: str, tmp_path: Path) -> None:
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
            str(SOURCE),
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
        done = subprocess.run([program, "halo"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 77
        assert done.stderr == "meshmark-comm: absent: no program for any MPI library; installed: none\n"
        return
    line = started_by("openmpi", 2)
    line[-1] = str(program)
    line += ["halo", "--words", "8", "--budget", "1s"]
    env = launch.environment("openmpi")
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert {r["conditions"]["paradigm"] for r in of(lines, "result")} == {"mpi"}
    assert {(a["conditions"]["protocol"], a["reason"]) for a in of(lines, "absent")} >= {
        ("shmem_put", "shmem_put: this build has no OpenSHMEM"),
        ("caf_sync", "caf_sync: this build has no co-arrays"),
        ("caf_events", "caf_events: this build has no co-arrays"),
    }
