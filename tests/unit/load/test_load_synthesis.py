"""Test synthesis: plans meet the prescription, impossible prescriptions are explained, and files are complete."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.metrics import all_metrics, metric, parse_metrics
from meshmark.load.calibration.profile import TargetProfile, parse_profile
from meshmark.load.synthesis import MeasuredTimes, explain, recalibrate, synthesize
from meshmark.load.synthesis.mix import spread_evenly
from meshmark.load.synthesis.problem import ImpossibleError
from meshmark.load.synthesis.program import SyntheticProgram, dump_program, parse_program
from support.made_base import MIB, base, random_wish
from support.scenarios import one_line

METRICS = all_metrics()


# Sums of a program, computed call by call from its variants alone, without the code of the package.
def sums_of(program: SyntheticProgram) -> dict[str, float]:
    target = program.profile
    balance = target.load_balance
    sums = dict.fromkeys(("time", "flops", "ints", "reads", "writes", "cpu", "system", "io"), 0.0)
    sums["time"] = target.pace * target.run_time_s
    sums["cpu"] = sums["time"] * target.threads
    for part in program.parts:
        v, n = part.variant, part.calls
        sums["time"] += n * v.wall_s / balance
        sums["flops"] += n * v.flops
        sums["ints"] += n * v.int_ops
        sums["cpu"] += n * v.cpu_s
        sums["system"] += n * v.system_s
        sums["io"] += n * (v.io_read_bytes + v.io_write_bytes)
        if v.served_by == "memory":
            sums["reads"] += n * v.line_read_bytes
            sums["writes"] += n * v.line_write_bytes
    return sums


def behaviour(program: SyntheticProgram) -> dict[str, float]:
    s = sums_of(program)
    traffic = s["reads"] + s["writes"]
    return {
        "run_time_s": s["time"],
        "memory_gb_per_s": traffic / s["time"] / 1e9,
        "gflop_per_s": s["flops"] / s["time"] / 1e9,
        "gint_per_s": s["ints"] / s["time"] / 1e9,
        "io_gb_per_s": s["io"] / s["time"] / 1e9,
        "write_fraction": s["writes"] / traffic if traffic else math.nan,
        "system_share": s["system"] / s["cpu"],
    }


def check_met(program: SyntheticProgram) -> None:
    target, values = program.profile, behaviour(program)
    assert values["run_time_s"] == pytest.approx(target.run_time_s, rel=1e-3)
    for name, value in target.metrics.items():
        if name == "write_fraction":
            sums = sums_of(program)
            largest = max(
                (
                    v.line_read_bytes + v.line_write_bytes
                    for p in program.parts
                    if (v := p.variant).served_by == "memory"
                ),
                default=0.0,
            )
            # With little traffic, one call is a visible share of it, which a note states.
            is_stated = any("calls are indivisible" in n for n in program.notes)
            coarse = 0.6 * largest / (sums["reads"] + sums["writes"] or math.inf) if is_stated else 0.0
            assert abs(values[name] - value) <= max(5e-4, coarse)
        elif name in values:
            vs = [p.variant for p in program.parts]
            per_call = {
                "io_gb_per_s": [v.io_read_bytes + v.io_write_bytes for v in vs],
                "system_share": [v.system_s for v in vs],
            }
            total = {"io_gb_per_s": sums_of(program)["io"], "system_share": sums_of(program)["system"]}
            quantum = max(per_call[name]) / (total[name] or math.inf) if name in per_call else 0.0
            # Few variants do most of the I/O and system work, so these sums are as coarse as single calls.
            coarse = quantum > 1e-3
            assert values[name] == pytest.approx(value, rel=0.6 * quantum if coarse else 1e-3, abs=1e-12), name
            assert (
                not coarse
                or abs(values[name] / value - 1) < 1e-3
                or any("calls are indivisible" in n for n in program.notes)
            )
    assert sum(p.variant.volume_bytes for p in program.parts) <= target.memory_mib * MIB
    assert {p.variant.threads for p in program.parts} == {target.threads}
    assert all(p.calls >= 1 and 0 <= p.phase < 1 for p in program.parts)


# ------------------------------------------------------------------ possible prescriptions


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), pace=st.sampled_from([0.05, 0.3, 0.9]), threads=st.sampled_from([1, 2]))
def test_a_pace_leaves_its_share_of_the_time_to_no_kernel(seed: int, pace: float, threads: int) -> None:
    names = ("memory_gb_per_s", "gflop_per_s", "write_fraction", "system_share")
    target = random_wish(
        base(), random.Random(seed), run_time_s=20.0, threads=threads, seed=seed, names=names, kinds=("idle",)
    )
    metrics = {k: v if k == "write_fraction" else v * (1 - pace) for k, v in target.metrics.items()}
    program = synthesize(base(), dataclasses.replace(target, pace=pace, metrics=metrics, least_kernels=1))
    check_met(program)
    kernels_s = sum(p.calls * p.variant.wall_s for p in program.parts)
    assert kernels_s == pytest.approx((1 - pace) * 20.0, rel=2e-3)
    assert dump_program(parse_program(dump_program(program), "x")) == dump_program(program)


def test_an_impossible_pace_says_what_would_be_possible() -> None:
    target = random_wish(base(), random.Random(5), run_time_s=10.0)
    full_range = explain(base(), TargetProfile(run_time_s=10.0, metrics={"memory_gb_per_s": 1.0}))["memory_gb_per_s"]
    half_range = explain(base(), TargetProfile(run_time_s=10.0, metrics={"memory_gb_per_s": 1.0}, pace=0.5))[
        "memory_gb_per_s"
    ]
    assert full_range is not None
    assert half_range is not None
    assert half_range[1] == pytest.approx(full_range[1] / 2, rel=1e-6)
    with pytest.raises(ImpossibleError) as error:
        synthesize(base(), dataclasses.replace(target, pace=0.5, metrics={"memory_gb_per_s": 0.9 * full_range[1]}))
    assert error.value.nearest is not None
    assert error.value.nearest.metrics["memory_gb_per_s"] <= half_range[1] * (1 + 1e-6)


@example(seed=300, run_time_s=10.0, threads=1)  # the sums grow unevenly, which a note reports
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), run_time_s=st.sampled_from([10.0, 20.0, 60.0]), threads=st.sampled_from([1, 2]))
def test_what_a_mix_gives_can_be_prescribed_and_is_met_on_paper(seed: int, run_time_s: float, threads: int) -> None:
    target = random_wish(base(), random.Random(seed), run_time_s=run_time_s, threads=threads, seed=seed)
    program = synthesize(base(), target)
    check_met(program)
    assert len({p.variant.kernel for p in program.parts}) >= 20
    deviations = program.uniformity.worst_deviation
    assert deviations
    assert max(deviations.values()) <= 0.01 or any("deviates from even growth" in n for n in program.notes)
    if target.metrics["write_fraction"] > 0.05:
        assert max(deviations.values()) <= 0.01
    assert max(p.calls * p.variant.wall_s for p in program.parts) <= 0.21 * run_time_s
    assert not {"idle", "system"} & {p.variant.kind for p in program.parts}


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_system_time_and_files_can_be_prescribed(seed: int) -> None:
    names = ("memory_gb_per_s", "gint_per_s", "io_gb_per_s", "system_share")
    rng = random.Random(seed)
    target = random_wish(base(), rng, names=names, kinds=("idle",), mixed=400)
    assert target.metrics["system_share"] > 0
    check_met(synthesize(base(), target))


def test_without_a_wish_for_them_there_are_no_files_no_system_and_no_idling() -> None:
    program = synthesize(base(), TargetProfile(run_time_s=10.0))
    sums = sums_of(program)
    assert sums["io"] == 0
    assert not {"idle", "system"} & {p.variant.kind for p in program.parts}
    idle_program = synthesize(base(), TargetProfile(run_time_s=10.0, kernels=("idle_0", "stream_0"), least_kernels=2))
    assert idle_program.kernels == ("idle_0", "stream_0")


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), balance=st.floats(0.55, 0.95))
def test_uneven_shares_lengthen_every_call_and_are_planned_for(seed: int, balance: float) -> None:
    target = random_wish(base(), random.Random(seed), threads=2, load_balance=balance)
    program = synthesize(base(), target)
    check_met(program)
    assert sum(program.shares) == pytest.approx(1)
    assert np.mean(program.shares) / max(program.shares) == pytest.approx(balance)
    assert not any(p.variant.team for p in program.parts)


@pytest.mark.parametrize("memory_mib", [600, 200, 80])
def test_the_arrays_of_all_variants_fit_the_memory(memory_mib: int) -> None:
    for seed in range(4):
        target = random_wish(base(), random.Random(seed), memory_mib=memory_mib, mixed=12)
        program = synthesize(base(), target)
        assert program.memory_bytes <= memory_mib * MIB
        check_met(program)


def test_too_little_memory_says_how_much_is_enough() -> None:
    target = TargetProfile(run_time_s=10.0, memory_mib=9, metrics={"memory_gb_per_s": 2.0, "write_fraction": 0.3})
    with pytest.raises(UsageError) as error:
        synthesize(base(), target)
    message = one_line(error)
    if "memory_mib" in message:
        required_mib = float(message.split()[-1])
        check_met(synthesize(base(), dataclasses.replace(target, memory_mib=required_mib)))
    with pytest.raises(UsageError, match=r"memory_mib: found 0\.001; the smallest variant needs"):
        synthesize(base(), TargetProfile(run_time_s=1.0, memory_mib=0.001))


def test_a_wish_at_the_edge_takes_more_of_one_variant_and_says_so() -> None:
    best = max((v for v in base() if v.threads == 1), key=lambda v: v.flops / v.wall_s)
    program = synthesize(
        base(), TargetProfile(run_time_s=10.0, metrics={"gflop_per_s": best.flops / best.wall_s / 1e9})
    )
    assert behaviour(program)["gflop_per_s"] == pytest.approx(best.flops / best.wall_s / 1e9, rel=1e-3)
    assert any("of the time" in n for n in program.notes)
    assert any("kernels share the work" in n for n in program.notes)


def test_zero_and_one_are_met_exactly() -> None:
    no_traffic = synthesize(
        base(), TargetProfile(run_time_s=10.0, metrics={"memory_gb_per_s": 0.0, "gflop_per_s": 1.0})
    )
    assert sums_of(no_traffic)["reads"] + sums_of(no_traffic)["writes"] == 0
    check_met(no_traffic)
    only_reads = synthesize(
        base(), TargetProfile(run_time_s=10.0, metrics={"memory_gb_per_s": 2.0, "write_fraction": 0.0})
    )
    assert sums_of(only_reads)["writes"] == 0
    check_met(only_reads)


def test_a_fraction_alone_is_not_met_by_no_traffic() -> None:
    program = synthesize(base(), TargetProfile(run_time_s=10.0, metrics={"write_fraction": 0.4}))
    assert behaviour(program)["write_fraction"] == pytest.approx(0.4, abs=5e-4)


def test_short_programs_say_that_calls_are_whole() -> None:
    program = synthesize(base(), TargetProfile(run_time_s=0.02, metrics={"memory_gb_per_s": 2.0, "gflop_per_s": 1.0}))
    assert any("calls are indivisible" in n for n in program.notes)


def test_another_seed_is_another_program_of_the_same_behaviour() -> None:
    target = random_wish(base(), random.Random(5))
    first, repeated, reseeded = (synthesize(base(), dataclasses.replace(target, seed=s)) for s in (1, 1, 2))
    assert dump_program(first) == dump_program(repeated)
    assert [(p.variant.name, p.calls) for p in first.parts] != [(p.variant.name, p.calls) for p in reseeded.parts]
    check_met(reseeded)


def test_the_order_of_the_base_data_is_no_matter_for_what_is_promised() -> None:
    target = random_wish(base(), random.Random(6))
    check_met(synthesize(base()[::-1], target))


def test_kernels_can_be_chosen_and_left_out() -> None:
    names = ("stream_0", "stream_1", "dense_0", "compute_0", "solver_1")
    program = synthesize(base(), TargetProfile(run_time_s=10.0, kernels=names, least_kernels=5))
    assert set(program.kernels) == set(names)
    program = synthesize(base(), TargetProfile(run_time_s=10.0, without=names))
    assert not set(program.kernels) & set(names)
    with pytest.raises(UsageError, match="did you mean stream_0") as error:
        synthesize(base(), TargetProfile(run_time_s=10.0, kernels=("strem_0",)))
    one_line(error)
    with pytest.raises(UsageError, match="threads: found 3; the calibration data have variants with 1, 2"):
        synthesize(base(), TargetProfile(run_time_s=10.0, threads=3))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_dual_gives_what_a_general_solver_of_least_squares_gives(seed: int) -> None:
    from scipy.optimize import nnls

    rng = np.random.default_rng(seed)
    n, m = 30, 3
    equal = np.vstack([np.ones(n), rng.normal(size=(m - 1, n))])
    shares = rng.exponential(size=n) * (rng.random(n) < 0.5) + 1e-3
    shares /= shares.sum()
    weight = rng.uniform(0.5, 1.5, n)
    x = spread_evenly(equal, equal @ shares, weight, 1.0)
    assert x is not None
    assert np.abs(equal @ x - equal @ shares).max() < 1e-8
    scale = 1e5  # weight of the equations beside the ridge
    expected, _ = nnls(
        np.vstack([scale * equal, np.diag(weight**-0.5)]),
        np.concatenate([scale * (equal @ shares), np.zeros(n)]),
    )
    assert x == pytest.approx(expected, abs=1e-5)


# ------------------------------------------------------------------ impossible prescriptions


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), factor=st.sampled_from([3.0, 10.0, 100.0]), which=st.integers(0, 2))
def test_the_impossible_is_explained_and_what_is_offered_is_possible(seed: int, factor: float, which: int) -> None:
    target = random_wish(base(), random.Random(seed))
    name = sorted(target.metrics)[which]
    metrics = {
        **target.metrics,
        name: min(target.metrics[name] * factor, 0.999) if name == "write_fraction" else target.metrics[name] * factor,
    }
    target = dataclasses.replace(target, metrics=metrics)
    try:
        check_met(synthesize(base(), target))
        return
    except ImpossibleError as error:
        failure = error
    assert "\n" not in str(failure)
    assert set(failure.ranges) == set(metrics)
    assert failure.nearest is not None
    assert failure.nearest.metrics != metrics
    check_met(synthesize(base(), failure.nearest))
    # Values within the range of a metric are possible, and values beyond its end are not.
    for metric_name, span in failure.ranges.items():
        if span is None:
            continue
        low, high = span
        assert not low * (1 + 1e-6) < metrics[metric_name] < high * (1 - 1e-6)
        middle = low + 0.5 * (high - low)
        if high - low > 1e-3 * high:
            check_met(synthesize(base(), dataclasses.replace(target, metrics={**metrics, metric_name: middle})))
            with pytest.raises(ImpossibleError):
                synthesize(base(), dataclasses.replace(target, metrics={**metrics, metric_name: high * 1.01}))


def test_ranges_of_one_metric_are_those_of_its_best_and_worst_variant() -> None:
    rates = [v.flops / v.wall_s / 1e9 for v in base() if v.threads == 1 and v.kind not in ("idle", "system")]
    span = explain(base(), TargetProfile(run_time_s=1.0, metrics={"gflop_per_s": 1e6}))["gflop_per_s"]
    assert span == pytest.approx((min(rates), max(rates)))
    fractions = [
        v.line_write_bytes / (v.line_read_bytes + v.line_write_bytes)
        for v in base()
        if v.threads == 1 and v.served_by == "memory" and v.kind not in ("idle", "system")
    ]
    span = explain(base(), TargetProfile(run_time_s=1.0, metrics={"write_fraction": 0.99}))["write_fraction"]
    assert span == pytest.approx((min(fractions), max(fractions)), abs=1e-6)


def test_an_impossible_wish_reads_well() -> None:
    with pytest.raises(ImpossibleError) as error:
        synthesize(
            base(),
            TargetProfile(run_time_s=1.0, name="traffic", metrics={"memory_gb_per_s": 500.0, "gflop_per_s": 2.0}),
        )
    message = one_line(error)
    assert message.startswith(
        "traffic: no mix of the kernels gives gflop_per_s = 2, memory_gb_per_s = 500; possible while"
    )
    assert re.search(r"memory_gb_per_s [\d.e+-]+ to [\d.]+", message)
    assert re.fullmatch(
        r"the nearest feasible profile: gflop_per_s = [\d.]+, memory_gb_per_s = [\d.]+", error.value.hint
    )
    assert error.value.status == 2


# ------------------------------------------------------------------ calibration


def slowed(program: SyntheticProgram, rng: random.Random, noise: float = 0.0) -> dict[str, float]:
    """Return the seconds per call in a context that slows each kernel by a factor that depends on its name."""
    balance = program.profile.load_balance
    seconds = {v.name: v.wall_s * random.Random(v.name).uniform(1.2, 1.6) / balance for v in base()}
    return {p.variant.name: seconds[p.variant.name] * rng.gauss(1, noise) for p in program.parts}


def test_calibration_in_context_comes_to_the_prescribed_time_and_rates() -> None:
    rng = random.Random(1)
    for seed in range(5):
        target = random_wish(base(), random.Random(seed))
        target = dataclasses.replace(
            target, metrics={k: v if k == "write_fraction" else 0.5 * v for k, v in target.metrics.items()}
        )
        program = synthesize(base(), target)
        kernels = program.kernels
        errors = []
        for _ in range(4):
            per_call = slowed(program, rng)
            wall = sum(p.calls * per_call[p.variant.name] for p in program.parts)
            calibration = recalibrate(program, MeasuredTimes(wall_s=wall, per_call_s=per_call))
            errors.append(abs(calibration.error))
            program = calibration.program
            check_met(program)
            assert program.kernels == kernels
        assert errors[0] > 0.2
        assert errors[1] < 0.4 * errors[0]
        assert errors[3] < 0.02
        assert program.calibrations == 4


def test_calibration_by_totals_scales_all_times() -> None:
    program = synthesize(base(), TargetProfile(run_time_s=10.0, metrics={"memory_gb_per_s": 1.0, "gflop_per_s": 0.5}))
    calibration = recalibrate(program, MeasuredTimes(wall_s=13.0, cpu_s=12.5), damping=1.0)
    assert calibration.error == pytest.approx(0.3)
    before = {p.variant.name: p.variant.wall_s for p in program.parts}
    for p in calibration.program.parts:
        assert p.variant.wall_s == pytest.approx(1.3 * before[p.variant.name], rel=1e-3)
    check_met(calibration.program)


def test_calibration_stops_at_the_floor_and_refuses_nonsense() -> None:
    program = synthesize(base(), TargetProfile(run_time_s=10.0))
    calibration = recalibrate(program, MeasuredTimes(wall_s=10.2), floor=0.033)
    assert calibration.converged
    assert calibration.program is program
    assert not recalibrate(program, MeasuredTimes(wall_s=10.5), floor=0.033).converged
    for measured in (
        MeasuredTimes(wall_s=math.nan),
        MeasuredTimes(wall_s=-1.0),
        MeasuredTimes(wall_s=12.0, per_call_s={"x": 1.0}),
        MeasuredTimes(wall_s=12.0, per_call_s={program.parts[0].variant.name: 0.0}),
    ):
        with pytest.raises(UsageError) as error:
            recalibrate(program, measured)
        one_line(error)


# ------------------------------------------------------------------ file


def test_the_file_is_the_program() -> None:
    user_metrics = parse_metrics(
        '[metric.reads]\nformula = "memory_read_bytes / wall_s / 1e9"\nunit = "GB/s"', "own.toml"
    )
    metrics = all_metrics(user_metrics)
    target = parse_profile({"run_time_s": 20.0, "reads": 1.5, "gflop_per_s": 1.0, "threads": 2}, "x", metrics)
    program = synthesize(
        base(), target, own_metrics=user_metrics, machine="n042", versions={"stream_0": "1", "other": "2"}
    )
    text = dump_program(program)
    parsed = parse_program(text, "a.json")
    assert dump_program(parsed) == text
    assert parsed.planned() == program.planned()
    assert parsed.versions == {"stream_0": "1"} or "stream_0" not in program.kernels
    assert parsed.planned()["reads"] == pytest.approx(1.5, rel=1e-3)
    raw = json.loads(text)
    assert raw["format"] == "meshmark load program"
    assert raw["planned"]["metrics"]["reads"]["asked"] == 1.5
    assert text.count("\n") > len(program.parts)
    # The file contains everything that is needed to calibrate the program elsewhere.
    check_met(recalibrate(parsed, MeasuredTimes(wall_s=22.0)).program)


@cache
def small_file() -> str:
    target = TargetProfile(
        run_time_s=1.0, kernels=("stream_0", "dense_0"), least_kernels=2, metrics={"gflop_per_s": 1.0}
    )
    return dump_program(synthesize(base(), target))


SPOILT: list[Any] = [None, True, -1, 0, 1.5, 1e400, "", "x" * 5000, "a\nb", [], {}, [[]], {"x": 1}, 10**30, "triad\x00"]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_hostile_file_is_one_line(data: st.DataObject) -> None:
    raw = json.loads(small_file())
    node: Any = raw
    while True:
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(node[key], dict | list) and node[key] and data.draw(st.booleans()):
            node = node[key]
            continue
        change = data.draw(st.sampled_from(["spoil", "drop", "add"]))
        if change == "spoil":
            node[key] = data.draw(st.sampled_from(SPOILT))
        elif change == "drop":
            del node[key]
        elif isinstance(node, dict):
            node["surprise"] = 1
        else:
            node.append(data.draw(st.sampled_from(SPOILT)))
        break
    try:
        parse_program(json.dumps(raw), "evil.json")
    except MeshmarkError as error:
        assert "\n" not in str(error)
        assert str(error).startswith("evil.json")
        assert len(str(error)) < 600


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a program"),
        ('{"format": "meshmark load program", "version": 2}', "version: found 2"),
        ('{"format": NaN}', "NaN is not a number"),
        ('{"a": 1, "a": 2}', "occurs twice"),
        ("1" * 10_000, "not JSON"),
    ],
)
def test_what_is_no_program_says_why(text: str, said: str) -> None:
    with pytest.raises(MeshmarkError, match=re.escape(said)) as error:
        parse_program(text, "x.json")
    one_line(error)


def test_a_file_whose_plan_is_not_that_of_its_variants_is_refused() -> None:
    raw = json.loads(small_file())
    raw["variants"][0]["calls"] += 100
    with pytest.raises(MeshmarkError, match=r"planned\.run_time_s"):
        parse_program(json.dumps(raw), "x.json")
    raw = json.loads(small_file())
    raw["variants"][1]["threads"] = 2
    with pytest.raises(MeshmarkError, match=r"variants\[1\].threads: found 2; the program has 1"):
        parse_program(json.dumps(raw), "x.json")


# ------------------------------------------------------------------ prescriptions


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "run_time_s: found nothing"),
        ({"run_time_s": 0}, "run_time_s: found 0; allowed: a number from 0.001"),
        ({"run_time_s": True}, "run_time_s: found True"),
        ({"run_time_s": math.nan}, "run_time_s: found nan"),
        ({"run_time_s": "10s"}, "run_time_s: found '10s'"),
        ({"run_time_s": 1, "gflops": 2}, "gflops: unknown key; did you mean gflop_per_s?"),
        ({"run_time_s": 1, "copys": 2}, "copys: unknown key; did you mean copies?"),
        ({"run_time_s": 1, "zzzzzzzzzz": 2}, "zzzzzzzzzz: unknown key; allowed:"),
        ({"run_time_s": 1, "write_fraction": 1.5}, "write_fraction: found 1.5; allowed: a number from 0 to 1"),
        ({"run_time_s": 1, "gflop_per_s": -1}, "gflop_per_s: found -1; allowed: a number from 0 to 1e+18"),
        (
            {"run_time_s": 1, "write_fraction": 0.3, "memory_gb_per_s": 0},
            "write_fraction = 0.3 contradicts memory_gb_per_s = 0",
        ),
        ({"run_time_s": 1, "load_balance": 0.9}, "load_balance = 0.9 contradicts threads = 1"),
        ({"run_time_s": 1, "load_balance": 0.2, "threads": 4}, "load_balance = 0.2 contradicts threads = 4"),
        ({"run_time_s": 1, "kernels": "triad"}, "kernels: found 'triad'; allowed: a list"),
        ({"run_time_s": 1, "kernels": ["triad"], "without": ["triad"]}, "kernels and without both contain triad"),
        ({"run_time_s": 1, "threads": 1.5}, "threads: found 1.5; allowed: an integer"),
        ({"run_time_s": 1, "memory_mib": 0}, "memory_mib: found 0"),
        ({"run_time_s": 1, "least_kernels": 0}, "least_kernels: found 0"),
        ({"run_time_s": 1, "seed": -1}, "seed: found -1"),
        ({"run_time_s": 1, "pace": 1}, "pace: found 1; allowed: a number from 0 to 0.9"),
        ({"run_time_s": 1, "product": 1}, "product: can be reported, not prescribed"),
    ],
)
def test_a_bad_prescription_names_the_key(raw: dict[str, Any], said: str) -> None:
    metrics = all_metrics({"product": metric("product", "flops * wall_s")})
    with pytest.raises(UsageError, match=re.escape(said)) as error:
        parse_profile(raw, "scenario.toml: program traffic", metrics, ("copies", "start_s"))
    assert one_line(error).startswith("scenario.toml: program traffic")


def test_a_good_prescription_survives_its_own_writing() -> None:
    raw = {
        "name": "traffic",
        "run_time_s": 100,
        "memory_gb_per_s": 2.14,
        "write_fraction": 0.33,
        "threads": 4,
        "load_balance": 0.8,
        "kernels": ["b", "a"],
        "seed": 7,
        "copies": 3,
    }
    profile = parse_profile(raw, "x", METRICS, ("copies",))
    assert profile.metrics == {"memory_gb_per_s": 2.14, "write_fraction": 0.33}
    assert profile.kernels == ("a", "b")
    assert parse_profile(profile.to_json(), "x", METRICS) == profile
