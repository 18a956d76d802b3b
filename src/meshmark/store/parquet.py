"""Reads, writes and joins Parquet files with DuckDB.

A joined file is complete before the files that it replaces are removed. Readers ignore replaced files (see `layout`),
so they find each row exactly once, even if the writer was killed.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from meshmark.errors import MeshmarkError, quoted
from meshmark.store.files import open_regular, unlink, written

if TYPE_CHECKING:
    from arro3.core import RecordBatch, RecordBatchReader, Table
    from duckdb import DuckDBPyConnection

_Content = TypeVar("_Content")
UNIQUE: Final = "~"  # in names of files that are never used again; `layout.file_name` never returns it
COMPACTED: Final = f"compacted{UNIQUE}"  # in names of joined files
SEPARATOR: Final = "\x1f"  # between run and step in texts that name both
_REPLACES: Final = "meshmark.replaces"  # metadata of a joined file: the names of the files that it replaces, JSON
_ROWS: Final = 20_000  # rows of a row group; few, so that a query of one run reads little
_THREADS: Final = 4  # of DuckDB, which would otherwise start one for each CPU
_STREAM_ERROR: Final = "C Data interface error: "  # Arrow's prefix of DuckDB's errors


class UnreadableError(MeshmarkError):
    """A file cannot be read; the message names it."""


class QueryError(Exception):
    """An error of DuckDB, as one line."""


# ------------------------------------------------------------------ DuckDB


@contextmanager
def connected() -> Iterator[DuckDBPyConnection]:
    """Connect to the database in memory of this process.

    Raises:
        QueryError: DuckDB cannot execute a query in the block.
    """
    import duckdb

    try:
        with _database(os.getpid()).cursor() as cursor:
            yield cursor
    except Exception as error:
        text = str(error)
        # Arrow passes errors of DuckDB on without a type of their own.
        if not isinstance(error, duckdb.Error | RuntimeError) and not text.startswith(_STREAM_ERROR):
            raise
        if "interrupted" in text.lower():
            raise KeyboardInterrupt from error
        if isinstance(error, RuntimeError):
            raise
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            _database.cache_clear()  # it accepts no further queries
        line = text.removeprefix(_STREAM_ERROR).splitlines()[0]
        raise QueryError(quoted(line, 400)) from error  # the message includes the path of the file


@cache
def _database(process: int) -> DuckDBPyConnection:
    """Return the database of a process, since a copy of it in a forked process would lack its threads."""
    import duckdb

    # The cache of files distinguishes them by their paths, but `/proc/self/fd/3` is another file each time.
    return duckdb.connect(
        config={
            "threads": min(_THREADS, len(os.sched_getaffinity(0))),
            "enable_external_file_cache": "false",
            "temp_directory": os.environ.get("TMPDIR") or "/tmp",
        }
    )


# ------------------------------------------------------------------ reading


def read(path: Path, columns: Sequence[str] | None = None) -> Table:
    """Return a Parquet file as a table.

    Args:
        path: The file, which must be a regular file.
        columns: Names of the columns to read; None: all.

    Raises:
        OSError: The file cannot be opened.
        QueryError: The file cannot be read.
    """
    with open_regular(path) as file, _named(path, file):
        return _table(file, columns)


def _table(file: IO[bytes], columns: Sequence[str] | None = None) -> Table:
    from arro3.core import Table

    with connected() as db:
        return Table.from_arrow(db.sql(f"SELECT {_listed(columns)} FROM read_parquet(?)", params=[source(file)]))


def batches(file: IO[bytes], columns: str, first: int = 0) -> Iterator[RecordBatch]:
    """Yield the rows of an open Parquet file in batches.

    Args:
        file: The file.
        columns: The columns to read, as SQL.
        first: Index of the first row.

    Raises:
        QueryError: The file cannot be read.
    """
    from arro3.core import RecordBatchReader

    query = f"SELECT {columns} FROM read_parquet(?) OFFSET {first}"
    with connected() as db:
        yield from RecordBatchReader.from_arrow(db.sql(query, params=[source(file)]))


def source(file: IO[bytes]) -> str:
    """Return a path by which DuckDB opens an open file. Names that are not UTF-8 would be errors, FIFOs would block."""
    return f"/proc/self/fd/{file.fileno()}"


def _listed(columns: Sequence[str] | None) -> str:
    return "*" if columns is None else ", ".join(map(identifier, columns))


def identifier(name: str) -> str:
    """Return the name of a column as SQL."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _named(path: Path, file: IO[bytes]) -> Iterator[None]:
    """Replace the path of an open file, in messages of DuckDB, by its name."""
    try:
        yield
    except QueryError as error:
        raise QueryError(str(error).replace(source(file), quoted(path.name))) from error


