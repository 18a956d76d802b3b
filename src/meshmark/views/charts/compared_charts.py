"""Charts of a comparison over all of its machines: the ratios of each to the first, and values machine by machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import altair as alt

from meshmark.compare.join import ResultComparison
from meshmark.compare.kinds import LEVEL, MEMORY, ResultKind, kinds
from meshmark.compare.normalise import Per
from meshmark.measure.repetitions import point_key
from meshmark.statistics.verdicts import is_speed
from meshmark.store.record import Record
from meshmark.views.charts.drawing import (
    FULL,
    GB,
    NS,
    Row,
    chart_of,
    colours,
    drawing,
    level_marks,
    row,
    ticks,
    tooltip,
    value_scale,
)
from meshmark.views.content.compared_rows import LETTERS, mean_text, named, sides_of
from meshmark.views.content.selection import value_of

EQUAL: Final = "equal to A"
_NARROW_PX: Final = 720  # width of a chart on the page; machine names that need more are slanted
_LETTER_PX: Final = 7
_GAP: Final = 0.75  # empty share of a machine's band, which separates machines


# ------------------------------------------------------------------ ratios


@drawing
def ratios(
    _: Sequence[Record], comparisons: Sequence[ResultComparison], ideal: float | None = None
) -> alt.TopLevelMixin | None:
    """Draw the geometric mean of the ratios of each metric and side, with lines at 1 and at the ideal ratio.

    Args:
        comparisons: Comparisons of A with each of the other sides.
        ideal: Ideal ratio of rates, above 0; the ideal ratio of times is its inverse. None draws no such line.
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
            if ideal is not None and (ideal_ratio := _ideal(directions[m.instrument, m.metric], ideal)) is not None:
                lines.append({"name": name, "at": ideal_ratio, "line": f"ideal {ideal:g}"})
    names, sides, kinds_of_lines = (
        list(dict.fromkeys(r[key] for r in items)) for items, key in ((rows, "name"), (rows, "side"), (lines, "line"))
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
    """Return ticks of a logarithmic axis of ratios, with several on either side of 1."""
    return [t for t in _NEAR_ONE if low <= t <= high] if high < 2.5 * low else ticks(low, high)


_NEAR_ONE: Final = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.25)


def _ideal(record: Record, ideal: float) -> float | None:
    """Return the ideal ratio of a metric; None if it is neither a time nor a quantity of which more is better."""
    if record.better == "higher":
        return ideal
    return 1 / ideal if record.better == "lower" and is_speed(record.unit) else None


# ------------------------------------------------------------------ machine by machine


@dataclass(frozen=True, slots=True)
class _Headline:
    """Lines of a chart: results of memory; for bandwidths, results of one kernel.

    Attributes:
        otherwise: Whether the lines are drawn only if there is no other line.
    """

    name: str
    instrument: str
    metric: str
    kernel: str = ""
    otherwise: bool = False

    def takes(self, r: Record, kind: ResultKind) -> bool:
        if (r.instrument, r.metric) != (self.instrument, self.metric) or r.value <= 0:
            return False
        if kind.words.get(LEVEL) != frozenset({"memory"}) or kind.words.get(MEMORY) == frozenset():
            return False
        if self.kernel:
            return kind.words.get("kernel") == frozenset({self.kernel})
        return kind.words.get(MEMORY) == frozenset({"local"}) and kind.workers is not None and kind.workers.count == 1


_BANDWIDTHS: Final = [
    _Headline(kernel, "bandwidth", "bandwidth_net", kernel, otherwise=kernel == "copy")
    for kernel in ("read", "triad", "copy")
]
_LATENCIES: Final = [_Headline("memory latency", "latency", "load_latency")]
_UNITS: Final[dict[Per, tuple[str, str]]] = {
    "": ("net bandwidth", GB),
    "thread": ("net bandwidth per thread", GB),
    "clock": ("net bandwidth per clock cycle", "format(datum.value, '~r') + ' B'"),
    "peak": ("share of the theoretical peak", "format(datum.value, '~%')"),
}


@drawing
def bandwidth_over_machines(_: Sequence[Record], comparisons: Sequence[ResultComparison]) -> alt.TopLevelMixin | None:
    """Draw the memory bandwidth of each side, in the order of the sides."""
    return _over_machines(comparisons, _BANDWIDTHS, *_UNITS[comparisons[0].per])


@drawing
def latency_over_machines(_: Sequence[Record], comparisons: Sequence[ResultComparison]) -> alt.TopLevelMixin | None:
    """Draw the memory latency of each side, in the order of the sides."""
    title, label = "time per load", NS
    if comparisons[0].per == "clock":
        title, label = "clock cycles per load", "format(datum.value, '~r')"
    return _over_machines(comparisons, _LATENCIES, title, label)


