"""The columns of the store's files, and the conversion of records and absences to rows and back.

Most conditions that distinguish points have columns of their own, so that any engine can join and filter by them. A
value whose type does not match its column, such as the memory node `local` beside node numbers, stays with the other
conditions in `conditions`, which is JSON like `provenance`. A condition is in one of the two places, never in both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, Final, cast

from meshmark.store.parquet import types_or_problem
from meshmark.store.record import (
    BETTER,
    FLAGS,
    SOURCES,
    Better,
    Record,
    RecordError,
    Scalar,
    Source,
    interval_rank,
    is_unicode,
    scalars,
    value_problem,
)
from meshmark.store.run import Absence
from meshmark.values.arrow import listed, listed_once, selected, table_of

if TYPE_CHECKING:
    from arro3.core import Table

_PART_ROWS: Final = 10_000  # rows that are converted at once: a row takes ten times as much memory as in a table
MEASURED: Final = "measured"  # status of a record; the status of an absence is its kind
TEXTS: Final = (
    "run",
    "step",
    "status",
    "source",
    "machine",
    "instrument",
    "metric",
    "unit",
    "better",
    "start",
    "reason",
    "enable",
    "conditions",
    "provenance",
)
NUMBERS: Final = ("value", "low", "high")
ALWAYS: Final = ("run", "step", "machine", "instrument", "conditions")  # have a value in every row
OF_RECORDS: Final = ("source", "metric", "unit", "better", "value", "samples", "flags", "provenance")  # in every record
MACHINE_COLUMNS: Final = (
    *("machine", "seen", "boot", "cpu", "microcode", "firmware", "kernel", "kernel_build", "kernel_options"),
    *("governor", "boost", "thp", "smt", "numa_balancing", "hypervisor", "prefetchers"),
)
# Texts in the results of a fleet, where the run is a campaign. `attempt` is a hash of the file that the node left, and
# `point` is the key that `measure.repetitions.point_key` returns.
OF_NODES: Final = ("campaign", "node", "attempt", "point")
# Conditions with a column of their own. Others are in `conditions`, as JSON, so a new instrument needs no new column.
POINT: Final[dict[str, type]] = {
    "kernel": str,
    "store": str,
    "isa": str,
    "threads": int,
    "cpus": str,
    "footprint_bytes": int,
    "pages": str,
    "memory_node": int,
    "fill": str,
    "mode": str,
    "clock": str,
    "cpu": int,
    "n": int,
    "library": str,
    "library_kernel": str,
    "table_bytes": int,
    "target": str,
    "direction": str,
    "block_bytes": int,
    "queue_depth": int,
    "jobs": int,
    "size_bytes": int,
    "volume_bytes": int,
    "stride": int,
    "stride_bytes": int,
    "pattern": str,
    "locality_bytes": int,
    "page_bytes": int,
    "processes": int,
    "from_cpu": int,
    "to_cpu": int,
    "state": str,
    "trip": str,
    "home_node": int,
    "chains": int,
    "read_share": float,
    "pause": int,
    "type": str,
    "level": int,
    "kind": str,
    "from_bytes": int,
    "to_bytes": int,
    "operation": str,
    "algorithm": str,
    "message_bytes": int,
    "ranks": int,
    "mpi": str,
    "program": str,
    "latency_factor": float,
    "protocol": str,
    "reductions": int,
    "trial": str,
    "words": int,
    "window_bytes": int,
    "modes": int,
    "radii": int,
    "flops_per_point": int,
    "grid": str,
    "paradigm": str,
    "class": str,
    "fft": str,
    "from_rank": int,
    "to_rank": int,
    "distance": int,
    "cells": int,
    "steps": int,
    "shape": str,
    "planner": str,
    "weights_bytes": int,
    "layers": int,
    "placement": str,
    "truncation": str,
    "test_case": str,
    "levels": int,
    "variant": str,
    "access": str,
    "length": int,
    "edge": int,
    "numbering": str,
    "solver": str,
    "eigenvalues": int,
    "basis": int,
}


_TYPES: Final = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE"}
# Types of all columns. `run`, `step`, `status`, `machine`, `instrument` and `conditions` always have a value.
COLUMN_TYPES: Final[dict[str, str]] = {
    **dict.fromkeys(TEXTS, "VARCHAR"),
    **dict.fromkeys(NUMBERS, "DOUBLE"),
    "samples": "DOUBLE[]",
    "flags": "VARCHAR[]",
    **{name: _TYPES[kind] for name, kind in POINT.items()},
    **dict.fromkeys(OF_NODES, "VARCHAR"),
}
MACHINE_TYPES: Final[dict[str, str]] = dict.fromkeys(MACHINE_COLUMNS, "VARCHAR")


# ------------------------------------------------------------------ files


def schema_problem(path: Path) -> str:
    """Return why a file is not a file of results, according to the schema in its footer; "" if it is."""
    return _columns_problem(path, COLUMN_TYPES, (*ALWAYS, *OF_RECORDS, "low", "high", "status"))


def machine_problem(path: Path) -> str:
    """Return why the schema of a file of machines is not valid; "" if it is."""
    return _columns_problem(path, MACHINE_TYPES, MACHINE_COLUMNS)


def _columns_problem(path: Path, wanted: Mapping[str, str], required: Iterable[str]) -> str:
    types = types_or_problem(path)
    if isinstance(types, str):
        return types
    if missing := [name for name in required if name not in types]:
        return f"not a file of a store: missing column {missing[0]}"
    for name, column_type in types.items():
        if column_type != wanted.get(name, column_type):
            return f"not a file of a store: column {name}: found {column_type}, {wanted[name]} is required"
    return ""


# ------------------------------------------------------------------ rows


def tables_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[Table]:
    """Yield rows of results as tables. Columns of conditions and nodes that no row of a table has are left out.

    A store with thousands of files is read several times as fast without these columns.
    """
    remaining_rows = iter(rows)
    while part := list(islice(remaining_rows, _PART_ROWS)):
        names = {name for row in part for name in row}
        yield table_of(part, {k: t for k, t in COLUMN_TYPES.items() if k in names or k not in {*POINT, *OF_NODES}})


def row_of(record: Record, run: str, step: str) -> dict[str, Any]:
    """Return a record as a row."""
    low, high = record.interval or (None, None)
    provenance = dict(record.provenance)
    start = provenance.pop("start") if _fits(provenance.get("start"), str) else None
    return {
        "run": run,
        "step": step,
        "status": MEASURED,
        **{k: getattr(record, k) for k in ("source", "machine", "instrument", "metric", "unit", "better", "value")},
        "start": start,
        "low": low,
        "high": high,
        "samples": list(record.samples),
        "flags": sorted(record.flags),
        "provenance": json.dumps(provenance),
        **_split(record.conditions),
    }


def row_of_absence(absence: Absence, run: str, step: str, machine: str) -> dict[str, Any]:
    """Return an absence as a row."""
    return {
        "run": run,
        "step": step,
        "machine": machine,
        "status": absence.kind,
        **{k: getattr(absence, k) for k in ("instrument", "metric", "reason", "enable")},
        **_split(absence.conditions),
    }


def record_of(row: dict[str, Any]) -> Record:
    """Return the record of a row.

    Raises:
        RecordError, ValueError, TypeError: The row is not the row of a record.
    """
    start = row.get("start")
    return Record.from_json(
        {
            **{k: row[k] for k in ("source", "machine", "instrument", "metric", "unit", "better", "value")},
            "interval": None if row["low"] is None else [row["low"], row["high"]],
            "samples": list(row["samples"]),
            "flags": list(row["flags"]),
            "conditions": _conditions(row),
            "provenance": {**json.loads(row["provenance"]), **({"start": start} if start is not None else {})},
        }
    )


def absence_of(row: dict[str, Any]) -> Absence:
    """Return the absence of a row.

    Raises:
        RecordError, ValueError, TypeError: The row is not the row of an absence.
    """
    if missing := [k for k in ("instrument", "reason", "enable", "status") if row[k] is None]:
        raise RecordError(f"{missing[0]}: missing, a string is required")
    texts = {k: row[k] for k in ("instrument", "metric", "reason", "enable", "step")}
    return Absence(conditions=_conditions(row), kind=row["status"], **texts)


class _ColumnLists(dict[str, list[Any]]):
    """The values of the columns of a table, which are converted when they are first used."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> list[Any]:
        self[name] = (listed_once if COLUMN_TYPES[name] == "VARCHAR" else listed)(self.table[name])
        return self[name]

    def lack(self, required: Iterable[str]) -> bool:
        """Return whether a value is missing in one of these columns."""
        return any(self.table[name].null_count for name in required)


