"""Computes the fairness of a distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence


def jain(values: Sequence[float]) -> float:
    """Return (sum x)^2 / (n sum x^2), after Jain, Chiu, Hawe, DEC-TR-301 (1984); NaN without values above 0."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else math.nan
