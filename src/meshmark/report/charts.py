"""Charts of records, as Vega-Lite through Altair: one specification for the page, PNG and SVG.

A function takes all records and returns a chart, or None where none of them is of its kind. Colour, flags and
tooltips are the same everywhere: a hollow mark is a flagged one, and a hover tells the distribution behind a point.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec

import altair as alt

from meshmark.report.selection import UNKNOWN, listed, number, selected, text_of, value_of
from meshmark.store.record import Record
from meshmark.values.units import percent, show, size

# Okabe and Ito's palette, which colour-blind readers can tell apart.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C6D31"]
# Sixteen that can be told apart: those, and darker ones.
COLOURS = [*PALETTE, "#003B5C", "#8A3C00", "#005B43", "#8C3F66", "#9C6B00", "#1F6F9C", "#3F3F3F", "#4F3800"]
WIDTH, HEIGHT = 720, 340
MANY = 2500  # marks of one chart beyond which tooltips are short and the page draws on a canvas
NO_INTERVAL = "none from fewer than 6 samples"
Row = dict[str, Any]
What = ParamSpec("What")  # a chart is drawn from: records, and of some the machine's topology


def row(record: Record, **more: Any) -> Row:
    """What a mark needs: value, interval, and the texts of its tooltip. Values stay in the metric's unit."""
    low, high = record.interval or (record.value, record.value)
    best, worst = record.ends
    return {
        "value": record.value,
        "low": low,
        "high": high,
        "median": show(record.value, record.unit),
        "interval": f"{show(low, record.unit)} – {show(high, record.unit)}" if record.interval else NO_INTERVAL,
        "best": show(best, record.unit),
        "worst": show(worst, record.unit),
        "spread": percent(record.spread),
        "samples": len(record.samples),
        "distribution": histogram(record.samples),
        "flags": ", ".join(sorted(record.flags)) or "none",
        "flagged": bool(record.flags),
        **more,
    }


def histogram(samples: Sequence[float], bins: int = 16) -> str:
    """The samples from least to greatest as bars of one line of text; '' where all are the same.

    >>> histogram([1, 1, 1, 2], bins=4)
    '█··▃'
    """
    low, high = min(samples), max(samples)
    if high <= low:
        return ""
    counts = [0] * bins
    for s in samples:
        counts[min(bins - 1, int((s - low) / (high - low) * bins))] += 1
    return "".join("▁▂▃▄▅▆▇█"[round(7 * c / max(counts))] if c else "·" for c in counts)


def tooltip(*more: str) -> list[alt.Tooltip]:
    names = [*more, "median", "interval", "best", "worst", "spread", "distribution", "samples", "flags"]
    return [alt.Tooltip(f"{name}:N", title=name.replace("_", " ")) for name in names]


def clearest(rows: Iterable[Row], *keys: str) -> list[Row]:
    """One row a mark: where several steps measured the same, the unflagged one with the narrowest interval."""
    best: dict[tuple[Any, ...], Row] = {}
    for r in rows:
        key = tuple(r[k] for k in keys)
        if key not in best or _doubt(r) < _doubt(best[key]):
            best[key] = r
    return list(best.values())


