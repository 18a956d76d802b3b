"""Reads metrics that nodes send over OTLP/HTTP, protobuf or JSON, as `web/export/otlp.py` sends them.

A body is untrusted data: its size is bounded before and after decompression, its parts are counted before they become
objects, and any error in it is reported in one line.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from meshmark.errors import MeshmarkError, quoted
from meshmark.watch.whole import ALL, Components
from meshmark.web.fleet.live_fleet import NodeReport

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
MAX_BODY: Final = 4 << 20  # B, as sent
MAX_UNPACKED: Final = 32 << 20  # B: 256 CPUs with 20 metrics and four values each have 11 MB
MAX_JSON: Final = 8 << 20  # B when decompressed; the time to read JSON is a hundred times as long
MAX_FIELDS: Final = 1_000_000  # fields of protobuf, in all messages; the example above has 490,000
MAX_PARTS: Final = 200_000  # parts of JSON: objects, lists and commas
MAX_RESOURCES: Final = 2000  # machines in a body
MAX_NAMES: Final = 1000  # metrics of a machine
PREFIX: Final = "meshmark."
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5  # wire types of protobuf
_UNITS: Final = {"By": "B", "By/s": "B/s"}


class BadBodyError(MeshmarkError):
    """A body that is not accepted, with the HTTP status of the response."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


def unpacked(body: bytes, encoding: str) -> bytes:
    """Return a body without its content encoding.

    Raises:
        BadBodyError: The encoding is unknown, or the data are damaged or too long.
    """
    data = unpacked_within(body, encoding, MAX_UNPACKED)
    if data is None:
        raise BadBodyError(f"body: more than {MAX_UNPACKED >> 20} MiB when decompressed", 413)
    return data


def unpacked_within(body: bytes, encoding: str, limit: int) -> bytes | None:
    """Return a body like `unpacked`, but None if it is longer than a limit, in bytes.

    Raises:
        BadBodyError: The encoding is unknown, or the data are damaged.
    """
    if encoding in {"", "identity"}:
        return body if len(body) <= limit else None
    if encoding not in {"gzip", "deflate"}:
        raise BadBodyError(f"content-encoding: found '{quoted(encoding)}'; allowed: gzip, deflate", 415)
    packed = zlib.decompressobj(wbits=47)  # detects gzip or zlib
    try:
        data = packed.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadBodyError(f"body: not {encoding}: {error}") from error
    if len(data) > limit:
        return None
    if not packed.eof or packed.unused_data:
        raise BadBodyError(f"body: not complete {encoding} data")
    return data


