"""Holds the records of a file in little memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from meshmark.store.columns import record_of, records_of, row_of, tables_of
from meshmark.store.record import Record
from meshmark.values.arrow import array_of, decoded, encoded, row_iterator

if TYPE_CHECKING:
    from arro3.core import Table

_PART_RECORDS: Final = 10_000


class PackedRecords(Collection[Record]):
    """Records in their order, most of them as tables, which take a tenth of the memory of the objects."""

    __slots__ = ("_recent", "_tables")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._tables: list[Table] = []
        self._recent: list[Record] = []
        for record in records:
            self.append(record)

    def append(self, record: Record) -> None:
        """Add a record at the end."""
        self._recent.append(record)
        if len(self._recent) == _PART_RECORDS:
            self._tables += map(encoded, tables_of(row_of(r, "", "") for r in self._recent))
            self._recent = []

    def __len__(self) -> int:
        return _PART_RECORDS * len(self._tables) + len(self._recent)

    def __iter__(self) -> Iterator[Record]:
        for table in self._tables:
            yield from _records(table)
        yield from self._recent

    def __contains__(self, record: object) -> bool:
        return any(record == r for r in self)

    @property
    def first(self) -> Record:
        """Return the first record, of which there must be one."""
        return _records(self._tables[0].slice(0, 1))[0] if self._tables else self._recent[0]

    def tables(self, run: str, step: str) -> Iterator[Table]:
        """Yield the rows of the records as results of a step of a run, in batches; texts may be `encoded`."""
        for table in self._tables:
            yield _with_text(_with_text(table, "run", run), "step", step)
        if self._recent:
            yield from tables_of(row_of(r, run, step) for r in self._recent)


def _records(table: Table) -> list[Record]:
    """Return the records of rows whose texts are encoded."""
    rows = decoded(table)
    records = records_of(rows)
    return [record_of(row) for row in row_iterator(rows)] if records is None else records


def _with_text(table: Table, name: str, text: str) -> Table:
    """Return a table with this text in each row of a column."""
    texts = array_of([text] * table.num_rows, "VARCHAR")
    i = table.column_names.index(name)
    return table.set_column(i, table.schema.field(i).with_type(texts.type), texts)
