"""Groups of configurations: the groups of published tables, small differences, drift, and the error of the tests."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from meshmark.statistics import grouping
from meshmark.statistics.grouping import divide

# Performance of the IBM eServer 325 for Scientific and Technical Applications (2004), tables 1 and 2: STREAM triad on
# two processors under 11 kernels, best of ten runs in MB/s and (max - min) / min in %; the tables are the two groups.
NUMA_KERNELS = {
    "2.4.21-9.ELsmp": (7331, 2.6),
    "k_numa-2.4.19-201": (7329, 0.2),
    "k_numa-2.4.19-249": (7320, 0.1),
    "k_numa-2.4.19-256": (7319, 0.1),
    "k_smp-2.4.19-249": (7328, 0.2),
    "k_smp-2.4.19-256": (7317, 0.1),
    "k_smp-2.4.21-102": (7198, 0.1),
}
SMP_KERNELS = {
    "2.4.21-4.ELsmp": (3593, 1.8),
    "k_numa-2.4.21-60": (3694, 2.2),
    "k_smp-2.4.19-191": (3690, 3.0),
    "k_smp-2.4.21-60": (3677, 2.9),
}
# Optimizing the performance of Intel's XEON 5500 architecture with Platform LSF (2009), part 3, table 1: STREAM triad,
# total MB/s of ten runs of 4 and of 8 threads, placed by the Linux kernel and bound.
KERNEL_4 = [36822, 33352, 36855, 36679, 28779, 35037, 36793, 30734, 36671, 25782]
BOUND_4 = [36907, 36757, 36692, 36771, 36908, 36892, 36861, 36888, 36889, 36884]
KERNEL_8 = [32215, 36045, 28505, 30355, 27541, 36050, 30209, 29974, 33152, 33900]
BOUND_8 = [36029, 36144, 36016, 35988, 36012, 36064, 36018, 36023, 36033, 36017]


def best_and_worst(best: float, spread: float) -> list[float]:
    return [best, best / (1 + spread / 100)]


def spaced(best: float, spread: float) -> list[float]:
    """Return ten runs with the published best and spread; only the published bounds matter, for the groups are far."""
    worst = best / (1 + spread / 100)
    return [worst + (best - worst) * i / 9 for i in range(10)]


@pytest.mark.parametrize(("runs_of", "most_p"), [(best_and_worst, 0.01), (spaced, 0.001)])
def test_the_published_kernels_are_two_groups(runs_of: Callable[[float, float], list[float]], most_p: float) -> None:
    values = {name: runs_of(*row) for name, row in (NUMA_KERNELS | SMP_KERNELS).items()}
    found = divide(values, margin=0.05)
    assert [set(group) for group in found.groups] == [set(SMP_KERNELS), set(NUMA_KERNELS)]
    assert found.cuts[0].counts and found.cuts[0].p <= most_p


def test_published_binding_removes_the_spread() -> None:
    found = divide({"kernel, 4": KERNEL_4, "bound, 4": BOUND_4})
    assert found.cuts[0].ratio == pytest.approx(36886 / 35854, rel=1e-3)  # the medians
    assert found.cuts[0].p <= 0.001
    at_one_level = divide({"kernel, 4": KERNEL_4, "bound, 8": BOUND_8})
    assert at_one_level.groups == (("bound, 8",), ("kernel, 4",)) and at_one_level.level_of == (0, 0)
    spread = at_one_level.cuts[-1]
    assert spread.kind == "spread" and spread.ratio > 100 and spread.p <= 0.001
    assert divide({"kernel, 8": KERNEL_8, "bound, 8": BOUND_8}).groups == (("kernel, 8",), ("bound, 8",))


def test_differences_within_the_margin_make_no_groups() -> None:
    draw = random.Random(1)
    values = {f"c{i}": [100 + 0.1 * i + draw.gauss(0, 0.01) for _ in range(20)] for i in range(10)}
    assert len(divide(values).groups) == 1
    found = divide(values, margin=0.001)
    assert len(found.groups) > 3
    assert found.cuts[0].counts and {name for part in found.groups for name in part} == set(values)


def test_a_spread_within_the_margin_does_not_matter() -> None:
    draw = random.Random(2)
    values = {"steady": [100 + draw.gauss(0, 0.01) for _ in range(20)]}
    values["scattered"] = [100 + draw.gauss(0, 1) for _ in range(20)]
    assert len(divide(values).groups) == 1
    assert divide(values, margin=0.005).groups == (("steady",), ("scattered",))


def test_rounds_remove_drift() -> None:
    draw = random.Random(3)
    drift = [1 + 0.1 * i for i in range(10)]
    values = {name: [d * level * draw.gauss(1, 0.002) for d in drift] for name, level in (("a", 1.0), ("b", 1.05))}
    rounds = {name: list(range(10)) for name in values}
    assert len(divide(values).groups) == 1
    assert divide(values, rounds).groups == (("a",), ("b",))


def test_single_runs_make_no_groups() -> None:
    found = divide({str(i): [float(i + 1)] for i in range(12)})
    assert len(found.groups) == 1 and found.cuts[0].p == 1


def test_one_configuration_is_one_group() -> None:
    assert divide({"only": [1.0, 2.0]}).groups == (("only",),)


@pytest.mark.slow
@pytest.mark.parametrize(("configurations", "runs"), [(2, 10), (6, 10), (12, 5)])
def test_equal_configurations_are_rarely_divided(
    configurations: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "PERMUTATIONS", 999)
    draw, trials, wrong = random.Random(4), 1000, 0
    for _ in range(trials):
        # A fifth of the runs are slow; the spread is judged by deviations from estimated medians.
        values = {
            str(i): [(0.9 if draw.random() < 0.2 else 1) * draw.gauss(1, 0.005) for _ in range(runs)]
            for i in range(configurations)
        }
        wrong += len(divide(values, margin=1e-6).groups) > 1
    assert wrong / trials < 0.04  # of two tests with an error of 0.01 each
