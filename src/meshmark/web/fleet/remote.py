"""Reads the live map of another host: the frames of its `meshmark serve` or `meshmark watch --web`."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final

import httpx

from meshmark.errors import MeshmarkError, quoted
from meshmark.watch.frames import Frame, FrameError, Header, frame_of, header_of, parse_line
from meshmark.web.client import FAILURES, HEADERS, NO_TLS, reason_of
from meshmark.web.export.pull import NodeAddress

SILENT_S: Final = 40.0  # s without a byte; servers send one every 15 s
HEADER_S: Final = 10.0  # time limit for the header of the frames, however slowly it arrives
_PATHS: Final = ("/live/api/frames", "/api/frames")  # paths of `serve` and of `watch --web`
_MAX_LINE: Final = 8 << 20  # B; the frames of 4096 CPUs have less than 1 MiB


class Remote:
    """The frames of another host; implements `live.Sampler`.

    Raises:
        MeshmarkError: The host does not send any frames.
    """

    def __init__(self, name: str, at: NodeAddress, token: str) -> None:
        self._name = name
        self._socket: socket.socket | None = None
        self._is_late = False
        self._transport = httpx.HTTPTransport(verify=NO_TLS, trust_env=False)
        headers = {**HEADERS, **({"authorization": f"Bearer {token}"} if token else {})}
        timeouts = {"connect": HEADER_S, "write": HEADER_S, "read": SILENT_S}
        # The time limit of a socket applies to each part, so that an answer may take for ever.
        timer = threading.Timer(HEADER_S, self._end_late)
        timer.daemon = True
        timer.start()
        try:
            for path in _PATHS:
                url = httpx.URL(scheme="http", host=at.host, port=at.port, path=path)
                extensions = {"timeout": timeouts, "trace": self._trace}
                response = self._transport.handle_request(
                    httpx.Request("GET", url, headers=headers, extensions=extensions)
                )
                if response.status_code != 404:
                    break
                response.close()
            if response.status_code != 200:
                raise MeshmarkError(f"HTTP {response.status_code}")
            self._events = _events(response.iter_raw())
            kind, line = next(self._events, ("", {}))
            if kind != "header":
                raise MeshmarkError("no live machine")
            self.header: Header = header_of(line)
        except (*FAILURES, ValueError, RecursionError, MeshmarkError) as error:
            self._close()
            reason = quoted(error, 300) if isinstance(error, MeshmarkError) else reason_of(error)
            if self._is_late or isinstance(error, httpx.TimeoutException):
                reason = f"no header of a live machine within {HEADER_S:g} s"
            raise MeshmarkError(f"{quoted(name)}: {at.host}:{at.port}: {reason}") from error
        finally:
            timer.cancel()

    def _trace(self, event: str, details: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self._socket = details["return_value"].get_extra_info("socket")
            if self._is_late:
                self.stop()

    def _end_late(self) -> None:
        self._is_late = True
        self.stop()

    def _close(self) -> None:
        self.stop()
        self._transport.close()

    def frames(self) -> Iterator[Frame]:
        """Yield frames until the stream ends.

        Raises:
            MeshmarkError: The stream ended with an error.
        """
        try:
            for kind, line in self._events:
                if kind == "frame":
                    yield frame_of(line, self.header)
                elif kind == "end":
                    raise MeshmarkError(f"{self._name}: {quoted(line.get('why', ''))}")
        except (*FAILURES, ValueError, RecursionError) as error:
            raise MeshmarkError(f"{self._name}: {reason_of(error)}") from error

    def stop(self) -> None:
        """End the connection; a reader that waits for a frame then stops."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, a: type[BaseException] | None, b: BaseException | None, c: TracebackType | None) -> None:
        self._close()


def _events(parts: Iterator[bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the kinds and the data of server-sent events.

    Raises:
        MeshmarkError: The answer ended with an error, or a line is too long or not from a live machine.
    """
    kind = ""
    for line in _lines(parts):
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode("ascii", "replace")
        elif line.startswith(b"data: "):
            yield kind, parse_line(line[6:], constants=False)


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the complete lines of an answer; raise FrameError if a line is too long."""
    begin = bytearray()  # of a line whose end has not arrived
    for part in parts:
        *ends, rest = part.split(b"\n")
        for end in ends:
            yield bytes(begin + end)
            begin.clear()
        begin += rest
        if len(begin) > _MAX_LINE:
            raise FrameError(f"frames: found a line of more than {_MAX_LINE >> 20} MiB")
