"""Lays out the history of a machine, for terminals and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

import altair as alt

from meshmark.compare.history import MIN_RUNS, RATE, Change, History, Point
from meshmark.compare.pairing import identity
from meshmark.statistics.verdicts import MARGIN
from meshmark.store.record import Record, varying
from meshmark.store.series import RunValue
from meshmark.values.units import NBSP, ratio_text, scale_for, show
from meshmark.views.charts.drawing import GB, NS, Drawn, Row, chart_of, chart_page, drawing, natural
from meshmark.views.content.compared_rows import interval_text, named
from meshmark.views.pages.listing import conditions_text

CHARTS: Final = 60  # most charts of a page
_LABEL: Final = 60  # most characters of a label of a chart
_DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Line:
    """A change as text.

    Attributes:
        point: Conditions in which the points of the metric differ; "" if there is only one point.
        better: Whether the metric became better; None for a metric without direction.
    """

    metric: str
    point: str
    before: str
    before_interval: str
    after: str
    after_interval: str
    ratio: str
    interval: str
    word: str
    better: bool | None
    runs: str


@dataclass(frozen=True, slots=True)
class Group:
    """The changes between the same two runs.

    Attributes:
        when: Start of the last run before the changes and of the first run after them.
        facts: What else changed.
    """

    when: str
    runs: str
    facts: str
    lines: Sequence[Line]


def groups(h: History) -> list[Group]:
    """Return the changes grouped by the two runs that they are between, newest first."""
    texts = _points(h.points)
    result = []
    for (last, first), group in groupby(h.changes, lambda c: tuple(run.run for run in c.between)):
        changes = list(group)
        facts = dict.fromkeys(fact for c in changes for fact in c.facts)
        before, after = changes[0].between
        result.append(
            Group(
                when=f"{when(before)} – {when(after)} UTC",
                runs=f"{last} → {first}",
                facts=", ".join(facts) or "nothing recorded",
                lines=sorted(
                    (_line(c, texts[id(c.record)]) for c in changes), key=lambda x: (x.metric, natural(x.point))
                ),
            )
        )
    return result


def _points(points: Sequence[Point]) -> dict[int, str]:
    """Return the conditions that distinguish the points of a metric, by the identity of the point's record."""
    by_metric: dict[tuple[str, str], list[Record]] = {}
    for p in points:
        by_metric.setdefault((p.record.instrument, p.record.metric), []).append(p.record)
    texts: dict[int, str] = {}
    for records in by_metric.values():
        keys = list(dict.fromkeys(k for r in records for k in identity(r)))
        keys = varying([k for k in keys if k != "cpus" or "threads" not in keys], records)
        texts |= {id(r): conditions_text([k for k in keys if r.conditions.get(k) is not None], r) for r in records}
    return texts


def _line(c: Change, point: str) -> Line:
    unit, scale = c.record.unit, scale_for(c.record.unit, c.before.measured.value)

    def bounds(of: tuple[float, float] | None) -> str:
        return "–" if of is None else " – ".join(show(v, unit, scale).rpartition(NBSP)[0] or show(v, unit) for v in of)

    return Line(
        metric=named(c.record.instrument, c.record.metric),
        point=point,
        before=show(c.before.measured.value, unit, scale),
        before_interval=bounds(c.before.measured.bounds),
        after=show(c.after.measured.value, unit, scale),
        after_interval=bounds(c.after.measured.bounds),
        ratio=ratio_text(c.ratio.value),
        interval=interval_text(c.ratio.interval),
        word=c.word,
        better=None if c.record.better == "none" else not c.worse(),
        runs=f"{len(c.before.runs)} | {len(c.after.runs)}",
    )


def when(run: RunValue) -> str:
    """Return the start of a run in UTC, such as `2026-11-25 15:53`."""
    return run.start[:16].replace("T", " ")


# ------------------------------------------------------------------ summaries


