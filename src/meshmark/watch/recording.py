"""Writes and reads recordings of frames: compressed lines while recording, Parquet when complete.

While recording, `NAME.part` contains the header and the frames as `meshmark watch --json` prints them, compressed by
gzip in parts that are flushed to disk every `BATCH_S`. The lines are parsed only at the end, so that recording causes
little load. If the recorder is killed, at most one second is lost, and the rest is readable. At the end, the recording
is converted to Parquet, whose metadata contain the header, and replaced atomically.

In Parquet, shares are decimals with three places, which compress to about one byte; other metrics are 32-bit floats.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import sys
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

from meshmark.errors import MeshmarkError, quoted
from meshmark.store.files import lock_file, open_regular, utf8
from meshmark.store.parquet import QueryError, batches, identifier, metadata_of, types_of, write_parquet
from meshmark.store.session import MAX_LINE_BYTES
from meshmark.values.arrow import array_of, data_type, listed
from meshmark.watch.frames import Frame, FrameError, Header, frame_of, header_of, parse_line
from meshmark.watch.marks import LINE, Mark, mark_of

if TYPE_CHECKING:
    from arro3.core import RecordBatch, RecordBatchReader

_PROCESSES: Final = "processes"
_TIMES: Final = re.compile(r'"t_s":\s*([0-9.eE+-]+),\s*"window_s":\s*([0-9.eE+-]+)')
_COST: Final = re.compile(r'"cost_s":\s*([0-9.eE+-]+)')
_KEY: Final = "meshmark.header"
_FIXED: Final = {
    "seq": "BIGINT",
    "t_s": "DOUBLE",
    "window_s": "FLOAT",
    "at": "DOUBLE",
    "late_s": "FLOAT",
    "cost_s": "FLOAT",
    "dropped": "BIGINT",
}
_LARGEST_SHARE: Final = 9.999  # of those with three places in four digits
_GROUP_ROWS: Final = 6000  # frames that are converted at once
_READ_ROWS: Final = 600
# Frames that the sampler and this process buffer are lost if the recorder is killed; together, they must be below 1 s.
HOLD_S: Final = 0.5
BATCH_S: Final = 0.25


class RecordingError(MeshmarkError):
    """A file that is not a recording, or is corrupt; the message names it."""


class UnfinishedError(RecordingError):
    """A recording cannot be converted, for example because the disk is full; the incomplete recording remains."""


def _rows(frames: Iterator[Frame], header: Header) -> RecordBatchReader:
    """Return frames as rows, which are made when they are read. NaN marks unknown values."""
    from arro3.core import Field, RecordBatchReader, Schema

    metrics = {m.name: "DOUBLE[]" for m in header.metrics}
    types = {**_FIXED, **metrics, _PROCESSES: "VARCHAR"}
    schema = Schema([Field(name, data_type(kind), nullable=True) for name, kind in types.items()])

    def groups() -> Iterator[RecordBatch]:
        while group := list(islice(frames, _GROUP_ROWS)):
            yield _batch(group, header).with_schema(schema)

    return RecordBatchReader.from_batches(schema, groups())


def _batch(frames: Sequence[Frame], header: Header) -> RecordBatch:
    import numpy as np
    from arro3.core import Array, RecordBatch, list_array

    columns = {name: array_of([getattr(f, name) for f in frames], kind) for name, kind in _FIXED.items()}
    for m in header.metrics:
        count = header.count(m.component_class)
        unknown: list[float | None] = [None] * count
        values = np.array([f.values.get(m.name, unknown) for f in frames], dtype=np.float64).reshape(len(frames), count)
        ends = np.arange(len(frames) + 1, dtype=np.int32) * count
        columns[m.name] = list_array(Array(ends), Array(values.ravel()), type=data_type("DOUBLE[]"))
    columns[_PROCESSES] = array_of([json.dumps(f.processes) if f.processes else None for f in frames], "VARCHAR")
    return RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _stored(header: Header) -> str:
    """Return SQL that converts the columns of `_rows` to the columns of a recording."""
    columns = [identifier(name) for name in _FIXED]
    for m in header.metrics:
        share = f"least(greatest(v, 0), {_LARGEST_SHARE})::DECIMAL(4, 3)"
        value = f"CASE WHEN isnan(v) THEN NULL ELSE {share if m.is_share else 'v::FLOAT'} END"
        name = identifier(m.name)
        columns.append(f"list_transform({name}, lambda v: {value}) AS {name}")
    return ", ".join([*columns, _PROCESSES])


class RecorderContext(ABC):
    """A recorder as a context manager: an error ends the recording as it is, anything else finishes it."""

    @abstractmethod
    def close(self) -> None:
        """End the recording and convert it to Parquet."""

    @abstractmethod
    def close_part(self) -> None:
        """End the recording after an error; the complete frames remain in the `.part` file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self.close()
        else:
            self.close_part()


