"""Says how the rates of a sweep over the core clock of a modelled machine follow the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from meshmark.store.record import Record, set_conditions, varying
from meshmark.values.clock import ClockEffect, clock_effect

CLOCK: Final = "cpu.clock_ghz"  # key of a machine file


def clock_sweeps(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Judge every rate over the clock, for each combination of the other conditions.

    Rates are computed, so they have no interval. A quantity that is better if lower, such as a time, counts as 1 over
    its value.

    Returns:
        Objects with `metrics`, `others` and the fields of `ClockEffect`; metrics with the same values share one. Empty
        if the clock was not varied.
    """
    usable = [r for r in records if _ghz(r) > 0 and r.better != "none" and r.value > 0]
    if len({_ghz(r) for r in usable}) < 2:
        return []
    others = [k for k in varying(set_conditions(usable), usable) if k != CLOCK]
    groups: dict[tuple[str, str], dict[float, dict[int, float]]] = {}
    for r in usable:
        rate = r.value if r.better == "higher" else 1 / r.value
        key = r.metric, " ".join(f"{k}={r.conditions[k]}" for k in others if k in r.conditions)
        groups.setdefault(key, {})[1e9 * _ghz(r)] = {1: rate}
    found: dict[tuple[str, ClockEffect], list[str]] = {}
    for (metric, fixed), rates in groups.items():
        found.setdefault((fixed, clock_effect(rates, computed=True)), []).append(metric)
    return [
        {"type": "clock", "machine": usable[0].machine, "metrics": metrics, "others": fixed, **asdict(effect)}
        for (fixed, effect), metrics in found.items()
    ]


def _ghz(record: Record) -> float:
    value = record.conditions.get(CLOCK)
    return float(value) if isinstance(value, int | float) else 0.0
