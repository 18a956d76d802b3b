"""Writes the page of a comparison of two machines or runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import altair as alt

from meshmark.compare.hops import fit
from meshmark.compare.join import ResultComparison, ResultPair
from meshmark.compare.pairing import identity
from meshmark.measure.repetitions import measurement_key
from meshmark.store.record import Record, varying
from meshmark.values.units import ratio_text, show, size
from meshmark.views.charts.compared_charts import bandwidth_over_machines, latency_over_machines, ratios
from meshmark.views.charts.drawing import (
    GB,
    NS,
    Drawing,
    Row,
    bytes_axis,
    chart_of,
    chart_page,
    clearest,
    colours,
    condition_text,
    drawing,
    layered,
    log_axis,
    row,
    tooltip,
)
from meshmark.views.content.compared_rows import LEGEND, LETTERS, ComparisonBlock, blocks, compared_table, sides_of
from meshmark.views.content.compared_text import (
    hops_texts,
    left_over,
    lettered,
    published,
    side_text,
    summaries,
    with_hops,
)
from meshmark.views.content.listing import conditions_text, title
from meshmark.views.content.selection import modes_of, modes_texts, selected, value_of
from meshmark.views.tables import TextTable, ratio_range

_ORDER: Final = ("slower", "worse", "faster", "better", "lower", "higher", "not comparable", "inconclusive", "equal")


def comparison_page(comparisons: Sequence[ResultComparison], ideal: float | None = None) -> str:
    """Return the self-contained page of a comparison.

    Args:
        comparisons: The comparisons of A with each of the other sides.
        ideal: See `compared_charts.ratios`.
    """
    drawn = charts(comparisons, ideal)
    more = {"means": _ideal_text(ideal)}
    return chart_page(
        "comparison.html",
        drawn,
        title=_joined([side.name for _, side in sides_of(comparisons)]),
        charts=[(name, head, text + more.get(name, "")) for name, head, text, _ in _CHARTS if name in drawn],
        fact_table=_facts(comparisons),
        **parts(comparisons),
    )


def _facts(comparisons: Sequence[ResultComparison]) -> TextTable:
    several = len(comparisons) > 1
    rows = [
        [name, a_fact, f"{letter}: {fact}" if several else fact]
        for letter, c in lettered(comparisons)
        for name, a_fact, fact in c.facts
    ]
    head = ["software or setting", "A", "other side" if several else "B"]
    return TextTable(head, rows, folds=range(3))


def _joined(names: Sequence[str]) -> str:
    """Return the names as an enumeration: `a, b and c`."""
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _ideal_text(ideal: float | None) -> str:
    if ideal is None:
        return ""
    inverse = ratio_text(1 / ideal)
    return f" The other line is what would be ideal: {ideal:g} times the rate, or {inverse} times the time, of A."


def charts(comparisons: Sequence[ResultComparison], ideal: float | None = None) -> dict[str, Drawing]:
    """Return the charts for which at least two sides have results, by name."""
    more = {"means": {"ideal": ideal}}
    drawn = {name: draw((), comparisons, **more.get(name, {})) for name, _, _, draw in _CHARTS}
    return {name: chart for name, chart in drawn.items() if chart is not None}


def parts(comparisons: Sequence[ResultComparison]) -> dict[str, Any]:
    """Return what a template shows beside the charts: sides, facts, and blocks of results with ratios on one axis."""
    compared = blocks(comparisons)
    ends = [cell.at for b in compared for line in b.lines for cell in line.cells if cell is not None and cell.at]
    axis = ratio_range(end for ratio, interval in ends for end in (ratio, *(interval or ())))
    several = len(comparisons) > 1
    return {
        "sides": [(letter, side_text(side)) for letter, side in sides_of(comparisons)],
        "others": LETTERS[1 : len(comparisons) + 1],
        "summaries": summaries(comparisons),
        "facts": [(letter, *fact) for letter, c in lettered(comparisons) for fact in c.facts],
        "blocks": [_placed(b, axis) for b in compared],
        "legend": LEGEND if several else "",
        "left_over": [] if several else left_over(comparisons[0]),
        "published": published(comparisons),
        "hops": hops_texts(comparisons),
    }


def _placed(block: ComparisonBlock, axis: tuple[float, float]) -> Mapping[str, Any]:
    """Return a block with its table; results that differ come first."""
    lines = sorted(
        block.lines, key=lambda line: min(_ORDER.index(cell.word) for cell in line.cells if cell is not None)
    )
    equal = sum(all(cell is not None and cell.word == "equal" for cell in line.cells) for line in lines)
    return {"block": block, "table": compared_table(lines, axis), "equal": equal, "folded": len(lines) > _FOLDED}


_FOLDED: Final = 12  # rows of a block; longer ones are folded


@drawing
def _latency(_: Sequence[Record], comparisons: Sequence[ResultComparison]) -> alt.TopLevelMixin | None:
    """Draw the latency curves of all sides over each other."""
    return _curves(comparisons, "latency", "load_latency", "time per load", NS, pattern="random", processes=1)


@drawing
def _hops(_: Sequence[Record], comparisons: Sequence[ResultComparison]) -> alt.TopLevelMixin | None:
    """Draw latency by the number of hops of all sides, with a line through the remote latencies."""
    rows: list[Row] = []
    ends: list[Row] = []
    for letter, side, latencies in with_hops(comparisons):
        name = f"{letter}: {side.name}"
        if (line := fit(latencies)) is None:
            continue
        rows += [row(r, series=name, x=value_of(r, "hops"), node=r.conditions.get("memory_node")) for r in latencies]
        most_hops = max(value_of(r, "hops") for r in latencies)
        ends += [{"series": name, "x": x, "value": line.base_s + x * line.per_hop_s} for x in (0, most_hops)]
    if not rows:
        return None
    names = sorted({r["series"] for r in rows})
    color = alt.Color("series:N", title=None, scale=alt.Scale(domain=names, range=colours(len(names))))
    x = alt.X("x:Q", title="hops", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(domainMin=0))
    y = alt.Y("value:Q", title="time per load", axis=alt.Axis(labelExpr=NS), scale=alt.Scale(zero=True))
    tips = [alt.Tooltip("series:N", title="side"), alt.Tooltip("node:N", title="memory node"), *tooltip("x")]
    return alt.layer(
        chart_of(ends).mark_line(strokeDash=[4, 3], strokeWidth=1.5).encode(x=x, y=y, color=color),
        chart_of(rows).mark_point(size=50, filled=True).encode(x=x, y=y, color=color, tooltip=tips),
    ).properties(height=300)


@drawing
def _matrix(_: Sequence[Record], comparisons: Sequence[ResultComparison]) -> alt.TopLevelMixin | None:
    """Draw B over A for each pair of CPUs, or for each CPU and memory node; None with more than two sides."""
    if len(comparisons) > 1:
        return None
    (c,), charts = comparisons, []
    for metric, across, down in (("line_latency", "to_cpu", "from_cpu"), ("load_latency", "memory_node", "cpu")):
        pairs = [p for p in c.pairs if p.a.metric == metric and p.a.instrument != "loaded" and p.ratio]
        groups: dict[str, list[ResultPair]] = {}
        for p in pairs:
            if all(isinstance(p.a.conditions.get(k), int) for k in (across, down)):
                rest = conditions_text([k for k in identity(p.a) if k not in {across, down}], p.a)
                groups.setdefault(rest, []).append(p)
        for rest, group in sorted(groups.items(), key=lambda item: -len(item[1]))[:_MATRICES]:
            if len(group) >= _CELLS:
                charts.append(_map(group, across, down, f"{metric.replace('_', ' ')}, {rest}"))
    maps: alt.TopLevelMixin | None = alt.concat(*charts, columns=2, spacing=30) if charts else None
    return maps


def _map(pairs: Sequence[ResultPair], across: str, down: str, name: str) -> Any:
    rows: list[Row] = [
        {
            "x": p.a.conditions[across],
            "y": p.a.conditions[down],
            "value": p.ratio.value,
            "text": ratio_text(p.ratio.value),
            "word": p.word,
            "a": show(p.a.value, p.a.unit),
            "b": show(p.b.value, p.b.unit),
        }
        for p in pairs
        if p.ratio is not None
    ]
    largest_factor = max(1.1, *(max(r["value"], 1 / r["value"]) for r in rows if r["value"] > 0))
    scale = alt.Scale(
        type="log", domain=[1 / largest_factor, 1, largest_factor], range=["#0072B2", "#f4f4f4", "#D55E00"]
    )
    columns, lines = (len({r[k] for r in rows}) for k in ("x", "y"))
    base = chart_of(rows).encode(
        x=alt.X("x:O", title=title(across), axis=alt.Axis(labelOverlap=True, labelAngle=0)),
        y=alt.Y("y:O", title=title(down), axis=alt.Axis(labelOverlap=True)),
    )
    tips = [alt.Tooltip(f"{k}:N", title=t) for k, t in (("text", "B over A"), ("a", "A"), ("b", "B"), ("word", "B is"))]
    cells = base.mark_rect().encode(color=alt.Color("value:Q", title="B over A", scale=scale), tooltip=tips)
    side = 36 if columns <= _NUMBERS else max(4, 480 // columns)
    size = {"title": name, "width": side * columns, "height": side * lines}
    if columns > _NUMBERS:
        return cells.properties(**size)
    return alt.layer(cells, base.mark_text(fontSize=10).encode(text="text:N", color=alt.value("#111"))).properties(
        **size
    )


_MATRICES: Final = 4  # maps of a metric; the ones with the most cells are shown
_CELLS: Final = 4  # minimum of a map; the table is enough for fewer
_NUMBERS: Final = 16  # most columns of a map with numbers in its cells


@drawing
def _bandwidth(_: Sequence[Record], comparisons: Sequence[ResultComparison]) -> alt.TopLevelMixin | None:
    """Draw the bandwidth curves of all sides over each other."""
    return _curves(comparisons, "bandwidth", "bandwidth_net", "net bandwidth", GB, kernel="triad")


def _curves(
    comparisons: Sequence[ResultComparison], instrument: str, metric: str, label: str, unit: str, **equal: str | int
) -> alt.TopLevelMixin | None:
    rows = []
    for letter, side in sides_of(comparisons):
        points = selected(side.points, instrument, metric, positive=("footprint_bytes",), above_zero=True)
        points = [r for r in points if all(r.conditions.get(k) == v for k, v in equal.items())]
        keys = varying([k for k in ("pages", "threads", "store") if any(k in r.conditions for r in points)], points)
        for r in points:
            names = [f"{letter}: {side.name}", *(condition_text(k, r.conditions.get(k)) for k in keys)]
            footprint = value_of(r, "footprint_bytes")
            modes = modes_of(side.records, r)
            levels = {"levels": [m.value for m in modes], "modes": ", ".join(modes_texts(modes)) if modes else "none"}
            rows.append(row(r, series=", ".join(names), x=footprint, size=size(footprint), **levels))
    curves = {s for s in {r["series"] for r in rows} if len({r["x"] for r in rows if r["series"] == s}) > 2}
    rows = sorted(clearest([r for r in rows if r["series"] in curves], "series", "x"), key=lambda r: r["x"])
    if len({name[0] for name in curves}) < 2:
        return None
    return layered(rows, bytes_axis("x", rows, "footprint"), log_axis(rows, label, unit), "series", ["size"])


@drawing
def _loaded(_: Sequence[Record], comparisons: Sequence[ResultComparison]) -> alt.TopLevelMixin | None:
    """Draw latency over bandwidth of all sides, each with the kinds of load that have the most points."""
    rows: list[Row] = []
    for letter, side in sides_of(comparisons):
        rates = {measurement_key(r): r for r in selected(side.points, "loaded", "bandwidth_net", above_zero=True)}
        latencies = selected(side.points, "loaded", "load_latency", above_zero=True)
        loads = [r for r in latencies if measurement_key(r) in rates]
        keys = varying([k for k in _OF_A_CURVE if any(k in r.conditions for r in loads)], loads)
        curves: dict[str, list[Record]] = {}
        for r in loads:
            names = [f"{letter}: {side.name}", *(condition_text(k, r.conditions.get(k)) for k in keys)]
            curves.setdefault(", ".join(names), []).append(r)
        for series, points in sorted(curves.items(), key=lambda item: -len(item[1]))[:_CURVES]:
            pairs = [(r, rates[measurement_key(r)]) for r in points] if len(points) > 2 else []
            rows += [row(r, series=series, x=rate.value, rate=show(rate.value, rate.unit)) for r, rate in pairs]
    if len({r["series"][0] for r in rows}) < 2:
        return None
    rows.sort(key=lambda r: r["value"])
    x = alt.X("x:Q", title="net bandwidth", axis=alt.Axis(labelExpr=GB), scale=alt.Scale(zero=True))
    names = sorted({r["series"] for r in rows})
    color = alt.Color("series:N", title=None, scale=alt.Scale(domain=names, range=colours(len(names))))
    y = alt.Y("value:Q", title="time per load", axis=alt.Axis(labelExpr=NS), scale=alt.Scale(zero=True))
    base = chart_of(rows).encode(x=x, y=y, color=color)
    tips = tooltip("rate")
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(order=alt.Order("value:Q")),
        base.mark_point(size=42, filled=True, opacity=1).encode(tooltip=tips),
    ).properties(height=300)


_OF_A_CURVE: Final = ("mode", "threads", "read_share", "pages", "cpu_node", "memory_node")
_CURVES: Final = 2  # curves of a side; the ones with the most points are shown

_CHARTS: Final[tuple[tuple[str, str, str, Callable[..., Drawing | None]], ...]] = (
    (
        "means",
        "Ratios",
        "Each side over A: geometric means over the points that both have; the intervals assume that all errors have "
        "the same sign. Beyond the dashed line at 1 a time is longer, or a rate higher.",
        ratios,
    ),
    (
        "bandwidth-over-machines",
        "Bandwidth, machine by machine",
        "Net bandwidth of memory, with one thread and with the most threads that A and others have. Each line joins "
        "results that are compared with one of A.",
        bandwidth_over_machines,
    ),
    (
        "latency-over-machines",
        "Latency, machine by machine",
        "Latency of local memory, one process, with the largest footprint.",
        latency_over_machines,
    ),
    ("latency", "Latency by footprint", "Random loads of one process.", _latency),
    ("bandwidth", "Bandwidth by footprint", "Net bandwidth of triad.", _bandwidth),
    (
        "loaded",
        "Latency under load",
        "Latency of memory over the bandwidth at the same time. Delays of different tools are different loads, so that "
        "points are compared as a curve only.",
        _loaded,
    ),
    (
        "hops",
        "Latency by hops",
        "Idle latency of memory by its distance in hops; dashed: a least-squares line through the remote nodes.",
        _hops,
    ),
    ("matrix", "Ratios by pair", "B over A. Blue is less time, orange more.", _matrix),
)
