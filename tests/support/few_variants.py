"""Variants of load kernels with round numbers, for equations that are solved by hand."""

from __future__ import annotations

from typing import Any

from meshmark.load.calibration.metrics import Metrics, all_metrics
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant, VariantColumns
from meshmark.load.synthesis.problem import MixProblem, equation_rows


def variant(name: str, **more: Any) -> Variant:
    """Return a variant of the kernel that precedes the slash of its name; a call takes 1 s unless `more` says
    otherwise."""
    conditions = {"kernel": name.partition("/")[0], "kind": "stream", "volume_bytes": 1 << 20, "wall_s": 1.0, **more}
    return Variant(name=name, **{"cpu_s": conditions["wall_s"], **conditions})


def flops(**gflop_per_s: float) -> list[Variant]:
    """Return variants with these rates, by name."""
    return [variant(name, flops=rate * 1e9) for name, rate in gflop_per_s.items()]


def problem(
    variants: list[Variant], own: Metrics | None = None, metrics: dict[str, float] | None = None, **keys: Any
) -> MixProblem:
    """Return the equations of a profile with these target metrics and all of the variants."""
    target = TargetProfile(**{"run_time_s": 10.0, "name": "p", "metrics": metrics or {}, **keys})
    table = VariantColumns(variants, target.load_balance)
    return MixProblem(table, equation_rows(table, target, all_metrics(own)), target)
