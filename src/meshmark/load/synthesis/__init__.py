"""From a prescription to a program: how many seconds of which variant.

Unknown are x_k >= 0, the part of the run time that is spent in variant k. Every prescribed metric a / d = v is one
linear equation, sum over k of (a_k - v d_k) / t_k x_k = 0, with t_k the seconds of one call, and the parts add up to 1.

1. Linear programs (HiGHS) tell at once whether there is such an x, within which range each metric could be while the
   others hold, and which possible wish is nearest. A metric with a denominator other than time is brought to a linear
   program by the transformation of Charnes and Cooper (1962).
2. A vertex of a linear program uses as many variants as there are equations. Of all solutions the one of least
   sum x_k^2 / s_k is taken: non-negative least squares with a ridge, equations kept exactly. It is solved in its dual,
   which has one unknown an equation and is piecewise quadratic, by Newton steps: milliseconds, whatever the number of
   variants.
3. Calls are whole numbers: rounded, then repaired greedily.
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
from meshmark.load.metrics import Linear as Linear
from meshmark.load.metrics import Metric as Metric
from meshmark.load.metrics import Metrics, all_metrics
from meshmark.load.order import PLAIN as PLAIN
from meshmark.load.order import best_phases as best_phases
from meshmark.load.profile import TargetProfile
from meshmark.load.program import Part as Part
from meshmark.load.program import Program
from meshmark.load.program import spinning as spinning
from meshmark.load.synthesis.calls import finish_program
from meshmark.load.synthesis.feasible import any_solution, find_max_share, impossible_error, reachable
from meshmark.load.synthesis.mix import balanced, select_variants, spread_evenly, weights
from meshmark.load.synthesis.problem import Problem, equation_rows, presolved, usable_variants
from meshmark.load.variants import Table, Variant
from meshmark.load.variants import Vector as Vector

# ------------------------------------------------------------------ public


def _problem(variants: Sequence[Variant], target: TargetProfile, metrics: Metrics) -> tuple[Problem, float, list[str]]:
    """The equations on the usable variants, and the largest part of one; ImpossibleError where there is no solution."""
    for name, value in (("run_time_s", target.run_time_s), *sorted(target.metrics.items())):
        if not math.isfinite(value) or name not in ("run_time_s", *metrics):
            raise UsageError(f"{target.name}: {name}: found {value}; allowed are finite values of known metrics")
    table = Table(variants, target.load_balance)
    usual, special = usable_variants(table, target, metrics)

    def on(which: NDArray[np.intp]) -> Problem:
        part = table.only(which)
        return Problem(part, equation_rows(part, target, metrics), target)

    notes: list[str] = []
    whole = on(usual)
    problem = presolved(whole)
    max_share = find_max_share(problem)
    if max_share is None and len(special):
        whole = on(np.sort(np.concatenate([usual, special])))
        problem = presolved(whole)
        max_share = find_max_share(problem)
        if max_share is not None:
            notes.append("kernels of the system or idle ones are in it: without them the prescription is impossible")
    if max_share is None:
        raise impossible_error(whole)
    return problem, max_share, notes


def synthesize(
    variants: Sequence[Variant],
    target: TargetProfile,
    *,
    own_metrics: Metrics | None = None,
    machine: str = "",
    versions: Mapping[str, str] | None = None,
) -> Program:
    """A program that is planned to behave as prescribed.

    Args:
        variants: base data; those of other numbers of threads are ignored. `idle` and `system` kernels, and those that
            do I/O, are used only where a prescribed metric is about such things, `kernels` names them, or nothing else
            would do.
        own_metrics: users' (`parse_metrics`).
        machine: whose base data these are.
        versions: of the kernels, by name.

    Returns:
        The program; its `notes` say what fell short (granularity, number of kernels, evenness), if anything.

    Raises:
        ImpossibleError: no mix gives this; says the ranges and the nearest possible wish.
        UsageError: a key leaves no variant, by its name.
    """
    own = own_metrics or {}
    metrics = all_metrics(own)
    problem, max_share, notes = _problem(variants, target, metrics)
    which, alternative = select_variants(problem, max_share)
    small = problem.only(which)
    x = balanced(small, max_share, alternative, target.least_kernels, target.seed)
    for _ in range(4):
        # A variant with next to no calls takes memory and comes in lumps.
        few = (x * target.run_time_s / small.seconds < 2) & (x < 0.01)
        if not few.any():
            break
        kept = np.flatnonzero(~few)
        fewer = small.only(kept)
        tried = spread_evenly(*fewer.equations(), weights(fewer.table, target.seed), max_share)
        if tried is None or len(np.unique(fewer.table.kernel_of)) < min(
            target.least_kernels, len(np.unique(small.table.kernel_of[x * target.run_time_s / small.seconds >= 1]))
        ):
            # The equations need them: what is not used at all goes nevertheless.
            kept = np.flatnonzero(x * target.run_time_s / small.seconds >= 0.5)
            small, x = small.only(kept), x[kept]
            break
        small, x = fewer, tried
    return finish_program(small, x, metrics, own, machine, versions or {}, None, 0, notes)


def explain(
    variants: Sequence[Variant], target: TargetProfile, *, own_metrics: Metrics | None = None
) -> dict[str, tuple[float, float] | None]:
    """Of each prescribed metric, what is reachable while the others hold; also of an impossible wish.

    Raises:
        UsageError: a key leaves no variant, by its name.
    """
    metrics = all_metrics(own_metrics)
    table = Table(variants, target.load_balance)
    part = table.only(usable_variants(table, target, metrics)[0])
    return reachable(Problem(part, equation_rows(part, target, metrics), target))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run of a program took. Give `per_call_s` where the executor measured it, else the totals only."""

    wall_s: float  # of all calls
    cpu_s: float | None = None  # sum of the threads
    per_call_s: Mapping[str, float] | None = None  # mean wall seconds of one call in the sequence, by variant


