"""Export to a collector: the data arrives complete, and a faulty collector loses intervals but no frame."""

from __future__ import annotations

import gzip
import random
import re
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from meshmark.watch.frames import Frame, FrameMetric, Header
from meshmark.web.export import otlp
from meshmark.web.export.intervals import STATS
from meshmark.web.export.openmetrics import Window
from meshmark.web.export.otlp import Exporter
from support.cli import meshmark, start
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
            FrameMetric("cpu.busy", "1", "busy", "time"),
            FrameMetric("cpu.user", "1", "in programs", "time"),
            FrameMetric("cpu.steal", "1", "stolen", "time"),
            FrameMetric("io.in", "B/s", "read"),
            FrameMetric("node.used", "B", "used"),
            FrameMetric("node.clock", "Hz", "clock"),
            FrameMetric("power.drawn", "W", "power"),
            FrameMetric("cpu.never", "s", "never"),
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
    """An OTLP/HTTP receiver whose responses a test chooses."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.statuses: list[int] = []  # of the next responses; then 200
        self.retry_after = ""
        self.slow_s = 0.0
        self.answering = threading.Event()
        self.answering.set()
        self.body = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                take(collector.slow_s)
                collector.times.append(time.monotonic())
                collector.answering.wait()
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

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def use_tls(self, certificate: Path, key: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = self.url.replace("http:", "https:")

    def close(self) -> None:
        self.answering.set()
        self.server.shutdown()
        self.server.server_close()

    def wait_for(self, count: int, limit_s: float = 60.0) -> None:
        assert until(lambda: len(self.requests) >= count, limit_s), f"received {len(self.requests)} of {count}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector_ = Collector()
    yield collector_
    collector_.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(otlp, "MAX_WAIT_S", 0.3)


Points = dict[tuple[str, tuple[tuple[str, Any], ...]], float]


def points(request: ExportMetricsServiceRequest) -> tuple[Points, dict[str, str]]:
    """Return values by name and attributes, and the unit of each metric."""
    values: Points = {}
    units: dict[str, str] = {}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        assert metric.name not in units, "one metric per name"
        units[metric.name] = metric.unit
        for p in metric.gauge.data_points:
            attributes = {
                a.key: a.value.string_value if a.value.HasField("string_value") else a.value.int_value
                for a in p.attributes
            }
            key = (metric.name, tuple(sorted(attributes.items())))
            assert key not in values, "attributes identify a point"
            values[key] = p.as_double
    return values, units


def exported(collector: Collector, frames: int, interval_s: float) -> list[str]:
    """Export frames and return the messages."""
    messages: list[str] = []
    with Exporter(header(), collector.url, interval_s, messages.append) as exporter:
        for n in range(1, frames + 1):
            exporter.add(frame(n))
    return messages


def test_collector_receives_mean_minimum_maximum_and_percentile(collector: Collector) -> None:
    messages = exported(collector, frames=20, interval_s=20)
    assert len(collector.requests) == 1 and messages == ["otlp: 1 intervals sent, 0 lost"]
    parsed, units = points(collector.requests[0])

    def of(name: str, **attributes: Any) -> float:
        return parsed[name, tuple(sorted(attributes.items()))]

    cpu = {"component": "CPU 4", "class": "cpu", "machine": "n042", "node": "1"}
    busy = [of("meshmark.cpu.busy", **cpu, stat=s) for s in STATS]
    assert busy == pytest.approx([0.105, 0.01, 0.20, 0.19])
    assert of("meshmark.io.in", component="eth0", machine="n042", stat="max", **{"class": "io"}) == 20e6
    assert (
        of("meshmark.node.used", component="node 0", machine="n042", node="0", stat="min", **{"class": "node"}) == 2**30
    )
    # The names of OpenTelemetry have only the mean and only the standard attributes.
    assert of("system.cpu.utilization", **{"cpu.logical_number": 0, "cpu.mode": "user"}) == 0.25
    assert of("system.cpu.utilization", **{"cpu.logical_number": 4, "cpu.mode": "steal"}) == 0.5
    assert of("hw.power", **{"hw.id": "package-0", "hw.type": "cpu"}) == 40
    assert of("hw.power", **{"hw.id": "package-0 dram", "hw.type": "memory"}) == 5
    assert len([k for k in parsed if k[0] == "hw.power"]) == 2
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
    assert point.time_unix_nano == 1_700_000_020 * 10**9


def test_unknown_values_are_omitted_not_zero(collector: Collector) -> None:
    with Exporter(header(), collector.url, 10, lambda _: None) as exporter:
        for n in range(1, 11):
            exporter.add(frame(n, busy=None if n % 2 else 0.8))
    parsed, units = points(collector.requests[0])
    zero = {
        dict(k[1])["stat"]: v
        for k, v in parsed.items()
        if k[0] == "meshmark.cpu.busy" and dict(k[1])["component"] == "CPU 0"
    }
    assert zero == pytest.approx({"mean": 0.8, "min": 0.8, "max": 0.8, "p95": 0.8})
    assert "meshmark.cpu.never" not in units
    assert not [k for k in parsed if k[0] == "meshmark.cpu.user" and dict(k[1])["component"] == "CPU 4"]


def test_otlp_and_openmetrics_agree(collector: Collector) -> None:
    window = Window(header())
    with Exporter(header(), collector.url, 14, lambda _: None) as exporter:
        for n in range(1, 15):
            only_frame = frame(n, busy=None if n == 3 else (n * 7 % 13) / 13)
            exporter.add(only_frame)
            window.add(only_frame)
    parsed, _ = points(collector.requests[0])
    compared = 0
    for family in window.collect():
        for sample in family.samples:
            if family.name != "meshmark_cpu_busy_ratio":
                continue
            attributes = {"class": "cpu", **sample.labels}
            assert parsed["meshmark.cpu.busy", tuple(sorted(attributes.items()))] == pytest.approx(sample.value)
            compared += 1
    assert compared == 8


def test_intervals_follow_each_other_without_a_gap(collector: Collector) -> None:
    exported(collector, frames=25, interval_s=10)
    spans = []
    for request in collector.requests:
        parsed, _ = points(request)
        io = {
            dict(k[1])["stat"]: v for k, v in parsed.items() if k[0] == "meshmark.io.in"
        }  # the number of the frame in MB/s
        (end_ns,) = {
            p.time_unix_nano
            for metric in request.resource_metrics[0].scope_metrics[0].metrics
            for p in metric.gauge.data_points
        }
        spans.append((io["min"] / 1e6, io["max"] / 1e6, end_ns // 10**9 - 1_700_000_000))
    assert spans == [(1, 10, 10), (11, 20, 20), (21, 25, 25)]


def test_a_collector_that_returns_receives_what_it_missed(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "FIRST_WAIT_S", 0.1)
    monkeypatch.setattr(otlp, "MAX_WAIT_S", 1.0)
    monkeypatch.setattr(random, "uniform", lambda *_: 1.0)
    collector.statuses = [503, 429, 502]
    messages: list[str] = []
    with Exporter(header(), collector.url, 10, messages.append) as exporter:
        for n in range(1, 31):
            exporter.add(frame(n))
        collector.wait_for(3)
    assert len(collector.requests) == 3
    assert any("HTTP 503" in m and "retry" in m for m in messages) and any("accepts data again" in m for m in messages)
    assert messages[-1] == "otlp: 3 intervals sent, 0 lost"
    gaps = [b - a for a, b in zip(collector.times[:3], collector.times[1:4], strict=True)]
    assert gaps[0] >= 0.1 and gaps[1] >= 0.2 and gaps[2] >= 0.4  # the waits grow


def test_exporter_honours_retry_after(collector: Collector) -> None:
    collector.statuses, collector.retry_after = [429], "1"
    with Exporter(header(), collector.url, 10, lambda _: None) as exporter:
        for n in range(1, 11):
            exporter.add(frame(n))
        collector.wait_for(1)
    assert collector.times[1] - collector.times[0] >= 1.0


@pytest.mark.parametrize("status", [400, 404, 302])
def test_a_permanent_refusal_is_reported_and_the_interval_lost(collector: Collector, status: int) -> None:
    collector.statuses = [status]
    messages = exported(collector, frames=20, interval_s=10)
    assert any(f"HTTP {status}" in m and "interval lost" in m for m in messages)
    assert messages[-1] == "otlp: 1 intervals sent, 1 lost"


def test_rejected_points_are_reported(collector: Collector) -> None:
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = 7
    response.partial_success.error_message = "too\nmany"
    collector.body = response.SerializeToString()
    messages = exported(collector, frames=10, interval_s=10)
    assert any("rejected 7 data points: too many" in m for m in messages)
    assert messages[-1] == "otlp: 1 intervals sent, 0 lost, 7 data points rejected"


def test_an_unreachable_collector_costs_intervals_but_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    collector.close()
    monkeypatch.setattr(otlp, "MAX_QUEUED", 5)
    monkeypatch.setattr(otlp, "END_S", 100.0)
    messages: list[str] = []
    start_s = time.monotonic()
    with Exporter(header(), collector.url, 1, messages.append) as exporter:
        for n in range(1, 41):
            exporter.add(frame(n))
        assert until(lambda: messages)
    assert time.monotonic() - start_s < 60
    assert sum("Connection refused; keeping the last 5" in m for m in messages) == 1  # once, not for every attempt
    assert messages[-1] == "otlp: 0 intervals sent, 40 lost"
    assert exporter.lost == 40


def test_the_newest_intervals_are_kept_for_a_collector_that_returns(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "MAX_QUEUED", 5)
    collector.statuses = [503]
    collector.answering.clear()
    with Exporter(header(), collector.url, 1, lambda _: None) as exporter:
        for n in range(1, 41):
            exporter.add(frame(n))
        collector.answering.set()
        collector.wait_for(5)
    assert (exporter.sent, exporter.lost) in {(5, 35), (6, 34)}  # 6: the first one was being sent
    ends = [
        r.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].time_unix_nano
        for r in collector.requests
    ]
    assert [ns // 10**9 - 1_700_000_000 for ns in ends][-5:] == [36, 37, 38, 39, 40]


def test_a_slow_collector_does_not_delay_frames(collector: Collector) -> None:
    collector.slow_s = 1.0
    with Exporter(header(), collector.url, 1, lambda _: None) as exporter:
        for n in range(1, 301):
            exporter.add(frame(n))
        assert len(collector.times) < 30, "fewer responses than intervals"
        collector.slow_s = 0.0


def test_headers_come_from_the_environment_alone(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, authorization=Bearer%20x")
    exported(collector, frames=1, interval_s=1)
    assert collector.headers[0]["api-key"] == "a b" and collector.headers[0]["authorization"] == "Bearer x"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_collectors_with_tls_need_a_trusted_certificate(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        *subject,
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    subprocess.run(command, check=True, capture_output=True)
    collector.use_tls(certificate, key)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    completed = exported(collector, frames=1, interval_s=1)
    assert "certificate" in completed[0].lower() and completed[-1] == "otlp: 0 intervals sent, 1 lost"
    for name in (
        "SSL_CERT_FILE",
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
    ):  # the certificates of the system and of the exporter
        with monkeypatch.context() as changed:
            changed.setenv(name, str(certificate))
            assert exported(collector, frames=1, interval_s=1) == ["otlp: 1 intervals sent, 0 lost"], name


def test_the_command_sends_this_machine(collector: Collector) -> None:
    options = ["--otlp", collector.url, "--interval", "1", "--rate", "5", "--duration", "2.4"]
    completed = meshmark("watch", *options)
    assert completed.returncode == 0, completed.stderr
    assert "3 intervals sent, 0 lost" in completed.stderr and completed.stdout == ""
    parsed, _ = points(collector.requests[0])
    modes = {dict(k[1])["cpu.mode"] for k in parsed if k[0] == "system.cpu.utilization"}
    assert modes == {"user", "system", "interrupt", "steal"}


@pytest.mark.slow
def test_the_command_ends_although_the_collector_does_not_respond(collector: Collector) -> None:
    collector.answering.clear()
    running = start("watch", "--otlp", collector.url, "--interval", "1", "--rate", "5")
    try:
        assert until(lambda: collector.times)
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 128 + signal.SIGTERM and "Traceback" not in errors
    assert re.search(r"otlp: 0 intervals sent, [1-9][0-9]* lost\nmeshmark: ended by SIGTERM\n\Z", errors), errors
