"""Writes and reads recordings of frames: an Arrow stream while recording, Parquet when complete.

While recording, `NAME.part` is an Arrow stream of unparsed lines, flushed to disk twice a second; lines are parsed only
at the end, so that recording causes little load. If the recorder is killed, at most one second is lost, and the rest is
readable. At the end, the recording is converted to Parquet and replaced atomically. The schema of both contains the
header (components, metrics, absences).

In Parquet, shares are decimals with three places, which compress to about one byte; other metrics are 32-bit floats.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import MeshmarkError, quoted
from meshmark.store.files import open_regular, written
from meshmark.watch.frames import Frame, FrameError, Header, frame_of, header_of, parse_line

if TYPE_CHECKING:
    import pyarrow as pa

_PROCESSES: Final = "processes"
_LINE: Final = "line"
_TIMES: Final = re.compile(r'"t_s":\s*([0-9.eE+-]+),\s*"window_s":\s*([0-9.eE+-]+)')
_KEY: Final = b"meshmark.header"
_FIXED: Final = ("seq", "t_s", "window_s", "at", "late_s", "cost_s", "dropped")
# Frames that the sampler and this process buffer are lost if the recorder is killed; together, they must be below 1 s.
HOLD_S: Final = 0.5
BATCH_S: Final = 0.25


class RecordingError(MeshmarkError):
    """A file that is not a recording, or is corrupt; the message names it."""


def _schema(header: Header) -> pa.Schema:
    """Return the schema of a complete recording."""
    import pyarrow as pa

    fixed_columns = [
        ("seq", pa.int64()),
        ("t_s", pa.float64()),
        ("window_s", pa.float32()),
        ("at", pa.float64()),
        ("late_s", pa.float32()),
        ("cost_s", pa.float32()),
        ("dropped", pa.int64()),
    ]
    fields = [pa.field(n, t) for n, t in fixed_columns]
    for m in header.metrics:
        kind = pa.decimal128(4, 3) if m.is_share else pa.float32()
        metadata = {b"unit": m.unit.encode(), b"what": m.what.encode(), b"of": m.of.encode()}
        fields.append(pa.field(m.name, pa.list_(kind), metadata=metadata))
    fields.append(pa.field(_PROCESSES, pa.string(), metadata={b"what": b"the busiest processes, JSON"}))
    return pa.schema(fields, metadata=_metadata(header))


def _metadata(header: Header) -> dict[bytes, bytes]:
    return {_KEY: json.dumps(header.to_json(), separators=(",", ":")).encode()}


def _table(frames: Sequence[Frame], header: Header, schema: pa.Schema) -> pa.Table:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: list[Any] = [[getattr(f, name) for f in frames] for name in _FIXED]
    for m in header.metrics:
        count = header.count(m.component_class)
        unknown: list[float | None] = [None] * count
        # NaN marks unknown values; recordings never contain NaN.
        rows = np.array([f.values.get(m.name, unknown) for f in frames], dtype=np.float64).reshape(len(frames), count)
        offsets = pa.array(np.arange(0, len(frames) * count + 1, count, dtype=np.int32)) if count else None
        flat: Any = rows.ravel()
        if m.is_share:
            thousandths = np.clip(np.rint(flat * 1000), 0, 9999)
            integers = pa.array(np.nan_to_num(thousandths).astype(np.int64), mask=np.isnan(flat)).cast(
                pa.decimal128(19, 0)
            )
            values = pc.multiply(integers, pa.scalar(Decimal("0.001"))).cast(pa.decimal128(4, 3))
        else:
            values = pa.array(flat.astype(np.float32), mask=np.isnan(flat))
        kind = schema.field(m.name).type
        columns.append(pa.ListArray.from_arrays(offsets, values, type=kind) if count else [[] for _ in frames])
    columns.append([json.dumps(f.processes) if f.processes else None for f in frames])
    arrays = [c if isinstance(c, pa.Array) else pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


class Recorder:
    """Writes a recording; use it as a context manager, which converts to Parquet at the end.

    Args:
        out: path of the recording; the file is `out` with the suffix `.part` until the end.

    Raises:
        RecordingError: the file exists, or is not writable.
    """

    def __init__(self, out: Path, header: Header) -> None:
        import pyarrow as pa

        if out.exists():
            raise RecordingError(f"{out}: the file exists", "choose another with --out")
        self.out, self.part = out, out.with_name(out.name + ".part")
        self.header = header
        self.frames = 0
        self._has_header = False  # becomes true once the header is on disk
        fields = [pa.field("t_s", pa.float64()), pa.field(_LINE, pa.string())]
        self._schema = pa.schema(fields, metadata=_metadata(header))
        self._waiting: list[tuple[float, str]] = []
        self._flushed_s = 0.0
        try:
            self._file = self.part.open("xb")
        except FileExistsError:
            raise RecordingError(
                f"{self.part}: the file exists: another recorder is running, or was killed",
                f"meshmark replay {self.part} shows it; remove it, or choose another file with --out",
            ) from None
        except OSError as error:
            raise RecordingError(f"{out}: {error.strerror}") from error
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1), use_threads=False)
        self._writer = pa.ipc.new_stream(self._file, self._schema, options=options)
        self._sync()

    def add(self, frame: Frame) -> None:
        """Add a frame; frames are written to disk every `BATCH_S`."""
        self._keep(json.dumps(frame.to_json(), separators=(",", ":")), frame.t_s, frame.window_s)

    def add_line(self, line: str) -> None:
        """Add a frame as an unparsed line.

        Raises:
            FrameError: the line is not a frame.
        """
        times = _TIMES.search(line)
        if times is None:
            raise FrameError(f"frames: found '{line[:60]}'; a frame is required")
        self._keep(line, float(times[1]), float(times[2]))

    def _keep(self, line: str, t_s: float, window_s: float) -> None:
        if not self._waiting:
            self._flushed_s = t_s - window_s
        self._waiting.append((t_s, line))
        self.frames += 1
        if t_s - self._flushed_s >= BATCH_S - 1e-6:
            self.flush()

    def flush(self) -> None:
        """Write buffered frames to disk."""
        if not self._waiting:
            return
        try:
            import pyarrow as pa

            times, lines = zip(*self._waiting, strict=True)
            arrays = [pa.array(times, pa.float64()), pa.array(lines, pa.string())]
            self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
            self._sync()
        except OSError as error:
            if not self._has_header:
                self.part.unlink(missing_ok=True)  # a file without a complete header is useless
                raise RecordingError(f"{self.out}: {error.strerror or error}") from error
            raise RecordingError(
                f"{self.part}: {error.strerror or error}", "earlier frames are intact: read them with meshmark replay"
            ) from error
        self._has_header = True
        self._waiting.clear()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """End the recording and convert it to Parquet."""
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
            with contextlib.suppress(OSError):  # the error was already raised
                self._file.close()  # complete frames remain in the .part file


def opened(path: Path) -> RecordingFile:
    """Open a recording, or frames as JSON Lines, as `watch --json` and `model measure --frames` write them.

    Raises:
        RecordingError: The file has neither format.
    """
    try:
        with open_regular(path) as file:
            if file.read(1) != b"{":
                return RecordingFile(path)
    except (OSError, ValueError):
        return RecordingFile(path)  # whose constructor reports why the file cannot be read
    with tempfile.TemporaryDirectory(prefix="meshmark-") as folder:
        converted = Path(folder) / "frames.parquet"
        try:
            with open_regular(path) as file:
                header = header_of(parse_line(file.readline()))
                with Recorder(converted, header) as recorder:
                    for line in file:
                        recorder.add(frame_of(parse_line(line), header))
        except (FrameError, UnicodeDecodeError) as error:
            raise RecordingError(
                f"{path}: {error}", "meshmark watch --json and meshmark model measure --frames write such files"
            ) from error
        recording = RecordingFile(converted)  # keeps the file open
    recording.path = path
    return recording


def compact(part: Path, out: Path) -> None:
    """Convert a recording to Parquet, atomically."""
    import pyarrow.parquet as pq

    recording = RecordingFile(part)
    schema = _schema(recording.header)
    # Byte stream split reduces the size of noisy values by a third.
    encodings = {f"{f.name}.list.element": "BYTE_STREAM_SPLIT" for f in schema if f.name not in (*_FIXED, _PROCESSES)}
    try:
        with (
            written(out) as file,
            pq.ParquetWriter(
                file,
                schema,
                compression="zstd",
                compression_level=9,
                column_encoding=encodings,
                store_decimal_as_integer=True,
                use_dictionary=[_PROCESSES],
            ) as writer,
        ):
            frames = recording.frames()
            while group := list(islice(frames, 6000)):
                writer.write_table(_table(group, recording.header, schema), row_group_size=1 << 20)
    except RecordingError:
        raise
    except MeshmarkError as error:
        raise RecordingError(str(error), f"the recording is intact in {part}") from error


def _spoiled() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading a damaged file raises; a length in it may be larger than the memory."""
    import pyarrow as pa

    return (OSError, ValueError, TypeError, MemoryError, pa.ArrowException)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:80]


