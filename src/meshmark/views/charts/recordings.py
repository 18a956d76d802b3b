"""Draws several recordings in one chart: a panel for each class of components, with a line for each recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import altair as alt
import numpy as np

from meshmark.views.charts.drawing import colours, write_specs
from meshmark.watch.recorder.overlay import UseOverlay

NAME: Final = "recordings"  # of the files
_MEAN: Final = "mean, 95 % band"
_TITLES: Final = {"cpu": "CPUs", "memory": "Memory", "link": "Links", "io": "I/O"}


def draw_overlay(
    overlays: Sequence[UseOverlay], names: Sequence[str], aligned_at: str, unit_s: float, out: Path
) -> list[Path]:
    """Write the chart to a folder as PNG and SVG, and return the paths.

    Args:
        overlays: The panels.
        names: Names of the recordings, which are unique.
        aligned_at: What time 0 is.
        unit_s: Unit of the time axis in seconds (1, or 1e-6 for models).
        out: The folder.
    """
    title = f"time after {aligned_at} ({'s' if unit_s == 1 else 'µs'})"
    panels = [_panel(o, names, unit_s, title if o is overlays[-1] else "") for o in overlays]
    chart = alt.vconcat(*panels, spacing=14).resolve_scale(x="shared", color="shared")
    return write_specs({NAME: chart.to_dict() | {"background": "white"}}, out)


def _panel(o: UseOverlay, names: Sequence[str], unit_s: float, time_title: str) -> alt.LayerChart | alt.FacetChart:
    has_mean = bool(np.isfinite(o.mean).any())
    domain = [*names, *([_MEAN] if has_mean else [])]
    scale = alt.Scale(domain=domain, range=[*colours(len(names)), *(["#000000"] if has_mean else [])])
    width_s = float(o.at_s[1] - o.at_s[0]) if len(o.at_s) > 1 else 0.0
    centres = [round((float(t) - width_s / 2) / unit_s, 6) for t in o.at_s]
    rows: list[dict[str, Any]] = [
        {"t": t, "use": None if np.isnan(v) else round(100 * float(v), 3), "recording": name}
        for name, line in zip(names, o.use, strict=True)
        for t, v in zip(centres, line, strict=True)
    ]
    title = _TITLES[o.component_class] + (", estimated" if o.estimated else "")
    x = alt.X("t:Q", title=time_title or None, scale=alt.Scale(nice=False))
    colour = alt.Color("recording:N", title=None, scale=scale, legend=alt.Legend(symbolType="stroke"))
    base = alt.Chart(alt.InlineData(values=rows), width=720, height=170, title=title)
    lines = base.mark_line(strokeWidth=1.2, opacity=0.55 if has_mean else 1.0).encode(
        x=x, y=alt.Y("use:Q", title="use (%)"), color=colour
    )
    if not has_mean:
        return alt.layer(lines)
    bands = [
        {"t": t, "mean": 100 * m, "low": 100 * low, "high": 100 * high, "recording": _MEAN}
        for t, m, low, high in zip(centres, o.mean.tolist(), o.low.tolist(), o.high.tolist(), strict=True)
        if np.isfinite(m)
    ]
    band = alt.Chart(alt.InlineData(values=bands)).encode(x=x)
    return alt.layer(
        band.mark_area(opacity=0.2, color="#000000", clip=True).encode(y="low:Q", y2="high:Q"),
        lines,
        band.mark_line(strokeWidth=2.2).encode(y="mean:Q", color=colour),
    )