class Recorder(RecorderContext):
    """Writes a recording; use it as a context manager, which converts to Parquet at the end.

    Args:
        out: path of the recording; the file is `out` with the suffix `.part` until the end.

    Raises:
        RecordingError: the file exists, or is not writable.
    """

    def __init__(self, out: Path, header: Header) -> None:
        if out.exists():
            raise RecordingError(
                f"{out}: the file exists", "choose another with --out, or --rotate, which continues in a new part"
            )
        self.out, self.part = out, out.with_name(out.name + ".part")
        self.header = header
        self.frames = 0
        self.written_bytes = 0
        self.sampler_s = 0.0  # CPU time of the sampler in these frames
        self.recorded_s = 0.0  # sum of their windows
        self._has_header = False  # becomes true once the header is on disk
        self._waiting: list[str] = []
        self._flushed_s = 0.0
        try:
            self._file = self.part.open("xb")
        except FileExistsError:
            reason = "another recorder is running" if is_being_written(self.part) else "its recorder was killed"
            raise RecordingError(
                f"{self.part}: the file exists: {reason}",
                f"meshmark replay {self.part} shows it; remove it, or choose another file with --out",
            ) from None
        except OSError as error:
            raise RecordingError(f"{out}: {error.strerror}") from error
        with contextlib.suppress(OSError):  # not all file systems have locks
            lock_file(self._file.fileno())
        self._waiting.append(json.dumps(header.to_json(), separators=(",", ":")))
        self.flush()

    def add(self, frame: Frame) -> None:
        """Add a frame; frames are written to disk every `BATCH_S`."""
        self.sampler_s += frame.cost_s
        self._keep(json.dumps(frame.to_json(), separators=(",", ":")), frame.t_s, frame.window_s)

    def add_line(self, line: str) -> None:
        """Add a frame as an unparsed line.

        Raises:
            FrameError: the line is not a frame.
        """
        times = _TIMES.search(line)
        if times is None:
            raise FrameError(f"frames: found '{line[:60]}'; a frame is required")
        cost = _COST.search(line)
        self.sampler_s += float(cost[1]) if cost else 0.0
        self._keep(line, float(times[1]), float(times[2]))

    def add_mark(self, mark: Mark) -> None:
        """Write a mark to disk, after the frames that were added before it."""
        self._waiting.append(json.dumps(mark.to_json(), separators=(",", ":")))
        self.flush()

    def _keep(self, line: str, t_s: float, window_s: float) -> None:
        if not self._waiting:
            self._flushed_s = t_s - window_s
        self._waiting.append(line)
        self.frames += 1
        self.recorded_s += window_s
        if t_s - self._flushed_s >= BATCH_S - 1e-6:
            self.flush()

    def flush(self) -> None:
        """Write buffered frames to disk."""
        if not self._waiting:
            return
        try:
            text = "".join(f"{line}\n" for line in self._waiting)
            self.written_bytes += self._file.write(gzip.compress(utf8(text), compresslevel=1, mtime=0))
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

    @property
    def paths(self) -> list[Path]:
        """Return the finished recording; nothing if it is not finished."""
        return [self.out] if self.out.exists() else []

    def discard(self) -> None:
        """End the recording and remove its file."""
        self._file.close()
        self.part.unlink(missing_ok=True)

    def close_part(self) -> None:
        """End the recording after an error; the complete frames remain in the `.part` file."""
        with contextlib.suppress(OSError):  # the error was already raised
            self._file.close()

    def close(self) -> None:
        """End the recording and convert it to Parquet."""
        self.end()
        finish(self.part, self.out)

    def end(self) -> None:
        """End the recording; `finish` converts it to Parquet."""
        self.flush()
        self._file.close()


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


