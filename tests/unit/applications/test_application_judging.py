"""Tests of comparisons, fits of scaling and reasons, by known answers and by properties."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.applications.attempt import ConfigurationRun
from meshmark.applications.effects.reasons import RunMedians, levels, of_sublinear
from meshmark.machine.topology import Cache, Core, Cpu, Node, Package, Topology
from meshmark.statistics.cache_gain import superlinear_reason
from meshmark.statistics.pairs import MeritUnit, compare, rounds_needed, spreads, usual_rounds
from meshmark.statistics.scaling import ERROR, Scaling, points_of, scaling
from meshmark.statistics.shift import shift

SECONDS = MeritUnit("lower", "s")


def noisy(centre: float, rounds: int, noise: float, seed: int) -> dict[int, float]:
    rng = random.Random(seed)
    return {r: centre * math.exp(rng.gauss(0, noise)) for r in range(1, rounds + 1)}


@pytest.mark.parametrize("confidence", [0.95, 0.975, 0.99, 0.999])
def test_the_rounds_that_are_needed_are_the_fewest_with_an_interval(confidence: float) -> None:
    n = rounds_needed(confidence)
    assert shift(list(range(n)), confidence)[1] is not None and shift(list(range(n - 1)), confidence)[1] is None


@pytest.mark.parametrize(("configurations", "rounds"), [(1, 7), (2, 7), (4, 7), (5, 8), (10, 9), (100, 12)])
def test_the_usual_rounds_judge_all_configurations(configurations: int, rounds: int) -> None:
    assert usual_rounds(configurations) == rounds
    assert shift(list(range(rounds)), 1 - ERROR / max(1, configurations - 1))[1] is not None


def test_a_pair_is_told_apart_equal_or_inconclusive() -> None:
    baseline = noisy(1.0, 12, 0.005, 1)
    better = compare("b", "a", (noisy(0.9, 12, 0.005, 2), baseline), SECONDS, 0.02)
    assert better.word == "lower" and better.best == "b"
    assert better.text(SECONDS).startswith("faster: 1.11 × as fast (95 %: ")
    assert better.text(MeritUnit("lower", "B")).startswith("better: 1.11 × as good (95 %: ")
    assert better.text(MeritUnit("higher", "B/s")).startswith("slower: 0.899")
    assert better.text(MeritUnit("higher", "1")).startswith("worse: 0.899")
    equal = compare("b", "a", (noisy(1.0, 12, 0.005, 3), baseline), SECONDS, 0.02)
    assert equal.word == "equal" and equal.best == "" and equal.text(SECONDS).startswith("equal within the margin")
    inconclusive = compare("b", "a", (noisy(1.0, 12, 0.2, 3), baseline), SECONDS, 0.02)
    assert inconclusive.text(SECONDS).startswith("inconclusive")
    short = compare("b", "a", (noisy(0.5, 5, 0.01, 3), baseline), SECONDS, 0.02)
    assert short.text(SECONDS) == "too few rounds: 5, at least 6 are needed"


def test_equal_configurations_are_seldom_told_apart() -> None:
    differences = 0
    for seed in range(300):
        pair = compare("b", "a", (noisy(1, 10, 0.05, 2 * seed), noisy(1, 10, 0.05, 2 * seed + 1)), SECONDS, 0.0)
        differences += pair.word in ("lower", "higher")
    assert differences <= 0.05 * 300 + 3 * math.sqrt(0.05 * 0.95 * 300)


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_the_interval_of_a_ratio_of_spreads_covers_it(ratio: float) -> None:
    rng = np.random.default_rng(5)
    hits = including_one = 0
    for _ in range(400):
        samples = 100 * np.exp(rng.normal(0, 0.01 * ratio, 30))
        reference = np.exp(rng.normal(0, 0.01, 30))
        _, interval = spreads(list(samples), list(reference))
        assert interval is not None
        hits += interval[0] <= ratio <= interval[1]
        including_one += interval[0] <= 1 <= interval[1]
    assert hits >= 0.92 * 400
    assert including_one < 0.02 * 400 if ratio == 3.0 else including_one >= 0.92 * 400


def test_values_without_spread_have_no_ratio_of_spreads() -> None:
    assert spreads([1.0] * 9, [1.0, 2.0] * 5) == (None, None) == spreads([1.0, 2.0], [1.0, 2.0])


@settings(max_examples=50, deadline=None)
@given(
    serial=st.floats(0.0, 0.5),
    coherency=st.floats(0.0, 0.02),
    speed=st.floats(1e-6, 1e6),
    counts=st.sets(st.integers(1, 64), min_size=4, max_size=8),
)
def test_an_exact_law_is_found_again(serial: float, coherency: float, speed: float, counts: set[int]) -> None:
    def of(n: int) -> float:
        return speed * n / (1 + serial * (n - 1) + coherency * n * (n - 1))

    scaling_fit = scaling({n: dict.fromkeys(range(6), of(n)) for n in counts})
    assert scaling_fit.universal is not None
    assert scaling_fit.universal.serial == pytest.approx(serial, abs=1e-6)
    assert scaling_fit.universal.coherency == pytest.approx(coherency, abs=1e-7)
    assert scaling_fit.universal.error < 1e-9
    assert scaling_fit.universal.serial_interval == pytest.approx((serial, serial), abs=1e-6)
    if coherency > 1e-6:
        assert scaling_fit.universal.peak == pytest.approx(math.sqrt((1 - serial) / coherency), rel=1e-3)
    fewest = min(counts)
    assert [p.efficiency for p in scaling_fit.points] == pytest.approx(
        [of(n) / of(fewest) * fewest / n for n in sorted(counts)]
    )


def test_noise_widens_the_intervals_and_they_cover() -> None:
    hits = 0
    for seed in range(60):
        speeds = {n: noisy(n / (1 + 0.05 * (n - 1)), 9, 0.03, 100 * seed + n) for n in (1, 2, 4, 8, 16)}
        fit = scaling(speeds).amdahl
        assert fit is not None and fit.serial_interval is not None
        hits += fit.serial_interval[0] <= 0.05 <= fit.serial_interval[1]
    assert hits >= 0.8 * 60  # percentile intervals of nine rounds are somewhat too narrow


def test_linear_points_are_seldom_called_anything_however_many_there_are() -> None:
    all_points = [
        points_of({n: noisy(n, 9, 0.03, 100 * seed + n) for n in (1, 2, 4, 8, 16, 32)}, 0.95) for seed in range(400)
    ]
    alarms = sum(bool(Scaling(points, None, None).kinds(0)) for points in all_points)
    assert alarms <= 0.05 * 400 + 3 * math.sqrt(0.05 * 0.95 * 400)
    # Judging each point by itself raises more alarms.
    assert sum(any(p.kind(0) for p in points) for points in all_points) > 2 * alarms


def test_points_are_named_from_the_most_workers_on() -> None:
    speeds = {n: noisy(n * f, 8, 0.01, n) for n, f in ((1, 1.0), (2, 1.5), (4, 1.0), (8, 0.6), (16, 0.4))}
    assert scaling(speeds).kinds(0.02) == {16: "sub-linear", 8: "sub-linear"}
    assert scaling(speeds, confidence=0.999).kinds(0.02) == {}  # eight rounds are too few to tell
    assert scaling(speeds, confidence=0.999).points[4].interval is not None


def caches(l2: int, l3: int, cpus: int = 8) -> Topology:
    l2_caches = [Cache(level=2, kind="unified", size_bytes=l2, line_bytes=64, ways=8, cpus=(c,)) for c in range(cpus)]
    l3_cache = Cache(level=3, kind="unified", size_bytes=l3, line_bytes=64, ways=16, cpus=tuple(range(cpus)))
    return Topology(
        origin="synthetic",
        cpus=tuple(Cpu(os_index=c, core=c, package=0, node=0) for c in range(cpus)),
        allowed_cpus=tuple(range(cpus)),
        packages=(Package(index=0, os_index=0, cpus=tuple(range(cpus))),),
        nodes=(Node(os_index=0, cpus=tuple(range(cpus)), near_cpus=tuple(range(cpus)), memory_bytes=1 << 34),),
        caches=(*l2_caches, l3_cache),
        cores=tuple(Core(index=c, os_index=c, package=0, cpus=(c,)) for c in range(cpus)),
    )


def usual(**changes: float) -> RunMedians:
    fields = {
        "elapsed_s": 1.0,
        "cpu_s": 1.0,
        "system_s": 0.0,
        "waiting_share": 0.0,
        "peak_bytes": 3e6,
        "faults": 0,
        "lost": 0,
    }
    return RunMedians(**{**fields, **changes})


def test_a_superlinear_case_is_explained_by_the_caches() -> None:
    speeds = {n: noisy(n * (1.6 if n >= 4 else 1.0), 8, 0.01, n) for n in (1, 2, 4)}
    points = {p.workers: p for p in scaling(speeds).points}
    assert points[2].kind(0.02) == "" and points[4].kind(0.02) == "super-linear"
    machine = caches(1 << 20, 1 << 20)
    one_cpu, four_cpus = range(1), range(4)
    assert superlinear_reason(machine.caches, 3e6, one_cpu, four_cpus) == (
        "its memory of 2.86 MiB fits in the L2 caches of 4 CPUs (4 MiB), not in the caches of 1 (1 MiB)"
    ).replace(" MiB", "\u00a0MiB")
    assert "not known" in superlinear_reason(machine.caches, 1e9, one_cpu, four_cpus)
    assert "are not recorded" in superlinear_reason((), 3e6, one_cpu, four_cpus)
    assert "no data" in superlinear_reason(machine.caches, 0, one_cpu, four_cpus)


@pytest.mark.parametrize(
    ("many", "workers", "dimension", "reason"),
    [
        ({}, 16, "threads", "16 threads share 8 CPUs; only 1.0 CPUs were busy on average"),
        ({"waiting_share": 0.5}, 4, "copies", "threads waited for a CPU in 50 % of their time"),
        ({"cpu_s": 4.0, "system_s": 2.0}, 4, "threads", "50 % of the CPU time is in the kernel"),
        ({"cpu_s": 2.0}, 4, "threads", "only 2.0 CPUs were busy on average"),
        ({"cpu_s": 4.0}, 4, "threads", "its threads were busy, and the CPU time grew by 300 %"),
        ({"cpu_s": 6.0}, 4, "copies", "each copy took 50 % more CPU time"),
        ({"cpu_s": 4.0}, 4, "copies", "the reason is not known"),
    ],
)
def test_a_sublinear_case_is_explained_by_times(
    many: dict[str, float], workers: int, dimension: str, reason: str
) -> None:
    assert of_sublinear(caches(1, 1), usual(), usual(**many), workers, dimension).startswith(reason)


def runs(values: list[float], faults: dict[int, float] | None = None) -> dict[int, ConfigurationRun]:
    return {
        r: ConfigurationRun(
            configuration="a",
            round=r,
            value=v,
            elapsed_s=v,
            counts={"minor_faults": (faults or {}).get(r, 100.0)},
        )
        for r, v in enumerate(values, 1)
    }


def test_two_levels_are_named_with_what_differs() -> None:
    two_levels = levels(runs([1.0, 1.01, 1.3, 1.02, 1.31, 1.29], {3: 5000, 5: 5100, 6: 4900}))
    assert two_levels is not None and (two_levels.low_runs, two_levels.high_runs) == (3, 3)
    assert two_levels.evidence == "page faults: 100 and 5e+03"
    unexplained = levels(runs([1.0, 1.01, 1.3, 1.02, 1.31, 1.29], {3: 105, 5: 104, 6: 109}))
    assert (
        unexplained is not None
        and unexplained.evidence == "page faults, preemptions and time in the kernel do not explain them"
    )
    assert levels(runs([1.0, 1.01, 1.3, 1.02, 1.0, 1.01])) is None  # one outlier is not a level


def test_noise_of_one_level_is_seldom_taken_for_two() -> None:
    alarms = sum(levels(runs(list(noisy(1, 8, 0.05, seed).values()))) is not None for seed in range(300))
    assert alarms <= 6


def test_a_program_that_gets_slower_has_a_serial_share_of_at_most_one() -> None:
    scaling_fit = scaling({n: noisy(n / (1 + 2 * (n - 1)), 8, 0.001, n) for n in (1, 2, 4)})
    assert scaling_fit.amdahl is not None and scaling_fit.amdahl.serial == 1
    assert scaling_fit.universal is not None and scaling_fit.universal.serial <= 1
    superlinear = scaling({n: noisy(1 / n**3, 8, 0.001, n) for n in (1, 2, 4)}).universal
    assert superlinear is not None and superlinear.peak == 1


def test_many_comparisons_widen_the_intervals_of_spreads_too() -> None:
    samples, reference = list(noisy(1, 12, 0.02, 1).values()), list(noisy(1, 12, 0.01, 2).values())
    (_, interval), (_, wider_interval) = spreads(samples, reference), spreads(samples, reference, 0.99)
    assert (
        interval is not None
        and wider_interval is not None
        and wider_interval[0] < interval[0]
        and interval[1] < wider_interval[1]
    )
    pair = compare("b", "a", (dict(enumerate(samples)), dict(enumerate(reference))), SECONDS, 0.02, 0.99)
    assert pair.spread_interval == wider_interval


def test_spreads_do_not_depend_on_the_unit() -> None:
    samples, reference = list(noisy(1, 9, 0.02, 1).values()), list(noisy(1, 9, 0.01, 2).values())
    ratio = spreads(samples, reference)[0]
    for scale in (1e-200, 1e200):
        assert spreads([v * scale for v in samples], [v * scale for v in reference])[0] == pytest.approx(ratio)


def test_a_sublinear_case_counts_the_cpus_that_are_allowed_and_the_threads_of_copies() -> None:
    two_cpus = dataclasses.replace(caches(1, 1), allowed_cpus=(3, 5))
    assert of_sublinear(two_cpus, usual(), usual(), 4, "threads").startswith("4 threads share 2 CPUs")
    reason = of_sublinear(caches(1, 1), usual(cpu_s=4.0), usual(cpu_s=5.0), 2, "threads", 4)
    assert reason == "only 5.0 CPUs were busy on average"
    assert of_sublinear(caches(1, 1), usual(cpu_s=0.0), usual(cpu_s=2.0), 2, "threads") == "the reason is not known"
