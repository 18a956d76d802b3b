"""Builds the SQL that selects rows of a store's files, and executes queries with DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from meshmark.store.columns import COLUMN_TYPES
from meshmark.store.layout import StoreFile, file_name
from meshmark.store.parquet import SEPARATOR, QueryError, connected, read, rows_of_files
from meshmark.values.arrow import listed, row_iterator

if TYPE_CHECKING:
    from arro3.core import Table

_PART_ROWS: Final = 10_000
_Converted = TypeVar("_Converted")


def runs_in(path: Path) -> list[str]:
    """Return the names of the runs of a file; an empty list if it cannot be read."""
    try:
        return sorted(filter(None, {*listed(read(path, ["run"])["run"])}))
    except (OSError, QueryError):  # a query reports such files
        return []


def fetch_rows(query: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Execute a query, and return its rows, each a dictionary of its columns.

    Raises:
        QueryError: DuckDB cannot execute the query.
    """
    return fetch_tables(query, values, row_iterator)


def fetch_tables(
    query: str, values: Sequence[Any], convert: Callable[[Table], Iterable[_Converted]]
) -> list[_Converted]:
    """Execute a query, and return what `convert` returns for its rows, which it gets in batches.

    Raises:
        QueryError: DuckDB cannot execute the query.
    """
    from arro3.core import RecordBatchReader, Table

    items: list[_Converted] = []
    with connected() as db:
        for batch in RecordBatchReader.from_arrow(db.sql(query, params=list(values))):
            for begin in range(0, batch.num_rows, _PART_ROWS):
                items += convert(Table.from_batches([batch.slice(begin, min(_PART_ROWS, batch.num_rows - begin))]))
    return items


def fetch_table(query: str, values: Sequence[Any], tables: Mapping[str, Table]) -> Table:
    """Execute a query, and return its answer as a table.

    Args:
        query: The query.
        values: Parameters of the query.
        tables: Tables in addition to files, by their names in the query.

    Raises:
        QueryError: DuckDB cannot execute the query.
    """
    from arro3.core import Table

    with connected() as db:
        for name, table in tables.items():
            db.register(name, table)
        return Table.from_arrow(db.sql(query, params=list(values)))


def rows_sql(files: Sequence[StoreFile]) -> tuple[str, list[Any]]:
    """Return SQL that selects the rows of these files, except rows that newer files replace, and its parameters."""
    rows, values = rows_of_files([file.path for file in files], replaced_steps(files))
    return f"{_no_rows()} UNION ALL BY NAME {rows}", values


@cache
def _no_rows() -> str:
    """Return SQL that selects all columns but no rows. A union with it adds the columns that a file lacks."""
    return "SELECT " + ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in COLUMN_TYPES.items()) + " WHERE false"


def replaced_steps(files: Sequence[StoreFile]) -> dict[Path, list[str]]:
    """Return the steps that newer files replace, as texts `RUN`, `SEPARATOR`, `STEP` by file.

    The file of a step replaces the same step in the finished run; both replace the same step in compacted files.
    """
    newer: dict[tuple[str, str], list[StoreFile]] = {}
    for file in files:
        newer.setdefault((file.path.parent.name, file.run), []).append(file)
    partitions = {partition for partition, run in newer if run}
    pairs: dict[Path, list[str]] = {}
    for file in files:
        partition = file.path.parent.name
        if file.step or partition not in partitions:
            continue
        for run in [file.run] if file.run else map(file_name, runs_in(file.path)):
            for newer_file in newer.get((partition, run), ()):
                if newer_file.step or not file.run:
                    pairs.setdefault(file.path, []).extend(_steps_in(newer_file.path))
    return pairs


def _steps_in(path: Path) -> list[str]:
    """Return the run and step of each step in a file; an empty list if it cannot be read."""
    try:
        table = read(path, ["run", "step"])
    except (OSError, QueryError):  # see `runs_in`
        return []
    steps = dict.fromkeys(zip(listed(table["run"]), listed(table["step"]), strict=True))
    return [f"{run}{SEPARATOR}{step}" for run, step in steps]
