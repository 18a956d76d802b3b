"""Sets up the equations of a synthesis: the usable variants and one row per target metric."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import UsageError, near
from meshmark.load.calibration.metrics import Linear, LoadMetric, Metrics
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import VariantColumns, Vector
from meshmark.load.synthesis.program import spinning

MIB: Final = 1 << 20
MAX_VARIANTS: Final = 160
CALLS_EACH: Final = 30  # minimum on average; fewer calls cannot be spread evenly
MIN_DENOMINATOR: Final = 1e-4  # relative to the largest value; avoids ratios of 0 / 0
# Kinds that are used only if a target metric depends on them or `kernels` names them.
_SPECIAL: Final = ("idle", "system")
_SYSTEM: Final = frozenset({"system_s", "system_calls"})
_IO: Final = frozenset({"io_read_bytes", "io_write_bytes"})


class ImpossibleError(UsageError):
    """No mix of the variants meets the target profile.

    Attributes:
        ranges: Range of each target metric while the others hold; None if no value is possible.
        nearest: The feasible profile with the minimum relative change.
    """

    def __init__(
        self, message: str, hint: str, ranges: Mapping[str, tuple[float, float] | None], nearest: TargetProfile | None
    ) -> None:
        super().__init__(message, hint)
        self.ranges = dict(ranges)
        self.nearest = nearest


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One target metric, as rates of each variant."""

    name: str
    value: float
    over: Vector  # a_k / t_k
    under: Vector  # d_k / t_k
    over_constant: float  # per second of the run time
    under_constant: float
    pinned: bool  # the other equations keep the denominator above 0
    typical: float  # approximate denominator, per second

    def equation(self, value: float | None = None) -> tuple[Vector, float]:
        """Return the coefficients of x and the right-hand side, scaled so that errors are approximately relative."""
        v = self.value if value is None else value
        c = self.over - v * self.under
        rhs = v * self.under_constant - self.over_constant
        # A write fraction has an absolute tolerance of 0.0005, and all other metrics have a relative tolerance of
        # 0.001.
        scale = max(abs(v), 0.5 if self.name == "write_fraction" else 0.0) * self.typical
        if scale == 0:
            scale = float(np.abs(c).max(initial=0.0)) or 1.0
        return c / scale, rhs / scale


@dataclass(frozen=True, slots=True)
class MixProblem:
    """The usable variants and their equations."""

    table: VariantColumns
    rows: tuple[TargetRow, ...]
    target: TargetProfile

    @property
    def seconds(self) -> Vector:
        """Return the time of one call of each variant, shape (variants,)."""
        return self.table.columns["wall_s"]

    def only(self, which: NDArray[np.intp]) -> MixProblem:
        """Return the problem with a part of the variants."""
        rows = tuple(dataclasses.replace(r, over=r.over[which], under=r.under[which]) for r in self.rows)
        return MixProblem(self.table.only(which), rows, self.target)

    def equations(self) -> tuple[NDArray[np.float64], Vector]:
        """Return the matrix, shape (1 + metrics, variants), and the right-hand side, shape (1 + metrics,).

        The first equation is the sum of all shares: 1 minus the pace.
        """
        equations = [r.equation() for r in self.rows]
        return np.stack([np.ones(len(self.table)), *(c for c, _ in equations)]), np.array(
            [1.0 - self.target.pace, *(b for _, b in equations)]
        )


def _fixed_denominator(row: Linear, target: TargetProfile, metrics: Metrics) -> float | None:
    """Return a denominator per second if the target profile determines it, else None."""
    if (factor := row.multiple_of(Linear({"wall_s": 1.0}))) is not None:
        return factor
    for name, value in sorted(target.metrics.items()):
        ratio = metrics[name].ratio
        assert ratio is not None
        time_factor = ratio[1].multiple_of(Linear({"wall_s": 1.0}))
        factor_of_numerator = row.multiple_of(ratio[0])
        if factor_of_numerator is not None and time_factor is not None and value > 0:
            return factor_of_numerator * value * time_factor
    return None


