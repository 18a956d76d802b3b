"""Recordings: frames in a file that only grows, and, once whole, in Parquet.

While it is made a recording is `NAME.part`: an Arrow stream with a batch a second, flushed to disk. A recorder that is
killed loses the second it was in; what it left is read like any other. At its end it becomes Parquet, written aside
and renamed. The header (components, metrics, what was absent) lies in the schema of both.

Shares are kept to 0.1 %: as thousandths in 16 bits while the file grows, then as decimals of three places, which any
reader of Parquet shows as numbers and which compress to about a byte. The other metrics are 32-bit floats.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import MeshmarkError
from meshmark.watch.frames import Frame, FrameError, Header, header_of

if TYPE_CHECKING:
    import pyarrow as pa

_PROCESSES: Final = "processes"
_KEY: Final = b"meshmark.header"
_FIXED: Final = ("seq", "t_s", "window_s", "at", "late_s", "cost_s", "dropped")
BATCH_S: Final = 1.0


class RecordingError(MeshmarkError):
    """A file that is no recording, or a spoiled one; the message names it."""


def _schema(header: Header, whole: bool) -> pa.Schema:
    """Of a recording, whole or growing."""
    import pyarrow as pa

    fixed = [("seq", pa.int64()), ("t_s", pa.float64()), ("window_s", pa.float32()), ("at", pa.float64()),
             ("late_s", pa.float32()), ("cost_s", pa.float32()), ("dropped", pa.int64())]  # fmt: skip
    fields = [pa.field(n, t) for n, t in fixed]
    for m in header.metrics:
        kind = pa.float32() if not m.is_share else pa.decimal128(4, 3) if whole else pa.uint16()
        about = {b"unit": m.unit.encode(), b"what": m.what.encode(), b"of": m.of.encode()}
        fields.append(pa.field(m.name, pa.list_(kind), metadata=about))
    fields.append(pa.field(_PROCESSES, pa.string(), metadata={b"what": b"the busiest processes, JSON"}))
    return pa.schema(fields, metadata={_KEY: json.dumps(header.to_json(), separators=(",", ":")).encode()})


def _batch(frames: Sequence[Frame], header: Header, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns: list[Any] = [[getattr(f, name) for f in frames] for name in _FIXED]
    for m in header.metrics:
        unknown: list[float | None] = [None] * header.count(m.component_class)
        rows = [f.values.get(m.name, unknown) for f in frames]
        if m.is_share:
            columns.append([
                [None if v is None else min(1000, max(0, round(v * 1000))) for v in row] for row in rows
            ])  # fmt: skip
        else:
            columns.append(rows)
    columns.append([json.dumps(f.processes) if f.processes else None for f in frames])
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


class Recorder:
    """Writes a recording; use it in a `with`, which makes the Parquet file at its end.

    Args:
        out: the file to be; `out` with `.part` at its end until then.

    Raises:
        RecordingError: the file is there already, or cannot be written.
    """

    def __init__(self, out: Path, header: Header) -> None:
        import pyarrow as pa

        if out.exists():
            raise RecordingError(f"{out}: is there already", "name another with --out")
        self.out, self.part = out, out.with_name(out.name + ".part")
        self.header = header
        self.frames = 0
        self._schema = _schema(header, whole=False)
        self._waiting: list[Frame] = []
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.part.open("xb")
        except FileExistsError:
            raise RecordingError(
                f"{self.part}: is there already: another recorder is at work, or one was killed",
                f"meshmark replay {self.part} shows it; remove it, or name another with --out",
            ) from None
        except OSError as why:
            raise RecordingError(f"{out}: {why.strerror}") from why
        options = pa.ipc.IpcWriteOptions(compression="lz4")  # a third of zstd's CPU time, which counts at 10 Hz
        self._writer = pa.ipc.new_stream(self._file, self._schema, options=options)
        self._sync()

    def add(self, frame: Frame) -> None:
        """Keeps a frame; it is on disk within a second."""
        self._waiting.append(frame)
        self.frames += 1
        if frame.t_s - self._waiting[0].t_s + frame.window_s >= BATCH_S - 1e-6:
            self.flush()

    def flush(self) -> None:
        """Writes what waits to disk."""
        if not self._waiting:
            return
        try:
            self._writer.write_batch(_batch(self._waiting, self.header, self._schema))
            self._sync()
        except OSError as why:
            raise RecordingError(
                f"{self.part}: {why.strerror or why}", "what was recorded before is whole: meshmark replay reads it"
            ) from why
        self._waiting.clear()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Ends the recording: Parquet takes the place of the growing file."""
        self.flush()
        self._writer.close()
        self._sync()
        self._file.close()
        compact(self.part, self.out)
        self.part.unlink()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self.close()
        else:
            self._file.close()  # what is whole stays in the .part file


def compact(part: Path, out: Path) -> None:
    """Makes a Parquet file of a recording, aside and then renamed."""
    import pyarrow.parquet as pq

    aside = out.with_name(out.name + ".tmp")
    growing, batches = _open_part(part)
    schema = _schema(_header_in(growing, part), whole=True)
    # High bytes beside high bytes: noisy numbers shrink by another third.
    split = {f"{f.name}.list.element": "BYTE_STREAM_SPLIT" for f in schema if f.name not in (*_FIXED, _PROCESSES)}
    try:
        with pq.ParquetWriter(aside, schema, compression="zstd", compression_level=9, column_encoding=split,
                              store_decimal_as_integer=True, use_dictionary=[_PROCESSES]) as writer:  # fmt: skip
            group: list[Any] = []
            rows = 0
            for batch in batches:
                group.append(batch)
                rows += batch.num_rows
                if rows >= 6000:
                    _write_group(writer, group, schema)
                    group, rows = [], 0
            _write_group(writer, group, schema)
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(out)
    except OSError as why:
        aside.unlink(missing_ok=True)
        raise RecordingError(f"{out}: {why.strerror or why}", f"the recording is whole in {part}") from why


