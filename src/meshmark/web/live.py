"""This machine, sampled only while somebody looks."""

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

from meshmark.watch.frames import Frame, Header
from meshmark.web.hub import Hub, Past

IDLE_S: Final = 90.0  # longer than monitoring systems wait between two scrapes, so that it need not start for each


class Sampler(Protocol):
    """What `watch.live.Live` is: running from its making on, ended by `stop`."""

    header: Header

    def frames(self) -> Iterator[Frame]: ...

    def stop(self) -> None: ...


Start = Callable[[], AbstractContextManager[Sampler]]


class LiveMachine:
    """This machine, sampled only while somebody looks.

    Args:
        start: starts a sampler; it is entered, and left when it has ended.
        idle_s: the sampler is stopped this long after the last reader has gone.
    """

    def __init__(self, start: Start, idle_s: float = IDLE_S) -> None:
        self._start, self._idle_s = start, idle_s
        self._hub: Hub | None = None
        self._sampler: Sampler | None = None
        self._over = threading.Event()
        self._readers = 0
        self._used = 0.0
        self._lock = asyncio.Lock()

    @property
    def state(self) -> str:
        """In words, for the front page."""
        if self._hub is None or self._hub.ended:
            return "asleep: the sampler starts with the first reader"
        readers = "1 reader" if self._readers == 1 else f"{self._readers} readers"
        return f"sampled every {self._hub.header.period_s:g} s, {readers}"

    @contextlib.asynccontextmanager
    async def find(self, _: Request) -> AsyncIterator[Hub | Past]:
        """The stream of frames, which goes on as long as somebody is in here."""
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
    async def find_with_frames(self, request: Request) -> AsyncIterator[Hub | Past]:
        """The same with a first frame, which one that was asleep has only after a while."""
        async with self.find(request) as hub:
            assert isinstance(hub, Hub)
            until = time.monotonic() + 2 * hub.header.period_s + 2
            while hub.window.empty and not hub.ended and time.monotonic() < until:
                await asyncio.sleep(0.05)
            yield hub

    def _begin(self) -> Hub:
        sampler = self._start()
        over = self._over = threading.Event()
        entered = sampler.__enter__()

        def frames() -> Iterator[Frame]:
            try:
                yield from entered.frames()
            finally:
                sampler.__exit__(None, None, None)
                over.set()

        try:
            hub = Hub(entered.header, frames())
        except BaseException:
            sampler.__exit__(None, None, None)
            raise
        self._sampler = entered
        hub.start()
        return hub

    async def sleep_when_idle(self) -> None:
        """Stops the sampler when nobody has looked for a while; runs until cancelled."""
        while True:
            await asyncio.sleep(min(self._idle_s / 4, 5.0))
            if time.monotonic() - self._used > self._idle_s:
                await self.stop()

    async def stop(self) -> None:
        """Ends the sampler and waits for its end, if there is one and nobody looks."""
        async with self._lock:  # one who comes now waits here, and counts already
            if self._sampler is not None and not self._readers:
                await self._end()

    async def shut(self) -> None:
        """Ends the sampler whoever looks."""
        async with self._lock:
            if self._sampler is not None:
                await self._end()

    async def _end(self) -> None:
        assert self._sampler is not None
        self._sampler.stop()
        await anyio.to_thread.run_sync(self._over.wait, 5.0)
        self._sampler = self._hub = None
