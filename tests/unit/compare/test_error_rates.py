"""Tests of how often a comparison is wrong: equal results called different, and different ones called equal.

Runs differ by more than the samples of one run show, as on real machines. The limit is 5 % plus an allowance for
chance in 200 comparisons: at a true rate of 5 %, the result exceeds 9 % in 1 of 150 cases.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from meshmark.compare.join import RUN_TO_RUN, compare
from meshmark.compare.sides import ResultSide
from meshmark.measure.repetitions import pool
from meshmark.store.record import Record, median, median_interval
from support.made_run import record

COUNT = 200
MOST = 0.09 * COUNT
KINDS = {
    "time": record("latency", "load_latency", 1e-7, footprint_bytes=1 << 30, memory_level="memory"),
    "rate": record("bandwidth", "bandwidth_net", 1e10, kernel="triad", footprint_bytes=1 << 30, threads=2),
    "share": record("dgemm", "peak_share", 0.5, n=2000, threads=2),
}
# Deviation between runs, deviation of the samples of a run, and whether the samples have a long tail (busy machine).
NOISE = [(0.0, 0.01, False), (0.002, 0.01, False), (0.01, 0.01, True), (0.03, 0.01, False), (0.01, 0.05, True)]


def measured(kind: Record, true: float, runs: int, noise: tuple[float, float, bool], dice: random.Random) -> Record:
    deviation_between, deviation_within, tail = noise
    run_records = []
    for _ in range(runs):
        middle = kind.value * true * math.exp(dice.gauss(0, deviation_between))
        deviations = [dice.gauss(0, deviation_within) for _ in range(15)]
        samples = tuple(middle * math.exp(abs(d) if tail else d) for d in deviations)
        run_records.append([replace(kind, samples=samples, value=median(samples), interval=median_interval(samples))])
    return pool(run_records)[0] if runs > 1 else run_records[0][0]


def words(kind: str, runs: int, noise: tuple[float, float, bool], true: float, flags: frozenset[str]) -> list[str]:
    rng, verdicts = random.Random(f"{kind} {runs} {noise} {true}"), []
    for i in range(COUNT):
        sides = [measured(KINDS[kind], t, runs, noise, rng) for t in (1.0, true if i % 2 else 1 / true)]
        a, b = (
            ResultSide(name="x", what="", machine="m", start="2026", records=[replace(r, flags=flags)]) for r in sides
        )
        verdicts.append(compare(a, b).pairs[0].word)
    return verdicts


@pytest.mark.parametrize("noise", NOISE, ids=str)
@pytest.mark.parametrize("runs", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_results_are_seldom_called_different(kind: str, runs: int, noise: tuple[float, float, bool]) -> None:
    verdicts = words(kind, runs, noise, 1.0, frozenset())
    assert sum(w not in {"equal", "inconclusive"} for w in verdicts) <= MOST


@pytest.mark.parametrize("noise", NOISE, ids=str)
@pytest.mark.parametrize("runs", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_results_that_differ_by_twice_the_margin_are_seldom_called_equal(
    kind: str, runs: int, noise: tuple[float, float, bool]
) -> None:
    assert words(kind, runs, noise, 1.04, frozenset()).count("equal") <= MOST


def test_large_differences_of_single_runs_are_seen() -> None:
    verdicts = words("rate", 1, NOISE[1], (1 + RUN_TO_RUN) ** 2 * 1.1, frozenset())
    assert verdicts.count("inconclusive") <= MOST and "equal" not in verdicts


def test_steady_results_of_two_runs_are_equal() -> None:
    assert words("time", 3, (0.0, 0.002, False), 1.0, frozenset()).count("equal") > 0.9 * COUNT


def test_flagged_results_have_no_verdict() -> None:
    assert set(words("time", 2, NOISE[1], 1.5, frozenset({"stolen"}))) == {"inconclusive"}