def equation_rows(table: VariantColumns, target: TargetProfile, metrics: Metrics) -> tuple[TargetRow, ...]:
    """Return one row per target metric, sorted by name."""
    rows = []
    t = table.columns["wall_s"]
    spinning_s = spinning(target)

    def constant(sums: Linear) -> float:
        return (
            sums.constant + sum(f * spinning_s.get(k, 0.0) for k, f in sorted(sums.factors.items()))
        ) / target.run_time_s

    for name, value in sorted(target.metrics.items()):
        over, under = parts_of(metrics[name])
        fixed_denominator = _fixed_denominator(under, target, metrics)
        per_s = under.evaluate(table.columns) / t
        largest = float(np.abs(per_s).max(initial=0.0))
        rows.append(
            TargetRow(
                name,
                value,
                over.evaluate(table.columns) / t,
                per_s,
                constant(over),
                constant(under),
                fixed_denominator is not None or under.is_constant,
                fixed_denominator
                if fixed_denominator is not None
                else abs(under.constant) / target.run_time_s
                if under.is_constant
                else largest * 1e-2,
            )
        )
    return tuple(rows)


def parts_of(m: LoadMetric) -> tuple[Linear, Linear]:
    """Return the numerator and the denominator of a metric.

    Raises:
        UsageError: The metric is not a ratio of two sums.
    """
    if m.ratio is None:
        raise UsageError(f"{m.name}: cannot be a target: {m.formula[:60]!r} is not a ratio of two sums")
    return m.ratio


def usable_variants(
    table: VariantColumns, target: TargetProfile, metrics: Metrics
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of the usable variants, and of variants to use only if there is no other solution.

    Raises:
        UsageError: A key excludes all variants; the message names it.
    """
    where = target.name
    kernels = set(table.kernels)
    for key in ("kernels", "without"):
        for k in getattr(target, key):
            if k not in kernels:
                suggestion = near(k, kernels) or f"the calibration data have {', '.join(sorted(kernels))}"
                raise UsageError(f"{where}: {key}: unknown kernel {k!r}; {suggestion}")
    columns = frozenset().union(*(metrics[m].names for m in target.metrics)) if target.metrics else frozenset()
    missing_columns = sorted(columns - table.columns.keys())
    if missing_columns:
        raise UsageError(f"{where}: the calibration data have no {missing_columns[0]}, which a target metric needs")
    mask = np.ones(len(table), dtype=bool)

    def keep(those: NDArray[np.bool_], reason: str) -> None:
        nonlocal mask
        if not (mask & those).any():
            raise UsageError(f"{where}: {reason}")
        mask = mask & those

    variants = table.variants
    threads = sorted({v.threads for v in variants})
    keep(
        np.array([v.threads == target.threads for v in variants], dtype=bool),
        f"threads: found {target.threads}; the calibration data have variants with {', '.join(map(str, threads))}",
    )
    kernels_allowed = (set(target.kernels) or kernels) - set(target.without)
    keep(
        np.array([v.kernel in kernels_allowed for v in variants], dtype=bool),
        "kernels and without exclude all variants with this number of threads",
    )
    keep(
        table.volume_bytes <= target.memory_mib * MIB,
        f"memory_mib: found {target.memory_mib:g}; the smallest variant needs "
        f"{float(table.volume_bytes[mask].min(initial=math.inf)) / MIB:.3g} MiB",
    )
    if target.load_balance < 1:
        keep(
            np.array([not v.team for v in variants], dtype=bool),
            f"load_balance: found {target.load_balance:g}; the remaining kernels divide their work evenly",
        )
    for name in sorted(target.metrics):
        known_values = np.isfinite(sum((table.columns[c] for c in metrics[name].names), np.zeros(len(table))))
        keep(known_values, f"{name}: the calibration data lack it for all variants with threads = {target.threads}")
    needs_system, needs_io = bool(columns & (_SYSTEM | _IO)), bool(columns & _IO)
    does_io = (table.columns["io_read_bytes"] + table.columns["io_write_bytes"]) > 0
    is_special = (
        np.array([v.kind in _SPECIAL and v.kernel not in target.kernels for v in variants], dtype=bool) | does_io
    )
    is_requested = np.array(
        [v.kernel in target.kernels or (v.kind != "idle" and needs_system) for v in variants], dtype=bool
    )
    if not needs_io:
        is_requested &= ~does_io | np.array([v.kernel in target.kernels for v in variants], dtype=bool)
    is_preferred = mask & (~is_special | is_requested)
    return np.flatnonzero(is_preferred), np.flatnonzero(mask & ~is_preferred)


def presolved(problem: MixProblem) -> MixProblem:
    """Remove variants that an equation forces to 0: terms of one sign that sum to 0 are all 0."""
    keep = np.ones(len(problem.table), dtype=bool)
    for row in problem.rows:
        c, rhs = row.equation()
        if rhs == 0 and (not (c[keep] < 0).any() or not (c[keep] > 0).any()):
            keep &= c == 0
    return problem if keep.all() else problem.only(np.flatnonzero(keep))