def readings(body: bytes, content_type: str, encoding: str = "") -> list[tuple[NodeReport, int]]:
    """Return what the machines in a body report, each with the number of its data points.

    Raises:
        BadBodyError: The body is not an OTLP request.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in {PROTOBUF, JSON}:
        raise BadBodyError(f"content-type: found '{quoted(content_type)}'; allowed: {PROTOBUF}, {JSON}", 415)
    data = unpacked(body, encoding)
    try:
        if kind == PROTOBUF:
            _check_fields(data)
            request = ExportMetricsServiceRequest.FromString(data)
        else:
            _check_parts(data)
            request = json_format.Parse(data, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, ValueError, IndexError, RecursionError, OverflowError) as error:
        raise BadBodyError(f"body: not metrics of OTLP: {quoted(error)}") from error
    if len(request.resource_metrics) > MAX_RESOURCES:
        raise BadBodyError(f"body: found {len(request.resource_metrics)} machines; allowed: {MAX_RESOURCES}", 413)
    return [_reading(resource) for resource in request.resource_metrics]


def _check_parts(data: bytes) -> None:
    """Count the parts of JSON before it is parsed.

    Raises:
        BadBodyError: The JSON is too long, or has too many parts.
    """
    if len(data) > MAX_JSON:
        raise BadBodyError(f"body: found {len(data)} bytes of JSON; allowed: {MAX_JSON}, or protobuf", 413)
    if (count := sum(map(data.count, (b"{", b"[", b",")))) > MAX_PARTS:
        raise BadBodyError(f"body: found {count} parts of JSON; allowed: {MAX_PARTS}, or protobuf", 413)


def _check_fields(data: bytes) -> None:
    """Count the fields of a request in all its messages, without creating objects.

    Raises:
        BadBodyError: There are too many fields.
        ValueError, IndexError: The data are not protobuf. The library finds all other errors.
    """
    count, open_messages = 0, [(0, len(data), _keys_of(ExportMetricsServiceRequest.DESCRIPTOR))]
    while open_messages:
        position, end, keys = open_messages.pop()
        while position < end:  # no function calls for numbers of one byte, which are most of up to a million
            count += 1
            if count > MAX_FIELDS:
                raise BadBodyError(f"body: found more than {MAX_FIELDS} fields; allowed: {MAX_FIELDS}", 413)
            key = data[position]
            position += 1
            if key > 127:
                key, position = _varint(data, position - 1)
            wire_type = key & 7
            if wire_type == _LENGTH:
                length = data[position]
                position += 1
                if length > 127:
                    length, position = _varint(data, position - 1)
                if length and key in keys:
                    open_messages.append((position, position + length, _keys_of(keys[key])))
                position += length
            elif wire_type == _VARINT:
                while data[position] > 127:
                    position += 1
                position += 1
            elif wire_type == _FIXED_64:
                position += 8
            elif wire_type == _FIXED_32:
                position += 4
            else:
                raise ValueError("an unknown wire type")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after the number."""
    number, start = 0, at
    while True:
        byte = data[at]
        number |= (byte & 127) << 7 * (at - start)
        at += 1
        if byte < 128:
            return number, at
        if at - start > 10:
            raise ValueError("a number of more than ten bytes")


@cache
def _keys_of(descriptor: Descriptor) -> Mapping[int, Descriptor]:
    """Return the fields of a message that contain messages, by the keys that begin them."""
    return {f.number << 3 | _LENGTH: f.message_type for f in descriptor.fields if f.message_type is not None}


def _reading(resource: Any) -> tuple[NodeReport, int]:
    machine = next((a.value.string_value for a in resource.resource.attributes if a.key == "host.name"), "")
    components, names = Components(), set[str]()
    count, end_ns = 0, 0
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            points = metric.gauge.data_points
            count += len(points)
            if not metric.name.startswith(PREFIX):  # other names repeat the same values
                continue
            name = metric.name.removeprefix(PREFIX)
            names.add(name)
            if len(names) > MAX_NAMES:
                raise BadBodyError(f"body: found more than {MAX_NAMES} metrics of a machine; allowed: {MAX_NAMES}", 413)
            unit = _UNITS.get(metric.unit, metric.unit)
            for point in points:
                component = _component(point.attributes)
                # At least one of the two is 0.
                if component is not None and math.isfinite(value := point.as_double or float(point.as_int)):
                    components.add(name, unit, component, value)
            end_ns = end_ns or (points[0].time_unix_nano if points else 0)  # the same for all points
    return NodeReport(machine, end_ns / 1e9, *components.whole()), count


def _component(attributes: Any) -> str | None:
    """Return the component of a point, `ALL` if the point describes the machine; None if the point is not a mean."""
    component = ALL
    for attribute in attributes:
        if attribute.key == "component":
            component = attribute.value.string_value
        elif attribute.key == "stat" and attribute.value.string_value != "mean":
            return None
    return component


def answer(kind: str, rejected: int, reason: str) -> bytes:
    """Return the body of a response that reports how many data points were not accepted."""
    response = ExportMetricsServiceResponse()
    if rejected:
        response.partial_success.rejected_data_points = rejected
        response.partial_success.error_message = reason
    return json_format.MessageToJson(response).encode() if kind == JSON else bytes(response.SerializeToString())
