"""Draws a mix of jobs under several policies: a bar for each policy, waiting jobs over time, and a Gantt chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import altair as alt
import numpy as np

from meshmark.load.queue.jobs import JobMix
from meshmark.load.queue.simulation import PolicyRun
from meshmark.load.queue.summary import PolicySummary, waiting_over_time
from meshmark.values.units import scale_for
from meshmark.views.charts.drawing import colours, write_specs

NAME: Final = "queue"  # of the files
MAX_BARS: Final = 20_000  # of all Gantt charts together; jobs of more would be thinner than a pixel
_POINTS: Final = 600  # of each line
_WIDTH: Final = 640


def draw_queue(mix: JobMix, runs: Sequence[PolicyRun], summaries: Sequence[PolicySummary], out: Path) -> list[Path]:
    """Write the chart to a folder as PNG and SVG, and return the paths. Unbound jobs have no Gantt chart."""
    names = [run.policy for run in runs]
    policy_scale = alt.Scale(domain=names, range=colours(len(names)))
    end_s = max(s.total_s for s in summaries)
    scale = scale_for("s", end_s)
    axis = f"time ({scale.symbol})"
    panels: list[alt.Chart | alt.HConcatChart] = [
        alt.hconcat(
            *(
                _bars(summaries, key, title, policy_scale)
                for key, title in (("total", "total time"), ("wait", "mean wait"))
            )
        ),
        _waiting(mix, runs, policy_scale, scale.factor, end_s, axis),
    ]
    left = MAX_BARS
    for run in runs:
        bars = _gantt_rows(mix, run, scale.factor)
        if bars and len(bars) <= left:
            left -= len(bars)
            panels.append(_gantt(run, bars, end_s / scale.factor, axis))
    chart = alt.vconcat(*panels, spacing=14).resolve_scale(color="independent")
    return write_specs({NAME: chart.to_dict() | {"background": "white"}}, out)


def _bars(summaries: Sequence[PolicySummary], key: str, title: str, policy_scale: alt.Scale) -> alt.Chart:
    values = [s.total_s if key == "total" else s.waiting_s["mean"] for s in summaries]
    scale = scale_for("s", max(values))
    rows = [{"policy": s.policy, "value": v / scale.factor} for s, v in zip(summaries, values, strict=True)]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows), width=_WIDTH // 2 - 60, height=22 * len(rows), title=title)
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=scale.symbol, scale=alt.Scale(zero=True)),
            y=alt.Y("policy:N", title=None, sort=None),
            color=alt.Color("policy:N", legend=None, scale=policy_scale),
        )
    )
    return chart


def _waiting(
    mix: JobMix, runs: Sequence[PolicyRun], policy_scale: alt.Scale, factor: float, end_s: float, axis: str
) -> alt.Chart:
    """Draw the number of waiting jobs over time, as the maximum of each interval."""
    rows: list[dict[str, Any]] = []
    edges = np.linspace(0.0, end_s, _POINTS + 1)
    for run in runs:
        steps = waiting_over_time(mix, run)
        times, counts = np.array([t for t, _ in steps]), np.array([n for _, n in steps])
        first = np.searchsorted(times, edges[:-1], "right") - 1
        last = np.searchsorted(times, edges[1:], "left")
        for i, (begin, end) in enumerate(zip(first, last, strict=True)):
            value = int(counts[max(0, begin) : max(begin + 1, end)].max())
            rows.append({"policy": run.policy, "time": edges[i] / factor, "value": value})
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows), width=_WIDTH, height=150, title="waiting jobs")
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("time:Q", title=axis),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=True)),
            color=alt.Color("policy:N", title=None, scale=policy_scale),
        )
    )
    return chart


def _gantt_rows(mix: JobMix, run: PolicyRun, factor: float) -> list[Mapping[str, Any]]:
    return [
        {
            "CPU": cpu,
            "top": cpu + 1,
            "begin": r.start_s / factor,
            "end": r.end_s / factor,
            "job": f"{mix.jobs[r.job].name}, {mix.jobs[r.job].slots}",
            "shade": r.job % 8,
        }
        for r in run.runs
        for cpu in r.cpus
    ]


def _gantt(run: PolicyRun, rows: Sequence[Mapping[str, Any]], end: float, axis: str) -> alt.Chart:
    cpus = 1 + max(row["CPU"] for row in rows)
    chart: alt.Chart = (
        alt.Chart(
            alt.InlineData(values=list(rows)),
            width=_WIDTH,
            height=max(60, min(320, 9 * cpus)),
            title=f"CPUs, {run.policy}",
        )
        .mark_rect(opacity=0.65, stroke="white", strokeWidth=0.3)
        .encode(
            x=alt.X("begin:Q", title=axis, scale=alt.Scale(domain=[0, end], nice=False)),
            x2="end:Q",
            y=alt.Y("CPU:Q", title=None, scale=alt.Scale(domain=[0, cpus], nice=False, reverse=True)),
            y2="top:Q",
            color=alt.Color("shade:N", legend=None, scale=alt.Scale(domain=list(range(8)), range=colours(8))),
            tooltip=["job:N"],
        )
    )
    return chart
