"""Draws where the threads and the memory of a process were over time: CPUs used and memory by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import altair as alt

from meshmark.views.charts.drawing import colours, write_specs
from meshmark.watch.recorder.residency import Residency

NAME: Final = "process"  # of the files
_MEBIBYTE: Final = 1 << 20


def draw_residency(r: Residency, out: Path) -> list[Path]:
    """Write the chart to a folder as PNG and SVG, and return the paths."""
    nodes = list(dict.fromkeys(node for by_node in (*r.memory, *r.cpus) for node in by_node))
    panels = [
        _panel(r.at_s, r.cpus, nodes, "CPUs used by its threads, by node", 1.0, ""),
        _panel(r.at_s, r.memory, nodes, "memory by node (MiB)", _MEBIBYTE, "time (s)"),
    ]
    chart = alt.vconcat(*panels, spacing=14, title=r.title).resolve_scale(x="shared", color="shared")
    return write_specs({NAME: chart.to_dict() | {"background": "white"}}, out)


def _panel(
    at_s: Sequence[float], values: Sequence[Mapping[str, float]], nodes: Sequence[str], title: str, unit: float, x: str
) -> alt.Chart:
    rows: list[dict[str, Any]] = [
        {"t": t, "node": node, "value": by_node.get(node, 0.0) / unit, "order": nodes.index(node)}
        for t, by_node in zip(at_s, values, strict=True)
        for node in nodes
    ]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows), width=720, height=150, title=title)
        .mark_area(opacity=0.85, interpolate="step-before")
        .encode(
            x=alt.X("t:Q", title=x or None, scale=alt.Scale(nice=False)),
            y=alt.Y("value:Q", title=None, stack="zero"),
            color=alt.Color("node:N", title=None, scale=alt.Scale(domain=list(nodes), range=colours(len(nodes)))),
            order="order:Q",
        )
    )
    return chart
