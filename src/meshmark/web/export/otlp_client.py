"""Sends intervals to an OpenTelemetry collector, encoded by the SDK's encoder.

Only the sending thread imports this module: the SDK takes 0.2 s to import, which must not delay the first frame.

Sources: OTLP 1 (opentelemetry.io/docs/specs/otlp), OpenTelemetry's conventions for system and hardware metrics.
"""

from __future__ import annotations

import gzip
import os
import ssl
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import httpx
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.util.re import parse_env_headers

from meshmark import native
from meshmark.errors import quoted
from meshmark.watch.frames import Header
from meshmark.watch.whole import ALL
from meshmark.web.client import FAILURES, HEADERS, NO_TLS, reason_of
from meshmark.web.export.intervals import STATS, Interval

TIMEOUT_S: Final = 10.0
MAX_ANSWER: Final = 2 << 20  # B
_RETRYABLE: Final = {429, 502, 503, 504}
_UCUM: Final = {"B": "By", "B/s": "By/s"}
# Attributes of OpenTelemetry's own metrics: the mode of `system.cpu.utilization`, the type of `hw.power`.
_MODES: Final = {"cpu.user": "user", "cpu.system": "system", "cpu.interrupts": "interrupt", "cpu.steal": "steal"}
_HARDWARE: Final = {"package": "cpu", "core": "cpu", "uncore": "cpu", "dram": "memory"}


def metrics_data(header: Header, interval: Interval, stats: Sequence[str] = STATS) -> sdk.MetricsData:
    """Return the summaries of an interval as the SDK's objects; metrics without a known value are omitted.

    Args:
        header: header of the frames.
        interval: the summarised frames.
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
    meshmark_version = native.VERSION
    resource = {
        "service.name": "meshmark",
        "service.version": meshmark_version,
        "host.name": header.machine,
        "os.type": "linux",
    }
    metrics = [sdk.Metric(*key, sdk.Gauge(metric_points)) for key, metric_points in points.items()]
    scope = sdk.ScopeMetrics(InstrumentationScope("meshmark", meshmark_version), metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(Resource(resource), [scope], "")])


class SendError(Exception):
    """Reports why a message was not accepted, whether to retry it, and the wait that the collector requests."""

    def __init__(self, reason: str, retry: bool, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry, self.wait_s = retry, wait_s


def _setting(name: str) -> str | None:
    """Return a setting of exporters from the environment; a value for metrics precedes one for all signals."""
    variables = (f"OTEL_EXPORTER_OTLP_METRICS_{name}", f"OTEL_EXPORTER_OTLP_{name}")
    return next((value for variable in variables if (value := os.environ.get(variable))), None)


class Client:
    """Sends intervals to one collector.

    Args:
        endpoint: URL with the path `/v1/metrics`.
        stats: names of the statistics to send, as for `metrics_data`.
    """

    def __init__(self, header: Header, endpoint: str, stats: Sequence[str] = STATS) -> None:
        self._header, self._endpoint, self._stats = header, endpoint, stats
        self._headers = {
            **HEADERS,
            "user-agent": f"meshmark/{native.VERSION}",
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
            **parse_env_headers(_setting("HEADERS") or "", liberal=True),
        }

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        if self._endpoint.startswith("http:"):
            return NO_TLS
        file, system = _setting("CERTIFICATE"), ssl.get_default_verify_paths()
        is_known = file or system.cafile or system.capath
        tls = ssl.create_default_context(cafile=file) if is_known else httpx.create_ssl_context()
        if certificate := _setting("CLIENT_CERTIFICATE"):
            tls.load_cert_chain(certificate, _setting("CLIENT_KEY"))
        return tls

    def send(self, interval: Interval) -> tuple[int, str]:
        """Send one interval, and return how many data points the collector rejected, and its reason.

        Raises:
            SendError: the collector did not accept the interval.
        """
        try:
            data = encode_metrics(metrics_data(self._header, interval, self._stats)).SerializeToString()
            with (
                httpx.Client(verify=self._tls, timeout=TIMEOUT_S) as client,
                client.stream("POST", self._endpoint, headers=self._headers, content=gzip.compress(data)) as response,
            ):
                body, end_s = bytearray(), time.monotonic() + TIMEOUT_S
                for part in response.iter_raw() if response.is_success else ():
                    body += part
                    if len(body) > MAX_ANSWER or time.monotonic() > end_s:
                        return 0, ""  # not OTLP, but the status reports success
        except httpx.TimeoutException as error:
            raise SendError(f"no response within {TIMEOUT_S:g} s", retry=True) from error
        except FAILURES as error:  # includes a file of certificates that is missing
            raise SendError(reason_of(error), retry=True) from error
        except Exception as error:  # the sending thread must not end
            raise SendError(f"the interval cannot be sent: {quoted(error, 200)}", retry=False) from error
        if not response.is_success:
            retry_after = response.headers.get("retry-after", "")
            raise SendError(
                f"HTTP {response.status_code} {response.reason_phrase}",
                response.status_code in _RETRYABLE,
                float(retry_after) if retry_after.isdecimal() and len(retry_after) < 6 else 0.0,
            )
        try:
            partial = ExportMetricsServiceResponse.FromString(bytes(body)).partial_success
        except DecodeError:  # not OTLP, but the status reports success
            return 0, ""
        return partial.rejected_data_points, " ".join(partial.error_message.split())[:200]
