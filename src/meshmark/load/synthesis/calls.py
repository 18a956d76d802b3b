"""Rounds the numbers of calls to integers and repairs the sums greedily."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.load.calibration.metrics import Linear, Metrics
from meshmark.load.calibration.order import PLAIN, best_phases
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import VariantColumns, Vector
from meshmark.load.synthesis.problem import MixProblem, TargetRow, parts_of
from meshmark.load.synthesis.program import ProgramPart, SyntheticProgram

_GRANULARITY: Final = 1e-3  # relative error of a sum above which the program gets a note
_CLOSE: Final = 1e-5  # relative error of a sum that needs no repair
_EXCHANGED: Final = 64  # variants considered in an exchange


def _whole_calls(problem: MixProblem, x: Vector) -> tuple[NDArray[np.int64], float]:
    """Return integer numbers of calls, at least one each, and the maximum relative error of a target sum."""
    equal, rhs = problem.equations()
    seconds, run_time = problem.seconds, problem.target.run_time_s
    # With x known, the denominators are known, too, so errors can be made exactly relative.
    actual = [float(r.under @ x) + r.under_constant for r in problem.rows]
    scale = np.array(
        [1.0, *(r.typical / d if d > 0 and r.value else 1.0 for r, d in zip(problem.rows, actual, strict=True))]
    )
    equal, rhs = equal * scale[:, None], rhs * scale
    # The error of a sum of a few large calls is bounded by their size. It must not dominate the other sums.
    trust = np.array([1.0, *(1 / (1 + _quantum(r, seconds, x, run_time) / _GRANULARITY) for r in problem.rows)])
    equal, rhs = equal * trust[:, None], rhs * trust
    per_call = equal * (seconds / run_time)  # what one call adds to each equation
    calls = np.maximum(1, np.rint(x * run_time / seconds)).astype(np.int64)
    residual = per_call @ calls - rhs
    # Add or remove a call of one or two variants. With one variant, time cannot be corrected without changing rates.
    moves = np.hstack([per_call, -per_call])
    n = len(calls)
    for _ in range(200):
        size = float(residual @ residual)
        possible_moves = np.concatenate([np.arange(n), n + np.flatnonzero(calls > 2)])
        candidates = moves[:, possible_moves]
        single_change = (candidates**2).sum(axis=0) + 2 * residual @ candidates
        pair_change = single_change[:, None] + single_change[None, :] + 2 * candidates.T @ candidates
        i, j = divmod(int(pair_change.argmin()), len(possible_moves))
        best_single = int(single_change.argmin())
        best_moves = (
            [possible_moves[best_single]]
            if single_change[best_single] <= pair_change[i, j]
            else [possible_moves[i], possible_moves[j]]
        )
        if min(float(single_change[best_single]), float(pair_change[i, j])) >= -1e-3 * size:
            break
        for k in best_moves:
            calls[k % n] += 1 if k < n else -1
        residual = per_call @ calls - rhs
    for _ in range(3):
        if float(np.abs(residual).max()) <= _CLOSE:
            break
        change = _exchange(per_call, residual, calls)
        if change is None:
            break
        size_before = float(residual @ residual)
        calls += change
        residual = per_call @ calls - rhs
        if float(residual @ residual) > 0.5 * size_before:
            break
    return calls, float(np.abs(residual / trust).max())


def _quantum(row: TargetRow, seconds: Vector, x: Vector, run_time: float) -> float:
    """Return the mean contribution of one call to a metric's sum, as a share of the sum, weighted by contribution."""
    contribution = np.abs(row.over) * x
    total = float(contribution.sum())
    return float(contribution @ (np.abs(row.over) * seconds)) / total**2 / run_time if total else 0.0


