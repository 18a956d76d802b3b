"""Tests of changes in the results of a machine over time."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from meshmark.compare.history import MIN_RUNS, History, facts_between, measured, over_time, to_json
from meshmark.statistics.changepoints import MIN_SEGMENT, splits
from meshmark.store.record import Record
from meshmark.store.series import RunValue, Series
from support.made_run import record

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 25, tzinfo=UTC)


def noise(n: int, seed: int = 1, share: float = 0.01) -> list[float]:
    rng = random.Random(seed)
    return [100 * (1 + rng.gauss(0, share)) for _ in range(n)]


def run(i: int, value: float, **more: object) -> RunValue:
    start = (FIRST + timedelta(days=i)).isoformat().replace("+00:00", "Z")
    run_value = RunValue(run=f"r{i:03}", start=start, value=value, low=0.99 * value, high=1.01 * value, made_by={})
    return replace(run_value, **more)  # type: ignore[arg-type]


def of(values: Sequence[float], **conditions: object) -> Series:
    template = record("io", "bandwidth_net", 1.0, target=".", direction="read", **conditions)
    return Series(template, tuple(run(i, v) for i, v in enumerate(values)))


def found_in(*series: Series, rows: Sequence[Mapping[str, str]] = (), **more: str) -> History:
    return over_time("n042", series, rows, NOW, **more)


# ------------------------------------------------------------------ splits


def test_a_change_of_level_is_found_where_it_is() -> None:
    values = noise(40)
    assert splits(values) == []
    values[25:] = [0.9 * v for v in values[25:]]
    assert [s.at for s in splits(values)] == [25] and splits(values)[0].p < 1e-6


def test_a_level_that_returns_is_two_changes() -> None:
    values = noise(60)
    values[20:30] = [1.1 * v for v in values[20:30]]
    assert [s.at for s in splits(values)] == [20, 30]


@pytest.mark.parametrize("at", [0, 10, 19])
def test_one_outlier_is_no_change(at: int) -> None:
    values = noise(20)
    values[at] *= 2
    assert splits(values) == []


def test_an_outlier_does_not_hide_a_change() -> None:
    values = noise(60)
    values[30:] = [1.05 * v for v in values[30:]]
    values[12] *= 1.6
    assert [s.at for s in splits(values)] == [30]


def test_few_series_without_a_change_give_a_false_alarm() -> None:
    assert sum(bool(splits(noise(30, seed, 0.02))) for seed in range(200)) <= 2


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0] * 2, [5.0] * 50, [1e-9] * 3 + [1e-9 * (1 + 1e-15)] * 3])
def test_short_and_constant_series_have_no_change(values: list[float]) -> None:
    assert splits(values) == []


def test_values_that_never_vary_change_like_others() -> None:
    assert [s.at for s in splits([32768.0] * 12 + [65536.0] * 12)] == [12]
    assert all(MIN_SEGMENT <= s.at <= 21 for s in splits([32768.0] * 12 + [65536.0] * 12))


# ------------------------------------------------------------------ points


def test_a_change_has_what_was_before_and_after_it() -> None:
    values = noise(24)
    values[12:] = [0.9 * v for v in values[12:]]
    (change,) = found_in(of(values)).changes
    assert (change.word, change.worse(), change.worse(0.05), change.worse(0.2)) == ("slower", True, True, False)
    assert [r.run for r in change.between] == ["r011", "r012"]
    low, high = change.ratio.interval or (math.nan, math.nan)
    assert low < 0.9 < high < 1 and len(change.before.runs) == len(change.after.runs) == 12
    faster = found_in(of(values[::-1])).changes[0]
    assert (faster.word, faster.worse()) == ("faster", False)


def test_a_change_within_the_margin_is_counted_but_not_listed() -> None:
    values = noise(60, share=0.001)
    values[30:] = [1.015 * v for v in values[30:]]
    (point,) = found_in(of(values)).points
    assert (point.status, point.changes, point.small) == ("steady", (), 1)


def test_too_few_runs_are_said_and_flagged_ones_do_not_count() -> None:
    series = of(noise(MIN_RUNS + 2))
    flagged_series = replace(
        series, runs=tuple(replace(r, flags=("stolen",) if i < 3 else ()) for i, r in enumerate(series.runs))
    )
    assert found_in(series).counts() == {"steady": 1}
    history = found_in(flagged_series)
    assert history.counts() == {"too few runs": 1} and history.flagged == 3 and history.flags == {"stolen": 3}
    assert len(history.points[0].runs) == MIN_RUNS + 2 and len(history.points[0].judged) == MIN_RUNS - 1


def test_values_of_zero_are_judged_only_if_all_are() -> None:
    assert found_in(of([0.0] * 20)).counts() == {"steady": 1}
    assert found_in(of([0.0] * 10 + [3.0] * 10)).counts() == {"not above 0": 1}


def test_many_points_need_more_evidence() -> None:
    """A change at one point may be due to chance among thousands of points."""
    values = noise(16, 5)
    values[8:] = [1.035 * v for v in values[8:]]
    assert [1e-5 < c.p < 1e-3 for c in found_in(of(values)).changes] == [True]
    other_series = [of(noise(16, seed), block_bytes=seed) for seed in range(100, 400)]
    assert found_in(of(values), *other_series).changes == []


def test_dates_select_runs() -> None:
    values = noise(60)
    values[31:] = [0.9 * v for v in values[31:]]  # 2026-02-01
    assert len(found_in(of(values)).changes) == 1
    assert found_in(of(values), since="2026-02").changes == [] == found_in(of(values), until="2026-01").changes
    assert [len(found_in(of(values), until=t).runs) for t in ("2026-01", "2026-01-10", "2026-01-10T00:00:00Z")] == [
        31,
        10,
        10,
    ]
    assert len(found_in(of(values), since="2026-01-10T00:00:00Z").runs) == 51
    assert found_in(of(values), since="2027").points == []


def test_results_without_a_start_are_left_out_and_counted() -> None:
    series = of(noise(10))
    undated = tuple(run(20 + i, 100.0, start=text) for i, text in enumerate(("", "yesterday", "2026-13-01")))
    history = found_in(replace(series, runs=series.runs + undated))
    assert history.without_start == 3 and len(history.points[0].runs) == 10


def test_starts_are_in_order_of_time_whatever_their_zone() -> None:
    values = [run(0, 1.0, start="2026-01-02T01:00:00+02:00"), run(1, 2.0, start="2026-01-01T23:30:00Z")]
    history = found_in(Series(of([1.0]).record, tuple(values)))
    assert [r.value for r in history.points[0].runs] == [1.0, 2.0]


def test_a_wrong_clock_is_named() -> None:
    series = of(noise(8))
    assert found_in(series).clock == ""
    future = run(9, 100.0, start="2027-01-01T00:00:00Z")
    twin = run(10, 100.0, start=series.runs[0].start)
    history = found_in(replace(series, runs=(*series.runs, future, twin)))
    assert history.clock == (
        "the clock was wrong; runs start in the future: r009; "
        "at the same time, so that their order is unknown: r000 and r010"
    )


def test_what_else_changed_is_named() -> None:
    rows = [
        {"machine": "n042", "seen": "2025-12-01T00:00:00Z", "kernel": "6.1", "microcode": "0xa"},
        {"machine": "n042", "seen": "2026-01-13T00:00:00Z", "kernel": "6.12", "microcode": "0xa"},
        {"machine": "n042", "seen": "2026-03-01T00:00:00Z", "kernel": "6.18", "microcode": "0xb"},
    ]
    values = noise(24)
    values[12:] = [0.9 * v for v in values[12:]]
    series = of(values)
    builds = tuple(replace(r, made_by={"build": "a" if i < 12 else "b"}) for i, r in enumerate(series.runs))
    (change,) = found_in(replace(series, runs=builds), rows=rows).changes
    assert change.facts == ("kernel 6.1 → 6.12", "build of Meshmark a → b")
    assert found_in(series, rows=rows[2:]).changes[0].facts == (), "what was not recorded then is not known"
    row_between = {**rows[0], "seen": "2026-01-12T12:00:00Z"}
    assert found_in(series, rows=[row_between, *rows[1:]]).changes[0].facts == ()


def test_the_kernel_of_the_results_counts_where_the_machine_has_no_rows() -> None:
    earlier, later = run(0, 1.0, made_by={"kernel": "6.1"}), run(1, 1.0, made_by={"kernel": "6.12"})
    assert facts_between([], earlier, later) == ["kernel 6.1 → 6.12"]
    assert facts_between([], earlier, earlier) == facts_between([], earlier, run(1, 1.0)) == []


def test_few_runs_have_wider_bounds_than_their_hull() -> None:
    few = measured([run(i, v) for i, v in enumerate((100.0, 101.0, 102.0))])
    assert few.value == 101 and few.bounds == pytest.approx((97.0, 105.02))
    many = measured([run(i, float(v)) for i, v in enumerate(range(100, 120))])
    assert many.bounds == (105, 114)


def test_results_of_another_tool_are_another_point() -> None:
    own_series, tool_series = of(noise(10)), of([2 * v for v in noise(10)])
    tool_series = replace(tool_series, record=replace(tool_series.record, source="tool"))
    assert len(found_in(own_series, tool_series).points) == 2 and len(found_in(own_series, own_series).points) == 1


def test_levels_with_footprints_in_common_are_one_point() -> None:
    conditions = {"level": 1, "kind": "cache", "pages": "thp", "memory_node": 0, "cpu": 0}

    def level(i: int, low: int, high: int) -> Series:
        template = record("latency", "level_latency", 1e-9, from_bytes=low, to_bytes=high, **conditions)
        return Series(template, (run(i, 1e-9),))

    history = found_in(level(0, 2**11, 2**15), level(1, 2**12, 2**14), level(2, 2**20, 2**22))
    assert sorted(len(p.runs) for p in history.points) == [1, 2]


def test_objects_of_json() -> None:
    values = noise(24)
    values[12:] = [0.9 * v for v in values[12:]]
    lines = to_json(found_in(of(values), of([1.0] * 3, block_bytes=4)), NOW, 30 * 86400)
    assert [x["type"] for x in lines] == ["change", "point", "point", "instrument", "history"]
    change, point, short_point, instrument, summary = lines
    assert (
        change["verdict"] == "slower" and change["after_run"] == "r011" and change["conditions"]["direction"] == "read"
    )
    assert change["before"]["low"] < change["before"]["value"] < change["before"]["high"]
    assert (point["status"], short_point["status"], short_point["runs"]) == ("changed", "too few runs", 3)
    assert instrument["stale"] and instrument["newest"] == "2026-01-24T00:00:00Z"
    assert summary["points"] == 2 and summary["without_start"] == 0


def test_what_got_worse_last_is_what_a_gate_asks() -> None:
    values = noise(45)
    values[15:30] = [0.9 * v for v in values[15:30]]
    assert found_in(of(values)).worse(0.05) == [], "it recovered"
    history = found_in(of(values[:30]))
    assert [c.between[1].run for c in history.worse(0.05)] == ["r015"] and history.worse(0.2) == []


def test_a_metric_without_direction_is_higher_but_not_worse() -> None:
    template: Record = record("latency", "level_capacity", 1.0, level=1)
    template = replace(template, better="none", unit="B")
    values = noise(30)
    values[15:] = [2 * v for v in values[15:]]
    (change,) = found_in(replace(of(values), record=template)).changes
    assert (change.word, change.worse()) == ("higher", False)
