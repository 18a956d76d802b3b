"""The socket and the connections of a server: those that do not get on with their request are closed.

uvicorn waits without end for the rest of a request. Here a connection without a whole request is closed after
`HEADER_S`, the oldest ones at once when there are too many. The limits are of an address and of all: on loopback
everybody has the same address, or any of 127.0.0.0/8. A request that is sent in one go passes whatever others do, since
fewer are accepted between its first byte and its being read than may wait.
"""

from __future__ import annotations

import asyncio
import http
import resource
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from meshmark.errors import UsageError, quoted
from meshmark.web.guard import SECURITY, host_name, is_loopback

HEADER_S: Final = 10.0  # from the beginning of a connection, or the end of an answer, to the next whole request
MAX_WAITING_PER_ADDRESS: Final = 64
MAX_WAITING: Final = 256
MAX_OPEN: Final = 512  # less where this process may have few files
ACCEPTED_AT_ONCE: Final = 16
BACKLOG: Final = 1024  # in the kernel


class Waiting:
    """The connections of a server that have no request at work, the one that waits longest first."""

    def __init__(self, header_s: float = HEADER_S) -> None:
        self._header_s = header_s
        self._timers: dict[Connection, asyncio.TimerHandle] = {}
        self._max_open = min(MAX_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

    def add(self, one: Connection) -> None:
        """Begins its time, unless that runs already."""
        if one in self._timers:
            return
        self._timers[one] = one.loop.call_later(self._header_s, self.close, one)
        same = [o for o in self._timers if o.address == one.address]
        if len(same) > MAX_WAITING_PER_ADDRESS:
            self.close(same[0])
        elif len(self._timers) > MAX_WAITING or len(one.connections) > self._max_open:
            self.close(next(iter(self._timers)))

    def remove(self, one: Connection) -> None:
        """Ends its time: it has sent a request, or has gone."""
        timer = self._timers.pop(one, None)
        if timer is not None:
            timer.cancel()

    def close(self, one: Connection) -> None:
        self.remove(one)
        one.transport.close()


class Connection(H11Protocol):
    """A connection whose requests come whole in time."""

    def __init__(self, *args: Any, waiting: Waiting, **more: Any) -> None:
        super().__init__(*args, **more)
        self._waiting = waiting
        self._heard_enough = False

    @property
    def address(self) -> str:
        """Of the other end, without its port."""
        return self.client[0] if self.client else ""

    def _mark(self) -> None:
        if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
            self._waiting.remove(self)
        else:
            self._waiting.add(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._mark()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._heard_enough and not self.transport.is_closing():
            super().data_received(data)
            self._mark()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._mark()

    def send_400_response(self, msg: str) -> None:
        """One line for what is no request; a request at work gets its answer alone, and that is the last."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive, self._heard_enough = False, True
            return
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            status = getattr(sys.exc_info()[1], "error_status_hint", 400)  # 431: too long, 501: unknown encoding
            body = f"{http.HTTPStatus(status).phrase}: this is no request that can be answered\n".encode()
            about = {
                "content-type": "text/plain; charset=utf-8",
                "content-length": str(len(body)),
                "connection": "close",
                **SECURITY,
            }
            for event in (
                h11.Response(status_code=status, headers=list(about.items())),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(BACKLOG)  # uvicorn has one number for those in the kernel and those accepted at once


def free_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        UsageError: the address is not to be had.
    """
    name = host_name(host)
    sock = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((name, port))
        sock.listen(ACCEPTED_AT_ONCE)
    except (OSError, UnicodeError, ValueError) as why:
        sock.close()
        said = getattr(why, "strerror", None) or why
        raise UsageError(f"--port: {quoted(host)}:{port}: {said}; another port is needed, or 0 for any") from why
    return sock


def run(
    make: Callable[[], ASGIApp],
    host: str,
    port: int,
    token: str,
    ready: Callable[[str], None],
    header_s: float = HEADER_S,
) -> None:
    """Serves until interrupted.

    Args:
        make: the application; made once the address is known to be allowed.
        token: that is in the address; the application asks for it.
        ready: is called with the page's address once it can be opened.
        header_s: how long a request may take to come, s.

    Raises:
        UsageError: an address beyond this machine without a token, or one that is not to be had.
    """
    with free_socket(host, port) as sock:
        if not token and not is_loopback(sock.getsockname()[0]):
            raise UsageError(
                f"--no-token: found with --host {quoted(host)}, which others can reach", "leave out --no-token"
            )
        app = make()
        name = host_name(host)
        if not name or (not token and not is_loopback(name)):  # a name that this host alone knows to be its own
            name = sock.getsockname()[0]
        shown = f"[{name}]" if ":" in name else name
        address = f"http://{shown}:{sock.getsockname()[1]}/" + (f"?token={token}" if token else "")
        connection = cast(Any, partial(Connection, waiting=Waiting(header_s)))
        config = uvicorn.Config(
            app,
            http=connection,
            loop="asyncio",
            ws="none",
            proxy_headers=False,
            log_level="error",
            access_log=False,
            timeout_keep_alive=cast(Any, header_s),
            timeout_graceful_shutdown=1,
            backlog=ACCEPTED_AT_ONCE,
        )
        ready(address)
        _Server(config).run(sockets=[sock])
