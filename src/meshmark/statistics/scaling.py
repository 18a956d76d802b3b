"""Fits how an application scales with threads, copies or ranks, and explains what is not as expected.

The speed P of n workers is modelled by the universal scalability law, n/P = (1 + s (n - 1) + k n (n - 1)) / P1: s is
the share of the work that is serial or waits in queues, k the cost of keeping workers consistent; with k = 0 it is
Amdahl's law. In this form it is linear in (1 - s)/P1, s/P1 and k/P1, which are fitted by least squares of relative
deviations, none of them below 0, so that s is a share. Intervals are percentiles of fits to rounds that
are drawn at random with replacement.

Sources: Amdahl, AFIPS 30 (1967), 483-485; Gunther, "A general theory of computational scalability based on rational
functions", arXiv:0808.1431 (2008); percentile intervals: Efron, Tibshirani, An Introduction to the Bootstrap (1993).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from meshmark.statistics.shift import shift
from meshmark.statistics.verdicts import Interval

ERROR: Final = 0.05
DRAWS: Final = 400
MIN_POINTS: Final = 3  # numbers of workers that a fit needs
_MIN_ROUNDS: Final = 5  # for intervals


@dataclass(frozen=True, slots=True)
class ScalingFit:
    """A model of scaling.

    Attributes:
        serial: s, with its 95 % interval if there are enough rounds.
        coherency: k; 0 for Amdahl's law.
        peak: Number of workers at the largest speed, at least 1; None if the speed does not fall again.
        error: Root of the mean square of the relative deviations.
    """

    serial: float
    serial_interval: Interval | None
    coherency: float
    coherency_interval: Interval | None
    peak: float | None
    error: float


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """Speed at a number of workers, relative to the fewest.

    Attributes:
        efficiency: Speedup over the ratio of the numbers of workers.
        interval: 95 % interval of the efficiency, by rounds; None if there are too few rounds.
        judged: The interval of the efficiency at the confidence of `scaling`.
    """

    workers: int
    speedup: float
    efficiency: float
    interval: Interval | None
    judged: Interval | None

    def kind(self, margin: float) -> str:
        """Return `super-linear`, `sub-linear`, or "" if the point is linear within the margin or not known."""
        if self.judged is None:
            return ""
        if self.judged[0] > 1 + margin:
            return "super-linear"
        return "sub-linear" if self.judged[1] < 1 / (1 + margin) else ""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a configuration scales with one dimension."""

    points: Sequence[ScalingPoint]
    amdahl: ScalingFit | None
    universal: ScalingFit | None

    def kinds(self, margin: float) -> dict[int, str]:
        """Return the kinds of the points that are not linear, by number of workers.

        The points are tested in an order that is fixed before the runs, the most workers first, up to the first point
        that is linear. Then the probability of any false statement is the same as with a single test, whatever the
        number of points (Maurer, Hothorn, Lehmacher, 1995).
        """
        kind_by_workers = {}
        for point in sorted(self.points, key=lambda p: -p.workers):
            if not (kind := point.kind(margin)):
                break
            kind_by_workers[point.workers] = kind
        return kind_by_workers


def confidence_of_each(statements: int) -> float:
    """Return the confidence that each statement needs so that any of them is false with probability `ERROR`."""
    return 1 - ERROR / max(1, statements)


def scaling(speeds: Mapping[int, Mapping[int, float]], seed: int = 1, confidence: float = 0.95) -> Scaling:
    """Return the scaling of speeds by number of workers and round; each number has at least one round.

    Args:
        speeds: Work per time, in any unit.
        seed: Seed of the resampling.
        confidence: Confidence of the statements about this scaling. With several scalings, the confidence of each.
    """
    points = points_of(speeds, confidence)
    if len(speeds) < MIN_POINTS:
        return Scaling(points, None, None)
    return Scaling(points, _fitted(speeds, 2, seed), _fitted(speeds, 3, seed))


def points_of(speeds: Mapping[int, Mapping[int, float]], confidence: float) -> list[ScalingPoint]:
    """Return the points of `scaling`, without fits."""
    counts = sorted(speeds)
    points = []
    for n in counts:
        common = speeds[counts[0]].keys() & speeds[n].keys()
        logs = [math.log(speeds[n][r] / speeds[counts[0]][r] * counts[0] / n) for r in sorted(common)]
        if not logs:
            continue
        intervals: list[Interval | None] = []
        for level in (0.95, confidence):
            centre, bounds = shift(logs, level)
            intervals.append((math.exp(bounds[0]), math.exp(bounds[1])) if bounds and n > counts[0] else None)
        points.append(ScalingPoint(n, math.exp(centre) * n / counts[0], math.exp(centre), *intervals))
    return points


def _fitted(speeds: Mapping[int, Mapping[int, float]], terms: int, seed: int) -> ScalingFit | None:
    """Return the fit with the first terms: 2 for Amdahl's law, 3 for the universal law; None if it does not fit."""
    counts = sorted(speeds)
    solution = _solve(counts, [median(list(speeds[n].values())) for n in counts], terms)
    if solution is None:
        return None
    serial, coherency, error = solution
    rounds = sorted(set.intersection(*(set(speeds[n]) for n in counts)))
    draws: list[tuple[float, float, float]] = []
    if len(rounds) >= _MIN_ROUNDS:
        rng = random.Random(seed)
        for _ in range(DRAWS):
            sampled_rounds = rng.choices(rounds, k=len(rounds))
            draw = _solve(counts, [median([speeds[n][r] for r in sampled_rounds]) for n in counts], terms)
            draws += [draw] if draw else []
    peak = max(1.0, math.sqrt((1 - serial) / coherency)) if coherency > 0 else None
    return ScalingFit(
        serial, _percentiles([d[0] for d in draws]), coherency, _percentiles([d[1] for d in draws]), peak, error
    )


def _solve(counts: Sequence[int], speeds: Sequence[float], terms: int) -> tuple[float, float, float] | None:
    """Return serial share, cost of coherency and relative error; None if one worker would be infinitely fast.

    Because 1 + s (n - 1) = (1 - s) + s n, terms that are not negative result in a share from 0 to 1.
    """
    import numpy as np
    from scipy.optimize import nnls

    n, speed = np.array(counts, dtype=float), np.array(speeds)
    matrix = np.stack([np.ones_like(n), n, n * (n - 1)][:terms], axis=1) * (speed / n)[:, None]
    coefficients, norm = nnls(matrix, np.ones_like(n))
    inverse_speed = coefficients[0] + coefficients[1]  # 1/P1
    if inverse_speed <= 0:
        return None
    serial, coherency = coefficients[1] / inverse_speed, (coefficients[2] / inverse_speed if terms > 2 else 0.0)
    return float(serial), float(coherency), float(norm / math.sqrt(len(n)))


def _percentiles(values: Sequence[float]) -> Interval | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[round(0.025 * (len(ordered) - 1))], ordered[round(0.975 * (len(ordered) - 1))]
