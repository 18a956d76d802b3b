"""Pools the records of independent runs of the same points.

A process keeps its pages, its cache placement and its share of the machine for its lifetime, so its samples may agree
with each other and still differ from the samples of another process. Only fresh processes reveal that variation.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from meshmark.describe import find_description
from meshmark.measure.runs.plan import SurveyStep
from meshmark.statistics.verdicts import MedianEstimate
from meshmark.store.record import MODE_SUFFIX, OBSERVED, Record, Scalar, median, median_interval
from meshmark.store.run import Absence

MIN_SAMPLES: Final = 6  # the median of fewer samples has no 95 % interval
PLATEAU: Final = ("from_bytes", "to_bytes")  # the conditions with the footprints of a level of a curve
_CURVE_CONDITIONS: Final = sorted(("level", "kind", *PLATEAU))  # conditions that identify results of a whole curve
_LONGEST_S: Final = 3600.0  # longer budgets are not recommended
MODE_GAP: Final = 0.05  # smallest gap between the nearest intervals of two modes, as a share of the lower one
# Factor for the bounds of two runs: with it, 4 % of equal pairs appear to differ, without it 6 %.
_TWO_RUNS: Final = 1.5

key_text: Final = json.JSONEncoder(sort_keys=True).encode  # `json.dumps` would make an encoder for each of many keys


def point_key(record: Record, *without: str) -> str:
    """Return the key of a record's point and metric: instrument, metric, and the conditions that distinguish points.

    Args:
        without: Conditions to leave out, so that all points of a curve along them have the same key.
    """
    instrument, *conditions = point(record)
    if not without:
        return key_text([record.metric, instrument, *conditions])
    identifying = [{k: v for k, v in group.items() if k not in without} for group in conditions]
    return key_text([record.metric, instrument, *identifying])


def measured(record: Record) -> MedianEstimate:
    """Return a record in the form that verdicts use; its flags are the doubts."""
    return MedianEstimate(record.value, record.bounds, " ".join(sorted(record.flags)))


def measurement_key(record: Record) -> str:
    """Return the key of a record's machine and point; all metrics of one measurement have the same key."""
    return json.dumps([record.machine, *point(record)], sort_keys=True, default=str)


def point(record: Record) -> list[Any]:
    """Return the instrument, and the conditions of a point by name in alphabetical order.

    They are the same for all metrics of one measurement.
    """
    described = _described_identity(record)
    keys = sorted(k for k in record.conditions if k not in OBSERVED) if described is None else described
    requested = {k: record.conditions.get(k) for k in keys}
    derived = {k: record.conditions.get(k) for k in _CURVE_CONDITIONS if k in record.conditions}
    if record.source == "model":  # a sweep over machines has the keys of the machine file that it varied
        derived = dict(sorted((derived | {k: v for k, v in record.conditions.items() if "." in k}).items()))
    return [record.instrument, requested, derived]


def identity_names(record: Record) -> tuple[str, ...]:
    """Return the names of the conditions in `point` that have a value in a record."""
    c = record.conditions
    names = _identity_names(_described_identity(record), record.source == "model", tuple(c))
    return names if None not in c.values() else tuple(name for name in names if c[name] is not None)


def missing_names(record: Record) -> tuple[str, ...]:
    """Return the names in the identity of a record's instrument that have no value in the record."""
    return tuple(name for name in _described_identity(record) or () if record.conditions.get(name) is None)


def group_key(record: Record, *without: str) -> tuple[Any, ...]:
    """Return a key that is equal for records whose `point_key` is equal; it takes a fraction of the time.

    Equal numbers of different types, and null and missing conditions, count as equal, too.
    """
    return record.metric, record.instrument, *values_key(record, identity_names(record), without)


def values_key(record: Record, names: tuple[str, ...], without: Collection[str] = ()) -> tuple[Any, ...]:
    """Return the names except those in `without`, and the values that a record has for them."""
    if without:
        names = tuple([name for name in names if name not in without])
    return names, tuple([record.conditions[name] for name in names])


def _described_identity(record: Record) -> tuple[str, ...] | None:
    """Return the identity in the description of a record's instrument; None if it has none."""
    # Other tools distinguish points by conditions of their own, such as both nodes of a matrix.
    description = find_description(record.instrument) if record.source != "tool" else None
    return description.identity if description else None