def read_problem(path: Path) -> str:
    """Return why a file cannot be read completely; "" if it can."""
    table_or_problem = read_or_problem(path)
    return table_or_problem if isinstance(table_or_problem, str) else ""


def types_or_problem(path: Path) -> dict[str, str] | str:
    """Return the types of the columns of a file, as DuckDB names them, or why the file cannot be read."""
    return _or_problem(path, types_of)


def types_of(file: IO[bytes]) -> dict[str, str]:
    """Return the types of the columns of an open Parquet file, as DuckDB names them.

    Raises:
        QueryError: The file cannot be read.
    """
    with connected() as db:
        rows = db.execute("DESCRIBE SELECT * FROM read_parquet(?)", [source(file)]).fetchall()
    return {name: kind for name, kind, *_ in rows}


def read_or_problem(path: Path) -> Table | str:
    """Return the rows of a file, or why it cannot be read completely."""
    return _or_problem(path, _table)


def metadata_of(file: IO[bytes]) -> dict[str, bytes]:
    """Return the metadata of an open Parquet file, by their keys.

    Raises:
        QueryError: The file cannot be read.
    """
    with connected() as db:
        rows = db.execute("SELECT key, value FROM parquet_kv_metadata(?)", [source(file)]).fetchall()
    return {key.decode(errors="replace"): value for key, value in rows}


def _or_problem(path: Path, use: Callable[[IO[bytes]], _Content]) -> _Content | str:
    """Return what `use` reads from a file, or why the file cannot be read."""
    try:
        with open_regular(path) as file, _named(path, file):
            return use(file)
    except (OSError, QueryError) as error:
        return f"cannot be read: {quoted(str(error).splitlines()[0] if str(error) else type(error).__name__)}"


# ------------------------------------------------------------------ writing


def write_parquet(
    path: Path,
    *tables: Table | RecordBatchReader,
    columns: str = "*",
    order: Sequence[str] = (),
    metadata: Mapping[str, str] | None = None,
    options: str = "",
    private: bool = True,
) -> None:
    """Write tables to a file atomically.

    Args:
        path: The file.
        tables: Its new rows; a table may lack columns that others have, and its texts may be `values.arrow.encoded`.
        columns: The columns of the file, as SQL.
        order: Names of columns by which the rows are sorted.
        metadata: Metadata of the file, by their keys.
        options: Further options of DuckDB's `COPY`.
        private: Make the file readable by the owner of its folder only; see `store.files.private_mode`.

    Raises:
        MeshmarkError: The file cannot be written.
        QueryError: A stream of rows cannot be read.
    """
    names = [f"rows_{i}" for i in range(len(tables))]
    with connected() as db:
        for name, table in zip(names, tables, strict=True):
            db.register(name, table)
        query = " UNION ALL BY NAME ".join(f"SELECT {columns} FROM {name}" for name in names)
        _copy(db, _ordered(query, order), [], path, metadata or {}, options, private)


def _copy(
    db: DuckDBPyConnection,
    query: str,
    values: Sequence[Any],
    path: Path,
    metadata: Mapping[str, str],
    options: str = "",
    private: bool = True,
) -> None:
    """Write the answer of a query to a file; see `write_parquet`."""
    import duckdb

    pairs = ", ".join(f"{_literal(key)}: {_literal(value)}" for key, value in metadata.items())
    settings = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROWS}, USE_TMP_FILE false"
    settings += (f", KV_METADATA {{{pairs}}}" if pairs else "") + (f", {options}" if options else "")
    with written(path, private=private) as out, _by_path(out) as file:
        try:
            db.execute(f"COPY ({query}) TO {_literal(source(file))} ({settings})", values)
        except duckdb.IOException as error:
            if failed := re.search(r'Could not write file .*": ([^"]+)"', str(error)):
                raise MeshmarkError(f"cannot write {path}: {failed[1]}") from error
            raise


