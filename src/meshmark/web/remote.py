"""The live map of another host: reads the frames of its `meshmark serve` or `meshmark watch --web`, on demand."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final

from starlette.requests import Request

from meshmark.errors import MeshmarkError, quoted
from meshmark.watch.frames import Frame, FrameError, Header, frame_of, header_of
from meshmark.web.hub import Hub, Past
from meshmark.web.live import LiveMachine
from meshmark.web.pull import Target
from meshmark.web.server import NotFound

MAX_MAPS: Final = 16  # of nodes that are open at once
SILENT_S: Final = 40.0  # without a byte; servers send one every 15 s
_PATHS: Final = ("/live/api/frames", "/api/frames")  # of `serve` and of `watch --web`
_MAX_LINE: Final = 16 << 20  # B


class Remote:
    """The frames of another host, a `live.Sampler`.

    Raises:
        MeshmarkError: It does not send any.
    """

    def __init__(self, name: str, at: Target, token: str) -> None:
        self._name = name
        self._connection = http.client.HTTPConnection(at.host, at.port, timeout=SILENT_S)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            for path in _PATHS:
                self._connection.request("GET", path, headers=headers)
                self._sock = self._connection.sock  # of which the connection lets go
                self._answer = self._connection.getresponse()
                if self._answer.status != 404:
                    break
                self._answer.read()
            if self._answer.status != 200:
                raise MeshmarkError(f"{name}: {at.host}:{at.port}: HTTP {self._answer.status}")
            kind, line = next(self._events(), ("", {}))
            if kind != "header":
                raise MeshmarkError(f"{name}: {at.host}:{at.port}: no live machine")
            self.header: Header = header_of(line)
        except (OSError, http.client.HTTPException, ValueError) as why:
            self._connection.close()
            raise MeshmarkError(f"{name}: {at.host}:{at.port}: {quoted(why)}") from why

    def _events(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        kind = ""
        while line := self._answer.readline(_MAX_LINE):
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode("ascii", "replace")
            elif line.startswith(b"data: "):
                found = json.loads(line[6:], parse_constant=_refused)
                if not isinstance(found, dict):
                    raise FrameError("frames: found no object")
                yield kind, found

    def frames(self) -> Iterator[Frame]:
        """Frames until it ends.

        Raises:
            MeshmarkError: It ended with an error.
        """
        try:
            for kind, line in self._events():
                if kind == "frame":
                    yield frame_of(line, self.header)
                elif kind == "end":
                    raise MeshmarkError(f"{self._name}: {quoted(line.get('why', ''))}")
        except (OSError, http.client.HTTPException, ValueError) as why:
            raise MeshmarkError(f"{self._name}: {quoted(why)}") from why

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, a: type[BaseException] | None, b: BaseException | None, c: TracebackType | None) -> None:
        self._connection.close()


def _refused(constant: str) -> float:
    raise ValueError(f"found {constant}")


class RemoteMaps:
    """The live maps of nodes, each read while it has readers.

    Args:
        find: Where a node can be asked; None if that is not known.
        token: Of the nodes.
    """

    def __init__(self, find: Callable[[str], Target | None], token: str) -> None:
        self._find, self._token = find, token
        self._open: dict[str, tuple[LiveMachine, asyncio.Task[None]]] = {}

    def has(self, name: str) -> bool:
        """Whether it is known where a node can be asked."""
        return self._find(name) is not None

    def target(self, name: str) -> Target:
        """Raises NotFound if it is not known where a node can be asked."""
        found = self._find(name)
        if found is None:
            raise NotFound(f"node: found no '{quoted(name)}' whose map is known")
        return found

    def known(self, request: Request) -> None:
        self.target(request.path_params["name"])

    @contextlib.asynccontextmanager
    async def find(self, request: Request) -> AsyncIterator[Hub | Past]:
        """The frames of the node that a request names."""
        name = request.path_params["name"]
        self.target(name)
        if name not in self._open:
            for other, (machine, task) in list(self._open.items()):
                if machine.is_idle:
                    task.cancel()
                    del self._open[other]
            if len(self._open) >= MAX_MAPS:
                raise MeshmarkError(f"more than {MAX_MAPS} maps are open")
            machine = LiveMachine(lambda: Remote(name, self.target(name), self._token))
            self._open[name] = machine, asyncio.create_task(machine.sleep_when_idle())
        async with self._open[name][0].find(request) as hub:
            yield hub

    async def close(self) -> None:
        for machine, task in self._open.values():
            task.cancel()
            await machine.close()