def rows_are_valid(table: Table) -> bool:
    """Return whether all rows are valid. The check works by columns, which is faster than row by row.

    False does not prove an error; `record_of` and `absence_of` decide, and report the reason.
    """
    columns = _ColumnLists(table)
    measured = [i for i, status in enumerate(columns["status"]) if status == MEASURED]
    if len(measured) == table.num_rows:
        return _objects_of_records(columns) is not None
    if measured:
        others = [i for i, status in enumerate(columns["status"]) if status != MEASURED]
        return all(rows_are_valid(selected(table, rows)) for rows in (measured, others))
    return not columns.lack(("status", *ALWAYS, "reason", "enable")) and _objects(columns) is not None


def _objects_of_records(columns: _ColumnLists) -> dict[str, dict[str, Scalar]] | None:
    """Return the objects of conditions and of provenance by their texts; None if a record is perhaps not valid."""
    if columns.lack((*ALWAYS, *OF_RECORDS)) or not _values_are_valid(columns):
        return None
    return _objects(columns)


def _values_are_valid(columns: _ColumnLists) -> bool:
    """Return whether the texts and numbers of records are valid, apart from conditions and provenance."""
    import numpy as np

    if not {*chain.from_iterable(columns["flags"])} <= FLAGS:
        return False
    if not ({*columns["source"]} <= SOURCES and {*columns["better"]} <= BETTER):
        return False
    if any("" in columns[name] for name in ("machine", "instrument", "metric", "unit")):
        return False
    lists = columns["samples"]
    counts = np.fromiter(map(len, lists), dtype=int, count=len(lists))
    flat = np.fromiter((math.nan if v is None else v for v in chain.from_iterable(lists)), dtype=float)
    if counts.min(initial=1) < 1 or not np.isfinite(flat).all():
        return False
    negative = np.unique(np.repeat(np.arange(len(counts)), counts)[flat < 0.0])
    if any(value_problem(*kind, -1.0) for kind in {(columns["unit"][i], columns["better"][i]) for i in negative}):
        return False
    begins = np.cumsum(counts) - counts
    value, low, high = (np.array(columns[name], dtype=float) for name in NUMBERS)  # NaN for a missing number
    return all(
        _summaries_agree(
            np.sort(flat[begins[counts == n][:, None] + np.arange(n)], axis=1),
            *(column[counts == n] for column in (value, low, high)),
        )
        for n in np.unique(counts)
    )


