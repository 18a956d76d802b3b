"""The chart of the ratios of each side to the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import altair as alt

from meshmark.compare.join import Comparison, is_speed
from meshmark.report.compared_rows import LETTERS, mean_text, named
from meshmark.report.drawing import (
    Row,
    chart_of,
    colours,
    drawing,
    ticks,
)
from meshmark.store.record import Record

EQUAL: Final = "equal to A"


# ------------------------------------------------------------------ ratios


@drawing
def ratios(
    _: Sequence[Record], comparisons: Sequence[Comparison], ideal: float | None = None
) -> alt.TopLevelMixin | None:
    """The geometric mean of the ratios of each metric and side, beside 1 and what is ideal.

    Args:
        ideal: Ratio of a rate that would be ideal, above 0; that of a time is its inverse.
    """
    rows: list[Row] = []
    lines: list[Row] = []
    for letter, c in zip(LETTERS[1:], comparisons, strict=False):
        directions = {(p.a.instrument, p.a.metric): p.a for p in c.pairs}
        for m in c.means():
            name, side = named(m.instrument, m.metric).replace("_", " "), f"{letter}: {c.b.name}"
            low, high = m.interval or (m.value, m.value)
            rows.append({"name": name, "side": side, "value": m.value, "low": low, "high": high, "text": mean_text(m)})
            lines.append({"name": name, "at": 1.0, "line": EQUAL})
            if ideal is not None and (at := _ideal(directions[m.instrument, m.metric], ideal)) is not None:
                lines.append({"name": name, "at": at, "line": f"ideal {ideal:g}"})
    names, sides, kinds_of_lines = (
        list(dict.fromkeys(r[key] for r in of)) for of, key in ((rows, "name"), (rows, "side"), (lines, "line"))
    )
    if len(rows) < 2:
        return None
    lines = list({(r["name"], r["line"]): r for r in lines}.values())
    ends = [v for v in (*(r[k] for r in rows for k in ("low", "high")), *(r["at"] for r in lines)) if v > 0]
    low, high = min(0.9, 0.95 * min(ends)), max(1.1, 1.05 * max(ends))
    title = "over A" if len(sides) > 1 else "B over A"
    axis = alt.Axis(title=title, format=".3~g", values=_ticks(low, high), labelOverlap=True)
    x = alt.X("value:Q", scale=alt.Scale(type="log", domain=[low, high], nice=False), axis=axis)
    y = alt.Y("name:N", title=None, sort=names, axis=alt.Axis(labelLimit=260, labelAngle=0))
    base = chart_of(rows).encode(y=y)
    if len(sides) > 1:
        scale = alt.Scale(domain=sides, range=colours(len(sides) + 1)[1:])  # A has the first colour in the other charts
        base = base.encode(
            color=alt.Color("side:N", title=None, scale=scale), yOffset=alt.YOffset("side:N", sort=sides)
        )
    tips = [alt.Tooltip("name:N", title="metric"), alt.Tooltip("side:N"), alt.Tooltip("text:N", title="over A")]
    dashes = alt.Scale(domain=kinds_of_lines, range=[[4, 4], [10, 3, 2, 3]][: len(kinds_of_lines)])
    legend = alt.Legend(symbolType="stroke", symbolSize=400, orient="bottom") if ideal is not None else None
    rule = (
        chart_of(lines)
        .mark_rule(opacity=0.75, strokeWidth=1.5)
        .encode(
            x=alt.X("at:Q"),
            y=alt.Y("name:N", sort=names, bandPosition=0),
            y2=alt.Y2("name", bandPosition=1),
            strokeDash=alt.StrokeDash("line:N", title=None, scale=dashes, legend=legend),
        )
    )
    return alt.layer(
        rule,
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", tooltip=tips),
        base.mark_point(size=60, filled=True, opacity=1).encode(x=x, tooltip=tips),
    ).properties(height=(14 + 14 * len(sides)) * len(names))


def _ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis of ratios, several on either side of 1."""
    return [t for t in _NEAR_ONE if low <= t <= high] if high < 2.5 * low else ticks(low, high)


_NEAR_ONE: Final = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.25)


def _ideal(record: Record, ideal: float) -> float | None:
    """The ideal ratio of a metric; None if it is neither a time nor a quantity that is better higher."""
    if record.better == "higher":
        return ideal
    return 1 / ideal if record.better == "lower" and is_speed(record.unit) else None
