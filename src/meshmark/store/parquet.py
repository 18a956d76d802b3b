"""Writes Parquet files atomically."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshmark.store.files import written

if TYPE_CHECKING:
    import pyarrow as pa


def write_parquet(path: Path, table: pa.Table, **options: Any) -> None:
    """Write a table as a whole, or not at all, for the owner of its folder only; see `store.files.private_mode`.

    Args:
        options: Of `pyarrow.parquet.write_table`.

    Raises:
        MeshmarkError: The file cannot be written.
    """
    import pyarrow.parquet as pq

    with written(path, private=True) as out:
        pq.write_table(table, out, compression="zstd", **options)