def _doubt(r: Row) -> tuple[bool, bool, float]:
    return r["flagged"], r["interval"] == NO_INTERVAL, (r["high"] - r["low"]) / (abs(r["value"]) or 1)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart and its data by name. Altair would check and copy every row many times, which takes half a minute for the
    65 280 pairs of 256 CPUs; so it sees names only, and the rows join the specification at the end."""

    chart: alt.TopLevelMixin
    data: dict[str, list[Row]]


_rows: ContextVar[dict[str, list[Row]]] = ContextVar("rows of the chart being drawn")


def drawing(draw: Callable[What, alt.TopLevelMixin | None]) -> Callable[What, Drawn | None]:
    """Collects the rows that `draw` charts."""

    @functools.wraps(draw)
    def drawn(*args: What.args, **words: What.kwargs) -> Drawn | None:
        token = _rows.set({})
        try:
            chart = draw(*args, **words)
            return None if chart is None else Drawn(chart, _rows.get())
        finally:
            _rows.reset(token)

    return drawn


def chart_of(rows: Sequence[Row]) -> alt.Chart:
    data = _rows.get()
    name = f"rows{len(data)}"
    data[name] = list(rows)
    return alt.Chart(alt.NamedData(name=name))


def colours(count: int) -> list[str]:
    """As many; beyond sixteen they begin anew."""
    return (COLOURS * (1 + count // len(COLOURS)))[:count]


def layered(
    rows: list[Row], x: alt.X, y: Callable[[str], alt.Y], series: str, tips: Sequence[str], band: bool = True
) -> alt.LayerChart | alt.FacetChart:
    names = sorted({r[series] for r in rows}, key=natural)
    scale = alt.Scale(domain=names, range=colours(len(names)))
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke")
    base = chart_of(rows).encode(x=x, color=alt.Color(f"{series}:N", title=None, scale=scale, legend=legend))
    area = base.mark_area(opacity=0.18).encode(y=y("low"), y2="high:Q")
    line = base.mark_line(strokeWidth=2).encode(y=y("value"))
    # Without a fill of its own colour a hollow mark would let the line behind it show; the page's colour is not known.
    points = base.mark_point(size=42, filled=True, opacity=1, strokeWidth=1.5).encode(
        y=y("value"),
        stroke=alt.Stroke(f"{series}:N", scale=scale, legend=None),
        fillOpacity=FULL,
        tooltip=tooltip(*tips),
    )
    return alt.layer(*([area] if band else []), line, points)


FULL = alt.condition("datum.flagged", alt.value(0.0), alt.value(1.0))


def natural(text: str) -> list[tuple[int, str]]:
    """`10 threads` comes after `2 threads`."""
    parts = (t.lstrip("0") or t[-1] if t.isdecimal() else t for t in re.split(r"(\d+)", text) if t)
    return [(len(t), t) if t.isdecimal() else (-1, t) for t in parts]


def ticks(low: float, high: float) -> list[float]:
    """Of a logarithmic axis: 1, 2, 5 of every decade, or its powers of ten where there are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 1.5, 2, 3, 5, 7) if high < 12 * low else (1, 2, 5) if high < 2000 * low else (1,)
    return [t for d in decades for m in steps if low <= (t := m * 10.0**d) <= high]


def log_axis(rows: Iterable[Row], title: str, label: str) -> Callable[[str], alt.Y]:
    """A logarithmic axis that reaches a little beyond the intervals."""
    found = list(rows)
    low = 0.8 * min(v for r in found for v in (r["low"], r["value"]) if v > 0)  # an interval may reach 0
    high = 1.25 * max(r["high"] for r in found)
    scale, axis = (
        alt.Scale(type="log", domain=[low, high], clamp=True),
        alt.Axis(labelExpr=label, values=ticks(low, high)),
    )
    return lambda field: alt.Y(f"{field}:Q", title=title, scale=scale, axis=axis)


_BYTES = "datum.value >= 1073741824 ? datum.value / 1073741824 + ' GiB' : datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : datum.value / 1024 + ' KiB'"  # noqa: E501


def _bytes_axis(field: str, rows: Iterable[Row], title: str) -> alt.X:
    """Powers of four from the least to the greatest, in binary units."""
    values = [r[field] for r in rows]
    low, high = min(values), max(values)
    ticks = [2**k for k in range(10, 44, 2) if low <= 2**k <= high * 1.01]
    return alt.X(
        f"{field}:Q",
        title=title,
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=ticks or [low], labelExpr=_BYTES, grid=True),
    )


_NS = "datum.value >= 1e-6 ? format(datum.value * 1e6, '~r') + ' µs' : format(datum.value * 1e9, '~r') + ' ns'"
_GB = "format(datum.value / 1e9, '~r') + ' GB/s'"


def _linear(title: str, label: str) -> Callable[[str], alt.Y]:
    axis = alt.Axis(labelExpr=label, tickCount=8)
    return lambda field: alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=True), axis=axis)


def _several(records: Sequence[Record], *keys: str) -> Callable[[Record], str]:
    """Names a series by those conditions that differ among the records; the last key always counts."""
    varying = [k for k in keys if len({str(r.conditions.get(k)) for r in records}) > 1] or [keys[-1]]

    def name(r: Record) -> str:
        return ", ".join(said(k, r.conditions.get(k)) for k in varying)

    return name


_WORDS = {
    "pages": "pages {}",
    "memory_node": "memory of node {}",
    "cpu": "CPU {}",
    "store": "{} stores",
    "from_cpu": "from CPU {}",
    "to_cpu": "to CPU {}",
    "n": "n = {}",
    "library_kernel": "kernel {}",
    "queue_depth": "depth {}",
    "best_chains": "{} chains",
}
_BARE = {"isa", "kernel", "mode", "type"}


