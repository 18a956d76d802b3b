"""Estimates the shift between paired samples, with an exact interval.

Source: Hodges and Lehmann (1963), based on Wilcoxon's signed ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import median


@cache
def _critical_value(n: int, confidence: float) -> int:
    """Return the largest c with P(W <= c) <= (1 - confidence) / 2 for Wilcoxon's signed-rank sum W of n; -1 if none."""
    ways = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for rank_sum in range(len(ways) - 1, rank - 1, -1):
            ways[rank_sum] += ways[rank_sum - rank]
    tail, c = 0.0, -1
    while (tail := tail + ways[c + 1] / 2**n) <= (1 - confidence) / 2:
        c += 1
    return c


def shift(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, tuple[float, float] | None]:
    """Return the Hodges-Lehmann estimate of the centre of at least one difference, and its exact interval.

    Returns:
        Estimate and interval, in the differences' unit; the interval is None below 6 differences at 95 %.
    """
    n = len(differences)
    walsh = sorted((differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n))
    c = _critical_value(n, confidence)
    return median(walsh), None if c < 0 else (walsh[c], walsh[-1 - c])
