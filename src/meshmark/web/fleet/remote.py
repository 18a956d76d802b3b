"""Shows the live map of another host: reads the frames of its `meshmark serve` or `meshmark watch --web` on demand."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final

from starlette.requests import Request

from meshmark.errors import MeshmarkError, quoted
from meshmark.watch.frames import Frame, FrameError, Header, frame_of, header_of, parse_line
from meshmark.web.export.pull import Target
from meshmark.web.hub import Hub, Past
from meshmark.web.live import LiveMachine
from meshmark.web.server import NotFound

MAX_MAPS: Final = 16  # maps that are open at once
SILENT_S: Final = 40.0  # s without a byte; servers send one every 15 s
HEADER_S: Final = 10.0  # time limit for the header of the frames, however slowly it arrives
_PATHS: Final = ("/live/api/frames", "/api/frames")  # paths of `serve` and of `watch --web`
_MAX_LINE: Final = 8 << 20  # B; the frames of 4096 CPUs have less than 1 MiB


class Remote:
    """The frames of another host; implements `live.Sampler`.

    Raises:
        MeshmarkError: The host does not send any frames.
    """

    def __init__(self, name: str, at: Target, token: str) -> None:
        self._name = name
        self._sock: socket.socket | None = None
        self._is_late = False
        source = f"{quoted(name)}: {at.host}:{at.port}"
        headers = {"authorization": f"Bearer {token}"} if token else {}
        # The time limit of a socket applies to each byte, so that an answer may take for ever.
        timer = threading.Timer(HEADER_S, self._end_late)
        timer.daemon = True
        timer.start()
        try:
            for path in _PATHS:
                self._connection = http.client.HTTPConnection(at.host, at.port, timeout=HEADER_S)
                self._connection.request("GET", path, headers=headers)
                self._sock = self._connection.sock  # the connection drops its reference to the socket
                if self._is_late:
                    raise TimeoutError
                self._answer = self._connection.getresponse()
                if self._answer.status != 404:
                    break
                self._connection.close()
            if self._answer.status != 200:
                raise MeshmarkError(f"{source}: HTTP {self._answer.status}")
            kind, line = next(self._events(), ("", {}))
            if kind != "header":
                raise MeshmarkError(f"{source}: no live machine")
            self.header: Header = header_of(line)
            if self._sock is not None:
                self._sock.settimeout(SILENT_S)
        except (OSError, http.client.HTTPException, ValueError, RecursionError, MeshmarkError) as error:
            self._close()
            if self._is_late or isinstance(error, TimeoutError):
                raise MeshmarkError(f"{source}: no header of a live machine within {HEADER_S:g} s") from error
            if isinstance(error, MeshmarkError) and not isinstance(error, FrameError):
                raise
            raise MeshmarkError(f"{source}: {quoted(error, 300)}") from error
        finally:
            timer.cancel()

    def _end_late(self) -> None:
        self._is_late = True
        self.stop()

    def _close(self) -> None:
        self.stop()
        if hasattr(self, "_connection"):
            self._connection.close()

    def _events(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the events of the answer.

        Raises:
            MeshmarkError: A line is not from a live machine.
        """
        kind = ""
        while line := self._answer.readline(_MAX_LINE):
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode("ascii", "replace")
            elif line.startswith(b"data: "):
                yield kind, parse_line(line[6:], constants=False)
            elif not line.endswith(b"\n") and len(line) == _MAX_LINE:
                raise FrameError(f"frames: found a line of more than {_MAX_LINE >> 20} MiB")

    def frames(self) -> Iterator[Frame]:
        """Yield frames until the stream ends.

        Raises:
            MeshmarkError: The stream ended with an error.
        """
        try:
            for kind, line in self._events():
                if kind == "frame":
                    yield frame_of(line, self.header)
                elif kind == "end":
                    raise MeshmarkError(f"{self._name}: {quoted(line.get('why', ''))}")
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise MeshmarkError(f"{self._name}: {quoted(error)}") from error

    def stop(self) -> None:
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, a: type[BaseException] | None, b: BaseException | None, c: TracebackType | None) -> None:
        self._close()


class RemoteMaps:
    """The live maps of nodes, each read while it has readers.

    Args:
        find: Returns the address at which a node can be polled; None if it is not known.
        token: Token of the nodes.
    """

    def __init__(self, find: Callable[[str], Target | None], token: str) -> None:
        self._find, self._token = find, token
        self._open: dict[str, tuple[LiveMachine, asyncio.Task[None]]] = {}

    def has(self, name: str) -> bool:
        """Return whether the address of a node is known."""
        return self._find(name) is not None

    def target(self, name: str) -> Target:
        """Return the address of a node; raise NotFound if it is not known."""
        target = self._find(name)
        if target is None:
            raise NotFound(f"node: found no '{quoted(name)}' whose map is known")
        return target

    def known(self, request: Request) -> None:
        self.target(request.path_params["name"])

    @contextlib.asynccontextmanager
    async def find(self, request: Request) -> AsyncIterator[Hub | Past]:
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
            machine = LiveMachine(lambda: Remote(name, self.target(name), self._token))
            self._open[name] = machine, asyncio.create_task(machine.sleep_when_idle())
        async with self._open[name][0].find(request) as hub:
            yield hub

    async def close(self) -> None:
        for machine, task in self._open.values():
            task.cancel()
            await machine.close()
