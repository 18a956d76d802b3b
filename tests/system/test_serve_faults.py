"""`meshmark serve` under attack: files that break a listing, invalid requests, strangers, slow senders."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import urllib.parse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.cli.serve import LoadFolders
from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.scenario import run as load_run
from meshmark.watch.recording import Recorder
from meshmark.web.guard import SECURITY, VARIABLE, chosen_token, is_loopback
from meshmark.web.listener import free_socket
from meshmark.web.parts import RunRow
from meshmark.web.recordings import Recordings
from meshmark.web.server import NotFoundError
from support.made_site import BAD, Site, frame, header, no_runs, record, recordings, started, status_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recordings(tmp_path)


def has_headers(headers: dict[str, str]) -> bool:
    return set(SECURITY) <= set(headers)


# ------------------------------------------------------------------ what lies in the folders


def test_names_that_are_no_text_are_listed_without_an_address(folder: Path, tmp_path: Path) -> None:
    (folder / BAD).write_bytes((folder / "night.parquet").read_bytes())
    loads = tmp_path / "loads"
    for name in (os.fsdecode(b"bus\xff"), "two\nlines"):
        (loads / name).mkdir(parents=True)
        (loads / name / load_run.JOURNAL).write_text("{}\n")
    bad_name = os.fsdecode(b"run\xff")
    site = Site(
        folder, loads=LoadFolders([loads]), runs=lambda: [RunRow("survey", bad_name, "n\ud800", "", 1, ["latency"])]
    )
    status, body, _ = site.get("")
    text = body.decode()
    assert status == 200 and "night.parquet/" in text  # the other entries are unchanged
    row = re.search(r"<tr[^>]*>(?:(?!</tr>).)*caf.*?</tr>", text)
    assert row and "caf\\xe9.parquet" in row[0] and "not UTF-8" in row[0] and "href" not in row[0]
    assert "run\\xff" in text and "n\\ud800" in text
    status, body, _ = site.get("load/")
    assert status == 200 and b"bus\\xff" in body and b"not valid UTF-8" in body and b"two\\nlines" in body
    for path in ("recording/caf%E9.parquet/", "load/run/bus%FF", "report/run%FF"):
        assert site.get(path)[0] == 404


def test_a_folder_whose_name_is_no_text_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"n\xe4chte")
    assert Site(folder).get("")[0] == 200  # a missing recording, too
    folder.mkdir()
    status, body, _ = Site(folder).get("")
    assert status == 200 and b"n\\xe4chte" in body
    (folder / "cut.parquet").write_bytes(b"PAR1")
    site = Site(folder)
    assert site.get("")[0] == 200
    status, body, _ = site.get("recording/cut.parquet/api/header")
    assert status == 503 and body.count(b"\n") == 1


def test_what_is_no_file_is_listed_and_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe.parquet")  # reading it would wait for a writer
    (folder / "folder.part").mkdir()
    (folder / "circle.parquet").symlink_to(folder / "circle.parquet")
    (folder / "a.part").symlink_to("b.part")
    (folder / "b.part").symlink_to("a.part")
    (folder / "nothing.parquet").symlink_to("gone.parquet")
    (folder / "endless.parquet").symlink_to("/dev/zero")
    (folder / "two\nlines.parquet").mkdir()
    with socket.socket(socket.AF_UNIX) as sock, contextlib.chdir(folder):
        sock.bind("socket.parquet")
    rows = {r.name: r.broken for r in Recordings(folder).rows()[0]}
    assert rows.pop("night.parquet") == "" and len(rows) == 9
    assert set(rows.values()) == {"is not a file", "is a link that leads out of the folder"}
    site = Site(folder)
    assert site.get("")[0] == 200
    for name in map(urllib.parse.quote, rows):
        for path in (f"recording/{name}/", f"recording/{name}/api/header", f"recording/{name}/api/past"):
            status, body, headers = site.get(path)
            assert status == 404 and body.count(b"\n") == 1 and has_headers(headers), path


def test_a_recording_that_goes_between_the_list_and_its_reading_is_not_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_path = Recordings.path

    def goes(self: Recordings, name: str) -> Path:
        path = original_path(self, name)
        path.unlink()
        return path

    monkeypatch.setattr(Recordings, "path", goes)
    assert Recordings(folder).rows()[0][0].broken
    record(folder / "night.parquet")
    with pytest.raises(NotFoundError):
        asyncio.run(Recordings(folder).open("night.parquet"))


def test_a_folder_that_nobody_may_read_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: object) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuses)
    loads = LoadFolders([folder])
    status, body, _ = Site(folder, loads=loads).get("")
    assert status == 200 and body.count(b"Permission denied") == 2 and b"Simulate" in body
    assert Site(folder, loads=loads).get("load/")[0] == 503


@pytest.mark.parametrize(
    "why",
    [
        KeyError("pages"),
        RuntimeError("IO Error: a.parquet\nis cut"),
        RecursionError(),
        OSError(5, "Input/output error"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"),
    ],
)
def test_one_section_that_fails_leaves_the_others_alone(folder: Path, why: Exception) -> None:
    class Fails:
        def __call__(self) -> Any:
            raise why

        rows = page = compared = __call__

    status, body, _ = Site(folder, runs=Fails(), loads=Fails()).get("")
    text = body.decode()
    assert status == 200 and text.count("not available: ") == 2 and type(why).__name__ in text
    assert "night.parquet/" in text and "Simulate" in text
    site = Site(folder, runs=Fails(), loads=Fails())
    for path in ("report/r1", "load/", "load/run/r1", "load/compare?a=1&b=2"):
        status, body, headers = site.get(path)
        assert status == 503 and body.count(b"\n") == 1 and b"Traceback" not in body and has_headers(headers)


def test_a_header_from_elsewhere_cannot_spoil_the_page(folder: Path) -> None:
    for name, changes in (("half", {"machine": "n\ud800"}), ("nan", {"more": {"x": float("nan")}}), ("deep", {})):
        header_ = replace(header(), **changes)  # type: ignore[arg-type]
        if name == "deep":
            inner: list[Any] = []
            for _ in range(200):
                inner = [inner]
            header_ = replace(header_, more={"x": inner})
        with Recorder(folder / f"{name}.parquet", header_) as recorder:
            recorder.add(frame(1))
    site = Site(folder)
    assert site.get("")[0] == 200
    assert json.loads(site.get("recording/half.parquet/api/header")[1])["machine"] == "n\ud800"
    assert site.get("recording/nan.parquet/api/header")[0] == 503  # no browser could read it
    assert site.get("recording/deep.parquet/api/header")[0] == 200


def test_numbers_of_frames_have_no_limit(folder: Path) -> None:
    site = Site(folder)
    for first in ("9" * 30, "1" + "0" * 400, "18446744073709551616", "-" + "9" * 30):
        status, body, _ = site.get(f"recording/night.parquet/api/past?begin={first}&count={first}")
        assert (status, body) == (200, b"[]"), first
    assert site.get("recording/night.parquet/api/past?begin=" + "9" * 5000)[0] == 400


# ------------------------------------------------------------------ answers


def test_every_answer_of_an_error_has_the_headers(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def fails(*_: object) -> Any:
        raise KeyError("pages")

    def busy() -> Any:
        raise MeshmarkError("not here")

    site = Site(folder, simulate=fails, start=busy)
    closed_site = Site(folder, token="secret")
    answers = [
        (500, site.get("model/m1/swap/api/header")),
        (404, site.get("none")),
        (421, site.get("", Host="e.example")),
        (400, site.get("", Host="a b")),
        (401, closed_site.get("")),
        (503, site.get("live/api/header")),
        (413, site.get("", **{"Content-Length": "5"})),
        (416, site.get("page.css", Range="bytes=999999-")),
    ]
    methods = ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "X" * 300)
    answers += [(405, site.get("", method)) for method in methods]
    for status, (found, body, headers) in answers:
        assert found == status and has_headers(headers), (status, found, headers)
        assert body.count(b"\n") <= 1 and b"Traceback" not in body
    messages = [line for line in capfd.readouterr().err.splitlines() if line and not line.startswith("INFO:")]
    assert len(messages) == 1 and re.search(
        r"/model/m1/swap/api/header: KeyError: 'pages' \(\w+\.py:\d+\)", messages[0]
    )


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000, 431),
        (b"GET / HTTP/1.0\r\n\r\n", 421),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 300_000, 405),
    ],
)
def test_what_is_no_request_is_one_answer_and_the_end(
    folder: Path, sent: bytes, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", Site(folder, header_s=1).port or 0), 10) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(sent)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while chunk := sock.recv(65536):
                answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status) and b"HTTP/1.1" not in body
    assert all(f"\r\n{name}: {value}".encode() in head for name, value in SECURITY.items())
    assert capfd.readouterr().err == ""


def test_a_circle_of_links_among_static_files_is_not_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = tmp_path / "static"
    static.mkdir()
    (static / "index.html").write_text("<title>x</title>")
    (static / "circle.js").symlink_to("circle.js")
    (static / "out.js").symlink_to("/etc/passwd")
    monkeypatch.setattr("meshmark.web.server.STATIC", static)
    site = Site(folder)
    for name in (
        "circle.js",
        "out.js",
        "%00",
        "x" * 300,
        "x/" * 3000,
        "..",
        "..%2f..",
        "%5c..%5c..%5cx",
        "%ff%fe",
        "circle.js/x",
        "index.html/x",
        "con",
        "a%0d%0ab",
        "%2e%2e%2f" * 20 + "etc/passwd",
    ):
        for place in ("live/", "recording/night.parquet/", "model/m1/swap/"):
            status, body, headers = site.get(place + name)
            assert status == 404 and has_headers(headers) and b"root:" not in body, place + name


# ------------------------------------------------------------------ who is let in


@pytest.mark.parametrize(
    "host",
    [
        "LOCALHOST",
        "localhost.",
        "LocalHost.:1",
        "127.0.0.1",
        "127.1.2.3:80",
        "[::1]:9",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "127.0.0.1.",
    ],
)
def test_names_of_this_host_are_let_in(folder: Path, host: str) -> None:
    assert Site(folder).get("page.css", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example",
        "10.0.0.1",
        "",
        "[::2]",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "localhost..",
        "evil.localhost",
    ],
)
def test_other_names_are_not(folder: Path, host: str) -> None:
    assert Site(folder).get("page.css", Host=host)[0] == 421


@pytest.mark.parametrize("host", ["LOCALHOST", "localhost.", "127.1.2.3", "[::1]", "::1"])
def test_a_server_listens_under_every_name_of_this_host(host: str) -> None:
    if ":" in host and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    with free_socket(host, 0) as sock:
        assert is_loopback(sock.getsockname()[0])


@pytest.mark.parametrize("host", ["", ".", "[]", "[", "0", "0x0", "0.0", "00.0.0.0", "0.0.0.0.", "::0", "[0::0]"])
def test_all_interfaces_have_to_be_named_as_such(host: str) -> None:
    if ":" in host and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    if host == "0.0.0.0.":  # the name may end with a dot, like other names of hosts
        free_socket(host, 0).close()
        return
    with pytest.raises(UsageError, match=r"--host: found .*; allowed: an address") as raised:
        free_socket(host, 0)
    assert "0.0.0.0 or :: for all interfaces" in str(raised.value)


def test_an_address_that_is_none_is_one_line() -> None:
    for host in (
        " ",
        "a b",
        "x" * 300,
        "a\x00b",
        "1.2.3.4.5",
        "\ud800",
        "localhost\n",
        "::1%nothing",
        "http://localhost",
    ):
        with pytest.raises(UsageError, match=r"--port: |--host: ") as raised:
            free_socket(host, 0)
        assert str(raised.value).isprintable() and len(str(raised.value)) < 300


def test_a_token_is_random_unless_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    tokens = {chosen_token("", None, False) for _ in range(20)}
    assert len(tokens) == 20 and all(re.fullmatch(r"[A-Za-z0-9_-]{32}", t) for t in tokens)
    assert chosen_token("", None, True) == "" and chosen_token("word", None, False) == "word"
    monkeypatch.setenv(VARIABLE, "of-the-environment")
    assert chosen_token("", None, False) == "of-the-environment"
    assert chosen_token("", None, True) == "" and chosen_token("word", None, False) == "word"
    file = tmp_path / "token"
    file.write_text("of-the-file\n")
    file.chmod(0o600)
    assert chosen_token("", file, False) == "of-the-file"
    monkeypatch.setenv(VARIABLE, "two words")
    with pytest.raises(UsageError, match=VARIABLE) as raised:
        chosen_token("", None, False)
    assert "two words" not in str(raised.value)
    for duplicate in (("word", file, False), ("word", None, True), ("", file, True)):
        with pytest.raises(UsageError, match="allowed: one of"):
            chosen_token(*duplicate)


def test_a_token_file_is_its_owner_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("secret-word")
    for mode in (0o644, 0o640, 0o604, 0o620, 0o777):
        file.chmod(mode)
        with pytest.raises(UsageError, match=f"--token-file: .*found mode {mode:o}"):
            chosen_token("", file, False)
    file.chmod(0o400)
    assert chosen_token("", file, False) == "secret-word"
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "circle").symlink_to("circle")
    for name, data in (("empty", b""), ("binary", b"\xff\x00"), ("long", b"x" * 2000), ("lines", b"a\nb")):
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
    for name in ("pipe", "circle", "empty", "binary", "long", "lines", "none", "."):
        with pytest.raises(UsageError, match="--token-file") as raised:
            chosen_token("", tmp_path / name, False)
        assert "\n" not in str(raised.value)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UsageError, match="owner"):
        chosen_token("", file, False)


def test_a_browser_gets_a_cookie_and_an_address_without_the_token(folder: Path) -> None:
    site = Site(folder, token="secret")
    for path, location in (
        ("?token=secret", "./"),
        ("live/?token=secret", "./"),
        ("load?token=secret&a=%22&b", "./load?a=%22&amp;b"),
        ("/evil.example?token=secret", "./evil.example"),
        ("javascript:x?token=secret", "./javascript:x"),
    ):
        status, body, headers = site.get(path, Accept="text/html,*/*")
        assert status == 200 and f'content="0;url={location}"'.encode() in body and b"secret" not in body
        assert "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]
        assert headers["cache-control"] == "no-store" and headers["referrer-policy"] == "no-referrer"
    cookie = headers["set-cookie"].partition(";")[0]
    assert cookie == f"meshmark-{site.port}=secret"
    status, body, headers = site.get("", Accept="text/html", Cookie=cookie)
    assert status == 200 and b"night.parquet" in body and "set-cookie" not in headers
    # An old link in the history does not exclude a reader with the cookie; a wrong token gets no cookie.
    assert site.get("?token=old", Accept="text/html", Cookie=cookie)[0] == 200
    status, _, headers = site.get("?token=old", Accept="text/html")
    assert status == 401 and "set-cookie" not in headers and headers["www-authenticate"] == "Bearer"
    # Programs get the response at once.
    assert b"night.parquet" in site.get("?token=secret")[1]
    for scheme in ("Bearer", "bearer"):
        assert site.get("metrics", Authorization=f"{scheme} secret")[0] == 200
    assert site.get("metrics", Authorization="Basic secret")[0] == 401


def test_two_servers_of_one_host_leave_each_other_s_cookie(folder: Path) -> None:
    jar: dict[str, str] = {}
    sites = [Site(folder, token=token) for token in ("one", "two")]
    for site in sites:
        name, _, value = (
            site.get("?token=" + site.address.rpartition("=")[2])[2]["set-cookie"].partition(";")[0].partition("=")
        )
        jar[name] = value
    message = "; ".join(f"{name}={value}" for name, value in jar.items())
    assert [site.get("", Cookie=message)[0] for site in sites] == [200, 200]
    # A browser that uses a tunnel knows the port of its end only.
    assert sites[0].get("", Cookie=message, Host="localhost:9000")[0] == 401
    assert "meshmark-9000=" in sites[0].get("?token=one", Host="localhost:9000")[2]["set-cookie"]


@pytest.mark.parametrize("command", ["serve", "watch", "replay"])
def test_the_commands_print_a_link_with_a_token(folder: Path, tmp_path: Path, command: str) -> None:
    words = {
        "serve": ["serve", "--recordings", str(folder), "--store", str(no_runs(tmp_path))],
        "watch": ["watch", "--web", "--on", "gs1280-4", "--frames", "5"],
        "replay": ["replay", str(folder / "night.parquet"), "--web"],
    }[command]
    child, address = started(words)
    try:
        base, _, token = address.partition("?token=")
        assert len(token) == 32 and status_of(address) == 200 and status_of(base) == 401
        assert status_of(base, Authorization=f"Bearer {token}") == 200
        assert token not in Path(f"/proc/{child.pid}/cmdline").read_text()
    finally:
        child.kill()
        child.wait()


def test_the_variable_holds_a_token_and_no_token_switches_it_off(folder: Path) -> None:
    words = ["replay", str(folder / "night.parquet"), "--web"]
    for options, ends in (([], "/?token=of-mine"), (["--no-token"], "/")):
        child, address = started([*words, *options], **{VARIABLE: "of-mine"})
        try:
            assert address.endswith(ends) and status_of(address) == 200
        finally:
            child.kill()
            child.wait()