@dataclass(frozen=True, slots=True)
class Calibration:
    program: Program
    error: float  # of the run that was measured: wall over prescribed, less 1
    converged: bool  # the error is within the floor, and the program was left as it was


def recalibrate(program: Program, measured: Measured, *, damping: float = 0.7, floor: float = 0.0) -> Calibration:
    """The same variants with other numbers of calls, by times measured in context instead of each kernel alone.

    In a mix every call finds the caches as others left them, so that base data are a quarter to a half off. Times move
    by `damping` of the way to the measured ones, because a measurement is noisy too, and numbers of calls as little as
    the prescription allows. Rates are counts over time: right times make right rates.

    Args:
        damping: 1 takes the measured times as they are.
        floor: repeatability of the machine, relative; an error within it is noise.

    Raises:
        ImpossibleError: with these times the chosen variants cannot do it; synthesize again with them.
        UsageError: a time is no time.
    """
    target = program.profile

    def time(value: float, what: str) -> float:
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{target.name}: {what}: found {value}; allowed is a time > 0")
        return value

    if not 0 < damping <= 1:
        raise UsageError(f"{target.name}: damping: found {damping}; allowed is a number above 0, at most 1")
    error = time(measured.wall_s, "wall_s") / target.run_time_s - 1
    if abs(error) <= floor:
        return Calibration(program, error, True)
    totals = program.totals()
    all_wall = measured.wall_s / totals["wall_s"]
    all_cpu = (
        time(measured.cpu_s, "cpu_s") / totals["cpu_s"] if measured.cpu_s is not None and totals["cpu_s"] else all_wall
    )
    per_call = measured.per_call_s or {}
    names = {p.variant.name for p in program.parts}
    for name in per_call:
        if name not in names:
            raise UsageError(f"{target.name}: measured {name!r}, which is not in the program")
    variants = []
    for p in program.parts:
        v = p.variant
        wall = cpu = all_wall
        if v.name in per_call:
            wall = time(per_call[v.name], v.name) / (v.wall_s / target.load_balance)
        cpu = wall * all_cpu / all_wall
        moved: dict[str, Any] = {
            "wall_s": v.wall_s * (1 + damping * (wall - 1)),
            "cpu_s": v.cpu_s * (1 + damping * (cpu - 1)),
            "system_s": v.system_s * (1 + damping * (cpu - 1)),
            "wall_interval_s": None,
        }
        variants.append(dataclasses.replace(v, **moved))
    metrics = all_metrics(program.own_metrics)
    table = Table(variants, target.load_balance)
    problem = Problem(table, equation_rows(table, target, metrics), target)
    before = np.array([p.calls for p in program.parts], dtype=np.float64) * table.columns["wall_s"] / target.run_time_s
    before *= (1 - target.pace) / before.sum()
    max_share = max(target.most_share, float(before.max()) * 1.2)
    # Weighted by what they have, so that all change by similar factors and none vanishes.
    x = spread_evenly(*problem.equations(), np.maximum(before, 1e-9), max_share, before)
    if x is None:
        x = any_solution(problem)
    if x is None:
        raise impossible_error(problem)
    phases = np.array([p.phase for p in program.parts])
    notes = [n for n in program.notes if n.startswith("kernels of the system")]
    made = finish_program(
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
    return Calibration(made, error, False)
