"""Measures the size of recordings and the speed of the page: parts `recording` and `browser` of bench/watch.py."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results import add_row

from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine
from meshmark.watch.frames import Frame, FrameMetric, Header, header_of
from meshmark.watch.recording import Recorder
from meshmark.web.hub import Hub
from meshmark.web.server import serve


def recording_rate() -> None:
    """Record the size of a recording per second of watching, while it grows and when it is finished."""
    metrics = tuple(FrameMetric(f"cpu.m{i}", "1", "a share", "time") for i in range(20))
    header = Header("host", "bench", "", 0.1, {"cpu": tuple({"name": str(i)} for i in range(64))}, metrics)
    draws = random.Random(1)
    walk = {m.name: [draws.random() for _ in range(64)] for m in metrics}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "r.parquet"
        with Recorder(out, header) as recorder:
            for n in range(1, 1201):
                for values in walk.values():
                    for i in range(64):
                        values[i] = min(1.0, max(0.0, values[i] + draws.gauss(0, 0.02)))
                recorder.add(
                    Frame(
                        n,
                        0.1 * n,
                        0.1,
                        {k: [round(x, 4) for x in v] for k, v in walk.items()},  # the format of the sampler
                    )
                )
            recorder.flush()
            growing = recorder.part.stat().st_size / 120e3
        rate = out.stat().st_size / 120e3
    what, notes = "recording, 64 components x 20 metrics at 10 Hz (random walks)", f"{growing:.1f} kB/s while it grows"
    add_row(what, "kB/s", rate, limits=(None, 20), notes=notes)
    print(
        f"64 components x 20 metrics at 10 Hz, random walks: {rate:.1f} kB/s in Parquet, {growing:.1f} while it grows"
    )


def live(header: Header, rate: float, seconds: float) -> Iterator[Frame]:
    """Yield frames of a machine on which everything changes at every tick."""
    draws = random.Random(2)
    start_s = time.monotonic()
    n = 0
    while (time_s := time.monotonic() - start_s) < seconds:
        n += 1
        values: dict[str, list[float | None]] = {
            m.name: [draws.random() for _ in range(header.count(m.component_class))] for m in header.metrics
        }
        yield Frame(n, time_s, 1 / rate, values, at=time.time())
        time.sleep(max(0.0, start_s + n / rate - time.monotonic()))


def browser(name: str, settings: list[str], rate: float) -> None:
    """Print how long the page takes for the frames of a machine in a real browser."""
    from playwright.sync_api import sync_playwright

    header = header_of({**header_line(find_machine(name, settings), 1 / rate), "source": "host"})
    ready = threading.Event()
    addresses: list[str] = []

    def say(address: str) -> None:
        addresses.append(address)
        ready.set()

    hub = Hub(header, live(header, rate, 40))
    threading.Thread(target=serve, args=(hub, "127.0.0.1", 0, "", say), daemon=True).start()
    ready.wait(10)
    parts = sum(header.count(k) for k in ("cpu", "memory", "link", "io"))
    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page: Any = chromium.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(addresses[0])
        page.locator("#state", has_text="live").wait_for()
        time.sleep(3)
        page.evaluate(
            """() => { window.tasks = []; window.lags = [];
                 new PerformanceObserver(l => l.getEntries().forEach(e => window.tasks.push(e.duration)))
                   .observe({entryTypes: ['longtask']});
                 // From the frame's time to the next picture after the clock on the page has changed.
                 new MutationObserver(() => requestAnimationFrame(() => window.lags.push(
                   Date.now() - 1000 * window.meshmarkAt))).observe(
                   document.getElementById('clock'), {childList: true, characterData: true, subtree: true}); }"""
        )
        time.sleep(15)
        tasks, lags_ms = page.evaluate("[window.tasks, window.lags]")
        chromium.close()
    lags_ms.sort()
    middle, high_ms = lags_ms[len(lags_ms) // 2], lags_ms[int(0.95 * len(lags_ms))]
    longest = max(tasks, default=0)
    notes = f"{len(lags_ms) / 15:.1f} pictures/s; sample to screen {middle:.0f} ms (95 %: {high_ms:.0f} ms)"
    add_row(f"page, {parts} components at {rate:g} Hz: long tasks", "", len(tasks), limits=(None, 0), notes=notes)
    print(
        f"{parts} components at {rate:g} Hz: {len(lags_ms) / 15:.1f} pictures/s, sample to screen {middle:.0f} ms "
        f"(95 %: {high_ms:.0f} ms); {len(tasks)} long tasks, longest {longest:.0f} ms"
    )
