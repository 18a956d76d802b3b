"""Lays out a fleet as a page: open cases, a map of its nodes, its classes, and what changed when."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from meshmark.fleet.cases import NamedNode, WorseMetric
from meshmark.fleet.data.facts import HARDWARE
from meshmark.fleet.data.values import FleetPoint
from meshmark.fleet.folder import time_of
from meshmark.fleet.health.assessment import Suspects
from meshmark.fleet.health.trends import Trend
from meshmark.fleet.nodesets import fold
from meshmark.fleet.overview import ClassOverview, Overview
from meshmark.statistics.arrays import Array
from meshmark.store.layout import date_of
from meshmark.values.units import NBSP, show
from meshmark.views.charts.drawing import Drawing, Row, chart_of, chart_page, colours, condition_text, drawing
from meshmark.views.content.compared_rows import named
from meshmark.views.content.selection import natural
from meshmark.views.tables import TextTable

_TALL: Final = 24  # nodes above one another in a rack
_WIDE: Final = 64  # nodes beside one another if they are not in a rack
_LINES: Final = 12  # most lines of a chart
_METRICS: Final = 120  # most metrics that the map can show
_STEP: Final = 0.1  # standard deviations per unit of the map's data
_MANY: Final = 200  # most rows of a table

# The states of a node, the worst first, with the words of the legend.
STATES: Final = {
    "wrong": "computes wrongly",
    "named": "worse than its class",
    "unusual": "suspected",
    "left": "not measured",
    "alone": "not compared, since too few are alike",
    "well": "as its class",
}


@dataclass(frozen=True, slots=True)
class NodeCell:
    """A cell of the map.

    Attributes:
        text: Text of the tooltip.
        row: Row in the map's data; -1 if it has no row.
    """

    name: str
    state: str
    text: str
    x: int
    y: int
    row: int


@dataclass(frozen=True, slots=True)
class Rack:
    """Nodes that are drawn together; `name` is "" for the nodes that are not in a rack."""

    name: str
    nodes: Sequence[NodeCell]
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A line of the open cases."""

    node: str
    rack: str
    what: Sequence[str]
    since: str
    named: str
    differs: Sequence[str]
    wrong: bool


@dataclass(frozen=True, slots=True)
class ClassPart:
    """A class on the page."""

    name: str
    summary: str
    metrics: TextTable
    changes: TextTable | None
    chart: str
    not_drawn: int


def fleet_page(overview: Overview) -> str:
    """Return the self-contained page of a fleet."""
    newest = overview.seen.newest()
    drawn: dict[str, Drawing] = {}
    parts = []
    for n, class_overview in enumerate(overview.classes):
        chart = _chart((), overview, class_overview)
        if chart is not None:
            drawn[f"class-{n}"] = chart
        parts.append(_class_part(overview, class_overview, f"class-{n}" if chart is not None else "", newest))
    racks = _racks(overview)
    return chart_page(
        "fleet.html",
        drawn,
        title=f"Fleet {overview.cluster}",
        summary=_summary(overview),
        racks=racks,
        states={k: v for k, v in STATES.items() if any(node.state == k for rack in racks for node in rack.nodes)},
        metrics=_map_data(overview, newest),
        cases=[_case(overview, case) for case in overview.open],
        suspects=fold(set(overview.seen.suspects()) - {case.node for case in overview.open}),
        closed=[(case.node, case.campaign, campaign) for case, campaign in overview.closed],
        left=_left(overview),
        classes=parts,
    )


def _summary(overview: Overview) -> list[str]:
    latest = overview.seen
    # Nodes without a result of this campaign may have results of earlier ones.
    measured = {*latest.panel.nodes} - {*overview.left}
    members = {m for node_class in latest.classes if node_class.screening for m in node_class.of.members}
    judged = sum(node in measured for m, node in enumerate(latest.panel.nodes) if m in members)
    left = f", {_count(len(overview.left), 'node')} left out" if overview.left else ""
    first, last = date_of(overview.campaigns[0]), date_of(overview.campaigns[-1])
    compared = f"{judged:,} compared with others of their class{left}"
    return [
        f"{latest.campaign}: {_count(len(measured), 'node')} measured, {compared}.",
        f"{_count(len(overview.open), 'open case')}. "
        f"{_count(len(overview.campaigns), 'campaign')} from {first} to {last}.",
    ]


def _count(n: int, word: str) -> str:
    return f"{n:,} {word}{'s' * (n != 1)}"


