"""Pools the records of independent runs of the same points.

A process keeps its pages, its cache placement and its share of the machine for its lifetime, so its samples may agree
with each other and still differ from those of another process. Only fresh processes reveal that variation.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from meshmark.describe import descriptions
from meshmark.measure.plan import Step
from meshmark.store.record import MODE, OBSERVED, Record, Scalar, median, median_interval
from meshmark.store.run import Absence
from meshmark.values.verdicts import Measured

MIN_SAMPLES: Final = 6  # fewer give no 95 % interval of the median
PLATEAU: Final = ("from_bytes", "to_bytes")  # the footprints of a level of a curve
_LONGEST_S: Final = 3600.0  # a budget worth advising
MODE_GAP: Final = 0.05  # between the nearest intervals of two modes, as a share
_TWO_RUNS: Final = 1.5  # times the distance of two runs: with 1, 6 % of equals would be called different, with this 4 %


def point_key(record: Record, *without: str) -> str:
    """Key of a record's point and metric: instrument, metric, and the conditions that tell the points apart.

    Args:
        without: Conditions to leave out, so that the points of a curve along them have one key.
    """
    instrument, *conditions = _point(record)
    kept = [{k: v for k, v in of.items() if k not in without} for of in conditions]
    return json.dumps([record.metric, instrument, *kept], sort_keys=True)


def measured(record: Record) -> Measured:
    """A record for a verdict; its flags are doubts."""
    return Measured(record.value, record.bounds, " ".join(sorted(record.flags)))


def measurement_key(record: Record) -> str:
    """Key of a record's machine and point; all metrics of one measurement have the same."""
    return json.dumps([record.machine, *_point(record)], sort_keys=True, default=str)


def _point(record: Record) -> list[Any]:
    """Instrument and conditions of a point; all metrics of one measurement have the same."""
    # Other tools tell points apart by conditions of their own, such as both nodes of a matrix.
    known = descriptions().get(record.instrument) if record.source != "tool" else None
    keys = known.identity if known else [k for k in record.conditions if k not in OBSERVED]
    requested = {k: record.conditions.get(k) for k in keys}
    derived = {k: record.conditions.get(k) for k in ("level", "kind", *PLATEAU) if k in record.conditions}
    if record.source == "model":  # a sweep over machines has the keys of the machine file that it varied
        derived |= {k: v for k, v in record.conditions.items() if "." in k}
    return [record.instrument, requested, derived]


@dataclass(frozen=True, slots=True)
class Quality:
    """How far results can be trusted, by points: the metrics of one measurement (gross and net rates) count once.

    Attributes:
        flags: Number of points that have a flag.
        wide: Points without a flag whose interval is wider than requested.
    """

    points: int
    flagged: int
    flags: Mapping[str, int]
    wide: int

    def __str__(self) -> str:
        kinds = ", ".join(f"{f} {n}" for f, n in self.flags.items())
        flagged = f"{self.flagged} flagged ({kinds})" if self.flagged else "none flagged"
        wide = f", {self.wide} wider than requested" if self.wide else ""
        return f"{self.points} point{'s' * (self.points != 1)}: {flagged}{wide}"


def quality(records: Iterable[Record]) -> Quality:
    """Count points, flagged ones and wide ones."""
    flags: dict[str, frozenset[str]] = {}
    wide: dict[str, bool] = {}
    for r in records:
        if r.metric.endswith(MODE):
            continue
        key = measurement_key(r)
        flags[key] = flags.get(key, frozenset()) | r.flags
        wide[key] = wide.get(key, False) or not r.converged
    counts = Counter(f for of in flags.values() for f in of)
    return Quality(
        len(flags),
        sum(map(bool, flags.values())),
        dict(sorted(counts.items())),
        sum(wide[key] and not of for key, of in flags.items()),
    )


