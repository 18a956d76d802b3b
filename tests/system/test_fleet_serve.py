"""`meshmark fleet serve`: nodes send their metrics, pages show them, and invalid requests are refused."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import signal
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshmark.web.export.otlp_receiver import JSON, MAX_BODY, PROTOBUF
from meshmark.web.fleet.fleet import MAX_READERS
from meshmark.web.guard import SECURITY
from support.cli import meshmark, start
from support.made_push import text_of
from support.made_site import no_runs, started
from support.waiting import until

POST = "v1/metrics"


class Server:
    """The command for the fleet of a folder, on a free port."""

    def __init__(self, folder: Path, *options: str, token: str = "secret", **env: str) -> None:
        (folder / "fleet.toml").write_text('cluster = "hawk"\n[racks]\nr1 = "n[1-3]"\nr2 = "n[4-6]"\n')
        words = ["fleet", "serve", str(folder), *options, *([] if token else ["--no-token"])]
        self.child, self.address = started(words, **({"MESHMARK_TOKEN": token} if token else {}), **env)
        self.token = token
        self.port = urllib.parse.urlsplit(self.address).port or 0

    def ask(
        self, method: str, path: str, body: bytes | None = None, source: str = "127.0.0.1", **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120, source_address=(source, 0))
        request_headers = {k.replace("_", "-"): v for k, v in headers.items()}
        bearer = {"authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            connection.request(method, "/" + path, body, {**bearer, **request_headers})
            answer = connection.getresponse()
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            connection.close()

    def post(self, body: bytes, kind: str = JSON, source: str = "127.0.0.1", **headers: str) -> tuple[int, bytes]:
        return self.ask("POST", POST, body, source, content_type=kind, **headers)[:2]

    def node(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.ask("GET", f"api/nodes/{name}")[1])
        return document


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server_ = Server(tmp_path_factory.mktemp("fleet"))
    yield server_
    server_.child.kill()
    server_.child.wait()


def events(server: Server, metric: str, until_has: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of a page up to the first one that contains a text."""
    received = []
    with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
        sock.sendall(f"GET /api/live?metric={metric}&token={server.token} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        kind = ""
        for line in sock.makefile("r", encoding="utf-8"):
            if line.startswith("event: "):
                kind = line[7:].strip()
            elif line.startswith("data: "):
                received.append((kind, json.loads(line[6:])))
                if until_has in line:
                    break
    return received


def test_what_a_node_sends_is_on_the_page(server: Server) -> None:
    assert server.post(text_of("n1-0123abcd", cpu_busy=0.25)) == (200, b"{}")
    first, *later_events = events(server, "cpu.busy", '"values":[0.25')
    kind, layout = first
    assert kind == "layout" and layout["names"][:6] == [f"n{i}" for i in range(1, 7)] and layout["cluster"] == "hawk"
    assert [(r["name"], r["nodes"]) for r in layout["racks"][:2]] == [("r1", [0, 1, 2]), ("r2", [3, 4, 5])]
    change = later_events[-1][1]
    index = change["nodes"].index(0)
    assert change["values"][index] == 0.25 and change["states"][index] == "2" and change["counts"]["live"] >= 1
    node = server.node("n1")
    assert node["past"]["cpu.busy"] == [0.25] and node["source"] == "127.0.0.1" and node["age_s"] < 60
    status, body, headers = server.ask("GET", "api/nodes")
    lines = [json.loads(line) for line in body.splitlines()]
    assert status == 200 and lines[0]["type"] == "fleet" and len(lines) >= 7
    assert lines[1]["node"] == "n1" and lines[1]["values"] == {"cpu.busy": 0.25} and set(SECURITY) <= set(headers)
    page = server.ask("GET", "")[1]
    assert b"fleet.js" in page and server.ask("GET", "fleet.js")[0] == 200
    assert server.ask("GET", "api/nodes/n99")[0] == 404


def test_a_real_sampler_sends_its_summary(server: Server, tmp_path: Path) -> None:
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20secret"}
    url = f"http://127.0.0.1:{server.port}"
    completed = meshmark(
        "watch", "--otlp", url, "--summary", "--interval", "1", "--rate", "5", "--duration", "1", env=env
    )
    assert completed.returncode == 0 and "0 lost" in completed.stderr and "rejected" not in completed.stderr, (
        completed.stderr
    )

    def strangers() -> list[dict[str, Any]]:  # this host is not in fleet.toml
        nodes = [json.loads(line) for line in server.ask("GET", "api/nodes")[1].splitlines()[1:]]
        return [n for n in nodes if not n["of_fleet"] and n["state"] == "live"]

    assert until(strangers, 20)
    (host,) = strangers()
    assert 0 <= host["values"]["cpu.busy"] <= 1 and host["values"]["node.total"] > 1e6


def test_nodes_are_asked_and_their_maps_open(tmp_path: Path) -> None:
    words = ["serve", "--recordings", str(tmp_path), "--store", str(no_runs(tmp_path)), "--rate", "5"]
    node, address = started(words, MESHMARK_TOKEN="of nodes".replace(" ", "-"))
    token = tmp_path / "token"
    token.write_text("of-nodes\n")
    token.chmod(0o600)
    port = urllib.parse.urlsplit(address).port
    sets = ["--pull", f"127.0.0.1:{port}", "--pull", "127.0.0.3:9", "--node-token-file", str(token)]
    server = Server(tmp_path, "--interval", "1s", *sets)
    try:
        assert until(lambda: server.node("127.0.0.1").get("state") == "live", 60)
        state = server.node("127.0.0.1")
        assert state["values"]["node.total"] > 1e6 and 0 <= state["values"]["cpu.busy"] <= 1
        assert until(lambda: "refused" in server.node("127.0.0.3")["why"], 60)
        assert server.node("127.0.0.3")["state"] == "never"
        assert server.node("n1")["map"] == "" and server.ask("GET", "node/n1/")[0] == 404
        path = state["map"]
        assert b"main.js" in server.ask("GET", path)[1]
        header = json.loads(server.ask("GET", path + "api/header")[1])
        assert header["live"] is True and header["components"]["cpu"] and "map" in header
        with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
            sock.sendall(f"GET /{path}api/frames?token=secret HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert any(line.startswith("event: frame") for line in sock.makefile("r", encoding="utf-8"))
        node.kill()  # the page shows it
        assert until(lambda: "refused" in server.node("127.0.0.1")["why"], 60)
        assert until(lambda: server.ask("GET", path + "api/header")[0] == 503, 60)
        server.child.send_signal(signal.SIGTERM)
        server.child.wait(20)
    finally:
        for child in (node, server.child):
            child.kill()
            child.wait()


def test_a_node_that_lies_about_its_name_is_refused_and_named(server: Server) -> None:
    assert server.post(text_of("n5", cpu_busy=0.25)) == (200, b"{}")
    status, body = server.post(text_of("n5", cpu_busy=0.99), source="127.0.0.2")
    partial = json.loads(body)["partialSuccess"]
    assert status == 200 and partial["rejectedDataPoints"] == "1"
    assert partial["errorMessage"] == "127.0.0.2 reports as n5, which is 127.0.0.1"
    assert server.node("n5")["values"] == {"cpu.busy": 0.25} and "127.0.0.2" in server.node("n5")["why"]


def test_without_a_token_pages_are_open_and_nodes_are_refused(tmp_path: Path) -> None:
    open_to_users = Server(tmp_path, token="")
    try:
        assert open_to_users.ask("GET", "api/nodes")[0] == 200
        for headers in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer x"}):
            status, body = open_to_users.post(text_of("n1", cpu_busy=0.5), **headers)
            assert status == 403 and b"--node-token-file" in body
        assert open_to_users.node("n1")["age_s"] is None
    finally:
        open_to_users.child.kill()
        open_to_users.child.wait()


def test_without_a_token_nodes_send_with_that_of_nodes(tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text("of-nodes\n")
    token.chmod(0o600)
    server = Server(tmp_path, "--node-token-file", str(token), token="")
    try:
        body = text_of("n1", cpu_busy=0.5)
        assert [server.post(body, authorization=bearer)[0] for bearer in ("", "Bearer x", "Bearer of-nodes")] == [
            401,
            401,
            200,
        ]
        assert server.ask("GET", "api/nodes")[0] == 200 and server.node("n1")["values"] == {"cpu.busy": 0.5}
    finally:
        server.child.kill()
        server.child.wait()


def test_the_token_of_nodes_is_never_sent_to_an_address_that_a_push_came_from(tmp_path: Path) -> None:
    """A user of the head node pushes as a node of the fleet and as another one, and waits at its port for the token."""
    with socket.create_server(("127.0.0.1", 0)) as trap:
        port = trap.getsockname()[1]
        (token := tmp_path / "token").write_text("of-nodes\n")
        token.chmod(0o600)
        server = Server(tmp_path, "--node-port", str(port), "--node-token-file", str(token))
        try:
            for name in ("n1", "stranger", "127.0.0.1", "localhost"):
                assert server.post(text_of(name, cpu_busy=0.5))[0] == 200
                server.ask("GET", f"node/{name}/api/header")
            assert server.node("stranger")["map"] == "" and server.node("n1")["map"] == "node/n1/"
            trap.setblocking(False)
            with pytest.raises(BlockingIOError):
                trap.accept()
        finally:
            server.child.kill()
            server.child.wait()


def test_the_map_of_a_hostile_node_is_unavailable_with_the_reason(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\n\r\nevent: header\ndata: " + b"[" * 100_000 + b"\n\n"
    with socket.create_server(("127.0.0.1", 0)) as node:

        def answer_all() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = node.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(1 << 16)
                        connection.sendall(answer)

        thread = threading.Thread(target=answer_all)
        thread.start()
        port = node.getsockname()[1]
        server = Server(tmp_path, "--pull", f"127.0.0.1:{port}", "--interval", "1h")
        try:
            status, body, _ = server.ask("GET", "node/127.0.0.1/api/header")
            assert status == 503 and body.count(b"\n") == 1
            assert f"127.0.0.1:{port}: frames: found '[[".encode() in body and b"too deeply nested" in body
        finally:
            server.child.kill()
            server.child.wait()
            node.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_pushes_that_would_take_long_are_refused_and_readers_are_answered(server: Server) -> None:
    bombs = [
        (gzip.compress(b"\x0a\x00" * (15 << 20), 1), PROTOBUF),
        (gzip.compress(b'{"resourceMetrics":[' + b"{}," * 2_000_000 + b"{}]}", 1), JSON),
        (gzip.compress(bytes(33 << 20), 1), PROTOBUF),
    ]
    assert all(len(body) < 200_000 for body, _ in bombs)
    statuses: list[int] = []

    def push(body: bytes, kind: str) -> None:
        statuses.append(server.post(body, kind, content_encoding="gzip")[0])

    threads = [threading.Thread(target=push, args=bomb) for bomb in bombs * 3]
    for thread in threads:
        thread.start()
    answers = 0
    while any(thread.is_alive() for thread in threads):
        assert server.ask("GET", "api/nodes/n1")[0] == 200
        answers += 1
    assert statuses == [413] * 9 and answers > 0


def test_who_has_no_token_is_refused(server: Server) -> None:
    for token in ("", "Bearer wrong"):
        assert server.ask("POST", POST, text_of("n6", cpu_busy=0.5), authorization=token, content_type=JSON)[0] == 401
    assert server.node("n6")["state"] == "never"
    assert server.ask("GET", "api/nodes", authorization="")[0] == 401


@pytest.mark.parametrize(
    ("method", "path", "kind", "body", "status"),
    [
        ("POST", POST, "text/plain", b"{}", 415),  # a page of another site could make a browser send this
        ("POST", POST, PROTOBUF, b"\xff\xff", 400),
        ("POST", POST, JSON, b"{", 400),
        ("POST", POST, JSON, bytes(MAX_BODY + 1), 413),
        ("POST", "api/nodes", JSON, b"{}", 405),
        ("POST", "v1/traces", JSON, b"{}", 405),
        ("PUT", POST, JSON, b"{}", 405),
        ("GET", POST, JSON, None, 405),
        ("GET", "api/nodes", JSON, b"{}", 413),
    ],
)
def test_requests_that_are_refused(
    server: Server, method: str, path: str, kind: str, body: bytes | None, status: int
) -> None:
    try:
        response, text, headers = server.ask(method, path, body, content_type=kind)
    except (BrokenPipeError, ConnectionResetError):
        assert status == 413  # the server does not read the rest
        return
    assert response == status and text.count(b"\n") == 1 and set(SECURITY) <= set(headers)


def test_a_body_without_a_length_is_limited_too(server: Server) -> None:
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    head = f"POST /{POST}?token=secret HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
        sock.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(MAX_BODY // (1 << 16) + 2):
                sock.sendall(chunk)
            assert sock.recv(100).startswith(b"HTTP/1.1 413")
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert server.post(gzip.compress(text_of("n2", cpu_busy=0.5)), content_encoding="gzip") == (200, b"{}")


def test_pages_that_never_read_and_too_many_of_them(server: Server) -> None:
    socks = []
    try:
        for _ in range(MAX_READERS):
            sock = socket.create_connection(("127.0.0.1", server.port), 20)
            socks.append(sock)
            sock.sendall(f"GET /api/live?token={server.token} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert sock.recv(12) == b"HTTP/1.1 200"
        assert until(lambda: server.ask("GET", "api/live")[0] == 503)
        assert server.post(text_of("n3", cpu_busy=0.5)) == (200, b"{}")  # nodes still get responses
    finally:
        for sock in socks:
            sock.close()
    assert until(lambda: events(server, "", "counts"))


def test_the_command_says_who_reports_and_ends_cleanly(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text('nodes = "n[1-3]"\n')
    child = start("fleet", "serve", tmp_path, "--port", "0", env={"MESHMARK_TOKEN": "t"})
    assert child.stdout is not None and child.stderr is not None
    address = child.stdout.readline().strip()
    assert address.endswith("/?token=t")
    lines = [child.stderr.readline() for _ in range(2)]
    assert "0 of 3 nodes report (0 with open cases), 0 silent, 3 never seen" in lines[1]
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert child.returncode in {0, 130} and "Traceback" not in errors


def test_a_fleet_that_is_not_there_and_a_file_with_a_typo_are_named(tmp_path: Path) -> None:
    completed = meshmark("fleet", "serve", tmp_path / "none", "--port", "0")
    assert completed.returncode == 2 and "FOLDER" in completed.stderr and completed.stderr.count("\n") <= 2
    (tmp_path / "fleet.toml").write_text('[racks]\nr1 = "n[1-"\n')
    completed = meshmark("fleet", "serve", tmp_path, "--port", "0")
    assert completed.returncode == 2 and "racks.r1" in completed.stderr and "Traceback" not in completed.stderr