def _exchange(per_call: NDArray[np.float64], residual: Vector, calls: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Find the change of up to four calls that minimises the error of the sums; None if no change reduces it.

    Meet in the middle: a change combines two moves, each of which adds, removes or swaps a call. A tree of all moves
    finds the best partner of each move.
    """
    from scipy.spatial import cKDTree

    ranks = np.linspace(0, per_call.shape[1] - 1, _EXCHANGED // len(residual)).astype(np.intp)
    # Variants with small and large contributions to every sum.
    variants = np.unique(np.argsort(per_call, axis=1, kind="stable")[:, ranks])
    n = len(variants)
    p = per_call[:, variants]
    givers = np.flatnonzero(calls[variants] > 2)  # can lose two calls
    gainers = np.concatenate(
        [np.full(1, -1), np.arange(n), np.full(len(givers), -1), np.repeat(np.arange(n), len(givers))]
    )
    losers = np.concatenate([np.full(1, -1), np.full(n, -1), givers, np.tile(givers, n)])
    padded = np.hstack([p, np.zeros((len(residual), 1))])  # index -1: no call
    moves = (padded[:, gainers] - padded[:, losers]).T
    size = float(np.sqrt(residual @ residual))
    neighbours = cKDTree(moves).query(-residual - moves, distance_upper_bound=size)
    distance, partners = np.asarray(neighbours[0]), np.asarray(neighbours[1])
    best = int(np.argmin(distance))
    if not distance[best] < size:
        return None
    change = np.zeros(len(calls), dtype=np.int64)
    for move in (best, int(partners[best])):
        if gainers[move] >= 0:
            change[variants[gainers[move]]] += 1
        if losers[move] >= 0:
            change[variants[losers[move]]] -= 1
    return change


def _sums(table: VariantColumns, target: TargetProfile, metrics: Metrics) -> dict[str, Vector]:
    """Return the sums that must grow evenly: numerators and denominators of the target metrics, per call."""
    sums: dict[str, Vector] = {}
    for name in sorted(target.metrics):
        over, under = parts_of(metrics[name])
        sums[name] = over.evaluate(table.columns)
        if under.factors and under.multiple_of(Linear({"wall_s": 1.0})) is None:
            sums[f"{name} (denominator)"] = under.evaluate(table.columns)
    return {k: v for k, v in sums.items() if v.any()}


def finish_program(
    problem: MixProblem,
    x: Vector,
    metrics: Metrics,
    user_metrics: Metrics,
    machine: str,
    versions: Mapping[str, str],
    phases: Vector | None,
    calibrations: int,
    notes: list[str],
) -> SyntheticProgram:
    """Return the program with whole numbers of calls, ordered evenly.

    Args:
        problem: The selected variants and their equations.
        x: Share of the run time of each variant.
        metrics: All metrics by name.
        user_metrics: The user's metrics by name.
        machine: Machine of the calibration data.
        versions: Versions of the kernels, by name.
        phases: Phases from which the search for an even order starts; None: any.
        calibrations: Number of calibration runs so far.
        notes: Deviations from the profile; further ones are added.
    """
    target = problem.target
    calls, error = _whole_calls(problem, x)
    sums = _sums(problem.table, target, metrics)
    best, uniformity = best_phases(calls.tolist(), problem.seconds, sums, start=phases)
    if error > _GRANULARITY:
        notes.append(
            f"sums are up to {100 * error:.2g} % off because calls are indivisible; a longer run_time_s reduces this"
        )
    if uniformity.worst > PLAIN:
        worst = max(uniformity.worst_deviation, key=lambda k: uniformity.worst_deviation[k])
        notes.append(
            f"{worst} deviates from even growth by up to {100 * uniformity.worst:.2g} % of its total; "
            "a longer run_time_s reduces this"
        )
    serial = problem.table.columns["serial_s"]
    parts = tuple(
        ProgramPart(dataclasses.replace(v, serial_s=float(s) if math.isfinite(s) else None), int(n), float(p))
        for v, s, n, p in zip(problem.table.variants, serial, calls, best, strict=True)
    )
    program = SyntheticProgram(
        profile=target,
        parts=parts,
        uniformity=uniformity,
        machine=machine,
        versions=dict(versions),
        own_metrics={k: m for k, m in user_metrics.items() if k in target.metrics},
        calibrations=calibrations,
    )
    if len(program.kernels) < target.least_kernels:
        notes.append(
            f"{len(program.kernels)} kernels share the work, fewer than {target.least_kernels}: "
            "the target profile and its memory_mib allow no more"
        )
    largest = max(parts, key=lambda p: p.calls * p.variant.wall_s)
    share = largest.calls * largest.variant.wall_s / target.load_balance / target.run_time_s
    if share > target.most_share * 1.05:
        notes.append(f"{largest.variant.name} has {100 * share:.0f} % of the time: the target profile requires it")
    return dataclasses.replace(program, notes=tuple(notes))
