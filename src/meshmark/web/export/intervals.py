"""The frames of an interval and their summaries."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from meshmark.watch.frames import Frame, FrameMetric

STATS: Final = ("mean", "min", "max", "p95")


@dataclass(slots=True)
class Interval:
    """The values of all frames of an interval: for each metric, frame after frame, NaN if unknown."""

    begin_s: float  # s since 1970
    end_s: float
    values: dict[str, array[float]] = field(default_factory=dict)

    def add(self, frame: Frame, metrics: Iterable[FrameMetric]) -> None:
        """Append the values of a frame; the interval ends with it."""
        for metric in metrics:
            row = frame.values.get(metric.name)
            if row is not None:
                self.values.setdefault(metric.name, array("d")).extend(math.nan if v is None else v for v in row)
        self.end_s = frame.at

    def summaries(self, metric: FrameMetric, count: int) -> list[tuple[float, float, float, float] | None]:
        """Return `STATS` of each of `count` components, percentiles by nearest rank; None if all values are unknown."""
        import numpy as np

        values = self.values.get(metric.name)
        if not values or not count:
            return [None] * count
        rows = np.sort(np.frombuffer(values, dtype=np.float64).reshape(-1, count), axis=0)  # NaN sorts to the end
        summaries: list[tuple[float, float, float, float] | None] = []
        for i, known_count in enumerate((~np.isnan(rows)).sum(axis=0).tolist()):
            column = rows[:known_count, i].tolist()
            p95 = math.ceil(0.95 * known_count) - 1
            summaries.append(
                (math.fsum(column) / known_count, column[0], column[-1], column[p95]) if known_count else None
            )
        return summaries
