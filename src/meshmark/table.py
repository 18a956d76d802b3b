"""Tables of the Python interface: results as typed columns, for Arrow, pandas, Polars and notebooks."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import UsageError, extra, near, quoted
from meshmark.values.arguments import checked
from meshmark.values.arrow import array_of, listed, row_iterator, selected

if TYPE_CHECKING:
    from arro3.core import Array, Field
    from arro3.core import Table as ArrowTable

    from meshmark.store.export import Row
    from meshmark.store.record import Record

# The columns that a reader needs for every number come first, then the conditions in which the rows differ.
FIRST: Final = ("value", "low", "high", "flags", "unit", "metric", "instrument", "machine")
LAST: Final = ("better", "source", "start", "run", "step", "samples")
PROVENANCE: Final = "provenance."  # prefix of the columns of the provenance
MIXED: Final = b"mixed"  # metadata of a column that holds numbers and texts, all as text
_UNITS: Final = {"_bytes": "B", "_s": "s", "_hz": "Hz", "_share": "1"}  # unit of a condition, by the end of its name


class Table(Collection[dict[str, Any]]):
    """Results as rows with typed columns. A row is a record, a pair of a comparison, or a value of a frame.

    Columns of records, in this order:

    * ``value``, ``low`` and ``high`` in the unit of the column ``unit``: the median, and the 95 % interval that views
      show and verdicts use (of the samples; of repetitions, the bounds of the runs). Without an interval, null.
    * ``flags``: the violated conditions, a list of texts; empty if there are none.
    * ``metric``, ``instrument``, ``machine``.
    * The conditions in which the rows differ, observed ones after those that were set, then ``better``, ``source``,
      ``start`` (ISO 8601), ``run``, ``step`` and ``samples``, then the conditions that all rows share, then the
      provenance as ``provenance.NAME``.

    A condition is an integer, a number, a Boolean or a text, as recorded; a column that holds numbers and texts
    (``memory_node``: 0 and ``local``) is text, with ``mixed`` in its metadata. The unit of a column is in the metadata
    of its Arrow field, as ``unit``. A condition with the name of another column is called ``condition.NAME``.

    Attributes:
        notes: What limits the results, a line each, as the commands print it on standard error.
    """

    def __init__(self, columns: ArrowTable | None = None, rows: Sequence[Row] = (), notes: Sequence[str] = ()) -> None:
        self._columns, self._rows, self.notes = columns, list(rows), tuple(notes)

    @staticmethod
    @checked
    def of_rows(
        rows: Sequence[Mapping[str, Any]], units: Mapping[str, str] | None = None, notes: Sequence[str] = ()
    ) -> Table:
        """Return a table of objects with the same keys, whose columns are typed by their values.

        Args:
            rows: The objects.
            units: Units of columns, by name.
            notes: What limits the results, a line each.
        """
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = [_column(name, [row.get(name) for row in rows], (units or {}).get(name, "")) for name in names]
        return Table(_table(columns), (), notes)

    @property
    def arrow(self) -> Any:
        """Return the columns, as a ``pyarrow.Table``.

        Raises:
            AbsentError: pyarrow is not installed.
        """
        with extra("arrow"):
            import pyarrow as pa
        return pa.table(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the columns for any library that reads Arrow's C stream interface, such as DuckDB and Polars."""
        return self._table.__arrow_c_stream__(requested_schema)

    @property
    def _table(self) -> ArrowTable:
        if self._columns is None:
            self._columns = _table(_columns_of_records(self._rows))
        return self._columns

    @property
    def records(self) -> list[Record]:
        """Return the records of the rows, in the form that Meshmark itself uses; none if the rows are not records.

        This form is not covered by the promise of stability.
        """
        return [record for _, _, record in self._rows]

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return self._table.column_names

    @checked
    def where(self, **equal: Any) -> Table:
        """Return the rows whose columns have these values.

        Args:
            equal: A value, or a list, tuple or set of allowed ones, by column.

        Raises:
            UsageError: There is no such column.
        """
        mask = [True] * len(self)
        for name, value in equal.items():
            allowed = value if isinstance(value, list | tuple | set | frozenset) else [value]
            mixed = MIXED in self._table.field(self._known(name)).metadata
            allowed = [str(v) for v in allowed if v is not None] if mixed else allowed
            mask = [k and v in allowed for k, v in zip(mask, self[name], strict=True)]
        if self._rows:
            return Table(None, [row for row, k in zip(self._rows, mask, strict=True) if k], self.notes)
        return Table(selected(self._table, [i for i, k in enumerate(mask) if k]), (), self.notes)

    @checked
    def pooled(self) -> Table:
        """Return the records with the repetitions of each run pooled, as ``meshmark measure`` prints them."""
        from meshmark.measure.repetitions import pool

        runs: dict[str, dict[str, list[Record]]] = {}
        for run, step, record in self._rows:
            runs.setdefault(run, {}).setdefault(step, []).append(record)
        return Table(None, [(run, "", r) for run, steps in runs.items() for r in pool([*steps.values()])], self.notes)

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the records to a file that ``meshmark store import`` and `meshmark.compare` read.

        Args:
            path: Ends with ``.jsonl``, or with ``.csv`` for one column per condition. An existing file is replaced.

        Raises:
            UsageError: It has another end, or the table has no records.
            MeshmarkError: It cannot be written.
        """
        from meshmark.store.export import to_csv, to_jsonl
        from meshmark.store.files import write_text

        as_records(self, "save")
        form = {".jsonl": to_jsonl, ".csv": to_csv}.get(Path(path).suffix)
        if form is None:
            raise UsageError(f"save: found '{quoted(path)}'; allowed: names that end with .jsonl or .csv")
        write_text(Path(path), form(self._rows))

    @checked
    def chart(self, name: str = "") -> Any:
        """Return a chart of these records as the report draws it, an ``altair`` chart.

        Args:
            name: That of a section of the report, such as ``latency``; "": the first that these records give.

        Raises:
            UsageError: There is no chart of this name.
            AbsentError: The records do not give it.
        """
        from meshmark.views.pages.notebook import altair_chart, chart_names, charts_of, chosen

        return altair_chart(chosen(charts_of(self.records), name, chart_names()))

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``, one column per column of the table.

        Raises:
            AbsentError: pandas or pyarrow is not installed.
        """
        with extra("notebook"):
            import pandas  # type: ignore[import-untyped]  # noqa: F401 (Arrow imports it)
            import pyarrow  # noqa: F401
        return self.arrow.to_pandas()

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``, one column per column of the table.

        Raises:
            AbsentError: Polars is not installed.
        """
        with extra("notebook"):
            import polars  # type: ignore[import-not-found]
        return polars.from_arrow(self)

    def __len__(self) -> int:
        return len(self._rows) or (0 if self._columns is None else self._columns.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row, its values by column."""
        return row_iterator(self._table)

    def __contains__(self, row: object) -> bool:
        return any(row == r for r in self)

    def __getitem__(self, name: str) -> list[Any]:
        """Return the values of a column; a missing one is None.

        Raises:
            UsageError: There is no such column.
        """
        return listed(self._table.column(self._known(name)))

    def __add__(self, other: Table) -> Table:
        """Return the records of both tables."""
        if not isinstance(other, Table) or any(len(t) and not t.records for t in (self, other)):
            raise UsageError("table: found tables without records; allowed: tables of records")
        return Table(None, [*self._rows, *other._rows], list(dict.fromkeys([*self.notes, *other.notes])))

    def __str__(self) -> str:
        """Return the table as the commands print it."""
        if not self._rows:
            return "\n".join([", ".join(self.columns), *(str(row) for row in self), *self.notes])
        from meshmark.views.terminal.tables import print_tables

        with contextlib.redirect_stdout(io.StringIO()) as out:
            print_tables(self.records)
        return "\n".join([out.getvalue().rstrip("\n"), *self.notes])

    def __repr__(self) -> str:
        kind = "record" if self._rows else "row"
        return f"<meshmark.Table: {len(self)} {kind}{'s' * (len(self) != 1)}, {len(self.columns)} columns>"

    @checked
    def html(self) -> str:
        """Return the first 40 rows as HTML with its own style, as notebooks show them."""
        from meshmark.views.pages.notebook import records_html, rows_html

        if self._rows:
            return records_html(self._rows, self.notes)
        units = {n: self._table.field(n).metadata.get(b"unit", b"").decode() for n in self.columns}
        return rows_html(self.columns, units, self, self.notes)

    _repr_html_ = html

    def _known(self, name: str) -> str:
        if name not in self._table.column_names:
            raise UsageError(
                f"table: found no column '{quoted(name)}'; allowed: {', '.join(self.columns)}", near(name, self.columns)
            )
        return name


