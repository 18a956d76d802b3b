"""Test the linear programs of a synthesis: feasibility, the ranges of metrics and the nearest feasible profile."""

from __future__ import annotations

import numpy as np
import pytest

from meshmark.load.calibration.metrics import metric
from meshmark.load.synthesis.feasible import (
    any_solution,
    find_max_share,
    floor_rows,
    impossible_error,
    reachable,
    solve_linear,
)
from meshmark.load.synthesis.problem import MIN_DENOMINATOR, MixProblem
from support.few_variants import flops, problem, variant

ONES = np.ones((1, 2))


# ------------------------------------------------------------------ linear programs


def test_the_cheapest_solution_within_all_limits_is_found() -> None:
    cost, total = np.array([1.0, 3.0]), np.array([1.0])
    assert solve_linear(cost, ONES, total) == pytest.approx(np.array([1, 0]))
    assert solve_linear(-cost, ONES, total) == pytest.approx(np.array([0, 1]))
    assert solve_linear(cost, ONES, total, 0.75) == pytest.approx(np.array([0.75, 0.25]))
    assert solve_linear(cost, ONES, total, 0.75, upper=np.array([0.5, 2.0])) == pytest.approx(np.array([0.5, 0.5]))
    inequalities, limit = np.array([[1.0, 0.0]]), np.array([0.25])
    assert solve_linear(cost, ONES, total, None, inequalities, limit) == pytest.approx(np.array([0.25, 0.75]))
    assert solve_linear(cost, ONES, np.array([5.0])) == pytest.approx(np.array([5, 0]))  # no upper limit by default


def test_without_a_solution_there_is_none() -> None:
    cost, total = np.array([1.0, 3.0]), np.array([1.0])
    assert solve_linear(cost, ONES, total, 0.25) is None
    assert solve_linear(cost, ONES, -total) is None  # nothing is below 0
    assert solve_linear(np.zeros(0), np.zeros((1, 0)), total) is None
    assert solve_linear(-cost, np.zeros((1, 2)), np.zeros(1)) is None  # unbounded


def fraction(pinned: bool = False, **more: float) -> MixProblem:
    metrics = {"write_fraction": 0.25, **more, **({"memory_gb_per_s": 1.0} if pinned else {})}
    reads = variant("reads", line_read_bytes=4e9)
    return problem([reads, variant("writes", line_write_bytes=2e9), variant("none")], metrics=metrics)


def test_a_denominator_that_nothing_else_determines_stays_above_its_minimum() -> None:
    floor = floor_rows(fraction(gflop_per_s=0.0).rows)
    assert floor is not None
    assert floor[0] == pytest.approx(np.array([[-1, -0.5, 0]]))
    assert floor[1] == pytest.approx(np.array([-MIN_DENOMINATOR]))
    assert floor_rows(fraction(pinned=True).rows) is None
    assert floor_rows(problem([variant("none")], metrics={"write_fraction": 0.25}).rows) is None
    assert floor_rows([]) is None


def test_any_solution_satisfies_all_equations_and_limits() -> None:
    mix_problem = problem(flops(a=1, b=4), metrics={"gflop_per_s": 2.0})
    assert any_solution(mix_problem) == pytest.approx(np.array([2 / 3, 1 / 3]))
    assert any_solution(mix_problem, 0.67) is not None
    assert any_solution(mix_problem, 0.66) is None
    assert any_solution(problem(flops(a=1, b=4), metrics={"gflop_per_s": 5.0})) is None
    assert any_solution(problem([])) is None


def test_a_solution_has_a_denominator() -> None:
    x = any_solution(fraction())
    assert x is not None
    assert 4 * x[0] + 2 * x[1] >= 4 * MIN_DENOMINATOR * (1 - 1e-6)
    assert 2 * x[1] / (4 * x[0] + 2 * x[1]) == pytest.approx(0.25)
    assert any_solution(problem([variant("none")], metrics={"write_fraction": 0.25})) is None
    assert any_solution(problem([variant("none")], metrics={"gflop_per_s": 0.0})) == pytest.approx(np.array([1.0]))


