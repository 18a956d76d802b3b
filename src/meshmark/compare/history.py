"""Finds where the level of each point of a machine changes over time, and what else changed then.

Each run gives one value per point. `statistics.changepoints` proposes the changes of a point, the false discovery rate
is limited over all points, and `statistics.verdicts` judges each change by the medians before and after it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, Literal

from meshmark.compare.join import DERIVED, ResultPair
from meshmark.compare.pairing import identity
from meshmark.describe import descriptions
from meshmark.measure.repetitions import PLATEAU, point_key, with_common_plateaus
from meshmark.statistics.changepoints import MIN_SEGMENT, splits
from meshmark.statistics.verdicts import MARGIN, MedianEstimate, Ratio, alike, ratio
from meshmark.store.machines import Row, changes, machines
from meshmark.store.record import Record, median, median_interval
from meshmark.store.series import RunValue, Series, series
from meshmark.store.store import Store

Status = Literal["changed", "steady", "too few runs", "not above 0"]
MIN_RUNS: Final = 7  # unflagged runs of a point
RATE: Final = 0.05  # allowed rate of false discoveries among the changes of all points
_FORM: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
_AHEAD_S: Final = 60.0  # a start that is later than now by more than this is wrong
_MADE_BY: Final = {"build": "build of Meshmark", "compiler": "compiler", "kernel": "kernel"}


@dataclass(frozen=True, slots=True)
class Segment:
    """Runs between two changes, oldest first.

    Attributes:
        measured: Median of the runs' values in the metric's unit, and the bounds in which another run is expected.
    """

    runs: tuple[RunValue, ...]
    measured: MedianEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """A change of level between the last run before it and the first run after it.

    Attributes:
        ratio: Level after the change over the level before it.
        p: p-value, corrected for the choice of the position, and for the number of points.
        facts: What else changed between the two runs, such as `kernel 6.1 → 6.12`.
        record: A record of the point.
    """

    record: Record
    before: Segment
    after: Segment
    ratio: Ratio
    p: float
    facts: tuple[str, ...] = ()

    @property
    def between(self) -> tuple[RunValue, RunValue]:
        """Return the last run before the change and the first run after it."""
        return self.before.runs[-1], self.after.runs[0]

    @property
    def word(self) -> str:
        """Return the verdict about the point after the change, such as faster, slower, higher or lower."""
        return self._pair.word

    def worse(self, limit: float = 0.0) -> bool:
        """Return whether the point became worse by more than the limit, a relative difference such as 0.05."""
        low, high = alike(limit)
        return self._pair.worse and not low <= self.ratio.value <= high

    @property
    def _pair(self) -> ResultPair:
        return ResultPair(a=self.record, b=self.record, ratio=self.ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """A metric at a point over time.

    Attributes:
        record: One of its records.
        runs: All runs, oldest first; flagged runs do not take part.
        changes: Changes, oldest first.
        small: Number of significant changes of level that are within the margin, or inconclusive.
    """

    record: Record
    runs: tuple[RunValue, ...]
    status: Status
    changes: tuple[LevelChange, ...] = ()
    small: int = 0

    @property
    def judged(self) -> list[RunValue]:
        """Return the runs that take part."""
        return [run for run in self.runs if not run.flags]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All points of a machine over time.

    Attributes:
        newest: Start of the newest result of each instrument, including flagged results.
        flags: Number of results that do not take part, by flag; a result may have several flags.
        flagged: Number of results that do not take part.
        without_start: Number of results without a valid start, which are left out.
        clock: What is wrong with the starts, in one line; "" if nothing is wrong.
    """

    machine: str
    points: Sequence[HistoryPoint]
    newest: Mapping[str, datetime]
    flags: Mapping[str, int]
    flagged: int
    without_start: int
    clock: str

    @property
    def changes(self) -> list[LevelChange]:
        """Return all changes, the newest first; changes between the same runs are ordered by instrument and metric."""
        changes = [c for p in self.points for c in p.changes]
        changes.sort(key=lambda c: (c.record.instrument, c.record.metric))
        return sorted(changes, key=lambda c: tuple(run.start for run in reversed(c.between)), reverse=True)

    @property
    def runs(self) -> list[RunValue]:
        """Return one value of each run, oldest first."""
        run_by_name = {run.run: run for p in self.points for run in reversed(p.runs)}
        return sorted(run_by_name.values(), key=_in_time)

    def counts(self) -> dict[str, int]:
        """Return the number of points by status; statuses that do not occur are left out."""
        return dict(Counter(p.status for p in self.points).most_common())

    def worse(self, limit: float) -> list[LevelChange]:
        """Return the last change of each point, if it made the point worse by more than the relative limit."""
        return [p.changes[-1] for p in self.points if p.changes and p.changes[-1].worse(limit)]


