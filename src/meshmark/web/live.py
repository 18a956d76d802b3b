"""Samples this machine while there are readers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, Protocol

import anyio.to_thread
from starlette.requests import Request

from meshmark.values.units import counted
from meshmark.watch.frames import Frame, Header
from meshmark.web.hub import Hub, StoredFrames

IDLE_S: Final = 90.0  # above the scrape interval of monitoring systems, so that the sampler keeps running


class Sampler(Protocol):
    """The interface of `watch.live.LiveSampler`: it runs when created and ends after `stop`."""

    header: Header

    def frames(self) -> Iterator[Frame]:
        """Yield the frames until the sampler ends."""
        ...

    def stop(self) -> None:
        """End the sampler."""
        ...


Start = Callable[[], AbstractContextManager[Sampler]]


class LiveMachine:
    """This machine, sampled only while there are readers.

    Args:
        start: Starts a sampler, as a context manager.
        idle_s: The sampler stops this time after the last reader has left, in s.
    """

    def __init__(self, start: Start, idle_s: float = IDLE_S) -> None:
        self._start, self._idle_s = start, idle_s
        self._hub: Hub | None = None
        self._sampler: Sampler | None = None
        self._ended = threading.Event()
        self._readers = 0
        self._used = 0.0
        self._lock = asyncio.Lock()

    @property
    def state(self) -> str:
        """Return the state as text for the front page."""
        if self._hub is None or self._hub.ended:
            return "idle: the sampler starts with the first reader"
        return f"sampled every {self._hub.header.period_s:g} s, {counted(self._readers, 'reader')}"

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is sampled and no reader waits for it."""
        return not self._readers and (self._hub is None or bool(self._hub.ended))

    @contextlib.asynccontextmanager
    async def find(self, _: Request) -> AsyncIterator[Hub | StoredFrames]:
        """Yield the stream of frames; the sampler runs while this context is active."""
        self._readers += 1
        try:
            async with self._lock:
                if self._hub is None or self._hub.ended:
                    self._hub = await anyio.to_thread.run_sync(self._begin)
            yield self._hub
        finally:
            self._readers -= 1
            self._used = time.monotonic()

    @contextlib.asynccontextmanager
    async def find_with_frames(self, request: Request) -> AsyncIterator[Hub | StoredFrames]:
        """Yield the stream of frames like `find`, but wait for the first frame if the sampler has just started."""
        async with self.find(request) as hub:
            assert isinstance(hub, Hub)
            deadline = time.monotonic() + 2 * hub.header.period_s + 2
            while hub.window.empty and not hub.ended and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            yield hub

    def _begin(self) -> Hub:
        sampler = self._start()
        end_event = self._ended = threading.Event()
        running = sampler.__enter__()

        def frames() -> Iterator[Frame]:
            try:
                yield from running.frames()
            finally:
                sampler.__exit__(None, None, None)
                end_event.set()

        try:
            hub = Hub(running.header, frames())
        except BaseException:
            sampler.__exit__(None, None, None)
            raise
        self._sampler = running
        hub.start()
        return hub

    async def sleep_when_idle(self) -> None:
        """Stop the sampler when there have been no readers for `idle_s`; runs until cancelled."""
        while True:
            await asyncio.sleep(min(self._idle_s / 4, 5.0))
            if time.monotonic() - self._used > self._idle_s:
                await self.stop()

    async def stop(self) -> None:
        """Stop the sampler and wait for its end, unless there are readers."""
        async with self._lock:  # new readers are already counted and wait for the lock
            if self._sampler is not None and not self._readers:
                await self._end()

    async def close(self) -> None:
        """Stop the sampler even if there are readers."""
        async with self._lock:
            if self._sampler is not None:
                await self._end()

    async def _end(self) -> None:
        assert self._sampler is not None
        self._sampler.stop()
        await anyio.to_thread.run_sync(self._ended.wait, 5.0)
        self._sampler = self._hub = None
