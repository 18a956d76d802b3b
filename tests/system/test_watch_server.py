"""The server of the live map: the page, its header and frames, admission, late and suspended readers."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.watch.frames import Frame
from meshmark.web.export.openmetrics import Window
from meshmark.web.export.openmetrics import text as openmetrics_text
from meshmark.web.hub import Hub, StoredFrames
from meshmark.web.server import make_app, serve
from support.made_frames import frame, header
from support.waiting import listening, until


class Served:
    """A server in a thread, on a free port."""

    def __init__(self, what: Hub | StoredFrames, token: str = "") -> None:
        self.ready = threading.Event()
        self.address = ""

        def say(address: str) -> None:
            self.address = address
            self.ready.set()

        self.thread = threading.Thread(target=serve, args=(what, "127.0.0.1", 0, token, say), daemon=True)
        self.thread.start()
        assert self.ready.wait(10)
        assert until(lambda: listening(self.address))

    def get(self, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        base = self.address.partition("?")[0]
        request = urllib.request.Request(base + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read(), dict(error.headers)


def past(count: int = 20) -> StoredFrames:
    frames = [frame(n, 0.1, None, 0.55, 1.0) for n in range(1, count + 1)]
    return StoredFrames(header(), count, lambda begin, n: frames[begin : begin + n])


def test_the_page_its_header_and_frames_are_served() -> None:
    server = Served(past())
    status, page, headers = server.get("")
    assert status == 200 and b"main.js" in page
    assert "default-src 'self'" in headers["content-security-policy"]
    answer = json.loads(server.get("api/header")[1])
    assert answer["live"] is False and answer["frames"] == 20 and len(answer["map"]["boxes"]) == 4
    document = json.loads(server.get("api/past?begin=18&count=50")[1])
    assert [f["seq"] for f in document] == [19, 20]
    assert server.get("api/past?begin=x")[0] == 400
    assert server.get("api/past?begin=-5&count=99999")[0] == 200
    assert server.get("api/frames")[0] == 404


@pytest.mark.parametrize(
    "path", ["../server.py", "%2e%2e/server.py", "..%2f..%2fcli.py", "//etc/passwd", "api/../../hub.py"]
)
def test_no_path_leads_out_of_the_page(path: str) -> None:
    status, text, _ = Served(past()).get(path)
    assert status in {400, 404, 405}
    assert b"import" not in text and b"root:" not in text


def test_only_the_right_host_and_token_are_let_in() -> None:
    assert Served(past()).get("api/header", Host="evil.example:80")[0] == 421
    server = Served(past(), token="secret")
    assert server.get("api/header")[0] == 401
    assert server.get("api/header?token=wrong")[0] == 401
    status, _, headers = server.get("api/header?token=secret")
    assert status == 200
    assert server.get("api/header", Cookie=headers["set-cookie"].partition(";")[0])[0] == 200
    with pytest.raises(UsageError, match="--no-token"):
        serve(past(), "0.0.0.0", 0, "", lambda _: None)


def test_live_frames_come_as_events_and_late_readers_get_the_past() -> None:
    go = threading.Event()

    def frames() -> Iterator[Frame]:
        for n in range(1, 4):
            yield frame(n, 0.1, 0.2, 0.3, 0.4)
        go.wait(10)
        yield frame(4, 0.5, 0.2, 0.3, 0.4)

    server = Served(Hub(header(), frames()))
    base = server.address
    with urllib.request.urlopen(base + "api/frames", timeout=120) as answer:
        events = []
        while len(events) < 6:
            text = answer.readline().decode()
            if text.startswith("data: "):
                events.append(json.loads(text[6:]))
            if len(events) == 4:
                go.set()
    assert [e["type"] for e in events[:5]] == ["header", "frame", "frame", "frame", "frame"]
    assert events[4]["values"]["cpu.busy"][0] == 0.5
    assert "ended" in events[5]["why"]


def test_monitoring_systems_get_summaries_and_no_zeros_for_unknown() -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    window = Window(header())
    for n in range(1, 401):  # 40 s: only the last fifteen count
        window.add(frame(n, 0.9 if n <= 200 else 0.1 + 0.002 * (n % 10), None, 0.5, 1.0))
    families = {f.name: f for f in text_string_to_metric_families(openmetrics_text(window).decode())}
    values = {(s.labels["component"], s.labels["stat"]): s.value for s in families["meshmark_cpu_busy_ratio"].samples}
    assert values["CPU 0", "mean"] == pytest.approx(0.109, abs=0.001)
    assert values["CPU 0", "max"] == pytest.approx(0.118) and values["CPU 0", "p95"] == pytest.approx(0.118)
    assert not [k for k in values if k[0] == "CPU 1"]
    assert families["meshmark_cpu_m0_bytes_per_second"].unit == "bytes_per_second"
    server = Served(Hub(header(), iter([frame(1, 0.1, None, 0.3, 0.4)])))
    status, body, headers = server.get("metrics")
    assert status == 200 and b"# EOF" in body and "openmetrics-text" in headers["content-type"]
    assert Served(past()).get("metrics")[0] == 404


def test_a_reader_that_sleeps_does_not_hold_up_the_stream() -> None:
    stopped = threading.Event()

    def frames() -> Iterator[Frame]:
        for n in range(1, 3000):
            yield frame(n, 0.1, 0.2, 0.3, 0.4)
        stopped.set()

    hub = Hub(header(), frames())

    async def sleepy() -> int:
        events = hub.events()
        await anext(events)
        hub.start()
        await asyncio.to_thread(stopped.wait, 30)
        await anext(events)
        return json.loads((await anext(events)).partition("data: ")[2])["seq"]  # type: ignore[no-any-return]

    # Use a new thread: if tests with a browser ran before, this thread has a loop that never ends.
    with ThreadPoolExecutor(1) as elsewhere:
        last = elsewhere.submit(lambda: asyncio.run(asyncio.wait_for(sleepy(), 30))).result()
    assert last > 2900  # the oldest frames were dropped, not the newest


def test_a_page_that_is_not_built_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshmark.web.server.STATIC", tmp_path)
    with pytest.raises(MeshmarkError, match="not built"):
        make_app(past())
