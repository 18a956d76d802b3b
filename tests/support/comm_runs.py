"""Runs of `meshmark-comm` among ranks of each MPI library, and the lines that they wrote."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from meshmark.measure import launch
from support.mpi_here import needed

CPUS = len(os.sched_getaffinity(0))
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
