"""Reads, writes and joins Parquet files.

A joined file is complete before the files that it replaces are removed. Readers ignore replaced files (see `layout`),
so they find each row exactly once, even if the writer was killed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from meshmark.errors import MeshmarkError, quoted
from meshmark.store.files import open_regular, unlink, written

if TYPE_CHECKING:
    import pyarrow as pa

UNIQUE: Final = "~"  # in names of files that are never used again; `layout.file_name` never returns it
COMPACTED: Final = f"compacted{UNIQUE}"  # in names of joined files
SEPARATOR: Final = "\x1f"  # between run and step in texts that name both
_REPLACES: Final = b"meshmark.replaces"  # metadata of a joined file: the names of the files that it replaces, JSON
_ROWS: Final = 20_000  # rows of a row group; few, so that a query of one run reads little


class UnreadableError(MeshmarkError):
    """A file cannot be read; the message names it."""


# ------------------------------------------------------------------ reading


def read(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet file as a table.

    Args:
        path: The file, which must be a regular file.
        columns: Names of the columns to read; None: all.
    """
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        return pq.ParquetFile(file).read(columns=None if columns is None else list(columns))


def read_problem(path: Path) -> str:
    """Return why a file cannot be read completely; "" if it can."""
    table_or_problem = read_or_problem(path)
    return table_or_problem if isinstance(table_or_problem, str) else ""


def schema_or_problem(path: Path) -> pa.Schema | str:
    """Return the schema of a file, or why it cannot be read."""
    import pyarrow.parquet as pq

    return _or_problem(path, pq.read_schema)


def read_or_problem(path: Path) -> pa.Table | str:
    """Return the rows of a file, or why it cannot be read completely."""
    import pyarrow.parquet as pq

    def read_all(file: IO[bytes]) -> pa.Table:
        table = pq.ParquetFile(file).read()
        table.validate(full=True)
        return table

    return _or_problem(path, read_all)


def _or_problem(path: Path, use: Callable[[IO[bytes]], Any]) -> Any:
    """Return what `use` reads from a file, or why the file cannot be read."""
    try:
        with open_regular(path) as file:  # Arrow itself would block on a FIFO
            return use(file)
    except Exception as error:  # damaged files make the reader raise arbitrary exceptions
        return f"cannot be read: {quoted(str(error).splitlines()[0] if str(error) else type(error).__name__)}"


# ------------------------------------------------------------------ writing


def write_parquet(path: Path, *tables: pa.Table, **options: Any) -> None:
    """Write tables to a file atomically, readable by the owner of its folder only; see `store.files.private_mode`.

    Args:
        path: The file.
        tables: Its new rows; a table may lack columns that others have, and its texts may be `encoded`.
        options: Further arguments of `pyarrow.parquet.ParquetWriter`.

    Raises:
        MeshmarkError: The file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.unify_schemas([_decoded_schema(table.schema) for table in tables])
    empty = schema.empty_table()  # has all columns in the order of the schema
    with written(path, private=True) as out, pq.ParquetWriter(out, schema, compression="zstd", **options) as writer:
        for table in tables:
            rows = pa.concat_tables([empty, decoded(table)], promote_options="default")
            writer.write_table(rows, row_group_size=_ROWS)


def encoded(table: pa.Table) -> pa.Table:
    """Return a table in which each text occurs once in each column, as its dictionary; it takes less memory."""
    import pyarrow as pa

    for i, field in enumerate(table.schema):
        if field.type == pa.string():
            table = table.set_column(i, field.name, table[field.name].dictionary_encode())
    return table


def decoded(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries: the one that `encoded` was called with."""
    return table.cast(_decoded_schema(table.schema))


def _decoded_schema(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    return pa.schema(fields, schema.metadata)


def join(
    files: Sequence[Path],
    target: Path,
    order: Sequence[str] = (),
    outdated: Mapping[Path, Collection[str]] | None = None,
    tables: Mapping[Path, pa.Table] | None = None,
) -> None:
    """Write one file with the rows of several files, and remove those files.

    Args:
        files: The files, which are read one after the other.
        target: The new file, which may replace one of them.
        order: Names of columns by which rows that are written at once are sorted.
        outdated: Rows by file that are left out, as texts `RUN`, `SEPARATOR`, `STEP`.
        tables: The rows of files that were read before.

    Raises:
        UnreadableError: A file cannot be read; all files stay.
        MeshmarkError: The file cannot be written, or a file cannot be removed; no row is lost.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = sorted({name for path in files for name in (path.name, *replaced_file_names(path)) if UNIQUE in name})
    known = tables or {}
    schemas = [known[path].schema if path in known else _checked(path, schema_or_problem(path)) for path in files]
    schema = pa.unify_schemas([schema.remove_metadata() for schema in schemas])
    schema = schema.with_metadata({_REPLACES: json.dumps(names)} if names else None)
    empty = schema.empty_table()  # has all columns in the order of the schema
    with written(target, private=True) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
        parts = [empty]
        for path in files:
            table = known[path] if path in known else _checked(path, read_or_problem(path))
            if outdated and path in outdated:
                keys = pc.binary_join_element_wise(table["run"], table["step"], SEPARATOR)
                table = without(table, keys, outdated[path])
            parts.append(table)
            if sum(map(len, parts)) >= _ROWS or path == files[-1]:
                rows = pa.concat_tables(parts, promote_options="default")
                by = [(name, "ascending") for name in order]
                writer.write_table(rows.sort_by(by) if by else rows, row_group_size=_ROWS)
                parts = [empty]
    unlink(path for path in files if path != target)


def _checked(path: Path, content: Any) -> Any:
    """Return `content` if it was read from the file.

    Raises:
        UnreadableError: `content` is a text, the reason why the file cannot be read.
    """
    if isinstance(content, str):
        raise UnreadableError(f"{path.name}: {content}")
    return content


def without(table: pa.Table, texts: pa.ChunkedArray, excluded: Collection[str]) -> pa.Table:
    """Return the rows of a table whose text is not excluded; `texts` has one text for each row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return table.filter(pc.invert(pc.is_in(texts, value_set=pa.array(list(excluded), pa.string()))))


def replaced_file_names(path: Path) -> frozenset[str]:
    """Return the names of the files, in the same folder, that a compacted file replaces; empty if it cannot be read.

    Names without `UNIQUE` are left out, because `remove_replaced` removes the files that this function returns, and any
    node of a fleet may have written the metadata.
    """
    if COMPACTED not in path.name:
        return frozenset()
    metadata = getattr(schema_or_problem(path), "metadata", None) or {}
    try:
        names = {name for name in json.loads(metadata.get(_REPLACES, b"[]")) if isinstance(name, str)}
        return frozenset(name for name in names if re.fullmatch(rf"[^/]*{UNIQUE}[^/]*\.parquet", name))
    except (ValueError, TypeError, RecursionError):
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
