"""One stream of frames, many readers: a thread reads the stream, slow readers lose frames and never hold it up."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final

from meshmark.errors import MeshmarkError
from meshmark.watch.frames import Frame, Header
from meshmark.watch.hotspots import Detector, HotSpot
from meshmark.watch.layout import map_of
from meshmark.web.openmetrics import Window

Load = Callable[[int, int], list[Frame]]
KEPT: Final = 600  # frames that a page which comes late gets first
WAITING: Final = 50  # frames that a reader may lag behind


def page_header(header: Header, **more: Any) -> dict[str, Any]:
    """A header as pages take it: with the map."""
    return {**header.to_json(), "map": map_of(header).to_json(), **more}


def _told(frame: Frame, spots: Sequence[HotSpot]) -> dict[str, Any]:
    told = frame.to_json()
    if spots:
        told["spots"] = [s.to_json() for s in spots]
    return told


class Past:
    """Frames that are there already: a recording, or what a model was simulated to do.

    Args:
        count: how many there are.
        load: some of them, by the number of the first and how many.
        more: what else the page's header says.
    """

    def __init__(self, header: Header, count: int, load: Load, **more: Any) -> None:
        self.header_json = page_header(header, live=False, frames=count, **more)
        self._load = load
        self._detector = Detector(header)
        self._spots: list[list[HotSpot]] = []  # of the frames so far: a hot spot depends on what came before
        self._lock = threading.Lock()

    def some(self, begin: int, count: int) -> list[dict[str, Any]]:
        """Some frames as JSON, from number `begin` on, with the hot spots that stood then."""
        frames = self._load(begin, count)
        with self._lock:
            while len(self._spots) < begin:
                missing = self._load(len(self._spots), min(600, begin - len(self._spots)))
                if not missing:
                    break
                self._spots += [self._detector.add(f) for f in missing]
            for i, frame in enumerate(frames, begin):
                if i == len(self._spots):
                    self._spots.append(self._detector.add(frame))
            return [_told(f, self._spots[i]) for i, f in enumerate(frames, begin)]


class Hub:
    """Reads frames in a thread of its own and hands their JSON to all who listen.

    Args:
        header: of the stream.
        frames: the stream; read until it ends.
    """

    def __init__(self, header: Header, frames: Iterator[Frame]) -> None:
        self.header = header
        self.header_json = page_header(header, live=True)
        self.window = Window(header)
        self.ended = ""  # why no more frames will come
        self._frames = frames
        self._kept: deque[str] = deque(maxlen=KEPT)
        self._readers: dict[asyncio.Queue[str], asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="frames", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _read(self) -> None:
        why = "the stream has ended"
        detector = Detector(self.header)
        try:
            for frame in self._frames:
                self.window.add(frame)
                self._tell(_event("frame", _told(frame, detector.add(frame))), keep=True)
        except MeshmarkError as wrong:
            why = str(wrong)
        self.ended = why
        self._tell(_event("end", {"why": why}), keep=False)

    def _tell(self, text: str, keep: bool) -> None:
        with self._lock:
            if keep:
                self._kept.append(text)
            readers = list(self._readers.items())
        for queue, loop in readers:
            try:
                loop.call_soon_threadsafe(_offer, queue, text)
            except RuntimeError:  # its loop is gone, and so is it
                with self._lock:
                    self._readers.pop(queue, None)

    async def events(self) -> AsyncIterator[str]:
        """Events for one reader: the header, frames of the last minutes, then each as it comes."""
        queue: asyncio.Queue[str] = asyncio.Queue(WAITING)
        with self._lock:
            past, ended = list(self._kept), self.ended
            self._readers[queue] = asyncio.get_running_loop()
        try:
            yield _event("header", self.header_json) + "".join(past)
            if ended:  # before it came; if it ends from now on, the queue has that after the last frames
                yield _event("end", {"why": ended})
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), 15)
                except TimeoutError:
                    yield ": still here\n\n"  # so that proxies and dead connections are noticed
        finally:
            with self._lock:
                self._readers.pop(queue, None)


def _offer(queue: asyncio.Queue[str], text: str) -> None:
    if queue.full():
        queue.get_nowait()  # the oldest goes: what is shown should be now
    queue.put_nowait(text)


def _event(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