def history(
    store: Store,
    machine: str,
    now: datetime,
    *,
    instrument: str = "",
    metric: str = "",
    since: str = "",
    until: str = "",
) -> History | None:
    """Return the history of a machine; None if the store has no result of it.

    Args:
        store: Store with the results.
        machine: Id of the machine.
        now: Time with a zone.
        instrument: Only results of this instrument; "": all.
        metric: Only results of this metric; "": all, except metrics that repeat another metric.
        since: See `over_time`.
        until: See `over_time`.

    Raises:
        MeshmarkError: The store cannot be read.
    """
    names = sorted({name for d in descriptions().values() for name in d.identity})
    filters = {k: v for k, v in (("instrument", instrument), ("metric", metric)) if v}
    series_list = [s for s in series(store, machine, names, **filters) if metric or s.record.metric not in DERIVED]
    return over_time(machine, series_list, machines(store, machine), now, since, until) if series_list else None


def over_time(
    machine: str, series: Iterable[Series], rows: Iterable[Row], now: datetime, since: str = "", until: str = ""
) -> History:
    """Return the history of a machine.

    Args:
        machine: Id of the machine.
        series: Its values.
        rows: Its software and settings over time, as `store.machines.machines` returns them.
        now: Time with a zone.
        since: A date and time or its first part, such as 2026-11. Runs that start before it are left out; "": no limit.
        until: A date and time or its first part. Runs that start after the end of it are left out; "": no limit.
    """
    points, without_start = _points(series)
    begin, end = since.removesuffix("Z"), until.removesuffix("Z")
    selected_points = [
        _PendingPoint(record, tuple(r for r in runs if r.start >= begin and (not end or r.start[: len(end)] <= end)))
        for record, runs in points.values()
    ]
    selected_points = [p for p in selected_points if p.runs]
    newest: dict[str, str] = {}
    for record, runs in points.values():
        newest[record.instrument] = max(runs[-1].start, newest.get(record.instrument, ""))
    flag_sets = [run.flags for p in selected_points for run in p.runs if run.flags]
    return History(
        machine=machine,
        points=_judged(selected_points, [{**row, "seen": _utc(row["seen"])} for row in rows]),
        newest={
            name: datetime.fromisoformat(start)
            for name, start in sorted(newest.items(), key=lambda item: item[1], reverse=True)
        },
        flags=dict(Counter(flag for flags in flag_sets for flag in flags).most_common()),
        flagged=len(flag_sets),
        without_start=without_start,
        clock=_clock((run for p in selected_points for run in p.runs), now),
    )


# ------------------------------------------------------------------ points


def _points(series: Iterable[Series]) -> tuple[dict[str, tuple[Record, list[RunValue]]], int]:
    """Return the record and the runs of each point, oldest first, and the number of results without a valid start."""
    without_start = 0
    dated_series: list[tuple[Record, list[RunValue]]] = []
    utc_by_start: dict[str, str] = {}
    for s in series:
        runs = []
        for run in s.runs:
            if run.start not in utc_by_start:
                utc_by_start[run.start] = _utc(run.start)
            if start := utc_by_start[run.start]:
                runs.append(replace(run, start=start))
            else:
                without_start += 1
        if runs:
            dated_series.append((s.record, runs))
    # The footprints of a level differ from run to run.
    dated_series.sort(key=lambda item: min(map(_in_time, item[1])))
    level_indices = [i for i, (record, _) in enumerate(dated_series) if all(k in record.conditions for k in PLATEAU)]
    level_records = {
        i: record
        for i, (record,) in zip(
            level_indices, with_common_plateaus([[dated_series[i][0]] for i in level_indices]), strict=True
        )
    }
    points: dict[str, tuple[Record, list[RunValue]]] = {}
    for i, (record, runs) in enumerate(dated_series):
        point_record = level_records.get(i, record)
        # Results of another tool, or of a model that has the same name, are other points.
        key = f"{point_record.source} {point_record.unit} {point_key(point_record)}"
        points.setdefault(key, (point_record, []))[1].extend(runs)
    for key, (record, runs) in points.items():
        points[key] = record, sorted(_one_per_run(runs), key=_in_time)
    return points, without_start