def is_being_written(part: Path) -> bool:
    """Return whether a running recorder has locked an incomplete recording."""
    try:
        with open_regular(part) as file:
            return not lock_file(file.fileno())
    except (OSError, ValueError):
        return False


def finish(part: Path, out: Path) -> None:
    """Convert an incomplete recording to Parquet, and remove it.

    Raises:
        RecordingError: The file is corrupt.
        UnfinishedError: The result cannot be written.
    """
    compact(part, out)
    part.unlink()


def compact(part: Path, out: Path) -> None:
    """Convert a recording to Parquet, atomically."""
    recording = RecordingFile(part)
    header = recording.header
    damage: list[RecordingError] = []

    def frames() -> Iterator[Frame]:
        try:
            yield from recording.frames()
        except RecordingError as error:  # DuckDB would pass on its text only
            damage.append(error)

    try:
        write_parquet(
            out,
            _rows(frames(), header),
            columns=_stored(header),
            metadata={_KEY: json.dumps(header.to_json(), separators=(",", ":"))},
            options="COMPRESSION_LEVEL 9, PARQUET_VERSION V2",  # floats by byte, which takes a third less
            private=False,
        )
    except (MeshmarkError, QueryError) as error:
        raise UnfinishedError(str(error), f"the recording is intact in {part}") from error
    if damage:
        out.unlink()
        raise damage[0]


_SPOILED: Final = (OSError, EOFError, ValueError, TypeError, zlib.error)  # what reading a damaged file raises


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:80]


def _header(text: bytes | None, path: Path) -> Header:
    """Return the header of a recording.

    Raises:
        RecordingError: The header is missing or invalid.
    """
    if text is None:
        raise RecordingError(f"{path}: not a Meshmark recording: no header")
    try:
        return header_of(parse_line(text))
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path}: corrupt: {error}") from error
    except FrameError as error:
        raise RecordingError(f"{path}: {error}") from error


def _intact_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of an incomplete recording up to the first that was not written completely."""
    with open_regular(path) as file, gzip.GzipFile(fileobj=file) as lines:
        while True:
            try:
                line = lines.readline(MAX_LINE_BYTES)
            except _SPOILED:
                return
            if not line.endswith(b"\n"):
                return
            yield line


def _frame_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of an incomplete recording that are frames."""
    return (line for line in islice(_intact_lines(path), 1, None) if not line.startswith(LINE))


def _marks(lines: Iterable[bytes], path: Path) -> list[Mark]:
    """Return the marks among the lines of an incomplete recording.

    Raises:
        RecordingError: A mark is invalid.
    """
    try:
        return [mark_of(parse_line(line)) for line in lines if line.startswith(LINE)]
    except (FrameError, LookupError, TypeError, ValueError) as error:
        raise RecordingError(f"{path}: corrupt: {quoted(error)}") from error


