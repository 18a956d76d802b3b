"""Exports utilisation as OpenMetrics text for monitoring systems.

Scrapes are 15 to 60 s apart, but frames arrive ten times per second. Therefore each metric is exported as its mean,
minimum, maximum and 95th percentile over the last 15 s. Names are `meshmark_CLASS_WHAT` with the unit at the end;
shares are ratios from 0 to 1. Unknown values are omitted.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from meshmark.watch.frames import Frame, Header
from meshmark.web.intervals import STATS

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


class Window(Collector):
    """The frames of the last `WINDOW_S`, and their summary."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self._frames: deque[Frame] = deque()
        self._lock = threading.Lock()

    def add(self, frame: Frame) -> None:
        with self._lock:
            self._frames.append(frame)
            while self._frames[0].t_s < frame.t_s - WINDOW_S:
                self._frames.popleft()

    @property
    def empty(self) -> bool:
        """Whether there are no frames yet."""
        with self._lock:
            return not self._frames

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            frames = list(self._frames)
        for metric in self.header.metrics:
            kind = metric.component_class
            unit = "ratio" if metric.is_share else _UNITS.get(metric.unit, "")
            name = f"meshmark_{metric.name.replace('.', '_')}"
            family = GaugeMetricFamily(name, metric.what, labels=["machine", "component", "node", "stat"], unit=unit)
            for i, component in enumerate(self.header.components.get(kind, ())):
                rows = [f.values[metric.name] for f in frames if metric.name in f.values]
                known = sorted(v for row in rows if (v := row[i]) is not None)
                if not known:
                    continue
                p95 = known[min(len(known) - 1, math.ceil(0.95 * len(known)) - 1)]
                summary = (math.fsum(known) / len(known), known[0], known[-1], p95)
                for stat, value in zip(STATS, summary, strict=True):
                    where = [self.header.machine, str(component.get("name", i)), str(component.get("node", "")), stat]
                    family.add_metric(where, value)
            yield family
        cost = GaugeMetricFamily(
            "meshmark_sampler_cpu", "CPU time of the sampler over time", labels=["machine"], unit="ratio"
        )
        span = math.fsum(f.window_s for f in frames)
        if span > 0:
            cost.add_metric([self.header.machine], math.fsum(f.cost_s for f in frames) / span)
        yield cost


def text(window: Window) -> bytes:
    """The metrics in the OpenMetrics text format."""
    return bytes(generate_latest(window))  # type: ignore[no-untyped-call]
