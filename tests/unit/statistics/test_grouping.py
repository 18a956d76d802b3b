"""Groups of configurations: the groups of published tables, small differences, drift, and the error of the tests."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from meshmark.machine.published.reference import publications
from meshmark.statistics import grouping
from meshmark.statistics.grouping import divide

PAPERS = {paper.name: paper.data for paper in publications()}


def published_kernels(column: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Return best rate and spread in %, (max - min) / min, of ten runs per kernel, by the group of the publication."""
    groups: dict[str, dict[str, tuple[float, float]]] = {"NUMA": {}, "SMP": {}}
    for row in PAPERS["eserver_325_2004"]["kernel_result"]:
        rate = row[f"{column}_max_mb_per_s"], row[f"{column}_spread_percent"]
        groups[row["behaviour"]][row["kernel"]] = rate
    return groups


def published_runs(scheduler: str, threads: int) -> list[float]:
    """Return the total rates of ten runs of STREAM triad; the scheduler begins with this text."""
    return next(
        row["total_mb_per_s"]
        for row in PAPERS["xeon_5500_lsf_2009"]["stream_run"]
        if row["scheduler"].startswith(scheduler) and row["threads"] == threads and "total_mb_per_s" in row
    )


def best_and_worst(best: float, spread: float) -> list[float]:
    return [best, best / (1 + spread / 100)]


def spaced(best: float, spread: float) -> list[float]:
    """Return ten runs with the published best and spread; only the published bounds matter, for the groups are far."""
    worst = best / (1 + spread / 100)
    return [worst + (best - worst) * i / 9 for i in range(10)]


@pytest.mark.parametrize("column", ["copy", "scale", "add", "triad"])
@pytest.mark.parametrize(("runs_of", "most_p"), [(best_and_worst, 0.01), (spaced, 0.001)])
def test_the_published_kernels_are_two_groups(
    runs_of: Callable[[float, float], list[float]], most_p: float, column: str
) -> None:
    published = published_kernels(column)
    assert [len(kernels) for kernels in published.values()] == [7, 4]
    values = {name: runs_of(*row) for kernels in published.values() for name, row in kernels.items()}
    division = divide(values, margin=0.05)
    assert [set(group) for group in division.groups] == [set(published["SMP"]), set(published["NUMA"])]
    assert division.cuts[0].counts and division.cuts[0].p <= most_p


def test_published_binding_removes_the_spread() -> None:
    kernel, bound = ({n: published_runs(scheduler, n) for n in (2, 4, 8)} for scheduler in ("Linux", "Platform"))
    four = divide({"kernel": kernel[4], "bound": bound[4]})
    assert four.cuts[0].ratio == pytest.approx(36886 / 35854, rel=1e-3)  # the medians
    assert four.cuts[0].p <= 0.001
    at_one_level = divide({"kernel, 4": kernel[4], "bound, 8": bound[8]})
    assert at_one_level.groups == (("bound, 8",), ("kernel, 4",)) and at_one_level.level_of == (0, 0)
    spread = at_one_level.cuts[-1]
    assert spread.kind == "spread" and spread.ratio > 100 and spread.p <= 0.001
    for threads in (2, 4, 8):
        assert divide({"kernel": kernel[threads], "bound": bound[threads]}).groups == (("kernel",), ("bound",))


def test_differences_within_the_margin_make_no_groups() -> None:
    draw = random.Random(1)
    values = {f"c{i}": [100 + 0.1 * i + draw.gauss(0, 0.01) for _ in range(20)] for i in range(10)}
    assert len(divide(values).groups) == 1
    division = divide(values, margin=0.001)
    assert len(division.groups) > 3
    assert division.cuts[0].counts and {name for part in division.groups for name in part} == set(values)


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
    division = divide({str(i): [float(i + 1)] for i in range(12)})
    assert len(division.groups) == 1 and division.cuts[0].p == 1


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
