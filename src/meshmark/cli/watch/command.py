"""`meshmark watch -- COMMAND`: passes frames to the live map while a command runs, and serves the map to browsers."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meshmark.cli.console import say
from meshmark.cli.watch.summary import print_summary
from meshmark.watch.frames import Frame, Header, frame_of, parse_line
from meshmark.watch.marks import START, Mark

if TYPE_CHECKING:
    from meshmark.watch.live import LiveSampler
    from meshmark.watch.recorder.command import CommandEnd
    from meshmark.watch.recorder.summary import RecorderCost, WindowSummary


@dataclass(slots=True)
class _FrameQueue:
    """Frames that one thread writes and another reads."""

    frames: queue.SimpleQueue[Frame | None] = field(default_factory=queue.SimpleQueue)

    def __iter__(self) -> Iterator[Frame]:
        while (frame := self.frames.get()) is not None:
            yield frame


class LiveCommand:
    """Passes the frames of a sampler on to the map, and summarises them while they arrive.

    Args:
        header: Header of the frames.
    """

    def __init__(self, header: Header) -> None:
        self.header = header
        self.page, self._counted = _FrameQueue(), _FrameQueue()
        self.marks: list[Mark] = []
        self.sampler_s, self.elapsed_s = 0.0, 0.0
        self._summary: WindowSummary | None = None
        self._thread = threading.Thread(target=self._summarise, name="summary", daemon=True)

    def add_line(self, line: str) -> None:
        """Add a frame as an unparsed line.

        Raises:
            FrameError: The line is not a frame.
        """
        frame = frame_of(parse_line(line), self.header)
        self.sampler_s += frame.cost_s
        self.elapsed_s += frame.window_s
        self.page.frames.put(frame)
        self._counted.frames.put(frame)

    def add_mark(self, mark: Mark) -> None:
        """Add a mark of the command; the summary begins with its start."""
        self.marks.append(mark)
        if mark.kind == START:
            self._thread.start()

    def summary(self) -> WindowSummary:
        """Return the summary of all frames since the start of the command."""
        self._thread.join()
        assert self._summary is not None
        return self._summary

    def close(self) -> None:
        """End the streams of frames."""
        for frames in (self.page, self._counted):
            frames.frames.put(None)

    def _summarise(self) -> None:
        from meshmark.watch.recorder.summary import summarise
        from meshmark.watch.recorder.window import command_window

        window = command_window(self.marks)
        assert window is not None
        self._summary = summarise(self.header, self._counted, window)


def serve_beside(header: Header, frames: Iterator[Frame], address: tuple[str, int, str]) -> None:
    """Serve the live map in a thread, and return as soon as the page can be opened.

    Raises:
        MeshmarkError: The address is not available.
    """
    from meshmark.web.hub import Hub
    from meshmark.web.server import serve

    is_ready, errors = threading.Event(), list[BaseException]()

    def ready(url: str) -> None:
        say(url)
        is_ready.set()

    def run() -> None:
        try:
            serve(Hub(header, frames), *address, ready)
        except BaseException as error:  # raised below, unless the page was ready
            errors.append(error)
        finally:
            is_ready.set()

    threading.Thread(target=run, name="page", daemon=True).start()
    is_ready.wait()
    if errors:
        raise errors[0]


def run_command(
    words: Sequence[str],
    live: LiveSampler,
    writer: LiveCommand,
    warn: Callable[[str], None],
    streams: Mapping[str, Any] | None = None,
    hung_up: Callable[[], None] = lambda: None,
) -> tuple[CommandEnd, RecorderCost]:
    """Run a command while its frames are shown; return how it ended, and what it cost to sample and show them.

    Args:
        words: The command and its arguments.
        live: The sampler.
        writer: Passes the frames on; it is closed at the end.
        warn: Called with the reason if the frames end before the command.
        streams: Streams of the command, as arguments of `subprocess.Popen`.
        hung_up: Called after the command has received SIGHUP.
    """
    from meshmark.watch.recorder.command import CommandRun
    from meshmark.watch.recorder.summary import RecorderCost

    begin_s = time.process_time()
    try:
        end = CommandRun(words, 0.0, warn, streams or {}, hung_up).record(live, writer)
    finally:
        writer.close()
    used_s = time.process_time() - begin_s
    return end, RecorderCost(writer.sampler_s, used_s, writer.elapsed_s, live.header.count("cpu"))


def print_end(writer: LiveCommand, cost: RecorderCost) -> None:
    """Print how the command ended, what the machine did meanwhile, and what the map cost."""
    from meshmark.watch.recorder.window import command_window

    window = command_window(writer.marks)
    if window is not None:
        print_summary(window, writer.summary)
    say(str(cost))


def watch_command(words: Sequence[str], live: LiveSampler, page_header: Header, address: tuple[str, int, str]) -> int:
    """Run a command while the page shows the live map; print a summary; return the exit status of the command.

    Use it within `waiting_for_signals`.

    Args:
        words: The command and its arguments.
        live: The sampler.
        page_header: Header for the page.
        address: Host, port and token of the page.
    """
    writer = LiveCommand(live.header)
    serve_beside(page_header, iter(writer.page), address)
    end, cost = run_command(words, live, writer, lambda text: say(f"warning: {text}"))
    print_end(writer, cost)
    return end.status