# ------------------------------------------------------------------ ranges


def test_the_range_of_a_rate_is_that_of_the_busy_time() -> None:
    vs = flops(a=1, b=4, c=2)
    assert reachable(problem(vs, metrics={"gflop_per_s": 9.0})) == {"gflop_per_s": pytest.approx((1, 4))}
    assert reachable(problem(vs, metrics={"gflop_per_s": 9.0}, pace=0.25)) == {"gflop_per_s": pytest.approx((0.75, 3))}


def test_the_range_of_a_fraction_is_that_of_its_variants() -> None:
    assert reachable(fraction()) == {"write_fraction": pytest.approx((0, 1))}
    vs = [variant(n, line_read_bytes=r, line_write_bytes=w) for n, r, w in (("a", 3e9, 1e9), ("b", 1e9, 1e9))]
    assert reachable(problem(vs, metrics={"write_fraction": 0.9})) == {"write_fraction": pytest.approx((0.25, 0.5))}


def test_a_range_is_taken_while_the_other_metrics_hold() -> None:
    # a, b and c in shares x, y, z: flops x + 4 y, integer operations 2 z, and x + y + z = 1.
    vs = [*flops(a=1, b=4), variant("c", int_ops=2e9)]
    mix_problem = problem(vs, metrics={"gflop_per_s": 2.0, "gint_per_s": 1.5})
    assert reachable(mix_problem) == {"gflop_per_s": pytest.approx((0.25, 1)), "gint_per_s": pytest.approx((0, 1))}
    infeasible = problem(vs, metrics={"gflop_per_s": 5.0, "gint_per_s": 1.0})
    assert reachable(infeasible) == {"gflop_per_s": pytest.approx((0.5, 2)), "gint_per_s": None}


def test_other_fractions_hold_with_a_denominator_above_its_minimum() -> None:
    # Without traffic, the rate would be 1 Gflop/s, but the fraction would be undefined.
    vs = [*flops(a=1), variant("b", line_read_bytes=3e9, line_write_bytes=1e9)]
    limits = reachable(problem(vs, metrics={"gflop_per_s": 2.0, "write_fraction": 0.25}))["gflop_per_s"]
    assert limits is not None
    assert limits[0] == pytest.approx(0, abs=1e-9)
    assert limits[1] == pytest.approx(1 - MIN_DENOMINATOR, abs=1e-7)


def test_constants_of_formulas_and_sums_of_one_variant_are_part_of_the_range() -> None:
    user_metrics = {"m": metric("m", "(flops + 20e9) / (int_ops + 10e9)")}
    vs = [variant("a", flops=1e9), variant("b", int_ops=1e9)]
    # In 10 s, variant a alone gives (10 + 20) / 10, and variant b alone gives 20 / (10 + 10).
    assert reachable(problem(vs, user_metrics, {"m": 9.0})) == {"m": pytest.approx((1, 3))}
    fixed = {"m": metric("m", "20 / (flops + 10)")}
    assert reachable(problem([variant("a", flops=1)], fixed, {"m": 9.0})) == {"m": pytest.approx((1, 1))}
    constant = {"m": metric("m", "flops + 30")}
    assert reachable(problem(flops(a=0, b=1e-9), constant, {"m": 9.0})) == {"m": pytest.approx((30, 40))}


# ------------------------------------------------------------------ messages


def nearest(made: MixProblem) -> dict[str, float]:
    profile = impossible_error(made).nearest
    assert profile is not None
    assert profile.run_time_s == made.target.run_time_s
    return dict(profile.metrics)


def test_one_impossible_metric_is_told_with_its_range() -> None:
    error = impossible_error(problem(flops(a=1, b=4), metrics={"gflop_per_s": 5.0}))
    assert str(error) == "p: no mix of the kernels gives gflop_per_s = 5; possible: gflop_per_s 1 to 4"
    assert error.hint == "the nearest feasible profile: gflop_per_s = 3.999"  # within the range, in four digits
    assert error.ranges == {"gflop_per_s": pytest.approx((1, 4))}


