"""Writes Parquet files atomically."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshmark.store.files import written

if TYPE_CHECKING:
    import pyarrow as pa


def write_parquet(path: Path, table: pa.Table, **options: Any) -> None:
    """Write a table atomically, readable by the owner of its folder only; see `store.files.private_mode`.

    Args:
        path: The file.
        table: Its new content.
        options: Further arguments of `pyarrow.parquet.write_table`.

    Raises:
        MeshmarkError: The file cannot be written.
    """
    import pyarrow.parquet as pq

    with written(path, private=True) as out:
        pq.write_table(table, out, compression="zstd", **options)
