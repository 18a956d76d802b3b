"""Fits how an application scales with threads, copies or ranks, and explains what is not as expected.

The speed P of n workers is modelled by the universal scalability law, n/P = (1 + s (n - 1) + k n (n - 1)) / P1: s is
the share of the work that is serial or waits in queues, k the cost of keeping workers consistent; with k = 0 it is
Amdahl's law. In this form it is linear in (1 - s)/P1, s/P1 and k/P1, which are fitted by least squares of relative
deviations, none of them below 0, so that s is a share. Intervals are those of fits to rounds drawn at
random with replacement.

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

from meshmark.values.shift import shift
from meshmark.values.verdicts import Interval

ERROR: Final = 0.05
DRAWS: Final = 400
MIN_POINTS: Final = 3  # numbers of workers that a fit needs
_MIN_ROUNDS: Final = 5  # for intervals


@dataclass(frozen=True, slots=True)
class Fit:
    """A model of scaling.

    Attributes:
        serial: s, with its 95 % interval if there are enough rounds.
        coherency: k; 0 for Amdahl's law.
        peak: Number of workers at the largest speed, at least 1; None if it does not fall again.
        error: Root of the mean square of the relative deviations.
    """

    serial: float
    serial_interval: Interval | None
    coherency: float
    coherency_interval: Interval | None
    peak: float | None
    error: float


@dataclass(frozen=True, slots=True)
class Point:
    """Speed at a number of workers, relative to the fewest.

    Attributes:
        efficiency: Speedup over the ratio of the numbers of workers.
        interval: 95 %, by rounds; None with too few.
        judged: The same, at the confidence of `scaling`.
    """

    workers: int
    speedup: float
    efficiency: float
    interval: Interval | None
    judged: Interval | None

    def kind(self, margin: float) -> str:
        """`super-linear`, `sub-linear`, or "" if it is linear within the margin, or not known."""
        if self.judged is None:
            return ""
        if self.judged[0] > 1 + margin:
            return "super-linear"
        return "sub-linear" if self.judged[1] < 1 / (1 + margin) else ""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a configuration scales with one dimension."""

    points: Sequence[Point]
    amdahl: Fit | None
    universal: Fit | None

    def kinds(self, margin: float) -> dict[int, str]:
        """What is not linear, by number of workers.

        The points are tested in an order that is fixed before the runs, the most workers first, up to the first that is
        linear: then the probability of any false statement is that of a single test, whatever the number of points
        (Maurer, Hothorn, Lehmacher, 1995).
        """
        found = {}
        for point in sorted(self.points, key=lambda p: -p.workers):
            if not (kind := point.kind(margin)):
                break
            found[point.workers] = kind
        return found


def confidence_of_each(statements: int) -> float:
    """With which the probability that any of them is false is `ERROR`."""
    return 1 - ERROR / max(1, statements)


def scaling(speeds: Mapping[int, Mapping[int, float]], seed: int = 1, confidence: float = 0.95) -> Scaling:
    """Scaling of speeds, by number of workers and round; each number has at least one round.

    Args:
        speeds: Work per time, of any unit.
        confidence: Of what is said of this scaling. With several scalings, that of each.
    """
    points = points_of(speeds, confidence)
    if len(speeds) < MIN_POINTS:
        return Scaling(points, None, None)
    return Scaling(points, _fitted(speeds, 2, seed), _fitted(speeds, 3, seed))


def points_of(speeds: Mapping[int, Mapping[int, float]], confidence: float) -> list[Point]:
    """The points of `scaling`, without fits."""
    counts = sorted(speeds)
    points = []
    for n in counts:
        common = speeds[counts[0]].keys() & speeds[n].keys()
        logs = [math.log(speeds[n][r] / speeds[counts[0]][r] * counts[0] / n) for r in sorted(common)]
        if not logs:
            continue
        intervals: list[Interval | None] = []
        for level in (0.95, confidence):
            centre, found = shift(logs, level)
            intervals.append((math.exp(found[0]), math.exp(found[1])) if found and n > counts[0] else None)
        points.append(Point(n, math.exp(centre) * n / counts[0], math.exp(centre), *intervals))
    return points


def _fitted(speeds: Mapping[int, Mapping[int, float]], terms: int, seed: int) -> Fit | None:
    """Fit with the first terms: 2 for Amdahl's law, 3 for the universal one; None if the law does not fit at all."""
    counts = sorted(speeds)
    solved = _solve(counts, [median(list(speeds[n].values())) for n in counts], terms)
    if solved is None:
        return None
    serial, coherency, error = solved
    rounds = sorted(set.intersection(*(set(speeds[n]) for n in counts)))
    drawn: list[tuple[float, float, float]] = []
    if len(rounds) >= _MIN_ROUNDS:
        dice = random.Random(seed)
        for _ in range(DRAWS):
            some = dice.choices(rounds, k=len(rounds))
            one = _solve(counts, [median([speeds[n][r] for r in some]) for n in counts], terms)
            drawn += [one] if one else []
    peak = max(1.0, math.sqrt((1 - serial) / coherency)) if coherency > 0 else None
    return Fit(serial, _percentiles([d[0] for d in drawn]), coherency, _percentiles([d[1] for d in drawn]), peak, error)


def _solve(counts: Sequence[int], speeds: Sequence[float], terms: int) -> tuple[float, float, float] | None:
    """Serial share, cost of coherency, and the relative error; None if one worker would be infinitely fast.

    With 1 + s (n - 1) = (1 - s) + s n, shares from 0 to 1 are those of terms that are not negative.
    """
    import numpy as np
    from scipy.optimize import nnls

    n, speed = np.array(counts, dtype=float), np.array(speeds)
    matrix = np.stack([np.ones_like(n), n, n * (n - 1)][:terms], axis=1) * (speed / n)[:, None]
    found, norm = nnls(matrix, np.ones_like(n))
    one = found[0] + found[1]  # 1/P1
    if one <= 0:
        return None
    serial, coherency = found[1] / one, (found[2] / one if terms > 2 else 0.0)
    return float(serial), float(coherency), float(norm / math.sqrt(len(n)))


def _percentiles(values: Sequence[float]) -> Interval | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[round(0.025 * (len(ordered) - 1))], ordered[round(0.975 * (len(ordered) - 1))]
