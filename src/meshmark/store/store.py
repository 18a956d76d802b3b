"""The store: a folder of immutable Parquet files, queried through DuckDB in memory.

No lock and no server. A file is written aside, fsynced and renamed, so that a reader sees all of it or nothing;
names are unique, so that writers never meet; folders merge by copying. Format: one row a record, `samples` as a
list of doubles, `conditions` and `provenance` as JSON text, so that a new condition is no change of the schema.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshmark.errors import MeshmarkError
from meshmark.store.files import write_file
from meshmark.store.record import Record, RecordError
from meshmark.store.run import Absence

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
MARKER = "meshmark-store.json"
MEASURING = ".measuring"  # a folder of what is not measured to its end, which is no data yet
COLUMNS = ("run", "step", "source", "machine", "instrument", "metric", "unit", "value", "low", "high",
           "samples", "flags", "conditions", "provenance")  # fmt: skip


class StoreError(MeshmarkError):
    """The folder is no store of this version, or a file in it cannot be read."""


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [(name, pa.string()) for name in COLUMNS[:7]]
        + [("value", pa.float64()), ("low", pa.float64()), ("high", pa.float64())]
        + [("samples", pa.list_(pa.float64())), ("flags", pa.list_(pa.string()))]
        + [("conditions", pa.string()), ("provenance", pa.string())]
    )


def _absence_schema() -> pa.Schema:
    import pyarrow as pa

    names = ("run", "step", "machine", "kind", "instrument", "metric", "conditions", "reason", "enable")
    return pa.schema([(name, pa.string()) for name in names])


def _row(record: Record, run: str, step: str) -> dict[str, Any]:
    low, high = record.interval or (None, None)
    return {
        "run": run, "step": step, "source": record.source, "machine": record.machine,
        "instrument": record.instrument, "metric": record.metric, "unit": record.unit,
        "value": record.value, "low": low, "high": high, "samples": list(record.samples),
        "flags": sorted(record.flags), "conditions": json.dumps(dict(record.conditions)),
        "provenance": json.dumps(dict(record.provenance)),
    }  # fmt: skip


def _record(row: dict[str, Any]) -> Record:
    return Record.from_json(
        {
            **{k: row[k] for k in ("source", "machine", "instrument", "metric", "unit", "value")},
            "interval": None if row["low"] is None else [row["low"], row["high"]],
            "samples": list(row["samples"]),
            "flags": list(row["flags"]),
            "conditions": json.loads(row["conditions"]),
            "provenance": json.loads(row["provenance"]),
        }
    )


def _safe(name: str) -> str:
    """A file name that stays in the folder, whatever a run or step is called."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".") or "_"


