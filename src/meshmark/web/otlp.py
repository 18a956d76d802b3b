"""Use for monitoring systems that are told: OTLP over HTTP, summaries of an interval, sent by a thread of its own.

Every metric is `meshmark.CLASS.WHAT` with the attributes `component`, `class`, `node`, `machine` and `stat` (mean, min,
max, p95 over the interval). Those for which OpenTelemetry has a name are sent under it too, their mean alone, so that
what others made for that name adds up. Units are UCUM's. What is unknown is left out, never told as zero.

The thread that reads frames only puts numbers aside. A collector that is dead or slow costs intervals, which are
counted and said, and never a frame.

Sources: OTLP 1 (opentelemetry.io/docs/specs/otlp: what is retried, partial success), its semantic conventions for
system and hardware metrics.
"""

from __future__ import annotations

import gzip
import http.client
import math
import os
import random
import threading
import time
import urllib.error
import urllib.request
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from meshmark.errors import UsageError
from meshmark.watch.frames import Frame, Header, Metric

STATS: Final = ("mean", "min", "max", "p95")
WAITING: Final = 60  # intervals that are kept for a collector that does not answer
TIMEOUT_S: Final = 10.0
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
_RETRIED: Final = {429, 502, 503, 504}
# Metrics that OpenTelemetry has a name for: that name, its unit, and what it is told with.
_MODES: Final = {"cpu.user": "user", "cpu.system": "system", "cpu.interrupts": "interrupt", "cpu.steal": "steal"}
_HARDWARE: Final = {"package": "cpu", "core": "cpu", "uncore": "cpu", "dram": "memory"}


def address_of(url: str) -> str:
    """Where metrics go: the collector's address with `/v1/metrics` at its end.

    Raises:
        UsageError: it is no address of HTTP.
    """
    parts: SplitResult | None
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, good = None, False
    if parts is not None and "@" in parts.netloc:  # said without it: it holds a password
        raise UsageError(
            "--otlp: found a name before '@', an address as http://HOST:4318 is needed",
            "OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20… sends a password",
        )
    if (
        parts is None
        or not good
        or parts.query
        or parts.fragment
        or any(c.isspace() or not c.isprintable() for c in url)
    ):
        raise UsageError(f"--otlp: found '{url[:80]}', an address as http://HOST:4318 is needed")
    base = url.rstrip("/")
    return base if base.endswith("/v1/metrics") else base + "/v1/metrics"


def headers_of(text: str) -> dict[str, str]:
    """What OTEL_EXPORTER_OTLP_HEADERS says, as `key=value,key=value` with values in per cent signs.

    Raises:
        UsageError: a part of it is none.
    """
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = (w.strip() for w in part.partition("="))
        value = unquote(value)
        if not equals or not key.replace("-", "").replace("_", "").isalnum() or not value.isprintable():
            raise UsageError("OTEL_EXPORTER_OTLP_HEADERS: found a part that is no header, key=value,… is needed")
        found[key] = value
    return found


@dataclass(slots=True)
class Interval:
    """The frames of one interval: numbers of every metric, one after the other, NaN for unknown."""

    begin_s: float  # s since 1970
    end_s: float
    frames: int = 0
    values: dict[str, array[float]] = field(default_factory=dict)


def summaries(interval: Interval, metric: Metric, count: int) -> list[tuple[float, float, float, float] | None]:
    """Mean, least, greatest and 95th percentile (nearest rank) of each component; None where nothing was known."""
    import numpy as np

    given = interval.values.get(metric.name)
    if not given or not count:
        return [None] * count
    rows = np.sort(np.frombuffer(given, dtype=np.float64).reshape(-1, count), axis=0)  # NaN goes to the end
    known = (~np.isnan(rows)).sum(axis=0)
    told: list[tuple[float, float, float, float] | None] = []
    for i, n in enumerate(known.tolist()):
        if n == 0:
            told.append(None)
            continue
        column = rows[:n, i].tolist()
        told.append((math.fsum(column) / n, column[0], column[-1], column[math.ceil(0.95 * n) - 1]))
    return told


def _unit(metric: Metric) -> str:
    return {"1": "1", "B": "By", "B/s": "By/s"}.get(metric.unit, metric.unit)


