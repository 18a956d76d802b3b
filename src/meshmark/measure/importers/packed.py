"""Holds the records of a file in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, overload

from meshmark.store.columns import record_of, records_of, row_of, table_of
from meshmark.store.parquet import decoded, encoded
from meshmark.store.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

_PART_RECORDS: Final = 10_000


class PackedRecords(Sequence[Record]):
    """A sequence of records, most of them as tables, which take a tenth of the memory of the objects."""

    __slots__ = ("_recent", "_tables")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._tables: list[pa.Table] = []
        self._recent: list[Record] = []
        for record in records:
            self.append(record)

    def append(self, record: Record) -> None:
        """Add a record at the end."""
        self._recent.append(record)
        if len(self._recent) == _PART_RECORDS:
            self._tables.append(encoded(table_of(row_of(r, "", "") for r in self._recent)))
            self._recent = []

    def __len__(self) -> int:
        return _PART_RECORDS * len(self._tables) + len(self._recent)

    def __iter__(self) -> Iterator[Record]:
        for table in self._tables:
            rows = decoded(table)
            records = records_of(rows)
            yield from [record_of(row) for row in rows.to_pylist()] if records is None else records
        yield from self._recent

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return [*self][index]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        return next(islice(self, position, None))

    def tables(self, run: str, step: str) -> Iterator[pa.Table]:
        """Yield the rows of the records as results of a step of a run, in batches; texts may be `encoded`."""
        for table in self._tables:
            yield _with_text(_with_text(table, "run", run), "step", step)
        if self._recent:
            yield table_of(row_of(r, run, step) for r in self._recent)


def _with_text(table: pa.Table, name: str, text: str) -> pa.Table:
    """Return a table with this text in each row of a column."""
    import pyarrow as pa

    rows = pa.DictionaryArray.from_arrays(pa.repeat(0, table.num_rows), [text])
    return table.set_column(table.column_names.index(name), name, rows)
