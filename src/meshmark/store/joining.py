"""Joins Parquet files of a store or of a fleet.

The new file appears as a whole, and only then are the files that it replaces removed. Readers find each row exactly
once at any moment, also after a kill, by the rules of `layout`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import MeshmarkError
from meshmark.store.checks import read_or_problem, schema_or_problem
from meshmark.store.files import is_abandoned, unlink, written
from meshmark.store.layout import REPLACES, UNIQUE, replaced

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 20_000  # rows of a row group; few, so that a query of one run reads little


class UnreadableError(MeshmarkError):
    """A file cannot be read; the message names it."""


def join(
    files: Sequence[Path],
    target: Path,
    order: Sequence[str] = (),
    outdated: Mapping[Path, tuple[str, Collection[str]]] | None = None,
) -> None:
    """Write one file with the rows of several files, and remove these.

    Args:
        files: The files, which are read one after the other.
        target: The new file, which may replace one of them.
        order: Names of columns by which rows that are written at once are sorted.
        outdated: A column and texts by file: rows with one of these texts in the column are left out.

    Raises:
        UnreadableError: A file cannot be read; all files stay.
        MeshmarkError: The file cannot be written, or a file cannot be removed; no row is lost.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = sorted({name for path in files for name in (path.name, *replaced(path)) if UNIQUE in name})
    schema = pa.unify_schemas([_checked(path, schema_or_problem(path)).remove_metadata() for path in files])
    schema = schema.with_metadata({REPLACES: json.dumps(names)} if names else None)
    empty = schema.empty_table()  # has all columns in the order of the schema
    with written(target, private=True) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
        parts = [empty]
        for path in files:
            table = _checked(path, read_or_problem(path))
            parts.append(without(table, *outdated[path]) if outdated and path in outdated else table)
            if sum(map(len, parts)) >= _ROWS or path == files[-1]:
                rows = pa.concat_tables(parts, promote_options="default")
                by = [(name, "ascending") for name in order]
                writer.write_table(rows.sort_by(by) if by else rows, row_group_size=_ROWS)
                parts = [empty]
    unlink(path for path in files if path != target)


def _checked(path: Path, content: Any) -> Any:
    """Return what was read from a file.

    Raises:
        UnreadableError: It is the reason why the file cannot be read.
    """
    if isinstance(content, str):
        raise UnreadableError(f"{path.name}: {content}")
    return content


def without(table: pa.Table, column: str, values: Collection[str]) -> pa.Table:
    """Return the rows that do not have any of these texts in a column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return table.filter(pc.invert(pc.is_in(table[column], value_set=pa.array(sorted(values), pa.string()))))


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
        unlink(path.with_name(name) for path in files for name in sorted(replaced(path)))


def leftovers(folder: Path) -> list[Path]:
    """Return the temporary files in a store, or in a table of a fleet, whose writers were killed."""
    paths = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [path for path in map(Path(parent).joinpath, names) if is_abandoned(path)]
    return sorted(paths)
