"""What a program is to be like: the keys of a scenario's [[program]] that prescribe behaviour."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final

from annotated_types import Interval
from pydantic import AfterValidator, Field, Strict

from meshmark.errors import UsageError
from meshmark.load.metrics import Metric, Metrics
from meshmark.values.inputs import LIST, Input, Label, Name, checked, fields_of, shown, unknown_key

DEFAULT_MEMORY_MIB: Final = 2048
LEAST_KERNELS: Final = 20
MOST_SHARE: Final = 0.2
MOST_PACE: Final = 0.9
# Of these the formula can only lie within [0, 1].
_FRACTIONS: Final = ("write_fraction", "system_share")

RunTime = Annotated[float, Field(ge=1e-3, le=1e6)]
Threads = Annotated[int, Field(ge=1, le=1 << 16)]
_Kernels = Annotated[
    tuple[Label, ...],
    LIST,
    Field(max_length=1000, description="a list of kernels' names"),
    AfterValidator(lambda names: tuple(sorted(set(names)))),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrescriptionTable(Input):
    """The keys of a prescription, except metrics; `load_balance` is both."""

    run_time_s: RunTime  # wall
    name: Name = "program"
    threads: Threads = 1
    load_balance: Annotated[float, Field(ge=1e-5, le=1)] = 1.0  # mean over largest share of the threads' work
    memory_mib: Annotated[float, Field(ge=1e-3, le=1e9)] = DEFAULT_MEMORY_MIB  # most that all arrays take together
    kernels: _Kernels = ()  # only these; empty: any
    without: _Kernels = ()
    least_kernels: Annotated[int, Field(ge=1, le=1000)] = LEAST_KERNELS  # where the wish leaves room for so many
    # Of the run time, for one variant, unless the wish needs more.
    most_share: Annotated[float, Field(ge=1e-3, le=1)] = MOST_SHARE
    seed: Annotated[int, Field(ge=0, le=(1 << 63) - 1)] = 0
    # Share of the run time that no kernel has: the program waits there for its schedule, spinning.
    pace: Annotated[float, Field(ge=0, le=MOST_PACE)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prescription(PrescriptionTable):
    """A wish. `metrics` are the prescribed values of metrics by name, in the metric's unit, of the whole program."""

    metrics: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As the keys of a [[program]]; `parse_prescription` reads it back."""
        out: dict[str, Any] = {"name": self.name, "run_time_s": float(self.run_time_s)}
        out |= {k: float(self.metrics[k]) for k in sorted(self.metrics)}
        out |= {k: float(getattr(self, k)) for k in ("load_balance", "memory_mib", "most_share")}
        out |= {k: getattr(self, k) for k in ("threads", "least_kernels", "seed")}
        if self.pace:
            out["pace"] = float(self.pace)
        for key in ("kernels", "without"):
            if getattr(self, key):
                out[key] = list(getattr(self, key))
        return out


def parse_prescription(
    raw: Mapping[str, Any], where: str, metrics: Metrics, others: Collection[str] = ()
) -> Prescription:
    """A prescription from the keys of a table.

    Args:
        raw: as read from TOML or JSON.
        where: what errors call the table, such as "scenario.toml: program traffic".
        metrics: all that there are (`all_metrics`).
        others: keys that belong to somebody else (copies, cpus, …): skipped here, offered in "did you mean".

    Raises:
        UsageError: one line that names the key, what was found and what is allowed, or the keys that contradict.
    """
    known = {f.name for f in fields(PrescriptionTable)}
    values: dict[str, float] = {}
    for key, value in raw.items():
        if key in metrics and key not in known:
            values[key] = _prescribed(metrics[key], value, f"{where}: {shown(key)}")
        elif key not in known and key not in others:
            ratios = (name for name, m in metrics.items() if m.ratio)
            raise UsageError(f"{where}: {unknown_key(key, sorted({*known, *others, *ratios}))}")
    table = checked(PrescriptionTable, {k: v for k, v in raw.items() if k in known}, where)
    wish = Prescription(metrics=values, **fields_of(table))
    _contradictions(wish, where, metrics)
    return wish


def _prescribed(metric: Metric, value: object, where: str) -> float:
    if metric.ratio is None:
        raise UsageError(f"{where}: can be shown, not prescribed: {metric.formula[:60]!r} is no ratio of two sums")
    positive = all(f >= 0 for part in metric.ratio for f in part.factors.values())
    limits = Interval(ge=0 if positive else -1e18, le=1 if metric.name in _FRACTIONS else 1e18)
    number: Any = Annotated[float, Strict(), limits]
    prescribed: float = checked(number, value, where)
    return prescribed


def _contradictions(wish: Prescription, where: str, metrics: Metrics) -> None:
    """UsageError for what cannot be whatever the kernels are, by the names of the keys."""
    if wish.load_balance < 1 and wish.threads == 1:
        raise UsageError(
            f"{where}: load_balance = {wish.load_balance:g} contradicts threads = 1: one thread is in balance"
        )
    if wish.load_balance * wish.threads < 1:
        raise UsageError(
            f"{where}: load_balance = {wish.load_balance:g} contradicts threads = {wish.threads}: "
            f"the mean is at least {1 / wish.threads:g} of the largest"
        )
    both = sorted(set(wish.kernels) & set(wish.without))
    if both:
        raise UsageError(f"{where}: kernels and without both name {both[0]}")
    for name, value in sorted(wish.metrics.items()):
        ratio = metrics[name].ratio
        assert ratio is not None
        for other, zero in sorted(wish.metrics.items()):
            base = metrics[other].ratio
            if zero == 0 and other != name and base is not None and ratio[1].times(base[0]) is not None:
                raise UsageError(f"{where}: {name} = {value:g} contradicts {other} = 0: it would be 0 / 0")
