"""Requests to other hosts: limits of their answers, and the hosts to which a request goes."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from meshmark.errors import MeshmarkError
from meshmark.web.export import otlp_client
from meshmark.web.export.intervals import Interval
from meshmark.web.export.otlp_client import Client, SendError
from meshmark.web.export.pull import NodeAddress
from meshmark.web.fleet.remote import Remote
from support.made_frames import header

MAP = b"event: header\ndata: " + json.dumps(header().to_json()).encode() + b"\n\n"


@contextlib.contextmanager
def answering(head: bytes, body: bytes = b"") -> Iterator[tuple[NodeAddress, list[bytes]]]:
    """Yield the address of a server with one answer to all requests, and the requests that it has received."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        requests.append(connection.recv(1 << 16))
                        connection.sendall(b"HTTP/1.1 " + head + b"\r\n\r\n" + body)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(1 << 16):  # closing with unread data would reset the connection
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield NodeAddress("127.0.0.1", listener.getsockname()[1]), requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def sent(at: NodeAddress) -> tuple[int, str]:
    return Client(header(), f"http://{at.host}:{at.port}/v1/metrics").send(Interval(1.0, 2.0))


def test_no_answer_is_decompressed() -> None:
    with answering(b"200 OK\r\ncontent-encoding: gzip", gzip.compress(MAP)) as (at, requests):
        assert sent(at) == (0, "")
        with pytest.raises(MeshmarkError, match="no live machine"):
            Remote("n1", at, "")
    assert len(requests) == 2 and all(b"accept-encoding: identity" in request.lower() for request in requests)


def test_the_rest_of_a_long_answer_of_a_collector_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_client, "MAX_ANSWER", 1000)
    with answering(b"200 OK\r\ncontent-length: 1000000000", bytes(2000)) as (at, _):
        assert sent(at) == (0, "")


def test_redirects_are_not_followed() -> None:
    with answering(b"200 OK", MAP) as (other, stray_requests):
        location = f"location: http://127.0.0.1:{other.port}/".encode()
        with answering(b"307 Temporary Redirect\r\n" + location) as (at, _):
            with pytest.raises(SendError, match="HTTP 307 Temporary Redirect"):
                sent(at)
            with pytest.raises(MeshmarkError, match="HTTP 307"):
                Remote("n1", at, "secret")
    assert not stray_requests


def test_nodes_are_reached_directly_and_collectors_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(b"200 OK") as (proxy, proxied), answering(b"200 OK", MAP) as (at, direct):
        for variable in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
        for variable in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(variable, raising=False)
        with Remote("n1", at, "secret") as node:
            assert node.header.machine == header().machine
        assert len(direct) == 1 and b"Bearer secret" in direct[0] and not proxied
        sent(at)
        assert len(direct) == 1 and proxied[0].startswith(b"POST http://127.0.0.1:")
