"""Shows the live maps of nodes: each is read from the node while it has readers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.requests import Request

from meshmark.errors import MeshmarkError, quoted
from meshmark.web.export.pull import NodeAddress
from meshmark.web.hub import Hub, StoredFrames
from meshmark.web.live import LiveMachine, Sampler
from meshmark.web.server import NotFoundError

MAX_MAPS: Final = 16  # maps that are open at once


class RemoteMaps:
    """The live maps of nodes, each read while it has readers.

    Args:
        find: Returns the address at which a node can be polled; None if it is not known.
        token: Token of the nodes.
    """

    def __init__(self, find: Callable[[str], NodeAddress | None], token: str) -> None:
        self._find, self._token = find, token
        self._open: dict[str, tuple[LiveMachine, asyncio.Task[None]]] = {}

    def has(self, name: str) -> bool:
        """Return whether the address of a node is known."""
        return self._find(name) is not None

    def target(self, name: str) -> NodeAddress:
        """Return the address of a node; raise NotFoundError if it is not known."""
        target = self._find(name)
        if target is None:
            raise NotFoundError(f"node: found no '{quoted(name)}' whose map is known")
        return target

    def known(self, request: Request) -> None:
        """Raise NotFoundError if the node in the path of a request is not known."""
        self.target(request.path_params["name"])

    @contextlib.asynccontextmanager
    async def find(self, request: Request) -> AsyncIterator[Hub | StoredFrames]:
        """Yield the frames of the node that a request names."""
        name = request.path_params["name"]
        self.target(name)
        if name not in self._open:
            for other, (machine, task) in list(self._open.items()):
                if machine.is_idle:
                    task.cancel()
                    del self._open[other]
            if len(self._open) >= MAX_MAPS:
                raise MeshmarkError(f"more than {MAX_MAPS} maps are open")
            machine = LiveMachine(lambda: self._remote(name))
            self._open[name] = machine, asyncio.create_task(machine.sleep_when_idle())
        async with self._open[name][0].find(request) as hub:
            yield hub

    def _remote(self, name: str) -> contextlib.AbstractContextManager[Sampler]:
        from meshmark.web.fleet.remote import Remote  # httpx takes 0.1 s

        return Remote(name, self.target(name), self._token)

    async def close(self) -> None:
        """Close the connections to all nodes."""
        for machine, task in self._open.values():
            task.cancel()
            await machine.close()
