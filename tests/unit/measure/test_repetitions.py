"""Repetitions are pooled: all samples, flags of any run, and runs that do not meet are noisy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshmark.measure.plan import Plan, Step
from meshmark.measure.repetitions import point_key, pool, pool_steps, unique
from meshmark.store.record import Record, median, median_interval
from meshmark.store.run import Absence
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


def test_the_least_and_greatest_of_all_intervals_are_known_only_if_every_run_has_one() -> None:
    a, b = line(100e-9), line(103e-9, seed=2)
    (both,) = pool([[a], [b]], width_percent=3)
    assert a.interval is not None
    assert b.interval is not None
    assert both.conditions["run_low"] == a.interval[0]
    assert both.conditions["run_high"] == b.interval[1]
    few = replace(b, samples=b.samples[:3], value=median(b.samples[:3]), interval=None)
    (unknown,) = pool([[a], [few]], width_percent=3)
    assert (unknown.conditions["run_low"], unknown.conditions["run_high"]) == (None, None)
    zero = replace(a, samples=(0.0,) * 9, value=0.0, interval=(0.0, 0.0))
    (without,) = pool([[zero], [zero]], width_percent=3)
    assert without.conditions["run_spread"] is None, "of nothing there is no share"


def test_truncated_goes_where_the_interval_of_all_samples_is_as_narrow_as_asked() -> None:
    """Ten samples from 90 to 110: their interval is 92 to 108, 8 % to either side of the median."""
    run = replace(line(100.0, ("truncated",)), samples=(90.0, 92.0, 94.0, 100.0, 100.0), value=94.0, interval=None)
    other = replace(run, samples=(100.0, 100.0, 106.0, 108.0, 110.0), value=106.0)
    (narrow,) = pool([[run], [other]], width_percent=8)
    assert (narrow.value, narrow.interval) == (100, (92, 108))
    assert narrow.flags == frozenset()
    (wide,) = pool([[run], [other]], width_percent=7.9)
    assert wide.flags == {"truncated"}
    (few,) = pool([[replace(run, samples=(94.0,))], [replace(run, samples=(94.0,))]], width_percent=100)
    assert few.flags == {"truncated"}, "two samples have no interval"


def step(name: str, *words: str) -> Step:
    return Step(name, "lines", ("lines", *words), 1)


def test_steps_are_pooled_by_their_name_and_judged_by_the_width_that_they_asked_for() -> None:
    a, b, c = line(100e-9, ("truncated",)), line(100e-9, ("truncated",), seed=2), line(50e-9, to_cpu=2)
    alone = line(70e-9, ("truncated",), to_cpu=3)
    found = pool_steps(
        [(step("01-pairs.r1"), [a, c]), (step("02-one"), [alone]), (step("03-pairs.r2", "--interval", "50"), [b])]
    )
    assert [r.value for r in found] == [median(a.samples + b.samples), c.value, alone.value]
    assert found[0].flags == frozenset()
    assert found[0].conditions["runs"] == 2
    assert found[2] == alone
    (strict,) = pool_steps([(step(f"0{i}-p.r{i}", "--interval", "0.001"), [r]) for i, r in enumerate((a, b))])
    assert strict.flags == {"truncated"}
    (default,) = pool_steps([(step(f"0{i}-p.r{i}"), [r]) for i, r in enumerate((a, b))])
    assert default.flags == frozenset(), "within the instrument's own width"
    (nonsense,) = pool_steps([(step(f"0{i}-p.r{i}", "--interval", "narrow"), [r]) for i, r in enumerate((a, b))])
    assert nonsense.flags == {"truncated"}


def test_what_every_repetition_lacks_is_said_once_and_an_error_of_each() -> None:
    first = Absence(instrument="lines", metric="m", conditions={"cpu": 1}, reason="no counter", step="01")
    again = replace(first, step="02")
    others = [
        replace(first, instrument="latency"),
        replace(first, metric="n"),
        replace(first, conditions={"cpu": 2}),
        replace(first, reason="not permitted"),
    ]
    broken, broken_too = (replace(first, kind="error", step=s) for s in ("01", "02"))
    assert unique([first, again, *others]) == [first, *others]
    assert unique([broken, broken_too, broken]) == [broken, broken_too]


def test_a_point_is_told_by_what_its_instrument_says_tells_points_apart() -> None:
    a = line(1e-7)
    assert point_key(a) == point_key(line(2e-7, load_1min=3.0))
    assert point_key(a) != point_key(replace(a, metric="other"))
    assert point_key(a) != point_key(line(1e-7, kind="cache"))
    assert point_key(line(1e-7, level=1)) != point_key(line(1e-7, level=2))


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