def _table(columns: Sequence[tuple[Field, Array]]) -> ArrowTable:
    """Return the table with these columns."""
    from arro3.core import Schema
    from arro3.core import Table as ArrowTable

    return ArrowTable.from_arrays([a for _, a in columns], schema=Schema([f for f, _ in columns]))


def _columns_of_records(rows: Sequence[Row]) -> list[tuple[Field, Array]]:
    from meshmark.describe import observed_conditions

    bounds = [r.bounds or (None, None) for _, _, r in rows]
    fixed: dict[str, list[Any]] = {
        "value": [r.value for _, _, r in rows],
        "low": [low for low, _ in bounds],
        "high": [high for _, high in bounds],
        **{name: [getattr(r, name) for _, _, r in rows] for name in (*FIRST[4:], *LAST[:2])},
        "start": [r.provenance.get("start") for _, _, r in rows],
        "run": [run or None for run, _, _ in rows],
        "step": [step or None for _, step, _ in rows],
    }
    units = {*fixed["unit"]}
    unit = units.pop() if len(units) == 1 else ""
    columns_by_name = {name: _typed(name, "DOUBLE", fixed[name], {"unit": unit} if unit else {}) for name in FIRST[:3]}
    columns_by_name |= {name: _column(name, fixed[name]) for name in (*FIRST[4:], *LAST[:-1])}
    columns_by_name["flags"] = _typed("flags", "VARCHAR[]", [sorted(r.flags) for _, _, r in rows])
    columns_by_name["samples"] = _typed("samples", "DOUBLE[]", [r.samples for _, _, r in rows])
    # The conditions that vary.
    set_columns, observed_columns = list[tuple["Field", "Array"]](), list[tuple["Field", "Array"]]()
    shared_columns: list[tuple[Field, Array]] = []
    observed = observed_conditions({r.instrument for _, _, r in rows})
    for key, values in _by_key([r.conditions for _, _, r in rows]).items():
        column = _column(f"condition.{key}" if key in columns_by_name else key, values, _unit_of(key))
        varies = len({(type(v), v) for v in values}) > 1
        (shared_columns if not varies else observed_columns if key in observed else set_columns).append(column)
    provenance_values = _by_key([{k: v for k, v in r.provenance.items() if k != "start"} for _, _, r in rows])
    columns = (
        [columns_by_name[name] for name in FIRST]
        + set_columns
        + observed_columns
        + [columns_by_name[name] for name in LAST]
        + shared_columns
    )
    return columns + [_column(PROVENANCE + key, values) for key, values in provenance_values.items()]


