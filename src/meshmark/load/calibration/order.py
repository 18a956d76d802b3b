"""Compute the order of a program's calls: each variant is spread evenly, so that every window has the mean rates.

Two numbers per variant, `calls` n_k and `phase` phi_k, define the order, which is recomputed wherever a program runs:

    Call c (0 <= c < n_k) of variant k has the time (c + phi_k) / n_k, computed in IEEE 754 double precision with
    rounding to nearest even: c as a double, plus phi_k, divided by n_k as a double. Calls run in the order of these
    times; for equal times, the variant with the smaller index k in the program's list runs first.

No other operation is involved, so C++ (without -ffast-math) and Python give the same order. Phases are multiples of
2^-24, so that c + phi_k is exact up to c = 2^29. By default phi_k = frac(k x golden ratio), the low-discrepancy
sequence of Weyl, so that variants of equal n_k do not start together. A runner needs a heap of the next time of every
variant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.load.calibration.variants import Vector

GOLDEN: Final = (1 + math.sqrt(5)) / 2
_STEP: Final = 1 << 24
_AT_ONCE: Final = 1 << 20  # calls held in memory
_MAX_DIFFUSED: Final = 100_000  # calls; longer programs are even enough without a search for phases
_GRID, _PHASES = 1024, 64
_MIN_SWEEPS, _MAX_SWEEPS = 3, 8
PLAIN: Final = 0.01  # deviation of a cumulative sum from a straight line, over its total, below which no note is needed


def golden_phases(n: int) -> Vector:
    """Return the default phases phi_0 … phi_(n-1), each in [0, 1) and a multiple of 2^-24."""
    phases: Vector = np.floor(np.mod(np.arange(n) * GOLDEN, 1.0) * _STEP) / _STEP
    return phases


def sequence(
    calls: Sequence[int], phases: Sequence[float] | Vector, at_once: int = _AT_ONCE
) -> Iterator[NDArray[np.intp]]:
    """Yield the indices of the variants in call order, in pieces of about `at_once` calls.

    Args:
        calls: number of calls of each variant, at least 1.
        phases: phase of each variant, in [0, 1).
        at_once: approximate length of a piece.
    """
    n = np.asarray(calls, dtype=np.float64)
    phi = np.asarray(phases, dtype=np.float64)
    pieces = max(1, math.ceil(float(n.sum()) / at_once))
    first_call = np.zeros(len(n), dtype=np.int64)
    for piece in range(1, pieces + 1):
        if piece == pieces:
            end_call = np.asarray(calls, dtype=np.int64)
        else:
            # The first c with (c + phi) / n >= limit, with the same rounding as below.
            limit = piece / pieces
            end_call = np.clip(np.ceil(limit * n - phi), first_call, n).astype(np.int64)
            for _ in range(2):
                end_call -= ((end_call > first_call) & ((end_call - 1 + phi) / n >= limit)).astype(np.int64)
                end_call += ((end_call < n) & ((end_call + phi) / n < limit)).astype(np.int64)
        count = end_call - first_call
        indices = np.repeat(np.arange(len(n)), count)
        if len(indices):
            call_numbers = (
                np.arange(len(indices)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first_call, count)
            )
            times = (call_numbers.astype(np.float64) + phi[indices]) / n[indices]
            # A stable sort of ascending `indices` gives ties to the smaller index.
            yield indices[np.argsort(times, kind="stable")]
        first_call = end_call


@dataclass(frozen=True, slots=True)
class Uniformity:
    """How evenly a planned sequence spreads its work."""

    worst_deviation: Mapping[str, float]  # of the cumulative sum from a straight line, over the total of the sum
    window_s: float
    window_cov: Mapping[str, float]  # coefficient of variation of the sum over whole windows

    @property
    def worst(self) -> float:
        """Return the largest deviation of all sums in all windows; 0 if there are none."""
        return max(self.worst_deviation.values(), default=0.0)


def uniformity(
    calls: Sequence[int],
    phases: Sequence[float] | Vector,
    seconds: Vector,
    sums: Mapping[str, Vector],
    window_s: float = 1.0,
) -> Uniformity:
    """Return the uniformity of a planned sequence, computed call by call.

    Args:
        calls: number of calls of each variant, at least 1.
        phases: phase of each variant, in [0, 1).
        seconds: duration of one call of each variant.
        sums: by name, the contribution of one call of each variant; has the shape of `seconds`.
        window_s: reduced to a tenth of the program if ten windows do not fit.
    """
    names = [k for k, v in sums.items() if abs(float(np.dot(v, np.asarray(calls, dtype=np.float64)))) > 0]
    n = np.asarray(calls, dtype=np.float64)
    total_s = float(n @ seconds)
    window = min(window_s, total_s / 10)
    per_call = np.stack([seconds, *(sums[k] for k in names)])
    totals = per_call @ n
    share = per_call / totals[:, None]
    edges = np.arange(1, int(total_s / window * (1 + 1e-12)) + 1) * (window / total_s)
    at_edges = np.zeros((len(names), len(edges)))
    sums_before = np.zeros(len(names) + 1)
    worst = np.zeros(len(names))
    for indices in sequence(calls, phases):
        running_sums = np.empty((len(names) + 1, len(indices) + 1))
        running_sums[:, 0] = sums_before
        np.cumsum(share[:, indices], axis=1, out=running_sums[:, 1:])
        running_sums[:, 1:] += sums_before[:, None]
        # Sums grow linearly within a call, so the extremes are at its ends.
        for i in range(len(names)):
            worst[i] = max(worst[i], float(np.abs(running_sums[i + 1] - running_sums[0]).max()))
        in_piece = (edges > running_sums[0, 0]) & (edges <= running_sums[0, -1])
        for i in range(len(names)):
            at_edges[i, in_piece] = np.interp(edges[in_piece], running_sums[0], running_sums[i + 1])
        sums_before = running_sums[:, -1].copy()
    if len(edges) and edges[-1] > sums_before[0]:
        at_edges[:, edges > sums_before[0]] = 1.0
    windows = np.diff(at_edges, axis=1, prepend=0.0)
    variation = windows.std(axis=1) / np.abs(windows.mean(axis=1)) if len(edges) else np.zeros(len(names))
    return Uniformity(
        {k: float(worst[i]) for i, k in enumerate(names)}, window, {k: float(variation[i]) for i, k in enumerate(names)}
    )


def best_phases(
    calls: Sequence[int],
    seconds: Vector,
    sums: Mapping[str, Vector],
    start: Vector | None = None,
    enough: float = 0.003,
) -> tuple[Vector, Uniformity]:
    """Return phases whose worst deviation is at most `enough`, or the best phases that the search finds.

    The search begins with `start`, by default the golden sequence in the order of the list, which suffices for a long
    program. For a short program, phases are then chosen one variant at a time, heaviest calls first, so that deviations
    of the variants cancel (error diffusion over the variants).
    """
    best = golden_phases(len(calls)) if start is None else start
    best_uniformity = uniformity(calls, best, seconds, sums)
    if best_uniformity.worst <= enough or not sums or sum(calls) > _MAX_DIFFUSED:
        return best, best_uniformity
    n = np.asarray(calls, dtype=np.float64)
    # Share of each sum minus share of the time in one call of each variant, shape (sums, variants).
    ahead = np.stack([v / (v @ n) for v in sums.values() if v @ n]) - seconds / (seconds @ n)
    weight = (ahead**2).sum(axis=0)
    times = np.mod((np.arange(_GRID) + 0.5) * GOLDEN, 1.0)  # share of the total time
    candidates = np.arange(_PHASES) / _PHASES

    def steps(k: int, phases: Vector) -> Vector:
        """Return calls of k that have begun minus calls that are due, shape (phases, times)."""
        started = np.clip(np.ceil(n[k] * times - phases[:, None]), 0, n[k])
        excess: Vector = started - n[k] * times
        return excess

    phases = best.copy()
    deviations = np.zeros((len(ahead), _GRID))
    for sweep in range(_MAX_SWEEPS):
        if sweep >= _MIN_SWEEPS and best_uniformity.worst <= PLAIN:
            break
        for k in np.argsort(-weight, kind="stable"):
            if sweep:
                deviations -= np.outer(ahead[:, k], steps(k, phases[k : k + 1])[0])
            candidate_steps = steps(k, candidates)
            cost = 2 * candidate_steps @ (ahead[:, k] @ deviations) + weight[k] * (candidate_steps**2).sum(axis=1)
            phases[k] = candidates[int(cost.argmin())]
            deviations += np.outer(ahead[:, k], steps(k, phases[k : k + 1])[0])
        uniformity_of_sweep = uniformity(calls, phases, seconds, sums)
        if uniformity_of_sweep.worst < best_uniformity.worst:
            best, best_uniformity = phases.copy(), uniformity_of_sweep
    return best, best_uniformity