# ------------------------------------------------------------------ the map


def _racks(overview: Overview) -> list[Rack]:
    """Return the racks with every node of the campaign; nodes without a rack are together in a rack of their own."""
    open_cases = {case.node: case for case in overview.open}
    suspects = set(overview.seen.suspects())
    judged = {
        overview.seen.panel.nodes[m]
        for node_class in overview.seen.classes
        if node_class.screening
        for m in node_class.of.members
    }
    row_of = {name: i for i, name in enumerate(overview.seen.panel.nodes)}

    def node(name: str, x: int, y: int) -> NodeCell:
        case = open_cases.get(name)
        if case is not None:
            state, text = ("wrong" if case.wrong else "named"), "; ".join(_what(overview, case))
        elif name in overview.left:
            state, text = "left", overview.left[name]
        elif name in overview.seen.wrong:
            state, text = "wrong", "; ".join(overview.seen.wrong[name])
        elif name in suspects:
            state, text = "unusual", STATES["unusual"]
        elif name not in row_of:
            state, text = "left", STATES["left"]
        else:
            state = "well" if name in judged else "alone"
            text = STATES[state]
        return NodeCell(name, state, text, x, y, row_of.get(name, -1))

    racks = []
    for rack, names in overview.racks.items():
        cells = places(len(names), bool(rack))
        nodes = [node(name, x, y) for name, (x, y) in zip(names, cells, strict=True)]
        racks.append(Rack(rack, nodes, 1 + max(x for x, _ in cells), 1 + max(y for _, y in cells)))
    return racks


