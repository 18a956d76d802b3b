"""What watching costs and how quick it is: figures for bench/README.md.

    .venv/bin/python bench/watch.py

Costs are differences between a long and a short run, so start-up does not count. The browser is Chromium without a
window; long tasks are what it reports itself (over 50 ms).
"""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from meshmark.machine.native import find_native
from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine
from meshmark.watch.frames import Frame, Header, Metric, header_of
from meshmark.watch.recording import Recorder
from meshmark.web.hub import Hub
from meshmark.web.server import serve


def cpu_of(words: list[str]) -> float:
    """CPU time of a command and its children, s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def costs() -> None:
    import os

    cpus = len(os.sched_getaffinity(0))
    sampler = str(find_native("meshmark-watch", "MESHMARK_WATCH"))
    with tempfile.TemporaryDirectory() as folder:
        for rate in (1, 10):

            def record(seconds: int, rate: int = rate, folder: str = folder) -> list[str]:
                out = str(Path(folder) / f"{rate}-{seconds}-{time.monotonic_ns()}.parquet")
                line = "from meshmark.cli import main; main()"
                return [sys.executable, "-c", line, "record", "--rate", str(rate), "--duration", str(seconds),
                        "--out", out]  # fmt: skip

            def sample(seconds: int, rate: int = rate) -> list[str]:
                return [sampler, "--rate", str(rate), "--duration", str(seconds)]

            makers: list[tuple[str, Callable[[int], list[str]]]] = [("sampler", sample), ("with recording", record)]
            for name, make in makers:
                short, long = cpu_of(make(4)), cpu_of(make(44))
                share = (long - short) / 40
                print(f"{rate:3} Hz {name:15} {100 * share:6.3f} % of one CPU, {100 * share / cpus:6.3f} % of {cpus}")


def recording_rate() -> None:
    metrics = tuple(Metric(f"cpu.m{i}", "1", "a share", "time") for i in range(20))
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
                recorder.add(Frame(n, 0.1 * n, 0.1, {k: list(v) for k, v in walk.items()}))
            recorder.flush()
            growing = recorder.part.stat().st_size / 120e3
        whole = out.stat().st_size / 120e3
    print(
        f"64 components x 20 metrics at 10 Hz, random walks: {whole:.1f} kB/s in Parquet, {growing:.1f} while it grows"
    )


def live(header: Header, rate: float, seconds: float) -> Iterator[Frame]:
    """Frames of a machine on which everything changes at every tick."""
    draws = random.Random(2)
    begin = time.monotonic()
    n = 0
    while (at := time.monotonic() - begin) < seconds:
        n += 1
        values: dict[str, list[float | None]] = {
            m.name: [draws.random() for _ in range(header.count(m.component_class))] for m in header.metrics
        }
        yield Frame(n, at, 1 / rate, values, at=time.time())
        time.sleep(max(0.0, begin + n / rate - time.monotonic()))


def browser(name: str, settings: list[str], rate: float) -> None:
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
        tasks, lags = page.evaluate("[window.tasks, window.lags]")
        chromium.close()
    lags.sort()
    middle, most = lags[len(lags) // 2], lags[int(0.95 * len(lags))]
    longest = max(tasks, default=0)
    print(
        f"{parts} components at {rate:g} Hz: {len(lags) / 15:.1f} pictures/s, sample to screen {middle:.0f} ms "
        f"(95 %: {most:.0f} ms); {len(tasks)} long tasks, longest {longest:.0f} ms"
    )


if __name__ == "__main__":
    recording_rate()
    browser("gs1280-64", [], 10)
    browser("gs1280-64", ["topology.shape=[12,12]"], 2)
    costs()
