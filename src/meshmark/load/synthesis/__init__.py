"""Synthesises a program that meets a target profile from calibrated kernel variants.

The unknowns are x_k >= 0, the share of the run time spent in variant k. Each target metric a / d = v is one linear
equation, sum over k of (a_k - v d_k) / t_k x_k = 0, where t_k is the time of one call. The shares add up to 1.

1. Linear programs (HiGHS) decide whether a solution exists, find the range of each metric while the others hold, and
   find the nearest feasible profile. The Charnes-Cooper transformation (1962) makes a metric whose denominator is not
   time linear.
2. A vertex of a linear program uses only as many variants as there are equations. The solution with the minimum
   sum x_k^2 / s_k uses more variants: ridge-regularised non-negative least squares with exact equality constraints.
   Newton steps solve its dual, which is piecewise quadratic with one unknown per equation, in milliseconds whatever
   the number of variants.
3. Numbers of calls are rounded to integers and repaired greedily.
4. `order.py` spreads the calls evenly.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError as MeshmarkError
from meshmark.errors import UsageError
from meshmark.load.calibration.metrics import Linear as Linear
from meshmark.load.calibration.metrics import LoadMetric as LoadMetric
from meshmark.load.calibration.metrics import Metrics, all_metrics
from meshmark.load.calibration.order import PLAIN as PLAIN
from meshmark.load.calibration.order import best_phases as best_phases
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant, VariantColumns
from meshmark.load.calibration.variants import Vector as Vector
from meshmark.load.synthesis.calls import finish_program
from meshmark.load.synthesis.feasible import any_solution, find_max_share, impossible_error, reachable
from meshmark.load.synthesis.mix import balanced, select_variants, spread_evenly, weights
from meshmark.load.synthesis.problem import MixProblem, equation_rows, presolved, usable_variants
from meshmark.load.synthesis.program import ProgramPart as ProgramPart
from meshmark.load.synthesis.program import SyntheticProgram
from meshmark.load.synthesis.program import spinning as spinning


def _problem(
    variants: Sequence[Variant], target: TargetProfile, metrics: Metrics
) -> tuple[MixProblem, float, list[str]]:
    """Set up the equations on the usable variants and find the maximum share of one variant.

    Raises:
        ImpossibleError: There is no solution.
        UsageError: A value is not finite or a metric is unknown.
    """
    for name, value in (("run_time_s", target.run_time_s), *sorted(target.metrics.items())):
        if not math.isfinite(value) or name not in ("run_time_s", *metrics):
            raise UsageError(f"{target.name}: {name}: found {value}; allowed: finite values of known metrics")
    table = VariantColumns(variants, target.load_balance)
    preferred, special = usable_variants(table, target, metrics)

    def on(which: NDArray[np.intp]) -> MixProblem:
        part = table.only(which)
        return MixProblem(part, equation_rows(part, target, metrics), target)

    notes: list[str] = []
    full_problem = on(preferred)
    problem = presolved(full_problem)
    max_share = find_max_share(problem)
    if max_share is None and len(special):
        full_problem = on(np.sort(np.concatenate([preferred, special])))
        problem = presolved(full_problem)
        max_share = find_max_share(problem)
        if max_share is not None:
            notes.append("uses system or idle kernels: the target profile is impossible without them")
    if max_share is None:
        raise impossible_error(full_problem)
    return problem, max_share, notes


def synthesize(
    variants: Sequence[Variant],
    target: TargetProfile,
    *,
    own_metrics: Metrics | None = None,
    machine: str = "",
    versions: Mapping[str, str] | None = None,
) -> SyntheticProgram:
    """Plan a program that meets a target profile.

    Args:
        variants: Calibration data; variants with another number of threads are ignored. `idle` and `system` kernels and
            kernels that do I/O are used only if a target metric depends on them, `kernels` names them, or there is no
            solution without them.
        target: The target profile.
        own_metrics: User-defined metrics (`parse_metrics`).
        machine: Machine of the calibration data.
        versions: Versions of the kernels, by name.

    Returns:
        The program. Its `notes` list shortfalls: granularity, number of kernels, evenness.

    Raises:
        ImpossibleError: No mix meets the profile; reports the ranges and the nearest feasible profile.
        UsageError: A key of the profile excludes all variants; the message names it.
    """
    metrics_of_user = own_metrics or {}
    metrics = all_metrics(metrics_of_user)
    problem, max_share, notes = _problem(variants, target, metrics)
    indices, alternative = select_variants(problem, max_share)
    selection = problem.only(indices)
    x = balanced(selection, max_share, alternative, target.least_kernels, target.seed)
    for _ in range(4):
        # A variant with hardly any calls takes memory and cannot be spread evenly.
        is_rare = (x * target.run_time_s / selection.seconds < 2) & (x < 0.01)
        if not is_rare.any():
            break
        indices_kept = np.flatnonzero(~is_rare)
        smaller_problem = selection.only(indices_kept)
        smaller_x = spread_evenly(*smaller_problem.equations(), weights(smaller_problem.table, target.seed), max_share)
        if smaller_x is None or len(np.unique(smaller_problem.table.kernel_of)) < min(
            target.least_kernels,
            len(np.unique(selection.table.kernel_of[x * target.run_time_s / selection.seconds >= 1])),
        ):
            # The equations need these variants. Drop only those that round to no call.
            indices_kept = np.flatnonzero(x * target.run_time_s / selection.seconds >= 0.5)
            selection, x = selection.only(indices_kept), x[indices_kept]
            break
        selection, x = smaller_problem, smaller_x
    return finish_program(selection, x, metrics, metrics_of_user, machine, versions or {}, None, 0, notes)


def explain(
    variants: Sequence[Variant], target: TargetProfile, *, own_metrics: Metrics | None = None
) -> dict[str, tuple[float, float] | None]:
    """Find the range of each target metric while the others hold, even if the profile is impossible.

    Raises:
        UsageError: A key of the profile excludes all variants; the message names it.
    """
    metrics = all_metrics(own_metrics)
    table = VariantColumns(variants, target.load_balance)
    part = table.only(usable_variants(table, target, metrics)[0])
    return reachable(MixProblem(part, equation_rows(part, target, metrics), target))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTimes:
    """Measured times of a run. `per_call_s` is optional; without it, all variants are scaled alike."""

    wall_s: float  # all calls
    cpu_s: float | None = None  # sum over the threads
    per_call_s: Mapping[str, float] | None = None  # mean wall time of a call in the sequence, by variant


@dataclass(frozen=True, slots=True)
class Calibration:
    """The outcome of one correction of a program."""

    program: SyntheticProgram
    error: float  # relative error of the measured run: wall time over target run time, minus 1
    converged: bool  # the error is within the floor; the program is unchanged


def recalibrate(
    program: SyntheticProgram, measured: MeasuredTimes, *, damping: float = 0.7, floor: float = 0.0
) -> Calibration:
    """Adjust the numbers of calls by times measured in the mix rather than for each kernel alone.

    In a mix, each call finds the caches as other kernels left them, so calibrated times are 25 to 50 % off. Times move
    towards the measured times by the factor `damping`, because the measurement is noisy, too. The numbers of calls
    change as little as the target profile allows. Rates are counts over time, so correct times give correct rates.

    Args:
        program: The program that ran.
        measured: The times of its run.
        damping: 1 uses the measured times without damping.
        floor: Relative repeatability of the machine; an error below it counts as noise.

    Raises:
        ImpossibleError: The chosen variants cannot meet the profile with these times; synthesize again.
        UsageError: A time is not finite and positive.
    """
    target = program.profile

    def time(value: float, what: str) -> float:
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{target.name}: {what}: found {value}; allowed: a time > 0")
        return value

    if not 0 < damping <= 1:
        raise UsageError(f"{target.name}: damping: found {damping}; allowed: above 0, at most 1")
    error = time(measured.wall_s, "wall_s") / target.run_time_s - 1
    if abs(error) <= floor:
        return Calibration(program, error, True)
    totals = program.totals()
    mean_wall_factor = measured.wall_s / totals["wall_s"]
    mean_cpu_factor = (
        time(measured.cpu_s, "cpu_s") / totals["cpu_s"]
        if measured.cpu_s is not None and totals["cpu_s"]
        else mean_wall_factor
    )
    per_call = measured.per_call_s or {}
    names = {p.variant.name for p in program.parts}
    for name in per_call:
        if name not in names:
            raise UsageError(f"{target.name}: measured {name!r}, which is not in the program")
    variants = []
    for p in program.parts:
        v = p.variant
        wall_factor = cpu_factor = mean_wall_factor
        if v.name in per_call:
            wall_factor = time(per_call[v.name], v.name) / (v.wall_s / target.load_balance)
        cpu_factor = wall_factor * mean_cpu_factor / mean_wall_factor
        new_times: dict[str, Any] = {
            "wall_s": v.wall_s * (1 + damping * (wall_factor - 1)),
            "cpu_s": v.cpu_s * (1 + damping * (cpu_factor - 1)),
            "system_s": v.system_s * (1 + damping * (cpu_factor - 1)),
            "wall_interval_s": None,
        }
        variants.append(dataclasses.replace(v, **new_times))
    metrics = all_metrics(program.own_metrics)
    table = VariantColumns(variants, target.load_balance)
    problem = MixProblem(table, equation_rows(table, target, metrics), target)
    current_shares = (
        np.array([p.calls for p in program.parts], dtype=np.float64) * table.columns["wall_s"] / target.run_time_s
    )
    current_shares *= (1 - target.pace) / current_shares.sum()
    max_share = max(target.most_share, float(current_shares.max()) * 1.2)
    # The current shares are the weights, so that all shares change by similar factors and none vanishes.
    x = spread_evenly(*problem.equations(), np.maximum(current_shares, 1e-9), max_share, current_shares)
    if x is None:
        x = any_solution(problem)
    if x is None:
        raise impossible_error(problem)
    phases = np.array([p.phase for p in program.parts])
    notes = [n for n in program.notes if n.startswith("uses system or idle kernels")]
    new_program = finish_program(
        problem,
        x,
        metrics,
        program.own_metrics,
        program.machine,
        program.versions,
        phases,
        program.calibrations + 1,
        notes,
    )
    return Calibration(new_program, error, False)
