"""`meshmark serve` under attack: requests that never end, and arbitrary requests."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import resource
import socket
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message

from meshmark.cli.serve import LoadFolders
from meshmark.errors import MeshmarkError
from meshmark.web.guard import SECURITY
from meshmark.web.listener import MAX_WAITING_PER_ADDRESS
from meshmark.web.parts import ModelRow, RunRow, SiteParts
from meshmark.web.site import make_site
from support.made_site import BAD, Site, frame, header, no_runs, record, recordings, started, status_of
from support.waiting import until

Wanted = tuple[str, bytes, bytes, list[tuple[bytes, bytes]]]  # method, path, query, headers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recordings(tmp_path)


# ------------------------------------------------------------------ slow senders


def closed_by_server(sock: socket.socket) -> bool:
    sock.settimeout(0.0)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def half_open(port: int, sent: bytes = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 20)
    with contextlib.suppress(ConnectionError):
        sock.sendall(sent)
    return sock


def test_half_sent_requests_are_closed_in_the_end(folder: Path) -> None:
    site = Site(folder, header_s=0.5)
    request = b"GET /page.css HTTP/1.1\r\nHost: localhost\r\n"
    requests = [b"", b"G", request, request + b"\r\n" + request, request + b"\r\nG"]
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(half_open(site.port or 0, text)) for text in requests]
        reader = stack.enter_context(site.listen())
        for sock in socks:
            sock.settimeout(20)
            with contextlib.suppress(ConnectionError):
                while sock.recv(65536):  # a response may come first
                    pass
        assert not closed_by_server(reader) or reader.recv(1)  # a reader of complete responses stays connected


def test_a_request_for_the_head_of_a_stream_ends(folder: Path) -> None:
    site = Site(folder)
    connection = http.client.HTTPConnection("127.0.0.1", site.port or 0, timeout=120)
    for method, path in (("HEAD", "/live/api/frames"), ("GET", "/page.css"), ("HEAD", "/page.css")):
        connection.request(method, path)  # on one connection
        answer = connection.getresponse()
        assert answer.status == 200 and bool(answer.read()) == (method == "GET")
    connection.close()
    assert site.sampler.started == 0


def test_half_sent_requests_are_closed_though_bytes_keep_coming(folder: Path) -> None:
    site = Site(folder, header_s=0.5)
    with half_open(site.port or 0) as sock:

        def drips() -> bool:
            with contextlib.suppress(OSError):
                sock.send(b"x")
            return closed_by_server(sock)

        assert until(drips, 20)


def test_the_oldest_half_sent_request_makes_room(folder: Path) -> None:
    site = Site(folder, header_s=600)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(half_open(site.port or 0)) for _ in range(MAX_WAITING_PER_ADDRESS + 40)]
        assert until(lambda: sum(map(closed_by_server, socks)) == 40, 20)
        assert [closed_by_server(s) for s in socks] == [True] * 40 + [False] * MAX_WAITING_PER_ADDRESS
        assert site.get("")[0] == 200  # the page is served meanwhile
        socks[-1].settimeout(10)
        socks[-1].sendall(b"\r\n\r\n")
        assert socks[-1].recv(12) == b"HTTP/1.1 200"  # a slow sender that is fast enough


def test_the_connection_that_is_idle_longest_makes_room(folder: Path) -> None:
    site = Site(folder, token="secret", header_s=600)
    with contextlib.ExitStack() as stack:
        socks: list[socket.socket] = []
        for _ in range(MAX_WAITING_PER_ADDRESS + 40):
            socks.append(stack.enter_context(half_open(site.port or 0, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")))
            answer = b""
            while not answer.endswith(b"printed\n"):
                answer += socks[-1].recv(1000)
            assert answer.startswith(b"HTTP/1.1 401")  # a client without the token gets a response and stays connected
        assert until(lambda: sum(map(closed_by_server, socks)) == 40, 20)
        assert [closed_by_server(s) for s in socks] == [True] * 40 + [False] * MAX_WAITING_PER_ADDRESS


@pytest.mark.slow
def test_a_thousand_half_open_connections_leave_the_page_alone(folder: Path, tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard[1]), hard[1]))
    child, address = started(["serve", "--recordings", str(folder), "--store", str(no_runs(tmp_path)), "--no-token"])
    port = urllib.parse.urlsplit(address).port or 0
    statuses: list[int] = []
    socks: list[socket.socket] = []
    try:
        for n in range(1000):
            # From many addresses of loopback, which any user of this host can use.
            source = "127.0.0.1" if n % 2 else f"127.0.{n % 250}.9"
            sock = socket.create_connection(("127.0.0.1", port), 20, source_address=(source, 0))
            socks.append(sock)
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
            if n % 50 == 49:
                statuses.append(status_of(address))
        assert statuses == [200] * 20
        assert len(os.listdir(f"/proc/{child.pid}/fd")) < 600  # noqa: PTH208
        assert until(lambda: all(map(closed_by_server, socks)), 60)
        assert status_of(address) == 200
    finally:
        for sock in socks:
            sock.close()
        child.kill()
        child.wait()
        resource.setrlimit(resource.RLIMIT_NOFILE, hard)


# ------------------------------------------------------------------ any request


class Asked:
    """Sends requests to an application without a network, in a thread: browser tests leave a loop in this one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._loop = asyncio.new_event_loop()

    def get(self, app: ASGIApp, wanted: Wanted) -> tuple[int, list[str]]:
        """Return the status and the names of the headers."""
        return self._thread.submit(lambda: self._loop.run_until_complete(self._get(app, *wanted))).result(30)

    @staticmethod
    async def _get(
        app: ASGIApp, method: str, raw: bytes, query: bytes, headers: list[tuple[bytes, bytes]]
    ) -> tuple[int, list[str]]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
            "scheme": "http",
            "method": method,
            "root_path": "",
            "path": urllib.parse.unquote(raw.decode("ascii")),
            "raw_path": raw,
            "query_string": query,
            "headers": headers,
            "state": {},
        }
        await app(scope, receive, send)
        return sent[0]["status"], [name.decode() for name, _ in sent[0]["headers"]]

    def close(self) -> None:
        self._thread.submit(self._loop.close).result()
        self._thread.shutdown()


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    request = Asked()
    yield request
    request.close()


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> list[ASGIApp]:
    folder = tmp_path_factory.mktemp("any")
    record(folder / "night.parquet")
    (folder / BAD).write_bytes((folder / "night.parquet").read_bytes())

    def start() -> Any:
        raise MeshmarkError("not here")

    parts = SiteParts(
        machine=("this", "2 CPUs"),
        start=start,
        recordings=folder,
        models=[ModelRow("m1", "one")],
        workloads=["swap"],
        simulate=lambda name, _: (header(name), [frame(n) for n in range(1, 4)]),
        runs=lambda: [RunRow("survey", "run 1/α", "n042", "", 7, ["latency"], 1)],
        report=lambda _: b"<p>",
        compared=lambda a, b: b"<p>",
        loads=LoadFolders([folder]),
    )
    return [make_site(parts), make_site(parts, "secret")]