def _one_per_run(runs: Sequence[RunValue]) -> list[RunValue]:
    """Return one value per run: the newest, if several series have one, such as two detections of one level."""
    return [*{run.run: run for run in sorted(runs, key=_in_time)}.values()]


def _in_time(run: RunValue) -> tuple[str, str]:
    return run.start, run.run


def _time(text: str) -> datetime | None:
    """Return a start as a time in UTC; None if it is not valid."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)


def _utc(text: str) -> str:
    """Return a time in the form in which times are compared; "" if it is not valid."""
    time = _time(text)
    return "" if time is None else time.strftime(_FORM)


def _clock(runs: Iterable[RunValue], now: datetime) -> str:
    """Return what is wrong with the starts; "" if nothing is wrong.

    A clock that was set back is noticed only if this made two runs start together, or if the clock was ahead until now.
    """
    start_by_run: dict[str, str] = {}
    for run in runs:
        start_by_run[run.run] = min(run.start, start_by_run.get(run.run, run.start))
    latest = datetime.fromtimestamp(now.timestamp() + _AHEAD_S, UTC).strftime(_FORM)
    late_runs = sorted(name for name, start in start_by_run.items() if start > latest)
    by_start: dict[str, list[str]] = {}
    for name, start in start_by_run.items():
        by_start.setdefault(start, []).append(name)
    simultaneous_runs = [" and ".join(sorted(names)) for _, names in sorted(by_start.items()) if len(names) > 1]
    texts = []
    if late_runs:
        texts.append(f"in the future: {_some(late_runs)}")
    if simultaneous_runs:
        texts.append(f"at the same time, so that their order is unknown: {_some(simultaneous_runs)}")
    return f"the clock was wrong; runs start {'; '.join(texts)}" if texts else ""


def _some(names: Sequence[str]) -> str:
    suffix = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + suffix


# ------------------------------------------------------------------ changes


@dataclass(slots=True)
class _PendingPoint:
    """A point that is being judged.

    Attributes:
        at: Indices of the first run after each change.
        p: p-value of each change.
    """

    record: Record
    runs: tuple[RunValue, ...]
    status: Status = "steady"
    at: list[int] = field(default_factory=list)
    p: list[float] = field(default_factory=list)


def _judged(points: Sequence[_PendingPoint], rows: Sequence[Row]) -> list[HistoryPoint]:
    for point in points:
        values = [run.value for run in point.runs if not run.flags]
        if len(values) < MIN_RUNS:
            point.status = "too few runs"
        elif len({*values}) > 1 and min(values) <= 0:
            point.status = "not above 0"
        elif len({*values}) > 1:
            candidates = splits(values)
            point.at, point.p = [s.at for s in candidates], [s.p for s in candidates]
    _limit_false_discoveries([p for p in points if p.status == "steady"])
    return [_with_changes(point, rows) for point in points]


def _limit_false_discoveries(tested: Sequence[_PendingPoint]) -> None:
    """Correct the p-values for the number of points, and remove changes that are not significant.

    Source:
        Benjamini, Yekutieli, Ann. Stat. 29 (2001), 1165-1188: for tests that depend on each other, as points do.
    """
    if not any(p.at for p in tested):
        return
    from scipy.stats import false_discovery_control

    # A point without a change is a test, too; its p-value is taken as 1, the largest possible.
    corrected = iter(false_discovery_control([p for t in tested for p in (t.p or [1.0])], method="by").tolist())
    for t in tested:
        point_p = [next(corrected) for _ in t.p or [1.0]]
        significant = [(at, p) for at, p in zip(t.at, point_p, strict=False) if p <= RATE]
        t.at, t.p = [at for at, _ in significant], [p for _, p in significant]


def _with_changes(point: _PendingPoint, rows: Sequence[Row]) -> HistoryPoint:
    """Return the point with the changes that matter.

    The others are removed, the smallest first, which joins the runs on both sides.
    """
    runs = [run for run in point.runs if not run.flags]
    small = 0
    while True:
        edges = [0, *point.at, len(runs)]
        parts = [tuple(runs[i:j]) for i, j in pairwise(edges)]
        segments = [Segment(part, measured(part)) for part in parts] if point.at else []
        ratios = [ratio(b.measured, a.measured) for a, b in pairwise(segments)]
        low, high = alike(MARGIN)
        insignificant = [i for i, r in enumerate(ratios) if not r.differs or low <= r.value <= high]
        if not insignificant:
            break
        smallest = min(insignificant, key=lambda i: abs(math.log(ratios[i].value)))
        del point.at[smallest], point.p[smallest]
        small += 1
    changes = tuple(
        LevelChange(
            record=point.record,
            before=before,
            after=after,
            ratio=r,
            p=p,
            facts=tuple(facts_between(rows, before.runs[-1], after.runs[0])),
        )
        for before, after, r, p in zip(segments, segments[1:], ratios, point.p, strict=False)
    )
    status: Status = "changed" if changes else point.status
    return HistoryPoint(record=point.record, runs=point.runs, status=status, changes=changes, small=small)


def measured(runs: Sequence[RunValue]) -> MedianEstimate:
    """Return the median of runs, and the bounds in which another run is expected.

    With six or more runs, the bounds are the interval of the median. With fewer runs, they are the hull of the
    intervals of the runs, widened on both sides by the range of their values; see `measure.repetitions.run_bounds`.

    Args:
        runs: At least `MIN_SEGMENT` runs.
    """
    values = [run.value for run in runs]
    bounds = median_interval(values)
    if bounds is None:
        low, high, distance = min(r.low for r in runs), max(r.high for r in runs), max(values) - min(values)
        bounds = max(low - distance, min(low, 0.0)), high + distance
    return MedianEstimate(median(values), bounds)


def facts_between(rows: Sequence[Row], one: RunValue, other: RunValue) -> list[str]:
    """Return what else changed between two runs: software and settings of the machine, and the build.

    Args:
        rows: Software and settings of the machine, as `store.machines.machines` returns them.
        one: The earlier run.
        other: The later run.
    """
    earlier_rows = [row for row in rows if row["seen"] <= other.start]
    facts = changes(earlier_rows, one.start) if earlier_rows and earlier_rows[0]["seen"] <= one.start else []
    for name, text in _MADE_BY.items():
        a, b = one.made_by.get(name), other.made_by.get(name)
        if a and b and a != b and not any(f.startswith(f"{name} ") for f in facts):
            facts.append(f"{text} {a} → {b}")
    return facts


# ------------------------------------------------------------------ for programs


def to_json(history: History, now: datetime, stale_s: float) -> list[dict[str, Any]]:
    """Return one object per change (newest first), per point and per instrument, then one for the whole history.

    `type` distinguishes them.

    Args:
        history: History of a machine.
        now: Time with a zone, from which ages are counted.
        stale_s: Age in s from which the newest result of an instrument is stale.
    """

    def identity_of(record: Record) -> dict[str, Any]:
        names = {k: getattr(record, k) for k in ("source", "instrument", "metric", "unit", "better")}
        return {**names, "conditions": identity(record)}

    def segment(part: Segment) -> dict[str, Any]:
        low, high = part.measured.bounds or (None, None)
        ends = {"from": part.runs[0].start, "to": part.runs[-1].start}
        return {"value": part.measured.value, "low": low, "high": high, "runs": len(part.runs), **ends}

    objects: list[dict[str, Any]] = []
    for c in history.changes:
        low, high = c.ratio.interval or (None, None)
        last, first = c.between
        objects.append(
            {
                "type": "change",
                "machine": history.machine,
                **identity_of(c.record),
                "after_run": last.run,
                "before_run": first.run,
                "before": segment(c.before),
                "after": segment(c.after),
                "ratio": c.ratio.value,
                "low": low,
                "high": high,
                "p": c.p,
                "verdict": c.word,
                "worse": c.worse(),
                "facts": list(c.facts),
            }
        )
    for p in history.points:
        counts = {"runs": len(p.judged), "flagged": len(p.runs) - len(p.judged)}
        change_counts = {"changes": len(p.changes), "small": p.small}
        objects.append({"type": "point", **identity_of(p.record), "status": p.status, **counts, **change_counts})
    for name, newest in history.newest.items():
        age = (now - newest).total_seconds()
        newest_text = newest.isoformat().replace("+00:00", "Z")
        objects.append(
            {"type": "instrument", "instrument": name, "newest": newest_text, "age_s": age, "stale": age > stale_s}
        )
    counts = {"points": len(history.points), "runs": len(history.runs), "flagged": history.flagged}
    flags = {"flags": dict(history.flags), "without_start": history.without_start, "clock": history.clock}
    method = {"margin": MARGIN, "false_discovery_rate": RATE, "min_runs": MIN_RUNS, "min_segment": MIN_SEGMENT}
    return [*objects, {"type": "history", "machine": history.machine, **counts, **flags, **method}]
