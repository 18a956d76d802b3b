"""Builds the SQL that selects rows of a store's files, and executes queries with DuckDB."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from meshmark.errors import quoted
from meshmark.store.checks import read
from meshmark.store.columns import schema
from meshmark.store.files import open_regular
from meshmark.store.layout import StoreFile, file_name

if TYPE_CHECKING:
    import pyarrow as pa

RUNS: Final = b"meshmark.runs"  # metadata of a compacted file: the names of its runs, JSON
_SEPARATOR: Final = "\x1f"
_PART_ROWS: Final = 1000
_Converted = TypeVar("_Converted")


def with_runs(table: pa.Table) -> pa.Table:
    """Return the rows of a compacted file with the names of its runs as metadata."""
    names = sorted(set(table["run"].to_pylist()))
    return table.replace_schema_metadata({RUNS: json.dumps(names).encode()})


def runs_in(path: Path) -> list[str]:
    """Return the names of the runs of a compacted file; an empty list if it cannot be read."""
    import pyarrow.parquet as pq

    try:
        with open_regular(path) as file:
            names = json.loads((pq.read_schema(file).metadata or {}).get(RUNS, b"[]"))
    except Exception:  # damaged files make the reader raise arbitrary exceptions; a query reports such files
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


class QueryError(Exception):
    """An error of DuckDB, as one line."""


def fetched(query: str, values: Sequence[Any], convert: Callable[[dict[str, Any]], _Converted]) -> list[_Converted]:
    """Execute a query, and return its rows, each converted from a dictionary by column.

    The rows are fetched in parts, because a dictionary of all columns takes several times the memory of a record.

    Raises:
        QueryError: DuckDB cannot execute the query.
    """
    import duckdb

    with duckdb.connect() as db:
        try:
            cursor = db.execute(query, values)
            names = [d[0] for d in cursor.description or ()]
            rows: list[_Converted] = []
            while part := cursor.fetchmany(_PART_ROWS):
                rows += [convert(dict(zip(names, row, strict=True))) for row in part]
            return rows
        except RuntimeError as error:  # DuckDB raises it on SIGINT
            if "interrupted" in str(error):
                raise KeyboardInterrupt from error
            raise
        except duckdb.Error as error:
            raise QueryError(quoted(str(error).splitlines()[0])) from error


def relation(files: Sequence[StoreFile]) -> tuple[str, list[Any]]:
    """Return SQL that selects the rows of these files, except rows that newer files replace, and its parameters."""
    text = (
        f"{_no_rows()} UNION ALL BY NAME"
        " SELECT * EXCLUDE (filename) FROM read_parquet(?, union_by_name = true, filename = true)"
    )
    values: list[Any] = [[str(file.path) for file in files]]
    if replaced := _replaced(files):
        key = f"filename || '{_SEPARATOR}' || run"
        text += f" WHERE NOT list_contains(?, {key}) AND NOT list_contains(?, {key} || '{_SEPARATOR}' || step)"
        values += [replaced, replaced]
    return text, values


@cache
def _no_rows() -> str:
    """Return SQL that selects no row of all columns. A union with it adds the columns that a file lacks."""
    types = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE"}
    columns = [
        (f.name, types.get(str(f.type)) or f"{types[str(f.type.value_type)]}[]")  # a simple type, or a list of it
        for f in schema()
    ]
    return "SELECT " + ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in columns) + " WHERE false"


def _replaced(files: Sequence[StoreFile]) -> list[str]:
    """Return the rows that newer files replace, as `FILE/RUN` or `FILE/RUN/STEP`, separated by `_SEPARATOR`."""
    finished = {(file.path.parent.name, file.run): file.path for file in files if file.run and not file.step}
    steps: dict[tuple[str, str], list[StoreFile]] = {}
    for file in files:
        if file.step:
            steps.setdefault((file.path.parent.name, file.run), []).append(file)
    keys = []
    for key in finished.keys() & steps.keys():
        keys += [_SEPARATOR.join((str(finished[key]), *_run_and_step(file.path))) for file in steps[key]]
    newer = {folder for folder, _ in (*finished, *steps)}
    for file in files:
        if file.run or file.path.parent.name not in newer:
            continue
        for run in runs_in(file.path):
            key = file.path.parent.name, file_name(run)
            if key in finished:
                keys.append(_SEPARATOR.join((str(file.path), run)))
            else:
                keys += [_SEPARATOR.join((str(file.path), *_run_and_step(step.path))) for step in steps.get(key, ())]
    return keys


def _run_and_step(path: Path) -> tuple[str, str]:
    """Return the run and the step of a file that contains one step."""
    rows = read(path, ["run", "step"]).slice(0, 1).to_pylist()
    return (rows[0]["run"], rows[0]["step"]) if rows else ("", "")
