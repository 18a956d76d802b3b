"""Draws the speed-up of a command by number of threads, and below it the use of each class of components."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import altair as alt

from meshmark.views.charts.drawing import colours, write_specs
from meshmark.watch.recorder.speedup import ThreadPoint

NAME: Final = "speed-up"  # of the files


def draw_speed_up(points: Sequence[ThreadPoint], out: Path) -> list[Path]:
    """Write the chart to a folder as PNG and SVG, and return the paths."""
    first = points[0].threads
    speeds = [{"threads": p.threads, "value": p.speed_up, "line": "measured"} for p in points]
    speeds += [{"threads": p.threads, "value": p.threads / first, "line": "ideal"} for p in points]
    classes = list(dict.fromkeys(kind for p in points for kind in p.use))
    uses = [{"threads": p.threads, "value": 100 * share, "line": kind} for p in points for kind, share in p.use.items()]
    unit = "1 thread" if first == 1 else f"{first} threads"
    panels = [_panel(speeds, ["measured", "ideal"], ["#000000", "#AAAAAA"], f"speed-up over {unit}", "", points)]
    if uses:
        panels.append(_panel(uses, classes, colours(len(classes)), "mean use (%)", "threads", points))
    chart = alt.vconcat(*panels, spacing=14).resolve_scale(x="shared", color="independent")
    return write_specs({NAME: chart.to_dict() | {"background": "white"}}, out)


def _panel(
    rows: list[dict[str, Any]], domain: list[str], range_: list[str], title: str, x: str, points: Sequence[ThreadPoint]
) -> alt.Chart:
    threads = [p.threads for p in points]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows), width=520, height=190, title=title)
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "threads:Q",
                title=x or None,
                axis=alt.Axis(values=threads, format="d"),
                scale=alt.Scale(domain=[threads[0], threads[-1]], nice=False, padding=12),
            ),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=True)),
            color=alt.Color("line:N", title=None, scale=alt.Scale(domain=domain, range=range_)),
        )
    )
    return chart
