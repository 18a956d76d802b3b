"""Runs a server whose connections are closed if they do not send complete requests in time.

uvicorn waits indefinitely for the rest of a request, and with `limit_concurrency` it refuses new connections, so that
idle ones would lock out all others. Here, a connection without a complete request is closed after `HEADER_S`, and the
oldest connections earlier if there are too many. The limits apply per address and in total, because
on loopback all clients have the same address, or any address of 127.0.0.0/8. A request that is sent at once always
succeeds, because fewer connections are accepted between its arrival and its reading than may wait.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
import math
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

HEADER_S: Final = 10.0  # s from the start of a connection, or the end of a response, to the next complete request
MAX_WAITING_PER_ADDRESS: Final = 64
MAX_WAITING: Final = 256
MAX_OPEN: Final = 512  # lower if the limit of open files is low
ACCEPTED_AT_ONCE: Final = 16
BACKLOG: Final = 1024  # connections that Linux queues
MAX_HEADER: Final = 64 << 10  # B of a request without its body
MAX_SMALL_PARTS: Final = 1000  # parts of a body that may be small
SMALL_PART: Final = 64  # B
_ALL_INTERFACES: Final = frozenset({"0.0.0.0", "::"})
_HOSTS: Final = "an address or a name of this host, such as 127.0.0.1; 0.0.0.0 or :: for all interfaces"


class Waiting:
    """The connections of a server that have no active request, in the order of their waiting times."""

    def __init__(self, header_s: float = HEADER_S) -> None:
        self._header_s = header_s
        self._timers: dict[Connection, asyncio.TimerHandle] = {}
        self._max_open = min(MAX_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

    def add(self, connection: Connection) -> None:
        """Start the timer of a connection unless it is running."""
        if connection in self._timers:
            return
        self._timers[connection] = connection.loop.call_later(self._header_s, self.close, connection)
        from_same_address = [o for o in self._timers if o.address == connection.address]
        if len(from_same_address) > MAX_WAITING_PER_ADDRESS:
            self.close(from_same_address[0])
        elif len(self._timers) > MAX_WAITING or len(connection.connections) > self._max_open:
            self.close(next(iter(self._timers)))

    def remove(self, connection: Connection) -> None:
        """Stop the timer of a connection that has sent a request or is closed."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def close(self, connection: Connection) -> None:
        """Stop watching a connection, and close it."""
        self.remove(connection)
        connection.transport.close()


class BoundedParser(h11.Connection):
    """Refuses bodies in very small parts: each part costs as much time as a large one and would delay other readers."""

    _parts = _bytes = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event of the connection.

        Raises:
            h11.RemoteProtocolError: The body consists of too many small parts.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._parts = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._parts += 1
            self._bytes += len(event.data)
            if self._parts > MAX_SMALL_PARTS and self._bytes < self._parts * SMALL_PART:
                raise h11.RemoteProtocolError("the parts of the body are too small")
        return event


class Connection(H11Protocol):
    """A connection with a time limit for requests."""

    def __init__(self, *args: Any, waiting: Waiting, **more: Any) -> None:
        super().__init__(*args, **more)
        self.conn = BoundedParser(h11.SERVER, MAX_HEADER)
        self._waiting = waiting
        self._ignores_input = False

    @property
    def address(self) -> str:
        """Return the address of the client, without the port."""
        return self.client[0] if self.client else ""

    def _mark(self) -> None:
        if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
            self._waiting.remove(self)
        else:
            self._waiting.add(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to watch the connection for a complete request."""
        super().connection_made(transport)
        self._mark()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        self._waiting.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take data, unless the connection is being closed."""
        if not self._ignores_input and not self.transport.is_closing():
            super().data_received(data)
            self._mark()

    def on_response_complete(self) -> None:
        """Start to watch the connection for its next request."""
        super().on_response_complete()
        self._mark()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid data with one line; an active request is answered instead, with the last response."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive, self._ignores_input = False, True
            return
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            status = getattr(sys.exc_info()[1], "error_status_hint", 400)  # 431: too long, 501: unknown encoding
            body = f"{http.HTTPStatus(status).phrase}: not a valid request\n".encode()
            headers = {
                "content-type": "text/plain; charset=utf-8",
                "content-length": str(len(body)),
                "connection": "close",
                **SECURITY,
            }
            for event in (
                h11.Response(status_code=status, headers=list(headers.items())),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(BACKLOG)  # uvicorn uses one number for the queue and for the connections accepted at once


def free_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 selects a free port.

    Raises:
        UsageError: The address or port is not available, or the host names all interfaces in another way than
            `0.0.0.0` or `::`.
    """
    name = host_name(host)
    if not name:  # an empty name would mean all interfaces
        raise UsageError(f"--host: found '{quoted(host)}'; allowed: {_HOSTS}")
    sock = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((name, port))
        if name not in _ALL_INTERFACES and _is_all_interfaces(sock.getsockname()[0]):
            raise UsageError(f"--host: found '{quoted(host)}', which names all interfaces; allowed: {_HOSTS}")
        sock.listen(ACCEPTED_AT_ONCE)
    except UsageError:
        sock.close()
        raise
    except (OSError, TypeError, ValueError) as error:  # a null character is a TypeError
        sock.close()
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--port: {quoted(host)}:{port}: {reason}; use another port, or 0 for a free one") from error
    return sock


def _is_all_interfaces(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_unspecified


def run(
    make: Callable[[], ASGIApp],
    host: str,
    port: int,
    token: str,
    ready: Callable[[str], None],
    header_s: float = HEADER_S,
) -> None:
    """Serve until interrupted.

    Args:
        make: Creates the application, once the address has been checked.
        host: Host name or address to listen on.
        port: Port to listen on; 0 for any free port.
        token: The token in the address, which the application checks.
        ready: Called with the address of the page once it can be opened.
        header_s: Time limit for receiving a request, in s.

    Raises:
        UsageError: The address is reachable from other hosts without a token, or is not available.
    """
    with free_socket(host, port) as sock:
        if not token and not is_loopback(sock.getsockname()[0]):
            raise UsageError(
                f"--no-token: found with --host {quoted(host)}, which other hosts can reach", "omit --no-token"
            )
        app = make()
        name = host_name(host)
        if not name or (not token and not is_loopback(name)):  # a name that only this host resolves to itself
            name = sock.getsockname()[0]
        displayed_name = f"[{name}]" if ":" in name else name
        address = f"http://{displayed_name}:{sock.getsockname()[1]}/" + (f"?token={token}" if token else "")
        connection = cast(Any, partial(Connection, waiting=Waiting(header_s)))
        config = uvicorn.Config(
            app,
            http=connection,
            loop="asyncio",
            ws="none",
            proxy_headers=False,
            log_level="error",
            access_log=False,
            timeout_keep_alive=math.ceil(header_s),  # `Waiting` closes idle connections, too
            timeout_graceful_shutdown=1,
            backlog=ACCEPTED_AT_ONCE,
        )
        ready(address)
        _Server(config).run(sockets=[sock])