def places(count: int, in_rack: bool) -> list[tuple[int, int]]:
    """Return the column and row of each node.

    A rack is filled column by column from the bottom to the top; nodes outside racks are placed row by row.
    """
    if not in_rack:
        return [(i % _WIDE, i // _WIDE) for i in range(count)]
    rows = math.ceil(count / math.ceil(count / _TALL)) if count else 1
    return [(i // rows, rows - 1 - i % rows) for i in range(count)]


def _map_data(overview: Overview, newest: Array) -> list[dict[str, Any]]:
    """Return for each metric the deviation of each node from its class, as signed bytes in base64.

    The unit is a tenth of the standard deviation of the class; higher is worse, and -128 means not measured.
    """
    import numpy as np

    panel = overview.seen.panel
    deviations = np.full((len(panel.nodes), len(panel.points)), np.nan)
    for node_class in overview.seen.classes:
        if node_class.screening is not None:
            baseline = node_class.screening.baseline
            cells = np.ix_(node_class.of.members, node_class.points)
            deviations[cells] = (newest[cells] - baseline.middle) / baseline.scale
    coded = np.where(
        np.isnan(deviations), -128, np.clip(np.round(np.nan_to_num(deviations) / _STEP), -127, 127)
    ).astype(np.int8)
    order = sorted(range(len(panel.points)), key=lambda k: natural(_title(panel.points[k], panel.points)))
    return [
        {
            "name": _title(panel.points[k], panel.points),
            "data": base64.b64encode(np.ascontiguousarray(coded[:, k]).tobytes()).decode(),
        }
        for k in order[:_METRICS]
        if (coded[:, k] != -128).any()
    ]


# ------------------------------------------------------------------ cases


def _what(overview: Overview, case: NamedNode) -> list[str]:
    points = overview.seen.panel.points
    point_by_key = {p.key: p for p in points}
    worst = []
    for m in case.metrics[:3]:
        where = _conditions(_varying(point_by_key[m.key], points) if m.key in point_by_key else m.conditions)
        text = f"{100 * m.by:.1f}{NBSP}% worse ({100 * m.low:.1f} – {100 * m.high:.1f})"
        worst.append(f"{_metric(m)}{', ' * bool(where)}{where}: {text}")
    unlisted = len(case.metrics) - len(worst)
    return [*case.wrong, *worst, *([f"and {_count(unlisted, 'more metric')}"] if unlisted else [])]


def _case(overview: Overview, case: NamedNode) -> CaseRow:
    rack = next((name for name, nodes in overview.racks.items() if name and case.node in nodes), "")
    return CaseRow(
        node=case.node,
        rack=rack,
        what=_what(overview, case),
        since=date_of(case.since) if case.since else "always",
        named=date_of(case.campaign),
        differs=[f"{fact}: {value} (class: {usual})" for fact, (value, usual) in case.differs.items()],
        wrong=bool(case.wrong),
    )


def _left(overview: Overview) -> TextTable | None:
    """Return the nodes without a result by reason, or None."""
    reasons: dict[str, list[str]] = {}
    for node, reason in overview.left.items():
        reasons.setdefault(reason, []).append(node)
    if not reasons:
        return None
    rows = [
        [reason, str(len(nodes)), fold(nodes)]
        for reason, nodes in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
    return TextTable(["reason", "nodes", "which"], rows[:_MANY], numbers={1}, folds={0, 2})


# ------------------------------------------------------------------ classes


def _class_part(overview: Overview, class_overview: ClassOverview, chart: str, newest: Array) -> ClassPart:
    suspects = overview.seen.classes[class_overview.at]
    facts = [f"{k.replace('_', ' ')} {v}" for k, v in suspects.of.common.items() if k not in HARDWARE]
    common = "; ".join(facts) or "nothing recorded"
    reason = overview.seen.reason(suspects)
    judged = f"; {reason}" if reason else ""
    summary = f"{_count(len(suspects.of.members), 'node')}{judged}. Most have: {common}."
    changes = _changes(overview, class_overview)
    drawn = _drawn_points(class_overview.trend, class_overview)
    return ClassPart(
        suspects.of.name,
        summary,
        _metrics(overview, suspects, newest),
        changes,
        chart,
        max(0, len({s.point.key for s in class_overview.steps}) - len(drawn)),
    )


def _metrics(overview: Overview, suspects: Suspects, newest: Array) -> TextTable:
    """Return each metric of a class with its median, the width of its middle half, and its worst node."""
    import numpy as np

    panel = overview.seen.panel
    values = newest[suspects.of.members]
    rows = []
    for k in sorted(suspects.points, key=lambda k: natural(_title(panel.points[k], panel.points))):
        point = panel.points[k]
        node_values = values[:, k]
        measured = np.flatnonzero(~np.isnan(node_values))
        if not len(measured):
            continue
        median = float(np.median(node_values[measured]))
        low, high = np.quantile(node_values[measured], (0.25, 0.75))
        worst = int(measured[np.argmax(node_values[measured])])
        rows.append(
            [
                _metric(point),
                _conditions(_varying(point, panel.points)) or "–",
                str(len(measured)),
                show(math.exp(median * point.sign), point.unit),
                f"±{50 * float(high - low):.2g}{NBSP}%",
                f"{100 * math.expm1(float(node_values[worst]) - median):.1f}{NBSP}%",
                panel.nodes[suspects.of.members[worst]],
            ]
        )
    return TextTable(
        ["metric", "point", "nodes", "median", "middle half", "worst is worse by", "which is"],
        rows,
        numbers={2, 3, 4, 5},
    )


def _changes(overview: Overview, class_overview: ClassOverview) -> TextTable | None:
    """Return what changed in a class, newest first: levels of its metrics and facts of its nodes."""
    changes = [
        (
            s.at,
            [
                _title(s.point, class_overview.trend.points),
                f"{100 * s.by:+.1f}{NBSP}%".replace("-", "−"),
                "worse" if s.worse else "better",
            ],
        )
        for s in class_overview.steps
    ]
    changes += [
        (f.at, [f.fact.replace("_", " "), f"{f.before} → {f.after}", f"{f.nodes} of {_count(f.of, 'node')}"])
        for f in class_overview.facts
    ]
    if not changes:
        return None
    changes.sort(key=lambda item: -item[0])
    rows = [[date_of(overview.campaigns[index]), *cells] for index, cells in changes[:_MANY]]
    return TextTable(["since", "what", "change", ""], rows, folds={1, 2, 3})


def _signed(by: float) -> str:
    return f"{100 * by:+.1f}{NBSP}%".replace("-", "−")


@drawing
def _chart(_: Sequence[Any], overview: Overview, class_overview: ClassOverview) -> alt.TopLevelMixin | None:
    """Draw the median of a class over time relative to its first value, with a rule where a fact of its nodes changed.

    The chart shows the metrics that changed or, if none did, one metric of each instrument.
    """
    if len(overview.campaigns) < 2 or not class_overview.trend.points:
        return None
    rows: list[Row] = []
    points = _drawn_points(class_overview.trend, class_overview)
    for k in points:
        point, centre, spread = (
            class_overview.trend.points[k],
            class_overview.trend.centre[:, k],
            class_overview.trend.spread[:, k],
        )
        first = next((float(v) for v in centre if not math.isnan(v)), math.nan)
        for index, (value, half_width) in enumerate(zip(centre, spread, strict=True)):
            if not math.isnan(value):
                relative = 100 * (float(value) / first - 1)
                rows.append(
                    {
                        "at": time_of(overview.campaigns[index]),
                        "metric": _title(point, class_overview.trend.points),
                        "value": round(relative, 3),
                        "low": round(relative - 100 * float(half_width), 3),
                        "high": round(relative + 100 * float(half_width), 3),
                        "text": show(float(value), point.unit),
                    }
                )
    if not rows:
        return None
    marks = [
        {"at": time_of(overview.campaigns[f.at]), "text": f"{f.fact.replace('_', ' ')} {f.after}"}
        for f in class_overview.facts
    ]
    names = list(dict.fromkeys(r["metric"] for r in rows))
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke")
    scale = alt.Scale(domain=names, range=colours(len(names)))
    colour = alt.Color("metric:N", title=None, scale=scale, legend=legend)
    base = chart_of(rows).encode(
        x=alt.X("at:T", title=None, axis=alt.Axis(format=_TIMES, labelOverlap=True)), color=colour
    )
    y = alt.Y("value:Q", title="change since the beginning (%)")
    tips = [
        alt.Tooltip(f"{k}:N", title=title) for k, title in (("at", "day"), ("metric", "metric"), ("text", "median"))
    ]
    rule = chart_of(marks).encode(x=alt.X("at:T"))
    return alt.layer(
        base.mark_area(opacity=0.12).encode(y=alt.Y("low:Q", title="change since the beginning (%)"), y2="high:Q"),
        base.mark_line(strokeWidth=1.8, point=alt.OverlayMarkDef(size=16)).encode(y=y, tooltip=tips),
        rule.mark_rule(strokeDash=[4, 4], opacity=0.8).encode(tooltip=[alt.Tooltip("text:N", title="changed")]),
        rule.mark_text(align="left", baseline="top", dx=4, fontSize=11, opacity=0.8).encode(
            y=alt.value(2), text="text:N"
        ),
    )


# Formats of ticks by the unit that begins at the tick: ticks within a day do not repeat the name of the day.
_DATE, _HOUR = "%b %d", "%H:%M"
_TIMES: Final = {
    "year": "%Y",
    "quarter": "%b",
    "month": "%b",
    "week": _DATE,
    "date": _DATE,
    "hours": _HOUR,
    "minutes": _HOUR,
}


def _drawn_points(trend: Trend, class_overview: ClassOverview) -> list[int]:
    """Return the indices of the points that a chart shows."""
    changed = list(dict.fromkeys(s.point.key for s in sorted(class_overview.steps, key=lambda s: -abs(s.by))))
    representatives: dict[str, str] = {}
    for p in sorted(trend.points, key=lambda p: p.metric != "figure_of_merit"):
        representatives.setdefault(_program(p) or p.instrument, p.key)
    keys = changed or list(representatives.values())
    index_of = {p.key: k for k, p in enumerate(trend.points)}
    return [index_of[key] for key in keys[:_LINES]]


def _title(point: FleetPoint, points: Sequence[FleetPoint]) -> str:
    """Return a metric at a point in words, such as `bandwidth net, 16 KiB`."""
    where = _conditions(_varying(point, points))
    return _metric(point) + (f", {where}" if where else "")


def _metric(point: FleetPoint | WorseMetric) -> str:
    program = _program(point)
    return (f"{program} {point.metric}" if program else named(point.instrument, point.metric)).replace("_", " ")


def _program(point: FleetPoint | WorseMetric) -> str:
    """Return the application that was measured; "" for instruments."""
    return str(point.conditions.get("program", "")) if point.instrument == "app" else ""


def _varying(point: FleetPoint, points: Sequence[FleetPoint]) -> dict[str, Any]:
    """Return the conditions that distinguish a point from others of its metric."""
    conditions, program = point.conditions, _program(point)
    same_metric = [p for p in points if (p.instrument, p.metric) == (point.instrument, point.metric)]
    alternatives = [p.conditions for p in same_metric if _program(p) == program]
    return {k: v for k, v in conditions.items() if any(other.get(k) != v for other in alternatives)}


def _conditions(found: Mapping[str, Any]) -> str:
    return ", ".join(condition_text(k, v) for k, v in found.items())