def shortfall(records: Iterable[Record], budget_s: float) -> str:
    """Say which points have too few samples or too wide an interval, and what would probably help; "" if none.

    Half the width of the interval of samples shrinks with the square root of their number. If it is narrow enough, and
    only the runs differ by more, more runs help. Only results for which a width was requested count; the width of
    flagged ones, and of those with modes, does not.

    Args:
        budget_s: Of the whole measurement, s.
    """
    growth: dict[str, float] = {}  # of the sampling time of a point
    apart: set[str] = set()  # points whose runs differ
    for r in records:
        if not r.interval_asked or r.metric.endswith(MODE):
            continue
        key = measurement_key(r)
        needed = max(1.0, MIN_SAMPLES / len(r.samples))
        steady = not r.flags and "run_modes" not in r.conditions
        if steady and not r.converged and r.interval is not None:
            own = (r.interval[1] - r.interval[0]) / 2 / abs(r.value) / r.interval_asked
            needed = max(needed, own**2)
            if own <= 1:
                apart.add(key)
        growth[key] = max(growth.get(key, 1.0), needed)
    short = sum(g > 1 for g in growth.values())
    of = f"of {len(growth)} point{'s' * (len(growth) != 1)}"
    texts = []
    if differ := sum(growth[key] <= 1 for key in apart):
        texts.append(f"the runs of {differ} {of} differ by more than the interval requested; more --repetitions help")
    if not short:
        return "; ".join(texts)
    budget = budget_s * max(1.2, math.fsum(growth.values()) / len(growth))
    rounded = math.ceil(budget - 1e-6) if budget < 100 else 10 * math.ceil(budget / 10 - 1e-6)
    enough = f"--budget {rounded}s would probably do" if rounded <= _LONGEST_S else "repeat on a quieter machine"
    texts.insert(
        0,
        f"{short} {of} with fewer than {MIN_SAMPLES} samples or a wider interval than requested; {enough}",
    )
    return "; ".join(texts)


def pool(runs: Sequence[Sequence[Record]]) -> list[Record]:
    """One record per point, in the order of the first run, with the samples of all runs.

    Adds the conditions `runs`; `run_spread`, (max - min) / min of the runs' medians, dimensionless; and `run_low` and
    `run_high`, see `run_bounds`, in the metric's unit. Flags are the union of the runs' flags.

    If runs do not meet, `run_modes` is the number of modes, and a record for each follows, lowest first: its metric has
    the suffix `_mode`, its samples are those of the runs at this mode, and `mode_runs` is their number.
    """
    points: dict[str, list[Record]] = {}
    for run in same_plateaus(runs):
        for record in run:
            points.setdefault(point_key(record), []).append(record)
    return [r for same in points.values() for r in _pooled(same)]


