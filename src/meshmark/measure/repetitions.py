"""Independent runs of one point, pooled: fresh processes tell what no number of samples of one process can.

A process keeps its pages, its place in the caches and its share of the machine for as long as it lives, so its
samples may agree with each other and still differ from the next process's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

from meshmark.measure.probe import descriptions
from meshmark.store.record import Record, median, median_interval


def point_key(record: Record) -> str:
    """What makes two records the same point: instrument, metric, and the conditions that tell its points apart."""
    asked = {k: record.conditions.get(k) for k in descriptions()[record.instrument].identity}
    derived = {k: record.conditions.get(k) for k in ("level", "kind") if k in record.conditions}
    return json.dumps([record.instrument, record.metric, asked, derived], sort_keys=True)


def pool(runs: Sequence[Sequence[Record]], width_percent: float) -> list[Record]:
    """One record a point, in the order of the first run, with the samples of all runs.

    Conditions gain `runs` and `run_spread`, (max - min) / min of the runs' medians, dimensionless. Flags are those of
    any run, except that `truncated` is judged anew: is the interval of all samples within `width_percent` of the
    value on either side? Runs whose intervals do not meet make the point `noisy`.
    """
    points: dict[str, list[Record]] = {}
    for run in runs:
        for record in run:
            points.setdefault(point_key(record), []).append(record)
    return [_pooled(same, width_percent) for same in points.values()]


def _pooled(same: Sequence[Record], width_percent: float) -> Record:
    if len(same) == 1:
        return same[0]
    medians = [r.value for r in same]
    spread = (max(medians) - min(medians)) / min(medians) if min(medians) > 0 else math.nan
    bounds = [r.interval for r in same if r.interval is not None]
    apart = bool(bounds) and max(low for low, _ in bounds) > min(high for _, high in bounds)
    samples = tuple(s for r in same for s in r.samples)
    value, interval = median(samples), median_interval(samples)
    flags = frozenset().union(*(r.flags for r in same), {"noisy"} if apart else ())
    if interval and interval[1] - interval[0] <= 2 * abs(value) * width_percent / 100:
        flags -= {"truncated"}
    return replace(
        same[0],
        samples=samples,
        value=value,
        interval=interval,
        conditions={**same[0].conditions, "runs": len(same), "run_spread": None if math.isnan(spread) else spread},
        flags=flags,
    )