class Store:
    """A store folder; made when first written to.

    Raises:
        StoreError: the folder is a store of another version, or is not a store and not empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        marker = folder / MARKER
        if marker.exists():
            try:
                version = json.loads(marker.read_text(encoding="utf-8")).get("version")
            except (OSError, ValueError, AttributeError) as why:
                raise StoreError(f"store {folder}: {MARKER} cannot be read: {why}") from why
            if version != VERSION:
                raise StoreError(
                    f"store {folder}: version: found {version!r}, this program reads {VERSION}",
                    hint="export it with the program that wrote it, and import the result here",
                )
        elif folder.exists() and not folder.is_dir():
            raise StoreError(f"store {folder}: found a file, a folder is needed")
        # A marker that is found only now was made by another writer in between.
        elif folder.is_dir() and any(
            p.suffix != ".parquet" and p.name[0] != "." and p.name != MARKER for p in folder.iterdir()
        ):
            raise StoreError(f"store {folder}: found a folder that is no store", hint="name an empty or new folder")

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
        """Adds what one step of one run yielded; adding the same step again replaces it, so this is idempotent."""
        import pyarrow as pa

        stem = f"{_safe(run)}--{_safe(step)}"
        if records:
            rows = [_row(r, run, step) for r in records]
            self._write(f"{stem}.records.parquet", pa.Table.from_pylist(rows, schema=_schema()))
        if absences:
            lines = [
                {"run": run, "step": step, "machine": machine, "kind": a.kind, "instrument": a.instrument,
                 "metric": a.metric, "conditions": json.dumps(dict(a.conditions)), "reason": a.reason,
                 "enable": a.enable}
                for a in absences
            ]  # fmt: skip
            self._write(f"{stem}.absent.parquet", pa.Table.from_pylist(lines, schema=_absence_schema()))

    def files(self, kind: str = "records") -> list[Path]:
        return sorted(self.folder.glob(f"*.{kind}.parquet")) if self.folder.is_dir() else []

    def _rows(self, kind: str, where: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        import duckdb

        readable = [str(p) for p in self.files(kind) if _is_parquet(p)]
        if not readable:
            return []
        columns = ", ".join(COLUMNS) if kind == "records" else "*"
        with duckdb.connect() as db:
            query = f"SELECT {columns} FROM read_parquet(?) {where}"
            cursor = db.execute(query, [readable, *values])
            names = [d[0] for d in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def query(self, **equal: str) -> list[Record]:
        """Records whose columns (run, step, machine, instrument, metric, source) equal what is given."""
        return [_record(row) for row in self._rows("records", *_where(equal))]

    def absences(self, **equal: str) -> list[Absence]:
        return [
            Absence(
                instrument=row["instrument"], metric=row["metric"], conditions=json.loads(row["conditions"]),
                reason=row["reason"], enable=row["enable"], kind=row["kind"], step=row["step"],
            )
            for row in self._rows("absent", *_where(equal))
        ]  # fmt: skip

    def runs(self) -> list[dict[str, Any]]:
        """One object a run: run, machine, records, instruments, start."""
        import duckdb

        readable = [str(p) for p in self.files() if _is_parquet(p)]
        if not readable:
            return []
        with duckdb.connect() as db:
            cursor = db.execute(
                """SELECT run, any_value(machine) AS machine, any_value(source) AS source, count(*) AS records,
                          list_sort(list(DISTINCT instrument)) AS instruments,
                          min(json_extract_string(provenance, '$.start')) AS start
                   FROM read_parquet(?) GROUP BY run ORDER BY start, run""",
                [readable],
            )
            names = [d[0] for d in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def verify(self) -> Iterator[tuple[Path, str]]:
        """Every file with what is wrong with it; the text is empty where all is well."""
        import pyarrow.parquet as pq

        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if path.name in {MARKER, MEASURING} or re.fullmatch(r"\..+\.parquet\.\w+", path.name):
                continue  # the latter is what a killed writer left aside; no reader takes it for data
            if path.suffix != ".parquet":
                yield path, "not a file of the store"
                continue
            try:
                rows = pq.read_table(path).to_pylist()
                if path.name.endswith(".records.parquet"):
                    for row in rows:
                        _record(row)
            except RecordError as why:
                yield path, f"a record disagrees with itself: {why}"
            except Exception as why:  # whatever a damaged file makes the reader raise
                yield path, f"cannot be read: {str(why).splitlines()[0][:200]}"
            else:
                yield path, ""


def _where(equal: dict[str, str]) -> tuple[str, list[str]]:
    allowed = {"run", "step", "machine", "instrument", "metric", "source", "kind"}
    if not set(equal) <= allowed:
        raise ValueError(f"unknown column in {sorted(equal)}")
    clause = " AND ".join(f"{name} = ?" for name in equal)
    return (f"WHERE {clause}" if clause else ""), list(equal.values())


def _is_parquet(path: Path) -> bool:
    """A torn file must not make the others unreadable; `verify` names it."""
    import pyarrow.parquet as pq

    try:
        pq.read_metadata(path)
    except Exception:
        return False
    return True


def to_csv(records: Iterable[Record]) -> str:
    """Records as CSV, samples joined by spaces, one column a condition."""
    rows = list(records)
    keys = sorted({k for r in rows for k in r.conditions})
    out = io.StringIO()
    writer = csv.writer(out)
    fixed = ["source", "machine", "instrument", "metric", "unit", "value", "low", "high", "flags", "samples"]
    writer.writerow([*fixed, *keys])
    for r in rows:
        low, high = r.interval or ("", "")
        writer.writerow(
            [r.source, r.machine, r.instrument, r.metric, r.unit, repr(r.value), low, high, " ".join(sorted(r.flags)),
             " ".join(map(repr, r.samples)), *[r.conditions.get(k, "") for k in keys]]
        )  # fmt: skip
    return out.getvalue()
