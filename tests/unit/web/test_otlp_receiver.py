"""Bodies that nodes send: the values that are read from the exporter of Meshmark, and harmless handling of any body."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from meshmark.watch.frames import Frame, FrameMetric, Header
from meshmark.watch.whole import whole_frames, whole_header
from meshmark.web.export.intervals import STATS, Interval
from meshmark.web.export.otlp_client import metrics_data
from meshmark.web.export.otlp_receiver import JSON, MAX_UNPACKED, PROTOBUF, BadBodyError, answer, readings
from meshmark.web.fleet.live_fleet import NodeReport

HEADER = Header(
    "host",
    "n042-0123abcd",
    "2026-01-01T00:00:00Z",
    1.0,
    {"cpu": tuple({"name": f"CPU {i}", "number": i} for i in range(3)), "io": ({"name": "a"}, {"name": "b"})},
    (
        FrameMetric("cpu.busy", "1", "busy", "time"),
        FrameMetric("cpu.clock", "Hz", "clock"),
        FrameMetric("io.in", "B/s", "read"),
        FrameMetric("io.never", "B", "never"),
    ),
)


def frames() -> list[Frame]:
    busy: list[list[float | None]] = [[0.1, 0.2, None], [0.3, 0.2, None]]
    rest: dict[str, list[float | None]] = {"cpu.clock": [2e9, 3e9, 4e9], "io.in": [1e6, 3e6], "io.never": [None, None]}
    return [Frame(i, i, 1.0, {"cpu.busy": row, **rest}, at=1.7e9 + i) for i, row in enumerate(busy)]


def sent(header: Header, of: list[Frame], stats: tuple[str, ...]) -> ExportMetricsServiceRequest:
    interval = Interval(of[0].at, of[0].at)
    for frame in of:
        interval.add(frame, header.metrics)
    return encode_metrics(metrics_data(header, interval, stats))


def whole() -> ExportMetricsServiceRequest:
    return sent(whole_header(HEADER), list(whole_frames(HEADER, iter(frames()))), STATS[:1])


def read(body: bytes, kind: str = PROTOBUF, encoding: str = "") -> NodeReport:
    ((points, _),) = readings(body, kind, encoding)
    return points


EXPECTED = {"cpu.busy": 0.2, "cpu.busy highest": 0.25, "cpu.clock": 3e9, "io.in": 4e6}


def test_a_summary_has_one_value_for_the_machine_and_the_highest_share() -> None:
    request = whole()
    text = read(request.SerializeToString())
    assert text.machine == HEADER.machine and text.at == 1.7e9 + 1
    assert text.values == pytest.approx(EXPECTED)
    assert text.units["io.in"] == "B/s" and text.units["cpu.busy highest"] == "1"
    names = [m.name for m in request.resource_metrics[0].scope_metrics[0].metrics]
    assert names == ["meshmark.cpu.busy", "meshmark.cpu.clock", "meshmark.io.in"]


def test_values_of_components_are_summarised_alike() -> None:
    request = sent(HEADER, frames(), STATS)
    # The highest mean of a CPU; a summary has the mean of the highest value at each moment.
    assert read(request.SerializeToString()).values == pytest.approx({**EXPECTED, "cpu.busy highest": 0.2})
    ((_, count),) = readings(request.SerializeToString(), PROTOBUF)
    assert count == 4 * (2 + 3 + 2)


@pytest.mark.parametrize("encoding", ["", "identity", "gzip", "deflate"])
def test_encodings_and_json(encoding: str) -> None:
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding, bytes)
    request = whole()
    text = json_format.MessageToJson(request).encode()
    for body, kind in ((request.SerializeToString(), PROTOBUF), (text, f"{JSON}; charset=utf-8")):
        assert read(pack(body), kind, encoding).values == pytest.approx(EXPECTED)


def test_collectors_forward_many_machines_and_metrics_of_others() -> None:
    request = whole()
    request.resource_metrics.add().CopyFrom(request.resource_metrics[0])
    request.resource_metrics[1].resource.attributes[0].value.string_value = "x"
    other = request.resource_metrics[1].scope_metrics[0].metrics.add()
    other.name = "system.cpu.utilization"
    other.gauge.data_points.add().as_double = 1.0
    hosts = [kv.value for r in request.resource_metrics for kv in r.resource.attributes if kv.key == "host.name"]
    hosts[1].string_value = "n7"
    (one, _), (two, count) = readings(request.SerializeToString(), PROTOBUF)
    assert (one.machine, two.machine) == (HEADER.machine, "n7") and one.values == two.values and count == 5


def test_values_that_are_no_numbers_are_unknown() -> None:
    request = whole()
    points = [m.gauge.data_points[0] for m in request.resource_metrics[0].scope_metrics[0].metrics]
    points[0].as_double, points[1].as_int, points[2].as_double = float("nan"), 7, float("inf")
    assert read(request.SerializeToString()).values == {"cpu.busy highest": 0.25, "cpu.clock": 7.0}


@pytest.mark.parametrize(
    ("body", "kind", "encoding", "code", "named"),
    [
        (b"", "text/plain", "", 415, "content-type"),
        (b"", "", "", 415, "content-type"),
        (b"x", PROTOBUF, "zstd", 415, "content-encoding"),
        (b"no gzip", PROTOBUF, "gzip", 400, "gzip"),
        (gzip.compress(b"x")[:-3], PROTOBUF, "gzip", 400, "not complete"),
        (gzip.compress(b"x") + b"y", PROTOBUF, "gzip", 400, "not complete"),
        (gzip.compress(bytes(MAX_UNPACKED + 1)), PROTOBUF, "gzip", 413, "32 MiB"),
        (b"\xff\xff\xff", PROTOBUF, "", 400, "OTLP"),
        (b'{"resourceMetrics": 7}', JSON, "", 400, "OTLP"),
        (b"[" * 100_000, JSON, "", 400, "OTLP"),
        (b'{"resourceMetrics":[{"resource":' * 1000, JSON, "", 400, "OTLP"),
        (b"\xff", JSON, "", 400, "OTLP"),
    ],
)
def test_what_is_no_request_is_named_in_one_line(body: bytes, kind: str, encoding: str, code: int, named: str) -> None:
    with pytest.raises(BadBodyError, match=named) as raised:
        readings(body, kind, encoding)
    assert raised.value.code == code and "\n" not in str(raised.value) and len(str(raised.value)) < 200


def varint(number: int) -> bytes:
    chunk = bytearray()
    while number > 127:
        chunk.append(number & 127 | 128)
        number >>= 7
    return bytes([*chunk, number])


def within(*fields: int, of: bytes) -> bytes:
    """Return nested protobuf messages, given the numbers of their fields from the outside in."""
    for number in reversed(fields):
        of = bytes([number << 3 | 2]) + varint(len(of)) + of
    return of


MANY = 1_000_001
RESOURCES, SCOPES, METRICS, GAUGE, POINTS, ATTRIBUTES = 1, 2, 2, 5, 1, 7  # numbers of fields


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x00" * MANY,  # empty resources
        within(RESOURCES, of=b"\x12\x00" * MANY),  # empty scopes
        within(RESOURCES, SCOPES, of=b"\x12\x00" * MANY),  # empty metrics
        within(RESOURCES, SCOPES, METRICS, GAUGE, of=b"\x0a\x00" * MANY),  # empty points
        within(RESOURCES, SCOPES, METRICS, GAUGE, POINTS, of=b"\x3a\x00" * MANY),  # empty attributes
        within(RESOURCES, 1, 1, 2, 5, of=b"\x0a\x00" * MANY),  # a list of empty values
        within(RESOURCES, SCOPES, METRICS, 9, 1, of=b"\x31" + bytes(8) + b"\x18\x00" * MANY),  # numbers in a histogram
        b"\x78\x00" * MANY,  # unknown fields
    ],
)
def test_fields_are_counted_before_objects_are_made(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshmark.web.export.otlp_receiver.ExportMetricsServiceRequest.FromString", None)
    with pytest.raises(BadBodyError, match="found more than 1000000 fields; allowed: 1000000") as raised:
        readings(gzip.compress(body, 1), PROTOBUF, "gzip")
    assert raised.value.code == 413


@pytest.mark.parametrize(
    "text",
    [
        b'{"resourceMetrics":[' + b"{}," * 200_000 + b"{}]}",
        b'{"resourceMetrics":[{"scopeMetrics":[' + b"{}," * 200_000 + b"{}]}]}",
        b'{"x":[' + b"0," * 200_000 + b"0]}",
        b"[" * 200_001,
    ],
)
def test_parts_of_json_are_counted_before_it_is_read(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("google.protobuf.json_format.Parse", None)
    with pytest.raises(BadBodyError, match="parts of JSON; allowed: 200000, or protobuf") as raised:
        readings(text, JSON)
    assert raised.value.code == 413
    with pytest.raises(BadBodyError, match="found 8388609 bytes of JSON; allowed: 8388608") as raised:
        readings(b" " * ((8 << 20) + 1), JSON)
    assert raised.value.code == 413


def test_machines_and_metrics_of_a_body_are_limited() -> None:
    with pytest.raises(BadBodyError, match="found 2001 machines; allowed: 2000"):
        readings(b"\x0a\x00" * 2001, PROTOBUF)
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for number in range(1001):
        scope.metrics.add().name = f"meshmark.cpu.m{number}"
    with pytest.raises(BadBodyError, match="found more than 1000 metrics of a machine"):
        readings(request.SerializeToString(), PROTOBUF)


def test_a_node_of_256_cpus_may_send_all_its_components() -> None:
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for number in range(20):
        metric = scope.metrics.add()
        metric.name = f"meshmark.cpu.m{number}"
        for component in range(256):
            point = metric.gauge.data_points.add()
            point.as_double = component
            for key, value in (("component", f"CPU {component}"), ("class", "cpu"), ("node", "0"), ("stat", "mean")):
                attribute = point.attributes.add()
                attribute.key, attribute.value.string_value = key, value
    metric.gauge.data_points.extend(metric.gauge.data_points[0:1] * 15_000)
    ((reading, count),) = readings(gzip.compress(request.SerializeToString(), 1), PROTOBUF, "gzip")
    assert count == 20 * 256 + 15_000 and reading.values["cpu.m0"] == 127.5


@pytest.mark.parametrize("body", [b"\x0a", b"\x0a\xff", b"\x0b\x00", b"\xff" * 11, b"\x0a\x7f", b"\x09\x00"])
def test_what_is_cut_or_no_protobuf_is_one_line(body: bytes) -> None:
    with pytest.raises(BadBodyError, match="body: not metrics of OTLP") as raised:
        readings(body, PROTOBUF)
    assert raised.value.code == 400 and "\n" not in str(raised.value)


def test_an_empty_request_is_valid() -> None:
    assert readings(b"", PROTOBUF) == [] and readings(b"{}", JSON) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_spoiled_body_does_harm(data: st.DataObject) -> None:
    as_json = data.draw(st.booleans())
    request = whole()
    body = bytearray(json_format.MessageToJson(request).encode() if as_json else request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(body) - 1))
        damage = data.draw(st.sampled_from(["set", "cut", "repeat"]))
        if damage == "set":
            body[position] = data.draw(st.integers(0, 255))
        elif damage == "cut" and len(body) > 10:
            del body[position : position + data.draw(st.integers(1, 20))]
        else:
            body[position:position] = body[position : position + 30]
    try:
        points = readings(bytes(body), JSON if as_json else PROTOBUF)
    except BadBodyError as error:
        assert "\n" not in str(error)
        return
    for point, count in points:
        assert count >= 0 and all(abs(v) < float("inf") for v in point.values.values())
        assert set(point.values) <= set(point.units)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([PROTOBUF, JSON]), st.sampled_from(["", "gzip", "deflate", "br"]))
def test_no_bytes_do_harm(body: bytes, kind: str, encoding: str) -> None:
    try:
        readings(body, kind, encoding)
    except BadBodyError as error:
        assert error.code in {400, 413, 415} and "\n" not in str(error)


def test_the_answer_has_the_form_of_the_request() -> None:
    assert answer(PROTOBUF, 0, "") == b"" and json.loads(answer(JSON, 0, "")) == {}
    assert json.loads(answer(JSON, 3, "why"))["partialSuccess"] == {"rejectedDataPoints": "3", "errorMessage": "why"}
