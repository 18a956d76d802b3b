"""Export of metrics to OpenTelemetry collectors over OTLP/HTTP, as summaries of an interval.

Each metric is sent as `meshmark.CLASS.WHAT` with the attributes `component`, `class`, `node`, `machine` and `stat`
(mean, min, max, p95 over the interval). Metrics that have a name in OpenTelemetry's conventions are also sent under
that name, but only their mean. Units follow UCUM. Unknown values are omitted, not sent as zero.

The thread that reads frames never waits for the collector: a slow or unreachable collector costs intervals, which are
counted and reported, but no frames. `docs/decisions/0013-otlp.md` separates the work of the SDK from the work of this
module.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final
from urllib.parse import unquote, urlsplit

from opentelemetry.util import re as otel_re

from meshmark.errors import UsageError
from meshmark.watch.frames import Frame, Header
from meshmark.watch.whole import whole_frame, whole_header
from meshmark.web.export.intervals import STATS, Interval

MAX_QUEUED: Final = 60  # intervals
FIRST_WAIT_S: Final = 1.0
MAX_WAIT_S: Final = 60.0
END_S: Final = 5.0  # time limit for the last intervals when monitoring ends
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")


def endpoint_of(url: str) -> str:
    """Return the collector's URL with the path `/v1/metrics`.

    Raises:
        UsageError: `url` is not an HTTP URL, or contains credentials, a query or a fragment.
    """
    expected = "allowed: a URL such as http://HOST:4318"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise UsageError(f"--otlp: found '{url[:80]}'; {expected}") from None
    if "@" in parts.netloc:  # not printed: it may contain a password
        raise UsageError(
            f"--otlp: found credentials before '@'; {expected}",
            "OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20… sends a password",
        )
    if not valid or parts.query or parts.fragment or any(c.isspace() or not c.isprintable() for c in url):
        raise UsageError(f"--otlp: found '{url[:80]}'; {expected}")
    base = url.rstrip("/")
    return base if base.endswith("/v1/metrics") else base + "/v1/metrics"


def check_headers() -> None:
    """Refuse headers in the environment that the exporter would drop with a warning that prints their value.

    Raises:
        UsageError: an entry is not `key=value` in printable ASCII.
    """
    # Without a handler, Python prints the parser's warnings, which contain the value.
    logging.getLogger(otel_re.__name__).addHandler(logging.NullHandler())
    for name in _HEADERS:
        for entry in filter(str.strip, os.environ.get(name, "").split(",")):
            text = unquote(entry)
            if not (text.isascii() and text.isprintable() and otel_re.parse_env_headers(entry, liberal=True)):
                raise UsageError(f"{name}: found an entry that is not a header; allowed: key=value,…")


class Exporter:
    """Sends summaries of frames from a separate thread; a context manager around the reading of frames.

    Args:
        url: URL of the collector, for example http://HOST:4318.
        interval_s: time between two summaries.
        whole: send the means of the whole machine, see `watch/whole.py`, instead of the summaries of its components.
        report: called with messages about failures, recovery and the final counts, also from the sending thread.

    Raises:
        UsageError: the URL, or a header in the environment, is invalid.
    """

    def __init__(
        self, header: Header, url: str, interval_s: float, report: Callable[[str], None], whole: bool = False
    ) -> None:
        check_headers()
        self._endpoint = endpoint_of(url)
        url_parts = urlsplit(self._endpoint)
        self._shown = f"{url_parts.scheme}://{url_parts.netloc}"
        self.header, self.interval_s, self._report = whole_header(header) if whole else header, interval_s, report
        self._whole_of = header if whole else None
        self.sent = self.lost = 0  # intervals
        self.rejected = 0  # data points
        self._completed = 0  # intervals
        self._open: Interval | None = None
        self._queue: deque[Interval] = deque()
        self._queued = threading.Condition()
        self._ending = threading.Event()
        self._failure = ""  # last reported failure
        self._thread = threading.Thread(target=self._send_all, name="otlp", daemon=True)

    def tee(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """Pass frames on, adding each to the current interval."""
        for frame in frames:
            self.add(frame)
            yield frame

    def add(self, frame: Frame) -> None:
        """Add a frame to the current interval, and queue the interval if it is complete."""
        if self._whole_of is not None:
            frame = whole_frame(self._whole_of, frame)
        interval = self._open
        if interval is None:
            interval = self._open = Interval(frame.at - frame.window_s, frame.at)
        interval.add(frame, self.header.metrics)
        # Half a window less, because ticks are not exact, and one more frame would shift every later interval.
        if (
            interval.end_s - interval.begin_s >= self.interval_s - frame.window_s / 2
            or interval.end_s < interval.begin_s
        ):
            self._complete()

    def _complete(self) -> None:
        with self._queued:
            if self._open is not None:
                self._queue.append(self._open)
                self._open = None
                self._completed += 1
            while len(self._queue) > MAX_QUEUED:
                self._queue.popleft()
                self.lost += 1
            self._queued.notify()

    def _next(self) -> Interval | None:
        """Return the oldest interval; None after the last one."""
        with self._queued:
            self._queued.wait_for(lambda: self._queue or self._ending.is_set())
            return self._queue.popleft() if self._queue else None

    def _send_all(self) -> None:
        from meshmark.web.export.otlp_client import Client, SendError  # 0.3 s, in parallel with the first interval

        client = Client(self.header, self._endpoint, STATS[:1] if self._whole_of else STATS)
        wait_s = FIRST_WAIT_S
        while (interval := self._next()) is not None:
            try:
                rejected_points, reason = client.send(interval)
            except SendError as failure:
                if str(failure) != self._failure:  # report a failure once, not at every attempt
                    self._failure = str(failure)
                    outcome = f"keeping the last {MAX_QUEUED} intervals to retry" if failure.retry else "interval lost"
                    self._report(f"otlp: {self._shown}: {failure}; {outcome}")
                if not failure.retry:
                    self.lost += 1
                    continue
                with self._queued:
                    self._queue.appendleft(interval)
                if self._ending.is_set():
                    return  # one attempt only: an unreachable collector must not delay the end
                # The wait is random, so that many machines do not return to a restarted collector at once.
                self._ending.wait(max(failure.wait_s, wait_s * random.uniform(0.75, 1.25)))
                wait_s = min(2 * wait_s, MAX_WAIT_S)
            else:
                self.sent += 1
                wait_s = FIRST_WAIT_S
                if self._failure:
                    self._failure = ""
                    self._report(f"otlp: {self._shown} accepts data again; {self._counts()}")
                if rejected_points:
                    self.rejected += rejected_points
                    self._report(
                        f"otlp: {self._shown} rejected {rejected_points} data points: {reason or 'no reason given'}"
                    )

    def _counts(self) -> str:
        rejected_text = f", {self.rejected} data points rejected" if self.rejected else ""
        return f"{self.sent} intervals sent, {self.lost} lost{rejected_text}"

    def __enter__(self) -> Exporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._complete()  # the current interval too
        with self._queued:
            self._ending.set()
            self._queued.notify()
        # END_S is for the collector: after a short run on a busy machine, the thread may still import the client.
        import_module("meshmark.web.export.otlp_client")
        self._thread.join(END_S)
        self.lost = self._completed - self.sent  # includes queued intervals, and one that may be in flight
        self._report(f"otlp: {self._counts()}")
