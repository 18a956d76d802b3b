"""Writes the page of the history of a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import altair as alt

from meshmark.compare.history import History, HistoryPoint, LevelChange
from meshmark.store.record import Record
from meshmark.values.units import ratio_text, show
from meshmark.views.charts.drawing import GB, NS, Drawing, Row, chart_of, chart_page, drawing
from meshmark.views.content.compared_rows import named
from meshmark.views.content.history import METHOD, ages, groups, left_out, point_texts, summary
from meshmark.views.tables import TextTable

CHARTS: Final = 60  # most charts of a page
_LABEL: Final = 60  # most characters of a label of a chart


def history_page(h: History, now: datetime, stale_s: float) -> str:
    """Return the self-contained page, with a chart for each point that changed, newest changes first."""
    texts = point_texts(h.points)
    changed = sorted((p for p in h.points if p.changes), key=lambda p: p.changes[-1].after.runs[0].start, reverse=True)
    drawn: dict[str, Drawing] = {}
    charts = []
    for n, p in enumerate(changed[:CHARTS]):
        chart = _chart((), p)
        assert chart is not None
        drawn[name := f"point-{n}"] = chart
        title = named(p.record.instrument, p.record.metric).replace("_", " ")
        charts.append((name, title[:1].upper() + title[1:], texts[id(p.record)]))
    newest = [[name, age, "stale" if stale else ""] for name, age, stale in ages(h, now, stale_s)]
    return chart_page(
        "history.html",
        drawn,
        title=f"History of {h.machine}",
        summary=summary(h),
        clock=h.clock,
        groups=groups(h),
        charts=charts,
        not_drawn=len(changed) - len(charts),
        ages=TextTable(["instrument", "newest result", ""], newest),
        left_out=left_out(h),
        method=METHOD,
    )


@drawing
def _chart(_: Sequence[Record], p: HistoryPoint) -> alt.TopLevelMixin | None:
    """Draw the values of the runs with their intervals over time, the median of each segment, and each change."""
    unit = p.record.unit
    rows: list[Row] = [
        {
            "at": run.start,
            "value": run.value,
            "low": run.low,
            "high": run.high,
            "text": show(run.value, unit),
            "run": run.run,
            "flags": ", ".join(run.flags) or "none",
            "flagged": bool(run.flags),
        }
        for run in p.runs
    ]
    segments = [p.changes[0].before, *(c.after for c in p.changes)]
    levels = [
        {
            "from": s.runs[0].start,
            "to": s.runs[-1].start,
            "value": s.measured.value,
            "text": show(s.measured.value, unit),
        }
        for s in segments
    ]
    marks = [
        {"at": c.after.runs[0].start, "text": _label(c), "facts": ", ".join(c.facts) or "nothing recorded"}
        for c in p.changes
    ]
    axis = alt.Axis(labelExpr=NS) if unit == "s" else alt.Axis(labelExpr=GB) if unit == "B/s" else alt.Axis(format="~s")
    x = alt.X("at:T", title=None)
    y = alt.Y("value:Q", title=None, axis=axis, scale=alt.Scale(zero=False))
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in _TIPS.items()]
    base = chart_of(rows).encode(x=x)
    hollow = alt.condition("datum.flagged", alt.value(0.0), alt.value(1.0))
    rule = chart_of(marks).encode(x=alt.X("at:T"))
    return alt.layer(
        base.mark_rule(opacity=0.35).encode(y=alt.Y("low:Q", title=None, axis=axis), y2="high:Q"),
        base.mark_point(size=30, filled=True, opacity=1, strokeWidth=1).encode(y=y, fillOpacity=hollow, tooltip=tips),
        chart_of(levels)
        .mark_rule(strokeWidth=2, color="#D55E00")
        .encode(x=alt.X("from:T"), x2="to:T", y=y, tooltip=[alt.Tooltip("text:N", title="median")]),
        rule.mark_rule(strokeDash=[4, 4], opacity=0.8).encode(tooltip=[alt.Tooltip("facts:N", title="also changed")]),
        rule.mark_text(align="left", baseline="top", dx=4, fontSize=11, opacity=0.8).encode(
            y=alt.value(2), text="text:N"
        ),
    )


_TIPS: Final[Mapping[str, str]] = {"at": "start", "text": "median", "run": "run", "flags": "flags"}


def _label(c: LevelChange) -> str:
    text = f"{ratio_text(c.ratio.value)}: {', '.join(c.facts) or 'nothing recorded'}"
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
