"""Draws experiments by the ratios of their pairs of runs, the runs of ratings, and the slowdowns of profiles."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from meshmark.store.record import Record
from meshmark.values.units import number, scale_for, show
from meshmark.views.charts.drawing import PALETTE, Row, chart_of, drawing
from meshmark.views.content.selection import selected


@drawing
def pairs(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw B over A for each pair in its order, with the median and its interval."""
    ratios = selected(records, "experiment", "ratio", above_zero=True)
    if not ratios:
        return None
    names = [_name(r, i) for i, r in enumerate(ratios)]
    rows: list[Row] = []
    bands: list[Row] = []
    for r, name in zip(ratios, names, strict=True):
        rows += [{"series": name, "x": i, "value": v, "text": number(v)} for i, v in enumerate(r.samples, 1) if v > 0]
        low, high = r.bounds or (r.value, r.value)
        bands += [{"series": name, "x": x, "value": r.value, "low": low, "high": high} for x in (1, len(r.samples))]
    color = alt.Color(
        "series:N",
        title=None,
        scale=alt.Scale(domain=names, range=PALETTE),
        legend=None if len(names) == 1 else alt.Legend(),
    )
    x = alt.X("x:Q", title="pair", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("value:Q", title="B over A", scale=alt.Scale(type="log", nice=False, padding=10))
    band = chart_of(bands).encode(x=x, color=color)
    tips = [alt.Tooltip("x:Q", title="pair"), alt.Tooltip("text:N", title="B over A")]
    equal = chart_of([{"value": 1.0}]).mark_rule(strokeDash=[4, 4], opacity=0.7).encode(y=y)
    return alt.layer(
        band.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", scale=alt.Scale(type="log")), y2="high:Q"),
        band.mark_line().encode(y=y),
        equal,
        chart_of(rows).mark_point(size=24, filled=True, opacity=0.8).encode(x=x, y=y, color=color, tooltip=tips),
    )


def _name(record: Record, place: int) -> str:
    """Return the settings of an experiment, or its number if they are not recorded."""
    c = record.conditions
    return (
        f"{c['setting_b']} over {c['setting_a']}"
        if {"setting_a", "setting_b"} <= c.keys()
        else f"experiment {place + 1}"
    )


@drawing
def ratings(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw every run of each configuration of a rating as a point, by group, with the median as a tick."""
    metrics = [r.metric for r in records if r.instrument == "rating"]
    rated = selected(records, "rating", metrics[0], texts=("setting",), above_zero=True) if metrics else []
    if not rated:
        return None
    # Figures in several units cannot share an axis: only figures in the first unit are drawn.
    rated = [r for r in rated if r.unit == rated[0].unit]
    sign = -1 if rated[0].better == "higher" else 1
    rated.sort(key=lambda r: (_group(r), sign * r.value))
    scale = scale_for(rated[0].unit, max(r.value for r in rated))
    medians: list[Row] = []
    runs: list[Row] = []
    for r in rated:
        place: Row = {"setting": str(r.conditions["setting"]), "group": _group(r)}
        medians.append({**place, "value": r.value / scale.factor, "text": show(r.value, r.unit)})
        runs += [{**place, "value": v / scale.factor, "text": show(v, r.unit)} for v in r.samples if v > 0]
    groups = sorted({row["group"] for row in runs})
    title = f"{rated[0].metric.replace('_', ' ')}{f' ({scale.symbol})' if scale.symbol else ''}"
    color = alt.Color("group:N", title="group", scale=alt.Scale(domain=groups, range=PALETTE))
    x = alt.X("value:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=12), axis=alt.Axis(format="~s"))
    y = alt.Y("setting:N", title=None, sort=[row["setting"] for row in medians])
    tips = [alt.Tooltip(f"{name}:N", title=name) for name in ("setting", "group")]
    return alt.layer(
        chart_of(runs)
        .mark_point(size=36, filled=True, opacity=0.55)
        .encode(x=x, y=y, color=color, tooltip=[*tips, alt.Tooltip("text:N", title="run")]),
        chart_of(medians)
        .mark_tick(thickness=2, size=20)
        .encode(x=x, y=y, color=color, tooltip=[*tips, alt.Tooltip("text:N", title="median")]),
    )


def _group(record: Record) -> str:
    """Return the letter of the group of a configuration; "–" if it is not recorded."""
    return str(record.provenance.get("group", "–"))


@drawing
def slowdowns(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the time of programs beside each pressure over their time alone, with the interval, and every run."""
    rows = selected(records, "profile", "slowdown", texts=("pressure", "program"), above_zero=True)
    if not rows:
        return None
    medians: list[Row] = []
    runs: list[Row] = []
    for r in rows:
        place: Row = {"pressure": str(r.conditions["pressure"]), "series": str(r.conditions["program"])}
        low, high = r.bounds or (r.value, r.value)
        medians.append({**place, "value": r.value, "low": low, "high": high, "text": number(r.value)})
        runs += [{**place, "value": v, "text": number(v)} for v in r.samples if v > 0]
    names = list(dict.fromkeys(row["series"] for row in medians))
    pressures = list(dict.fromkeys(row["pressure"] for row in medians))
    color = alt.Color(
        "series:N",
        title=None,
        scale=alt.Scale(domain=names, range=PALETTE),
        legend=None if len(names) == 1 else alt.Legend(),
    )
    x = alt.X("pressure:N", title="beside neighbours", sort=pressures, axis=alt.Axis(labelAngle=-35))
    y = alt.Y("value:Q", title="time beside them / time alone", scale=alt.Scale(zero=False, padding=12))
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in (("series", "program"), ("pressure", "beside"))]
    line = chart_of(medians).encode(x=x, color=color)
    return alt.layer(
        chart_of([{"value": 1.0}]).mark_rule(strokeDash=[4, 4], opacity=0.7).encode(y=y),
        line.mark_rule(strokeWidth=3, opacity=0.35).encode(y=alt.Y("low:Q"), y2="high:Q"),
        line.mark_line(point=True).encode(y=y, tooltip=[*tips, alt.Tooltip("text:N", title="median")]),
        chart_of(runs)
        .mark_point(size=18, filled=True, opacity=0.5)
        .encode(x=x, y=y, color=color, tooltip=[*tips, alt.Tooltip("text:N", title="run")]),
    )
