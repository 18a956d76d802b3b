"""The columns of the store's files, and the conversion of records and absences to rows and back.

Most conditions that distinguish points have columns of their own, so that any engine can join and filter by them. A
value whose type does not match its column, such as the memory node `local` beside node numbers, stays with the other
conditions in `conditions`, which is JSON like `provenance`. A condition is in one of the two places, never in both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, Final, cast

from meshmark.store.parquet import schema_or_problem
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

if TYPE_CHECKING:
    import pyarrow as pa

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
    "plan": str,
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


# ------------------------------------------------------------------ schemas


@cache
def schema() -> pa.Schema:
    """Return all columns. `run`, `step`, `status`, `machine`, `instrument`, `conditions` always have a value."""
    import pyarrow as pa

    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    return pa.schema(
        [(name, pa.string()) for name in TEXTS]
        + [(name, pa.float64()) for name in NUMBERS]
        + [("samples", pa.list_(pa.float64())), ("flags", pa.list_(pa.string()))]
        + [(name, types[kind]) for name, kind in POINT.items()]
        + [(name, pa.string()) for name in OF_NODES]
    )


def machine_schema() -> pa.Schema:
    """Return the schema of the files of machines: every column is text."""
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in MACHINE_COLUMNS])


def schema_problem(path: Path) -> str:
    """Return why a file is not a file of results, according to the schema in its footer; "" if it is."""
    return _columns_problem(path, schema, (*ALWAYS, *OF_RECORDS, "low", "high", "status"))


def machine_problem(path: Path) -> str:
    """Return why the schema of a file of machines is not valid; "" if it is."""
    return _columns_problem(path, machine_schema, MACHINE_COLUMNS)


def _columns_problem(path: Path, wanted: Callable[[], pa.Schema], required: Iterable[str]) -> str:
    fields = schema_or_problem(path)
    if isinstance(fields, str):
        return fields
    types = {field.name: field.type for field in fields}
    if missing := [name for name in required if name not in types]:
        return f"not a file of a store: missing column {missing[0]}"
    wanted_types = _types(wanted)
    for name, column_type in types.items():
        if column_type != wanted_types.get(name, column_type):
            return f"not a file of a store: column {name}: found {column_type}, {wanted_types[name]} is required"
    return ""


@cache
def _types(wanted: Callable[[], pa.Schema]) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in wanted()}


# ------------------------------------------------------------------ rows


def table_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows of results, at least one, as a table. Columns of conditions and nodes that no row has are left out.

    A store with thousands of files is read several times as fast without these columns.
    """
    import pyarrow as pa

    parts = []
    remaining_rows = iter(rows)
    while part := list(islice(remaining_rows, _PART_ROWS)):
        names = {name for row in part for name in row}
        fields = [f for f in schema() if f.name in names or f.name not in {*POINT, *OF_NODES}]
        parts.append(pa.Table.from_pylist(part, schema=pa.schema(fields)))
    return pa.concat_tables(parts, promote_options="default")


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


def rows_are_valid(table: pa.Table) -> bool:
    """Return whether all rows are valid. The check works by columns, which is faster than row by row.

    False does not prove an error; `record_of` and `absence_of` decide, and report the reason.
    """
    measured = table["status"].to_numpy(zero_copy_only=False) == MEASURED
    if measured.all():
        return _objects_of_records(table) is not None
    if measured.any():
        return all(rows_are_valid(table.filter(rows)) for rows in (measured, ~measured))
    return not _lacks(table, ("status", *ALWAYS, "reason", "enable")) and _objects(table) is not None


def _lacks(table: pa.Table, required: Iterable[str]) -> bool:
    return any(table[name].null_count for name in required)


def _objects_of_records(table: pa.Table) -> dict[str, dict[str, Scalar]] | None:
    """Return the objects of conditions and of provenance by their texts; None if a record is perhaps not valid."""
    if _lacks(table, (*ALWAYS, *OF_RECORDS)) or not _values_are_valid(table):
        return None
    return _objects(table)


def _values_are_valid(table: pa.Table) -> bool:
    """Return whether the texts and numbers of records are valid, apart from conditions and provenance."""
    import numpy as np

    flags = table["flags"].combine_chunks().flatten().unique().to_pylist()
    if not {*flags} <= FLAGS or not {*table["source"].unique().to_pylist()} <= SOURCES:
        return False
    if not {*table["better"].unique().to_pylist()} <= BETTER:
        return False
    if not _are_possible(table):
        return False
    if any("" in table[name].unique().to_pylist() for name in ("machine", "instrument", "metric", "unit")):
        return False
    lists = table["samples"].combine_chunks()
    counts = np.asarray(lists.value_lengths())
    flat = np.asarray(lists.flatten())
    if counts.min(initial=1) < 1 or lists.flatten().null_count or not np.isfinite(flat).all():
        return False
    begins = np.cumsum(counts) - counts
    value, low, high = (table[name].to_numpy(zero_copy_only=False) for name in NUMBERS)
    return all(
        _summaries_agree(
            np.sort(flat[begins[counts == n][:, None] + np.arange(n)], axis=1),
            *(column[counts == n] for column in (value, low, high)),
        )
        for n in np.unique(counts)
    )


def _are_possible(table: pa.Table) -> bool:
    """Return whether the units and directions of the records allow all samples."""
    import pyarrow.compute as pc

    lists = table["samples"].combine_chunks()
    parents = pc.list_parent_indices(lists).filter(pc.less(lists.flatten(), 0.0))
    negative = table.select(["unit", "better"]).take(parents.unique()).to_pylist()
    return not any(value_problem(row["unit"], row["better"], -1.0) for row in negative)


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


def _objects(table: pa.Table) -> dict[str, dict[str, Scalar]] | None:
    """Return the objects of conditions and of provenance by their texts; None if one is not an object of scalars."""
    objects = {}
    for name in ("conditions", "provenance"):
        for text in {*table[name].to_pylist()} - {None}:
            try:
                objects[text] = scalars(json.loads(text), name)
            except (ValueError, RecursionError):
                return None
    return objects


def records_of(table: pa.Table) -> list[Record] | None:
    """Return the records of rows; None if a row is perhaps not valid, so that `record_of` has to decide.

    This takes a third of the time of `record_of`. Records with the same provenance share it.
    """
    if (objects := _objects_of_records(table)) is None:
        return None
    texts = {name: list(map(intern, table[name].to_pylist())) for name in _RECORD_TEXTS}
    value, low, high, samples, flags, start, other, provenance = (table[name].to_pylist() for name in _RECORD_VALUES)
    used = [name for name in POINT if name in table.column_names and table[name].null_count < table.num_rows]
    points = [(intern(name), _interned(table[name].to_pylist())) for name in used]
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
