"""Exports utilisation as OpenMetrics text for monitoring systems.

Scrapes are 15 to 60 s apart, but frames arrive ten times per second. Therefore each metric is exported as its mean,
minimum, maximum and 95th percentile over the last 15 s. Names are `meshmark_CLASS_WHAT` with the unit at the end;
shares are ratios from 0 to 1. Unknown values are omitted.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from meshmark.watch.frames import Frame, Header
from meshmark.watch.whole import Components, whole_frame, whole_header
from meshmark.web.export.intervals import STATS, Interval
from meshmark.web.fleet.live_fleet import NodeReport

WINDOW_S: Final = 15.0
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_UNITS: Final = {
    "B": "bytes",
    "B/s": "bytes_per_second",
    "s": "seconds",
    "1/s": "per_second",
    "Hz": "hertz",
    "W": "watts",
}


_NAME_OF: Final = {name: unit for unit, name in _UNITS.items()} | {"ratio": "1"}
# A sample of a mean as `text` writes it. The library's parser takes 12 times as long, too long for thousands of nodes.
_MEAN: Final = re.compile(
    rb"^meshmark_([a-z0-9]+)_(\w+?)(?:_(" + "|".join(sorted(_NAME_OF, key=len, reverse=True)).encode() + rb"))?"
    rb'\{component="((?:[^"\\]|\\.)*)",machine="([^"\\]*)",node="[^"]*",stat="mean"\} ([-+.0-9eE]+)$',
    re.MULTILINE,
)


class Window(Collector):
    """The frames of the last `WINDOW_S`, and their summary."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self._frames: deque[Frame] = deque()
        self._lock = threading.Lock()

    def add(self, frame: Frame) -> None:
        """Add a frame, and forget the frames that are older than the window."""
        with self._lock:
            self._frames.append(frame)
            while self._frames[0].t_s < frame.t_s - WINDOW_S:
                self._frames.popleft()

    @property
    def empty(self) -> bool:
        """Return whether there are no frames yet."""
        with self._lock:
            return not self._frames

    def whole(self) -> Window:
        """Return the window of the whole machine, see `watch/whole.py`."""
        with self._lock:
            frames = list(self._frames)
        window = Window(whole_header(self.header))
        for frame in frames:
            window.add(whole_frame(self.header, frame))
        return window

    def collect(self) -> Iterator[Metric]:
        """Yield one family of gauges for each metric, with statistics over the window."""
        with self._lock:
            frames = list(self._frames)
        interval = Interval(0.0, 0.0)
        for frame in frames:
            interval.add(frame, self.header.metrics)
        for metric in self.header.metrics:
            components = self.header.components.get(metric.component_class, ())
            unit = "ratio" if metric.is_share else _UNITS.get(metric.unit, "")
            name = f"meshmark_{metric.name.replace('.', '_')}"
            family = GaugeMetricFamily(name, metric.what, labels=["machine", "component", "node", "stat"], unit=unit)
            summaries = interval.summaries(metric, len(components))
            for i, (component, summary) in enumerate(zip(components, summaries, strict=True)):
                labels = [self.header.machine, str(component.get("name", i)), str(component.get("node", ""))]
                for stat, value in zip(STATS, summary or (), strict=False):  # unknown values have no summary
                    family.add_metric([*labels, stat], value)
            yield family
        cost = GaugeMetricFamily(
            "meshmark_sampler_cpu", "CPU time of the sampler over time", labels=["machine"], unit="ratio"
        )
        span = math.fsum(f.window_s for f in frames)
        if span > 0:
            cost.add_metric([self.header.machine], math.fsum(f.cost_s for f in frames) / span)
        yield cost


def text(window: Window) -> bytes:
    """Return the metrics in the OpenMetrics text format."""
    return bytes(generate_latest(window))  # type: ignore[no-untyped-call]


def reading_of(data: bytes) -> NodeReport:
    """Return what a machine reports in such a text; the machine is "" if the text has no metric of Meshmark."""
    components, machine = Components(), b""
    for kind, quantity, unit, component, host, number in _MEAN.findall(data):
        machine = host
        with contextlib.suppress(ValueError):  # invalid numbers such as 1-2
            name = b".".join((kind, quantity)).decode()
            components.add(name, _NAME_OF.get(unit.decode(), "1"), component.decode("utf-8", "replace"), float(number))
    return NodeReport(machine.decode("utf-8", "replace"), 0.0, *components.whole())
