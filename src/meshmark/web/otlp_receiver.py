"""Reads metrics that nodes send over OTLP/HTTP, protobuf or JSON, as `web/otlp.py` sends them.

A body is data from anywhere: it is bounded before and after decompression, and whatever is wrong with it is one line.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from meshmark.errors import MeshmarkError, quoted
from meshmark.watch.whole import ALL, Components
from meshmark.web.live_fleet import Reading

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
MAX_BODY: Final = 4 << 20  # B, as sent
MAX_UNPACKED: Final = 32 << 20  # B: 256 CPUs with 20 metrics and four values each have 11 MB
PREFIX: Final = "meshmark."
_UNITS: Final = {"By": "B", "By/s": "B/s"}


class BadBodyError(MeshmarkError):
    """A body that is not accepted, and the status of HTTP that says so."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


def unpacked(body: bytes, encoding: str) -> bytes:
    """A body without its content encoding.

    Raises:
        BadBodyError: The encoding is unknown, the data are damaged or too long.
    """
    if encoding in {"", "identity"}:
        return body
    if encoding not in {"gzip", "deflate"}:
        raise BadBodyError(f"content-encoding: found '{quoted(encoding)}'; allowed: gzip, deflate", 415)
    packed = zlib.decompressobj(wbits=47)  # finds out whether it is gzip or zlib
    try:
        data = packed.decompress(body, MAX_UNPACKED)
    except zlib.error as why:
        raise BadBodyError(f"body: not {encoding}: {why}") from why
    if packed.unconsumed_tail:
        raise BadBodyError(f"body: more than {MAX_UNPACKED >> 20} MiB when decompressed", 413)
    if not packed.eof or packed.unused_data:
        raise BadBodyError(f"body: not complete {encoding} data")
    return data


def readings(body: bytes, content_type: str, encoding: str = "") -> list[tuple[Reading, int]]:
    """What the machines in a body report, each with the number of its data points.

    Raises:
        BadBodyError: It is not a request of OTLP.
    """
    data = unpacked(body, encoding)
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == PROTOBUF:
            request = ExportMetricsServiceRequest.FromString(data)
        elif kind == JSON:
            request = json_format.Parse(data, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
        else:
            raise BadBodyError(f"content-type: found '{quoted(content_type)}'; allowed: {PROTOBUF}, {JSON}", 415)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError) as why:
        raise BadBodyError(f"body: not metrics of OTLP: {quoted(why)}") from why
    return [_reading(of) for of in request.resource_metrics]


def _reading(resource: Any) -> tuple[Reading, int]:
    machine = next((a.value.string_value for a in resource.resource.attributes if a.key == "host.name"), "")
    found = Components()
    count, end_ns = 0, 0
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            points = metric.gauge.data_points
            count += len(points)
            if not metric.name.startswith(PREFIX):  # OpenTelemetry's own names repeat what ours say
                continue
            name = metric.name.removeprefix(PREFIX)
            unit = _UNITS.get(metric.unit, metric.unit)
            for point in points:
                component = _component(point.attributes)
                # One of the two is 0, unless both are.
                if component is not None and math.isfinite(value := point.as_double or float(point.as_int)):
                    found.add(name, unit, component, value)
            end_ns = end_ns or (points[0].time_unix_nano if points else 0)  # the same for all
    return Reading(machine, end_ns / 1e9, *found.whole()), count


def _component(attributes: Any) -> str | None:
    """The component of a point, `ALL` if it is of the machine; None if the point is no mean."""
    component = ALL
    for attribute in attributes:
        if attribute.key == "component":
            component = attribute.value.string_value
        elif attribute.key == "stat" and attribute.value.string_value != "mean":
            return None
    return component


def answer(kind: str, rejected: int, why: str) -> bytes:
    """The body of a response that says how many data points were not accepted."""
    response = ExportMetricsServiceResponse()
    if rejected:
        response.partial_success.rejected_data_points = rejected
        response.partial_success.error_message = why
    return json_format.MessageToJson(response).encode() if kind == JSON else bytes(response.SerializeToString())
