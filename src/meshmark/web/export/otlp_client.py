"""Sends intervals to an OpenTelemetry collector with the SDK's exporter.

Only the sending thread imports this module: the SDK and requests take 0.3 s to import, which must not delay the first
frame.

Sources: OTLP 1 (opentelemetry.io/docs/specs/otlp), OpenTelemetry's conventions for system and hardware metrics.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http import Compression, metric_exporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from meshmark.watch.frames import Header
from meshmark.watch.whole import ALL
from meshmark.web.export.intervals import STATS, Interval

TIMEOUT_S: Final = 10.0
_RETRYABLE: Final = {429, 502, 503, 504}
_CERTIFICATES: Final = ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE")
_UCUM: Final = {"B": "By", "B/s": "By/s"}
# Attributes of OpenTelemetry's own metrics: the mode of `system.cpu.utilization`, the type of `hw.power`.
_MODES: Final = {"cpu.user": "user", "cpu.system": "system", "cpu.interrupts": "interrupt", "cpu.steal": "steal"}
_HARDWARE: Final = {"package": "cpu", "core": "cpu", "uncore": "cpu", "dram": "memory"}


def metrics_data(header: Header, interval: Interval, stats: Sequence[str] = STATS) -> sdk.MetricsData:
    """Return the summaries of an interval as the SDK's objects; metrics without a known value are omitted.

    Args:
        stats: names of the statistics to send, a prefix of `STATS`.
    """
    points: dict[tuple[str, str, str], list[sdk.NumberDataPoint]] = {}
    begin_ns, end_ns = int(interval.begin_s * 1e9), int(interval.end_s * 1e9)

    def add(name: str, what: str, unit: str, value: float, attributes: dict[str, str | int]) -> None:
        point = sdk.NumberDataPoint(attributes, begin_ns, end_ns, value)
        points.setdefault((name, what, unit), []).append(point)

    for metric in header.metrics:
        kind = metric.component_class
        components = header.components.get(kind, ())
        unit = _UCUM.get(metric.unit, metric.unit)
        for i, summary in enumerate(interval.summaries(metric, len(components))):
            if summary is None:
                continue
            component = components[i]
            name = str(component.get("name", i))
            if name == ALL:  # describes the machine, as does the resource
                add(f"meshmark.{metric.name}", metric.what, unit, summary[0], {})
                continue
            attributes: dict[str, str | int] = {"component": name, "class": kind, "machine": header.machine}
            if "node" in component or kind == "node":
                attributes["node"] = str(component.get("node", component.get("number", i)))
            for stat, value in zip(stats, summary, strict=False):
                add(f"meshmark.{metric.name}", metric.what, unit, value, {**attributes, "stat": stat})
            if metric.name in _MODES and isinstance(number := component.get("number"), int):
                description = "share of time by mode of the CPU, mean of the interval"
                mode_attributes: dict[str, str | int] = {"cpu.logical_number": number, "cpu.mode": _MODES[metric.name]}
                add("system.cpu.utilization", description, "1", summary[0], mode_attributes)
            # Parts of a package follow its name: "package-0 dram".
            part = name.rsplit(maxsplit=1)[-1].partition("-")[0]
            if metric.name == "power.drawn" and part in _HARDWARE:
                description = "power drawn, mean of the interval"
                add("hw.power", description, "W", summary[0], {"hw.id": name, "hw.type": _HARDWARE[part]})
    meshmark_version = version("meshmark")
    resource = {
        "service.name": "meshmark",
        "service.version": meshmark_version,
        "host.name": header.machine,
        "os.type": "linux",
    }
    metrics = [sdk.Metric(*key, sdk.Gauge(metric_points)) for key, metric_points in points.items()]
    scope = sdk.ScopeMetrics(InstrumentationScope("meshmark", meshmark_version), metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(Resource(resource), [scope], "")])


class NotSent(Exception):
    """Reports why a message was not accepted, whether to retry it, and the wait that the collector requests."""

    def __init__(self, reason: str, retry: bool, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry, self.wait_s = retry, wait_s


class _Session(requests.Session):
    """Keeps the outcome of a request, because the exporter returns only success or failure.

    The exporter takes redirects for success and ignores the body. Its own retries end after 10 s and block the end of
    monitoring, so every failure is raised as an error that the exporter does not retry. Redirects are not followed,
    because headers may hold secrets that only the named collector may receive.
    """

    def __init__(self) -> None:
        super().__init__()
        self.auth = lambda request: request  # otherwise ~/.netrc replaces an `authorization` header
        self.headers["connection"] = "close"  # the collector may drop an idle connection between intervals
        self.failure: NotSent | None = None
        self.body = b""

    def request(self, *args: Any, **options: Any) -> requests.Response:
        try:
            response = super().request(*args, **{**options, "allow_redirects": False})
        except requests.Timeout as error:
            self.failure = NotSent(f"no response within {TIMEOUT_S:g} s", retry=True)
            raise self.failure from error
        except Exception as error:
            self.failure = NotSent(_cause(error), retry=isinstance(error, OSError))
            raise self.failure from error
        if response.status_code // 100 != 2:
            retry_after = response.headers.get("retry-after", "")
            self.failure = NotSent(
                f"HTTP {response.status_code} {response.reason}",
                response.status_code in _RETRYABLE,
                float(retry_after) if retry_after.isdecimal() and len(retry_after) < 6 else 0.0,
            )
            raise self.failure
        self.body = response.content
        return response


def _cause(error: BaseException) -> str:
    """Return the message of the operating system without the messages of the libraries that wrap it."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _trusted_certificates() -> str | None:
    """Return the system's certificates, which requests ignores; None if the environment names others or none exist."""
    if any(os.environ.get(name) for name in _CERTIFICATES):
        return None
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


class Client:
    """Sends intervals to one collector; used by one thread.

    Args:
        endpoint: URL with the path `/v1/metrics`.
        stats: names of the statistics to send, as for `metrics_data`.
    """

    def __init__(self, header: Header, endpoint: str, stats: Sequence[str] = STATS) -> None:
        self._header, self._stats = header, stats
        self._session = _Session()
        self._exporter = metric_exporter.OTLPMetricExporter(
            endpoint,
            certificate_file=_trusted_certificates(),
            timeout=TIMEOUT_S,
            compression=Compression.Gzip,
            session=self._session,
        )
        # The caller reports failures. Without a handler, Python prints the exporter's messages over the terminal's map.
        logging.getLogger(metric_exporter.__name__).addHandler(logging.NullHandler())

    def send(self, interval: Interval) -> tuple[int, str]:
        """Send one interval, and return how many data points the collector rejected, and its reason.

        Raises:
            NotSent: the collector did not accept the interval.
        """
        self._session.failure, self._session.body = None, b""
        if (
            self._exporter.export(metrics_data(self._header, interval, self._stats))
            is not sdk.MetricExportResult.SUCCESS
        ):
            raise self._session.failure or NotSent("the interval cannot be encoded or is too large", retry=False)
        try:
            partial = ExportMetricsServiceResponse.FromString(self._session.body).partial_success
        except DecodeError:  # not OTLP, but the status reports success
            return 0, ""
        return partial.rejected_data_points, " ".join(partial.error_message.split())[:200]
