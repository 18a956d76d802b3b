"""A small site of `meshmark serve` for tests, whose samplers are counted."""

from __future__ import annotations

import http.client
import os
import queue
import socket
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from meshmark.watch.frames import Frame, FrameMetric, Header
from meshmark.watch.recording import Recorder
from meshmark.web.listener import run
from meshmark.web.parts import ModelRow, RunRow, SiteParts
from meshmark.web.site import make_site
from support.cli import start
from support.waiting import listening, until

BAD = os.fsdecode(b"caf\xe9.parquet")  # not valid UTF-8


def header(machine: str = "test") -> Header:
    return Header(
        "host",
        machine,
        "2026-01-01T08:30:00Z",
        0.05,
        {"node": ({"name": "node 0", "number": 0},), "cpu": ({"name": "CPU 0", "node": 0, "number": 0},)},
        (FrameMetric("cpu.busy", "1", "busy", "time"),),
    )


def frame(n: int) -> Frame:
    return Frame(n, 0.05 * n, 0.05, {"cpu.busy": [0.5]}, at=1.7e9 + n)


class Count:
    """How often the sampler of a site was started, how many run, and how many frames they made."""

    started = running = frames = 0


class Sampler:
    """A sampler that `Count` counts."""

    def __init__(self, count: Count) -> None:
        count.started += 1
        count.running += 1
        self.count = count
        self.header = header()
        self._ended = threading.Event()

    def frames(self) -> Iterator[Frame]:
        n = 0
        while not self._ended.wait(0.05):
            n += 1
            self.count.frames += 1
            yield frame(n)

    def stop(self) -> None:
        self._ended.set()

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, a: type[BaseException] | None, b: BaseException | None, c: TracebackType | None) -> None:
        self.count.running -= 1


def address_of(serve: Callable[[Callable[[str], None]], None]) -> str:
    """Return the address of a server that runs in a thread; it reports the address to the argument of `serve`."""
    addresses: queue.Queue[str] = queue.Queue()
    threading.Thread(target=serve, args=(addresses.put,), daemon=True).start()
    return addresses.get(timeout=120)


class Site:
    """A site in a thread, on a free port."""

    def __init__(self, folder: Path, token: str = "", header_s: float = 10.0, **parts: Any) -> None:
        self.simulated: list[tuple[str, str]] = []
        self.reported: list[str] = []
        self.simulates = threading.Event()
        self.simulates.set()

        def simulate(name: str, workload: str) -> tuple[Header, list[Frame]]:
            self.simulated.append((name, workload))
            assert self.simulates.wait(20)
            return header(name), [frame(n) for n in range(1, 11)]

        def report(name: str) -> bytes:
            self.reported.append(name)
            return b"<!doctype html><title>the report</title><script>1</script>"

        self.sampler = Count()
        options = {
            "machine": ("this <machine>", "2 CPUs"),
            "start": lambda: Sampler(self.sampler),
            "recordings": folder,
            "models": [ModelRow("m1", "one"), ModelRow("m2", "two")],
            "workloads": ["hot_spot", "swap"],
            "runs": lambda: [RunRow("survey", "run 1/α", "n042", "2026-01-02T03:04:05Z", 7, ["latency"], 1)],
            "simulate": simulate,
            "report": report,
            "compared": lambda a, b: f"<!doctype html><title>{a} and {b}</title>".encode(),
            "idle_s": 0.4,
            **parts,
        }
        make = lambda: make_site(SiteParts(**options), token)  # noqa: E731
        self.address = address_of(lambda say: run(make, "127.0.0.1", 0, token, say, header_s))
        self.port = urllib.parse.urlsplit(self.address).port
        assert self.port
        assert until(lambda: listening(self.address))

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
        """Request exactly this path: no client code normalises it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port or 0, timeout=120)
        try:
            connection.request(method, "/" + path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            connection.close()

    def listen(self, path: str = "live/api/frames") -> socket.socket:
        """Open a stream of events in a thread that discards what it reads."""
        sock = socket.create_connection(("127.0.0.1", self.port or 0), 10)
        sock.sendall(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return sock


def record(path: Path, frames: int = 20) -> None:
    with Recorder(path, header("n042")) as recorder:
        for n in range(1, frames + 1):
            recorder.add(frame(n))


def recordings(folder: Path) -> Path:
    """Return a folder with one recording."""
    recordings_folder = folder / "recordings"
    recordings_folder.mkdir()
    record(recordings_folder / "night.parquet")
    return recordings_folder


def started(words: list[str], **env: str) -> tuple[subprocess.Popen[str], str]:
    """Start a command that serves on a free port, and return it with the address that it printed."""
    child = start(*words, "--port", "0", env=env, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def no_runs(folder: Path) -> Path:
    """Return an empty store below a folder; commands that only read a store refuse one that does not exist."""
    (folder / "none").mkdir()
    return folder / "none"


def status_of(address: str, **headers: str) -> int:
    """Return the status of a response."""
    parts = urllib.parse.urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=120)
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""), headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()
