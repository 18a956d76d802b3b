"""Sending summaries to a collector: what arrives is what was, and a bad collector costs intervals, never a frame."""

from __future__ import annotations

import gzip
import random
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from meshmark.watch.frames import Frame, Header, Metric
from meshmark.web import otlp
from meshmark.web.openmetrics import Window
from meshmark.web.otlp import Exporter
from support.cli import meshmark
from support.waiting import take, until


def header() -> Header:
    return Header(
        "host",
        "n042",
        "2026-01-01T00:00:00Z",
        1.0,
        {
            "node": ({"name": "node 0", "number": 0},),
            "cpu": ({"name": "CPU 0", "node": 0, "number": 0}, {"name": "CPU 4", "node": 1, "number": 4}),
            "power": ({"name": "package-0"}, {"name": "package-0 dram"}, {"name": "psys"}),
            "io": ({"name": "eth0"},),
        },
        (
            Metric("cpu.busy", "1", "busy", "time"),
            Metric("cpu.user", "1", "in programs", "time"),
            Metric("cpu.steal", "1", "stolen", "time"),
            Metric("io.in", "B/s", "read"),
            Metric("node.used", "B", "used"),
            Metric("node.clock", "Hz", "clock"),
            Metric("power.drawn", "W", "power"),
            Metric("cpu.never", "s", "never"),
        ),
    )


def frame(n: int, busy: float | None = 0.5) -> Frame:
    values: dict[str, list[float | None]] = {
        "cpu.busy": [busy, n / 100],
        "cpu.user": [0.25, None],
        "cpu.steal": [0.0, 0.5],
        "io.in": [1e6 * n],
        "node.used": [2.0**30],
        "node.clock": [3e9],
        "power.drawn": [40.0, 5.0, 60.0],
        "cpu.never": [None, None],
    }
    return Frame(n, float(n), 1.0, values, at=1.7e9 + n)


