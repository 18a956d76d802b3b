"""Repetitions are pooled: all samples, flags of any run, and runs that do not meet are noisy."""

from __future__ import annotations

from typing import Any

import pytest

from meshmark.measure.plan import Plan, Step
from meshmark.measure.repetitions import point_key, pool
from meshmark.store.record import Record, median, median_interval
from support import made_run
from support.mpi_here import installed


def line(value: float, flags: tuple[str, ...] = (), **more: Any) -> Record:
    c = {"from_cpu": 0, "to_cpu": 1, "state": "swap", "trip": "one_way", "home_node": 0, **more}
    return made_run.record("lines", "line_latency", value, flags, **c)


def test_samples_join_and_the_summary_is_theirs() -> None:
    a, b = line(100e-9), line(100.1e-9, seed=2)
    (both,) = pool([[a], [b]], width_percent=3)
    assert sorted(both.samples) == sorted(a.samples + b.samples)
    assert both.value == median(both.samples) and both.interval == median_interval(both.samples)
    assert both.conditions["runs"] == 2 and not both.flags
    assert both.conditions["run_spread"] == pytest.approx(abs(a.value - b.value) / min(a.value, b.value))
    assert Record.from_json(both.to_json()) == both  # still a record as the store demands it


def test_runs_that_do_not_meet_are_noisy() -> None:
    (apart,) = pool([[line(30e-9)], [line(100e-9)]], width_percent=3)
    assert apart.flags == {"noisy"} and apart.interval is not None
    assert apart.interval[0] < 31e-9 and apart.interval[1] > 99e-9


def test_flags_of_any_run_stay_but_truncated_is_judged_anew() -> None:
    (kept,) = pool([[line(100e-9, ("stolen",))], [line(100e-9, ("truncated",), seed=2)]], width_percent=3)
    assert kept.flags == {"stolen"}
    (wide,) = pool([[line(100e-9)], [line(100e-9, ("truncated",), seed=2)]], width_percent=0.01)
    assert wide.flags == {"truncated"}


def test_points_of_one_run_only_are_kept_as_they_are() -> None:
    alone, other = line(1e-7), line(1e-7, to_cpu=2)
    assert pool([[alone], [other]], width_percent=3) == [alone, other]
    assert point_key(alone) != point_key(other)


@pytest.mark.skipif(not installed(), reason="no MPI library is installed")
def test_programs_of_two_runs_meet_whatever_they_found() -> None:
    runs = [made_run.programs(seed=1), made_run.programs(seed=2)]
    assert all(a.conditions != b.conditions for a, b in zip(*runs, strict=True))
    both = pool(runs, width_percent=3)
    assert len(both) == len(runs[0]) and all(r.conditions["runs"] == 2 for r in both)
    other = pool([made_run.programs(), made_run.programs("mpich")], width_percent=3)
    assert len(other) == 2 * len(runs[0]), "another library is another point"


def test_repetitions_of_a_step_have_one_name_in_common() -> None:
    ids = ["03-latency-company.r1", "11-latency-company.r2", "04-bandwidth", "12-run.r2.r1"]
    plan = Plan("p", tuple(Step(i, "latency", (), 1) for i in ids))
    assert [s.repeats for s in plan.steps] == ["latency-company", "latency-company", "bandwidth", "run.r2"]
