"""Writes recordings as CSV, with one row for each time, component and metric."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from meshmark.watch.frames import Frame, Header

HEAD = ("time", "component", "metric", "value", "unit")


def metric_rows(header: Header, frames: Iterable[Frame]) -> Iterator[tuple[float, str, str, float, str]]:
    """Yield a row for each known value: time in s, component, metric, value and unit. Unknown values have no row."""
    names = {m.name: header.names(m.component_class) for m in header.metrics}
    for frame in frames:
        for metric in header.metrics:
            for name, value in zip(names[metric.name], frame.values.get(metric.name, ()), strict=False):
                if value is not None:
                    yield frame.t_s, name, metric.name, value, metric.unit


def write_csv(out: Any, recordings: Sequence[tuple[str, Header, Iterable[Frame]]]) -> int:
    """Write recordings to a text stream, and return the number of rows below the heading.

    Args:
        out: Text stream.
        recordings: Name, header and frames of each; if there are several, the first column is the name.
    """
    writer = csv.writer(out, lineterminator="\n")
    is_several = len(recordings) > 1
    writer.writerow((*(("recording",) if is_several else ()), *HEAD))
    count = 0
    for name, header, frames in recordings:
        for time_s, component, metric, value, unit in metric_rows(header, frames):
            numbers = (f"{time_s:.6f}", component, metric, f"{value:.6g}", unit)
            writer.writerow((name, *numbers) if is_several else numbers)
            count += 1
    return count