class Collector:
    """A receiver of OTLP over HTTP, whose answers a test chooses."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.statuses: list[int] = []  # of the next answers; then 200
        self.retry_after = ""
        self.slow_s = 0.0
        self.body = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                take(collector.slow_s)
                collector.times.append(time.monotonic())
                status = collector.statuses.pop(0) if collector.statuses else 200
                if status == 200:
                    assert self.headers["content-encoding"] == "gzip"
                    collector.headers.append({k.lower(): v for k, v in self.headers.items()} | {"path": self.path})
                    collector.requests.append(ExportMetricsServiceRequest.FromString(gzip.decompress(data)))
                self.send_response(status)
                if status == 302:
                    self.send_header("location", "/elsewhere")
                if collector.retry_after:
                    self.send_header("retry-after", collector.retry_after)
                self.send_header("content-length", str(len(collector.body)))
                self.end_headers()
                self.wfile.write(collector.body)

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def wait_for(self, count: int, limit_s: float = 60.0) -> None:
        assert until(lambda: len(self.requests) >= count, limit_s), f"only {len(self.requests)} of {count} came"


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(otlp, "LONGEST_WAIT_S", 0.3)


Points = dict[tuple[str, tuple[tuple[str, Any], ...]], float]


def points(request: ExportMetricsServiceRequest) -> tuple[Points, dict[str, str]]:
    """Values by name and attributes, and the unit of each name."""
    found: Points = {}
    units: dict[str, str] = {}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        assert metric.name not in units, "one family a name"
        units[metric.name] = metric.unit
        for p in metric.gauge.data_points:
            about = {
                a.key: a.value.string_value if a.value.HasField("string_value") else a.value.int_value
                for a in p.attributes
            }
            key = (metric.name, tuple(sorted(about.items())))
            assert key not in found, "no two points of the same attributes"
            found[key] = p.as_double
    return found, units


def exported(collector: Collector, frames: int, interval_s: float) -> list[str]:
    said: list[str] = []
    with Exporter(header(), collector.url, interval_s, said.append) as exporter:
        for n in range(1, frames + 1):
            exporter.add(frame(n))
    return said


def test_what_arrives_is_mean_least_greatest_and_percentile(collector: Collector) -> None:
    said = exported(collector, frames=20, interval_s=20)
    assert len(collector.requests) == 1 and said == ["otlp: 1 intervals were sent, 0 lost"]
    found, units = points(collector.requests[0])

    def of(name: str, **about: Any) -> float:
        return found[name, tuple(sorted(about.items()))]

    cpu = {"component": "CPU 4", "class": "cpu", "machine": "n042", "node": "1"}
    told = [of("meshmark.cpu.busy", **cpu, stat=s) for s in otlp.STATS]
    assert told == pytest.approx([0.105, 0.01, 0.20, 0.19])
    assert of("meshmark.io.in", component="eth0", machine="n042", stat="max", **{"class": "io"}) == 20e6
    assert (
        of("meshmark.node.used", component="node 0", machine="n042", node="0", stat="min", **{"class": "node"}) == 2**30
    )
    # Under OpenTelemetry's own names the mean alone, with its attributes alone.
    assert of("system.cpu.utilization", **{"cpu.logical_number": 0, "cpu.mode": "user"}) == 0.25
    assert of("system.cpu.utilization", **{"cpu.logical_number": 4, "cpu.mode": "steal"}) == 0.5
    assert of("hw.power", **{"hw.id": "package-0", "hw.type": "cpu"}) == 40
    assert of("hw.power", **{"hw.id": "package-0 dram", "hw.type": "memory"}) == 5
    assert len([k for k in found if k[0] == "hw.power"]) == 2
    assert units == {
        "meshmark.cpu.busy": "1",
        "meshmark.cpu.user": "1",
        "meshmark.cpu.steal": "1",
        "meshmark.io.in": "By/s",
        "meshmark.node.used": "By",
        "meshmark.node.clock": "Hz",
        "meshmark.power.drawn": "W",
        "system.cpu.utilization": "1",
        "hw.power": "W",
    }
    resource = {a.key: a.value.string_value for a in collector.requests[0].resource_metrics[0].resource.attributes}
    assert resource["host.name"] == "n042" and resource["service.name"] == "meshmark"
    assert collector.headers[0]["path"] == "/v1/metrics"
    assert collector.headers[0]["content-type"] == "application/x-protobuf"
    point = collector.requests[0].resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1_700_000_000 * 10**9, 1_700_000_020 * 10**9)


def test_what_is_unknown_is_left_out_and_not_zero(collector: Collector) -> None:
    with Exporter(header(), collector.url, 10, lambda _: None) as exporter:
        for n in range(1, 11):
            exporter.add(frame(n, busy=None if n % 2 else 0.8))
    found, units = points(collector.requests[0])
    zero = {
        dict(k[1])["stat"]: v
        for k, v in found.items()
        if k[0] == "meshmark.cpu.busy" and dict(k[1])["component"] == "CPU 0"
    }
    assert zero == pytest.approx({"mean": 0.8, "min": 0.8, "max": 0.8, "p95": 0.8})
    assert "meshmark.cpu.never" not in units
    assert not [k for k in found if k[0] == "meshmark.cpu.user" and dict(k[1])["component"] == "CPU 4"]


def test_both_feeds_say_the_same(collector: Collector) -> None:
    window = Window(header())
    with Exporter(header(), collector.url, 14, lambda _: None) as exporter:
        for n in range(1, 15):
            one = frame(n, busy=None if n == 3 else (n * 7 % 13) / 13)
            exporter.add(one)
            window.add(one)
    found, _ = points(collector.requests[0])
    compared = 0
    for family in window.collect():
        for sample in family.samples:
            if family.name != "meshmark_cpu_busy_ratio":
                continue
            about = {"class": "cpu", **sample.labels}
            assert found["meshmark.cpu.busy", tuple(sorted(about.items()))] == pytest.approx(sample.value)
            compared += 1
    assert compared == 8


def test_intervals_follow_one_another_without_a_gap(collector: Collector) -> None:
    exported(collector, frames=25, interval_s=10)
    spans = []
    for request in collector.requests:
        point = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
        spans.append(
            (point.start_time_unix_nano // 10**9 - 1_700_000_000, point.time_unix_nano // 10**9 - 1_700_000_000)
        )
    assert spans == [(0, 10), (10, 20), (20, 25)]


def test_a_collector_that_comes_back_gets_what_it_missed(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "FIRST_WAIT_S", 0.1)
    monkeypatch.setattr(otlp, "LONGEST_WAIT_S", 1.0)
    monkeypatch.setattr(random, "uniform", lambda *_: 1.0)
    collector.statuses = [503, 429, 502]
    said: list[str] = []
    with Exporter(header(), collector.url, 10, said.append) as exporter:
        for n in range(1, 31):
            exporter.add(frame(n))
        collector.wait_for(3)
    assert len(collector.requests) == 3
    assert any("answers 503" in s for s in said) and any("takes them again" in s for s in said)
    assert said[-1] == "otlp: 3 intervals were sent, 0 lost"
    gaps = [b - a for a, b in zip(collector.times[:3], collector.times[1:4], strict=True)]
    assert gaps[0] >= 0.1 and gaps[1] >= 0.2 and gaps[2] >= 0.4  # it backs off


def test_it_waits_as_long_as_it_is_told(collector: Collector) -> None:
    collector.statuses, collector.retry_after = [429], "1"
    with Exporter(header(), collector.url, 10, lambda _: None) as exporter:
        for n in range(1, 11):
            exporter.add(frame(n))
        collector.wait_for(1)
    assert collector.times[1] - collector.times[0] >= 1.0


@pytest.mark.parametrize("status", [400, 404, 302])
def test_what_is_refused_for_good_is_lost_and_said(collector: Collector, status: int) -> None:
    collector.statuses = [status]
    said = exported(collector, frames=20, interval_s=10)
    assert any(f"answers {status}" in s for s in said)
    assert said[-1] == "otlp: 1 intervals were sent, 1 lost"


def test_rejected_points_are_said(collector: Collector) -> None:
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 7
    answer.partial_success.error_message = "too\nmany"
    collector.body = answer.SerializeToString()
    said = exported(collector, frames=10, interval_s=10)
    assert any("rejects 7 points: too many" in s for s in said)
    assert said[-1].endswith("7 single points were rejected")


def test_a_dead_collector_costs_intervals_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Collector()
    gone.close()
    monkeypatch.setattr(otlp, "WAITING", 5)
    said: list[str] = []
    began = time.monotonic()
    with Exporter(header(), gone.url, 1, said.append) as exporter:
        for n in range(1, 41):
            exporter.add(frame(n))
        assert until(lambda: said)
    assert time.monotonic() - began < 60
    assert sum("Connection refused" in s for s in said) == 1  # once, not at every try
    assert said[-1] == "otlp: 0 intervals were sent, 40 lost"
    assert exporter.lost == 40


def test_a_slow_collector_does_not_hold_up_frames(collector: Collector) -> None:
    collector.slow_s = 1.0
    with Exporter(header(), collector.url, 1, lambda _: None) as exporter:
        for n in range(1, 301):
            exporter.add(frame(n))
        assert len(collector.times) < 30, "fewer answers than there were intervals"
        collector.slow_s = 0.0


def test_the_command_sends_this_machine(collector: Collector) -> None:
    words = ["watch", "--otlp", collector.url, "--interval", "1", "--rate", "5", "--duration", "2.4"]
    done = meshmark(*words)
    assert done.returncode == 0, done.stderr
    assert "3 intervals were sent, 0 lost" in done.stderr and done.stdout == ""
    found, _ = points(collector.requests[0])
    modes = {dict(k[1])["cpu.mode"] for k in found if k[0] == "system.cpu.utilization"}
    assert modes == {"user", "system", "interrupt", "steal"}
