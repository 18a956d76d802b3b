"""Checks of the files of a store before their rows are read.

Damaged files make the Parquet reader raise arbitrary exceptions, so these functions return problems as texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from meshmark.errors import quoted
from meshmark.store.columns import ALWAYS, OF_RECORDS, schema
from meshmark.store.files import open_regular

if TYPE_CHECKING:
    import pyarrow as pa

MACHINE_COLUMNS: Final = (
    "machine",
    "seen",
    "boot",
    "cpu",
    "microcode",
    "firmware",
    "kernel",
    "kernel_build",
    "kernel_options",
    "governor",
    "boost",
    "thp",
    "smt",
    "numa_balancing",
    "hypervisor",
    "prefetchers",
)
_COLUMNS: Final = (*ALWAYS, *OF_RECORDS, "low", "high", "status")  # every file with results has these columns


def machine_schema() -> pa.Schema:
    """Return the schema of the files of machines: every column is text."""
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in MACHINE_COLUMNS])


def read(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet file as a table.

    Args:
        path: The file, which must be a regular file.
        columns: Names of the columns to read; None: all.
    """
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        return pq.ParquetFile(file).read(columns=None if columns is None else list(columns))


def schema_problem(path: Path) -> str:
    """Return why the footer, which contains the schema, does not fit a file with results; "" if it fits."""
    return _other_columns(path, _types(), _COLUMNS)


@cache
def _types() -> dict[str, pa.DataType]:
    return {f.name: f.type for f in schema()}


def machine_problem(path: Path) -> str:
    """Return why a file of machines cannot be read: its columns differ; "" if it can."""
    return _other_columns(path, {f.name: f.type for f in machine_schema()}, MACHINE_COLUMNS)


def _other_columns(path: Path, wanted: dict[str, Any], required: Iterable[str]) -> str:
    fields = schema_or_problem(path)
    if isinstance(fields, str):
        return fields
    types = {field.name: field.type for field in fields}
    if missing := [name for name in required if name not in types]:
        return f"not a file of a store: missing column {missing[0]}"
    for name, column_type in types.items():
        if column_type != wanted.get(name, column_type):
            return f"not a file of a store: column {name}: found {column_type}, {wanted[name]} is required"
    return ""


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
