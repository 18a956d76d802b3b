"""Test the figures of a run: fairness, slowdowns with intervals, and spans that fill the time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.metrics import all_metrics, of_variants, parse_metrics
from meshmark.load.scenario.journal import spans_of
from meshmark.load.scenario.lanes import shares
from meshmark.load.scenario.result import (
    LoadRun,
    ProgramUse,
    ThreadSpan,
    ThreadUse,
    canary_text,
    failures_text,
    jain,
    rank_sum_bound,
    slowdown,
    utilisation,
)
from support.made_base import made_base


def test_jain_is_one_where_all_are_alike_and_one_nth_where_one_has_all() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert math.isnan(jain([]))


def test_the_bound_of_a_rank_sum_is_that_of_all_arrangements() -> None:
    for n, m in ((3, 3), (4, 4), (5, 6), (2, 9)):
        counts: dict[int, int] = {}
        for ranks in itertools.combinations(range(n + m), n):
            u = sum(ranks) - n * (n - 1) // 2
            counts[u] = counts.get(u, 0) + 1
        total = math.comb(n + m, n)
        k = rank_sum_bound(n, m)
        tail = sum(c for u, c in counts.items() if u < k) / total
        assert 1 - 2 * tail >= 0.95 or k == 0
        tail += counts.get(k, 0) / total
        assert k == n * m // 2 or 1 - 2 * tail < 0.95
    assert rank_sum_bound(3, 3) == 0
    assert rank_sum_bound(4, 4) == 1


def test_a_slowdown_has_an_interval_once_there_are_runs_enough() -> None:
    assert slowdown([10.0], [12.0]).interval is None
    result = slowdown([10.0, 10.1, 9.9, 10.0, 10.05], [12.4, 12.5, 12.6, 12.5, 12.45])
    assert result.ratio == pytest.approx(1.25, abs=0.01)
    assert result.interval is not None
    assert result.interval[0] < result.ratio < result.interval[1]
    with pytest.raises(MeshmarkError):
        slowdown([], [1.0])
    with pytest.raises(MeshmarkError):
        slowdown([0.0], [1.0])


def test_spans_fill_the_time_and_what_was_waited_before_is_put_before() -> None:
    # The thread sleeps for 1 s; at the next sample, it is waiting, and the one after that reports 0.15 s of waiting.
    samples = [[1.1, "R", 0, 0, 0, 0, 0], [1.2, "R", 1, 40_000_000, 150_000_000, 3, 1], [1.3, "S", 1, 0, 0, 0, 0]]
    spans, migrations, cpus = spans_of(samples, 0.0, 1.4, 0.0, 0.1)
    assert migrations == 1
    assert cpus == (1,)
    assert spans[0].from_s == 0
    assert spans[-1].to_s == 1.4
    assert all(a.to_s == b.from_s for a, b in itertools.pairwise(spans))
    for s in spans:
        assert s.user_s + s.system_s + s.waiting_s + s.sleeping_s == pytest.approx(s.wall_s)
    assert sum(s.waiting_s for s in spans) == pytest.approx(0.15)
    assert sum(s.user_s for s in spans) == pytest.approx(0.03)
    assert sum(s.system_s for s in spans) == pytest.approx(0.01)
    assert [s.moved for s in spans].count(True) == 1


look = st.tuples(
    st.floats(0.005, 0.4),
    st.sampled_from("RSD"),
    st.integers(0, 3),
    st.integers(0, 120_000_000),
    st.integers(0, 300_000_000),
    st.integers(0, 12),
    st.integers(0, 12),
)


@given(st.lists(look, max_size=30))
def test_spans_never_hold_more_than_their_time(steps: list[tuple[Any, ...]]) -> None:
    time_s, samples = 0.0, []
    for width, *rest in steps:
        time_s += width
        samples.append([time_s, *rest])
    spans, _, _ = spans_of(samples, 0.0, time_s + 0.1 if samples else None, 0.0, 0.1)
    for s in spans:
        assert min(s.user_s, s.system_s, s.waiting_s, s.sleeping_s) >= -1e-12
        assert s.user_s + s.system_s + s.waiting_s <= s.wall_s + 1e-9
        assert s.user_s + s.system_s + s.waiting_s + s.sleeping_s == pytest.approx(s.wall_s, abs=1e-9)
    assert all(a.to_s == b.from_s for a, b in itertools.pairwise(spans))
    if spans:
        bins = shares(spans, 0.0, spans[-1].to_s, 17)
        assert sum(sum(b) for b in bins) * spans[-1].to_s / 17 == pytest.approx(spans[-1].to_s, rel=1e-6)


def copy_of(program: str, **figures: Any) -> ProgramUse:
    return ProgramUse(**{"program": program, "copy": 0, "how": "ok", "ended_s": 1.0, **figures})


def run_of(programs: Sequence[ProgramUse] = (), spans: Sequence[ThreadSpan] = (), **more: Any) -> LoadRun:
    thread = ThreadUse(
        thread=0,
        program="a",
        copy=0,
        pid=1,
        tid=1,
        command="a",
        from_s=0.0,
        to_s=2.0,
        **dict.fromkeys(("user_s", "system_s", "waiting_s", "sleeping_s"), 0.0),
        migrations=0,
        cpus=(0,),
        spans=tuple(spans),
    )
    return LoadRun(
        **{
            "folder": Path("run"),
            "status": "ok",
            "bench_s": 2.0,
            "cpus": (0, 1),
            **{key: {} for key in ("header", "scenario", "bound", "windows", "end")},
            "events": [],
            "canary": [],
            "programs": list(programs),
            "threads": [thread],
            **more,
        }
    )


def test_the_use_of_cpus_is_spread_over_the_steps_that_a_span_covers() -> None:
    spans = (
        ThreadSpan(-0.25, 0.25, 0.5, 0.0, 0.0, 0.0, 0, False),  # half of the span is before the clock's start
        ThreadSpan(0.75, 1.25, 0.2, 0.2, 0.1, 0.0, 0, False),
        ThreadSpan(1.25, 1.5, 0.0, 0.0, 0.25, 0.0, 0, False),  # the thread only waited
        ThreadSpan(1.5, 2.5, 1.0, 0.0, 0.0, 0.0, 1, True),  # half of the span is after the end
    )
    one_cpu = utilisation(run_of(spans=spans, cpus=(0,)))
    assert [time_s for time_s, _ in one_cpu] == [0, 0.5, 1, 1.5]
    assert [share for _, share in one_cpu] == pytest.approx([0.5, 0.4, 0.4, 1.0])
    two_cpus = utilisation(run_of(spans=spans))
    assert [share for _, share in two_cpus] == pytest.approx([0.25, 0.2, 0.2, 0.5])
    assert [time_s for time_s, _ in utilisation(run_of(spans=spans), step_s=1.0)] == [0, 1]


def test_the_last_step_is_as_long_as_the_rest_of_the_run_and_no_use_exceeds_one() -> None:
    spans = (ThreadSpan(1.0, 1.25, 0.25, 0.0, 0.0, 0.0, 0, False),)
    assert utilisation(run_of(spans=spans, bench_s=1.25, cpus=(0,))) == [(0, 0), (0.5, 0), (1.0, pytest.approx(1))]
    assert max(share for _, share in utilisation(run_of(spans=spans * 3, cpus=(0,)))) == 1.0
    assert utilisation(run_of(bench_s=0.0)) == [(0, 0)]


def test_totals_are_over_the_programs_that_ran() -> None:
    programs = (
        copy_of("a", released_s=0.5, ended_s=2.0, user_s=1.0, system_s=0.25, waiting_s=0.125),
        copy_of("b", ended_s=1.0, user_s=0.5, system_s=0.25, waiting_s=0.25, how="status"),
        copy_of("c", ended_s=9.0, user_s=9.0, system_s=9.0, waiting_s=9.0, how="failed"),
    )
    totals = run_of(programs).totals()
    assert (totals.bench_s, totals.cpus, totals.available_s) == (2.0, 2, 4.0)
    assert (totals.user_s, totals.system_s, totals.idle_s, totals.utilisation) == (1.5, 0.5, 2.0, 0.5)
    assert (totals.completion_s, totals.run_s, totals.waiting_s) == (1.5, 2.5, 0.375)
    assert run_of().totals().completion_s == 0
    assert math.isnan(run_of(bench_s=0.0).totals().utilisation)


def test_fairness_is_over_speeds_where_the_time_alone_is_known_and_else_over_the_wanted_cpu_time() -> None:
    programs = (
        copy_of("a", ended_s=2.0, user_s=1.0, waiting_s=1.0),
        copy_of("b", ended_s=4.0, user_s=1.0),
        copy_of("c", user_s=1.0, waiting_s=99.0, how="signal"),
    )
    run = run_of(programs)
    assert run.fairness() == pytest.approx(jain([0.5, 1.0]))
    assert run.fairness({"a": 2.0, "b": 1.0}) == pytest.approx(jain([1.0, 0.25]))
    assert run.fairness({"b": 1.0, "c": 1.0}) == pytest.approx(1)
    assert math.isnan(run.fairness({}))


def test_what_spoils_a_run_is_flagged_above_its_limit() -> None:
    def machine(busy: float, steal: float) -> dict[str, Any]:
        return {"machine": {"busy_s": [busy, 0.0, 50.0], "steal_s": [steal, 0.0, 50.0]}}

    a = copy_of("a", user_s=1.0)
    assert run_of([a], end=machine(1.0, 0.04)).flags(a) == frozenset()  # a hundredth of 4 CPU seconds
    assert run_of([a], end=machine(1.0, 0.041)).flags(a) == {"stolen"}
    assert run_of([a], end=machine(3.0, 0.0)).flags(a) == {"disturbed"}
    assert run_of([a], status="timeout").flags(a) == {"stopped"}
    assert run_of([a], bound={("a", 0): (1,)}).flags(a) == {"migrated"}  # it ran on CPU 0
    assert run_of([a], bound={("a", 0): (0, 1)}).flags(a) == frozenset()
    assert run_of([a], scenario={"programs": [{"name": "a", "threads": 3}]}).flags(a) == {"oversubscribed"}
    assert run_of([a], scenario={"programs": [{"name": "a", "threads": 2}]}).flags(a) == frozenset()
    wrong = copy_of("a", user_s=1.0, done={"wrong": 1})
    assert run_of([wrong]).flags(wrong) == {"unverified"}
    for ending, flags in (
        ("timeout", {"stopped"}),
        ("stopped", {"stopped"}),
        ("cut", {"stopped"}),
        ("status", set()),
    ):
        program = copy_of("a", how=ending)
        assert run_of([program]).flags(program) == flags


def test_memory_elsewhere_than_asked_is_flagged_from_a_hundredth_and_a_mib_on_or_where_bound_at_once() -> None:
    def flags(elsewhere: int, memory: str = "") -> frozenset[str]:
        program = copy_of("a", pages={0: (1 << 28) - elsewhere, 1: elsewhere})
        return run_of(
            [program], nodes={("a", 0): (0,)}, scenario={"programs": [{"name": "a", "memory": memory}]}
        ).flags(program)

    assert flags((1 << 28) // 100) == frozenset()
    assert flags((1 << 28) // 100 + 1) == {"misplaced"}
    small = copy_of("a", pages={0: 1, 1: 1 << 20})
    assert run_of([small], nodes={("a", 0): (0,)}).flags(small) == frozenset()
    bound = {"programs": [{"name": "a", "memory": "bind=0"}]}
    assert run_of([small], nodes={("a", 0): (0,)}, scenario=bound).flags(small) == {"misplaced"}
    assert run_of([small]).flags(small) == frozenset()  # no memory placement was requested


def test_a_canary_drifts_by_the_change_of_its_median_and_needs_three_looks_each() -> None:
    def canary(before: Sequence[float], after: Sequence[float]) -> LoadRun:
        latencies = [("before", before), ("after", after)]
        return run_of(canary=[{"when": phase, "load_latency_s": s} for phase, times in latencies for s in times])

    run = canary([1e-7, 1e-7, 5e-7], [1.5e-7, 1.5e-7, 9e-7])
    assert run.canary_level("before") == 1e-7
    assert run.canary_drift() == pytest.approx(0.5)
    assert canary([2e-7] * 3, [1e-7] * 3).canary_drift() == pytest.approx(0.5)
    assert canary([1e-7] * 2, [2e-7] * 3).canary_drift() == 0
    assert canary([1e-7] * 3, [2e-7] * 2).canary_drift() == 0
    assert math.isnan(run.canary_level("during"))


def test_metrics_that_the_calibration_data_lack_are_named() -> None:
    variants = made_base(seed=1, thread_counts=(1,), most=20)
    user_metrics = parse_metrics(
        '[metric.mine]\nformula = "zebras / (apes * wall_s)"', "mine", counters=("apes", "zebras")
    )
    metrics = all_metrics(user_metrics)
    values_by_variant = of_variants(variants, metrics, ["memory_gb_per_s"])
    assert values_by_variant.keys() == {v.name for v in variants}
    assert all("memory_gb_per_s" in values and "mine" not in values for values in values_by_variant.values())
    with pytest.raises(UsageError, match=r"^metric mine: the calibration data have no apes$"):
        of_variants(variants, metrics, ["memory_gb_per_s", "mine"])


# Two-sided critical values of the Mann-Whitney U: Milton, JASA 59 (1964). A U up to the critical value is significant.
@pytest.mark.parametrize(
    ("n", "m", "confidence", "critical"),
    [
        (4, 4, 0.95, 0),
        (5, 5, 0.95, 2),
        (5, 5, 0.99, 0),
        (3, 5, 0.95, 0),
        (8, 10, 0.95, 17),
        (10, 8, 0.95, 17),
        (10, 10, 0.95, 23),
        (10, 10, 0.99, 16),
        (20, 20, 0.95, 127),
        (9, 20, 0.99, 36),
    ],
)
def test_the_bound_of_a_rank_sum_is_beyond_the_published_critical_value(
    n: int, m: int, confidence: float, critical: int
) -> None:
    assert rank_sum_bound(n, m, confidence) == critical + 1


def test_too_few_runs_have_no_bound_and_many_have_that_of_the_normal_distribution() -> None:
    assert [rank_sum_bound(n, m) for n, m in ((1, 1), (1, 38), (2, 7), (3, 4))] == [0, 0, 0, 0]
    assert rank_sum_bound(2, 8) == 1
    # mean 5100.5, deviation sqrt(101 * 101 * 203 / 12) = 415.41
    assert rank_sum_bound(101, 101) == int(5100.5 - 1.96 * 415.41) == 4286
    assert rank_sum_bound(1, 10_001) == 0  # the deviation exceeds half of the mean


def test_a_slowdown_is_the_median_of_all_ratios_between_two_of_them() -> None:
    result = slowdown([1.0, 2.0, 4.0, 8.0], [16.0, 32.0, 64.0, 128.0, 256.0])
    ratios = sorted(2.0 ** (t - a) for t in range(4, 9) for a in range(4))
    assert (result.ratio, result.alone, result.together) == (24, 4, 5)
    assert result.interval == (ratios[1], ratios[-2]) == (4, 128)  # critical value of 4 and 5: 1
    result = slowdown([1.0, 2.0, 4.0, 8.0], [16.0, 32.0, 64.0, 128.0])
    assert (result.ratio, result.interval, result.alone, result.together) == (16, (2, 128), 4, 4)
    result = slowdown([2.0], [3.0, 9.0])
    assert (result.ratio, result.interval, result.alone, result.together) == (3, None, 1, 2)
    assert slowdown([1e-9], [5.0]).ratio == pytest.approx(5e9)


@pytest.mark.parametrize(
    ("alone", "together"), [([], [1.0]), ([1.0], []), ([], []), ([0.0], [1.0]), ([1.0], [0.0]), ([1.0, -1.0], [1.0])]
)
def test_a_slowdown_needs_a_positive_time_of_each(alone: list[float], together: list[float]) -> None:
    with pytest.raises(MeshmarkError, match=r"^slowdown: found no run times, or times of 0 s"):
        slowdown(alone, together)


def test_jain_is_of_any_values() -> None:
    assert jain([1.0, 2.0, 3.0]) == pytest.approx(36 / (3 * 14))
    assert jain([0.5]) == 1
    assert math.isnan(jain([0.0, 0.0]))


def test_flags_look_at_the_copy_of_the_program_alone() -> None:
    scenario = {"programs": [{"name": "b", "threads": 9}, {"name": "a", "threads": 2}, {"name": "a", "threads": 9}]}
    a, undescribed = copy_of("a", copy=1), copy_of("c")
    assert run_of([a], scenario=scenario).flags(a) == frozenset()
    # The program is not described and counts as one thread.
    assert run_of([undescribed], scenario=scenario).flags(undescribed) == frozenset()
    # The thread of the run belongs to copy 0 of a and ran on CPU 0.
    assert run_of([a], bound={("a", 1): (1,)}).flags(a) == frozenset()
    assert run_of([undescribed], bound={("c", 0): (1,)}).flags(undescribed) == frozenset()
    # Two threads are too many if the program is bound to one of the two CPUs.
    assert run_of([a], scenario=scenario, bound={("a", 1): (1,)}).flags(a) == {"oversubscribed"}
    assert run_of([a], scenario=scenario, bound={("a", 1): (0, 1)}).flags(a) == frozenset()
    assert run_of([a], scenario=scenario, cpus=(1,)).flags(a) == {"oversubscribed"}
    # Each copy has its own memory nodes.
    far_copy = copy_of("a", copy=1, pages={0: 5 << 20, 1: 5 << 20})
    assert run_of([far_copy], nodes={("a", 0): (0,)}).flags(far_copy) == frozenset()
    assert run_of([far_copy], nodes={("a", 1): (0,)}).flags(far_copy) == {"misplaced"}
    assert run_of([far_copy], nodes={("a", 1): (0, 1)}).flags(far_copy) == frozenset()
    assert run_of([far_copy], nodes={("a", 1): (2,)}, scenario={"programs": [{"name": "a", "memory": None}]}).flags(
        far_copy
    ) == {"misplaced"}


def test_one_mib_of_what_may_go_elsewhere_is_not_flagged() -> None:
    def flags(elsewhere: int) -> frozenset[str]:
        program = copy_of("a", pages={0: 1, 1: elsewhere})
        return run_of([program], nodes={("a", 0): (0,)}).flags(program)

    assert (flags(1 << 20), flags((1 << 20) + 1)) == (frozenset(), {"misplaced"})


def test_time_of_other_processes_and_of_the_hypervisor_counts_on_the_cpus_of_the_programs() -> None:
    a = copy_of("a", user_s=1.0, system_s=0.5)
    b = copy_of("b", user_s=0.25, how="failed")

    def run(busy: Sequence[float], steal: Sequence[float] = (), **more: Any) -> LoadRun:
        end = {"machine": {"busy_s": busy, "steal_s": steal}, "sampling": {"cpu_s": 0.125}}
        return run_of([a, b], **{"end": end, "cpus": (0, 2), **more})

    assert run([1.5, 9.0, 1.5]).foreign_s() == 3.0 - 1.5 - 0.25 - 0.125
    assert run([1.5]).foreign_s() == 0  # CPU 2 is not recorded, and the result is never negative
    assert run([]).foreign_s() is None
    assert run_of([a]).foreign_s() is None
    assert run([0.0]).foreign_s([4.0, 9.0, 0.5]) == 4.5 - 1.875
    assert run_of([a]).foreign_s([4.0]) == 2.5
    # A twentieth of 4 CPU seconds is 0.2.
    assert run([2.0, 9.0, 0.0625]).flags(a) == frozenset()
    assert run([2.0, 9.0, 0.1]).flags(a) == {"disturbed"}
    # A hundredth is 0.04.
    assert run([], [0.02, 9.0, 0.02]).flags(a) == frozenset()
    assert run([], [0.02, 9.0, 0.021]).flags(a) == {"stolen"}
    assert run([], [0.05]).flags(a) == {"stolen"}
    assert run([], [9.0], bench_s=0.0).flags(a) == frozenset()


@pytest.mark.parametrize(("after", "flags"), [(1.09e-7, set()), (1.11e-7, {"disturbed"}), (0.89e-7, {"disturbed"})])
def test_a_canary_that_drifts_by_a_tenth_makes_a_run_noisy(after: float, flags: set[str]) -> None:
    latencies = [("before", 1e-7), ("during", 5e-7), ("after", after)]
    a = copy_of("a")
    run = run_of([a], canary=[{"when": phase, "load_latency_s": s} for phase, s in latencies for _ in range(3)])
    assert run.flags(a) == flags
    assert canary_text(run) == f"Memory latency: 100.0 ns before, 500.0 ns during, {1e9 * after:.1f} ns after"


def test_a_canary_that_was_silent_at_times_or_took_no_time_has_no_drift() -> None:
    run = run_of(canary=[{"when": "after", "load_latency_s": 1.25e-7}, {"t_s": 1.0, "load_latency_s": 1.0}])
    assert (canary_text(run), run.canary_drift()) == ("Memory latency: 125.0 ns after", 0)
    assert canary_text(run_of()) == ""
    zero = run_of(canary=[{"when": phase, "load_latency_s": 0.0} for phase in ("before", "after") for _ in range(3)])
    assert zero.canary_drift() == 0


def test_failures_are_named_with_their_copy_where_there_are_several_up_to_five() -> None:
    ok = copy_of("a")
    failed = copy_of("b", how="status", reason="exit status 1")
    assert failures_text(run_of([ok])) == ""
    assert failures_text(run_of([ok, failed])) == "1 of 2 programs failed: b: exit status 1"
    second_copy = copy_of("b", copy=1)
    assert failures_text(run_of([ok, failed, second_copy])) == "1 of 3 programs failed: b, copy 0: exit status 1"
    failures = [copy_of(f"p{i}", how="signal", reason="signal 9") for i in range(7)]
    reasons = "; ".join(f"p{i}: signal 9" for i in range(5))
    assert failures_text(run_of(failures[:5])) == f"5 of 5 programs failed: {reasons}"
    assert failures_text(run_of([*failures, ok])) == f"7 of 8 programs failed: {reasons}; and 2 more"


def test_use_at_the_borders_of_steps_and_beyond_them_counts_once() -> None:
    def used(*spans: ThreadSpan, **more: Any) -> list[float]:
        return [share for _, share in utilisation(run_of(spans=spans, cpus=(0, 1), **more))]

    assert used(ThreadSpan(0.5, 1.0, 0.25, 0.25, 0.0, 0.0, 0, False)) == [0, 0.5, 0, 0]
    assert used(ThreadSpan(0.25, 1.25, 0.5, 0.0, 0.0, 0.5, 0, False)) == [0.125, 0.25, 0.125, 0]
    assert used(ThreadSpan(1.75, 2.75, 1.0, 0.0, 0.0, 0.0, 0, False)) == [0, 0, 0, 0.25]
    assert used(ThreadSpan(-2.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0, False)) == [0, 0, 0, 0]
    assert used(ThreadSpan(3.0, 4.0, 1.0, 0.0, 0.0, 0.0, 0, False)) == [0, 0, 0, 0]
    assert used(ThreadSpan(1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0, False)) == [0, 0, 0, 0]  # no time, no use
    halves = [ThreadSpan(i / 4, (i + 1) / 4, 0.125, 0.0, 0.125, 0.0, 0, False) for i in range(8)]
    assert used(*halves) == [0.25] * 4
    assert used(ThreadSpan(0.0, 0.75, 0.75, 0.0, 0.0, 0.0, 0, False), bench_s=0.75) == [0.5, 0.5]
    assert utilisation(run_of(spans=halves, cpus=())) == [(0, 0.5), (0.5, 0.5), (1, 0.5), (1.5, 0.5)]
    assert used(ThreadSpan(0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0, False), bench_s=0.0) == [0.5]
