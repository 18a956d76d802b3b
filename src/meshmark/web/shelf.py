"""Caches results that are expensive to compute, for concurrent requests."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

from meshmark.errors import MeshmarkError

T = TypeVar("T")


class BusyError(MeshmarkError):
    """Too many computations are in progress."""


class ResultCache(Generic[T]):
    """Computes each result once for all concurrent requests, and caches the most recently used results.

    Args:
        kept: Maximum number of cached results.
        at_once: Number of threads that compute results.
        waiting: Maximum number of pending results; further requests are refused.
    """

    def __init__(self, kept: int, at_once: int, waiting: int = 16) -> None:
        self._kept, self._waiting = kept, waiting
        self._made: OrderedDict[object, T] = OrderedDict()
        self._coming: dict[object, asyncio.Task[T]] = {}
        self._threads = anyio.CapacityLimiter(at_once)

    async def get(self, key: object, make: Callable[[], T]) -> T:
        """Return the result for `key`, computed by `make` if it is not cached.

        Raises:
            BusyError: Too many results are pending.
        """
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        if key not in self._coming:
            if len(self._coming) >= self._waiting:
                raise BusyError("busy: too many pending requests; try again in a few seconds")
            self._coming[key] = asyncio.create_task(self._make(key, make))
        # Shielded, because a cancelled request must not cancel the computation for other requests.
        return await asyncio.shield(self._coming[key])

    async def _make(self, key: object, make: Callable[[], T]) -> T:
        try:
            result = await anyio.to_thread.run_sync(make, limiter=self._threads)
            self._made[key] = result
            while len(self._made) > self._kept:
                self._made.popitem(last=False)
            return result
        finally:
            del self._coming[key]
