"""Determines how the rates in a sweep over the core clock of a modelled machine follow the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from meshmark.describe import chosen_conditions
from meshmark.statistics.clock import ClockEffect, clock_effect
from meshmark.store.record import Record, varying

CLOCK: Final = "cpu.clock_ghz"  # key of a machine file


def clock_sweeps(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return how every rate depends on the clock, for each combination of the other conditions.

    Rates are computed, so they have no interval. The rate of a quantity that is better if lower, such as a time, is the
    reciprocal of its value.

    Returns:
        Objects with `metrics`, `others` and the fields of `ClockEffect`; metrics with the same values share an object.
        Empty if the clock was not varied.
    """
    usable = [r for r in records if _ghz(r) > 0 and r.better != "none" and r.value > 0]
    if len({_ghz(r) for r in usable}) < 2:
        return []
    other_conditions = [k for k in varying(chosen_conditions(usable), usable) if k != CLOCK]
    groups: dict[tuple[str, str], dict[float, dict[int, float]]] = {}
    for r in usable:
        rate = r.value if r.better == "higher" else 1 / r.value
        key = r.metric, " ".join(f"{k}={r.conditions[k]}" for k in other_conditions if k in r.conditions)
        groups.setdefault(key, {})[1e9 * _ghz(r)] = {1: rate}
    metrics_by_effect: dict[tuple[str, ClockEffect], list[str]] = {}
    for (metric, fixed), rates in groups.items():
        metrics_by_effect.setdefault((fixed, clock_effect(rates, computed=True)), []).append(metric)
    return [
        {"type": "clock", "machine": usable[0].machine, "metrics": metrics, "others": fixed, **asdict(effect)}
        for (fixed, effect), metrics in metrics_by_effect.items()
    ]


def _ghz(record: Record) -> float:
    value = record.conditions.get(CLOCK)
    return float(value) if isinstance(value, int | float) else 0.0
