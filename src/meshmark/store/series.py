"""The values of each point of a machine, run by run, without a record for each.

A year of surveys is a hundred thousand records, whose parsing takes seconds. DuckDB pools the repetitions of each run
instead, and only one record of each point is parsed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshmark.store.columns import POINT
from meshmark.store.record import MODE, Record
from meshmark.store.store import Store

_MADE_BY: Final = ("build", "compiler", "kernel")  # of the provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValue:
    """What one run gave for a point, with its repetitions pooled.

    Attributes:
        start: Of its last repetition, as recorded; "" if unknown.
        value: Median of the samples of all repetitions, in the metric's unit.
        low, high: The hull of the repetitions' intervals; of their samples where one has too few for an interval.
        flags: Those of any repetition.
        made_by: Build, compiler and kernel, as far as the provenance has them.
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
    """A point with the values of its runs, in no order.

    Attributes:
        record: One of its records.
    """

    record: Record
    runs: tuple[RunValue, ...]


def series(store: Store, machine: str, identity: Iterable[str], **equal: str) -> list[Series]:
    """The values of a machine by point and run. Modes of results are left out.

    A point may come in several series if a condition that does not identify it differs; see
    `measure.repetitions.point_key`.

    Args:
        identity: Conditions that may identify a point. Other conditions of an instrument of ours do not, unless they
            have a column of their own.
        equal: Columns that must match: instrument, metric.

    Raises:
        StoreError: The store cannot be read.
    """
    paths = ", ".join(f"'$.{name}'" for name in identity if name.isidentifier())
    columns = ", ".join(f'"{name}"' for name in POINT)
    # The conditions without a column are observed ones, but for values of another type than their column's.
    rest = f"CASE WHEN source <> 'tool' AND json_valid(conditions) THEN json_extract(conditions, [{paths}])::VARCHAR"
    point = f"hash(source, instrument, metric, unit, {columns}, {rest} ELSE conditions END) AS point"
    rows = f"FROM {{rows}} AND metric NOT LIKE '%\\{MODE}' ESCAPE '\\'"
    made_by = ", ".join(
        f"""regexp_extract(provenance, '"{name}": *("(?:[^"\\\\]|\\\\.)*")', 1) AS {name}""" for name in _MADE_BY
    )
    found = store.select(
        f"""SELECT * EXCLUDE (provenance, samples), list_aggregate(samples, 'median') AS value, {made_by} FROM (
              SELECT point, run, max(start) AS start, any_value(provenance) AS provenance,
                     flatten(list(samples)) AS samples, list_distinct(flatten(list(flags))) AS flags,
                     min(coalesce(low, list_min(samples))) AS low, max(coalesce(high, list_max(samples))) AS high
              FROM (SELECT {point}, run, start, provenance, samples, flags, low, high {rows}) GROUP BY point, run)""",
        machine=machine,
        **equal,
    )
    if not found:
        return []
    of_run: dict[str, set[int]] = {}
    for row in found:
        of_run.setdefault(row["run"], set()).add(row["point"])
    names = ", ".join("'" + run.replace("'", "''") + "'" for run in _covering(of_run))
    points = store.select(
        f"SELECT DISTINCT ON (point) * FROM (SELECT {point}, * {rows} AND run IN ({names}))", machine=machine, **equal
    )
    records = {row["point"]: record for row in points for _, _, record in store.parsed([row])}
    runs: dict[int, list[RunValue]] = {at: [] for at in records}
    texts: dict[str, str] = {}
    for row in found:
        numbers = row["value"], row["low"], row["high"]
        if row["point"] in runs and all(isinstance(v, float) and math.isfinite(v) for v in numbers):
            runs[row["point"]].append(_run_value(row, texts))
    return [Series(record, tuple(runs[at])) for at, record in records.items() if runs[at]]


def _covering(of_run: Mapping[str, set[int]]) -> list[str]:
    """A few runs that have all points together."""
    missing = set().union(*of_run.values())
    found = []
    for run, points in sorted(of_run.items(), key=lambda item: len(item[1]), reverse=True):
        if not missing.isdisjoint(points):
            missing -= points
            found.append(run)
    return found


def _run_value(row: Mapping[str, Any], texts: dict[str, str]) -> RunValue:
    """Args:
    texts: JSON strings that were parsed before; a store has few different ones.
    """
    made_by = {}
    for name in _MADE_BY:
        if written := row[name]:
            if written not in texts:
                texts[written] = str(json.loads(written))
            made_by[name] = texts[written]
    flags = tuple(sorted(row["flags"] or ()))
    numbers = {name: row[name] for name in ("value", "low", "high")}
    return RunValue(run=row["run"], start=row["start"] or "", flags=flags, made_by=made_by, **numbers)
