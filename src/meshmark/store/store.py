"""The store: a folder of immutable Parquet files, queried with an in-memory DuckDB.

There is no server. Files are written atomically, so that readers never see a partial file. Their names are unique, so
that writers do not conflict; only importers, which derive names from their input, wait for each other. Stores are
merged by copying files. Each row is a record: `samples` is a list of doubles, and `conditions` and `provenance` are
JSON text, so that new conditions do not change the schema.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from meshmark.errors import MeshmarkError, quoted
from meshmark.store.files import ASIDE, open_regular, read_json, write_file
from meshmark.store.record import Record, RecordError
from meshmark.store.run import Absence

if TYPE_CHECKING:
    import pyarrow as pa

_Of = TypeVar("_Of")
VERSION = 1
MARKER = "meshmark-store.json"
MEASURING = ".measuring"  # folder of incomplete measurements, which are not part of the store
COLUMNS = (
    "run",
    "step",
    "source",
    "machine",
    "instrument",
    "metric",
    "unit",
    "better",
    "value",
    "low",
    "high",
    "samples",
    "flags",
    "conditions",
    "provenance",
)
MACHINE_COLUMNS = (
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
)
ADDED = {"better"}  # columns added after the first release of version 1; files may lack them


class StoreError(MeshmarkError):
    """The folder is not a store of this version, or a file in it cannot be read."""


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [(name, pa.string()) for name in COLUMNS[:8]]
        + [("value", pa.float64()), ("low", pa.float64()), ("high", pa.float64())]
        + [("samples", pa.list_(pa.float64())), ("flags", pa.list_(pa.string()))]
        + [("conditions", pa.string()), ("provenance", pa.string())]
    )


def _absence_schema() -> pa.Schema:
    import pyarrow as pa

    names = ("run", "step", "machine", "kind", "instrument", "metric", "conditions", "reason", "enable")
    return pa.schema([(name, pa.string()) for name in names])


def _machine_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in MACHINE_COLUMNS])


_SCHEMAS: dict[str, Callable[[], pa.Schema]] = {
    "records": _schema,
    "absent": _absence_schema,
    "machine": _machine_schema,
}


def _row(record: Record, run: str, step: str) -> dict[str, Any]:
    low, high = record.interval or (None, None)
    return {
        "run": run,
        "step": step,
        "source": record.source,
        "machine": record.machine,
        "instrument": record.instrument,
        "metric": record.metric,
        "unit": record.unit,
        "better": record.better,
        "value": record.value,
        "low": low,
        "high": high,
        "samples": list(record.samples),
        "flags": sorted(record.flags),
        "conditions": json.dumps(dict(record.conditions)),
        "provenance": json.dumps(dict(record.provenance)),
    }


def _record(row: dict[str, Any]) -> Record:
    return Record.from_json(
        {
            **{k: row[k] for k in ("source", "machine", "instrument", "metric", "unit", "value")},
            "better": row.get("better"),
            "interval": None if row["low"] is None else [row["low"], row["high"]],
            "samples": list(row["samples"]),
            "flags": list(row["flags"]),
            "conditions": json.loads(row["conditions"]),
            "provenance": json.loads(row["provenance"]),
        }
    )


def _absence(row: dict[str, Any]) -> Absence:
    conditions = json.loads(row["conditions"])
    if not isinstance(conditions, dict):
        raise RecordError(f"conditions: found {conditions!r}, an object is required")
    if missing := [k for k in ("instrument", "reason", "enable", "kind") if row[k] is None]:
        raise RecordError(f"{missing[0]}: missing, a string is required")
    texts = {k: row[k] for k in ("instrument", "metric", "reason", "enable", "kind", "step")}
    return Absence(conditions=conditions, **texts)


def _file_name(name: str) -> str:
    """`name` escaped and shortened for use in a file name; unique, and free of path separators."""
    dashes = re.sub(r"^-|-(?=-)|-$", "%2D", quote(name, safe="").replace("~", "%7E"))
    whole = "%2E" + dashes[1:] if dashes.startswith(".") else dashes or "%"
    return (
        whole if len(whole) <= 110 else f"{whole[:90]}%{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"
    )


def file_stem(run: str, step: str) -> str:
    """The unique stem of the file names of a step."""
    return f"{_file_name(run)}--{_file_name(step)}"


def run_name(kind: str) -> str:
    """A unique name of a new run.

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
        self.broken: dict[Path, str] = {}  # files that queries skipped, and the reasons
        marker = folder / MARKER
        if marker.exists():
            try:
                version = read_json(marker).get("version")
            except (MeshmarkError, AttributeError) as why:
                raise StoreError(f"store {folder}: {MARKER} cannot be read: {why}") from why
            if version != VERSION:
                raise StoreError(
                    f"store {folder}: version: found {version!r}, this program reads {VERSION}",
                    hint="export it with the version that wrote it, and import the result here",
                )
        elif folder.exists() and not folder.is_dir():
            raise StoreError(f"store {folder}: found a file, a folder is required")
        # Another writer may have created the marker since the check above.
        elif folder.is_dir() and any(
            p.suffix != ".parquet" and p.name[0] != "." and p.name != MARKER for p in folder.iterdir()
        ):
            raise StoreError(f"store {folder}: found a folder that is not a store", hint="use an empty or new folder")

    def _write(self, name: str, table: pa.Table) -> Path:
        import pyarrow.parquet as pq

        marker = self.folder / MARKER
        if not marker.exists():
            write_file(marker, json.dumps({"version": VERSION}).encode() + b"\n")
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        path = self.folder / name
        write_file(path, sink.getvalue())
        return path

    def add(
        self,
        run: str,
        step: str,
        records: Sequence[Record],
        absences: Sequence[Absence] = (),
        machine: str = "",
    ) -> None:
        """Add the results of one step of a run. Idempotent: adding the same step again replaces it."""
        import pyarrow as pa

        stem = file_stem(run, step)
        if records:
            rows = [_row(r, run, step) for r in records]
            self._write(f"{stem}.records.parquet", pa.Table.from_pylist(rows, schema=_schema()))
        if absences:
            entries = [
                {
                    "run": run,
                    "step": step,
                    "machine": machine,
                    "kind": a.kind,
                    "instrument": a.instrument,
                    "metric": a.metric,
                    "conditions": json.dumps(dict(a.conditions)),
                    "reason": a.reason,
                    "enable": a.enable,
                }
                for a in absences
            ]
            self._write(f"{stem}.absent.parquet", pa.Table.from_pylist(entries, schema=_absence_schema()))

    def add_machine_row(self, row: dict[str, str], name: str) -> None:
        """Add a row of the table of machines (`store.machines`). `name` is unique among those of its machine."""
        import pyarrow as pa

        self._write(
            f"{file_stem(row['machine'], name)}.machine.parquet", pa.Table.from_pylist([row], schema=_machine_schema())
        )

    def machine_rows(self, **equal: str) -> list[dict[str, Any]]:
        """Rows of the table of machines whose columns match."""
        where, values = _where(equal)
        found = self._select("machine", f"SELECT * FROM {{files}} {where}", values)
        return [row for each in found if (row := self._parse_row(each, _machine)) is not None]

    def has_file(self, run: str, step: str) -> bool:
        """Whether a file of this step exists, readable or not."""
        return (self.folder / f"{file_stem(run, step)}.records.parquet").exists()

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Lock the store against other callers of this method, so that a check and the write after it are atomic.

        On a file system without locks, this has no effect.
        """
        handle: int | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as why:
            raise StoreError(f"store {self.folder}: cannot write: {why.strerror}") from why
        try:
            yield
        finally:
            os.close(handle)

    def files(self, kind: str = "records") -> list[Path]:
        """All files of a kind, including unreadable ones."""
        return sorted(self.folder.glob(f"*.{kind}.parquet")) if self.folder.is_dir() else []

    def _select(self, kind: str, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of a query whose `FROM` clause is `{files}`. Unreadable files are skipped and added to `broken`, so that
        one damaged file does not hide the others."""
        import duckdb

        wanted = self.files(kind)
        bad = {p: why for p in wanted if (why := _schema_problem(p, kind))}
        with duckdb.connect() as db:
            for attempt in range(2):
                readable = [str(p) for p in wanted if p not in bad]
                self.broken |= bad
                if not readable:
                    return []
                try:
                    files = "read_parquet(?, union_by_name = true)"  # older files lack columns
                    cursor = db.execute(query.format(files=files), [readable, *values])
                    names = [d[0] for d in cursor.description or ()]
                    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
                except RuntimeError as why:  # DuckDB raises it on SIGINT
                    if "interrupted" in str(why):
                        raise KeyboardInterrupt from why
                    raise
                except duckdb.Error as why:
                    # Reading the pages reveals which file is damaged.
                    bad |= {p: text for p in wanted if p not in bad and (text := _read_problem(p))}
                    if attempt or len(bad) == len(wanted) - len(readable):
                        raise StoreError(
                            f"store {self.folder}: {quoted(str(why).splitlines()[0])}", "meshmark store verify"
                        ) from why
        return []

    def rows(self, **equal: str) -> list[tuple[str, str, Record]]:
        """Run, step and record of the rows whose columns (run, step, machine, instrument, metric, source) match."""
        where, values = _where(equal)
        found = self._select("records", f"SELECT * FROM {{files}} {where}", values)
        parsed = ((row["run"], row["step"], self._parse_row(row, _record)) for row in found)
        return [(run, step, record) for run, step, record in parsed if record is not None]

    def _parse_row(self, row: dict[str, Any], parse: Callable[[dict[str, Any]], _Of]) -> _Of | None:
        try:
            return parse(row)
        except (RecordError, ValueError, TypeError) as why:  # corrupt values in a valid Parquet file
            self.broken[self.folder / str(row.get("run") or row["machine"])] = f"inconsistent row: {quoted(why)}"
            return None

    def query(self, **equal: str) -> list[Record]:
        """Records whose columns (run, step, machine, instrument, metric, source) match."""
        return [record for _, _, record in self.rows(**equal)]

    def absences(self, **equal: str) -> list[Absence]:
        where, values = _where(equal)
        found = self._select("absent", f"SELECT * FROM {{files}} {where}", values)
        return [absence for row in found if (absence := self._parse_row(row, _absence)) is not None]

    def runs(self) -> list[dict[str, Any]]:
        """One object per run, with keys run, machine, source, records, instruments and start."""
        # DuckDB's JSON functions would fail the whole query on one invalid string.
        return self._select(
            "records",
            """SELECT run, any_value(machine) AS machine, any_value(source) AS source, count(*) AS records,
                      list_sort(list(DISTINCT instrument)) AS instruments,
                      min(nullif(regexp_extract(provenance, '"start": *"([^"]*)"', 1), '')) AS start
               FROM {files} GROUP BY run ORDER BY start, run""",
        )

    def steps(self) -> dict[str, set[str]]:
        """Steps of each run."""
        found: dict[str, set[str]] = {}
        for row in self._select("records", "SELECT DISTINCT run, step FROM {files}"):
            found.setdefault(row["run"], set()).add(row["step"])
        return found

    def remove(self, run: str) -> int:
        """Remove the files of a run, and return their number. The rows about its machine stay.

        Raises:
            StoreError: A file cannot be removed.
        """
        stem = f"{_file_name(run)}--"
        with self.exclusively():
            found = [p for kind in ("records", "absent") for p in self.files(kind) if p.name.startswith(stem)]
            for path in found:
                try:
                    path.unlink(missing_ok=True)
                except OSError as why:
                    raise StoreError(f"store {self.folder}: cannot remove {path.name}: {why.strerror}") from why
        return len(found)

    def verify(self) -> Iterator[tuple[Path, str]]:
        """Check every file. Yields each path and its problem, "" if there is none."""
        import pyarrow.parquet as pq

        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if path.name in {MARKER, MEASURING} or ASIDE.fullmatch(path.name):
                continue  # temporary files are never read as data
            if path.suffix != ".parquet":
                yield path, "not a file of the store"
                continue
            kind = next((k for k in _SCHEMAS if path.name.endswith(f".{k}.parquet")), "records")
            if wrong := _schema_problem(path, kind) or _read_problem(path):
                yield path, wrong
                continue
            try:
                for row in pq.read_table(path).to_pylist():
                    _CHECKS[kind](row)
            except (RecordError, ValueError, TypeError) as why:
                yield path, f"inconsistent row: {quoted(why)}"
            else:
                yield path, ""