def _ordered(query: str, order: Sequence[str]) -> str:
    return f"SELECT * FROM ({query}) ORDER BY {_listed(order)}" if order else query


def _literal(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _by_path(out: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield a regular file that `source` can name, whose content becomes the content of `out`."""
    try:
        out.fileno()
    except io.UnsupportedOperation:  # the file is in memory, see `store.files.written`
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            shutil.copyfileobj(file, out)
    else:
        yield out


def join(
    files: Sequence[Path],
    target: Path,
    order: Sequence[str] = (),
    outdated: Mapping[Path, Collection[str]] | None = None,
) -> None:
    """Write one file with the rows of several files, and remove those files.

    Args:
        files: The files.
        target: The new file, which may replace one of them.
        order: Names of columns by which the rows are sorted.
        outdated: Rows by file that are left out, as texts `RUN`, `SEPARATOR`, `STEP`.

    Raises:
        UnreadableError: A file cannot be read; all files stay.
        MeshmarkError: The file cannot be written, or a file cannot be removed; no row is lost.
    """
    names = {name for path in files for name in (path.name, *replaced_file_names(path)) if UNIQUE in name}
    query, values = rows_of_files(files, outdated or {})
    try:
        with connected() as db:
            _copy(db, _ordered(query, order), values, target, _replacing(names))
    except QueryError as error:
        # Reading each file alone reveals which one is damaged.
        problems = (f"{path.name}: {problem}" for path in files if (problem := read_problem(path)))
        raise UnreadableError(next(problems, str(error))) from error
    unlink(path for path in files if path != target)


def rewrite(path: Path, table: Table) -> None:
    """Replace the rows of a file, which goes on to replace the same files as before.

    Raises:
        MeshmarkError: The file cannot be written.
    """
    write_parquet(path, table, metadata=_replacing(replaced_file_names(path)))


def _replacing(names: Collection[str]) -> dict[str, str]:
    """Return the metadata of a file that replaces the files with these names."""
    return {_REPLACES: json.dumps(sorted(names))} if names else {}


def rows_of_files(files: Sequence[Path], outdated: Mapping[Path, Collection[str]]) -> tuple[str, list[Any]]:
    """Return SQL that selects the rows of files, and its parameters; `join` describes the arguments."""
    options = "union_by_name = true, filename = true, hive_partitioning = false"  # folders are named KEY=VALUE
    query = f"SELECT * EXCLUDE (filename) FROM read_parquet(?, {options})"
    values: list[Any] = [list(map(str, files))]
    if keys := [f"{path}{SEPARATOR}{pair}" for path, pairs in outdated.items() for pair in pairs]:
        query += f" WHERE NOT list_contains(?, concat_ws('{SEPARATOR}', filename, run, step))"
        values.append(keys)
    return query, values


def replaced_file_names(path: Path) -> frozenset[str]:
    """Return the names of the files, in the same folder, that a compacted file replaces; empty if it cannot be read.

    Names without `UNIQUE` are left out, because `remove_replaced` removes the files that this function returns, and any
    node of a fleet may have written the metadata.
    """
    if COMPACTED not in path.name:
        return frozenset()
    try:
        with open_regular(path) as file:
            names = json.loads(metadata_of(file).get(_REPLACES, b"[]"))
        return frozenset(
            name for name in names if isinstance(name, str) and re.fullmatch(rf"[^/]*{UNIQUE}[^/]*\.parquet", name)
        )
    except (OSError, QueryError, ValueError, TypeError, RecursionError):
        return frozenset()


def remove_replaced(folder: Path, prefix: str = "") -> None:
    """Remove the files that compacted files of a folder replace, and that a killed compaction left.

    Args:
        folder: The folder, which contains files only.
        prefix: Prefix of the names of the files that are considered.

    Raises:
        MeshmarkError: A file cannot be removed.
    """
    files = [*folder.glob(f"{prefix}*.parquet")]
    if len(files) > 1:
        unlink(path.with_name(name) for path in files for name in sorted(replaced_file_names(path)))