def _summaries_agree(samples: Any, value: Any, low: Any, high: Any) -> bool:
    """Return whether the stored medians and intervals agree with the samples.

    Args:
        samples: Shape (rows, samples), ascending in each row.
        value: Medians, shape (rows,).
        low: Lower ends of the intervals, shape (rows,); NaN without an interval.
        high: Upper ends of the intervals, shape (rows,); NaN without an interval.
    """
    import numpy as np

    def near(a: Any, b: Any) -> bool:
        return bool((np.abs(a - b) <= 1e-9 * np.maximum(np.abs(a), np.abs(b)) + 1e-300).all())  # False for NaN

    n = samples.shape[1]
    if not near(value, 0.5 * (samples[:, (n - 1) // 2] + samples[:, n // 2])):
        return False
    if (rank := interval_rank(n)) < 1:
        return bool(np.isnan(low).all() and np.isnan(high).all())
    return near(low, samples[:, rank - 1]) and near(high, samples[:, n - rank])


def _objects(columns: _ColumnLists) -> dict[str, dict[str, Scalar]] | None:
    """Return the objects of conditions and of provenance by their texts; None if one is not an object of scalars."""
    objects = {}
    for name in ("conditions", "provenance"):
        for text in {*columns[name]} - {None}:
            try:
                objects[text] = scalars(json.loads(text), name)
            except (ValueError, RecursionError):
                return None
    return objects


def records_of(table: Table) -> list[Record] | None:
    """Return the records of rows; None if a row is perhaps not valid, so that `record_of` has to decide.

    This takes a third of the time of `record_of`. Records with the same provenance share it.
    """
    columns = _ColumnLists(table)
    if (objects := _objects_of_records(columns)) is None:
        return None
    texts = {name: list(map(intern, columns[name])) for name in _RECORD_TEXTS}
    value, low, high, samples, flags, start, other, provenance = (columns[name] for name in _RECORD_VALUES)
    used = [name for name in POINT if name in table.column_names and table[name].null_count < table.num_rows]
    points = [(intern(name), _interned(columns[name])) for name in used]
    flag_sets: dict[tuple[str, ...], frozenset[str]] = {}
    provenances: dict[tuple[str, str | None], dict[str, Scalar]] = {}
    records = []
    for i in range(table.num_rows):
        conditions = {name: column[i] for name, column in points if column[i] is not None}
        conditions.update(objects[other[i]])
        if (key := (provenance[i], start[i])) not in provenances:
            provenances[key] = {**objects[provenance[i]], **({} if start[i] is None else {"start": start[i]})}
        records.append(
            Record(
                source=cast(Source, texts["source"][i]),
                machine=texts["machine"][i],
                instrument=texts["instrument"][i],
                metric=texts["metric"][i],
                unit=texts["unit"][i],
                better=cast(Better, texts["better"][i]),
                samples=tuple(samples[i]),
                value=value[i],
                interval=None if low[i] is None else (low[i], high[i]),
                conditions=conditions,
                flags=flag_sets.setdefault(tuple(flags[i]), frozenset(flags[i])),
                provenance=provenances[key],
            )
        )
    return records


_RECORD_TEXTS: Final = ("source", "machine", "instrument", "metric", "unit", "better")
_RECORD_VALUES: Final = ("value", "low", "high", "samples", "flags", "start", "conditions", "provenance")


def _interned(values: list[Any]) -> list[Any]:
    return [intern(v) if type(v) is str else v for v in values]


def _split(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the columns of conditions; the column `conditions` contains those without one, as JSON."""
    columns = {k: v for k, v in conditions.items() if k in POINT and _fits(v, POINT[k])}
    return {**columns, "conditions": json.dumps({k: v for k, v in conditions.items() if k not in columns})}


def _conditions(row: dict[str, Any]) -> dict[str, Any]:
    other_conditions = json.loads(row["conditions"])
    if not isinstance(other_conditions, dict):
        raise RecordError(f"conditions: found {other_conditions!r}, an object is required")
    return {**{name: row[name] for name in POINT if row.get(name) is not None}, **other_conditions}


def _fits(value: object, kind: type) -> bool:
    """Return whether a column of this type preserves the value of a condition."""
    if type(value) is not kind:
        return False
    if kind is str:
        return is_unicode(str(value))
    return -(2**63) <= value < 2**63 if kind is int else math.isfinite(value)  # type: ignore[operator,arg-type]
