"""Repetitions are pooled with all samples and the flags of any run; runs that do not overlap become modes."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from meshmark.measure.repetitions import (
    Quality,
    modes,
    point_key,
    pool,
    pool_steps,
    quality,
    run_bounds,
    shortfall,
    unique,
)
from meshmark.measure.runs.plan import SurveyPlan, SurveyStep
from meshmark.store.record import MODE_SUFFIX, Record, median, median_interval
from meshmark.store.run import Absence
from support import made_run
from support.mpi_here import installed


def line(value: float, flags: tuple[str, ...] = (), **more: Any) -> Record:
    c = {"from_cpu": 0, "to_cpu": 1, "state": "swap", "trip": "one_way", "home_node": 0, **more}
    return made_run.record("lines", "line_latency", value, flags, **c)


def test_samples_join_and_the_summary_is_theirs() -> None:
    a, b = line(100e-9), line(100.1e-9, seed=2)
    (pooled,) = pool([[a], [b]])
    assert sorted(pooled.samples) == sorted(a.samples + b.samples)
    assert pooled.value == median(pooled.samples) and pooled.interval == median_interval(pooled.samples)
    assert pooled.conditions["runs"] == 2 and not pooled.flags
    assert pooled.conditions["run_spread"] == pytest.approx(abs(a.value - b.value) / min(a.value, b.value))
    assert Record.from_json(pooled.to_json()) == pooled  # the pooled record still satisfies the store


def test_runs_that_do_not_meet_are_modes() -> None:
    runs = [[line(100e-9)], [line(30e-9, ("stolen",))], [line(101e-9, seed=2)]]
    whole, low, high = pool(runs)
    assert (whole.metric, whole.conditions["run_modes"], whole.flags) == ("line_latency", 2, {"stolen"})
    assert whole.interval is not None and whole.interval[0] < 31e-9 and whole.interval[1] > 99e-9
    assert low.metric == high.metric == "line_latency_mode"
    assert [(r.conditions["run_mode"], r.conditions["mode_runs"], r.conditions["runs"]) for r in (low, high)] == [
        (1, 1, 3),
        (2, 2, 3),
    ]
    assert low.value == pytest.approx(30e-9, rel=0.02) and low.flags == {"stolen"} and not high.flags
    assert sorted(high.samples) == sorted(runs[0][0].samples + runs[2][0].samples)
    assert high.bounds is not None and high.bounds[0] > 98e-9 > low.bounds[1]  # type: ignore[index]
    assert all(Record.from_json(r.to_json()) == r for r in (whole, low, high))


def at(low: float, value: float, high: float) -> Record:
    return replace(line(1.0), value=value, interval=(low, high))


def test_modes_are_apart_by_a_twentieth_between_their_intervals() -> None:
    a, b = at(0.9, 1.0, 1.1), at(1.1 * 1.0501, 1.2, 1.3)
    assert modes([b, a]) == [[a], [b]]
    near = at(1.1 * 1.0499, 1.2, 1.3)
    assert modes([near, a]) == [[a, near]]
    # A run with a wide interval between two others joins them, in any order.
    wide = at(0.5, 1.05, 1.5)
    assert modes([b, wide, a]) == [[a, wide, b]]
    assert modes([at(1, 1, 1), at(1, 1, 1)]) == [[at(1, 1, 1), at(1, 1, 1)]]
    lone = replace(b, interval=None, value=2.0, samples=(2.1, 2.0, 1.9))
    assert modes([lone, a]) == [[a], [lone]]
    scattered = replace(lone, samples=(1.1, 2.0, 2.1))  # too few samples for an interval, so that their range counts
    assert modes([scattered, a]) == [[a, scattered]]
    (zero,) = modes([at(0, 0, 0), at(0, 0, 0)])
    assert len(zero) == 2


def test_flags_of_any_run_stay() -> None:
    (pooled,) = pool([[line(100e-9, ("stolen",))], [line(100e-9, ("migrated",), seed=2)]])
    assert pooled.flags == {"stolen", "migrated"}


def test_points_of_one_run_only_are_kept_as_they_are() -> None:
    alone, other = line(1e-7), line(1e-7, to_cpu=2)
    assert pool([[alone], [other]]) == [alone, other]
    assert point_key(alone) != point_key(other)


def test_few_runs_are_bounded_by_their_intervals_and_their_distance() -> None:
    a, b = line(100e-9), line(103e-9, seed=2)
    (pooled,) = pool([[a], [b]])
    assert a.interval is not None and b.interval is not None
    margin = 1.5 * (b.value - a.value)
    assert pooled.bounds == pytest.approx((a.interval[0] - margin, b.interval[1] + margin))
    assert pooled.bounds == (pooled.conditions["run_low"], pooled.conditions["run_high"])
    assert pooled.half_width == pytest.approx((pooled.bounds[1] - pooled.bounds[0]) / 2 / pooled.value)
    few = replace(b, samples=b.samples[:3], value=median(b.samples[:3]), interval=None)
    low, high = run_bounds([a, few]) or (math.nan, math.nan)
    margin = 1.5 * (few.value - a.value)
    assert (low, high) == pytest.approx((a.interval[0] - margin, max(few.samples) + margin)), "the ends of its samples"
    third = line(101e-9, seed=3)
    assert run_bounds([a, b, third])[1] == pytest.approx(b.interval[1] + b.value - a.value)  # type: ignore[index]
    assert run_bounds([few]) is None and run_bounds([replace(few, samples=few.samples[:2])] * 2) is None
    far = replace(b, value=400e-9, interval=(390e-9, 410e-9))
    assert run_bounds([a, far])[0] == 0, "a time is not below 0"  # type: ignore[index]


def test_six_runs_give_an_interval_as_samples_do() -> None:
    runs = [line((100 + i) * 1e-9, seed=i) for i in range(6)]
    assert run_bounds(runs) == (min(r.value for r in runs), max(r.value for r in runs))
    many = [line((100 + i % 3) * 1e-9, seed=i) for i in range(30)]
    low, high = run_bounds(many) or (math.nan, math.nan)
    assert min(r.value for r in many) < low < high < max(r.value for r in many), "it narrows as runs grow"


def test_bounds_hold_what_another_run_gives_more_often_than_the_samples_interval() -> None:
    """The levels of the runs differ by 1 %, and each has a narrow interval: here, pooled samples are misleading."""
    rng = random.Random(5)

    def run() -> Record:
        level = rng.gauss(100e-9, 1e-9)
        samples = tuple(rng.gauss(level, 0.2e-9) for _ in range(20))
        return replace(line(1.0), samples=samples, value=median(samples), interval=median_interval(samples))

    covered_by_bounds = covered_by_samples = 0
    for _ in range(400):
        (pooled,) = (r for r in pool([[run()], [run()], [run()]]) if r.metric == "line_latency")
        assert pooled.bounds is not None and pooled.interval is not None
        covered_by_bounds += pooled.bounds[0] <= 100e-9 <= pooled.bounds[1]
        covered_by_samples += pooled.interval[0] <= 100e-9 <= pooled.interval[1]
    assert covered_by_bounds >= 0.95 * 400 and covered_by_samples < 0.8 * 400


def test_runs_of_nothing_have_no_share_between_them() -> None:
    a = line(100e-9)
    zero = replace(a, samples=(0.0,) * 9, value=0.0, interval=(0.0, 0.0))
    (pooled_zero,) = pool([[zero], [zero]])
    assert pooled_zero.conditions["run_spread"] is None, "of nothing there is no share"


def step(name: str, *words: str) -> SurveyStep:
    return SurveyStep(name, "lines", ("lines", *words), 1)


def test_steps_are_pooled_by_their_name() -> None:
    a, b, c = line(100e-9), line(100e-9, seed=2), line(50e-9, to_cpu=2)
    alone = line(70e-9, to_cpu=3)
    pooled = pool_steps([(step("01-pairs.r1"), [a, c]), (step("02-one"), [alone]), (step("03-pairs.r2"), [b])])
    assert [r.value for r in pooled] == [median(a.samples + b.samples), c.value, alone.value]
    assert pooled[0].conditions["runs"] == 2
    assert pooled[2] == alone


def test_what_every_repetition_lacks_is_said_once_and_an_error_of_each() -> None:
    first = Absence(instrument="lines", metric="m", conditions={"cpu": 1}, reason="no counter", step="01")
    duplicate = replace(first, step="02")
    others = [
        replace(first, instrument="latency"),
        replace(first, metric="n"),
        replace(first, conditions={"cpu": 2}),
        replace(first, reason="not permitted"),
    ]
    broken, broken_too = (replace(first, kind="error", step=s) for s in ("01", "02"))
    assert unique([first, duplicate, *others]) == [first, *others]
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
    pooled = [r for r in pool(runs) if not r.metric.endswith(MODE_SUFFIX)]
    assert len(pooled) == len(runs[0]) and all(r.conditions["runs"] == 2 for r in pooled)
    other = pool([made_run.programs(), made_run.programs("mpich")])
    assert len(other) == 2 * len(runs[0]), "another library is another point"


def test_repetitions_of_a_step_have_one_name_in_common() -> None:
    ids = ["03-latency-company.r1", "11-latency-company.r2", "04-bandwidth", "12-run.r2.r1"]
    plan = SurveyPlan("p", tuple(SurveyStep(i, "latency", (), 1) for i in ids))
    assert [s.repeats for s in plan.steps] == ["latency-company", "latency-company", "bandwidth", "run.r2"]


def test_quality_counts_points_and_not_metrics() -> None:
    gross, net = line(1e-7, ("stolen",)), replace(line(1e-7), metric="other")
    request = {"interval_asked": 1e-6}
    wide, wide_and_flagged = line(1e-7, to_cpu=2, **request), line(1e-7, ("stolen", "migrated"), to_cpu=3, **request)
    mode = replace(line(1e-7, ("faulted",), to_cpu=4), metric="line_latency_mode")
    summary = quality([gross, net, wide, wide_and_flagged, mode, line(1e-7, to_cpu=5)])
    assert summary == Quality(4, 2, {"migrated": 1, "stolen": 2}, 1)
    assert str(summary) == "4 points: 2 flagged (migrated 1, stolen 2), 1 wider than requested"
    assert str(quality([line(1e-7)])) == "1 point: none flagged"
    assert quality([line(1e-7), replace(line(1e-7), machine="another")]).points == 2
    unknown = replace(line(1e-7), instrument="of a later version")
    assert quality([unknown, replace(unknown, conditions={"x": 1}), replace(unknown, metric="m")]).points == 2


def test_a_budget_is_proposed_for_points_that_are_too_wide_or_short() -> None:
    def wide(half: float, **more: Any) -> Record:
        return replace(line(1.0, interval_asked=0.02, **more), value=1.0, interval=(1 - half, 1 + half))

    assert shortfall([wide(0.02), wide(0.01, home_node=1)], 10) == ""
    text = shortfall([wide(0.04), wide(0.01, home_node=1)], 10)
    assert text.startswith("1 of 2 points") and "--budget 25s" in text  # four times the time for one of two points
    few = wide(0.01)
    few = replace(few, samples=few.samples[:3], interval=None)
    assert "--budget 20s" in shortfall([few], 10)
    assert "--budget 20s" in shortfall([replace(few, flags=frozenset({"stolen"}))], 10)
    assert "--budget 12s" in shortfall([wide(0.0201)], 10)  # at least a fifth more
    assert "--budget 400s" in shortfall([wide(0.04)], 99)
    assert "--budget 3600s" in shortfall([wide(0.04)], 900) and "quieter machine" in shortfall([wide(0.04)], 901)
    # More samples do not help in these cases:
    assert shortfall([replace(wide(0.2), flags=frozenset({"stolen"}))], 10) == ""
    assert shortfall([wide(0.2, run_modes=2)], 10) == ""
    spread_runs = wide(0.01, run_low=0.9, run_high=1.1)
    text = shortfall([spread_runs, wide(0.01, home_node=1)], 10)
    assert text == "the runs of 1 of 2 points differ by more than the requested interval; more --repetitions would help"
    text = shortfall([spread_runs, wide(0.04, home_node=1)], 10)
    assert "--budget 25s" in text and "the runs of 1 of 2 points" in text
    assert shortfall([replace(line(1.0), interval=(0.5, 1.5))], 10) == ""  # no width was requested


def level(number: int, low: int, high: int, value: float, metric: str = "level_latency") -> Record:
    conditions = {"pages": "thp", "memory_node": 0, "cpu": 0, "pattern": "random", "stride_bytes": 64, "kind": "cache"}
    return made_run.record(
        "latency",
        metric,
        value,
        **conditions,
        level=number,
        from_bytes=low,
        to_bytes=high,
        claimed_bytes=2**28,
        count=7,
    )


def test_levels_pool_by_their_footprints_and_not_by_their_number() -> None:
    first = [level(2, 2**16, 2**19, 4e-9), level(3, 2**22, 2**23, 44e-9), level(4, 2**27, 2**28, 166e-9)]
    second = [level(2, 2**16, 2**20, 4e-9), level(3, 2**26, 2**29, 162e-9)]
    pooled = [r for r in pool([first, second]) if not r.metric.endswith(MODE_SUFFIX)]
    levels = [tuple(r.conditions.get(k) for k in ("level", "from_bytes", "to_bytes", "runs")) for r in pooled]
    assert levels == [(2, 2**16, 2**19, 2), (3, 2**22, 2**23, None), (4, 2**27, 2**28, 2)]
    assert pooled[1].value == pytest.approx(44e-9, rel=0.02)
    assert all("run_modes" not in r.conditions for r in pooled)
    assert len({point_key(r) for r in pooled}) == 3


def test_the_capacity_of_a_level_pools_as_its_latency_does() -> None:
    first, second = level(3, 2**22, 2**25, 2.0**25, "level_capacity"), level(3, 2**23, 2**24, 2.0**24, "level_capacity")
    whole, *modes = pool([[first], [second]])
    assert (whole.conditions["from_bytes"], whole.conditions["to_bytes"]) == (2**23, 2**24)
    assert whole.conditions["run_modes"] == 2 and len(modes) == 2
