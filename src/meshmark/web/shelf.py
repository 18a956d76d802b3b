"""What takes long to make: made once however many ask, few at once, the last ones kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

from meshmark.errors import MeshmarkError

T = TypeVar("T")


class Busy(MeshmarkError):
    """Too much is being made already."""


class Shelf(Generic[T]):
    """Things that take long to make: each made once however many ask, few at once, the last ones kept.

    Args:
        kept: how many stay.
        at_once: threads that make them.
        waiting: how many may be wanted at once before others are turned away.
    """

    def __init__(self, kept: int, at_once: int, waiting: int = 16) -> None:
        self._kept, self._waiting = kept, waiting
        self._made: OrderedDict[object, T] = OrderedDict()
        self._coming: dict[object, asyncio.Task[T]] = {}
        self._threads = anyio.CapacityLimiter(at_once)

    async def get(self, key: object, make: Callable[[], T]) -> T:
        """What `key` names, made if it is not there.

        Raises:
            Busy: too many others are wanted at this moment.
        """
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        if key not in self._coming:
            if len(self._coming) >= self._waiting:
                raise Busy("busy: others are being made; try again in some seconds")
            self._coming[key] = asyncio.create_task(self._make(key, make))
        # Shielded: one that goes away must not end it for the others that wait.
        return await asyncio.shield(self._coming[key])

    async def _make(self, key: object, make: Callable[[], T]) -> T:
        try:
            made = await anyio.to_thread.run_sync(make, limiter=self._threads)
            self._made[key] = made
            while len(self._made) > self._kept:
                self._made.popitem(last=False)
            return made
        finally:
            del self._coming[key]