def test_several_impossible_metrics_are_told_with_their_ranges_while_the_others_hold() -> None:
    vs = [*flops(a=1, b=4), variant("c", int_ops=2e9)]
    error = impossible_error(problem(vs, metrics={"gint_per_s": 1.0, "gflop_per_s": 5.0}))
    assert str(error) == (
        "p: no mix of the kernels gives gflop_per_s = 5, gint_per_s = 1; "
        "possible while the others hold: gflop_per_s 0.5 to 2; gint_per_s none"
    )
    assert error.ranges["gint_per_s"] is None
    assert error.nearest is not None
    assert error.hint == "the nearest feasible profile: " + ", ".join(
        f"{k} = {error.nearest.metrics[k]!r}" for k in ("gflop_per_s", "gint_per_s")
    )


def test_no_variants_have_no_nearest_profile() -> None:
    error = impossible_error(problem([], metrics={"gflop_per_s": 5.0}))
    assert str(error) == "p: no mix of the kernels gives gflop_per_s = 5; possible: gflop_per_s none"
    assert (error.hint, error.nearest) == ("", None)


def test_without_traffic_no_fraction_is_nearest() -> None:
    error = impossible_error(problem([variant("a")], metrics={"write_fraction": 0.5}))
    assert (error.hint, error.nearest, error.ranges) == ("", None, {"write_fraction": None})


def test_numbers_are_told_in_six_digits_and_what_rounding_leaves_as_zero() -> None:
    user_metrics = {"m": metric("m", "flops / wall_s")}
    message = str(
        impossible_error(problem([variant("a", flops=1234567), variant("b", flops=0)], user_metrics, {"m": 8e6}))
    )
    assert message.endswith("m = 8e+06; possible: m 0 to 1.23457e+06")
    tiny_message = str(impossible_error(problem(flops(a=1e-13, b=1e-11), metrics={"gflop_per_s": 2e-12})))
    assert tiny_message.endswith("gflop_per_s = 2e-12; possible: gflop_per_s 0 to 1e-11")


@pytest.mark.parametrize(
    ("rates", "asked", "found"),
    [
        ((1, 4), 0.5, 1.001),  # the lower end is 1 + 3e-6
        ((1, 8 / 3), 5.0, 2.666),  # rounds down
        ((2 / 3, 4), 0.5, 0.6667),  # rounds up
        ((4 / 3, 4), 0.5, 1.334),
        ((0, 4e-5 / 3), 1.0, 1.333e-05),
        ((0.123456712, 0.123456798), 1.0, 0.12345679),  # no shorter number is between the two
        ((0.123456712, 0.123456798), 0.1, 0.12345672),
        ((1234.5671, 1234.5699), 1300.0, 1234.5698),
        ((-4, -8 / 3), -5.0, -3.999),
        ((-4, -8 / 3), -1.0, -2.667),
    ],
)
def test_the_nearest_value_has_the_fewest_digits_that_are_within_the_range(
    rates: tuple[float, float], asked: float, found: float
) -> None:
    user_metrics = {"m": metric("m", "(flops - int_ops) / wall_s / 1e9")}
    vs = [variant(f"v/{i}", flops=max(r, 0) * 1e9, int_ops=max(-r, 0) * 1e9) for i, r in enumerate(rates)]
    assert nearest(problem(vs, user_metrics, {"m": asked})) == {"m": found}


def test_the_nearest_value_of_a_range_of_one_number_is_that_number() -> None:
    assert nearest(problem(flops(a=1 / 3, b=1 / 3), metrics={"gflop_per_s": 1.0})) == {
        "gflop_per_s": pytest.approx(1 / 3, rel=1e-12)
    }
    assert nearest(problem(flops(a=0, b=0), metrics={"gflop_per_s": 1.0})) == {"gflop_per_s": 0}


