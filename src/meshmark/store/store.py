"""The store: a folder of immutable Parquet files, queried with an in-memory DuckDB.

There is no server. Files are written atomically, so that readers never see a partial file. Their names are unique, so
that writers do not conflict; only import, removal and compaction lock the store.
Stores are merged by copying files. `layout` describes the files, `columns` their rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from meshmark.errors import MeshmarkError, quoted
from meshmark.store.columns import (
    MACHINE_TYPES,
    MEASURED,
    absence_of,
    machine_problem,
    record_of,
    records_of,
    row_of,
    row_of_absence,
    rows_are_valid,
    schema_problem,
    tables_of,
)
from meshmark.store.files import ASIDE, lock_file, make_folder, read_json, unlink, write_file
from meshmark.store.layout import INDEX, MACHINES, StoreFile, date_of, file_name, result_files
from meshmark.store.parquet import (
    QueryError,
    join,
    read,
    read_or_problem,
    read_problem,
    remove_replaced,
    rewrite,
    write_parquet,
)
from meshmark.store.query import fetch_rows, fetch_tables, replaced_steps, rows_sql, runs_in
from meshmark.store.record import Record, RecordError, is_unicode
from meshmark.store.run import Absence
from meshmark.values.arrow import listed, row_iterator, rows_of, selected, table_of

if TYPE_CHECKING:
    from arro3.core import Table

_Item = TypeVar("_Item")
VERSION: Final = 2
MARKER: Final = "meshmark-store.json"
_IS_MEASURED: Final = f"status = '{MEASURED}'"
MEASURING: Final = ".measuring"  # folder of incomplete measurements, which are not part of the store
_TRIES: Final = 5  # attempts to read, if files vanish because a run is finished in the meantime


class StoreError(MeshmarkError):
    """The folder is not a store of this version, or a file in it cannot be read."""


def run_name(kind: str) -> str:
    """Return a unique name for a new run.

    The random suffix distinguishes jobs of an array, which may start in the same second and have the same process ID in
    different containers.
    """
    return f"{kind}-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(4)}"


class Store:
    """A store folder, which the first write creates.

    Raises:
        StoreError: The folder is a store of another version, or is neither a store nor empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broken: dict[Path, str] = {}  # reasons by skipped file; FOLDER/RUN for an inconsistent row
        marker = folder / MARKER
        if marker.exists():
            try:
                version = read_json(marker).get("version")
            except (MeshmarkError, AttributeError) as error:
                raise StoreError(f"store {folder}: {MARKER} cannot be read: {error}") from error
            if version != VERSION:
                raise StoreError(
                    f"store {folder}: version: found {version!r}, this program reads {VERSION}",
                    hint="export it with the version that wrote it, and import the result here",
                )
            self._marked = True
        elif folder.exists() and not folder.is_dir():
            raise StoreError(f"store {folder}: found a file, a folder is required")
        # Another writer may have created the marker since the check above.
        elif folder.is_dir() and any(_is_foreign(p) for p in folder.iterdir()):
            raise StoreError(f"store {folder}: found a folder that is not a store", hint="use an empty or new folder")
        else:
            self._marked = False

    # -------------------------------------------------------------- writing

    def write(self, path: Path, *tables: Table) -> None:
        """Write a file of the store, and mark the folder as a store of this version.

        Args:
            path: The file.
            tables: Its rows, see `parquet.write_parquet`.

        Raises:
            MeshmarkError: The file cannot be written.
        """
        if not self._marked:
            write_file(self.folder / MARKER, json.dumps({"version": VERSION}).encode() + b"\n", private=True)
            self._marked = True
        write_parquet(path, *tables)

    def add(
        self,
        run: str,
        step: str,
        records: Sequence[Record],
        absences: Sequence[Absence] = (),
        machine: str = "",
    ) -> None:
        """Add the results of one step of a run. Idempotent: adding the same step again replaces it.

        Args:
            run: Name of the run.
            step: Name of the step, not "".
            records: Records of the step.
            absences: Absences of the step.
            machine: Machine of the absences; "" for the machine of the records.
        """
        machine = machine or (records[0].machine if records else "")
        rows = (row_of(r, run, step) for r in records)
        if records or absences:
            absent_rows = (row_of_absence(a, run, step, machine) for a in absences)
            self.add_tables(run, step, tables_of(chain(rows, absent_rows)))

    def add_tables(self, run: str, step: str, tables: Iterable[Table]) -> None:
        """Add the results of one step of a run as `add` does.

        Args:
            run: Name of the run.
            step: Name of the step, not "".
            tables: Rows of the step, as `columns.tables_of` yields them, at least one; texts may be `encoded`.
        """
        for name, parts in _by_machine(tables).items():
            starts = [start for part in parts for start in {*listed(part["start"])} if start]
            folder = self.folder / f"date={date_of(run, min(starts, default=''))}" / f"machine={file_name(name)}"
            self.write(folder / f"{file_name(run)}--{file_name(step)}.parquet", *parts)

    def finish(self, run: str) -> None:
        """Join the steps of a run into one file; a single step is not read. A run can be read before, too.

        Raises:
            MeshmarkError: A file cannot be written or removed.
        """
        by_machine: dict[str, list[StoreFile]] = {}
        for file in result_files(self.folder, run):
            if file.run:
                by_machine.setdefault(file.path.parent.name, []).append(file)
        for files in by_machine.values():
            if len(files) == 1 and files[0].step and not schema_problem(files[0].path):
                _rename_step(files[0].path, run)
                continue
            readable = [file for file in files if not (schema_problem(file.path) or read_problem(file.path))]
            steps = [file for file in readable if file.step]
            if not steps or any(not file.step and file not in readable for file in files):
                continue  # nothing to do, or a damaged file that is left in place
            target = min(steps, key=lambda one: one.path).path.parent / f"{file_name(run)}.parquet"
            if len(readable) > 1:
                join([file.path for file in readable], target, (), replaced_steps(readable))
            else:
                _rename_step(steps[0].path, run)

    def add_machine_row(self, row: dict[str, str], name: str) -> None:
        """Add a row of the table of machines (`store.machines`). `name` is unique among the rows of its machine."""
        path = self.folder / MACHINES / f"{file_name(row['machine'])}--{file_name(name)}.machine.parquet"
        self.write(path, table_of([row], MACHINE_TYPES))

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Lock the store against other callers of this method, so that a check and the write after it are atomic.

        On a file system without locks, this has no effect.
        """
        handle: int | None = None
        try:
            make_folder(self.folder)
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with contextlib.suppress(OSError):
                lock_file(handle, wait=True)
        except OSError as error:
            raise StoreError(f"store {self.folder}: cannot write: {error.strerror}") from error
        try:
            yield
        finally:
            os.close(handle)

    def remove(self, run: str) -> int:
        """Remove a run, and return the number of files that contained it. The rows of the table of machines stay.

        Raises:
            MeshmarkError: A file cannot be removed.
        """
        with self.exclusively():
            return self.remove_locked(run)

    def remove_locked(self, run: str) -> int:
        """Remove a run as `remove` does, in a block of `exclusively`."""
        files = result_files(self.folder, run)
        run_files = [file.path for file in files if file.run]
        unlink(run_files)
        compacted = [file.path for file in files if not file.run and run in runs_in(file.path)]
        for path in compacted:
            table = read(path)
            if remaining := [i for i, other in enumerate(listed(table["run"])) if other != run]:
                rewrite(path, selected(table, remaining))
            else:
                remove_replaced(path.parent)
                unlink([path])
        return len(run_files) + len(compacted)

    # -------------------------------------------------------------- reading

    def files(self) -> list[Path]:
        """Return all files with results, including unreadable files."""
        return [file.path for file in result_files(self.folder)]

    def _select(
        self, query: str, equal: dict[str, str], status: str, fetch: Callable[[str, list[Any]], list[_Item]]
    ) -> list[_Item]:
        """Return what `fetch` returns of a query whose `FROM` clause is `{rows}`, and of its parameters.

        Unreadable files are skipped and added to `broken`, so that one damaged file does not hide the others.
        """
        where_clause, values = _where(equal)
        if not all(map(is_unicode, values)):
            return []  # a command-line argument that is not UTF-8 cannot equal a stored text
        broken: dict[Path, str] = {}
        for attempt in range(_TRIES):
            partition = f"machine={file_name(equal['machine'])}" if equal.get("machine") else ""
            files = result_files(self.folder, equal.get("run", ""), partition)
            paths = [file.path for file in files]
            broken = {p: reason for p in paths if (reason := broken.get(p, "") or schema_problem(p))}
            if any(not os.path.lexists(p) for p in broken):
                continue  # a run was finished or removed
            if not (readable := [file for file in files if file.path not in broken]):
                break
            rows, parameters = rows_sql(readable)
            try:
                clause = f"{where_clause} AND {status}" if where_clause else f"WHERE {status}"
                result = fetch(query.replace("{rows}", f"({rows}) {clause}", 1), [*parameters, *values])
            except QueryError as error:
                # Reading the pages reveals which file is damaged.
                newly_broken = {p: text for p in paths if p not in broken and (text := read_problem(p))}
                broken |= newly_broken
                if (not newly_broken and all(map(os.path.lexists, paths))) or attempt == _TRIES - 1:
                    raise StoreError(f"store {self.folder}: {error}", "meshmark store verify") from error
                continue
            self.broken |= broken
            return result
        self.broken |= broken
        return []

    def select(self, query: str, **equal: str) -> list[dict[str, Any]]:
        """Run a query on the results whose columns have the given values (see `rows`), and return its rows.

        The query contains `FROM {rows}`, before any text from outside; further conditions follow with `AND`.
        """
        return self._select(query, equal, _IS_MEASURED, fetch_rows)

    def rows(self, **equal: str) -> list[tuple[str, str, Record]]:
        """Return run, step and record of the rows in which the columns `equal` have these values.

        Args:
            equal: Value by column: run, step, machine, instrument, metric, source.
        """
        return self.converted(lambda row: row, **equal)

    def converted(self, convert: Callable[[tuple[str, str, Record]], _Item | None], **equal: str) -> list[_Item]:
        """Return what `convert` makes of the rows that `rows` returns, except None; the records are not kept."""

        def results(table: Table) -> Iterator[_Item]:
            return (result for row in self.rows_in(table) if (result := convert(row)) is not None)

        return self.selected("SELECT * FROM {rows}", results, **equal)

    def selected(self, query: str, convert: Callable[[Table], Iterable[_Item]], **equal: str) -> list[_Item]:
        """Return what `convert` makes of the rows of a query as in `select`, which it gets in batches."""
        return self._select(query, equal, _IS_MEASURED, lambda sql, values: fetch_tables(sql, values, convert))

    def rows_in(self, table: Table) -> list[tuple[str, str, Record]]:
        """Return run, step and record of rows with all columns; inconsistent rows are handled as in `parsed`."""
        if (records := records_of(table)) is None:
            return self.parsed(row_iterator(table))
        names = ([sys.intern(name) for name in listed(table[column])] for column in ("run", "step"))
        return list(zip(*names, records, strict=True))

    def parsed(self, rows: Iterable[dict[str, Any]]) -> list[tuple[str, str, Record]]:
        """Return run, step and record of rows from `select`; inconsistent rows are skipped and added to `broken`."""
        records = ((row, self._parse_row(row, record_of)) for row in rows)
        return [(row["run"], row["step"], record) for row, record in records if record is not None]

    def _parse_row(self, row: dict[str, Any], parse: Callable[[dict[str, Any]], _Item]) -> _Item | None:
        try:
            return parse(row)
        except (RecordError, ValueError, TypeError) as error:  # corrupt values in a valid Parquet file
            self.broken[self.folder / str(row.get("run") or row["machine"])] = f"inconsistent row: {quoted(error)}"
            return None

    def query(self, **equal: str) -> list[Record]:
        """Return the records whose columns (run, step, machine, instrument, metric, source) match."""
        return self.converted(lambda row: row[2], **equal)

    def absences(self, **equal: str) -> list[Absence]:
        """Return the absences whose columns have these values; damaged rows are left out."""
        is_absence = f"(status IS NULL OR status <> '{MEASURED}')"
        rows = self._select("SELECT * FROM {rows}", equal, is_absence, fetch_rows)
        return [absence for row in rows if (absence := self._parse_row(row, absence_of)) is not None]

    def runs(self) -> list[dict[str, Any]]:
        """Return one object per run, with keys run, machine, source, records, instruments and start."""
        return self.select(
            """SELECT run, any_value(machine) AS machine, any_value(source) AS source, count(*) AS records,
                      list_sort(list(DISTINCT instrument)) AS instruments, min(start) AS start
               FROM {rows} GROUP BY run ORDER BY start, run"""
        )

    def unreadable(self, run: str, step: str) -> bool:
        """Return whether a file that may have the results of a step is unreadable."""
        files = (f for f in result_files(self.folder, run) if f.run and f.step in {"", file_name(step)})
        return any(schema_problem(file.path) or read_problem(file.path) for file in files)

    def machine_rows(self, machine: str = "") -> list[dict[str, Any]]:
        """Return the rows of the table of machines for one machine; for all machines if `machine` is ""."""
        stem = f"{file_name(machine)}--" if machine else ""
        rows = []
        for path in self._machine_files():
            if not path.name.startswith(stem):
                continue
            if problem := machine_problem(path) or read_problem(path):
                self.broken[path] = problem
                continue
            rows += [row for raw in rows_of(read(path)) if (row := self._parse_row(raw, _machine)) is not None]
        return rows

    def _machine_files(self) -> list[Path]:
        return sorted((self.folder / MACHINES).glob("*.machine.parquet"))

    def verify(self) -> Iterator[tuple[Path, str]]:
        """Check every file. Yield each path and its problem, "" if the file is valid."""
        machine_files = {*self._machine_files()}
        for path in _every_file(self.folder):
            if path.suffix != ".parquet":
                yield path, "not a file of the store"
                continue
            of_machine = path in machine_files
            content = (machine_problem(path) if of_machine else schema_problem(path)) or read_or_problem(path)
            yield path, content if isinstance(content, str) else _row_problem(content, of_machine)


def _row_problem(table: Table, of_machine: bool) -> str:
    """Return what is wrong with the rows of a file; "" if they are valid."""
    try:
        if not of_machine and rows_are_valid(table):
            return ""
        for row in row_iterator(table):
            _check(row, of_machine)
    except (RecordError, ValueError, TypeError) as error:
        return f"inconsistent row: {quoted(error)}"
    return ""


def _check(row: dict[str, Any], of_machine: bool) -> None:
    """Raise if a row is not valid in a file of machines, or in a file of results.

    Raises:
        RecordError, ValueError, TypeError: The row is not valid.
    """
    if of_machine:
        _machine(row)
        return
    if missing := [k for k in ("run", "step") if row[k] is None]:
        raise RecordError(f"{missing[0]}: missing, a string is required")
    if row["status"] == MEASURED:
        record_of(row)
    else:
        absence_of(row)


def _machine(row: dict[str, Any]) -> dict[str, Any]:
    if missing := [k for k in ("machine", "seen") if row[k] is None]:
        raise RecordError(f"{missing[0]}: missing, a string is required")
    return row


def _where(equal: dict[str, str]) -> tuple[str, list[str]]:
    allowed = {"run", "step", "machine", "instrument", "metric", "source"}
    if not set(equal) <= allowed:
        raise ValueError(f"unknown column in {sorted(equal)}")
    clause = " AND ".join(f"{name} = ?" for name in equal)
    return (f"WHERE {clause}" if clause else ""), list(equal.values())


def _by_machine(tables: Iterable[Table]) -> dict[str, list[Table]]:
    """Return the rows of each machine."""
    tables_by_machine: dict[str, list[Table]] = {}
    for table in tables:
        rows: dict[str, list[int]] = {}
        for i, name in enumerate(listed(table["machine"])):
            rows.setdefault(name, []).append(i)
        for name, indices in rows.items():
            part = table if len(rows) == 1 else selected(table, indices)
            tables_by_machine.setdefault(name, []).append(part)
    return tables_by_machine


def _rename_step(path: Path, run: str) -> None:
    """Make the file of the only step of a run the file of the run."""
    try:
        path.rename(path.with_name(f"{file_name(run)}.parquet"))
    except OSError as error:
        raise StoreError(f"cannot finish {quoted(run)}: {path}: {error.strerror}") from error


def _is_foreign(path: Path) -> bool:
    """Return whether a file or folder does not belong to a store."""
    belongs_to_store = path.name.startswith(("date=", ".")) or path.name in {MARKER, MACHINES}
    return path.suffix != ".parquet" and not belongs_to_store


def _every_file(folder: Path) -> Iterator[Path]:
    """Yield the files of a store, except incomplete measurements and temporary files of writers."""
    for parent, folders, names in os.walk(folder):
        parent_path = Path(parent)
        folders[:] = sorted(name for name in folders if name != MEASURING)
        yield from (parent_path / f for f in folders if f.endswith(".parquet"))
        # Temporary files are never read as data.
        yield from (parent_path / n for n in sorted(names) if n not in {MARKER, INDEX} and not ASIDE.fullmatch(n))
