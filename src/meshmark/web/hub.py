"""Distributes one stream of frames to many readers; slow readers lose frames and never block the stream."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from meshmark.errors import MeshmarkError, quoted
from meshmark.watch.findings.findings import Finding, Findings, frame_json
from meshmark.watch.frames import Frame, Header
from meshmark.watch.layout import map_of
from meshmark.web.export.openmetrics import Window

Load = Callable[[int, int], list[Frame]]
KEPT: Final = 600  # recent frames that a new reader receives first
AT_ONCE: Final = 20  # recent frames in one piece
WAITING: Final = 50  # maximum number of frames queued for a reader


def page_header(header: Header, **more: Any) -> dict[str, Any]:
    """Return the header as JSON for the page, with the layout of the map and the entries `more`."""
    return {**header.to_json(), "map": map_of(header).to_json(), **more}


class StoredFrames:
    """Existing frames of a recording or a simulation.

    Args:
        header: Header of the frames.
        count: Number of frames.
        load: Returns frames, given the number of the first frame and the number of frames.
        more: Further entries of the page's header.
    """

    def __init__(self, header: Header, count: int, load: Load, **more: Any) -> None:
        self.header_json = page_header(header, live=False, frames=count, **more)
        self._load = load
        self._findings = Findings(header)
        self._found: list[list[Finding]] = []  # for the frames so far; findings depend on earlier frames
        self._lock = threading.Lock()

    def some(self, begin: int, count: int) -> list[dict[str, Any]]:
        """Return at most `count` frames as JSON, starting with number `begin`, with the findings at their time."""
        frames = self._load(begin, count)
        with self._lock:
            while len(self._found) < begin:
                earlier_frames = self._load(len(self._found), min(600, begin - len(self._found)))
                if not earlier_frames:
                    break
                self._found += [self._findings.add(f) for f in earlier_frames]
            for i, frame in enumerate(frames, begin):
                if i == len(self._found):
                    self._found.append(self._findings.add(frame))
            return [frame_json(f, self._found[i]) for i, f in enumerate(frames, begin)]


class Hub:
    """Reads frames in a thread and publishes them as JSON to all readers.

    Args:
        header: Header of the stream.
        frames: The stream, read until it ends.
    """

    def __init__(self, header: Header, frames: Iterator[Frame]) -> None:
        self.header = header
        self.header_json = page_header(header, live=True)
        self.window = Window(header)
        self.ended = ""  # why the stream has ended; "" while it runs
        self._frames = frames
        self._kept: deque[str] = deque(maxlen=KEPT)
        self._readers: dict[asyncio.Queue[str], asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="frames", daemon=True)

    def start(self) -> None:
        """Start the thread that reads the stream."""
        self._thread.start()

    def _read(self) -> None:
        reason = "the stream has ended"
        try:
            findings = Findings(self.header)
            for frame in self._frames:
                self.window.add(frame)
                self._publish(event_text("frame", frame_json(frame, findings.add(frame))), keep=True)
        except MeshmarkError as error:
            reason = str(error)
        except Exception as error:  # readers would wait for ever
            reason = f"the stream cannot be read: {type(error).__name__}: {quoted(error)}"
        self.ended = reason
        self._publish(event_text("end", {"why": reason}), keep=False)

    def _publish(self, text: str, keep: bool) -> None:
        with self._lock:
            if keep:
                self._kept.append(text)
            readers = list(self._readers.items())
        for queue, loop in readers:
            try:
                loop.call_soon_threadsafe(_offer, queue, text)
            except RuntimeError:  # the reader's event loop is closed
                with self._lock:
                    self._readers.pop(queue, None)

    async def events(self) -> AsyncIterator[str]:
        """Yield the events for one reader: the header, the last `KEPT` frames, then new frames as they arrive."""
        queue: asyncio.Queue[str] = asyncio.Queue(WAITING)
        with self._lock:
            frame_texts, end_reason = list(self._kept), self.ended
            self._readers[queue] = asyncio.get_running_loop()
        try:
            yield event_text("header", self.header_json)
            # In pieces, so that a reader that does not read costs no more memory than one piece.
            for begin in range(0, len(frame_texts), AT_ONCE):
                yield "".join(frame_texts[begin : begin + AT_ONCE])
            if end_reason:  # a later end arrives through the queue, after the last frames
                yield event_text("end", {"why": end_reason})
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), 15)
                except TimeoutError:
                    yield ": still here\n\n"  # keeps proxies open and reveals dead connections
        finally:
            with self._lock:
                self._readers.pop(queue, None)


def _offer(queue: asyncio.Queue[str], text: str) -> None:
    if queue.full():
        queue.get_nowait()  # drops the oldest frame, so that the page shows current data
    queue.put_nowait(text)


def event_text(kind: str, data: dict[str, Any]) -> str:
    """Return a server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