def _by_key(objects: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each key, in order of appearance; None for an object without the key."""
    values_by_key: dict[str, list[Any]] = {}
    for i, item in enumerate(objects):
        for key, value in item.items():
            if key not in values_by_key:
                values_by_key[key] = [None] * len(objects)
            values_by_key[key][i] = value
    return values_by_key


def _unit_of(key: str) -> str:
    return next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")


def _column(name: str, values: Sequence[Any], unit: str = "") -> tuple[Field, Array]:
    """Return the field and the values of a column, with the type that all values have in common."""
    kinds = {type(v) for v in values if v is not None}
    metadata = {"unit": unit} if unit else {}
    fits = all(not isinstance(v, int) or -(2**63) <= v < 2**63 for v in values)
    if kinds and kinds <= {bool}:
        return _typed(name, "BOOLEAN", values, metadata)
    if kinds == {int} and fits:
        return _typed(name, "BIGINT", values, metadata)
    if kinds and kinds <= {int, float} and fits:
        return _typed(name, "DOUBLE", values, metadata)
    if kinds and kinds <= {list, tuple}:
        return _typed(name, "VARCHAR[]", values, metadata)
    if not kinds <= {str}:
        metadata["mixed"] = "numbers and texts"
    return _typed(name, "VARCHAR", [None if v is None else str(v) for v in values], metadata)


def _typed(
    name: str, kind: str, values: Sequence[Any], metadata: Mapping[str, str] | None = None
) -> tuple[Field, Array]:
    """Return the field and the values of a column of this type, as DuckDB names it."""
    from arro3.core import Field

    array = array_of(values, kind)
    return Field(name, array.type, nullable=True, metadata=dict(metadata or {})), array


def as_records(what: object, field: str) -> Table:
    """Return a table that contains at least one record.

    Raises:
        UsageError: `what` is not such a table.
    """
    if not isinstance(what, Table) or not what.records:
        description = "a table without records" if isinstance(what, Table) else f"a {type(what).__name__}"
        raise UsageError(
            f"{field}: found {description}, a table of records is required", "mm.records() or mm.measure(…)"
        )
    return what


def texts(value: object) -> Collection[str]:
    """Return a value, or each value of a list or tuple, as text."""
    values = value if isinstance(value, list | tuple) else [value]
    return [str(v) for v in values]
