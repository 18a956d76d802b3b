"""Runs `meshmark-comm` with the ranks of each MPI library and returns the lines that they wrote."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from meshmark.measure.runs import launch
from support.budgets import budget_ended
from support.mpi_here import needed

CPUS = len(os.sched_getaffinity(0))
# With such wide intervals, each point takes the minimum number of blocks for an interval.
SHORT = ("--interval", "100")
# A busy machine needs a long budget for the first sample of every point, and uses all of it if intervals stay wide.
BUDGETS = ("4s", "15s", "60s", "240s")
kinds = pytest.mark.parametrize("kind", ["openmpi", "mpich"])
Line = dict[str, Any]


def slow(*values: Any) -> Any:
    """Return a parameter that only `make check-all` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def started_by(kind: str, ranks: int, *more: str) -> list[str]:
    return launch.launch_argv(needed(kind), ranks, CPUS, more)


def comm(kind: str, ranks: int, *words: str, more: Sequence[str] = ()) -> tuple[int, list[Line], str]:
    """Return the exit status, the lines and the messages of a run with so many ranks."""
    completed = subprocess.run(
        [*started_by(kind, ranks, *more), *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        stdin=subprocess.DEVNULL,
        env=launch.environment(kind),
    )
    return completed.returncode, [json.loads(line) for line in completed.stdout.splitlines()], completed.stderr


def with_enough_budget(measure: Callable[[str], list[Line]]) -> list[Line]:
    """Return the lines of `measure` with the first budget of `BUDGETS` that gives every point a sample."""
    for budget in BUDGETS:
        if not budget_ended(lines := measure(budget)):
            break
    return lines


def measured(kind: str, ranks: int, *words: str, more: Sequence[str] = ()) -> list[Line]:
    """Return the lines of a run that must succeed, with a sufficient budget if `words` have none."""

    def measure(*budget: str) -> list[Line]:
        status, lines, messages = comm(kind, ranks, *words, *budget, more=more)
        assert status == 0 and lines[-1]["type"] == "end" and lines[-1]["status"] == "ok", messages
        return lines

    if "--budget" in words:
        return measure()
    return with_enough_budget(lambda budget: measure("--budget", budget))


def of(lines: list[Line], kind: str, metric: str = "") -> list[Line]:
    return [line for line in lines if line["type"] == kind and metric in ("", line.get("metric"))]
