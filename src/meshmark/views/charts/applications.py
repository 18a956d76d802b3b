"""Draws applications: the figure of merit of each configuration or over numbers of workers, and composites.

Below the chart: how the programs scale, and the hottest functions of the configurations that were profiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import altair as alt

from meshmark.store.record import Record
from meshmark.values.units import Scale, scale_for, show
from meshmark.views.charts.drawing import FULL, PALETTE, Row, chart_of, colours, drawing, layered, row, tooltip
from meshmark.views.charts.scaling import COUNTS, conclusions, varied, workers
from meshmark.views.content.functions import HotFunction, function_table
from meshmark.views.content.selection import natural, selected, text_of, value_of
from meshmark.views.render import render_sections
from meshmark.views.tables import TableSection

_FUNCTIONS = 10  # shown for each configuration


@drawing
def configurations(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the figure of merit of each configuration or the elapsed time without one."""
    figures = selected(records, "app", "figure_of_merit", above_zero=True)
    figures = figures or selected(records, "app", "elapsed", above_zero=True)
    if not figures:
        return None
    # Figures in several units cannot share an axis: only figures in the first unit are drawn.
    figures = [r for r in figures if r.unit == figures[0].unit]
    scale = scale_for(figures[0].unit, max(r.value for r in figures))
    counted = next((n for n in COUNTS if len({workers(r, n) for r in figures} - {0}) > 1), "")
    if counted:
        return _over([r for r in figures if workers(r, counted)], counted, scale)
    return _listed(figures, scale)


@drawing
def composites(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the ratios of the members of a composite to its reference, and the geometric mean as a line."""
    ratios = selected(records, "app", "ratio", texts=("member",), above_zero=True)
    if not ratios:
        return None
    # Ratios to several references do not belong on one axis: only the first composite is drawn.
    first = ratios[0].conditions
    ratios = [r for r in ratios if all(r.conditions.get(k) == first.get(k) for k in ("composite", "reference"))]
    rows = [{**row(r, name=str(r.conditions["member"])), "levels": []} for r in ratios]
    title = f"ratio to {text_of(ratios[0], 'reference')}"
    log = alt.Scale(type="log", nice=False, padding=12)
    base = chart_of(rows).encode(y=alt.Y("name:N", title=None, sort=[r["name"] for r in rows]))
    layers: list[alt.Chart] = [
        base.mark_rule(strokeWidth=6, opacity=0.25, color=PALETTE[0]).encode(
            x=alt.X("low:Q", title=title, scale=log, axis=alt.Axis(format="~s")), x2="high:Q"
        ),
        base.mark_point(size=60, filled=True, opacity=1, strokeWidth=1.5, color=PALETTE[0]).encode(
            x=alt.X("value:Q", title=title, scale=log), fillOpacity=FULL, tooltip=tooltip("name")
        ),
    ]
    lines = [{"at": 1.0, "text": ""}]  # labelled by the axis
    for mean in selected(records, "app", "composite", above_zero=True):
        if mean.conditions.get("program") == first.get("composite"):
            lines.append({"at": mean.value, "text": f"geometric mean {show(mean.value, mean.unit)}"})
            break
    markers = chart_of(lines).encode(x=alt.X("at:Q", title=title, scale=log))
    layers += [
        markers.mark_rule(strokeDash=[4, 4]),
        markers.mark_text(align="center", dy=-8, fontSize=12).encode(text="text:N", y=alt.value(0)),
    ]
    return alt.layer(*layers)


def _name(record: Record, without: str = "") -> str:
    """Return the program and what was varied, except `without`."""
    return " ".join(filter(None, (str(record.conditions.get("program", "")), varied(record, without))))


def _title(records: Sequence[Record], scale: Scale) -> str:
    name = "elapsed time" if records[0].metric == "elapsed" else "figure of merit"
    return f"{name} ({scale.symbol})" if scale.symbol else name


def _scaled(record: Record, scale: Scale, **more: object) -> Row:
    scaled = row(record, **more)
    return {**scaled, **{k: scaled[k] / scale.factor for k in ("value", "low", "high")}, "levels": []}


def _over(records: Sequence[Record], counted: str, scale: Scale) -> alt.TopLevelMixin:
    """Draw curves over a number of workers, with dashed lines for ideal scaling."""
    rows = [_scaled(r, scale, x=workers(r, counted), series=_name(r, counted)) for r in records]
    title = _title(records, scale)
    axis = alt.Axis(values=sorted({r["x"] for r in rows}), format="d")
    x = alt.X("x:Q", title=counted, scale=alt.Scale(type="log", base=2, nice=False, padding=12), axis=axis)

    def y(name: str) -> alt.Y:
        return alt.Y(
            f"{name}:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=10), axis=alt.Axis(format="~s")
        )

    chart = layered(rows, x, y, "series", [counted])
    ideal: list[Row] = []
    sign = 1 if records[0].better == "higher" else -1
    for name in {r["series"] for r in rows}:
        points = sorted((r for r in rows if r["series"] == name), key=lambda r: r["x"])
        ideal += [
            {"series": name, "x": r["x"], "value": points[0]["value"] * (r["x"] / points[0]["x"]) ** sign}
            for r in points
        ]
    names = sorted({r["series"] for r in rows}, key=natural)
    # The same as the legend of the other layer, so that both are merged.
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke")
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=names, range=colours(len(names))), legend=legend)
    lines = chart_of(ideal).encode(x=x, y=y("value"), color=colour).mark_line(strokeDash=[2, 4], opacity=0.7)
    return alt.layer(lines, chart)


def _listed(records: Sequence[Record], scale: Scale) -> alt.TopLevelMixin:
    """Draw one line for each configuration."""
    rows = [_scaled(r, scale, name=_name(r)) for r in records]
    y = alt.Y("name:N", title=None, sort=[r["name"] for r in rows], axis=alt.Axis(labelLimit=420))
    title = _title(records, scale)
    base = chart_of(rows).encode(y=y)
    span = alt.X("low:Q", title=title, scale=alt.Scale(zero=False, nice=True, padding=12), axis=alt.Axis(format="~s"))
    return alt.layer(
        base.mark_rule(strokeWidth=6, opacity=0.25).encode(x=span, x2="high:Q"),
        base.mark_point(size=60, filled=True, opacity=1, strokeWidth=1.5).encode(
            x=alt.X("value:Q", title=title), fillOpacity=FULL, tooltip=tooltip("name")
        ),
    )


def details(records: Sequence[Record]) -> str:
    """Render what the chart alone does not say: how the programs scale, and their hottest functions."""
    return conclusions(records) + hottest(records)


def hottest(records: Sequence[Record]) -> str:
    """Render the functions with the largest shares of the samples of each profiled configuration."""
    shares = sorted(
        selected(records, "app", "function_share", numbers=("share_low", "share_high")),
        key=lambda r: (_name(r), -r.value),
    )
    functions = ((name, [_function(r) for r in members]) for name, members in groupby(shares, _name))
    table = function_table(functions, _FUNCTIONS)
    events = ", ".join(sorted({str(r.conditions.get("profile_event", "")) for r in shares}))
    note = f"shares of the profiler's samples ({events}), each of one run that was not measured"
    return render_sections([TableSection("Hottest functions", table, notes=[note])] if table.rows else [])


def _function(r: Record) -> HotFunction:
    ends = [value_of(r, end) for end in ("share_low", "share_high")]
    return HotFunction(str(r.conditions.get("function", "")), str(r.conditions.get("object", "")), r.value, ends)