def same_plateaus(runs: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """The runs, where levels that have footprints in common get the common range of footprints, so that they pool.

    The third level of one run may be another plateau than that of the next. Only footprints tell.
    """
    shared: dict[str, list[_Level]] = {}
    for run in runs:
        for record in run:
            if (span := _span(record)) is None:
                continue
            levels = shared.setdefault(_curve(record), [])
            if (level := _meeting(levels, span)) is None:
                levels.append(_Level(*span, {k: record.conditions.get(k) for k in _OF_A_LEVEL}))
            else:
                level.low, level.high = max(level.low, span[0]), min(level.high, span[1])

    def common(record: Record) -> Record:
        span = _span(record)
        level = None if span is None else _meeting(shared[_curve(record)], span)
        if level is None:
            return record
        plateau = dict(zip(PLATEAU, (level.low, level.high), strict=True))
        return replace(record, conditions={**record.conditions, **level.conditions, **plateau})

    return [[common(record) for record in run] for run in runs]


_OF_A_LEVEL: Final = ("level", "claimed_bytes")


@dataclass(slots=True)
class _Level:
    """The footprints that the plateaus of some runs have in common, and what the first of them is called."""

    low: float
    high: float
    conditions: dict[str, Any]


def _meeting(levels: Iterable[_Level], span: tuple[float, float]) -> _Level | None:
    return next((x for x in levels if x.low <= span[1] and span[0] <= x.high), None)


def _curve(record: Record) -> str:
    """Key of the curve that a level belongs to, and of its metric."""
    return point_key(record, "level", *PLATEAU)


def _span(record: Record) -> tuple[float, float] | None:
    """The footprints of a level; None for other records."""
    low, high = (record.conditions.get(k) for k in PLATEAU)
    return (low, high) if isinstance(low, int | float) and isinstance(high, int | float) else None


def modes(runs: Sequence[Record]) -> list[list[Record]]:
    """Groups runs of a point that are at one level, lowest first.

    Two levels are apart if their nearest intervals are by more than `MODE_GAP`. Closer runs that do not meet are drift.
    """
    found: list[list[Record]] = []
    high = math.inf
    for run in sorted(runs, key=lambda r: r.value):
        low, top = run.interval or sorted(run.ends)
        if not found or low > high * (1 + MODE_GAP):
            found.append([])
            high = top
        found[-1].append(run)
        high = max(high, top)
    return found


def pool_steps(runs: Iterable[tuple[Step, Sequence[Record]]]) -> list[Record]:
    """Records of all steps, in order, with repetitions pooled."""
    repeated: dict[str, list[Sequence[Record]]] = {}
    for step, records in runs:
        repeated.setdefault(step.repeats, []).append(records)
    return [r for same in repeated.values() for r in (pool(same) if len(same) > 1 else same[0])]


def unique(absences: Iterable[Absence]) -> list[Absence]:
    """Absences without duplicates from repetitions; errors are kept for each step."""
    found: dict[str, Absence] = {}
    for a in absences:
        step = a.step if a.kind == "error" else ""
        found.setdefault(json.dumps([a.instrument, a.metric, a.conditions, a.reason, step], default=str), a)
    return list(found.values())


def _pooled(same: Sequence[Record]) -> list[Record]:
    if len(same) == 1:
        return [same[0]]
    medians = [r.value for r in same]
    spread = (max(medians) - min(medians)) / min(medians) if min(medians) > 0 else math.nan
    levels = modes(same)
    conditions = {
        **same[0].conditions,
        "runs": len(same),
        "run_spread": None if math.isnan(spread) else spread,
        **_bound_conditions(same),
    }
    if len(levels) == 1:
        return [_joined(same, conditions)]
    conditions["run_modes"] = len(levels)
    each = [
        replace(
            _joined(
                level,
                {
                    **same[0].conditions,
                    "runs": len(same),
                    "run_mode": i,
                    "mode_runs": len(level),
                    **_bound_conditions(level),
                },
            ),
            metric=f"{same[0].metric}{MODE}",
        )
        for i, level in enumerate(levels, 1)
    ]
    return [_joined(same, conditions), *each]


def run_bounds(runs: Sequence[Record]) -> tuple[float, float] | None:
    """Where the median of another measurement is expected; None with fewer samples in all than an interval takes.

    The samples of a run resemble each other more than those of another run, so the interval of all samples is too
    narrow. From six runs on, their medians give an interval as samples do. Fewer runs do not: the hull of their own
    intervals is widened by the distance of their medians, since another run lies beyond them half of the time.
    """
    if sum(len(r.samples) for r in runs) < MIN_SAMPLES:
        return None
    medians = [r.value for r in runs]
    if (over := median_interval(medians)) is not None:
        own = median_interval([s for r in runs for s in r.samples]) or over
        return min(own[0], over[0]), max(own[1], over[1])
    bounds = [r.interval or sorted(r.ends) for r in runs]
    low, high, apart = min(b[0] for b in bounds), max(b[1] for b in bounds), max(medians) - min(medians)
    apart *= _TWO_RUNS if len(runs) == 2 else 1  # two are near each other by chance more often than three
    return max(low - apart, min(low, 0.0)), high + apart


def _bound_conditions(runs: Sequence[Record]) -> dict[str, Scalar]:
    low, high = run_bounds(runs) or (None, None)
    return {"run_low": low, "run_high": high}


def _joined(runs: Sequence[Record], conditions: Mapping[str, Scalar]) -> Record:
    samples = tuple(s for r in runs for s in r.samples)
    return replace(
        runs[0],
        samples=samples,
        value=median(samples),
        interval=median_interval(samples),
        conditions=conditions,
        flags=frozenset().union(*(r.flags for r in runs)),
    )
