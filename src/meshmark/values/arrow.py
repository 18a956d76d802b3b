"""Tables of typed columns in memory, in the format of Apache Arrow, and their conversion from and to Python objects.

The types of columns have the names that DuckDB gives them: `VARCHAR`, `DOUBLE`, `BIGINT[]` …
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from arro3.core import Array, ChunkedArray, DataType, Table

_FEW: Final = 1000  # values that are converted in less time than it takes to import numpy


def data_type(kind: str) -> DataType:
    """Return the Arrow type of a type that has this name in DuckDB: a simple type, or a list of one."""
    from arro3.core import DataType

    simple = {
        "VARCHAR": DataType.string,
        "BOOLEAN": DataType.bool,
        "INTEGER": DataType.int32,
        "BIGINT": DataType.int64,
        "FLOAT": DataType.float32,
        "DOUBLE": DataType.float64,
    }
    return DataType.list(data_type(kind[:-2])) if kind.endswith("[]") else simple[kind]()


def array_of(values: Sequence[Any], kind: str) -> Array:
    """Return values of this type as a column; None is a missing value.

    Raises:
        TypeError, ValueError, OverflowError: A value has another type.
    """
    from arro3.core import Array, DataType, list_array

    if not kind.endswith("[]"):
        return Array(values, type=data_type(kind))
    ends = [0]
    for value in values:
        ends.append(ends[-1] + (0 if value is None else len(value)))
    flat = array_of(list(chain.from_iterable(value for value in values if value is not None)), kind[:-2])
    missing = Array([value is None for value in values], type=DataType.bool())
    return list_array(Array(ends, type=DataType.int32()), flat, type=data_type(kind), mask=missing)


def table_of(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> Table:
    """Return rows as a table.

    Args:
        rows: The rows; a missing column of a row has no value.
        kinds: Types of the columns of the table, in their order.

    Raises:
        TypeError, ValueError, OverflowError: A value has another type than its column.
    """
    from arro3.core import Table

    return Table.from_pydict({name: array_of([row.get(name) for row in rows], kind) for name, kind in kinds.items()})


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table, each a dictionary of its columns."""
    return list(row_iterator(table))


def row_iterator(table: Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, each a dictionary of its columns."""
    names = table.column_names
    columns = [listed(table.column(i)) for i in range(table.num_columns)]
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def selected(table: Table, indices: Iterable[int]) -> Table:
    """Return the rows with these indices."""
    from arro3.core import Array, DataType, Table

    chosen = Array(list(indices), type=DataType.int64())
    batches = table.combine_chunks().to_batches()
    return Table.from_batches([batch.take(chosen) for batch in batches], schema=table.schema)


def listed(column: Array | ChunkedArray) -> list[Any]:
    """Return the values of a column; a missing one is None."""
    from arro3.core import DataType

    kind = column.type
    if len(column) > _FEW and not column.null_count and DataType.is_numeric(kind) and not DataType.is_decimal(kind):
        return list(column.to_numpy().tolist())  # several times as fast, but numpy has to be imported
    return list(column.to_pylist())


def listed_once(column: ChunkedArray) -> list[Any]:
    """Return the texts of a column, most of which occur many times, as the same objects; a missing one is None."""
    from arro3.core import dictionary_dictionary, dictionary_indices

    values: list[Any] = []
    for chunk in column.cast(_encoded_text()).chunks:
        texts = listed(dictionary_dictionary(chunk))
        values += [None if i is None else texts[i] for i in listed(dictionary_indices(chunk))]
    return values


def numbers(column: ChunkedArray) -> Any:
    """Return a column of numbers as a numpy array of 64-bit floats, shape (rows,); NaN for a missing number."""
    import numpy as np

    return np.asarray(listed(column), dtype=np.float64)


def encoded(table: Table) -> Table:
    """Return a table in which each text occurs once in each column, as its dictionary; it takes less memory."""
    return _cast(table, data_type("VARCHAR"), _encoded_text())


def decoded(table: Table) -> Table:
    """Return a table without dictionaries: the one that `encoded` was called with."""
    return _cast(table, _encoded_text(), data_type("VARCHAR"))


def _encoded_text() -> DataType:
    """Return the type of a column of texts that refers to a dictionary of the different ones."""
    from arro3.core import DataType

    return DataType.dictionary(DataType.int32(), DataType.string())


def _cast(table: Table, old: DataType, new: DataType) -> Table:
    """Return a table in which columns of a type have another type."""
    for i in range(table.num_columns):
        field = table.field(i)
        if field.type == old:
            table = table.set_column(i, field.with_type(new), table.column(i).cast(new))
    return table