def said(key: str, value: Any) -> str:
    """A condition as a legend says it."""
    if value is None:
        return f"{key.removesuffix('_bytes').replace('_', ' ')} {UNKNOWN}"
    if key in {"threads", "jobs"}:
        return f"{value} {key if value != 1 else key[:-1]}"
    if key.endswith("_bytes") and isinstance(value, int | float) and not isinstance(value, bool):
        words = key.removesuffix("_bytes")
        return size(float(value)) if words in {"footprint", "table", "block"} else f"{words} {size(float(value))}"
    return str(value) if key in _BARE else _WORDS.get(key, key.replace("_", " ") + " {}").format(value)


def sized(record: Record, key: str) -> str:
    """A condition in bytes, for people."""
    found = number(record, key)
    return UNKNOWN if found is None else size(found)


def _curves(records: Sequence[Record], x: str, *keys: str) -> list[Row]:
    """Rows of those series over condition `x`, a number of all of them, that have more than two points, named by what
    differs among them."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for r in records:
        groups.setdefault(tuple(str(r.conditions.get(k)) for k in keys), []).append(r)
    curves = [g for g in groups.values() if len({value_of(r, x) for r in g}) > 2]
    drawn = [r for g in curves for r in g]
    name = _several(drawn, *keys)
    rows = [row(r, series=name(r), x=value_of(r, x), size=size(value_of(r, x))) for r in drawn]
    return sorted(clearest(rows, "series", "x"), key=lambda r: r["x"])


def _walks(records: Sequence[Record]) -> list[Record]:
    """Latencies of the plain question: one random cycle over all of the footprint."""
    found = selected(
        records,
        "latency",
        "load_latency",
        positive=("footprint_bytes", "processes"),
        texts=("pattern",),
        above_zero=True,
    )
    return [r for r in found if r.conditions["pattern"] == "random" and not r.conditions.get("locality_bytes")]


@drawing
def latency(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Latency against footprint, log-log, with the levels found."""
    curve = [r for r in _walks(records) if r.conditions["processes"] == 1]
    rows = _curves(curve, "footprint_bytes", "stride_bytes", "cpu", "memory_node", "pages")
    if not rows:
        return None
    y = log_axis(rows, "time per load", _NS)
    chart = layered(rows, _bytes_axis("x", rows, "footprint"), y, "series", ["size"])
    levels = selected(records, (), "level_latency", positive=("from_bytes", "to_bytes"), above_zero=True)
    series = sorted({text_of(r, "pages") for r in levels}, reverse=True)
    marks = [
        {"value": r.value, "from": value_of(r, "from_bytes"), "label": show(r.value, "s")}
        for r in levels
        if text_of(r, "pages") == series[0]
    ]
    if marks:
        base = chart_of(marks)
        chart = alt.layer(
            chart,
            base.mark_text(dy=-12, align="left", fontWeight="bold", fontSize=12).encode(
                x="from:Q", y=y("value"), text="label:N"
            ),
        )
    return chart