@lru_cache(maxsize=4096)
def _identity_names(described: tuple[str, ...] | None, is_model: bool, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return `identity_names`, which are the same for all records with these names of conditions."""
    requested = sorted(k for k in names if k not in OBSERVED) if described is None else described
    derived = sorted(k for k in names if k in _CURVE_CONDITIONS or (is_model and "." in k))
    return tuple(k for k in dict.fromkeys([*requested, *derived]) if k in names)


@dataclass(frozen=True, slots=True)
class Quality:
    """The number of points with doubtful results. All metrics of one measurement (gross and net rates) are one point.

    Attributes:
        points: Number of points.
        flagged: Number of points that have at least one flag.
        flags: Number of points that have the flag, by flag.
        wide: Number of points without a flag whose interval is wider than requested.
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
    """Count the points, the flagged points, and the points with too wide an interval."""
    flags: dict[str, frozenset[str]] = {}
    wide: dict[str, bool] = {}
    for r in records:
        if r.metric.endswith(MODE_SUFFIX):
            continue
        key = measurement_key(r)
        flags[key] = flags.get(key, frozenset()) | r.flags
        wide[key] = wide.get(key, False) or not r.converged
    counts = Counter(f for point_flags in flags.values() for f in point_flags)
    return Quality(
        len(flags),
        sum(map(bool, flags.values())),
        dict(sorted(counts.items())),
        sum(wide[key] and not point_flags for key, point_flags in flags.items()),
    )


def shortfall(records: Iterable[Record], budget_s: float) -> str:
    """Return how many points have too few samples or too wide an interval, and what would help; "" if none has.

    The half width of the interval shrinks with the square root of the number of samples. If the interval of the samples
    is narrow enough and only the runs differ by more, more runs help. Only results for which a width was requested
    count; the width of results with flags or modes is ignored.

    Args:
        records: Records of the measurement, pooled.
        budget_s: Budget of the whole measurement, s.
    """
    growth: dict[str, float] = {}  # factor by which the sampling time of a point should grow
    differing_points: set[str] = set()  # points whose runs differ
    for r in records:
        if not r.requested_half_width or r.metric.endswith(MODE_SUFFIX):
            continue
        key = measurement_key(r)
        needed = max(1.0, MIN_SAMPLES / len(r.samples))
        steady = not r.flags and "run_modes" not in r.conditions
        if steady and not r.converged and r.interval is not None:
            width_ratio = (r.interval[1] - r.interval[0]) / 2 / abs(r.value) / r.requested_half_width
            needed = max(needed, width_ratio**2)
            if width_ratio <= 1:
                differing_points.add(key)
        growth[key] = max(growth.get(key, 1.0), needed)
    short_count = sum(g > 1 for g in growth.values())
    of_all = f"of {len(growth)} point{'s' * (len(growth) != 1)}"
    texts = []
    if differing_count := sum(growth[key] <= 1 for key in differing_points):
        texts.append(
            f"the runs of {differing_count} {of_all} differ by more than the requested interval; "
            "more --repetitions would help"
        )
    if not short_count:
        return "; ".join(texts)
    budget = budget_s * max(1.2, math.fsum(growth.values()) / len(growth))
    rounded = math.ceil(budget - 1e-6) if budget < 100 else 10 * math.ceil(budget / 10 - 1e-6)
    advice = f"--budget {rounded}s would probably suffice" if rounded <= _LONGEST_S else "repeat on a quieter machine"
    texts.insert(
        0,
        f"{short_count} {of_all} with fewer than {MIN_SAMPLES} samples or a wider interval than requested; {advice}",
    )
    return "; ".join(texts)


def pool(runs: Sequence[Sequence[Record]]) -> list[Record]:
    """Return one record per point, in the order of the first run, with the samples of all runs.

    The conditions `runs`, `run_spread`, `run_low` and `run_high` are added. `run_spread` is (max - min) / min of the
    medians of the runs, dimensionless; `run_low` and `run_high` are the `run_bounds`, in the unit of the metric. Flags
    are the union of the flags of all runs.

    If the runs have several modes, `run_modes` is the number of modes, and one record per mode follows, lowest first.
    Its metric has the suffix `_mode`, it has the samples of the runs of this mode, and `mode_runs` is their number.
    """
    points: dict[tuple[Any, ...], list[Record]] = {}
    for run in with_common_plateaus(runs):
        for record in run:
            points.setdefault(group_key(record), []).append(record)
    return [r for point_records in points.values() for r in _pooled(point_records)]


def with_common_plateaus(runs: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """Return the runs, in which levels that overlap have the same range of footprints, so that these levels are pooled.

    The third level of one run may be another plateau than the third level of the next; only footprints identify a
    plateau. The new range of a level is the intersection of the ranges in all runs.
    """
    if not any(PLATEAU[0] in record.conditions for run in runs for record in run):
        return [[*run] for run in runs]
    levels_by_curve: dict[str, list[_CommonPlateau]] = {}
    for run in runs:
        for record in run:
            if (span := _span(record)) is None:
                continue
            levels = levels_by_curve.setdefault(_curve(record), [])
            if (level := _overlapping(levels, span)) is None:
                levels.append(_CommonPlateau(*span, {k: record.conditions.get(k) for k in _OF_A_LEVEL}))
            else:
                level.low, level.high = max(level.low, span[0]), min(level.high, span[1])

    def common(record: Record) -> Record:
        span = _span(record)
        level = None if span is None else _overlapping(levels_by_curve[_curve(record)], span)
        if level is None:
            return record
        plateau = dict(zip(PLATEAU, (level.low, level.high), strict=True))
        return replace(record, conditions={**record.conditions, **level.conditions, **plateau})

    return [[common(record) for record in run] for run in runs]


_OF_A_LEVEL: Final = ("level", "claimed_bytes")


@dataclass(slots=True)
class _CommonPlateau:
    """The footprints that the plateaus of several runs have in common, and the conditions of the first plateau."""

    low: float
    high: float
    conditions: dict[str, Any]


def _overlapping(levels: Iterable[_CommonPlateau], span: tuple[float, float]) -> _CommonPlateau | None:
    return next((x for x in levels if x.low <= span[1] and span[0] <= x.high), None)


def _curve(record: Record) -> str:
    """Return the key of the metric and the curve to which a level belongs."""
    return point_key(record, "level", *PLATEAU)


def _span(record: Record) -> tuple[float, float] | None:
    """Return the smallest and largest footprint of a level; None for other records."""
    low, high = (record.conditions.get(k) for k in PLATEAU)
    return (low, high) if isinstance(low, int | float) and isinstance(high, int | float) else None


def modes(runs: Sequence[Record]) -> list[list[Record]]:
    """Group the runs of a point by mode, lowest mode first.

    Two modes are distinct if the gap between their nearest intervals is larger than `MODE_GAP`. Smaller gaps are drift.
    """
    groups: list[list[Record]] = []
    high = math.inf
    for run in sorted(runs, key=lambda r: r.value):
        low, top = run.interval or sorted(run.ends)
        if not groups or low > high * (1 + MODE_GAP):
            groups.append([])
            high = top
        groups[-1].append(run)
        high = max(high, top)
    return groups


def pool_steps(runs: Iterable[tuple[SurveyStep, Sequence[Record]]]) -> list[Record]:
    """Return the records of all steps, in order, with repetitions pooled."""
    runs_by_step: dict[str, list[Sequence[Record]]] = {}
    for step, records in runs:
        runs_by_step.setdefault(step.repeats, []).append(records)
    return [r for step_runs in runs_by_step.values() for r in (pool(step_runs) if len(step_runs) > 1 else step_runs[0])]


def unique(absences: Iterable[Absence]) -> list[Absence]:
    """Return the absences without duplicates from repetitions; the errors of each step are retained."""
    unique_absences: dict[str, Absence] = {}
    for a in absences:
        step = a.step if a.kind == "error" else ""
        unique_absences.setdefault(json.dumps([a.instrument, a.metric, a.conditions, a.reason, step], default=str), a)
    return list(unique_absences.values())


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
    mode_records = [
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
            metric=f"{same[0].metric}{MODE_SUFFIX}",
        )
        for i, level in enumerate(levels, 1)
    ]
    return [_joined(same, conditions), *mode_records]


def run_bounds(runs: Sequence[Record]) -> tuple[float, float] | None:
    """Return the bounds within which the median of another measurement is expected.

    The samples of a run resemble each other more than they resemble the samples of another run, so the interval of all
    samples is too narrow. With six or more runs, their medians give an interval as samples do. With fewer runs, the
    hull of their intervals is widened by the distance of their medians, since another run is outside the hull half of
    the time.

    Returns:
        Lower and upper bound in the unit of the records; None if all samples together are too few for an interval.
    """
    if sum(len(r.samples) for r in runs) < MIN_SAMPLES:
        return None
    medians = [r.value for r in runs]
    if (interval_of_medians := median_interval(medians)) is not None:
        sample_interval = median_interval([s for r in runs for s in r.samples]) or interval_of_medians
        return min(sample_interval[0], interval_of_medians[0]), max(sample_interval[1], interval_of_medians[1])
    bounds = [r.interval or sorted(r.ends) for r in runs]
    low, high, distance = min(b[0] for b in bounds), max(b[1] for b in bounds), max(medians) - min(medians)
    distance *= _TWO_RUNS if len(runs) == 2 else 1  # two runs are close by chance more often than three
    return max(low - distance, min(low, 0.0)), high + distance


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
