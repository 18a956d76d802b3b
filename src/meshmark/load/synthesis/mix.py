"""Selects the variants of a program so that the work spreads over many kernels."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.variants import VariantColumns, Vector
from meshmark.load.synthesis.feasible import floor_rows, solve_linear
from meshmark.load.synthesis.problem import CALLS_EACH, MAX_VARIANTS, MIB, MIN_DENOMINATOR, MixProblem


def spread_evenly(
    equal: NDArray[np.float64], rhs: Vector, weight: Vector, max_share: float, start: Vector | None = None
) -> Vector | None:
    """Minimise sum (x - start)^2 / weight with equal @ x = rhs and 0 <= x <= max_share; None if Newton fails.

    The dual has one multiplier l per equation, x = clip(start + weight * (l @ equal), 0, max_share), and its objective
    is convex and piecewise quadratic.
    """
    centre = np.zeros(len(weight)) if start is None else start
    norm = np.sqrt((equal**2 * weight).sum(axis=1))
    norm[norm == 0] = 1.0
    a, b = equal / norm[:, None], rhs / norm

    def at(dual: Vector) -> tuple[Vector, float, Vector]:
        z = dual @ a
        x = np.clip(centre + weight * z, 0.0, max_share)
        return x, float((z * x - (x - centre) ** 2 / (2 * weight)).sum() - b @ dual), a @ x - b

    dual = np.zeros(len(b))
    x, value, slope = at(dual)
    damping = 1e-12
    for _ in range(300):
        if float(np.abs(slope * norm).max()) <= 1e-9:
            return x
        free = (x > 0) & (x < max_share)
        h = (a[:, free] * weight[free]) @ a[:, free].T
        size = max(float(np.trace(h)), 1e-6)
        step = -np.linalg.solve(h + damping * size * np.eye(len(b)), slope)
        descent = float(slope @ step)
        length = 1.0
        for _ in range(40):
            candidate = at(dual + length * step)
            if candidate[1] <= value + 1e-4 * length * descent:
                break
            # Near the minimum, rounding hides differences of the value, but the slope still shows progress.
            is_near = candidate[1] <= value + 1e-9 * max(1.0, abs(value))
            if is_near and float(np.abs(candidate[2]).max()) < 0.5 * float(np.abs(slope).max()):
                break
            length /= 2
        else:
            if damping > 1e3:
                return None
            damping *= 1e3
            continue
        dual = dual + length * step
        x, value, slope = candidate
        damping = max(damping / 10, 1e-12)
    return x if float(np.abs(slope * norm).max()) <= 1e-6 else None


def _jitter(n: int, seed: int) -> Vector:
    """Return n numbers in [1/2, 3/2) from splitmix64, so that seeds give different programs for the same profile."""
    z = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return 0.5 + (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def weights(table: VariantColumns, seed: int) -> Vector:
    """Return weights that give each kernel the same total, however many variants it has."""
    count = np.bincount(table.kernel_of, minlength=len(table.kernels))
    return _jitter(len(table), seed) / count[table.kernel_of]


def _spread_over_kernels(
    problem: MixProblem, max_share: float, price: Vector, floor: float, free_kernels: int
) -> Vector | None:
    """Find an x that gives as many kernels as possible a share of `floor`, at the minimum price.

    At most `free_kernels` kernels are rewarded.
    """
    table = problem.table
    n = len(table)
    used_kernels = np.unique(table.kernel_of)
    k = len(used_kernels)
    equal, rhs = problem.equations()
    equal = np.hstack([equal, np.zeros((len(rhs), k))])
    # z <= sum of the shares of its kernel; the sum of all z is rewarded up to the requested number of kernels.
    less = np.zeros((k + 1, n + k))
    kernel_rows = np.searchsorted(used_kernels, table.kernel_of)
    less[kernel_rows, np.arange(n)] = -1.0
    less[np.arange(k), n + np.arange(k)] = 1.0
    limit = np.zeros(k + 1)
    less[k, n:] = 1.0
    limit[k] = floor * min(free_kernels, k)
    floors = floor_rows(problem.rows)
    if floors is not None:
        less = np.vstack([less, np.hstack([floors[0], np.zeros((len(floors[1]), k))])])
        limit = np.append(limit, floors[1])
    upper = np.concatenate([np.full(n, max_share), np.full(k, floor)])
    cost = np.concatenate([price, np.full(k, -1.0 / floor)])
    x = solve_linear(cost, equal, rhs, None, less, limit, upper)
    return None if x is None else np.where(x[:n] > 1e-9, x[:n], 0.0)


def _rank_by_kernel(table: VariantColumns, gain: Vector) -> NDArray[np.intp]:
    """Rank variants with a gain: the best of each kernel by falling gain, then the second best of each, and so on."""
    order = np.lexsort((-gain, table.kernel_of))
    kernel_starts = np.flatnonzero(np.diff(table.kernel_of[order], prepend=-1))
    rank = np.empty(len(table), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(kernel_starts, np.diff(np.append(kernel_starts, len(order))))
    ranked = np.lexsort((-gain, rank))
    return ranked[gain[ranked] > 0]


def select_variants(problem: MixProblem, max_share: float) -> tuple[NDArray[np.intp], Vector]:
    """Select variants that suffice for the target profile and for variety, within `memory_mib`.

    Returns:
        Indices of the variants, and a feasible x on them.

    Raises:
        UsageError: `memory_mib` is too small.
    """
    target, table = problem.target, problem.table
    max_bytes = target.memory_mib * MIB
    volumes = table.volume_bytes
    typical_s = float(np.median(problem.seconds))
    variant_count = int(
        min(MAX_VARIANTS, max(target.run_time_s / typical_s / CALLS_EACH, 1.25 * target.least_kernels + 8))
    )
    kernel_count = len(np.unique(table.kernel_of))
    floor = min(0.01, 0.5 / kernel_count)
    base_price = volumes / max_bytes
    price = base_price
    best: Vector | None = None
    x_in_memory: Vector | None = None
    kernel_targets = [max(target.least_kernels, min(kernel_count, variant_count))] + [target.least_kernels] * 3
    # A variant costs the same memory however little it is used, so rarely used variants become more expensive:
    # iterative reweighting after Candes, Wakin and Boyd (2008).
    for round_, kernels in enumerate(kernel_targets + [0] * 4):
        x = _spread_over_kernels(problem, max_share, price * 0.1 * 4.0**round_, floor, kernels)
        if x is None:
            break
        if best is None or volumes[x > 0].sum() < volumes[best > 0].sum():
            best = x
        if volumes[x > 0].sum() <= max_bytes:
            x_in_memory = x
            break
        price = base_price * floor / (x + 0.1 * floor)
    if x_in_memory is None:
        if best is None:
            raise MeshmarkError(f"{target.name}: the linear program of the selection failed")
        needed_mib = math.ceil(float(volumes[best > 0].sum()) / MIB)
        raise UsageError(
            f"{target.name}: memory_mib: found {target.memory_mib:g}; the target profile needs about {needed_mib}"
        )
    weight = weights(table, target.seed)
    spread = spread_evenly(*problem.equations(), weight, max_share)
    selection: list[int] = [int(i) for i in np.flatnonzero(x_in_memory)]
    used_bytes = float(volumes[selection].sum())
    if spread is not None:
        # Alternate between the share of the time and the share of each target sum. A sum that depends on a few
        # variants could only be met as precisely as the size of their calls allows.
        gain = spread / (1 + volumes / (0.02 * max_bytes))
        lists = [_rank_by_kernel(table, gain)] + [_rank_by_kernel(table, gain * np.abs(r.over)) for r in problem.rows]
        members = {int(i) for i in selection}
        positions = [0] * len(lists)
        while len(selection) < variant_count and any(
            i < len(candidates) for i, candidates in zip(positions, lists, strict=True)
        ):
            for number, candidates in enumerate(lists):
                while positions[number] < len(candidates):
                    i = int(candidates[positions[number]])
                    positions[number] += 1
                    if i not in members and used_bytes + volumes[i] <= 0.98 * max_bytes:
                        members.add(i)
                        selection.append(i)
                        used_bytes += float(volumes[i])
                        break
    indices = np.sort(np.array(selection, dtype=np.intp))
    return indices, x_in_memory[indices]


def balanced(problem: MixProblem, max_share: float, alternative: Vector, min_kernels: int, seed: int) -> Vector:
    """Return the spread solution, or a mix with the alternative if the spread solution uses too few kernels."""
    x = spread_evenly(*problem.equations(), weights(problem.table, seed), max_share)
    if x is None or any(
        not r.pinned and float(r.under @ x) < 0.5 * MIN_DENOMINATOR * float(r.under.max()) for r in problem.rows
    ):
        return alternative

    def kernels(y: Vector) -> int:
        calls = y * problem.target.run_time_s / problem.seconds
        return len(np.unique(problem.table.kernel_of[calls >= 1]))

    for share in (0.25, 0.5, 0.75):
        if kernels(x) >= min_kernels or kernels(alternative) <= kernels(x):
            break
        # The set of solutions is convex.
        mixture = (1 - share) * x + share * alternative
        if kernels(mixture) >= min_kernels or share == 0.75:
            return mixture
    return x
