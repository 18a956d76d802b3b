"""Wrong data and failing calls are reported, and yield no result.

They are injected between `meshmark-comm` and the MPI library, or are known defects of the library."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from meshmark.measure.runs import launch
from meshmark.measure.runs.plan import SurveyStep
from meshmark.measure.runs.runner import PlanRunner
from support import applications_here
from support.comm_runs import comm, kinds, measured, of, slow
from support.mpi_here import has_coarrays, has_openshmem, installed, needed

pytestmark = pytest.mark.skipif(not installed(), reason="no MPI library is installed")

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
    """Return a library of each kind that precedes the MPI library and corrupts a call."""
    folder = tmp_path_factory.mktemp("spoil")
    (folder / "spoil.c").write_text(SPOILER)
    libraries = {}
    for kind in launch.launchers():
        compiler = shutil.which(f"mpicc.{kind}") or shutil.which("mpicc")
        if compiler is None:
            continue
        libraries[kind] = folder / f"spoil-{kind}.so"
        line = [compiler, "-w", "-shared", "-fPIC", "-O1", str(folder / "spoil.c"), "-o", str(libraries[kind]), "-ldl"]
        subprocess.run(line, check=True, timeout=120)
    return libraries


def spoilt(spoilers: dict[str, Path], kind: str, call: str, rank: int, first: int, stale: bool = False) -> list[str]:
    """Return words that put the library before the MPI libraries of the ranks."""
    needed(kind)
    if kind not in spoilers:
        pytest.skip(f"{kind} has no compiler wrapper here")
    environment = {"LD_PRELOAD": str(spoilers[kind]), "SPOIL": call, "SPOIL_RANK": str(rank), "SPOIL_FROM": str(first)}
    if stale:
        environment["SPOIL_STALE"] = "1"
    if kind == "openmpi":
        return [word for name, value in environment.items() for word in ("-x", f"{name}={value}")]
    return [word for name, value in environment.items() for word in ("-genv", name, value)]


@kinds
# Each of the four untimed exchanges has at most four calls.
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
def test_wrong_data_never_yield_a_result(
    spoilers: dict[str, Path], kind: str, call: str, stale: bool, rank: int, words: str, named: str, first: int
) -> None:
    if call == "shmem" and kind != "openmpi":
        pytest.skip("OpenSHMEM is Open MPI's")
    if call == "shmem" and not has_openshmem():
        pytest.skip("no OpenSHMEM is installed")
    before = spoilt(spoilers, kind, call, rank, first, stale)
    _status, lines, messages = comm(kind, 2, *words.split(), "--interval", "0.01", "--budget", "20s", more=before)
    problems = [line["reason"] for line in of(lines, "absent")]
    pattern = rf"{named}: wrong data: rank [01], [\w ]+, word \d+: expected [0-9a-f]{{16}}, got [0-9a-f]{{16}}$"
    assert len(problems) == 1 and re.search(pattern, problems[0]), (problems, messages)
    assert not [r for r in of(lines, "result") if r["conditions"].get("algorithm") != "pairs"]
    assert lines[-1]["type"] == "end"


@kinds
def test_the_spoiler_alone_changes_nothing(spoilers: dict[str, Path], kind: str) -> None:
    """Otherwise the tests above would prove nothing."""
    lines = measured(
        kind,
        2,
        "halo",
        "--protocol",
        "sendrecv",
        "--words",
        "100",
        "--budget",
        "20s",
        more=spoilt(spoilers, kind, "nothing", 0, 0),
    )
    assert not of(lines, "absent")


@kinds
@pytest.mark.parametrize("rank", [slow(0), 1])
def test_what_one_rank_cannot_allocate_is_absent_and_the_rest_is_measured(
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
        "20s",
        more=spoilt(spoilers, kind, "win", rank, 0),
    )
    absences = of(lines, "absent")
    assert [(line["conditions"]["protocol"], line["conditions"]["words"]) for line in absences] == [("rma_fence", 8)]
    assert f"rank {rank}: MPI_Win_allocate: " in absences[0]["reason"]
    assert {(r["conditions"]["protocol"], r["conditions"]["words"]) for r in of(lines, "result")} == {
        (p, n) for p in ("sendrecv", "shared") for n in (8, 64)
    }


@kinds
@pytest.mark.parametrize("rank", [0, slow(1)])
def test_a_rank_that_fails_is_reported_in_one_line_and_ends_the_step(
    spoilers: dict[str, Path], kind: str, rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = spoilt(spoilers, kind, "dims", rank, 0)
    plain = launch.launch_argv

    def with_spoiler(
        with_: launch.Launcher, ranks: int, cpus: int, _more: Sequence[str] = (), *, threads: int = 1
    ) -> list[str]:
        return plain(with_, ranks, cpus, lines, threads=threads)

    monkeypatch.setattr(launch, "launch_argv", with_spoiler)
    result = PlanRunner(tmp_path).run_step(
        SurveyStep("s", "halo", ("halo", "--words", "8", "--budget", "2s"), 2, 2, kind)
    )
    assert result.status == "failed"
    assert re.fullmatch(rf"rank {rank}: MPI_Dims_create: .*", result.message), result.message


# ------------------------------------------------------------------ what libraries get wrong


@kinds
def test_co_arrays_and_windows_whose_parts_are_multiples_of_16_bytes_arrive_whole(kind: str) -> None:
    """All exchanges of Meshmark depend on this; what happens to other sizes is up to the library, and the instrument
    counts it."""
    lines = measured(kind, 2, "defects", "--words", "1..64")
    defects = of(lines, "result", "wrong_words")
    coarrays = {"caf_scalar", "caf_element", "caf_event"} if has_coarrays(kind) else set()
    assert {r["conditions"]["trial"] for r in defects} == {"window"} | coarrays
    even = [r for r in defects if r["conditions"]["window_bytes"] % 16 == 0]
    assert len(even) >= 14 and not any(r["value"] for r in even)
    odd = [r for r in defects if r["conditions"]["window_bytes"] % 16 and r["conditions"]["trial"] != "window"]
    assert all(r["value"] <= r["conditions"]["sent_words"] for r in odd)


@kinds
def test_events_of_several_sides_are_not_confused(kind: str) -> None:
    """In windows whose size is no multiple of 16 bytes, ranks received events of others, and some waited forever."""
    if not has_coarrays(kind):
        pytest.skip(f"no co-arrays over {kind} are installed")
    events = ("--protocol", "caf_events", "--budget", "2s", "--interval")
    applications = [["swim", *events, "100", "--cells", "16", "--steps", "2000"]] if applications_here.BUILT else []
    for words in (["halo", *events, "1", "--dimensions", "3", "--words", "1"], *applications):
        lines = comm(kind, 2, *words)[1]
        reasons = [line["reason"] for line in of(lines, "absent")]
        assert not reasons and of(lines, "result") and lines[-1]["status"] == "ok"
