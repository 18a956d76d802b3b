"""Reads the value of each point of a machine in each run, without parsing every record.

A year of surveys has a hundred thousand records, and parsing them takes seconds. DuckDB pools the repetitions of each
run instead, and only one record of each point is parsed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshmark.store.columns import POINT
from meshmark.store.record import MODE_SUFFIX, Record
from meshmark.store.store import Store

_MADE_BY: Final = ("build", "compiler", "kernel")  # keys of the provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValue:
    """The value of a point in one run, with its repetitions pooled.

    Attributes:
        start: Start of its last repetition, as recorded; "" if unknown.
        value: Median of the samples of all repetitions, in the metric's unit.
        low, high: Ends of the hull of the intervals of all repetitions. If a repetition has too few samples for an
            interval, the range of its samples is used.
        flags: Flags that at least one repetition has.
        made_by: Build, compiler and kernel, as far as the provenance states them.
    """

    run: str
    start: str
    value: float
    low: float
    high: float
    flags: tuple[str, ...] = ()
    made_by: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Series:
    """A point with the values of its runs, which are not ordered.

    Attributes:
        record: One of the records of the point.
    """

    record: Record
    runs: tuple[RunValue, ...]


def series(store: Store, machine: str, identity: Iterable[str], **equal: str) -> list[Series]:
    """Return the values of a machine by point and run. Modes of results are left out.

    A point may have several series if its records differ in a condition that does not identify it; see
    `measure.repetitions.point_key`.

    Args:
        machine: Id of the machine.
        identity: Names of conditions that may identify a point, in addition to those with a column. All conditions of
            results of other tools identify it.
        equal: Required value of a column: `instrument`, `metric`.

    Raises:
        StoreError: The store cannot be read.
    """
    paths = ", ".join(f"'$.{name}'" for name in identity if name.isidentifier())
    columns = ", ".join(f'"{name}"' for name in POINT)
    # `conditions` contains observed conditions, which do not identify a point, and values that do not fit their column,
    # which may. Only the latter are part of the key.
    other_conditions = (
        f"CASE WHEN source <> 'tool' AND json_valid(conditions) THEN json_extract(conditions, [{paths}])::VARCHAR"
    )
    point = f"hash(source, instrument, metric, unit, {columns}, {other_conditions} ELSE conditions END) AS point"
    rows = f"FROM {{rows}} AND metric NOT LIKE '%\\{MODE_SUFFIX}' ESCAPE '\\'"
    made_by = ", ".join(
        f"""regexp_extract(provenance, '"{name}": *("(?:[^"\\\\]|\\\\.)*")', 1) AS {name}""" for name in _MADE_BY
    )
    rows_of_runs = store.select(
        f"""SELECT * EXCLUDE (provenance, samples), list_aggregate(samples, 'median') AS value, {made_by} FROM (
              SELECT point, run, max(start) AS start, any_value(provenance) AS provenance,
                     flatten(list(samples)) AS samples, list_distinct(flatten(list(flags))) AS flags,
                     min(coalesce(low, list_min(samples))) AS low, max(coalesce(high, list_max(samples))) AS high
              FROM (SELECT {point}, run, start, provenance, samples, flags, low, high {rows}) GROUP BY point, run)""",
        machine=machine,
        **equal,
    )
    if not rows_of_runs:
        return []
    points_by_run: dict[str, set[int]] = {}
    for value_row in rows_of_runs:
        points_by_run.setdefault(value_row["run"], set()).add(value_row["point"])
    names = ", ".join("'" + run.replace("'", "''") + "'" for run in _covering(points_by_run))
    points = store.select(
        f"SELECT DISTINCT ON (point) * FROM (SELECT {point}, * EXCLUDE (point) {rows} AND run IN ({names}))",
        machine=machine,
        **equal,
    )
    records = {value_row["point"]: record for value_row in points for _, _, record in store.parsed([value_row])}
    runs: dict[int, list[RunValue]] = {point_id: [] for point_id in records}
    texts: dict[str, str] = {}
    for value_row in rows_of_runs:
        numbers = value_row["value"], value_row["low"], value_row["high"]
        if value_row["point"] in runs and all(isinstance(v, float) and math.isfinite(v) for v in numbers):
            runs[value_row["point"]].append(_run_value(value_row, texts))
    return [Series(record, tuple(runs[point_id])) for point_id, record in records.items() if runs[point_id]]


def _covering(of_run: Mapping[str, set[int]]) -> list[str]:
    """Return a few runs that together have all points."""
    uncovered = set().union(*of_run.values())
    names = []
    for run, points in sorted(of_run.items(), key=lambda item: len(item[1]), reverse=True):
        if not uncovered.isdisjoint(points):
            uncovered -= points
            names.append(run)
    return names


def _run_value(row: Mapping[str, Any], texts: dict[str, str]) -> RunValue:
    """Return the value of a run from a row of the query.

    Args:
        row: Row of the query.
        texts: Text of each JSON string that was parsed before; a store has few different strings.
    """
    made_by = {}
    for name in _MADE_BY:
        if encoded := row[name]:
            if encoded not in texts:
                texts[encoded] = str(json.loads(encoded))
            made_by[name] = texts[encoded]
    flags = tuple(sorted(row["flags"] or ()))
    numbers = {name: row[name] for name in ("value", "low", "high")}
    return RunValue(run=row["run"], start=row["start"] or "", flags=flags, made_by=made_by, **numbers)
