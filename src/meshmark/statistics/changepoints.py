"""Finds where the level of a series changes.

Candidates are chosen as in E-divisive: the split that maximizes the energy distance between the values before it and
the values from it to some later end. Each candidate is tested between its neighbours. The weakest candidates are
removed until all others are significant.

Source:
    Candidates: Matteson, James, J. Am. Stat. Assoc. 109 (2014), 334-345. Significance by a test of two samples, and
    candidates at a weaker level that are refined: Fleming et al., Hunter, ICPE 2023 (Apache Otava).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_SEGMENT: Final = 3  # values between two changes: fewer may be outliers
LEVEL: Final = 0.001  # level of significance of a change; the test accounts for the choice of its position
_WEAK: Final = 0.05  # level of significance of a candidate
_SAME: Final = 1e-12  # relative difference that rounding can cause


@dataclass(frozen=True, slots=True)
class LevelSplit:
    """A change of level.

    Attributes:
        at: Index of the first value after the change.
        p: Probability of such a difference without a change, multiplied by the number of positions it was chosen from.
    """

    at: int
    p: float


def splits(values: Sequence[float] | NDArray[np.float64]) -> list[LevelSplit]:
    """Return the changes of level of a series, in order.

    Args:
        values: Values above 0, in order of time.
    """
    import numpy as np

    # Noise and changes are relative.
    x = np.log(np.asarray(values, float))
    positions: list[int] = []
    segments = [(0, len(x))]
    while segments:
        low, high = segments.pop()
        if high - low < 2 * MIN_SEGMENT:
            continue
        at, end = _candidate(x[low:high])
        at, end = low + at, low + end
        # A temporary change differs clearly from the values until its end, but not from all values that follow.
        if _p(x, low, at, end) <= _WEAK or _p(x, low, at, high) <= _WEAK:
            positions.append(at)
            segments += [(low, at), (at, high)]
    return strongest(x, sorted(positions))


def strongest(x: NDArray[np.float64], candidates: Sequence[int]) -> list[LevelSplit]:
    """Return the splits that remain significant between their neighbours when the weakest are removed one by one.

    Args:
        x: The series.
        candidates: Indices of the candidates, ascending.
    """
    positions = list(candidates)
    while True:
        edges = [0, *positions, len(x)]
        p = [_p(x, *edges[i : i + 3]) for i in range(len(positions))]
        weakest = max(range(len(positions)), key=lambda i: p[i], default=None)
        if weakest is None or p[weakest] <= LEVEL:
            return [LevelSplit(*pair) for pair in zip(positions, p, strict=True)]
        del positions[weakest]


def _candidate(x: NDArray[np.float64]) -> tuple[int, int]:
    """Return `at` and `end` of the split with the largest energy distance between `x[:at]` and `x[at:end]`.

    Args:
        x: At least `2 * MIN_SEGMENT` values.
    """
    import numpy as np

    n, m = len(x), MIN_SEGMENT
    total = np.zeros((n + 1, n + 1))  # total[i, j]: sum of the distances between x[:i] and x[:j]
    total[1:, 1:] = np.abs(x[:, None] - x[None, :]).cumsum(0).cumsum(1)
    at, end = np.arange(m, n - m + 1)[:, None], np.arange(2 * m, n + 1)[None, :]
    before, after = at, np.maximum(end - at, 2)  # numbers of values; numbers that are too small are masked
    within_before = total.diagonal()[m : n - m + 1, None]
    across = total[m : n - m + 1, 2 * m :] - within_before
    within_after = total.diagonal()[None, 2 * m :] - within_before - 2 * across
    distance = (
        2 * across / (before * after) - within_before / (before * (before - 1)) - within_after / (after * (after - 1))
    )
    weighted = np.where(end - at >= m, distance * before * after / (before + after), -math.inf)
    row, column = np.unravel_index(int(np.argmax(weighted)), weighted.shape)
    return int(at[row, 0]), int(end[0, column])


def _p(x: NDArray[np.float64], low: int, at: int, high: int) -> float:
    """Return the p-value of the hypothesis that the values before and after a split have one level.

    It is corrected for the choice of the split and of the test. Student's test finds large changes in few values; the
    test of Mann and Whitney finds small changes beside outliers. The variance is pooled, since three values may have a
    small variance by chance.
    """
    from scipy.special import stdtr

    before, after = x[low:at], x[at:high]
    positions = max(1, high - low - 2 * MIN_SEGMENT + 1)
    freedom = len(before) + len(after) - 2
    squares = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    error = math.sqrt(squares / freedom * (1 / len(before) + 1 / len(after)))
    difference = abs(float(before.mean() - after.mean()))
    if difference <= _SAME:
        return 1.0
    # Values that never vary within a segment, such as sizes, have no variance to compare with.
    student = float(2 * stdtr(freedom, -difference / error)) if error > _SAME else 1.0
    return min(1.0, 2 * positions * min(student, _rank_p(before, after)))


def _rank_p(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the p-value of the test of Mann and Whitney, by the normal distribution.

    It is corrected for ties and for continuity. For values that hardly overlap it is above the exact p-value, hence
    safe, and its computation takes a tenth of the time of SciPy's.
    """
    import numpy as np

    values, positions, counts = np.unique(np.concatenate((one, other)), return_inverse=True, return_counts=True)
    if len(values) == 1:
        return 1.0
    ranks = (counts.cumsum() - (counts - 1) / 2)[positions]
    a, b = len(one), len(other)
    n = a + b
    ties = float((counts.astype(float) ** 3 - counts).sum())
    deviation = math.sqrt(a * b / 12 * (n + 1 - ties / (n * (n - 1))))
    distance = abs(float(ranks[:a].sum()) - a * (n + 1) / 2)
    return math.erfc(max(0.0, distance - 0.5) / deviation / math.sqrt(2))