def test_the_metrics_with_the_least_relative_change_are_changed() -> None:
    # a has only flops and b only integer operations: the two rates add up to 1.
    vs = [*flops(a=1), variant("b", int_ops=1e9)]
    values = nearest(problem(vs, metrics={"gflop_per_s": 1.0, "gint_per_s": 0.5}))
    assert values == {"gflop_per_s": pytest.approx(0.5, abs=1e-3), "gint_per_s": 0.5}
    values = nearest(problem(vs, metrics={"gflop_per_s": 0.5, "gint_per_s": 2.0}))
    assert values == {"gflop_per_s": 0.5, "gint_per_s": pytest.approx(0.5, abs=1e-3)}
    values = nearest(problem(vs, metrics={"gflop_per_s": 0.25, "gint_per_s": 0.25}))
    assert sum(values.values()) == pytest.approx(1, abs=1e-3)
    assert 0.25 in values.values()


def test_the_nearest_profile_spends_only_the_busy_time() -> None:
    vs = [*flops(a=1), variant("b", int_ops=1e9)]
    values = nearest(problem(vs, metrics={"gflop_per_s": 1.0, "gint_per_s": 0.5}, pace=0.25))
    assert values == {"gflop_per_s": pytest.approx(0.25, abs=1e-3), "gint_per_s": 0.5}
    assert nearest(problem(flops(a=1, b=4), metrics={"gflop_per_s": 5.0}, pace=0.5)) == {"gflop_per_s": 1.999}


def test_the_nearest_profile_keeps_a_fraction_that_other_metrics_leave_possible() -> None:
    vs = [variant(n, line_read_bytes=r, line_write_bytes=w) for n, r, w in (("a", 3e9, 1e9), ("b", 1e9, 1e9))]
    values = nearest(problem(vs, metrics={"memory_gb_per_s": 8.0, "write_fraction": 0.25}))
    assert values == {"memory_gb_per_s": pytest.approx(4, rel=1e-3), "write_fraction": 0.25}
    assert nearest(problem(vs, metrics={"write_fraction": 0.75})) == {"write_fraction": 0.4999}
    assert nearest(problem(vs, metrics={"write_fraction": 0.1})) == {"write_fraction": 0.2501}


def test_a_target_of_zero_is_near_in_units_of_the_largest_rate() -> None:
    assert nearest(problem(flops(a=1, b=4), metrics={"gflop_per_s": 0.0})) == {"gflop_per_s": 1.001}
    vs = [variant("a", flops=1e9, int_ops=1e9), variant("b", flops=2e9, int_ops=4e9)]
    values = nearest(problem(vs, metrics={"gflop_per_s": 0.0, "gint_per_s": 4.0}))
    # From b to a, flops fall by half of the largest rate, and integer operations by three quarters of their target.
    assert values == {"gflop_per_s": pytest.approx(2, rel=1e-3), "gint_per_s": 4.0}


# ------------------------------------------------------------------ the maximum share of one variant


def test_the_maximum_share_is_that_of_the_profile_if_it_suffices() -> None:
    vs = flops(a=1, b=1, c=1, d=1, e=1)
    assert find_max_share(problem(vs)) == 0.2
    assert find_max_share(problem(vs, most_share=0.5)) == 0.5


def test_a_larger_share_is_the_smallest_that_suffices_and_one_percent() -> None:
    mix_problem = problem(flops(a=1, b=0), metrics={"gflop_per_s": 2 / 3})
    # Twelve halvings of 0.2 to 1 find 2390 of 4096 steps for the share of 2/3.
    assert find_max_share(mix_problem) == pytest.approx((0.2 + 0.8 * 2390 / 4096) * 1.01, rel=1e-9)
    assert find_max_share(problem(flops(a=1, b=0), metrics={"gflop_per_s": 1.0})) == 1
    assert find_max_share(problem(flops(a=1, b=0), metrics={"gflop_per_s": 1.1})) is None