def _header_in(schema: pa.Schema, path: Path, whole: bool) -> Header:
    """Read the header from a recording's schema and check its columns.

    Raises:
        RecordingError: the header or a column is missing.
    """
    text = (schema.metadata or {}).get(_KEY)
    if text is None:
        raise RecordingError(f"{path}: not a Meshmark recording: no header")
    try:
        header = header_of(parse_line(text))
        names = schema.names
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path}: corrupt: {error}") from error
    except FrameError as error:
        raise RecordingError(f"{path}: {error}") from error
    for name in (*_FIXED, _PROCESSES, *(m.name for m in header.metrics)) if whole else ("t_s", _LINE):
        if name not in names:
            raise RecordingError(f"{path}: not a Meshmark recording: no column {name}")
    return header


def _open_part(path: Path, columns: Sequence[str] | None = None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of an incomplete recording and its intact batches, with all columns or some."""
    import pyarrow as pa

    try:
        # Arrow crashes if its second thread cannot be started, and a batch is too small for threads.
        options = pa.ipc.IpcReadOptions(use_threads=False)
        reader = pa.ipc.open_stream(open_regular(path), options=options)
        if columns is not None:
            options.included_fields = [reader.schema.get_field_index(c) for c in columns]
            reader = pa.ipc.open_stream(open_regular(path), options=options)
    except _spoiled() as error:
        raise RecordingError(f"{path}: not a recording: {_first_line(error)}") from error

    def whole() -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = reader.read_next_batch()
                batch.validate(full=True)  # checks offsets against the size of the file
            except StopIteration:
                return
            except _spoiled():
                return  # a truncated batch
            yield batch

    return reader.schema, whole()


class RecordingFile:
    """A complete or growing recording, readable from any frame.

    Raises:
        RecordingError: the file is not a recording.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self.path = path
        try:
            with open_regular(path) as file:
                magic = file.read(4)
        except (OSError, ValueError) as error:
            raise RecordingError(f"{quoted(path)}: {getattr(error, 'strerror', None) or error}") from error
        self._parquet: Any = None
        if magic == b"PAR1":
            try:
                # The file is not memory mapped, because that raises SIGBUS if the file shrinks; opening it here allows
                # non-UTF-8 names.
                self._parquet = pq.ParquetFile(open_regular(path))
            except _spoiled() as error:
                raise RecordingError(f"{path}: truncated or corrupt: {_first_line(error)}") from error
            schema = self._parquet.schema_arrow
        else:
            schema, _ = _open_part(path)
        self.header = _header_in(schema, path, whole=self._parquet is not None)

    def count(self) -> int:
        """Return the number of frames."""
        return self.extent()[0]

    def extent(self) -> tuple[int, float]:
        """Return the number of frames and the end of the last frame, in s, without reading their values."""
        rows, end_s = 0, 0.0
        try:
            for batch in self._batches(["t_s"]):
                rows += batch.num_rows
                end_s = float(batch.column("t_s")[-1].as_py()) if batch.num_rows else end_s
        except _spoiled() as error:
            raise RecordingError(f"{self.path}: corrupt: {_first_line(error)}") from error
        return rows, end_s

    def some(self, begin: int, count: int) -> list[Frame]:
        """Return up to `count` frames, from index `begin`."""
        return list(islice(self._from(begin), count))

    def _batches(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield batches with only these columns; None: all columns."""
        if self._parquet is not None:
            try:
                yield from self._parquet.iter_batches(batch_size=600, columns=columns)
            except _spoiled() as error:
                raise RecordingError(f"{self.path}: corrupt: {_first_line(error)}") from error
        else:
            yield from _open_part(self.path, columns)[1]

    def frames(self, begin_s: float = 0.0) -> Iterator[Frame]:
        """Yield frames whose window ends after `begin_s`."""
        return (f for f in self._from(0) if f.t_s > begin_s or begin_s <= 0)

    def _from(self, first: int) -> Iterator[Frame]:
        """Yield frames from index `first`; earlier batches are skipped without conversion."""
        try:
            for line in self._lines(first):
                yield frame_of(line, self.header)
        except FrameError as error:
            raise RecordingError(f"{self.path}: corrupt: {error}") from error
        except _spoiled() as error:
            raise RecordingError(f"{self.path}: corrupt: {_first_line(error)}") from error

    def _lines(self, first: int) -> Iterator[Mapping[str, Any]]:
        metrics = [m.name for m in self.header.metrics]
        shares = {m.name for m in self.header.metrics if m.is_share}
        for batch in self._batches():
            skip_count = min(first, batch.num_rows)
            first -= skip_count
            if skip_count == batch.num_rows:
                continue
            batch = batch.slice(skip_count)  # noqa: PLW2901
            if self._parquet is None:
                yield from map(parse_line, batch.column(_LINE).to_pylist())
                continue
            columns = {n: batch.column(n).to_pylist() for n in (*_FIXED, *metrics, _PROCESSES)}
            if any(None in columns[n] for n in _FIXED):
                raise RecordingError(f"{self.path}: corrupt: a frame without number or time")
            for i in range(batch.num_rows):
                values = {
                    n: [None if v is None else float(v) for v in columns[n][i] or ()]
                    if n in shares
                    else columns[n][i] or []
                    for n in metrics
                }
                processes = columns[_PROCESSES][i]
                yield {
                    **{name: columns[name][i] for name in _FIXED},
                    "values": values,
                    "processes": parse_line(f'{{"of":{processes}}}')["of"] if processes else (),
                }
