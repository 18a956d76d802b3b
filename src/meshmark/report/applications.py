"""Draws applications: the figure of merit of each configuration or over numbers of workers, and composites.

Below the chart: how the programs scale, and the hottest functions of the configurations that were profiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import altair as alt

from meshmark.report.drawing import FULL, PALETTE, Row, chart_of, colours, drawing, layered, natural, row, tooltip
from meshmark.report.html import Cell, Cells, Table
from meshmark.report.render import render
from meshmark.report.scaling import COUNTS, conclusions, varied, workers
from meshmark.report.selection import selected, text_of, value_of
from meshmark.store.record import Record
from meshmark.values.units import Scale, scale_for, show

_FUNCTIONS = 10  # of a configuration


@drawing
def configurations(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """The figure of merit of each configuration; without one, the elapsed time."""
    found = selected(records, "app", "figure_of_merit", above_zero=True)
    found = found or selected(records, "app", "elapsed", above_zero=True)
    if not found:
        return None
    # Programs with figures in several units cannot share an axis: those of the first unit are drawn.
    found = [r for r in found if r.unit == found[0].unit]
    scale = scale_for(found[0].unit, max(r.value for r in found))
    counted = next((n for n in COUNTS if len({workers(r, n) for r in found} - {0}) > 1), "")
    if counted:
        return _over([r for r in found if workers(r, counted)], counted, scale)
    return _listed(found, scale)


@drawing
def composites(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """The ratios of the members of a composite to its reference, and the geometric mean as a line."""
    found = selected(records, "app", "ratio", texts=("member",), above_zero=True)
    if not found:
        return None
    # Of several composites the first: ratios to several references do not belong on one axis.
    of = found[0].conditions
    found = [r for r in found if all(r.conditions.get(k) == of.get(k) for k in ("composite", "reference"))]
    rows = [{**row(r, name=str(r.conditions["member"])), "levels": []} for r in found]
    title = f"ratio to {text_of(found[0], 'reference')}"
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
    lines = [{"at": 1.0, "text": ""}]  # the axis labels it
    for whole in selected(records, "app", "composite", above_zero=True):
        if whole.conditions.get("program") == of.get("composite"):
            lines.append({"at": whole.value, "text": f"geometric mean {show(whole.value, whole.unit)}"})
            break
    marked = chart_of(lines).encode(x=alt.X("at:Q", title=title, scale=log))
    layers += [
        marked.mark_rule(strokeDash=[4, 4]),
        marked.mark_text(align="center", dy=-8, fontSize=12).encode(text="text:N", y=alt.value(0)),
    ]
    return alt.layer(*layers)


def _name(record: Record, without: str = "") -> str:
    """A program and what was varied."""
    return " ".join(filter(None, (str(record.conditions.get("program", "")), varied(record, without))))


def _title(records: Sequence[Record], scale: Scale) -> str:
    name = "elapsed time" if records[0].metric == "elapsed" else "figure of merit"
    return f"{name} ({scale.symbol})" if scale.symbol else name


def _scaled(record: Record, scale: Scale, **more: object) -> Row:
    made = row(record, **more)
    return {**made, **{k: made[k] / scale.factor for k in ("value", "low", "high")}, "levels": []}


def _over(records: Sequence[Record], counted: str, scale: Scale) -> alt.TopLevelMixin:
    """Curves over a number of workers."""
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
        own = sorted((r for r in rows if r["series"] == name), key=lambda r: r["x"])
        ideal += [{"series": name, "x": r["x"], "value": own[0]["value"] * (r["x"] / own[0]["x"]) ** sign} for r in own]
    names = sorted({r["series"] for r in rows}, key=natural)
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke")  # that of the other layer, with which it is merged
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=names, range=colours(len(names))), legend=legend)
    lines = chart_of(ideal).encode(x=x, y=y("value"), color=colour).mark_line(strokeDash=[2, 4], opacity=0.7)
    return alt.layer(lines, chart)


def _listed(records: Sequence[Record], scale: Scale) -> alt.TopLevelMixin:
    """A line for each configuration."""
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
    """Renders what the chart alone does not say: how the programs scale, and their hottest functions."""
    return conclusions(records) + hottest(records)


def hottest(records: Sequence[Record]) -> str:
    """Renders the functions with the largest shares of the samples of each profiled configuration."""
    found = sorted(
        selected(records, "app", "function_share", numbers=("share_low", "share_high")),
        key=lambda r: (_name(r), -r.value),
    )
    rows: list[Cells] = []
    for name, of in groupby(found, _name):
        for place, r in enumerate(list(of)[:_FUNCTIONS]):
            ends = [value_of(r, end) for end in ("share_low", "share_high")]
            interval = " – ".join(f"{100 * end:.1f}" for end in ends) + " %"
            numbers = (f"{100 * r.value:.1f} %", interval)
            rows.append(
                [
                    "" if place else name,
                    Cell(str(r.conditions.get("function", "")), code=True),
                    str(r.conditions.get("object", "")),
                    *(Cell(text, number=True) for text in numbers),
                ]
            )
    if not rows:
        return ""
    events = sorted({str(r.conditions.get("profile_event", "")) for r in found})
    head = ["configuration", "function", "in", "share", "95 % interval"]
    return render("parts/hottest.html", table=Table(head, rows, numbers=(3, 4), wrap=True), events=", ".join(events))
