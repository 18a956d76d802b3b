"""Selects a part of a recording: a span of time, or the window between the marks of a command."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from meshmark.errors import MeshmarkError, UsageError
from meshmark.watch.frames import Frame
from meshmark.watch.marks import END, START, Mark
from meshmark.watch.recording import RecordingFile


@dataclass(frozen=True, slots=True)
class CommandWindow:
    """The time between the marks of a command, in s since 1970; `end` is infinite if the end is not marked."""

    begin: float
    end: float
    start_mark: Mark
    end_mark: Mark | None

    def overlap_s(self, frame: Frame) -> float:
        """Return how long the window of a frame lies in this window, in s; 0 if it does not."""
        return max(0.0, min(frame.at, self.end) - max(frame.at - frame.window_s, self.begin))


def command_window(marks: Iterable[Mark]) -> CommandWindow | None:
    """Return the window of the command; None if no start of a command is marked."""
    start: Mark | None = None
    for mark in marks:
        if mark.kind == START:
            start = mark
        elif mark.kind == END and start is not None:
            return CommandWindow(start.at, mark.at, start, mark)
    return None if start is None else CommandWindow(start.at, math.inf, start, None)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A span of a recording.

    Attributes:
        origin_s: Time that becomes 0, in s after the start of the recording.
        from_s, to_s: The span, in s after `origin_s`.
    """

    origin_s: float = 0.0
    from_s: float = -math.inf
    to_s: float = math.inf

    def frames(self, recording: RecordingFile) -> Iterator[Frame]:
        """Yield the frames whose windows overlap the span, with times after `origin_s`.

        Raises:
            UsageError: No frame overlaps the span, although the recording has frames.
        """
        is_empty, is_inside, end_s = True, False, 0.0
        for frame in recording.frames():
            is_empty, end_s = False, frame.t_s - self.origin_s
            if end_s > self.from_s and end_s - frame.window_s < self.to_s:
                is_inside = True
                yield replace(frame, t_s=end_s)
        if not is_empty and not is_inside:
            raise UsageError(
                f"--from, --to: found {_text(self.from_s)} to {_text(self.to_s)}; "
                f"allowed: a part of {recording.path.name}, which ends at {end_s:.6g} s"
            )


def _text(time_s: float) -> str:
    return f"{time_s:.6g} s" if math.isfinite(time_s) else "no limit"


def start_of_command_s(recording: RecordingFile) -> float | None:
    """Return when the command started, in s after the start of the recording; None if no command is marked."""
    window, first = command_window(recording.header.marks), next(recording.frames(), None)
    return None if window is None or first is None else window.begin - (first.at - first.t_s)


def window_of_command(recording: RecordingFile) -> TimeWindow:
    """Return the window of the command, whose times begin with it.

    Raises:
        MeshmarkError: No command is marked.
    """
    window, start_s = command_window(recording.header.marks), start_of_command_s(recording)
    if window is None or start_s is None:
        raise MeshmarkError(
            f"--window: found no marked command in {recording.path}", "meshmark record --out FILE -- COMMAND marks one"
        )
    return TimeWindow(start_s, 0.0, window.end - window.begin)
