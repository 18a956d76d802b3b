"""Draws recordings: utilisation of all components over time, and the difference between two recordings.

A raster has one row per component and one column per time bin, in the colours of the live map; grey is unknown. The
chart above it shows the mean, minimum and maximum of the class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import altair as alt

from meshmark.errors import MeshmarkError
from meshmark.views.charts.drawing import write_specs
from meshmark.watch.frames import USE, Frame, Header
from meshmark.watch.palette import PALETTES, STEPS

BINS: Final = 240  # columns of a raster; more would be too narrow to see
TITLES: Final = {"cpu": "CPUs", "memory": "Memory", "link": "Links", "io": "I/O"}


@dataclass(slots=True)
class UseBins:
    """Use of a class over time: `use[component][bin]`, which is None if it is unknown in the whole bin."""

    component_class: str
    metric: str
    estimated: bool
    names: tuple[str, ...]
    at_s: tuple[float, ...]  # end of each bin
    use: list[list[float | None]]


def binned(header: Header, frames: Iterable[Frame], bins: int = BINS) -> list[UseBins]:
    """Return means over equal time bins, for every class whose use is recorded.

    The use of a class is the metric that colours it on the map.

    Raises:
        MeshmarkError: The recording has no frame.
    """
    use_of, metrics = header.use, {m.name: m for m in header.metrics}
    samples = [(f.t_s, {k: f.values.get(m) for k, m in use_of.items()}) for f in frames]
    if not samples:
        raise MeshmarkError("the recording has no frame")
    begin, end = samples[0][0], samples[-1][0]
    count = min(bins, len(samples))
    width = (end - begin) / count or 1.0
    classes = []
    for kind, metric in use_of.items():
        n = header.count(kind)
        if metric not in metrics or not n:
            continue
        sums = [[0.0] * count for _ in range(n)]
        counts = [[0] * count for _ in range(n)]
        for t, values in samples:
            b = max(0, min(count - 1, int((t - begin) / width)))  # a damaged recording may go back in time
            for i, v in enumerate(values[kind] or ()):
                if v is not None:
                    sums[i][b] += v
                    counts[i][b] += 1
        use = [
            [s / k if k else None for s, k in zip(row, ks, strict=True)] for row, ks in zip(sums, counts, strict=True)
        ]
        names = tuple(str(c.get("name", i)) for i, c in enumerate(header.components[kind]))
        at_s = tuple(begin + width * (b + 1) for b in range(count))
        classes.append(UseBins(kind, metric, metrics[metric].estimated, names, at_s, use))
    return classes


def raster(
    b: UseBins, low: float, high: float, palette: str, unit_s: float, difference: bool = False
) -> alt.VConcatChart:
    """Draw the chart of one class.

    Args:
        b: Use of the components of the class, by component and time.
        low: Lower end of the colour scale, as a share.
        high: Upper end of the colour scale, as a share; a difference uses -high to high.
        palette: Name of the colour scheme.
        unit_s: Unit of the time axis in seconds (1, or 1e-6 for a model).
        difference: Whether the use is the change between two recordings.
    """
    title = f"time ({'s' if unit_s == 1 else 'µs'})"
    quantity = "change (points)" if difference else "use (%)"
    head = TITLES[b.component_class] + (f", estimated ({b.metric})" if b.estimated else "")
    width = (b.at_s[1] - b.at_s[0]) if len(b.at_s) > 1 else 1.0
    span = alt.Scale(nice=False, domain=[(b.at_s[0] - width) / unit_s, b.at_s[-1] / unit_s])
    cells = [
        {"t": (t - width) / unit_s, "u": t / unit_s, "name": name, "use": None if v is None else 100 * v}
        for name, row in zip(b.names, b.use, strict=True)
        for t, v in zip(b.at_s, row, strict=True)
    ]
    if difference:
        scale = alt.Scale(domain=[-100 * high, 0, 100 * high], range=["#2166ac", "#f2f2f2", "#b2182b"], clamp=True)
    else:
        bounds = [100 * (low + (high - low) * i / STEPS) for i in range(1, STEPS)]
        scale = alt.Scale(type="threshold", domain=bounds, range=list(PALETTES[palette]))
    colour = alt.Color("use:Q", scale=scale, title=quantity)
    height = max(24, min(560, 14 * len(b.names)))
    labels = len(b.names) <= 64
    body = (
        alt.Chart(alt.InlineData(values=cells), width=720, height=height)
        .mark_rect()
        .encode(
            x=alt.X("t:Q", title=title, scale=span),
            x2="u:Q",
            y=alt.Y("name:N", sort=list(b.names), title=None, axis=alt.Axis(labels=labels, ticks=labels)),
            color=alt.condition("datum.use === null", alt.value("#dddddd"), colour),
            tooltip=["name:N", alt.Tooltip("u:Q", title=title), alt.Tooltip("use:Q", format=".1f")],
        )
    )
    lines = []
    for k, t in enumerate(b.at_s):
        shares = [row[k] for row in b.use if row[k] is not None]
        if shares:
            percentages = [100 * v for v in shares if v is not None]
            lines.append(
                {
                    "t": t / unit_s,
                    "mean": math.fsum(percentages) / len(percentages),
                    "low": min(percentages),
                    "high": max(percentages),
                }
            )
    base = alt.Chart(alt.InlineData(values=lines), width=720, height=110).encode(x=alt.X("t:Q", title=None, scale=span))
    top = alt.layer(
        base.mark_area(opacity=0.25, color="#0072B2").encode(y=alt.Y("low:Q", title=quantity), y2="high:Q"),
        base.mark_line(color="#0072B2").encode(y="mean:Q"),
    )
    return alt.vconcat(top, body, title=head, spacing=6)


def draw_recording(
    header: Header, frames: Iterable[Frame], out: Path, low: float = 0.0, high: float = 1.0, palette: str = "inferno"
) -> list[Path]:
    """Write a PNG and an SVG for every class to a folder, each atomically, and return their paths."""
    unit = 1e-6 if header.period_s < 1e-3 else 1.0
    charts = {b.component_class: raster(b, low, high, palette, unit) for b in binned(header, frames)}
    return _write(charts, out)


def draw_difference(
    first: tuple[Header, Iterable[Frame]], second: tuple[Header, Iterable[Frame]], out: Path, high: float = 0.5
) -> list[Path]:
    """Draw how the use of each component changed between two recordings, aligned by their relative time.

    Classes whose use is a different metric in each recording are skipped.

    Raises:
        MeshmarkError: The machines have different components.
    """
    (a_header, a_frames), (b_header, b_frames) = first, second
    for kind in USE:
        a, b = (tuple(c.get("name") for c in h.components.get(kind, ())) for h in (a_header, b_header))
        if a != b:
            raise MeshmarkError(f"plot --against: the recordings differ in their {TITLES[kind]}: {len(a)} and {len(b)}")
    unit = 1e-6 if a_header.period_s < 1e-3 else 1.0
    charts = {}
    second_by_metric = {b.metric: b for b in binned(b_header, b_frames)}
    for x in binned(a_header, a_frames):
        if (y := second_by_metric.get(x.metric)) is None:
            continue
        count = min(len(x.at_s), len(y.at_s))

        def at(row: Sequence[float | None], k: int, count: int = count) -> float | None:
            return row[k * len(row) // count]

        change: list[list[float | None]] = []
        for p, q in zip(x.use, y.use, strict=True):
            pairs = [(at(p, k), at(q, k)) for k in range(count)]
            change.append([None if u is None or v is None else v - u for u, v in pairs])
        times = tuple(x.at_s[k * len(x.at_s) // count] for k in range(count))
        merged = replace(x, at_s=times, use=change)
        charts[f"{x.component_class}-difference"] = raster(merged, 0.0, high, "inferno", unit, difference=True)
    return _write(charts, out)


def _write(charts: dict[str, alt.VConcatChart], out: Path) -> list[Path]:
    return write_specs({name: chart.to_dict() | {"background": "white"} for name, chart in charts.items()}, out)
