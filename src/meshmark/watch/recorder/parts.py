"""Writes a recording as a series of parts, of which the oldest may be removed, for recorders that run for weeks.

The parts of `night.parquet` are `night-000001.parquet`, `night-000002.parquet` and so on. Each is a recording. The part
that is being written has the suffix `.part`. A part that has ended is converted to Parquet by a thread, while
the next part is written. A recorder that is started again continues the series: it converts what a killed recorder
left, begins with the next number, and marks the gap.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError, quoted
from meshmark.values.grammar import seconds, size
from meshmark.values.numbers import whole
from meshmark.watch.frames import Header
from meshmark.watch.marks import END, GAP, START, Mark
from meshmark.watch.recording import (
    Recorder,
    RecorderContext,
    RecordingError,
    RecordingFile,
    UnfinishedError,
    finish,
    is_being_written,
)

_DIGITS: Final = 6
_SUFFIX: Final = ".part"
_LEAST_BYTES: Final = 64 << 10
_LEAST_S: Final = 1.0
_TOLERANCE_S: Final = 1e-3  # a frame is rarely exactly in time


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """When a part ends, and how many are retained; None is no limit.

    Attributes:
        every_s: Length of a part, in s.
        every_bytes: Size of a part while it is written; the finished part is smaller.
        keep_parts: Number of finished parts that are retained.
        keep_bytes: Size of all finished parts that are retained.
    """

    every_s: float | None = None
    every_bytes: int | None = None
    keep_parts: int | None = None
    keep_bytes: int | None = None


def rotation_plan(rotate: str, keep: str) -> RotationPlan:
    """Return the plan that the options `--rotate` and `--keep` describe.

    Raises:
        UsageError: An option is neither a time (a number) nor a size with its unit.
    """
    if not rotate:
        raise UsageError("--keep: found without --rotate, allowed with it", "meshmark record --rotate 1h --keep 24")
    every_s, every_bytes, keep_parts, keep_bytes = None, None, None, None
    if _is_size(rotate):
        every_bytes = size("--rotate", rotate)
        if every_bytes < _LEAST_BYTES:
            raise UsageError(f"--rotate: found '{quoted(rotate)}'; allowed: sizes from 64KiB")
    elif rotate[-1:].isdigit():
        raise UsageError(f"--rotate: found '{quoted(rotate)}'; allowed: a time or a size with its unit: 1h, 500MiB")
    else:
        every_s = seconds("--rotate", rotate, _LEAST_S)
    if _is_size(keep):
        keep_bytes = size("--keep", keep)
    elif keep:
        keep_parts = whole(keep)
        if keep_parts is None or keep_parts < 1:
            raise UsageError(f"--keep: found '{quoted(keep)}'; allowed: a number from 1, or a size such as 5GiB")
    return RotationPlan(every_s, every_bytes, keep_parts, keep_bytes)


def _is_size(text: str) -> bool:
    return text[-1:] in {"b", "B"}


def part_path(out: Path, number: int) -> Path:
    """Return the path of a finished part.

    >>> part_path(Path("night.parquet"), 3).name
    'night-000003.parquet'
    """
    return out.with_name(f"{out.stem}-{number:0{_DIGITS}}{out.suffix}")


def parts_of(out: Path, suffix: str = "") -> dict[int, Path]:
    """Return the parts of a recording by number, ascending.

    Args:
        out: The recording.
        suffix: "" for finished parts, `.part` for those that are written or were left by a killed recorder.
    """
    name = re.compile(rf"{re.escape(out.stem)}-(\d{{{_DIGITS},}}){re.escape(out.suffix + suffix)}")
    path_by_number = {int(match[1]): path for path in out.parent.iterdir() if (match := name.fullmatch(path.name))}
    return dict(sorted(path_by_number.items()))


class RotatingRecorder(RecorderContext):
    """Writes a series of parts. Use it as a context manager, which finishes all parts at the end.

    Args:
        out: The path from which the names of the parts are made.
        header: Header of all parts.
        plan: When parts end.
        warn: Called with the reason if a part that ended cannot be converted.

    Raises:
        RecordingError: Another recorder writes this series, or the first part cannot be written.
    """

    def __init__(self, out: Path, header: Header, plan: RotationPlan, warn: Callable[[str], None]) -> None:
        self.out, self.header, self.plan = out, header, plan
        self.frames, self.sampler_s, self.recorded_s = 0, 0.0, 0.0
        self.numbers: list[int] = []  # of the parts that this recorder has written
        self._warn = warn
        self._command: Mark | None = None  # start of the command that is running
        self._failure: UnfinishedError | None = None  # why parts are not converted
        try:
            leftovers, finished = parts_of(out, _SUFFIX), parts_of(out)
        except OSError as error:
            raise RecordingError(f"{out.parent}: {error.strerror}") from error
        for path in leftovers.values():
            if is_being_written(path):
                raise RecordingError(f"{path}: another recorder is running", "choose another file with --out")
        self._next = 1 + max([0, *leftovers, *finished])
        gap = self._gap(leftovers, finished)
        self._part = self._opened()
        if gap is not None:
            self._part.add_mark(gap)
        self._ended: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._finisher = threading.Thread(target=self._finish_parts, name="finisher", daemon=True)
        for number in leftovers:
            self._ended.put(number)
        self._finisher.start()

    def _gap(self, leftovers: dict[int, Path], finished: dict[int, Path]) -> Mark | None:
        """Return the mark for the time since the last frame of the series; None if the series is new."""
        now = time.time()
        for path in [*reversed(leftovers.values()), *reversed(finished.values())]:
            with contextlib.suppress(RecordingError):
                recording = RecordingFile(path)
                last = recording.some(max(0, recording.count() - 1), 1)
                if last and 0 < last[0].at <= now:
                    return Mark(GAP, now, {"from": last[0].at})
        return Mark(GAP, now) if leftovers or finished else None

    def _opened(self) -> Recorder:
        part = Recorder(part_path(self.out, self._next), self.header)
        self.numbers.append(self._next)
        self._next += 1
        return part

    @property
    def paths(self) -> list[Path]:
        """Return the finished parts of this recorder that were not removed."""
        finished = parts_of(self.out)
        return [finished[n] for n in self.numbers if n in finished]

    def add_line(self, line: str) -> None:
        """Add a frame as an unparsed line, and end the part if it is long or large enough.

        Raises:
            FrameError: The line is not a frame.
            RecordingError: The part cannot be written.
        """
        before = self._part.recorded_s, self._part.sampler_s
        self._part.add_line(line)
        self.frames += 1
        self.recorded_s += self._part.recorded_s - before[0]
        self.sampler_s += self._part.sampler_s - before[1]
        plan = self.plan
        is_long = plan.every_s is not None and self._part.recorded_s >= plan.every_s - _TOLERANCE_S
        if is_long or (plan.every_bytes is not None and self._part.written_bytes >= plan.every_bytes):
            self._rotate()

    def add_mark(self, mark: Mark) -> None:
        """Write a mark to disk. Parts that begin while a command runs repeat the mark of its start."""
        if mark.kind in {START, END}:
            self._command = mark if mark.kind == START else None
        self._part.add_mark(mark)

    def _rotate(self) -> None:
        ended, number = self._part, self.numbers[-1]
        self._part = self._opened()  # before the lock of the previous part is released
        if self._command is not None:
            self._part.add_mark(self._command)
        ended.end()
        self._ended.put(number)

    def _finish_parts(self) -> None:
        """Convert parts that have ended, and remove the oldest ones. What cannot be written is tried again later."""
        unfinished: list[int] = []
        while (ended := self._ended.get()) is not None:
            unfinished, numbers = [], [*unfinished, ended]
            for number in numbers:
                try:
                    self._finish(number)
                except UnfinishedError as error:
                    unfinished.append(number)
                    self._failure = error
                except (RecordingError, OSError) as error:
                    self._warn(str(error))
        if not unfinished:
            self._failure = None

    def _finish(self, number: int) -> None:
        out = part_path(self.out, number)
        part = out.with_name(out.name + _SUFFIX)
        if out.exists() or not part.stat().st_size:  # the recorder was killed after a conversion, or before the header
            part.unlink()
        else:
            finish(part, out)
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        plan = self.plan
        finished = list(parts_of(self.out).values())
        sizes = [path.stat().st_size for path in finished]
        while len(finished) > 1 and (
            (plan.keep_parts is not None and len(finished) > plan.keep_parts)
            or (plan.keep_bytes is not None and sum(sizes) > plan.keep_bytes)
        ):
            finished.pop(0).unlink()
            sizes.pop(0)

    def discard(self) -> None:
        """End the recording and remove the part that is being written."""
        self._part.discard()
        self._stop()

    def close_part(self) -> None:
        """End the recording after an error; the complete frames of the last part remain in its `.part` file."""
        self._part.close_part()
        self._stop()

    def close(self) -> None:
        """End the recording and convert all parts to Parquet.

        Raises:
            RecordingError: The last part cannot be written.
            UnfinishedError: A part cannot be converted; its `.part` file remains.
        """
        if self._part.frames or len(self.numbers) == 1:
            self._part.end()
            self._ended.put(self.numbers[-1])
        else:
            self._part.discard()  # it began with the last frame
            self.numbers.pop()
        self._stop()
        if self._failure is not None:
            raise self._failure

    def _stop(self) -> None:
        self._ended.put(None)
        self._finisher.join()


def command_marks(recordings: Sequence[RecordingFile]) -> list[Mark]:
    """Return the marks of a series of parts, without repeated ones."""
    marks: list[Mark] = []
    for recording in recordings:
        marks += [m for m in recording.header.marks if m not in marks]
    return marks
