"""Pools the records of independent runs of the same points.

A process keeps its pages, its cache placement and its share of the machine for its lifetime, so its samples may agree
with each other and still differ from those of another process. Only fresh processes reveal that variation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from meshmark.describe import description, descriptions
from meshmark.measure.plan import Step
from meshmark.store.record import Record, median, median_interval
from meshmark.store.run import Absence


def point_key(record: Record) -> str:
    """Key of a record's point: instrument, metric, and the conditions that distinguish the instrument's points."""
    requested = {k: record.conditions.get(k) for k in descriptions()[record.instrument].identity}
    derived = {k: record.conditions.get(k) for k in ("level", "kind") if k in record.conditions}
    return json.dumps([record.instrument, record.metric, requested, derived], sort_keys=True)


def pool(runs: Sequence[Sequence[Record]], width_percent: float) -> list[Record]:
    """One record per point, in the order of the first run, with the samples of all runs.

    Adds the conditions `runs`; `run_spread`, (max - min) / min of the runs' medians, dimensionless; and `run_low` and
    `run_high`, the bounds of all runs' intervals, in the metric's unit. Flags are the union of the runs' flags, except
    that `truncated` is removed if the interval of all samples is within `width_percent` of the value on either side.
    Runs whose intervals do not overlap make the point `noisy`.
    """
    points: dict[str, list[Record]] = {}
    for run in runs:
        for record in run:
            points.setdefault(point_key(record), []).append(record)
    return [_pooled(same, width_percent) for same in points.values()]


def pool_steps(runs: Iterable[tuple[Step, Sequence[Record]]]) -> list[Record]:
    """Records of all steps, in order, with repetitions pooled."""
    repeated: dict[str, list[Sequence[Record]]] = {}
    widths: dict[str, float] = {}
    for step, records in runs:
        repeated.setdefault(step.repeats, []).append(records)
        widths[step.repeats] = _width_percent(step)
    return [r for name, same in repeated.items() for r in (pool(same, widths[name]) if len(same) > 1 else same[0])]


def _width_percent(step: Step) -> float:
    argv = list(step.argv)
    requested = argv[argv.index("--interval") + 1] if "--interval" in argv else ""
    try:
        return float(requested or description(step.instrument).parameter("interval").default)
    except ValueError:  # the instrument rejects such a value
        return math.nan


def unique(absences: Iterable[Absence]) -> list[Absence]:
    """Absences without duplicates from repetitions; errors are kept for each step."""
    found: dict[str, Absence] = {}
    for a in absences:
        step = a.step if a.kind == "error" else ""
        found.setdefault(json.dumps([a.instrument, a.metric, a.conditions, a.reason, step], default=str), a)
    return list(found.values())


def _pooled(same: Sequence[Record], width_percent: float) -> Record:
    if len(same) == 1:
        return same[0]
    medians = [r.value for r in same]
    spread = (max(medians) - min(medians)) / min(medians) if min(medians) > 0 else math.nan
    bounds = [r.interval for r in same if r.interval is not None]
    disjoint = bool(bounds) and max(low for low, _ in bounds) > min(high for _, high in bounds)
    samples = tuple(s for r in same for s in r.samples)
    value, interval = median(samples), median_interval(samples)
    flags = frozenset().union(*(r.flags for r in same), {"noisy"} if disjoint else ())
    if interval and interval[1] - interval[0] <= 2 * abs(value) * width_percent / 100:
        flags -= {"truncated"}
    known = len(bounds) == len(same)
    conditions = {
        **same[0].conditions,
        "runs": len(same),
        "run_spread": None if math.isnan(spread) else spread,
        "run_low": min(low for low, _ in bounds) if known else None,
        "run_high": max(high for _, high in bounds) if known else None,
    }
    return replace(
        same[0],
        samples=samples,
        value=value,
        interval=interval,
        conditions=conditions,
        flags=flags,
    )
