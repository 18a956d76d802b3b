"""Checks the files of a store before their rows are read.

Damaged files make the reader of Parquet raise arbitrary exceptions, so these functions return problems as texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
_COLUMNS: Final = (*ALWAYS, *OF_RECORDS, "low", "high", "status")  # which every file with results has


def machine_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in MACHINE_COLUMNS])


def read(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        return pq.ParquetFile(file).read(columns=None if columns is None else list(columns))


def schema_problem(path: Path) -> str:
    """Return why the footer, which contains the schema, is not that of a file with results; "" if it is."""
    return _other_columns(path, {f.name: f.type for f in schema()}, _COLUMNS)


def machine_problem(path: Path) -> str:
    return _other_columns(path, {f.name: f.type for f in machine_schema()}, MACHINE_COLUMNS)


def _other_columns(path: Path, wanted: dict[str, Any], required: Iterable[str]) -> str:
    import pyarrow.parquet as pq

    try:
        # Arrow itself would block on a FIFO.
        with open_regular(path) as file:
            found = pq.read_schema(file)
    except Exception as why:  # damaged files make the reader raise arbitrary exceptions
        return f"cannot be read: {quoted(str(why).splitlines()[0] if str(why) else type(why).__name__)}"
    if missing := [name for name in required if name not in found.names]:
        return f"not a file of a store: missing column {missing[0]}"
    for name in found.names:
        if name in wanted and (has := found.field(name).type) != wanted[name]:
            return f"not a file of a store: column {name}: found {has}, {wanted[name]} is required"
    return ""


def read_problem(path: Path) -> str:
    """Why the file cannot be read completely; "" if it can."""
    found = read_or_problem(path)
    return found if isinstance(found, str) else ""


def read_or_problem(path: Path) -> pa.Table | str:
    """The rows of a file, or why it cannot be read completely."""
    try:
        table = read(path)
        table.validate(full=True)
    except Exception as why:  # damaged files make the reader raise arbitrary exceptions
        return f"cannot be read: {quoted(str(why).splitlines()[0] if str(why) else type(why).__name__)}"
    return table
