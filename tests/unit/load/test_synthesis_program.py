"""Test complete syntheses with few variants: dropped variants, refused profiles, calibration from measured times."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from meshmark.errors import UsageError
from meshmark.load.calibration.metrics import metric
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant
from meshmark.load.synthesis import MeasuredTimes, explain, recalibrate, synthesize
from meshmark.load.synthesis.problem import ImpossibleError
from meshmark.load.synthesis.program import SyntheticProgram
from support.few_variants import flops, variant


def wish(**more: Any) -> TargetProfile:
    return TargetProfile(**{"run_time_s": 1.0, "name": "p", "least_kernels": 1, "most_share": 1.0, **more})


def parts(program: SyntheticProgram) -> dict[str, int]:
    return {p.variant.name: p.calls for p in program.parts}


# ------------------------------------------------------------------ synthesis


def test_a_synthesis_keeps_what_it_is_given() -> None:
    user_metrics = {"m": metric("m", "flops / cpu_s"), "n": metric("n", "int_ops / cpu_s")}
    target = wish(metrics={"m": 1e9}, seed=3)
    program = synthesize(flops(a=1), target, own_metrics=user_metrics, machine="n042", versions={"a": "2"})
    assert (program.profile, program.machine, program.versions) == (target, "n042", {"a": "2"})
    assert (program.own_metrics, program.calibrations, program.notes) == ({"m": user_metrics["m"]}, 0, ())
    plain = synthesize(flops(a=1), wish())
    assert (plain.machine, plain.versions, plain.own_metrics) == ("", {}, {})


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (wish(run_time_s=math.inf), "p: run_time_s: found inf; allowed: finite values of known metrics"),
        (wish(metrics={"gflop_per_s": math.nan}), "p: gflop_per_s: found nan; allowed: finite values of known metrics"),
        (wish(metrics={"speed": 1.0}), "p: speed: found 1.0; allowed: finite values of known metrics"),
    ],
)
def test_a_profile_of_unknown_or_infinite_values_is_refused(target: TargetProfile, says: str) -> None:
    with pytest.raises(UsageError) as error:
        synthesize(flops(a=1), target)
    assert str(error.value) == says


SPECIAL = [*flops(a=1, b=2), variant("calls", kind="system", flops=8e9), variant("sleep", kind="idle")]


@pytest.mark.parametrize(
    ("rate", "noted"),
    [(1.5, False), (3.0, True), (0.5, True)],  # mixes of a and b; of b and system calls; of a and the idle kernel
)
def test_system_and_idle_kernels_are_used_only_where_they_are_needed_and_that_is_noted(
    rate: float, noted: bool
) -> None:
    program = synthesize(SPECIAL, wish(run_time_s=100.0, metrics={"gflop_per_s": rate}))
    assert program.planned()["gflop_per_s"] == pytest.approx(rate, rel=1e-2)
    assert bool({"calls", "sleep"} & set(program.kernels)) == noted
    assert any(n.startswith("uses system or idle kernels") for n in program.notes) == noted


def test_what_is_impossible_even_with_system_kernels_is_told_with_their_range() -> None:
    with pytest.raises(ImpossibleError, match=r"possible: gflop_per_s 0 to 8$"):
        synthesize(SPECIAL, wish(metrics={"gflop_per_s": 9.0}))
    with pytest.raises(ImpossibleError, match=r"possible: gflop_per_s 1 to 2$"):
        synthesize(SPECIAL[:2], wish(metrics={"gflop_per_s": 9.0}))


def test_ranges_can_be_asked_for_of_usual_kernels() -> None:
    assert explain(SPECIAL, wish(metrics={"gflop_per_s": 9.0})) == {"gflop_per_s": pytest.approx((1, 2))}
    user_metrics = {"m": metric("m", "flops / wall_s")}
    assert explain(flops(a=1, b=2), wish(metrics={"m": 9.0}), own_metrics=user_metrics) == {
        "m": pytest.approx((1e9, 2e9))
    }
    pair = [variant(n, threads=2, wall_s=0.5, flops=f) for n, f in (("a", 1e9), ("b", 2e9))]
    uneven = explain(pair, wish(threads=2, load_balance=0.5, metrics={"gflop_per_s": 9.0}))
    assert uneven == {"gflop_per_s": pytest.approx((1, 2))}


PLAIN = [variant(f"p{i}", wall_s=1e-3) for i in range(5)]


def with_flops(name: str, wall_s: float) -> Variant:
    return variant(name, wall_s=wall_s, flops=wall_s * 1e9)


def test_variants_with_hardly_any_calls_are_dropped_where_others_do_their_work() -> None:
    # Half of 1.5 % of the time is less than a tenth of a call of the long variant.
    vs = [*PLAIN, with_flops("f/long", 0.1), with_flops("f/short", 1e-3)]
    program = synthesize(vs, wish(metrics={"gflop_per_s": 0.015}))
    assert parts(program)["f/short"] == 15
    assert "f/long" not in parts(program)
    # A long variant with one percent of the time is kept however few its calls are.
    assert "f/long" in parts(synthesize(vs, wish(metrics={"gflop_per_s": 0.05})))


def test_of_variants_that_the_profile_needs_those_without_a_whole_call_are_dropped() -> None:
    vs = [*PLAIN, with_flops("f", 0.01)]
    assert parts(synthesize(vs, wish(metrics={"gflop_per_s": 0.006})))["f"] == 1  # 0.6 calls
    assert "f" not in parts(synthesize(vs, wish(metrics={"gflop_per_s": 0.004})))


@pytest.mark.parametrize(("least_kernels", "kept"), [(7, True), (6, False), (1, False)])
def test_variants_with_few_calls_are_kept_for_the_number_of_kernels(least_kernels: int, kept: bool) -> None:
    vs = [*PLAIN, with_flops("f", 1e-3), with_flops("g", 5e-3)]  # g has 1 to 2 calls
    program = synthesize(vs, wish(metrics={"gflop_per_s": 0.015}, least_kernels=least_kernels))
    assert ("g" in program.kernels) == kept
    assert len(program.kernels) == 6 + kept


# ------------------------------------------------------------------ calibration


def calibrated(**more: Any) -> SyntheticProgram:
    vs = [
        variant("a", wall_s=0.02, cpu_s=0.01, system_s=0.005, flops=2e7, wall_interval_s=(0.019, 0.021)),
        variant("b", wall_s=0.01, cpu_s=0.01, flops=2e7),
    ]
    return synthesize(vs, wish(run_time_s=10.0, metrics={"gflop_per_s": 1.5}, **more), machine="n", versions={"a": "1"})


def times(program: SyntheticProgram) -> dict[str, tuple[float, float, float]]:
    return {p.variant.name: (p.variant.wall_s, p.variant.cpu_s, p.variant.system_s) for p in program.parts}


def test_times_move_to_the_measured_ones_by_the_damping() -> None:
    before = calibrated()
    assert parts(before) == {"a": 250, "b": 500}
    calibration = recalibrate(before, MeasuredTimes(wall_s=12.0), damping=0.5)
    assert (calibration.error, calibration.converged) == (pytest.approx(0.2), False)
    # Half of the change by 1.2 counts; without other figures, CPU time is scaled like wall time.
    assert times(calibration.program) == {
        "a": pytest.approx((0.022, 0.011, 0.0055)),
        "b": pytest.approx((0.011, 0.011, 0)),
    }
    assert calibration.program.calibrations == 1
    assert (calibration.program.machine, calibration.program.versions, calibration.program.profile) == (
        "n",
        {"a": "1"},
        before.profile,
    )
    assert all(p.variant.wall_interval_s is None for p in calibration.program.parts)
    assert recalibrate(calibration.program, MeasuredTimes(wall_s=12.0)).program.calibrations == 2


def test_seven_tenths_of_the_difference_count_by_default() -> None:
    assert times(recalibrate(calibrated(), MeasuredTimes(wall_s=12.0)).program)["b"] == pytest.approx(
        (0.0114, 0.0114, 0)
    )
    faster = recalibrate(calibrated(), MeasuredTimes(wall_s=8.0))
    assert faster.error == pytest.approx(-0.2)
    assert times(faster.program)["b"] == pytest.approx((0.0086, 0.0086, 0))


def test_cpu_time_has_a_factor_of_its_own() -> None:
    # 750 calls have 7.5 s of CPU time.
    calibration = recalibrate(calibrated(), MeasuredTimes(wall_s=12.0, cpu_s=15.0), damping=1.0)
    assert times(calibration.program) == {
        "a": pytest.approx((0.024, 0.02, 0.01)),
        "b": pytest.approx((0.012, 0.02, 0)),
    }


def test_each_variant_has_its_measured_time_and_the_others_the_mean_factor() -> None:
    calibration = recalibrate(calibrated(), MeasuredTimes(wall_s=12.0, cpu_s=15.0, per_call_s={"a": 0.03}), damping=0.5)
    # Factors of a: wall 1.5, CPU 1.5 x 2 / 1.2 = 2.5; of b: 1.2 and 2. Half of the excess over 1 counts.
    assert times(calibration.program) == {
        "a": pytest.approx((0.025, 0.0175, 0.00875)),
        "b": pytest.approx((0.011, 0.015, 0)),
    }


def test_measured_times_of_uneven_shares_are_those_of_the_slowest_thread() -> None:
    vs = [variant(n, threads=2, wall_s=0.01, cpu_s=0.02, flops=f) for n, f in (("a", 1e7), ("b", 2e7))]
    program = synthesize(vs, wish(run_time_s=10.0, threads=2, load_balance=0.5, metrics={"gflop_per_s": 0.75}))
    calibration = recalibrate(program, MeasuredTimes(wall_s=11.0, per_call_s={"a": 0.03}), damping=1.0)
    assert times(calibration.program)["a"][0] == pytest.approx(0.015)
    assert times(calibration.program)["b"][0] == pytest.approx(0.011)


def test_rates_and_time_of_the_profile_hold_with_the_new_times() -> None:
    after = recalibrate(
        calibrated(), MeasuredTimes(wall_s=12.0, per_call_s={"a": 0.022, "b": 0.011}), damping=1.0
    ).program
    planned = after.planned()
    assert planned["run_time_s"] == pytest.approx(10, rel=2e-3)
    assert planned["gflop_per_s"] == pytest.approx(1.5, rel=2e-3)
    # Each of 750 calls has 2e7 operations; calls of 22 ms and 11 ms fill 10 s.
    assert parts(after) == {"a": 159, "b": 591}


def test_shares_change_as_little_as_the_profile_allows() -> None:
    vs = [variant(n, wall_s=1e-3) for n in "abcd"]
    before = synthesize(vs, wish(run_time_s=10.0))
    after = recalibrate(before, MeasuredTimes(wall_s=20.0), damping=1.0).program
    # All variants take twice the time, so they have half of the calls.
    assert [p.calls for p in after.parts] == pytest.approx([p.calls / 2 for p in before.parts], abs=1)
    slow_program = recalibrate(before, MeasuredTimes(wall_s=20.0, per_call_s={"a": 4e-3}), damping=1.0).program
    share = {p.variant.name: p.calls * p.variant.wall_s for p in slow_program.parts}
    old_share = {p.variant.name: p.calls * p.variant.wall_s for p in before.parts}
    # Before the correction, a has 4 times and the others twice their time; then the sum is scaled to 1.
    total = sum(old_share.values()) * 2 + old_share["a"] * 2
    expected = {k: v * (4 if k == "a" else 2) / total * 10 for k, v in old_share.items()}
    assert share == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("pace", [0.0, 0.25, 0.5])
def test_the_largest_share_grows_by_a_fifth_at_most(pace: float) -> None:
    vs = [variant("a", wall_s=1e-3), variant("b", wall_s=1e-3, flops=2e6), variant("c", wall_s=1e-3, flops=1e6)]
    target = wish(run_time_s=100.0, most_share=0.2, pace=pace, metrics={"gflop_per_s": 1.1 * (1 - pace)})
    program = synthesize(vs, target)
    busy = 1 - pace
    counts = [round(n * busy) for n in (30_000, 40_000, 30_000)]
    before = dataclasses.replace(
        program, parts=tuple(dataclasses.replace(p, calls=n) for p, n in zip(program.parts, counts, strict=True))
    )
    after = recalibrate(
        before, MeasuredTimes(wall_s=118.0, per_call_s=dict.fromkeys("abc", 1.2e-3)), damping=1.0
    ).program
    share = {p.variant.name: p.calls * p.variant.wall_s / 100 for p in after.parts}
    # At 20 % slower calls, b would need half of the time. It gets at most 1.2 x 40 %; c does the rest instead of a.
    assert share["b"] == pytest.approx(0.48 * busy, rel=1e-3)
    assert share["c"] == pytest.approx((1.1 * 1.2 - 2 * 0.48) * busy, rel=1e-3)


def test_a_pace_stays_as_it_is() -> None:
    program = synthesize(flops(a=0.01, b=0.02), wish(run_time_s=100.0, pace=0.5, metrics={"gflop_per_s": 0.0075}))
    assert parts(program) == {"a": 25, "b": 25}
    after = recalibrate(program, MeasuredTimes(wall_s=105.0), damping=1.0).program
    assert after.planned()["run_time_s"] == pytest.approx(100, rel=1e-2)
    assert after.profile.pace == 0.5


def test_phases_and_the_note_on_system_kernels_are_kept() -> None:
    vs = [*flops(a=0.01), variant("sleep", kind="idle")]
    before = synthesize(vs, wish(run_time_s=1000.0, least_kernels=3, metrics={"gflop_per_s": 0.005}))
    assert [n.split()[0] for n in before.notes] == ["uses", "2"]
    shifted = dataclasses.replace(
        before, parts=tuple(dataclasses.replace(p, phase=q) for p, q in zip(before.parts, (0.5, 0.125), strict=True))
    )
    after = recalibrate(shifted, MeasuredTimes(wall_s=1001.0)).program
    assert [p.phase for p in after.parts] == [0.5, 0.125]
    assert [n.split()[0] for n in after.notes] == ["uses", "2"]


def test_own_metrics_hold_after_a_calibration() -> None:
    user_metrics = {"m": metric("m", "flops / cpu_s")}
    program = synthesize(flops(a=1, b=2), wish(run_time_s=100.0, metrics={"m": 1.5e9}), own_metrics=user_metrics)
    after = recalibrate(program, MeasuredTimes(wall_s=110.0)).program
    assert after.own_metrics == user_metrics
    assert after.planned()["m"] == pytest.approx(1.5e9, rel=2e-2)


@pytest.mark.parametrize(
    ("wall_s", "floor", "converged"),
    [(11.0, 0.1, True), (9.0, 0.1, True), (11.001, 0.1, False), (8.999, 0.1, False), (10.001, 0.0, False)],
)
def test_an_error_within_the_floor_changes_nothing(wall_s: float, floor: float, converged: bool) -> None:
    before = calibrated()
    calibration = recalibrate(before, MeasuredTimes(wall_s=wall_s), floor=floor + 1e-12)
    assert calibration.converged == converged
    assert (calibration.program is before) == converged
    assert calibration.error == pytest.approx(wall_s / 10 - 1)


@pytest.mark.parametrize(
    ("measured", "damping", "says"),
    [
        (MeasuredTimes(wall_s=12.0), 0.0, "damping: found 0.0; allowed: above 0, at most 1"),
        (MeasuredTimes(wall_s=12.0), 1.01, "damping: found 1.01; allowed: above 0, at most 1"),
        (MeasuredTimes(wall_s=0.0), 1.0, "wall_s: found 0.0; allowed: a time > 0"),
        (MeasuredTimes(wall_s=math.inf), 1.0, "wall_s: found inf; allowed: a time > 0"),
        (MeasuredTimes(wall_s=12.0, cpu_s=0.0), 1.0, "cpu_s: found 0.0; allowed: a time > 0"),
        (MeasuredTimes(wall_s=12.0, per_call_s={"b": -1.0}), 1.0, "b: found -1.0; allowed: a time > 0"),
        (MeasuredTimes(wall_s=12.0, per_call_s={"c": 1.0}), 1.0, "measured 'c', which is not in the program"),
    ],
)
def test_a_measurement_without_meaning_is_refused(measured: MeasuredTimes, damping: float, says: str) -> None:
    with pytest.raises(UsageError) as error:
        recalibrate(calibrated(), measured, damping=damping)
    assert str(error.value) == f"p: {says}"


def test_times_with_which_the_variants_cannot_meet_the_profile_are_refused_with_what_is_possible() -> None:
    with pytest.raises(ImpossibleError, match="possible: gflop_per_s") as error:
        recalibrate(calibrated(), MeasuredTimes(wall_s=40.0), damping=1.0)
    # The variants are four times as slow, so the range is 0.25 to 0.5 instead of 1 to 2.
    assert error.value.ranges == {"gflop_per_s": pytest.approx((0.25, 0.5))}


def test_a_share_may_grow_where_the_new_times_require_it() -> None:
    # With the new times, b needs nearly all of the time, which is more than 1.2 times its share.
    before = calibrated(most_share=0.2)
    after = recalibrate(before, MeasuredTimes(wall_s=12.0, per_call_s={"a": 0.02, "b": 0.0133}), damping=1.0).program
    time_of = {p.variant.name: p.calls * p.variant.wall_s for p in after.parts}
    assert time_of["b"] == pytest.approx(10, rel=0.03)
    assert after.planned()["gflop_per_s"] == pytest.approx(1.5, rel=1e-2)