def summary(h: History) -> str:
    """Return runs and points of a machine in one line.

    Example: `n042: 200 runs from … to … UTC, 308 points: 40 changed, 260 steady, 8 too few runs (fewer than 7)`.
    """
    runs = h.runs
    counts = ", ".join(
        f"{n} {status}" + (f" (fewer than {MIN_RUNS})" if status == "too few runs" else "")
        for status, n in h.counts().items()
    )
    span = f" from {when(runs[0])} to {when(runs[-1])} UTC" if runs else ""
    points = f"{len(h.points)} point{'s' * (len(h.points) != 1)}"
    return f"{h.machine}: {len(runs)} run{'s' * (len(runs) != 1)}{span}, {points}" + (f": {counts}" if counts else "")


def left_out(h: History) -> list[str]:
    """Return what does not take part and what is not listed, one line each."""
    texts = []
    if h.flagged:
        kinds = ", ".join(f"{flag} {n}" for flag, n in h.flags.items())
        texts.append(f"flagged results, which do not take part: {h.flagged} ({kinds})")
    if h.without_start:
        texts.append(f"results without a valid start, left out: {h.without_start}")
    if small := sum(p.small for p in h.points):
        texts.append(
            f"significant changes that are not listed: {small} (within the margin of {100 * MARGIN:g}{NBSP}%, or "
            "their intervals overlap)"
        )
    return texts


METHOD: Final = (
    "Each run gives one value per point. A change has a p-value of at most 0.001 by the test of Student or of Mann and "
    f"Whitney, corrected for the choice of its position; over all points, at most {100 * RATE:g}{NBSP}% of the changes "
    "are expected to be false (Benjamini and Yekutieli)."
)


def ages(h: History, now: datetime, stale_s: float) -> list[tuple[str, str, bool]]:
    """Return each instrument, the age of its newest result, and whether that age is stale."""
    rows = []
    for name, newest in h.newest.items():
        age = (now - newest).total_seconds()
        rows.append((name, _age(age), age > stale_s))
    return rows


def staleness(h: History, now: datetime, stale_s: float) -> str:
    """Return the ages as one line: `newest results: latency 3 days ago, lines 45 days ago (older than 30 days)`."""
    limit = f" (older than {_age(stale_s).removesuffix(' ago')})"
    texts = [f"{name} {age}{limit if stale else ''}" for name, age, stale in ages(h, now, stale_s)]
    return f"newest results: {', '.join(texts)}"


def _age(age_s: float) -> str:
    if age_s < 0:
        return "in the future"
    for length, unit in ((_DAY_S, "day"), (3600.0, "hour"), (60.0, "minute")):
        if age_s >= length:
            n = int(age_s // length)
            return f"{n} {unit}{'s' * (n != 1)} ago"
    return f"{age_s:.0f} s ago"


# ------------------------------------------------------------------ the page


def history_page(h: History, now: datetime, stale_s: float) -> str:
    """Return the self-contained page, with a chart for each point that changed, newest changes first."""
    texts = _points(h.points)
    changed = sorted((p for p in h.points if p.changes), key=lambda p: p.changes[-1].after.runs[0].start, reverse=True)
    drawn: dict[str, Drawn] = {}
    charts = []
    for n, p in enumerate(changed[:CHARTS]):
        chart = _chart((), p)
        assert chart is not None
        drawn[name := f"point-{n}"] = chart
        title = named(p.record.instrument, p.record.metric).replace("_", " ")
        charts.append((name, title[:1].upper() + title[1:], texts[id(p.record)]))
    return chart_page(
        "history.html",
        drawn,
        title=f"History of {h.machine}",
        summary=summary(h),
        clock=h.clock,
        groups=groups(h),
        charts=charts,
        not_drawn=len(changed) - len(charts),
        ages=ages(h, now, stale_s),
        left_out=left_out(h),
        method=METHOD,
    )


@drawing
def _chart(_: Sequence[Record], p: Point) -> alt.TopLevelMixin | None:
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


def _label(c: Change) -> str:
    text = f"{ratio_text(c.ratio.value)}: {', '.join(c.facts) or 'nothing recorded'}"
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