class RecordingFile:
    """A complete or growing recording, readable from any frame.

    Raises:
        RecordingError: the file is not a recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parquet: IO[bytes] | None = None
        try:
            with open_regular(path) as file:
                magic = file.read(4)
            if magic == b"PAR1":
                self._parquet = open_regular(path)  # stays readable if it is replaced
        except (OSError, ValueError) as error:
            raise RecordingError(f"{quoted(path)}: {getattr(error, 'strerror', None) or error}") from error
        if self._parquet is None:
            if not magic.startswith(b"\x1f\x8b"):
                raise RecordingError(f"{path}: not a recording: neither Parquet nor compressed by gzip")
            lines = _intact_lines(path)
            header = _header(next(lines, None), path)
            self.header = replace(header, marks=(*header.marks, *_marks(lines, path)))
            return
        try:
            names = types_of(self._parquet)
            self.header = _header(metadata_of(self._parquet).get(_KEY), path)
        except QueryError as error:
            raise RecordingError(f"{path}: truncated or corrupt: {_first_line(error)}") from error
        for name in (*_FIXED, *(m.name for m in self.header.metrics), _PROCESSES):
            if name not in names:
                raise RecordingError(f"{path}: not a Meshmark recording: no column {name}")

    def count(self) -> int:
        """Return the number of frames."""
        return self.extent()[0]

    def extent(self) -> tuple[int, float]:
        """Return the number of frames and the end of the last frame, in s, without reading their values."""
        rows, end_s = 0, 0.0
        if self._parquet is None:
            for line in _frame_lines(self.path):
                times = _TIMES.search(line.decode(errors="replace"))
                rows, end_s = rows + 1, float(times[1]) if times else end_s
            return rows, end_s
        for batch in self._batches(self._parquet, "t_s"):
            rows += batch.num_rows
            if batch.num_rows:
                end_s = listed(batch["t_s"].slice(batch.num_rows - 1))[0]
        return rows, end_s

    def some(self, begin: int, count: int) -> list[Frame]:
        """Return up to `count` frames, from index `begin`."""
        return list(islice(self._from(begin), count))

    def _batches(self, parquet: IO[bytes], columns: str, first: int = 0) -> Iterator[RecordBatch]:
        """Yield batches of rows from index `first`, with only these columns, which are SQL."""
        try:
            yield from batches(parquet, columns, first)
        except QueryError as error:
            raise RecordingError(f"{self.path}: corrupt: {_first_line(error)}") from error

    def frames(self, begin_s: float = 0.0) -> Iterator[Frame]:
        """Yield frames whose window ends after `begin_s`."""
        return (f for f in self._from(0) if f.t_s > begin_s or begin_s <= 0)

    def _from(self, first: int) -> Iterator[Frame]:
        """Yield frames from index `first`, of any size; earlier ones are skipped without conversion."""
        first = min(max(first, 0), sys.maxsize - 1)
        try:
            for line in self._lines(first) if self._parquet is None else self._parsed(self._parquet, first):
                yield frame_of(line, self.header)
        except FrameError as error:
            raise RecordingError(f"{self.path}: corrupt: {error}") from error
        except _SPOILED as error:
            raise RecordingError(f"{self.path}: corrupt: {_first_line(error)}") from error

    def _lines(self, first: int) -> Iterator[Mapping[str, Any]]:
        return map(parse_line, islice(_frame_lines(self.path), first, None))

    def _parsed(self, parquet: IO[bytes], first: int) -> Iterator[Mapping[str, Any]]:
        metrics = [m.name for m in self.header.metrics]
        # Shares are decimals, which would become slow objects of Python.
        names = {m: identifier(m.name) for m in self.header.metrics}
        values = [f"{name}::DOUBLE[] AS {name}" if m.is_share else name for m, name in names.items()]
        for whole in self._batches(parquet, ", ".join([*map(identifier, _FIXED), *values, _PROCESSES]), first):
            for begin in range(0, whole.num_rows, _READ_ROWS):
                batch = whole.slice(begin, min(_READ_ROWS, whole.num_rows - begin))
                columns = {n: listed(batch[n]) for n in (*_FIXED, *metrics, _PROCESSES)}
                if any(None in columns[n] for n in _FIXED):
                    raise RecordingError(f"{self.path}: corrupt: a frame without number or time")
                for i in range(batch.num_rows):
                    processes = columns[_PROCESSES][i]
                    yield {
                        **{name: columns[name][i] for name in _FIXED},
                        "values": {n: columns[n][i] or [] for n in metrics},
                        "processes": parse_line(f'{{"of":{processes}}}')["of"] if processes else (),
                    }