WORDS = (
    ".",
    "..",
    "live",
    "recording",
    "night.parquet",
    "model",
    "m1",
    "swap",
    "report",
    "run 1/α",
    "load",
    "run",
    "compare",
    "api",
    "header",
    "frames",
    "past",
    "metrics",
    "main.js",
    "page.css",
    "%",
    "\0",
    "\\",
    "x" * 300,
)
HOSTS = (
    "localhost",
    "LOCALHOST.:8642",
    "[::1]:1",
    "[",
    "]:[",
    "evil.example",
    "",
    ":",
    "localhost:99999",
    "a b",
    "\xff",
)
TOKENS = ("secret", "wrong", "\xff", "a;b")
MORE = {
    "cookie": [f"meshmark-80={t}" for t in TOKENS],
    "authorization": [f"Bearer {t}" for t in TOKENS],
    "accept": ["text/html"],
    "range": ["bytes=0-1", "bytes=9-1", "bytes=-", "x=1", "bytes=" + "0-0," * 99],
    "if-none-match": ["*", '"x"'],
    "if-modified-since": ["Thu, 01 Jan 1970 00:00:00 GMT", "yesterday"],
    "content-length": ["0", "5", "x"],
    "transfer-encoding": ["chunked"],
    "x-forwarded-for": ["\xff"],
}


@st.composite
def requests(draw: st.DrawFn) -> Wanted:
    def quoted(text: str) -> str:
        return urllib.parse.quote(text.encode("utf-8", "surrogateescape"), safe="")

    text = st.one_of(st.text(max_size=8), st.binary(max_size=6).map(os.fsdecode))
    path = "/" + "/".join(map(quoted, draw(st.lists(st.one_of(st.sampled_from(WORDS), text), max_size=6))))
    if draw(st.integers(0, 9)) == 0:
        path = draw(st.text("%/.\\?#[]@:09afAF", max_size=20))
    key = draw(st.sampled_from(["begin", "count", "name", "workload", "a", "b", "token", "x"]))
    value = draw(st.one_of(st.sampled_from(["0", "-1", "9" * 30, "m1", "swap", "secret"]), text))
    query = f"{key}={quoted(value)}" + draw(st.sampled_from(["", "&", "&=&%", "&token=secret"]))
    latin = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=12)
    names = draw(st.lists(st.sampled_from(sorted(MORE)), max_size=4, unique=True))
    headers = [("host", draw(st.one_of(st.sampled_from(HOSTS[:3]), st.sampled_from(HOSTS), latin)))]
    headers += [(name, draw(st.one_of(st.sampled_from(MORE[name]), latin))) for name in names]
    method = draw(st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "get", ""]))
    return method, path.encode(), query.encode(), [(k.encode(), v.encode("latin-1")) for k, v in headers]


def check(asked: Asked, apps: list[ASGIApp], wanted: Wanted) -> None:
    for app in apps:
        status, names = asked.get(app, wanted)
        assert status != 500 and status in {200, 206, 303, 304, 307, 400, 401, 404, 405, 413, 416, 421, 503}
        assert all(names.count(name) == 1 for name in SECURITY)


@settings(max_examples=150, deadline=None)
@given(wanted=requests())
def test_no_request_is_an_error_of_the_server(asked: Asked, apps: list[ASGIApp], wanted: Wanted) -> None:
    check(asked, apps, wanted)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(wanted=requests())
def test_no_request_of_thousands_is_an_error_of_the_server(asked: Asked, apps: list[ASGIApp], wanted: Wanted) -> None:
    check(asked, apps, wanted)
