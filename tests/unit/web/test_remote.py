"""Maps of other hosts: invalid or endless answers end in one line within the time limit."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from meshmark.errors import MeshmarkError
from meshmark.web.export.pull import NodeAddress
from meshmark.web.fleet import remote
from meshmark.web.fleet.remote import Remote
from support.made_frames import header

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
DEEP = b"[" * 100_000
HEADER = header().to_json()


def event(kind: str, line: object) -> bytes:
    data = line if isinstance(line, bytes) else json.dumps(line).encode()
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


@contextlib.contextmanager
def answering(answer: bytes, drip: bytes = b"") -> Iterator[NodeAddress]:
    """Yield the address of a server with one answer to all requests, which then sends `drip` repeatedly or closes."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(answer)
                while drip and not stopped.wait(0.02):
                    connection.sendall(drip)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield NodeAddress("127.0.0.1", listener.getsockname()[1])
    finally:
        stopped.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (OK + event("header", DEEP), "too deeply nested"),
        (OK + event("header", b'{"type":"header","format":1,"more":' * 50_000), "too deeply nested"),
        (OK + event("header", b"[]"), "must be a JSON object"),
        (OK + event("header", b"\xff"), "must be JSON"),
        (OK + event("header", {**HEADER, "period_s": 10**400}), "period_s"),
        (OK + event("header", b'{"type":"header","format":1,"period_s":NaN}'), "must be JSON"),
        (OK + event("header", {**HEADER, "components": {"cpu": 7}}), "invalid value"),
        (OK + event("header", {**HEADER, "components": {"cpu": [{"name": []}]}}), "cpu 0: name: found"),
        (OK + event("frame", {}), "no live machine"),
        (OK, "no live machine"),
        (OK + b"data: " + b"x" * (9 << 20), "found a line of more than 8 MiB"),
        (OK + b"x" * (9 << 20), "found a line of more than 8 MiB"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "HTTP 404"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", "HTTP 302"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "HTTP 204"),
        (b"SSH-2.0-OpenSSH\r\n", "without sending a response"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000 + b"\r\n", "too long"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n", "Content-Length"),
        (b"", ":"),
    ],
)
def test_an_answer_that_is_no_map_is_one_line(answer: bytes, message: str) -> None:
    with answering(answer) as target, pytest.raises(MeshmarkError, match=message) as raised:
        Remote("n1", target, "secret")
    assert str(raised.value).startswith("n1: 127.0.0.1:") and len(str(raised.value)) < 400
    assert str(raised.value).isprintable() and "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "drip"),
    [
        (b"", b"x"),  # a status line that never ends
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 1000000000\r\n\r\n", b"x"),
        (OK, b": still here\n\n"),
        (OK + b"event: header\ndata: ", b"["),
    ],
)
def test_an_answer_that_never_ends_is_ended(answer: bytes, drip: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "HEADER_S", 0.5)
    with (
        answering(answer, drip) as target,
        pytest.raises(MeshmarkError, match=r"no header of a live|404"),
    ):
        Remote("n1", target, "")


def test_frames_that_are_none_end_the_stream_with_one_line() -> None:
    sound = {"seq": 1, "t_s": 1, "window_s": 1, "values": {}}
    for line in (DEEP, {**sound, "seq": 10**400}, {**sound, "values": {"cpu.busy": [[]]}}, b'{"t_s":Infinity}'):
        with answering(OK + event("header", HEADER) + event("frame", sound) + event("frame", line)) as target:
            with Remote("n1", target, "") as node:
                frames = node.frames()
                assert next(frames).seq == 1
                with pytest.raises(MeshmarkError, match=r"n1: |frames: ") as raised:
                    next(frames)
            assert "\n" not in str(raised.value)


def test_a_host_that_is_no_name_is_one_line() -> None:
    for host in ("", "a b", "x" * 70, "a\x00b", "..", "n1\r\nx: y"):
        with pytest.raises(MeshmarkError, match="n1: "):
            Remote("n1", NodeAddress(host, 9), "secret")
