"""Define metrics as formulas over the counts and times of calls, built in or supplied by the user.

    [metric.memory_gb_per_s]
    formula = "(memory_read_bytes + memory_write_bytes) / wall_s / 1e9"
    unit = "GB/s"

A formula consists of + - * /, parentheses, numbers and the names of columns: `variants.COLUMNS`, and those counters of
`native.described_columns` that the machine of the calibration data provides. For a whole program it is evaluated on the
sums over all calls, never as a mean of ratios. A ratio of two linear sums can be part of a target profile, because
`a / d = v` is the linear equation `a - v d = 0`.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field

from meshmark.errors import UsageError, near
from meshmark.load.calibration.native import described_columns
from meshmark.load.calibration.variants import COLUMNS, Variant, VariantColumns, Vector
from meshmark.store.files import parse_toml, read_text
from meshmark.values.inputs import PRINTABLE, Input, checked, key_text

_MAX_FORMULA: Final = 500  # characters
_MAX_DEPTH: Final = 40
_MAX_METRICS: Final = 200  # in one file
_MAX_BYTES: Final = 1 << 16  # size of a file of metrics
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,59}")

MetricTables = Annotated[
    dict[str, Any], Field(max_length=_MAX_METRICS, description=f"at most {_MAX_METRICS} tables [metric.NAME]")
]


@dataclass(frozen=True)
class MetricsFile(Input):
    """The content of a file of metrics."""

    metric: MetricTables = field(default_factory=dict)


@dataclass(frozen=True)
class MetricTable(Input):
    """The table of a metric: its formula, and its unit as text."""

    formula: str
    unit: Annotated[str, Field(max_length=30), PRINTABLE] = ""


# Keys of a target profile that are not metrics.
RESERVED: Final = frozenset(
    {"name", "run_time_s", "threads", "memory_mib", "kernels", "without", "least_kernels", "most_share", "seed", "pace"}
)

BUILT_IN: Final = """
[metric.memory_gb_per_s]
formula = "(memory_read_bytes + memory_write_bytes) / wall_s / 1e9"
unit = "GB/s"
[metric.cache_gb_per_s]
formula = "cache_bytes / wall_s / 1e9"
unit = "GB/s"
[metric.gflop_per_s]
formula = "flops / wall_s / 1e9"
unit = "Gflop/s"
[metric.gint_per_s]
formula = "int_ops / wall_s / 1e9"
unit = "Gop/s"
[metric.write_fraction]
formula = "memory_write_bytes / (memory_read_bytes + memory_write_bytes)"
unit = "1"
[metric.io_gb_per_s]
formula = "(io_read_bytes + io_write_bytes) / wall_s / 1e9"
unit = "GB/s"
[metric.system_share]
formula = "system_s / cpu_s"
unit = "1"
[metric.system_calls_per_s]
formula = "system_calls / wall_s"
unit = "op/s"
[metric.load_balance]
formula = "cpu_s / thread_s"
unit = "1"
[metric.parallel_efficiency]
formula = "serial_s / thread_s"
unit = "1"
"""


@dataclass(frozen=True, slots=True)
class Linear:
    """The linear sum: constant + sum of factor x column."""

    factors: Mapping[str, float]
    constant: float = 0.0

    def scaled(self, by: float) -> Linear:
        """Return the sum with every term multiplied by a factor."""
        return Linear({k: f * by for k, f in self.factors.items()}, self.constant * by)

    def plus(self, other: Linear, sign: float) -> Linear:
        """Return this sum plus `sign` times the other; terms that cancel out are removed."""
        factors = {
            k: self.factors.get(k, 0.0) + sign * other.factors.get(k, 0.0) for k in {**self.factors, **other.factors}
        }
        return Linear({k: f for k, f in factors.items() if f}, self.constant + sign * other.constant)

    @property
    def is_constant(self) -> bool:
        """Return whether the sum depends on no column."""
        return not self.factors

    def evaluate(self, columns: Mapping[str, Vector]) -> Vector:
        """Return the sum for each variant without the constant, in the shape of the columns."""
        first = next(iter(columns.values()))
        return sum((f * columns[k] for k, f in sorted(self.factors.items())), np.zeros_like(first))

    def multiple_of(self, other: Linear) -> float | None:
        """Return the factor f with self = f x other; None if no such factor exists."""
        if self.factors.keys() != other.factors.keys() or not self.factors or self.constant or other.constant:
            return None
        quotients = [self.factors[k] / other.factors[k] for k in self.factors]
        return quotients[0] if max(quotients) - min(quotients) <= 1e-12 * abs(quotients[0]) else None


_ONE: Final = Linear({}, 1.0)


@dataclass(frozen=True, slots=True)
class LoadMetric:
    """A metric: its formula, parsed, and its form as a ratio of sums if it has one."""

    name: str
    formula: str
    unit: str
    tree: ast.expr
    ratio: tuple[Linear, Linear] | None  # None: the metric can be reported, but not be part of a target profile
    names: frozenset[str]  # columns of the formula

    def evaluate(self, columns: Mapping[str, Vector]) -> Vector:
        """Return the value for each element of the columns (variants or totals); NaN or infinite on division by 0."""
        with np.errstate(all="ignore"):
            return np.asarray(_value(self.tree, columns), dtype=np.float64)


Metrics = Mapping[str, LoadMetric]


def _value(node: ast.expr, columns: Mapping[str, Vector]) -> Vector:
    match node:
        case ast.Constant(value=value):
            assert isinstance(value, int | float)
            return np.float64(value) * np.ones_like(next(iter(columns.values())))
        case ast.Name(id=name):
            return columns[name]
        case ast.UnaryOp(op=op, operand=operand):
            return -_value(operand, columns) if isinstance(op, ast.USub) else _value(operand, columns)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, columns), _value(right, columns)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case _:
                    return a / b
    raise AssertionError(node)


def _check(node: ast.expr, known: Collection[str], what: str, depth: int = 0) -> frozenset[str]:
    """Return the names in a tree, which must be pure arithmetic."""
    if depth > _MAX_DEPTH:
        raise UsageError(f"{what}: parentheses and operators are nested deeper than {_MAX_DEPTH}")
    match node:
        case ast.Constant(value=value):
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
                raise UsageError(f"{what}: found {ast.unparse(node)[:40]!r}; allowed: finite numbers")
            return frozenset()
        case ast.Name(id=name):
            if name not in known:
                suggestion = near(name, known) or "allowed: " + ", ".join(known)
                raise UsageError(f"{what}: unknown name {name[:60]!r}; {suggestion}")
            return frozenset({name})
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _check(operand, known, what, depth + 1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            return _check(left, known, what, depth + 1) | _check(right, known, what, depth + 1)
    raise UsageError(f"{what}: found a {type(node).__name__}; allowed: + - * / ( ), numbers and names of columns")


def _ratio(node: ast.expr) -> tuple[Linear, Linear] | None:
    """Return the tree as a ratio of two linear sums; None if it does not have that form as written."""
    match node:
        case ast.Constant(value=value):
            assert isinstance(value, int | float)
            return Linear({}, float(value)), _ONE
        case ast.Name(id=name):
            return Linear({name: 1.0}), _ONE
        case ast.UnaryOp(op=op, operand=operand):
            inner = _ratio(operand)
            return inner and (inner[0].scaled(-1.0 if isinstance(op, ast.USub) else 1.0), inner[1])
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _ratio(left), _ratio(right)
            if a is None or b is None:
                return None
            match op:
                case ast.Add() | ast.Sub():
                    sign = 1.0 if isinstance(op, ast.Add) else -1.0
                    if a[1] == b[1]:
                        return a[0].plus(b[0], sign), a[1]
                    if a[1].is_constant and a[0].is_constant:  # number ± ratio
                        return b[1].scaled(a[0].constant / a[1].constant).plus(b[0], sign), b[1]
                    if b[1].is_constant and b[0].is_constant:
                        return a[0].plus(a[1].scaled(b[0].constant / b[1].constant), sign), a[1]
                    return None
                case ast.Mult():
                    return _product(a, b)
                case _:
                    return None if b[0].is_constant and b[0].constant == 0 else _product(a, (b[1], b[0]))
    raise AssertionError(node)


def _product(a: tuple[Linear, Linear], b: tuple[Linear, Linear]) -> tuple[Linear, Linear] | None:
    def product(x: Linear, y: Linear) -> Linear | None:
        if x.is_constant:
            return y.scaled(x.constant)
        return x.scaled(y.constant) if y.is_constant else None

    numerator, denominator = product(a[0], b[0]), product(a[1], b[1])
    if numerator is None or denominator is None:
        return None
    if denominator.is_constant and denominator.constant != 1:
        return (numerator.scaled(1 / denominator.constant), _ONE) if denominator.constant else None
    return numerator, denominator


def metric(name: str, formula: str, unit: str = "", known: Collection[str] = COLUMNS) -> LoadMetric:
    """Return the metric that a formula defines.

    Raises:
        UsageError: one line that names the metric.
    """
    label = f"metric {name}"
    if len(formula) > _MAX_FORMULA:
        raise UsageError(f"{label}: the formula has {len(formula)} characters; allowed: {_MAX_FORMULA}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as about invalid escapes; errors are reported below
            tree = ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{label}: {formula[:60]!r} is not a formula; allowed: + - * / ( ), numbers and names"
        ) from error
    names = _check(tree, known, label)
    if not names:
        raise UsageError(f"{label}: {formula[:60]!r} contains no name of a count or time")
    ratio = _ratio(tree)
    if ratio is not None and not all(
        math.isfinite(f) for part in ratio for f in (*part.factors.values(), part.constant)
    ):
        raise UsageError(f"{label}: the product of its numbers overflows")
    if ratio is not None and (ratio[0].is_constant and ratio[1].is_constant):
        ratio = None  # such as wall_s - wall_s
    return LoadMetric(name, formula, unit, tree, ratio, names)


def parse_metrics(toml: str, origin: str, counters: Collection[str] | None = None) -> dict[str, LoadMetric]:
    """Return metrics from TOML text, without the built-in ones.

    Args:
        toml: the text.
        origin: the name of the text in error messages.
        counters: counters that formulas may contain; None: all counters that the native program describes.

    Raises:
        UsageError: one line that names the metric, what was found and what is allowed.
    """
    return metrics_of(checked(MetricsFile, parse_toml(toml, origin), origin).metric, origin, counters)


def read_metrics(path: Path) -> dict[str, LoadMetric]:
    """Return a user's metrics from a file.

    Raises:
        UsageError: the file cannot be read, or `parse_metrics` refuses its text.
    """
    return parse_metrics(read_text(path, _MAX_BYTES), str(path))


def metrics_of(
    tables: Mapping[str, Any], origin: str, counters: Collection[str] | None = None
) -> dict[str, LoadMetric]:
    """Return the metrics of the table `metric` of a TOML text; arguments and errors as for `parse_metrics`."""
    if not tables:
        return {}
    columns = (*COLUMNS, *(described_columns().counters if counters is None else sorted(counters)))
    metrics: dict[str, LoadMetric] = {}
    for name, table in tables.items():
        text = f"{origin}: metric {key_text(name)}"
        if not _NAME.fullmatch(name) or name in RESERVED or name in columns:
            raise UsageError(
                f"{text}: allowed: a name of lower-case letters, digits and _ that is not a column or key of a program"
            )
        table_values = checked(MetricTable, table, text)
        try:
            metrics[name] = metric(name, table_values.formula, table_values.unit, columns)
        except UsageError as error:
            raise UsageError(f"{origin}: {error}") from error
    return metrics


def all_metrics(user_metrics: Metrics | None = None) -> dict[str, LoadMetric]:
    """Return the built-in metrics and the metrics of a user, which take precedence."""
    return {**parse_metrics(BUILT_IN, "built in", counters=()), **(user_metrics or {})}


def of_variants(
    variants: Sequence[Variant], metrics: Metrics, needed: Collection[str] = ()
) -> dict[str, dict[str, float]]:
    """Return every metric of one call of every variant, by the name of the variant.

    Metrics are omitted if they divide by 0 or need a column that the calibration data do not have.

    Args:
        variants: calibration data.
        metrics: metrics by name.
        needed: required metrics.

    Raises:
        UsageError: the calibration data lack a column of a required metric; the message names both.
    """
    columns = VariantColumns(variants).columns
    for name in needed:
        missing_columns = sorted(metrics[name].names - columns.keys())
        if missing_columns:
            raise UsageError(f"metric {name}: the calibration data have no {missing_columns[0]}")
    values = {name: m.evaluate(columns) for name, m in metrics.items() if m.names <= columns.keys()}
    return {
        v.name: {name: float(column[i]) for name, column in values.items() if math.isfinite(column[i])}
        for i, v in enumerate(variants)
    }