@drawing
def strides(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Latency against a constant stride, with the random walks of the same footprint as levels to compare with."""
    found = selected(
        records,
        "latency",
        "load_latency",
        positive=("footprint_bytes", "stride_bytes", "processes"),
        texts=("pattern",),
        above_zero=True,
    )
    found = [r for r in found if r.conditions["processes"] == 1 and r.conditions.get("pages") != "4KiB"]
    even = [r for r in found if r.conditions["pattern"] == "stride"]
    rows = _curves(even, "stride_bytes", "footprint_bytes", "cpu", "memory_node", "pages")
    if not rows:
        return None
    # A footprint is cut to whole strides, so that it differs a little from what was asked for.
    most = max(value_of(r, "footprint_bytes") for r in even)
    nodes = {r.conditions.get("memory_node") for r in even}
    marks = [
        row(
            r,
            label=f"random in blocks of {size(value_of(r, 'locality_bytes'))}"
            if value_of(r, "locality_bytes")
            else "random over all",
        )
        for r in found
        if r.conditions["pattern"] == "random"
        and r.conditions.get("memory_node") in nodes
        and abs(value_of(r, "footprint_bytes") / most - 1) < 0.01
    ]
    marks = clearest(marks, "label")
    y = log_axis([*rows, *marks], "time per load", _NS)
    chart = layered(rows, _bytes_axis("x", rows, "stride"), y, "series", ["size"])
    if not marks:
        return chart
    rules = chart_of(marks).encode(y=y("value"))
    names = rules.mark_text(align="left", dy=-7, fontSize=12).encode(text="label:N", x=alt.value(6))
    return alt.layer(chart, rules.mark_rule(strokeDash=[5, 4], opacity=0.7).encode(tooltip=tooltip("label")), names)


@drawing
def bandwidth_footprint(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Net bandwidth against footprint, ordinary against streaming stores."""
    found = selected(records, "bandwidth", "bandwidth_net", positive=("footprint_bytes",), above_zero=True)
    rows = _curves(found, "footprint_bytes", "kernel", "isa", "pages", "memory_node", "mode", "threads", "store")
    if not rows:
        return None
    y = log_axis(rows, "net bandwidth", _GB)
    return layered(rows, _bytes_axis("x", rows, "footprint of all arrays"), y, "series", ["size"])


def in_memory(records: Sequence[Record]) -> list[Record]:
    """Net bandwidths of the largest footprints of the run: those are meant to be beyond every cache."""
    found = selected(
        records,
        "bandwidth",
        "bandwidth_net",
        positive=("footprint_bytes", "threads"),
        texts=("kernel",),
        above_zero=True,
    )
    most = max((value_of(r, "footprint_bytes") for r in found), default=0.0)
    return [r for r in found if value_of(r, "footprint_bytes") >= 0.45 * most]


@drawing
def bandwidth_kernels(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Bars of every kernel at the largest footprint, by stores and threads, with intervals."""
    found = selected(
        records, "bandwidth", "bandwidth_net", positive=("footprint_bytes", "threads"), texts=("kernel", "store")
    )
    found = [r for r in found if r.conditions.get("mode") in {None, "threads"}]
    most = max((value_of(r, "threads") for r in found), default=0)
    found = [r for r in found if r.conditions["threads"] in {1, most}]
    kernels = list(dict.fromkeys(str(r.conditions["kernel"]) for r in found))  # in the order of the instrument
    if len(kernels) < 2:
        return None
    wide = [r for r in found if _largest(r, found)]
    rows = [
        row(
            r,
            kernel=str(r.conditions["kernel"]),
            threads=value_of(r, "threads"),
            store=str(r.conditions["store"]),
            series=f"{said('threads', r.conditions['threads'])}, {said('store', r.conditions['store'])}",
        )
        for r in wide
    ]
    rows.sort(key=lambda r: (r["threads"], r["store"]))
    rows = clearest(rows, "kernel", "series")
    return bars(rows, "kernel", kernels, "net bandwidth", _GB, ["kernel", "series"])


def _largest(record: Record, among: Sequence[Record]) -> bool:
    """Of its kernel's footprints the one at which most kernels were measured: that is the comparison that was asked."""
    sizes: dict[int, set[Any]] = {}
    for r in among:
        rounded = round(value_of(r, "footprint_bytes") / 2**20)
        sizes.setdefault(rounded, set()).add(r.conditions["kernel"])
    most = max(sizes, key=lambda s: (len(sizes[s]), s))
    return round(value_of(record, "footprint_bytes") / 2**20) == most


def bars(
    rows: list[Row], x: str, order: Sequence[str] | None, title: str, label: str, tips: Sequence[str]
) -> alt.LayerChart | alt.FacetChart:
    series = sorted({r["series"] for r in rows}, key=natural)
    crowded = sum(len(str(g)) + 3 for g in {r[x] for r in rows}) > 80
    axis = alt.Axis(labelAngle=-25) if crowded else alt.Axis()
    base = chart_of(rows).encode(
        x=alt.X(f"{x}:N", title=None, sort=list(order) if order else None, axis=axis),
        xOffset=alt.XOffset("series:N", sort=series),
    )
    bars = base.mark_bar(cornerRadiusEnd=2, strokeWidth=1.5).encode(
        y=alt.Y("value:Q", title=title, stack=None, axis=alt.Axis(labelExpr=label, tickCount=6)),
        color=alt.Color("series:N", title=None, sort=series, scale=alt.Scale(range=PALETTE)),
        stroke=alt.Color("series:N", sort=series, scale=alt.Scale(range=PALETTE), legend=None),
        fillOpacity=alt.condition("datum.flagged", alt.value(0.12), alt.value(1.0)),
        tooltip=tooltip(*tips),
    )
    whiskers = base.mark_rule(strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    return alt.layer(bars, whiskers)


@drawing
def lines(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Core to core: a heat map a protocol."""
    what = {
        "swap": "compare-and-swap, one way",
        "flag": "flag, round trip",
        "dirty": "load of a modified line",
        "clean": "load of a clean line",
    }
    found = selected(records, (), "line_latency", numbers=("from_cpu", "to_cpu"), texts=("state",))
    found = [r for r in found if r.conditions["state"] in what]
    if not found:
        return None
    cpus = sorted({int(value_of(r, end)) for r in found for end in ("from_cpu", "to_cpu")})
    nodes = sorted({text_of(r, "home_node") for r in found})
    charts = []
    side = max(80, min(420, 26 * len(cpus)))
    for state, node in itertools.product(what, nodes[:4]):
        rows = [
            row(r, from_cpu=int(value_of(r, "from_cpu")), to_cpu=int(value_of(r, "to_cpu")), ns=f"{r.value * 1e9:.0f}")
            for r in found
            if r.conditions["state"] == state and text_of(r, "home_node") == node
        ]
        if not rows:
            continue
        rows = clearest(rows, "from_cpu", "to_cpu")
        tips = tooltip("from_cpu", "to_cpu")
        if len(rows) > MANY:  # a cell of a large machine says its median, interval and flags; the rest is in the store
            kept = ("from_cpu", "to_cpu", "value", "median", "interval", "flags", "flagged")
            rows = [{k: r[k] for k in kept} for r in rows]
            tips = [alt.Tooltip(f"{k}:N", title=k.replace("_", " ")) for k in kept if k not in {"value", "flagged"}]
        low, high = min(r["value"] for r in rows), max(r["value"] for r in rows)
        # A difference of a few per cent must not look like black and white.
        scale = alt.Scale(scheme="cividis", reverse=True, domain=[low, max(high, 1.5 * low)])
        numbers = len(cpus) <= 16
        legend = (
            None if numbers else alt.Legend(orient="right", labelExpr=_NS, gradientLength=min(side, 160), tickCount=4)
        )
        axis = alt.Axis(labelOverlap=True)
        base = chart_of(rows).encode(
            x=alt.X("to_cpu:O", title="to CPU", sort=cpus, axis=axis),
            y=alt.Y("from_cpu:O", title="from CPU", sort=cpus, axis=axis),
        )
        layers: list[Any] = [
            base.mark_rect(strokeWidth=2, strokeDash=[3, 2]).encode(
                color=alt.Color("value:Q", title=None, scale=scale, legend=legend),
                stroke=alt.condition("datum.flagged", alt.value("#D55E00"), alt.value(None)),
                tooltip=tips,
            )
        ]
        if numbers:
            dark = f"datum.value > {low + 0.5 * (max(high, 1.5 * low) - low)}"
            layers.append(
                base.mark_text(fontSize=12).encode(
                    text="ns:N", color=alt.condition(dark, alt.value("white"), alt.value("black"))
                )
            )
        title = what[state] + (", ns" if numbers else "") + (f", memory of node {node}" if len(nodes) > 1 else "")
        charts.append(alt.layer(*layers).properties(title=title, width=side, height=side))
    columns = max(1, 1000 // (side + 160))
    maps: alt.TopLevelMixin = alt.concat(*charts, columns=columns, spacing=30).resolve_scale(color="independent")
    return maps


@drawing
def loaded(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Latency against bandwidth; a point's chains or pause are in its tooltip."""
    rates = {_point(r): r for r in selected(records, "loaded", "bandwidth_net")}
    found = selected(records, "loaded", "load_latency", numbers=("threads",), texts=("mode",))
    found = [r for r in found if _point(r) in rates]
    if not found:
        return None
    rows = []
    for r in found:
        c = r.conditions
        series = f"{c['mode']}, {said('threads', c['threads'])}"
        reads = number(r, "read_share")
        share = f", {reads:.0%} reads" if c["mode"] == "paced" and reads is not None else ""
        rate = rates[_point(r)]
        rows.append(
            row(
                r,
                series=series + share,
                bandwidth=rate.value,
                chains=text_of(r, "chains"),
                pause=text_of(r, "pause"),
                rate=show(rate.value, "B/s"),
            )
        )
    rows.sort(key=lambda r: (r["series"], r["bandwidth"]))
    x = alt.X("bandwidth:Q", title="bandwidth of all", axis=alt.Axis(labelExpr=_GB, tickCount=8))
    return layered(rows, x, _linear("time per load", _NS), "series", ["rate", "chains", "pause"])


def _point(r: Record) -> str:
    keys = ("mode", "chains", "threads", "read_share", "pause", "pages", "memory_node", "footprint_bytes")
    return str([r.conditions.get(k) for k in keys])


_GOPS = "format(datum.value / 1e9, '~r') + ' Gop/s'"


@drawing
def gups(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Random updates by pages, kernel and threads; over the table's size where there are several."""
    found = selected(records, (), "update_rate", numbers=("threads",), texts=("kernel",))
    if not found:
        return None
    over = selected(found, (), "update_rate", positive=("table_bytes",), above_zero=True)
    if curves := _curves(over, "table_bytes", "memory_node", "pages", "kernel", "threads"):
        y = log_axis(curves, "updates a second", _GOPS)
        return layered(curves, _bytes_axis("x", curves, "table"), y, "series", ["size"])
    rows = [
        row(
            r,
            group=listed(sized(r, "table_bytes"), text_of(r, "pages")),
            series=f"{r.conditions['kernel']}, {said('threads', r.conditions['threads'])}",
        )
        for r in found
    ]
    return bars(rows, "group", None, "updates a second", _GOPS, ["group", "series"])


@drawing
def io(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Rates by direction and queue depth."""
    found = selected(records, "io", "bandwidth_net", texts=("direction",))
    if not found:
        return None
    rows = [
        row(
            r,
            group=listed(str(r.conditions["direction"]), sized(r, "block_bytes")),
            series=listed(*(said(k, v) for k in ("queue_depth", "jobs") if (v := r.conditions.get(k)) is not None)),
        )
        for r in found
    ]
    return bars(rows, "group", None, "bandwidth", _GB, ["group", "series"])


@drawing
def company(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Latency while 1, 2, 4 … CPUs chase together."""
    found = [r for r in _walks(records) if r.conditions.get("pages") != "4KiB"]
    shared = {r.conditions["footprint_bytes"] for r in found if r.conditions["processes"] != 1}
    found = [r for r in found if r.conditions["footprint_bytes"] in shared]
    series = _several(found, "pages", "memory_node", "footprint_bytes")
    together: dict[str, set[Any]] = {}
    for r in found:
        together.setdefault(series(r), set()).add(r.conditions["processes"])
    rows = [row(r, processes=value_of(r, "processes"), series=series(r)) for r in found if len(together[series(r)]) > 1]
    if not rows:
        return None
    rows = sorted(clearest(rows, "series", "processes"), key=lambda r: r["processes"])
    counts = sorted({r["processes"] for r in rows})
    x = alt.X(
        "processes:Q",
        title="CPUs that chase at once",
        scale=alt.Scale(zero=False, padding=24),
        axis=alt.Axis(values=counts, format="d", labelOverlap=True),
    )
    return layered(rows, x, _linear("time per load", _NS), "series", ["processes"], band=False)


def themed(drawn: Drawn, wide: bool = True) -> dict[str, Any]:
    """The Vega-Lite specification with the common look; texts take the page's colour."""
    spec: dict[str, Any] = drawn.chart.to_dict()
    spec["datasets"] = {**spec.get("datasets", {}), **drawn.data}
    if "concat" not in spec and wide:
        spec["width"], spec["height"] = "container", HEIGHT
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["background"] = "transparent"
    font = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
    spec["config"] = {
        "font": font,
        "view": {"stroke": None},
        "axis": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "gridOpacity": 0.25,
            "domainOpacity": 0.5,
            "tickOpacity": 0.5,
            "titlePadding": 10,
        },
        "axisBand": {"labelAngle": 0},
        "legend": {"labelFontSize": 12, "symbolStrokeWidth": 2, "orient": "top", "columns": 4, "labelLimit": 400},
        "title": {"fontSize": 12, "fontWeight": "normal"},
    }
    return spec


def for_file(drawn: Drawn) -> dict[str, Any]:
    """The same on white and of fixed size, for PNG and SVG."""
    spec = themed(drawn, wide=False)
    if "concat" not in spec:
        spec["width"], spec["height"] = WIDTH, HEIGHT
    spec["background"] = "white"
    return spec
