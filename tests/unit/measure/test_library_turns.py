"""MPI libraries share the time of one measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshmark.describe import Description, Parameter
from meshmark.errors import UsageError
from meshmark.measure.runs import launch
from meshmark.measure.runs.plan import launched, measurement

OPTIONS = {"ranks": "all", "mpi": "any", "budget": "10s", "seed": "1", "words": "1"}
AMONG_RANKS = Description(
    name="made",
    summary="",
    detail="",
    source="",
    metrics=(),
    identity=(),
    raw={"ranks": True},
    parameters=tuple(
        Parameter(
            name=k, option=f"--{k}", help="", unit="", kind="text", default=v, choices=(), minimum=None, maximum=None
        )
        for k, v in OPTIONS.items()
    ),
)


def test_libraries_take_turns_with_half_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "chosen", lambda asked: asked.split(","))
    runs = launched(AMONG_RANKS, ("--mpi", "x,y", "--ranks", "2,4", "--words", "8", "--budget", "6s"))
    assert [(r.ranks, r.mpi, r.turn) for r in runs] == [
        (n, kind, turn) for n in (2, 4) for kind, turn in (("x", 1), ("y", 1), ("y", 2), ("x", 2))
    ]
    assert {r.budget_s for r in runs} == {3.0}
    assert runs[0].argv == ("made", "--ranks", "2", "--mpi", "x", "--budget", "3s", "--seed", "1", "--words", "8")
    assert runs[3].argv == ("made", "--ranks", "2", "--mpi", "x", "--budget", "3s", "--seed", "2", "--words", "8")
    (process,) = launched(AMONG_RANKS, ("--mpi", "x", "--ranks", "2"))
    assert (process.budget_s, process.turn) == (10.0, 0) and "10s" in process.argv
    with pytest.raises(UsageError, match="--budget: found 'soon'"):
        launched(AMONG_RANKS, ("--mpi", "x,y", "--ranks", "2", "--budget", "soon"))


def test_threads_of_ranks_have_processes_of_their_own_and_share_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "chosen", lambda asked: asked.split(","))
    monkeypatch.setattr(launch, "cpus_of_hosts", lambda: [8, 8])
    threads = Parameter(
        name="threads",
        option="--threads",
        help="",
        unit="",
        kind="integers",
        default="1",
        choices=(),
        minimum=1,
        maximum=64,
        per_process=True,
    )
    threaded = replace(AMONG_RANKS, parameters=(*AMONG_RANKS.parameters, threads))
    runs = launched(threaded, ("--mpi", "x", "--ranks", "2,4", "--threads", "1,all", "--budget", "6s"))
    assert [(r.ranks, r.threads, r.value, r.budget_s) for r in runs] == [
        (2, 1, "1", 3.0),
        (2, 8, "8", 3.0),
        (4, 1, "1", 3.0),
        (4, 4, "4", 3.0),
    ]
    assert runs[1].argv[-2:] == ("--threads", "8") and "3s" in runs[1].argv
    (variant,) = launched(threaded, ("--mpi", "x", "--ranks", "2", "--threads", "5"))
    assert (variant.threads, variant.value) == (5, "") and variant.argv[-2:] == ("--threads", "5")
    (default,) = launched(threaded, ("--mpi", "x", "--ranks", "2"))
    assert default.threads == 1
    short = ("--mpi", "x", "--ranks", "2", "--threads", "1,2", "--budget", "4s")
    assert [s.id for s in measurement(threaded, short).steps] == [
        "made-x-2-1",
        "made-x-2-2",
    ]