def _over_machines(
    comparisons: Sequence[ResultComparison], headlines: Sequence[_Headline], title: str, label: str
) -> alt.TopLevelMixin | None:
    sides = sides_of(comparisons)
    if len(sides) == 2 and sides[0][1].machine == sides[1][1].machine:
        return None  # the same machine before and after a change
    names = [f"{letter}: {side.name}" for letter, side in sides]
    rows: list[Row] = []
    for headline in headlines:
        if rows and headline.otherwise:
            continue
        for line in _trends(comparisons, headline):
            series = f"{headline.name}, {_workers(line)}"
            rows += [
                row(r, series=series, machine=names[number], order=number, **{"threads or processes": _count(r)})
                for number, r in line.items()
            ]
    lines = list(dict.fromkeys(r["series"] for r in rows))
    if not rows:
        return None
    slanted = max(map(len, names)) * len(names) * _LETTER_PX > _NARROW_PX
    axis = alt.Axis(labelLimit=180, labelOverlap=False)
    if slanted:  # otherwise the page decides by its width
        axis["labelAngle"] = -35
    band_scale = alt.Scale(type="band", domain=names, paddingInner=_GAP, paddingOuter=_GAP / 2)
    x = alt.X("machine:N", title=None, sort=names, scale=band_scale, axis=axis)
    offset = alt.XOffset("series:N", sort=lines)  # so that intervals do not hide each other
    scale, y_axis = value_scale(rows), alt.Axis(labelExpr=label, tickCount=6)
    line_colours = alt.Scale(domain=lines, range=colours(len(lines)))
    color = alt.Color(
        "series:N",
        title=None,
        scale=line_colours,
        legend=alt.Legend(symbolType="stroke", symbolOpacity=1),
    )

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=title, scale=scale, axis=y_axis)

    base = chart_of(rows).encode(x=x, xOffset=offset, color=color)
    tips = tooltip("machine", "series", "threads or processes")
    return alt.layer(
        base.mark_line(strokeWidth=2, opacity=0.7).encode(y=y("value"), order=alt.Order("order:Q")),
        base.mark_rule(strokeWidth=2).encode(y=y("low"), y2="high:Q", tooltip=tips),
        base.mark_point(size=60, filled=True, opacity=1, strokeWidth=1.5).encode(
            y=y("value"), stroke=alt.Stroke("series:N", scale=line_colours, legend=None), fillOpacity=FULL, tooltip=tips
        ),
        *level_marks(rows, base, y("level"), ["machine", "series"]),
    ).properties(height=300)


def _trends(comparisons: Sequence[ResultComparison], headline: _Headline) -> list[dict[int, Record]]:
    """Return results of one kind by the number of their side, A's first: with one thread, and with the most threads.

    The results of a trend are all compared with the same result of A. If several results of A are possible, it is
    the one that most sides have, then the one with the most threads, then the one with the largest footprint.
    """
    trends: dict[str, dict[int, Record]] = {}
    for number, c in enumerate(comparisons, 1):
        kind_of_result = kinds(c.a.points)
        for p in c.pairs:
            kind = kind_of_result.get(id(p.a))
            if p.ratio is not None and kind is not None and headline.takes(p.a, kind) and p.b.value > 0:
                trends.setdefault(f"{point_key(p.a)} {'threads' in p.differ}", {0: p.a})[number] = p.b
    single, multiple = (
        [trend for trend in trends.values() if (_count(trend[0]) > 1) == many] for many in (False, True)
    )
    return [max(trend, key=_rank) for trend in (single, multiple) if trend]


def _rank(of: Mapping[int, Record]) -> tuple[int, float, float, bool, float]:
    a = of[0]
    goodness = math.log(a.value) * (-1 if a.better == "lower" else 1)
    return len(of), _count(a), value_of(a, "footprint_bytes"), not a.flags, goodness


def _count(r: Record) -> int:
    """Return the number of threads or processes of a result."""
    return int(value_of(r, "threads", value_of(r, "processes", 1)))


def _workers(of: Mapping[int, Record]) -> str:
    """Return the threads or processes of a trend as text: `one thread`, `8 threads`, or `8 to 128 threads`."""
    name = "process" if "threads" not in of[0].conditions else "thread"
    low, high = (end(_count(r) for r in of.values()) for end in (min, max))
    if high == 1:
        return f"one {name}"
    return f"{low if low == high else f'{low} to {high}'} {name}{'es' if name == 'process' else 's'}"
