"""Decides by linear programs whether a target profile is feasible, and finds the nearest feasible profile."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshmark.load.calibration.variants import Vector
from meshmark.load.synthesis.problem import MIN_DENOMINATOR, ImpossibleError, MixProblem, TargetRow


def solve_linear(
    cost: Vector,
    equal: NDArray[np.float64],
    rhs: Vector,
    max_x: float | None = None,
    less: NDArray[np.float64] | None = None,
    limit: Vector | None = None,
    upper: Vector | None = None,
) -> Vector | None:
    """Minimise cost @ x with equal @ x = rhs, less @ x <= limit, 0 <= x <= upper (or `max_x`).

    Returns None if there is no solution.
    """
    from scipy.optimize import linprog

    if len(cost) == 0:
        return None
    bounds: Any = np.zeros((len(cost), 2))
    bounds[:, 1] = np.inf if max_x is None else max_x
    if upper is not None:
        bounds[:, 1] = upper
    result = linprog(cost, A_ub=less, b_ub=limit, A_eq=equal, b_eq=rhs, bounds=bounds, method="highs")
    return np.asarray(result.x, dtype=np.float64) if result.status == 0 and result.x is not None else None


def floor_rows(rows: Sequence[TargetRow]) -> tuple[NDArray[np.float64], Vector] | None:
    """Return rows -d x <= -minimum for each denominator that no other equation keeps above 0, or None."""
    unpinned = [r for r in rows if not r.pinned and float(r.under.max(initial=0.0)) > 0]
    if not unpinned:
        return None
    return np.stack([-r.under / r.under.max() for r in unpinned]), np.full(len(unpinned), -MIN_DENOMINATOR)


def any_solution(problem: MixProblem, max_share: float | None = None) -> Vector | None:
    """Return any x that satisfies all equations; None if there is no solution."""
    if len(problem.table) == 0 or any(not r.pinned and not r.under.any() for r in problem.rows):
        return None
    equal, rhs = problem.equations()
    floors = floor_rows(problem.rows)
    return solve_linear(np.zeros(len(problem.table)), equal, rhs, max_share, *(floors or (None, None)))


def _range(rows: Sequence[TargetRow], at: int, values: Mapping[str, float], busy: float) -> tuple[float, float] | None:
    """Return the minimum and maximum of one metric while the others in `values` hold; None if that is infeasible."""
    row = rows[at]
    n = len(row.over)
    # The unknowns are x and a scalar tau that scales the denominator of the metric to 1 (Charnes-Cooper).
    scale = float(np.abs(row.under).max(initial=0.0)) or abs(row.under_constant) or 1.0
    over_scale = float(np.abs(row.over).max(initial=0.0)) or abs(row.over_constant) or 1.0
    equal = [np.append(np.ones(n), -busy), np.append(row.under, row.under_constant) / scale]
    rhs = [0.0, 1.0]
    others = [r for i, r in enumerate(rows) if i != at and r.name in values]
    for r in others:
        c, b = r.equation(values[r.name])
        equal.append(np.append(c, -b))
        rhs.append(0.0)
    floors = floor_rows(others)
    less = None if floors is None else np.hstack([floors[0], -floors[1][:, None]])
    limit = None if floors is None else np.zeros(len(floors[1]))
    cost = np.append(row.over, row.over_constant) / over_scale
    ends = []
    for sign in (1.0, -1.0):
        x = solve_linear(sign * cost, np.stack(equal), np.array(rhs), None, less, limit)
        if x is None:
            return None
        ends.append(float(cost @ x) * over_scale / scale)
    return min(ends), max(ends)


def _inside(value: float, low: float, high: float) -> float:
    """Round a value to few digits, within [low, high]."""
    value = min(max(value, low), high)
    for digits in (4, 5, 6, 8, 10, 12):
        nearest = float(f"{value:.{digits - 1}e}")
        step = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1) if value else 0.0
        for candidate in (nearest, nearest + step, nearest - step):
            rounded = float(f"{candidate:.{digits - 1}e}")
            if low <= rounded <= high:
                return rounded
    return value


def _nearest(problem: MixProblem) -> dict[str, float] | None:
    """Return feasible values of all target metrics with the minimum sum of relative changes, or None."""
    rows = problem.rows
    n, m = len(problem.table), len(rows)
    if n == 0 or m == 0:
        return None
    typical = [r.typical for r in rows]
    x: Vector | None = None
    for _ in range(3):
        # Two slacks per metric, up and down. The cost of a slack is the change relative to the target value.
        equal = np.zeros((1 + m, n + 2 * m))
        rhs = np.zeros(1 + m)
        equal[0, :n], rhs[0] = 1.0, 1.0 - problem.target.pace
        for i, r in enumerate(rows):
            size = abs(r.value) or float(np.abs(r.over).max(initial=0.0)) / (typical[i] or 1.0) or 1.0
            scale = size * (typical[i] or 1.0)
            equal[1 + i, :n] = (r.over - r.value * r.under) / scale
            rhs[1 + i] = (r.value * r.under_constant - r.over_constant) / scale
            equal[1 + i, n + 2 * i], equal[1 + i, n + 2 * i + 1] = -1.0, 1.0
        cost = np.concatenate([np.zeros(n), np.ones(2 * m)])
        floors = floor_rows(rows)
        less = None if floors is None else np.hstack([floors[0], np.zeros((len(floors[1]), 2 * m))])
        solution = solve_linear(cost, equal, rhs, None, less, None if floors is None else floors[1])
        if solution is None:
            return None
        x = solution[:n]
        denominators = [float(r.under @ x) + r.under_constant for r in rows]
        if all(abs(a - b) <= 1e-3 * abs(a) for a, b in zip(denominators, typical, strict=True)):
            break
        typical = [d if d > 0 else old for d, old in zip(denominators, typical, strict=True)]
    assert x is not None
    feasible_values = {}
    result: dict[str, float] = {}
    for r in rows:
        d = float(r.under @ x) + r.under_constant
        if d <= 0:
            return None
        feasible_values[r.name] = (float(r.over @ x) + r.over_constant) / d
        if abs(feasible_values[r.name] - r.value) <= 1e-5 * (
            abs(r.value) or float(np.abs(r.over).max(initial=0.0)) / d or 1.0
        ):
            result[r.name] = r.value
    # Round the changed values one by one, each within the range that the previous values leave.
    for i, r in enumerate(rows):
        if r.name in result:
            continue
        span = _range(rows, i, result, 1 - problem.target.pace)
        if span is None:
            result[r.name] = feasible_values[r.name]
            continue
        low, high = span
        margin = 1e-6 * (high - low)
        result[r.name] = _inside(feasible_values[r.name], low + margin, high - margin)
    return result


def reachable(problem: MixProblem) -> dict[str, tuple[float, float] | None]:
    """Return the range of each target metric while the others hold."""
    values = {r.name: r.value for r in problem.rows}
    return {r.name: _range(problem.rows, i, values, 1 - problem.target.pace) for i, r in enumerate(problem.rows)}


def _format(value: float) -> str:
    return f"{value:.6g}" if abs(value) > 1e-12 else "0"


def impossible_error(problem: MixProblem) -> ImpossibleError:
    """Return an error that says why there is no solution, with the ranges and the nearest feasible profile."""
    ranges = reachable(problem)
    values = _nearest(problem)
    nearest = dataclasses.replace(problem.target, metrics=values) if values is not None else None
    targets = ", ".join(f"{r.name} = {_format(r.value)}" for r in problem.rows)
    range_texts = "; ".join(
        f"{name} {_format(span[0])} to {_format(span[1])}" if span else f"{name} none" for name, span in ranges.items()
    )
    message = f"{problem.target.name}: no mix of the kernels gives {targets}"
    if len(ranges) > 1:
        message += f"; possible while the others hold: {range_texts}"
    else:
        message += f"; possible: {range_texts}"
    hint = ""
    if values is not None:
        hint = "the nearest feasible profile: " + ", ".join(f"{k} = {v!r}" for k, v in sorted(values.items()))
    return ImpossibleError(message, hint, ranges, nearest)


def find_max_share(problem: MixProblem) -> float | None:
    """Return the smallest feasible limit on a variant's share, at least `most_share`; None if there is no solution."""
    limit = problem.target.most_share
    if any_solution(problem, limit) is not None:
        return limit
    if any_solution(problem) is None:
        return None
    low, high = limit, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        if any_solution(problem, middle) is None:
            low = middle
        else:
            high = middle
    return min(1.0, high * 1.01)
