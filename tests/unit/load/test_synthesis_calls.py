"""Test the integer numbers of calls, and the notes and metadata of a finished program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meshmark.load.calibration.metrics import all_metrics, metric
from meshmark.load.synthesis.calls import finish_program
from meshmark.load.synthesis.problem import MixProblem
from meshmark.load.synthesis.program import SyntheticProgram
from support.few_variants import flops, problem, variant


def finished(made: MixProblem, *x: float, **more: Any) -> SyntheticProgram:
    user_metrics = more.pop("own", {})
    defaults: dict[str, Any] = {"machine": "", "versions": {}, "phases": None, "calibrations": 0, "notes": []}
    return finish_program(made, np.array(x), all_metrics(user_metrics), user_metrics, **{**defaults, **more})


def calls(program: SyntheticProgram) -> list[int]:
    return [p.calls for p in program.parts]


# ------------------------------------------------------------------ integer numbers of calls


@pytest.mark.parametrize(
    ("seconds", "x", "expected"),
    [
        ([0.5, 0.25], [0.5, 0.5], [10, 20]),
        ([0.5, 0.25], [0.52, 0.48], [10, 20]),  # 10.4 and 19.2 are rounded down, then one call is added
        ([1.0, 2.0], [0.46, 0.54], [4, 3]),  # 4.6 and 2.7 would be 11 s
        ([0.3, 0.5], [0.5, 0.5], [15, 11]),  # 17 and 10 are 0.1 s too long: two calls are removed and one is added
        ([1.0, 20.0], [1.0, 0.0], [2, 1]),  # each variant keeps at least one call; from two calls, none is removed
    ],
)
def test_calls_are_rounded_and_then_repaired_until_the_time_is_right(
    seconds: list[float], x: list[float], expected: list[int]
) -> None:
    mix_problem = problem([variant(f"k{i}", wall_s=s) for i, s in enumerate(seconds)])
    counts = calls(finished(mix_problem, *x))
    if seconds == [0.5, 0.25]:
        assert counts[0] * 0.5 + counts[1] * 0.25 == 10
        assert abs(counts[0] - x[0] * 20) <= 1
    else:
        assert counts == expected


def test_no_exchange_of_two_calls_comes_nearer_to_time_and_rate() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        # The times give thousands of calls, so that the errors of time and rate have similar weight.
        seconds = rng.uniform(0.2e-3, 0.9e-3, 4)
        rates = rng.uniform(0.5, 4, 4)
        x = rng.dirichlet(np.ones(4) * 4)
        vs = [
            variant(f"k{i}", wall_s=s, flops=r * s * 1e9) for i, (s, r) in enumerate(zip(seconds, rates, strict=True))
        ]
        mix_problem = problem(vs, metrics={"gflop_per_s": float(rates @ x)})
        equal, rhs = mix_problem.equations()
        counts = np.array(calls(finished(mix_problem, *x)))
        one_call = np.vstack([np.eye(4), -np.eye(4), np.zeros((1, 4))])
        changes = (one_call[:, None, :] + one_call[None, :, :]).reshape(-1, 4)
        errors = np.linalg.norm((counts + changes) * seconds / 10 @ equal.T - rhs, axis=1)
        assert np.linalg.norm(equal @ (counts * seconds / 10) - rhs) <= 1.1 * errors.min() + 1e-5
        assert np.abs(counts * seconds / 10 - x).max() <= 0.05 * x.max()


def test_a_sum_of_a_few_large_calls_does_not_dominate_the_time() -> None:
    mix_problem = problem([variant("a", wall_s=0.01), variant("b", int_ops=1e9)], metrics={"gint_per_s": 0.25})
    program = finished(mix_problem, 0.75, 0.25)
    small, large = calls(program)
    assert (large, small * 0.01 + large) in {(2, 10), (3, 10)}
    # The number of calls is 2 or 3 instead of 2.5.
    assert note_of(program, "indivisible").startswith("sums are up to 20 % off")


@pytest.mark.parametrize(
    ("seconds", "run_time_s", "rounded", "expected"),
    [
        ([1.0], 2.0, [3], [2]),
        ([1.0], 1.0, [2], [2]),  # the last two calls are kept
        ([1.0], 20.0, [3], [20]),
        ([0.3, 0.5], 1.3, [3, 1], [1, 2]),  # two calls are removed and one is added
        ([0.3, 0.5], 1.5, [2, 2], [2, 2]),  # without two calls, none would be left
        ([5.0, 5.0, 5.0, 5.0], 10.0, [0.5, 0.5, 0.5, 0.5], [1, 1, 1, 1]),
    ],
)
def test_calls_are_taken_away_down_to_one_or_two(
    seconds: list[float], run_time_s: float, rounded: list[float], expected: list[int]
) -> None:
    mix_problem = problem([variant(f"k{i}", wall_s=s) for i, s in enumerate(seconds)], run_time_s=run_time_s)
    shares = [n * s / run_time_s for n, s in zip(rounded, seconds, strict=True)]
    assert calls(finished(mix_problem, *shares)) == expected


# ------------------------------------------------------------------ notes


def note_of(program: SyntheticProgram, word: str) -> str:
    (note,) = [n for n in program.notes if word in n]
    return note


def test_sums_that_whole_calls_miss_are_noted_beyond_a_thousandth() -> None:
    mix_problem = problem([variant("a", wall_s=0.9)], least_kernels=1, most_share=1.0)
    assert note_of(finished(mix_problem, 1.0), "indivisible").startswith("sums are up to 1 % off")  # 11 calls: 9.9 s
    for seconds, noted in ((0.9991, False), (0.9989, True)):
        mix_problem = problem([variant("a", wall_s=seconds)], least_kernels=1, most_share=1.0)
        assert any("indivisible" in n for n in finished(mix_problem, 1.0).notes) == noted


@pytest.mark.parametrize("line_bytes", [1e9, 0.5])
def test_an_error_is_relative_to_the_actual_denominator(line_bytes: float) -> None:
    vs = [variant("reads", line_read_bytes=line_bytes), variant("writes", line_write_bytes=line_bytes)]
    keys: dict[str, Any] = {"least_kernels": 1, "most_share": 1.0}
    program = finished(problem([*vs, variant("none")], metrics={"write_fraction": 0.5}, **keys), 0.2, 0.2, 0.6)
    assert calls(program) == [2, 2, 6]
    assert not any("indivisible" in n for n in program.notes)
    # 3 or 2 of 10 calls write, but the target is 0.25: the difference of 0.05 is a tenth of 0.5.
    program = finished(problem(vs, metrics={"write_fraction": 0.25}, **keys), 0.75, 0.25)
    assert calls(program) in ([7, 3], [8, 2])
    assert note_of(program, "indivisible").startswith("sums are up to 10 % off")


def test_too_few_kernels_are_noted() -> None:
    mix_problem = problem(flops(a=1, b=1), least_kernels=3, most_share=1.0)
    assert note_of(finished(mix_problem, 0.5, 0.5), "kernels share").startswith(
        "2 kernels share the work, fewer than 3:"
    )
    mix_problem = problem(flops(a=1, b=1), least_kernels=2, most_share=1.0)
    assert finished(mix_problem, 0.5, 0.5).notes == ()


@pytest.mark.parametrize(("most", "noted"), [(0.5, True), (0.56, True), (0.58, False), (0.6, False)])
def test_a_share_above_the_maximum_is_noted_beyond_five_percent(most: float, noted: bool) -> None:
    mix_problem = problem([variant("a", wall_s=0.5), variant("b")], least_kernels=1, most_share=most)
    program = finished(mix_problem, 0.6, 0.4)
    assert calls(program) == [12, 4]
    assert [n for n in program.notes if "of the time" in n] == (
        ["a has 60 % of the time: the target profile requires it"] if noted else []
    )


def test_a_share_is_that_of_a_slowest_thread() -> None:
    vs = [variant(n, wall_s=0.75, threads=2) for n in "ab"]
    mix_problem = problem(vs, threads=2, load_balance=0.75, least_kernels=1, most_share=0.55)
    program = finished(mix_problem, 0.6, 0.4)
    assert calls(program) == [6, 4]  # calls of 1 s
    assert note_of(program, "of the time").startswith("a has 60 %")


def test_uneven_growth_is_noted_with_the_sum_that_is_worst() -> None:
    vs = [variant("a", wall_s=5.0, flops=5e9), variant("b", wall_s=5.0, int_ops=5e8)]
    metrics = {"gflop_per_s": 0.5, "gint_per_s": 0.05}
    program = finished(problem(vs, metrics=metrics, least_kernels=1, most_share=1.0), 0.5, 0.5)
    worst = program.uniformity.worst_deviation
    assert worst.keys() == metrics.keys()
    top = max(worst, key=lambda k: worst[k])
    assert note_of(program, "deviates").startswith(f"{top} deviates from even growth by up to 50 % of its total")
    even = finished(problem([variant("a", wall_s=0.01, flops=1e7)], metrics={"gflop_per_s": 1.0}, least_kernels=1), 1.0)
    assert not any("deviates" in n for n in even.notes)


def test_given_notes_come_first() -> None:
    mix_problem = problem(flops(a=1, b=1), least_kernels=3, most_share=1.0)
    program = finished(mix_problem, 0.5, 0.5, notes=["uses system or idle kernels: really"])
    assert program.notes[0] == "uses system or idle kernels: really"
    assert len(program.notes) == 2


# ------------------------------------------------------------------ the rest of a program


def test_sums_that_grow_evenly_are_numerators_and_denominators_other_than_time() -> None:
    user_metrics = {"per_int": metric("per_int", "flops / (2 * int_ops)"), "ten": metric("ten", "flops / 10")}
    vs = [variant("a", flops=1e9, int_ops=1e9, line_read_bytes=1e9, wall_s=0.5)]
    metrics = {"per_int": 0.5, "gflop_per_s": 2.0, "write_fraction": 0.0, "memory_gb_per_s": 2.0, "ten": 1e8}
    program = finished(problem(vs, user_metrics, metrics), 1.0, own=user_metrics)
    assert program.uniformity.worst_deviation.keys() == {
        "gflop_per_s",
        "memory_gb_per_s",
        "per_int",
        "per_int (denominator)",
        "ten",
        "write_fraction (denominator)",  # the numerator is absent since nothing is written
    }
    # All 20 calls have the same time and work, so the sums grow along a straight line.
    assert program.uniformity.worst == pytest.approx(0, abs=1e-12)


def test_a_program_carries_where_it_comes_from() -> None:
    user_metrics = {"used": metric("used", "flops / wall_s"), "other": metric("other", "int_ops / wall_s")}
    mix_problem = problem(flops(a=1, b=3), user_metrics, {"used": 2e9}, least_kernels=1)
    origin = {"machine": "n042", "versions": {"a": "1", "c": "2"}, "calibrations": 3}
    program = finished(mix_problem, 0.5, 0.5, own=user_metrics, **origin)
    assert (program.machine, program.versions, program.calibrations) == ("n042", {"a": "1", "c": "2"}, 3)
    assert program.own_metrics == {"used": user_metrics["used"]}
    assert program.profile is mix_problem.target
    assert [p.variant.name for p in program.parts] == ["a", "b"]


def test_parts_carry_the_time_of_one_thread_where_it_is_known() -> None:
    vs = [
        variant("a/1", stride=1, window=2, wall_s=0.5),
        variant("a/2", stride=1, window=4, wall_s=0.25, threads=2),
        variant("b/2", threads=2, wall_s=0.25),
    ]
    mix_problem = problem(vs, threads=2, least_kernels=1).only(np.array([1, 2]))
    program = finished(mix_problem, 0.5, 0.5)
    assert [p.variant.serial_s for p in program.parts] == [1.0, None]
    assert not any(math.isnan(p.phase) for p in program.parts)


def test_the_search_for_phases_begins_with_the_given_ones() -> None:
    mix_problem = problem([variant("a", wall_s=0.01, flops=1e7), variant("b", wall_s=0.01, flops=1e7)], least_kernels=1)
    program = finished(mix_problem, 0.5, 0.5, phases=np.array([0.25, 0.75]))
    assert [p.phase for p in program.parts] == [0.25, 0.75]
    assert finished(mix_problem, 0.5, 0.5).parts[0].phase == 0