def encode(header: Header, interval: Interval) -> bytes:
    """An ExportMetricsServiceRequest of one interval."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add()
    resource = {
        "service.name": "meshmark",
        "service.version": version("meshmark"),
        "host.name": header.machine,
        "os.type": "linux",
    }
    _tell(of_resource.resource.attributes, resource)
    scope = of_resource.scope_metrics.add()
    scope.scope.name, scope.scope.version = "meshmark", version("meshmark")
    begin_ns, end_ns = int(interval.begin_s * 1e9), int(interval.end_s * 1e9)

    def gauge(name: str, unit: str, what: str) -> Callable[[float, Mapping[str, str | int]], None]:
        family: Any = None

        def point(value: float, about: Mapping[str, str | int]) -> None:
            nonlocal family
            if family is None:  # a metric of which nothing is known is not sent
                family = scope.metrics.add(name=name, unit=unit, description=what)
            made = family.gauge.data_points.add(as_double=value, time_unix_nano=end_ns, start_time_unix_nano=begin_ns)
            _tell(made.attributes, about)

        return point

    # One family for all modes of a CPU, as the convention has it.
    utilization = gauge("system.cpu.utilization", "1", "share of time by mode of the CPU, mean of the interval")
    power = gauge("hw.power", "W", "power drawn, mean of the interval")
    for metric in header.metrics:
        kind = metric.component_class
        components = header.components.get(kind, ())
        own = gauge(f"meshmark.{metric.name}", _unit(metric), metric.what)
        for i, told in enumerate(summaries(interval, metric, len(components))):
            if told is None:
                continue
            component = components[i]
            name = str(component.get("name", i))
            about: dict[str, str | int] = {"component": name, "class": kind, "machine": header.machine}
            if "node" in component or kind == "node":
                about["node"] = str(component.get("node", component.get("number", i)))
            for stat, value in zip(STATS, told, strict=True):
                own(value, {**about, "stat": stat})
            if metric.name in _MODES and isinstance(number := component.get("number"), int):
                utilization(told[0], {"cpu.logical_number": number, "cpu.mode": _MODES[metric.name]})
            # Parts of a package come after its name: "package-0 dram".
            part = name.rsplit(maxsplit=1)[-1].partition("-")[0]
            if metric.name == "power.drawn" and part in _HARDWARE:
                power(told[0], {"hw.id": name, "hw.type": _HARDWARE[part]})
    return bytes(request.SerializeToString())


def _tell(attributes: Any, values: Mapping[str, str | int]) -> None:
    for key, value in values.items():
        made = attributes.add(key=key)
        if isinstance(value, int):
            made.value.int_value = value
        else:
            made.value.string_value = value


class _Refused(Exception):
    """The collector's answer; `wait_s` where it says when to come again, `again` whether that makes sense."""

    def __init__(self, why: str, again: bool, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.again, self.wait_s = again, wait_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET, and its answer pass for the collector's."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Exporter:
    """Sends what frames come to, an interval at a time; use it in a `with`, around the reading of frames.

    Args:
        url: the collector's address, as http://HOST:4318.
        interval_s: of a summary.
        talk: is told of trouble and of its end, from the sending thread.

    Raises:
        UsageError: a wrong address or header.
    """

    def __init__(self, header: Header, url: str, interval_s: float, talk: Callable[[str], None]) -> None:
        self.address = address_of(url)
        parts = urlsplit(self.address)
        self._shown = f"{parts.scheme}://{parts.netloc}"
        self._headers = {
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
            "user-agent": "meshmark",
            **headers_of(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")),
        }
        self.header, self.interval_s, self._talk = header, interval_s, talk
        self.sent = self.lost = self.rejected = 0  # intervals, intervals, single points
        self._handed = 0
        self._open: Interval | None = None
        self._waiting: deque[Interval] = deque()
        self._wake = threading.Condition()
        self._ending = False
        self._said = ""  # the trouble that was told last
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._thread = threading.Thread(target=self._send_all, name="otlp", daemon=True)

    def tee(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """The same frames, each put aside on its way."""
        for frame in frames:
            self.add(frame)
            yield frame

    def add(self, frame: Frame) -> None:
        """Puts a frame's numbers aside; hands the interval on when it is full."""
        now = self._open
        if now is None:
            now = self._open = Interval(frame.at - frame.window_s, frame.at)
        for metric in self.header.metrics:
            row = frame.values.get(metric.name)
            if row is not None:
                given = now.values.setdefault(metric.name, array("d"))
                given.extend(math.nan if v is None else v for v in row)
        now.frames += 1
        now.end_s = frame.at
        # Half a window less: ticks are not exact, and a frame more would shift every interval after it.
        if now.end_s - now.begin_s >= self.interval_s - frame.window_s / 2 or now.end_s < now.begin_s:
            self._hand_on()

    def _hand_on(self) -> None:
        with self._wake:
            if self._open is not None:
                self._waiting.append(self._open)
                self._open = None
                self._handed += 1
            while len(self._waiting) > WAITING:
                self._waiting.popleft()
                self.lost += 1
            self._wake.notify()

    def _send_all(self) -> None:
        wait_s = FIRST_WAIT_S
        while True:
            with self._wake:
                while not self._waiting and not self._ending:
                    self._wake.wait()
                if not self._waiting:
                    return
                interval = self._waiting.popleft()
            try:
                self._send(encode(self.header, interval))
            except _Refused as why:
                self._complain(str(why))
                if not why.again:
                    self.lost += 1
                    continue
                with self._wake:
                    self._waiting.appendleft(interval)
                    if self._ending:
                        return  # one try each at the end: who ends must not wait for the dead
                    # Not all machines at once when the collector is back.
                    self._wake_within(max(why.wait_s, wait_s * random.uniform(0.75, 1.25)))
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            else:
                self.sent += 1
                wait_s = FIRST_WAIT_S
                if self._said:
                    self._said = ""
                    self._talk(f"otlp: {self._shown} takes them again; {self._losses()}")

    def _wake_within(self, wait_s: float) -> None:
        """Waits, though not when it is to end; that full intervals come meanwhile is no reason to try earlier."""
        until = time.monotonic() + wait_s
        while not self._ending and (left := until - time.monotonic()) > 0:
            self._wake.wait(left)

    def _complain(self, why: str) -> None:
        if why != self._said:  # each trouble once, not at every try
            self._said = why
            self._talk(f"otlp: {self._shown}: {why}; the last {WAITING} intervals are kept and tried again")

    def _losses(self) -> str:
        points = f", {self.rejected} single points were rejected" if self.rejected else ""
        return f"{self.sent} intervals were sent, {self.lost} lost{points}"

    def _send(self, message: bytes) -> None:
        """Sends one message; raises _Refused."""
        request = urllib.request.Request(
            self.address, data=gzip.compress(message, 1), headers=self._headers, method="POST"
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                body = answer.read(1 << 20)
        except urllib.error.HTTPError as why:
            with why:
                after = str(why.headers.get("retry-after", "")) if why.headers else ""
            wait_s = float(after) if after.isdigit() and len(after) < 6 else 0.0
            raise _Refused(f"it answers {why.code} {why.reason}", why.code in _RETRIED, wait_s) from why
        except (OSError, http.client.HTTPException) as why:
            reason = why.reason if isinstance(why, urllib.error.URLError) else why
            if isinstance(reason, TimeoutError):
                raise _Refused(f"no answer within {TIMEOUT_S:g} s", again=True) from why
            text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise _Refused(text, again=True) from why
        self._heed(body)

    def _heed(self, body: bytes) -> None:
        """What the collector says of a message it took in part."""
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

        try:
            partial = ExportMetricsServiceResponse.FromString(body).partial_success
        except DecodeError:
            return  # some answer in words; the status was that of success
        if partial.rejected_data_points:
            self.rejected += partial.rejected_data_points
            said = " ".join(partial.error_message.split())[:200]
            self._talk(
                f"otlp: {self._shown} rejects {partial.rejected_data_points} points: {said or 'without a reason'}"
            )

    def __enter__(self) -> Exporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._hand_on()  # what is open goes too
        with self._wake:
            self._ending = True
            self._wake.notify_all()
        self._thread.join(TIMEOUT_S / 2)
        self.lost = self._handed - self.sent  # with those that wait, and one that is on its way
        self._talk(f"otlp: {self._losses()}")
