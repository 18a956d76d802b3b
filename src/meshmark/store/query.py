"""Builds the SQL that selects rows of a store's files, and executes queries with DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from meshmark.errors import quoted
from meshmark.store.columns import schema
from meshmark.store.layout import StoreFile, file_name
from meshmark.store.parquet import SEPARATOR, read

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_PART_ROWS: Final = 10_000
_Converted = TypeVar("_Converted")


def runs_in(path: Path) -> list[str]:
    """Return the names of the runs of a file; an empty list if it cannot be read."""
    try:
        return sorted(filter(None, read(path, ["run"])["run"].unique().to_pylist()))
    except Exception:  # damaged files make the reader raise arbitrary exceptions; a query reports such files
        return []


class QueryError(Exception):
    """An error of DuckDB, as one line."""


def fetch_rows(query: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Execute a query, and return its rows, each a dictionary of its columns.

    Raises:
        QueryError: DuckDB cannot execute the query.
    """
    with _connected() as db:
        cursor = db.execute(query, values)
        names = [d[0] for d in cursor.description or ()]
        rows: list[dict[str, Any]] = []
        while part := cursor.fetchmany(_PART_ROWS):
            rows += [dict(zip(names, row, strict=True)) for row in part]
        return rows


def fetch_tables(
    query: str, values: Sequence[Any], convert: Callable[[pa.Table], Iterable[_Converted]]
) -> list[_Converted]:
    """Execute a query, and return what `convert` returns for its rows, which it gets in batches.

    Raises:
        QueryError: DuckDB cannot execute the query.
    """
    import pyarrow as pa

    with _connected() as db:
        reader: pa.RecordBatchReader = db.sql(query, params=list(values)).to_arrow_reader(_PART_ROWS)
        return [item for batch in reader for item in convert(pa.Table.from_batches([batch]))]


def fetch_table(query: str, values: Sequence[Any], tables: Mapping[str, pa.Table]) -> pa.Table:
    """Execute a query, and return its answer as a table.

    Args:
        query: The query.
        values: Parameters of the query.
        tables: Tables in addition to files, by their names in the query.

    Raises:
        QueryError: DuckDB cannot execute the query.
    """
    with _connected() as db:
        for name, table in tables.items():
            db.register(name, table)
        return db.sql(query, params=list(values)).to_arrow_table()


@contextmanager
def _connected() -> Iterator[DuckDBPyConnection]:
    """Connect to a database in memory.

    Raises:
        QueryError: DuckDB cannot execute a query in the block.
    """
    import duckdb
    import pyarrow as pa

    with duckdb.connect() as db:
        try:
            yield db
        except (RuntimeError, OSError, pa.ArrowException) as error:  # from DuckDB on SIGINT, or passed on by Arrow
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from error
            if isinstance(error, RuntimeError):
                raise
            raise _query_error(error) from error
        except duckdb.Error as error:
            raise _query_error(error) from error


def _query_error(error: Exception) -> QueryError:
    return QueryError(quoted(str(error).splitlines()[0], 400))  # the message includes the path of the file


def rows_sql(files: Sequence[StoreFile]) -> tuple[str, list[Any]]:
    """Return SQL that selects the rows of these files, except rows that newer files replace, and its parameters."""
    text = (
        f"{_no_rows()} UNION ALL BY NAME"
        " SELECT * EXCLUDE (filename) FROM read_parquet(?, union_by_name = true, filename = true)"
    )
    values: list[Any] = [[str(file.path) for file in files]]
    keys = [f"{path}{SEPARATOR}{pair}" for path, pairs in replaced_steps(files).items() for pair in pairs]
    if keys:
        text += f" WHERE NOT list_contains(?, concat_ws('{SEPARATOR}', filename, run, step))"
        values.append(keys)
    return text, values


@cache
def _no_rows() -> str:
    """Return SQL that selects all columns but no rows. A union with it adds the columns that a file lacks."""
    types = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE"}
    columns = [
        (f.name, types.get(str(f.type)) or f"{types[str(f.type.value_type)]}[]")  # a simple type, or a list of it
        for f in schema()
    ]
    return "SELECT " + ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in columns) + " WHERE false"


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
        rows = read(path, ["run", "step"]).group_by(["run", "step"]).aggregate([]).to_pylist()
    except Exception:  # see `runs_in`
        return []
    return [f"{row['run']}{SEPARATOR}{row['step']}" for row in rows]