def _write_group(writer: Any, group: Sequence[Any], schema: pa.Schema) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not group:
        return
    table = pa.Table.from_batches(group).combine_chunks()
    columns = []
    for field in schema:
        column = table.column(field.name).chunk(0)
        if pa.types.is_list(field.type) and pa.types.is_decimal(field.type.value_type):
            whole = column.values.cast(pa.int32()).cast(pa.decimal128(10, 0))
            shares = pc.multiply(whole, pa.scalar(Decimal("0.001"))).cast(pa.decimal128(4, 3))
            column = pa.ListArray.from_arrays(column.offsets, shares, type=field.type)
        columns.append(column)
    writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=1 << 20)


def _header_in(schema: pa.Schema, path: Path) -> Header:
    """The header in a recording's schema, whose columns are all there.

    Raises:
        RecordingError: there is none, or a column is missing.
    """
    said = (schema.metadata or {}).get(_KEY)
    if said is None:
        raise RecordingError(f"{path}: is no recording of meshmark: it has no header")
    try:
        header = header_of(json.loads(said))
    except (ValueError, FrameError) as why:
        raise RecordingError(f"{path}: {why}") from why
    for name in (*_FIXED, _PROCESSES, *(m.name for m in header.metrics)):
        if name not in schema.names:
            raise RecordingError(f"{path}: is no recording of meshmark: it lacks the column {name}")
    return header


def _open_part(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of a growing (or cut) recording, and its whole batches."""
    import pyarrow as pa

    try:
        reader = pa.ipc.open_stream(pa.OSFile(str(path)))
    except (OSError, ValueError, pa.ArrowException) as why:
        raise RecordingError(f"{path}: is no recording: {str(why).splitlines()[0][:80]}") from why

    def whole() -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = reader.read_next_batch()
                batch.validate()
            except (StopIteration, OSError, ValueError, pa.ArrowException):
                return  # its end, or where it was cut
            yield batch

    return reader.schema, whole()


class Recording:
    """A recording, whole or growing; a stream of frames that can begin anywhere.

    Raises:
        RecordingError: it is none; the message says why.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        try:
            with path.open("rb") as file:
                begin = file.read(4)
        except OSError as why:
            raise RecordingError(f"{path}: {why.strerror}") from why
        self._parquet: Any = None
        if begin == b"PAR1":
            try:
                self._parquet = pq.ParquetFile(path)  # not mapped: a file that shrinks would kill us
            except (OSError, ValueError, pa.ArrowException) as why:
                raise RecordingError(f"{path}: is cut or spoiled: {str(why).splitlines()[0][:80]}") from why
            schema = self._parquet.schema_arrow
        else:
            schema, _ = _open_part(path)
        self.header = _header_in(schema, path)

    def count(self) -> int:
        """How many frames there are."""
        if self._parquet is not None:
            return int(self._parquet.metadata.num_rows)
        return sum(b.num_rows for b in self._batches())

    def some(self, begin: int, count: int) -> list[Frame]:
        """So many frames from number `begin` on."""
        return list(islice(self._from(begin), count))

    def _batches(self) -> Iterator[Any]:
        import pyarrow as pa

        if self._parquet is not None:
            try:
                yield from self._parquet.iter_batches(batch_size=600)
            except (OSError, ValueError, pa.ArrowException) as why:
                raise RecordingError(f"{self.path}: is spoiled: {str(why).splitlines()[0][:80]}") from why
        else:
            yield from _open_part(self.path)[1]

    def frames(self, begin_s: float = 0.0) -> Iterator[Frame]:
        """Frames whose window ends after `begin_s`."""
        return (f for f in self._from(0) if f.t_s > begin_s or begin_s <= 0)

    def _from(self, first: int) -> Iterator[Frame]:
        """Frames from number `first` on; batches before it are not turned into Python's numbers."""
        metrics = [m.name for m in self.header.metrics]
        shares = {m.name for m in self.header.metrics if m.is_share}
        scale = 1 if self._parquet is not None else 1000
        for batch in self._batches():
            skipped = min(first, batch.num_rows)
            first -= skipped
            if skipped == batch.num_rows:
                continue
            batch = batch.slice(skipped)  # noqa: PLW2901
            columns = {n: batch.column(n).to_pylist() for n in (*_FIXED, *metrics, _PROCESSES)}
            for i in range(batch.num_rows):
                values = {
                    n: [None if v is None else float(v) / scale for v in columns[n][i] or ()] if n in shares
                    else columns[n][i] or []
                    for n in metrics
                }  # fmt: skip
                said = columns[_PROCESSES][i]
                yield Frame(columns["seq"][i], columns["t_s"][i], columns["window_s"][i], values, columns["at"][i],
                            columns["late_s"][i], columns["cost_s"][i], columns["dropped"][i],
                            json.loads(said) if said else [])  # fmt: skip
