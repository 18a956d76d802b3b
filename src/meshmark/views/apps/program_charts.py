"""Draws charts of MPI programs: time by part, breakdown of steps, pop by grid, and npb kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import altair as alt

from meshmark.store.record import Record
from meshmark.values.units import show
from meshmark.views.apps.programs import (
    ANATOMY,
    GYRO,
    POP,
    SWIM,
    StepDisplay,
    StepParts,
    best_of,
    grids,
    order_of,
    prediction,
    programming_models,
    shown,
    steps,
    times,
    where_of,
)
from meshmark.views.charts import charts
from meshmark.views.charts.comm import TIME
from meshmark.views.charts.drawing import (
    FULL,
    PALETTE,
    Row,
    chart_of,
    clearest,
    drawing,
    layered,
    log_axis,
    row,
    tooltip,
)
from meshmark.views.content.selection import selected, text_of

_HALF, _MORE, _MEASURED = "half, predicted", "more, predicted", "more, measured"
COLOURS: Final = {
    "computing": PALETTE[0],
    "halo exchange": PALETTE[1],
    "reductions": PALETTE[3],
    "transposes": PALETTE[2],
    "latency": PALETTE[1],
    "bandwidth": PALETTE[2],
    "imbalance": PALETTE[4],
    "other": "#A7AFB8",
    _HALF: PALETTE[2],
    _MORE: PALETTE[1],
    _MEASURED: PALETTE[0],
}
# The scale is shared by bars and points in adjacent panels.
_STROKES: Final = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))


# ------------------------------------------------------------------ charts


def _bars(
    labelled: Sequence[tuple[str, StepParts]], program: StepDisplay, limit: float, width: int
) -> alt.LayerChart | alt.FacetChart:
    """Draw a stacked bar per step, with a mark at the measured time; the axis ends at `limit`."""
    rows: list[Row] = []
    ends: list[Row] = []
    for label, split in labelled:
        bar_end = 0.0
        flagged = bool(split.flags)
        for part in program.parts:
            r = split.parts.get(part)
            if r is None or r.value <= 0:
                continue
            texts = row(r, label=label, part=part, share=f"{100 * split.share(part):.1f} %")
            rows.append({**texts, "from": bar_end, "to": bar_end + r.value, "flagged": flagged})
            bar_end += r.value
        low, high = split.total.bounds or (split.total.value,) * 2
        # A wide interval of few samples must not compress all bars.
        high = min(high, limit)
        other = split.parts.get("other")
        note = f"{show(split.total.value, 's')}"
        if other is not None and other.value < 0:
            note += f"; other {show(other.value, 's')}"
        ends.append(
            {
                **row(split.total, label=label, part=program.step, share="–"),
                "low": low,
                "high": high,
                "note": note,
                "end": max(bar_end, high),
            }
        )
    order = [label for label, _ in labelled]
    names = [p for p in program.parts if any(r["part"] == p for r in rows)] or list(program.parts)
    scale = alt.Scale(domain=list(program.parts), range=[COLOURS[p] for p in program.parts])
    y = alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=260, ticks=False, domain=False))
    axis = alt.Axis(labelExpr=f"datum.value === 0 ? '0' : {TIME}", tickCount=5, labelOverlap=True)
    domain = alt.Scale(domain=[0, limit * 1.02], clamp=True, nice=False)
    tips = tooltip("label", "part", "share")
    bars = (
        chart_of(rows)
        .mark_bar(strokeWidth=1.5, height={"band": 0.62})
        .encode(
            y=y,
            x=alt.X("from:Q", title=None, scale=domain, axis=axis),
            x2="to:Q",
            color=alt.Color("part:N", title=None, scale=scale, legend=alt.Legend(values=names, columns=8)),
            stroke=alt.Stroke("part:N", scale=_STROKES, legend=None),
            fillOpacity=alt.condition("datum.flagged", alt.value(0.3), alt.value(1.0)),
            tooltip=tips,
        )
    )
    base = chart_of(ends).encode(y=y)
    x = alt.X("low:Q", scale=domain)
    whisker = base.mark_rule(strokeWidth=1.5).encode(x=x, x2="high:Q", tooltip=tips)
    # The mark is a character, because the page sets the colour of texts but not of ticks.
    mark = base.mark_text(text="|", fontSize=17, fontWeight="bold", baseline="middle").encode(
        x=alt.X("value:Q", scale=domain)
    )
    text = base.mark_text(align="left", dx=8, fontSize=12).encode(x=alt.X("end:Q", scale=domain), text="note:N")
    return alt.layer(bars, whisker, mark, text).properties(width=width, height=alt.Step(26 if len(order) <= 12 else 20))


def _reach(splits: Sequence[StepParts]) -> float:
    """Return the end of the axis: the longest bar, or the end of its interval if it is not much longer."""
    longest = max(max(s.total.value, sum(max(0.0, r.value) for r in s.parts.values())) for s in splits)
    return min(1.5 * longest, max([longest, *(s.total.bounds[1] for s in splits if s.total.bounds)]))


def _program_chart(records: Sequence[Record], program: StepDisplay) -> alt.TopLevelMixin | None:
    """Draw one panel per library and problem; panels of the same problem share their axis."""
    groups = shown(records, program)
    if not groups:
        return None
    panels = []
    for group in groups:
        # For pop, the best grids of libraries may differ, but are comparable.
        alike = [s for peer in groups if program is POP or peer.within == group.within for s in peer.splits]
        chart = _bars([(s.name, s) for s in group.splits], program, _reach(alike), 560)
        panels.append(chart.properties(title=f"{group.library}, {group.where}"))
    chart_: alt.TopLevelMixin = alt.concat(*panels, columns=1, spacing=16)
    return chart_


@drawing
def pop(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the time of the parts of pop; None without such records."""
    return _program_chart(records, POP)


