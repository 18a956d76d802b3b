"""Test the equations of a synthesis and the variants that it may use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshmark.errors import UsageError
from meshmark.load.calibration.metrics import LoadMetric, all_metrics, metric
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant, VariantColumns
from meshmark.load.synthesis.problem import ImpossibleError, TargetRow, parts_of, presolved, usable_variants
from support.few_variants import flops, problem, variant

MIB = 1 << 20


# ------------------------------------------------------------------ equations


def row(**more: Any) -> TargetRow:
    fields: dict[str, Any] = {"name": "m", "value": 2.0, "over_constant": 0.0, "under_constant": 0.0}
    fields |= {"over": np.array([1.0, 6.0]), "under": np.array([2.0, 1.0]), "pinned": True, "typical": 4.0}
    return TargetRow(**{**fields, **more})


@pytest.mark.parametrize(
    ("given", "value", "coefficients", "rhs"),
    [
        ({}, None, [-3 / 8, 4 / 8], 0),  # over - 2 under, divided by 2 x 4
        ({}, 3.0, [-5 / 12, 3 / 12], 0),
        ({"value": -2.0}, None, [5 / 8, 8 / 8], 0),
        ({"over_constant": 3.0, "under_constant": 5.0}, None, [-3 / 8, 4 / 8], 7 / 8),
        ({"name": "write_fraction", "value": 0.25}, None, [0.5 / 2, 5.75 / 2], 0),  # absolute: 0.5 x 4
        ({"name": "write_fraction", "value": 0.75}, None, [-0.5 / 3, 5.25 / 3], 0),
        ({"name": "write_fraction", "value": 0.0}, None, [1 / 2, 6 / 2], 0),
        ({"value": 0.0, "over_constant": -3.0}, None, [1 / 6, 6 / 6], 3 / 6),  # divided by the largest coefficient
        ({"value": 0.0, "over": np.array([-9.0, 6.0])}, None, [-1, 6 / 9], 0),
        ({"value": 0.0, "over": np.zeros(2), "over_constant": -3.0}, None, [0, 0], 3),
        ({"value": 0.0, "over": np.zeros(0), "under": np.zeros(0)}, None, [], 0),
    ],
)
def test_an_equation_is_scaled_to_relative_errors(
    given: dict[str, Any], value: float | None, coefficients: list[float], rhs: float
) -> None:
    c, b = row(**given).equation(value)
    assert c == pytest.approx(np.array(coefficients))
    assert b == pytest.approx(rhs)


def test_a_problem_is_the_sum_of_the_shares_and_one_equation_per_metric() -> None:
    mix_problem = problem(flops(a=1, b=4), metrics={"gflop_per_s": 2.0}, pace=0.25)
    equal, rhs = mix_problem.equations()
    assert equal == pytest.approx(np.array([[1, 1], [-0.5, 1]]))  # (rate - 2) / 2
    assert rhs == pytest.approx(np.array([0.75, 0.25]))  # the denominator includes the busy-waiting time
    part = mix_problem.only(np.array([1]))
    assert part.equations()[0] == pytest.approx(np.array([[1], [1]]))
    assert [v.name for v in part.table.variants] == ["b"]
    assert part.target is mix_problem.target
    assert part.seconds.tolist() == [1]


def test_rows_are_rates_sorted_by_the_name_of_their_metric() -> None:
    vs = [
        variant("a", wall_s=2.0, flops=4e9, line_read_bytes=6e9, line_write_bytes=2e9),
        variant("b", wall_s=0.5, flops=1e9, line_read_bytes=1e9),
    ]
    rows = problem(vs, metrics={"write_fraction": 0.2, "gflop_per_s": 1.0, "memory_gb_per_s": 3.0}).rows
    assert [(r.name, r.value) for r in rows] == [("gflop_per_s", 1), ("memory_gb_per_s", 3), ("write_fraction", 0.2)]
    assert [r.over.tolist() for r in rows] == [[2e9, 2e9], [4e9, 2e9], [1e9, 0]]
    assert [r.under.tolist() for r in rows] == [[1e9, 1e9], [1e9, 1e9], [4e9, 2e9]]
    assert [r.pinned for r in rows] == [True, True, True]
    assert [r.typical for r in rows] == [1e9, 1e9, 3e9]  # memory_gb_per_s determines the traffic


def test_a_denominator_that_no_other_metric_gives_is_guessed_from_the_largest() -> None:
    vs = [variant("a", wall_s=2.0, line_read_bytes=8e9), variant("b", line_write_bytes=1e9)]
    for further_metrics in ({}, {"memory_gb_per_s": 0.0}, {"gflop_per_s": 3.0}):
        fraction = problem(vs, metrics={"write_fraction": 0.2, **further_metrics}).rows[-1]
        assert (fraction.pinned, fraction.typical) == (False, pytest.approx(4e7))  # a hundredth of 4e9 B/s


def test_a_denominator_is_a_multiple_of_one_that_a_metric_gives() -> None:
    user_metrics = {
        "half": metric("half", "flops / (2 * int_ops)"),
        "ints": metric("ints", "4 * int_ops / (8 * wall_s)"),
    }
    rows = problem([variant("a", int_ops=3, flops=1)], user_metrics, {"half": 1.0, "ints": 6.0}).rows
    assert (rows[0].pinned, rows[0].typical) == (True, pytest.approx(24))  # 12 int_ops per s, twice


def test_a_ratio_to_something_else_than_time_gives_no_denominator() -> None:
    user_metrics = {"a": metric("a", "flops / int_ops"), "b": metric("b", "int_ops / system_calls")}
    rows = problem([variant("a", int_ops=3, flops=1, system_calls=5)], user_metrics, {"a": 1.0, "b": 6.0}).rows
    assert [r.pinned for r in rows] == [False, False]
    assert [r.typical for r in rows] == [pytest.approx(0.03), pytest.approx(0.05)]


def test_constants_of_a_formula_and_spun_time_count_once_per_run() -> None:
    user_metrics = {"m": metric("m", "(flops + 100) / (wall_s + cpu_s + 7)"), "c": metric("c", "flops + wall_s")}
    vs = [variant("a", threads=2, flops=1)]
    fixed, ratio = problem(vs, user_metrics, {"m": 1.0, "c": -50.0}, threads=2, pace=0.25, run_time_s=20.0).rows
    assert (ratio.over_constant, ratio.under_constant) == (5, pytest.approx((7 + 5 + 10) / 20))
    assert (fixed.over_constant, fixed.under_constant) == (0.25, 0.05)
    assert (fixed.pinned, fixed.typical) == (True, 0.05)  # 1 over 20 s
    assert not ratio.pinned


def test_only_a_ratio_of_sums_can_be_a_target() -> None:
    assert parts_of(all_metrics()["gint_per_s"])[0].factors == {"int_ops": 1.0}
    with pytest.raises(UsageError, match=r"^area: cannot be a target: 'wall_s \* cpu_s' is not a ratio of two sums$"):
        parts_of(metric("area", "wall_s * cpu_s"))
    with pytest.raises(UsageError, match=r"'[^']{60}'"):
        parts_of(metric("area", "wall_s * cpu_s" + " + flops" * 20))


# ------------------------------------------------------------------ variants forced to 0


def named(p: Any) -> list[str]:
    return [v.name for v in p.table.variants]


def test_a_sum_of_zero_excludes_the_variants_that_would_add_to_it() -> None:
    assert named(presolved(problem(flops(a=0, b=1, c=0), metrics={"gflop_per_s": 0.0}))) == ["a", "c"]
    only_writes = problem(
        [variant("a", line_read_bytes=1), variant("b", line_write_bytes=1)], metrics={"write_fraction": 1.0}
    )
    assert named(presolved(only_writes)) == ["b"]


def test_terms_of_both_signs_or_a_sum_other_than_zero_exclude_nothing() -> None:
    for mix_problem in (
        problem(flops(a=0, b=1), metrics={"gflop_per_s": 0.5}),
        problem(flops(a=1, b=2), metrics={"gflop_per_s": 0.5}, pace=0.5),
        problem(flops(a=1, b=2)),
    ):
        assert presolved(mix_problem) is mix_problem


def test_what_one_equation_excludes_counts_in_no_other() -> None:
    user_metrics = {"m": metric("m", "(flops - int_ops) / wall_s")}
    vs = [variant("a", int_ops=1), variant("b", flops=1), variant("c")]
    # Without integer operations, only terms above 0 are left in the other sum.
    assert named(presolved(problem(vs, user_metrics, {"gint_per_s": 0.0, "m": 0.0}))) == ["c"]
    assert named(presolved(problem(vs, user_metrics, {"m": 0.0}))) == ["a", "b", "c"]


# ------------------------------------------------------------------ usable variants

KINDS = [
    variant("plain", volume_bytes=2 * MIB),
    variant("syscall", kind="system", system_s=0.5, system_calls=9),
    variant("sleep", kind="idle"),
    variant("reader", io_read_bytes=1),
    variant("writer", kind="system", io_write_bytes=1),
]


def usable(
    variants: list[Variant], own: dict[str, LoadMetric] | None = None, metrics: tuple[str, ...] = (), **keys: Any
) -> tuple[list[str], list[str]]:
    target = TargetProfile(**{"run_time_s": 1.0, "name": "p", "metrics": dict.fromkeys(metrics, 1.0), **keys})
    table = VariantColumns(variants, target.load_balance)
    preferred, special = usable_variants(table, target, all_metrics(own))
    return [variants[i].name for i in preferred], [variants[i].name for i in special]


@pytest.mark.parametrize(
    ("metrics", "kernels", "preferred"),
    [
        ((), (), ["plain"]),
        (("gflop_per_s",), (), ["plain"]),
        (("system_share",), (), ["plain", "syscall"]),
        (("system_calls_per_s",), (), ["plain", "syscall"]),
        (("io_gb_per_s",), (), ["plain", "syscall", "reader", "writer"]),
        ((), ("plain", "sleep"), ["plain", "sleep"]),
        ((), ("reader", "writer"), ["reader", "writer"]),
        (("system_share",), ("syscall", "writer"), ["syscall", "writer"]),
    ],
)
def test_special_kernels_need_a_metric_that_depends_on_them_or_their_name(
    metrics: tuple[str, ...], kernels: tuple[str, ...], preferred: list[str]
) -> None:
    usual, special = usable(KINDS, metrics=metrics, kernels=kernels)
    assert usual == preferred
    assert special == ([] if kernels else [v.name for v in KINDS if v.name not in preferred])


@pytest.mark.parametrize("column", ["io_read_bytes", "io_write_bytes"])
def test_each_column_of_files_asks_for_kernels_that_access_files(column: str) -> None:
    user_metrics = {"m": metric("m", f"{column} / wall_s")}
    assert usable(KINDS, user_metrics, ("m",))[0] == ["plain", "syscall", "reader", "writer"]


def test_kernels_left_out_and_variants_of_other_threads_are_neither() -> None:
    vs = [*KINDS, variant("plain/2", threads=2), variant("other")]
    assert usable(vs, without=("plain", "sleep")) == (["other"], ["syscall", "reader", "writer"])
    assert usable(vs, threads=2) == (["plain/2"], [])


def test_variants_that_need_more_than_the_memory_are_left_out() -> None:
    vs = [variant("a", volume_bytes=MIB), variant("b", volume_bytes=MIB + 1)]
    assert usable(vs, memory_mib=1.0) == (["a"], [])


def test_variants_that_lack_a_value_are_left_out() -> None:
    user_metrics = {"ipc": metric("ipc", "instructions / cycles", known=("instructions", "cycles"))}
    vs = [
        variant("a", counters={"cycles": 1.0}),
        variant("b", counters={"cycles": 1.0, "instructions": 1.0}),
        variant("c", counters={"instructions": 1.0}),
    ]
    assert usable(vs, user_metrics, ("ipc",)) == (["b"], [])


def test_threads_that_divide_a_unit_cannot_have_uneven_shares() -> None:
    vs = [variant("a", threads=2, team=True), variant("b", threads=2)]
    assert usable(vs, threads=2) == (["a", "b"], [])
    assert usable(vs, threads=2, load_balance=0.75) == (["b"], [])


COUNTED = {"m": metric("m", "misses / wall_s", known=("misses", "wall_s"))}


@pytest.mark.parametrize(
    ("variants", "keys", "says"),
    [
        (KINDS, {"kernels": ("plaim",)}, "kernels: unknown kernel 'plaim'; did you mean plain?"),
        (KINDS, {"without": ("plaim",)}, "without: unknown kernel 'plaim'; did you mean plain?"),
        (
            KINDS,
            {"kernels": ("xyz",)},
            "kernels: unknown kernel 'xyz'; the calibration data have plain, reader, sleep, syscall, writer",
        ),
        (KINDS, {"metrics": ("m",)}, "the calibration data have no misses, which a target metric needs"),
        (
            [*KINDS, variant("plain/8", threads=8), variant("plain/4", threads=4)],
            {"threads": 2},
            "threads: found 2; the calibration data have variants with 1, 4, 8",
        ),
        (
            [*KINDS, variant("more", threads=2)],
            {"kernels": ("more",)},
            "kernels and without exclude all variants with this number of threads",
        ),
        (KINDS, {"kernels": ("plain",), "memory_mib": 0.5}, "memory_mib: found 0.5; the smallest variant needs 2 MiB"),
        (
            [variant("a", volume_bytes=3 * MIB, threads=2), variant("b", volume_bytes=5 * MIB), *KINDS[:1]],
            {"without": ("plain",), "memory_mib": 4},
            "memory_mib: found 4; the smallest variant needs 5 MiB",
        ),
        (
            [variant("a", threads=2, team=True)],
            {"threads": 2, "load_balance": 0.75},
            "load_balance: found 0.75; the remaining kernels divide their work evenly",
        ),
        (
            [variant("a"), variant("b", threads=2, counters={"misses": 1.0})],
            {"metrics": ("m",)},
            "m: the calibration data lack it for all variants with threads = 1",
        ),
    ],
)
def test_a_key_that_excludes_all_variants_is_named(variants: list[Variant], keys: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as error:
        usable(variants, COUNTED, **keys)
    assert str(error.value) == f"p: {says}"


def test_an_impossible_profile_carries_its_ranges_and_the_nearest_profile() -> None:
    nearest = TargetProfile(run_time_s=1.0)
    ranges = {"a": (0.0, 1.0), "b": None}
    error = ImpossibleError("p: no mix", "try this", ranges, nearest)
    assert (str(error), error.hint, error.ranges, error.nearest) == ("p: no mix", "try this", ranges, nearest)
    assert error.ranges is not ranges
