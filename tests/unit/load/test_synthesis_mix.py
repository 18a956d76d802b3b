"""Test the selection of variants: even mixes, weights, and limits of memory and run time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.variants import Variant, VariantColumns
from meshmark.load.synthesis.mix import balanced, select_variants, spread_evenly, weights
from meshmark.load.synthesis.problem import MixProblem
from support.few_variants import problem, variant

MIB = 1 << 20
# The first outputs of splitmix64 with seed 0, as published with its source, divided by 2^64.
SPLITMIX = [n / 2**64 for n in (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC)]
A, B, C, D = (0.5 + s for s in SPLITMIX)


# ------------------------------------------------------------------ even mixes


@pytest.mark.parametrize(
    ("equal", "rhs", "weight", "max_share", "start", "x"),
    [
        ([[1, 1]], [1], [1, 3], 1.0, None, [0.25, 0.75]),
        ([[1, 1]], [1], [1, 3], 0.6, None, [0.4, 0.6]),
        ([[1, 1]], [1], [1, 3], 0.5, None, [0.5, 0.5]),
        ([[2, 2]], [2], [1, 3], 1.0, None, [0.25, 0.75]),
        ([[1, 1, 1], [1, 0, -1]], [1, 0.2], [1, 1, 1], 1.0, None, [13 / 30, 10 / 30, 7 / 30]),
        ([[1, 1, 1], [1, 0, -1]], [1, 0.8], [1, 1, 1], 1.0, None, [0.8, 0.2, 0]),
        ([[1, 1]], [1.2], [1, 3], 1.0, [0.5, 0.5], [0.55, 0.65]),
        ([[1, 1]], [0.2], [1, 1], 1.0, [0.5, 0.1], [0.2, 0]),
        ([[1, 1]], [1.6], [1, 1], 0.9, [0.8, 0.4], [0.9, 0.7]),
        ([[1, 1], [1, 1]], [1, 1], [1, 3], 1.0, None, [0.25, 0.75]),  # the same equation twice
        ([[1, 1], [0, 0]], [1, 0], [1, 3], 1.0, None, [0.25, 0.75]),  # an equation without coefficients
        ([[1, 1], [1e-6, -1e-6]], [1, 0], [1, 3], 1.0, None, [0.5, 0.5]),
        ([[1, 1], [1e4, -1e4]], [1, 0], [1, 3], 1.0, None, [0.5, 0.5]),
        ([[1, 1]], [0], [1, 3], 1.0, None, [0, 0]),
        ([[1, 1]], [2], [1, 3], 1.0, None, [1, 1]),
    ],
)
def test_a_mix_deviates_from_its_start_by_the_least_weighted_squares(
    equal: list[list[float]],
    rhs: list[float],
    weight: list[float],
    max_share: float,
    start: list[float] | None,
    x: list[float],
) -> None:
    mix = spread_evenly(
        np.array(equal, dtype=float),
        np.array(rhs, dtype=float),
        np.array(weight, dtype=float),
        max_share,
        None if start is None else np.array(start),
    )
    assert mix == pytest.approx(np.array(x), abs=1e-7)


@pytest.mark.parametrize("variants", [2, 3, 6, 7, 40])
@pytest.mark.parametrize("capacity", [1.001, 1.1, 1.2, 1.4, 1.49, 1.5, 2.0])
def test_a_mix_is_found_however_little_room_the_maximum_share_leaves(variants: int, capacity: float) -> None:
    mix = spread_evenly(np.ones((1, variants)), np.ones(1), np.ones(variants), capacity / variants)
    assert mix == pytest.approx(np.full(variants, 1 / variants), abs=1e-9)


@pytest.mark.parametrize(
    ("equal", "rhs", "max_share"),
    [
        ([[1, 1]], [1], 0.49),
        ([[1, 1]], [-1], 1.0),
        ([[1, 1], [1, -1]], [1, 1.01], 1.0),
        ([[1, 1], [0, 0]], [1, 1], 1.0),
    ],
)
def test_equations_without_a_solution_have_no_mix(equal: list[list[float]], rhs: list[float], max_share: float) -> None:
    assert spread_evenly(np.array(equal, float), np.array(rhs, float), np.ones(2), max_share) is None


def test_weights_are_those_of_splitmix64_and_shared_by_the_variants_of_a_kernel() -> None:
    four = VariantColumns([variant(n) for n in ("a", "b", "c", "d")])
    assert weights(four, 0) == pytest.approx(np.array([A, B, C, D]), rel=1e-15)
    assert weights(four, 2)[:2] == pytest.approx(np.array([C, D]), rel=1e-15)
    three = VariantColumns([variant(n) for n in ("b/1", "a/1", "b/2", "b/3")])
    assert weights(three, 0) == pytest.approx(np.array([A / 3, B, C / 3, D / 3]), rel=1e-15)
    # A part of a table keeps the kernel numbers of the whole table.
    assert weights(three.only(np.array([0, 2])), 0) == pytest.approx(np.array([A / 2, B / 2]), rel=1e-15)
    assert weights(three.only(np.array([1])), 0) == pytest.approx(np.array([A]), rel=1e-15)


# ------------------------------------------------------------------ the requested number of kernels

ALTERNATIVE = np.array([0.25, 0.25, 0.5])
EVEN = np.array([A, B, C]) / (A + B + C)  # c has 0.185 of the time


@pytest.mark.parametrize(
    ("seconds", "min_kernels", "part"),
    [
        (1.8, 3, 0.0),  # the even mix has one call of c in 10 s
        (2.5, 3, 0.25),
        (2.5, 2, 0.0),  # a and b suffice
        (3.0, 3, 0.5),
        (4.0, 3, 0.75),
        (5.0, 3, 0.75),  # not enough, but nearer
        (5.0, 4, 0.75),
        (5.1, 3, 0.0),  # the alternative has no call of c, either
    ],
)
def test_a_mix_of_too_few_kernels_moves_towards_one_of_more(seconds: float, min_kernels: int, part: float) -> None:
    mix_problem = problem([variant("a", wall_s=1e-3), variant("b", wall_s=1e-3), variant("c", wall_s=seconds)])
    mix = balanced(mix_problem, 1.0, ALTERNATIVE, min_kernels, 0)
    assert mix == pytest.approx((1 - part) * EVEN + part * ALTERNATIVE, abs=1e-7)


def test_a_mix_is_not_exchanged_for_one_of_no_more_kernels() -> None:
    mix_problem = problem([variant("a", wall_s=1e-3), variant("b/1", wall_s=1e-3), variant("b/2", wall_s=5.0)])
    mix = balanced(mix_problem, 1.0, ALTERNATIVE, 3, 0)
    even_mix = np.array([A, B / 2, C / 2])
    assert mix == pytest.approx(even_mix / even_mix.sum(), abs=1e-7)


def test_another_seed_is_another_mix() -> None:
    mix_problem = problem([variant("a"), variant("b")])
    assert balanced(mix_problem, 1.0, np.array([0.5, 0.5]), 1, 1) == pytest.approx(np.array([B, C]) / (B + C), abs=1e-7)


def test_a_mix_that_needs_more_than_the_maximum_share_is_the_alternative() -> None:
    mix_problem = problem([variant("a"), *(variant(f"b/{i}") for i in range(9))])
    alternative = np.full(10, 0.1)
    assert balanced(mix_problem, 0.3, alternative, 1, 0)[0] == pytest.approx(0.3, abs=1e-7)  # a alone would have more
    assert balanced(mix_problem, 0.09, alternative, 1, 0) is alternative


@pytest.mark.parametrize(("traffic", "kept"), [(0.7e-4, True), (0.3e-4, False)])
def test_a_mix_with_hardly_any_traffic_does_not_make_a_fraction(traffic: float, kept: bool) -> None:
    def fraction_problem(fast: float) -> MixProblem:
        vs = [variant("fast", line_read_bytes=fast), variant("writes", line_write_bytes=1e9), variant("c")]
        return problem(vs, metrics={"write_fraction": 0.5})

    # There are as many reads as writes, so the fast variant, whose rate is the largest denominator, has a tiny share.
    share = B / (B + C)
    fast = 2e9 * share / traffic
    mix = balanced(fraction_problem(fast), 1.0, ALTERNATIVE, 1, 0)
    if kept:
        assert mix[1] == pytest.approx(share, rel=1e-3)
        assert mix[0] * fast == pytest.approx(mix[1] * 1e9, rel=1e-3)
    else:
        assert mix is ALTERNATIVE


# ------------------------------------------------------------------ selection


def many(kernels: int, each: int, **more: object) -> list[Variant]:
    return [variant(f"k{k}/{i}", **{"wall_s": 1e-3, **more}) for k in range(kernels) for i in range(each)]


def chosen(made: MixProblem, max_share: float = 0.2) -> list[str]:
    indices, x = select_variants(made, max_share)
    assert indices.tolist() == sorted(set(indices.tolist()))
    part = made.only(indices)
    equal, rhs = part.equations()
    assert equal @ x == pytest.approx(rhs, abs=1e-6)
    assert np.all((x >= 0) & (x <= max_share + 1e-9))
    assert part.table.volume_bytes.sum() <= made.target.memory_mib * MIB
    return [v.name for v in part.table.variants]


@pytest.mark.parametrize(
    ("run_time_s", "least_kernels", "count"),
    [
        (10.0, 4, 160),  # the maximum
        (1.5, 4, 50),  # 30 calls of 1 ms each
        (0.5, 4, 16),
        (0.1, 4, 13),  # 1.25 x 4 + 8
        (0.1, 10, 20),
    ],
)
def test_there_are_as_many_variants_as_have_30_calls_each(run_time_s: float, least_kernels: int, count: int) -> None:
    mix_problem = problem(many(10, 20), run_time_s=run_time_s, least_kernels=least_kernels)
    assert len(chosen(mix_problem, 1.0)) == count


def test_all_variants_are_chosen_where_they_fit() -> None:
    assert chosen(problem(many(6, 1)), 0.25) == [f"k{k}/0" for k in range(6)]


def test_kernels_take_turns_however_many_variants_they_have() -> None:
    vs = [*many(1, 20), *[variant(f"x/{i}", wall_s=1e-3) for i in range(200)]]
    names = chosen(problem(vs, run_time_s=0.1, least_kernels=4), 1.0)
    by_kernel = Counter(name.partition("/")[0] for name in names)
    assert sorted(by_kernel.values()) == [6, 7]


def test_every_kernel_that_fits_has_a_share_of_a_percent_or_half_of_an_even_one() -> None:
    mix_problem = problem(many(10, 1), least_kernels=10)
    indices, x = select_variants(mix_problem, 0.2)
    assert len(indices) == 10
    assert x.min() == pytest.approx(0.01)
    # For 100 kernels, half of an even share is less than one percent.
    indices, x = select_variants(problem(many(100, 1), least_kernels=100), 0.2)
    assert len(indices) == 100
    assert x.min() == pytest.approx(0.005)


def test_variants_that_a_target_sum_depends_on_are_chosen_beside_those_of_the_time() -> None:
    vs = [variant(f"k{k}/{i}", wall_s=1e-3, flops=2e6 * (i == 0)) for k in range(3) for i in range(10)]
    names = chosen(problem(vs, metrics={"gflop_per_s": 0.02}, run_time_s=0.1, least_kernels=4))
    assert len(names) == 13
    assert {"k0/0", "k1/0", "k2/0"} <= set(names)  # 1 % of the time, but all of the sum


def test_more_variants_fill_the_memory_but_two_percent() -> None:
    assert len(chosen(problem(many(10, 10), memory_mib=51))) == 49
    assert len(chosen(problem(many(10, 10), memory_mib=30.7))) == 30


def test_small_variants_are_chosen_before_large_ones() -> None:
    large = many(10, 1, volume_bytes=4 * MIB)
    small = [variant(f"k{k}/small", wall_s=1e-3) for k in range(10)]
    names = chosen(problem([*large, *small], memory_mib=12, run_time_s=0.2, least_kernels=4))
    assert [n for n in names if "small" in n] == [v.name for v in small]


def test_fewer_kernels_are_chosen_where_the_memory_does_not_hold_all() -> None:
    names = chosen(problem(many(10, 1), memory_mib=4.5, least_kernels=10), 0.5)
    assert 2 <= len(names) <= 4
    names = chosen(problem(many(10, 1), memory_mib=7.2, least_kernels=5))
    assert 5 <= len(names) <= 7


def test_a_profile_that_needs_more_memory_is_told_how_much() -> None:
    vs = [variant("a", flops=1e9, volume_bytes=3 * MIB), variant("b", flops=4e9, volume_bytes=int(2.5 * MIB))]
    mix_problem = problem(vs, metrics={"gflop_per_s": 2.0}, memory_mib=5)
    with pytest.raises(UsageError, match=r"^p: memory_mib: found 5; the target profile needs about 6$"):
        select_variants(mix_problem, 1.0)
    assert len(chosen(problem(vs, metrics={"gflop_per_s": 2.0}, memory_mib=5.5), 1.0)) == 2


def test_the_memory_that_is_told_is_the_least_that_was_found() -> None:
    # Two kernels suffice, ten have the most variety.
    mix_problem = problem(many(10, 1), memory_mib=1.5, least_kernels=5)
    with pytest.raises(UsageError, match=r"needs about 2$"):
        select_variants(mix_problem, 0.5)


def test_a_maximum_share_that_the_variants_cannot_meet_is_an_error() -> None:
    with pytest.raises(MeshmarkError, match=r"^p: the linear program of the selection failed$"):
        select_variants(problem(many(2, 1)), 0.4)