@drawing
def gyro(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the time of the parts of gyro; None without such records."""
    return _program_chart(records, GYRO)


@drawing
def swim(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the time of the parts of swim; None without such records."""
    return _program_chart(records, SWIM)


@drawing
def swim_models(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the step time of swim by number of threads or ranks: a panel per grid, a line per programming model."""
    panels = []
    for grid, models in programming_models(records).items():
        rows: list[Row] = [row(m.step, workers=str(m.workers), series=m.name, how=m.how) for m in models]
        order = sorted({m.workers for m in models})
        x = alt.X("workers:N", title="threads or ranks", sort=[str(n) for n in order], axis=alt.Axis(labelAngle=0))
        chart = layered(rows, x, log_axis(rows, "time per step", TIME), "series", ["series", "workers", "how"], False)
        panels.append(chart.properties(title=grid, width=385, height=300))
    if not panels:
        return None
    chart_: alt.TopLevelMixin = alt.concat(*panels, columns=2, spacing=24)
    return chart_


@drawing
def pop_grids(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the iteration time by grid: a line per protocol with its faster number of reductions.

    The best grid is marked.
    """
    panels = []
    for same in grids(records):
        if len(same) < 2:
            continue
        rows: list[Row] = []
        for g in same:
            for s in g.splits:  # the fastest first
                protocol = text_of(s.total, "protocol")
                if not any(r["grid"] == g.grid and r["series"] == protocol for r in rows):
                    rows.append(row(s.total, grid=g.grid, series=protocol, reductions=text_of(s.total, "reductions")))
        order = [g.grid for g in same]
        x = alt.X("grid:N", title="ranks, south to north × west to east", sort=order, axis=alt.Axis(labelAngle=0))
        y = log_axis(rows, "time per iteration", TIME)
        chart = layered(rows, x, y, "series", ["grid", "series", "reductions"], band=False)
        best = min(rows, key=lambda r: r["value"])
        mark = (
            chart_of([best]).mark_text(text="▲ best", dy=16, fontSize=13, fontWeight="bold").encode(x=x, y=y("value"))
        )
        title = f"{best_of(same).library}, {where_of(best_of(same).splits[0].total)}"
        panels.append(alt.layer(chart, mark).properties(title=title, width=385, height=300))
    if not panels:
        return None
    chart_: alt.TopLevelMixin = alt.concat(*panels, columns=2, spacing=24)
    return chart_


@drawing
def anatomy(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw two panels per program: time by part and library, and time with another latency.

    The second panel is relative to the measured time.
    """
    groups = steps(records, ANATOMY)
    several_ranks = len({group.where for group in groups}) > 1
    by_program: dict[str, list[tuple[str, StepParts]]] = {}  # library and step by program and protocol
    for group in groups:
        for s in group.splits:
            label = f"{group.library}, {group.where}" if several_ranks else group.library
            by_program.setdefault(s.name, []).append((label, s))
    panels: list[alt.LayerChart | alt.FacetChart] = []
    for name, labelled in by_program.items():
        bars = _bars(labelled, ANATOMY, _reach([s for _, s in labelled]) * 1.3, 400)
        per = "iteration" if name.startswith("pop") else "step"
        panels.append(bars.properties(title=f"{name}: time per {per}"))
        title = f"half and {times(prediction(records, labelled[0][1]).factor)}, relative to measured"
        panels.append(_latencies(records, labelled).properties(title=title))
    if not panels:
        return None
    chart: alt.TopLevelMixin = alt.concat(*panels, columns=2, spacing={"row": 14, "column": 40})
    return chart


def _latencies(records: Sequence[Record], labelled: Sequence[tuple[str, StepParts]]) -> alt.LayerChart | alt.FacetChart:
    """Draw the steps with another latency, relative to the measured step."""
    rows: list[Row] = []
    for label, split in labelled:
        total = split.total.value
        predicted = prediction(records, split)
        for r, kind in ((predicted.half, _HALF), (predicted.more, _MORE), (predicted.measured, _MEASURED)):
            if r is not None:
                texts = row(r, label=label, what=kind, over=f"{r.value / total:.3f}")
                rows.append({**texts, **{k: texts[k] / total for k in ("value", "low", "high")}})
    low = min([0.9, *(r["value"] for r in rows)])
    high = max([1.1, *(r["value"] for r in rows)])
    margin = 0.06 * (high - low)
    domain = alt.Scale(domain=[low - margin, high + margin], clamp=True, nice=False)
    y = alt.Y("label:N", title=None, sort=[label for label, _ in labelled], axis=None)
    x = alt.X("value:Q", title=None, scale=domain, axis=alt.Axis(tickCount=4, format="~r"))
    names = [_HALF, _MORE, _MEASURED]
    colour = alt.Scale(domain=names, range=[COLOURS[n] for n in names])
    shape = alt.Scale(domain=names, range=["diamond", "diamond", "circle"])
    key = alt.Legend(columns=8, symbolOpacity=1)
    base = chart_of(rows).encode(y=y)
    whisker = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X("low:Q", scale=domain), x2="high:Q", stroke=alt.Stroke("what:N", scale=_STROKES, legend=None)
    )
    points = base.mark_point(size=70, filled=True, opacity=1, strokeWidth=1.6).encode(
        x=x,
        fill=alt.Fill("what:N", title=None, scale=colour, legend=key),
        stroke=alt.Stroke("what:N", scale=_STROKES, legend=None),
        shape=alt.Shape("what:N", title=None, legend=key, scale=shape),
        fillOpacity=FULL,
        tooltip=tooltip("label", "what", "over"),
    )
    rule = chart_of([{"x": 1.0}]).mark_rule(strokeDash=[5, 4], opacity=0.6).encode(x=alt.X("x:Q", scale=domain))
    return alt.layer(rule, whisker, points).properties(width=250, height=alt.Step(26))


@drawing
def npb(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the share of time in the MPI library, and the speed by ranks and threads, by kernel and library."""
    parts = [
        (
            selected(records, "npb", "communication_share", texts=("kernel", "class")),
            "share of time in the MPI library",
        ),
        (_speeds(records), "speed, times that of one rank of one thread"),
    ]
    several = len({where_of(r) for results, _ in parts for r in results}) > 1
    panels = []
    for results, title in parts:
        rows = [
            row(
                r,
                kernel=f"{r.conditions['kernel']}, class {r.conditions['class']}",
                series=text_of(r, "library", "mpi") + (f", {where_of(r)}" if several else ""),
            )
            for r in sorted(results, key=order_of)
        ]
        if rows:
            order = list(dict.fromkeys(r["kernel"] for r in rows))
            label = "format(datum.value, '.0%')" if results is parts[0][0] else "datum.label"
            bars = charts.bars(clearest(rows, "kernel", "series"), "kernel", order, title, label, ["kernel", "series"])
            panels.append(bars.properties(width=560, height=200))
    chart: alt.TopLevelMixin = alt.concat(*panels, columns=1)
    return chart if panels else None


def _speeds(records: Sequence[Record]) -> list[Record]:
    """Return the speeds relative to one rank with one thread, derived from the elapsed times."""
    times_ = selected(records, "npb", "elapsed", texts=("kernel", "class"), above_zero=True)
    alone: dict[tuple[object, ...], Record] = {}
    for r in times_:
        if (r.conditions.get("ranks"), r.conditions.get("threads", 1)) == (1, 1):
            alone.setdefault(_same_problem(r), r)
    speed_records = []
    for r in times_:
        reference = alone.get(_same_problem(r))
        if reference is None or r is reference or r.bounds is None:
            continue
        low, high = r.bounds
        speeds: dict[str, Any] = {
            "value": reference.value / r.value,
            "interval": (reference.value / high, reference.value / low),
            "samples": tuple(reference.value / s for s in r.samples),
            "conditions": {k: v for k, v in r.conditions.items() if not k.startswith("run_")},
        }
        speed_records.append(
            replace(r, metric="speed", unit="1", better="higher", flags=r.flags | reference.flags, **speeds)
        )
    return speed_records


def _same_problem(record: Record) -> tuple[object, ...]:
    return record.machine, *(record.conditions.get(k) for k in ("kernel", "class", "fft", "library", "mpi"))