def _machine(row: dict[str, Any]) -> dict[str, Any]:
    if missing := [k for k in ("machine", "seen") if row[k] is None]:
        raise RecordError(f"{missing[0]}: missing, a string is required")
    return row


_CHECKS: dict[str, Callable[[dict[str, Any]], object]] = {"records": _record, "absent": _absence, "machine": _machine}


def _where(equal: dict[str, str]) -> tuple[str, list[str]]:
    allowed = {"run", "step", "machine", "instrument", "metric", "source", "kind"}
    if not set(equal) <= allowed:
        raise ValueError(f"unknown column in {sorted(equal)}")
    clause = " AND ".join(f"{name} = ?" for name in equal)
    return (f"WHERE {clause}" if clause else ""), list(equal.values())


def _schema_problem(path: Path, kind: str) -> str:
    """Why the footer, which contains the schema, is not that of a file of this kind; "" if it is."""
    import pyarrow.parquet as pq

    try:
        # Arrow itself would block on a FIFO.
        with open_regular(path) as file:
            found = pq.read_schema(file)
    except Exception as why:  # damaged files make the reader raise arbitrary exceptions
        return f"cannot be read: {quoted(str(why).splitlines()[0] if str(why) else type(why).__name__)}"
    for wanted in _SCHEMAS[kind]():
        if wanted.name not in found.names:
            if wanted.name in ADDED:
                continue
            return f"not a file of {kind}: missing column {wanted.name}"
        if (kept := found.field(wanted.name).type) != wanted.type:
            return f"not a file of {kind}: column {wanted.name}: found {kept}, {wanted.type} is required"
    return ""


def _read_problem(path: Path) -> str:
    """Why the file cannot be read completely; "" if it can."""
    import pyarrow.parquet as pq

    try:
        with open_regular(path) as file:
            pq.read_table(file).validate(full=True)
    except Exception as why:  # damaged files make the reader raise arbitrary exceptions
        return f"cannot be read: {quoted(str(why).splitlines()[0] if str(why) else type(why).__name__)}"
    return ""
