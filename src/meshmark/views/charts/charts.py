"""Draws charts of memory, storage and core-to-core records as Vega-Lite specifications for the page, PNG and SVG.

Each drawing function takes all records and returns a chart, or None if no record is suitable. In all charts, flagged
marks are hollow and tooltips show the distribution of the samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from meshmark.measure.repetitions import measurement_key
from meshmark.store.record import Record
from meshmark.values.units import percent, show, size
from meshmark.views.charts.drawing import (
    GB,
    MANY,
    NS,
    PALETTE,
    Row,
    bytes_axis,
    chart_of,
    clearest,
    condition_text,
    drawing,
    layered,
    level_marks,
    linear_axis,
    log_axis,
    marked_x,
    row,
    several,
    sized,
    tooltip,
    value_scale,
)
from meshmark.views.content.selection import (
    UNKNOWN,
    listed,
    natural,
    number,
    selected,
    text_of,
    unusual_stride,
    usual_stride,
    value_of,
)
from meshmark.views.render import render


def _curves(records: Sequence[Record], x: str, *keys: str) -> list[Row]:
    """Return rows of all series over the condition `x` with more than two points, named by the conditions that vary."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for r in records:
        groups.setdefault(tuple(str(r.conditions.get(k)) for k in keys), []).append(r)
    curves = [g for g in groups.values() if len({value_of(r, x) for r in g}) > 2]
    drawn = [r for g in curves for r in g]
    name = several(drawn, *keys)
    rows = [row(r, series=name(r), x=value_of(r, x), size=size(value_of(r, x))) for r in drawn]
    return sorted(clearest(rows, "series", "x"), key=lambda r: r["x"])


def walks(records: Sequence[Record]) -> list[Record]:
    """Return the latencies of pointer chases over the whole footprint."""
    latencies = selected(
        records,
        "latency",
        "load_latency",
        positive=("footprint_bytes", "processes"),
        texts=("pattern",),
        above_zero=True,
    )
    return [r for r in latencies if r.conditions["pattern"] == "random" and not r.conditions.get("locality_bytes")]


@drawing
def latency(records: Sequence[Record], topology: Mapping[str, Any]) -> alt.TopLevelMixin | None:
    """Draw latency by footprint, log-log, with the detected levels and the reported sizes of the caches."""
    curve = [r for r in walks(records) if r.conditions["processes"] == 1]
    rows = _curves(curve, "footprint_bytes", "stride_bytes", "cpu", "memory_node", "pages")
    if not rows:
        return None
    low, high = (pick(r["x"] for r in rows) for pick in (min, max))
    claims = [
        (size_bytes, f"{name} {size(size_bytes)}")
        for name, size_bytes in claimed_caches(topology)
        if low <= size_bytes <= high
    ]
    y = log_axis(rows, "time per load", NS, labelled=bool(claims))
    chart = layered(rows, bytes_axis("x", rows, "footprint"), y, "series", ["size"])
    levels = selected(records, (), "level_latency", positive=("from_bytes", "to_bytes"), above_zero=True)
    series = sorted({text_of(r, "pages") for r in levels}, reverse=True)
    marks = [
        {"value": r.value, "from": value_of(r, "from_bytes"), "label": show(r.value, "s")}
        for r in usual_stride(r for r in levels if text_of(r, "pages") == series[0])
    ]
    if marks:
        # Latency rises with the footprint, so the space to the left of a level is free, except at the edge.
        first, others = [m for m in marks if m["from"] <= low], [m for m in marks if m["from"] > low]
        sides: tuple[tuple[list[dict[str, Any]], Literal["left", "right"], int], ...]
        sides = (first, "left", 4), (others, "right", -4)
        labels = [
            chart_of(side_marks)
            .mark_text(dx=dx, dy=-10, align=align, fontWeight="bold", fontSize=12)
            .encode(x="from:Q", y=y("value"), text="label:N")
            for side_marks, align, dx in sides
            if side_marks
        ]
        chart = alt.layer(chart, *labels)
    return marked_x(chart, claims)


def claimed_caches(topology: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return names and sizes in bytes of the data caches, as the system reports them, ascending by size."""
    caches = topology.get("caches")
    sizes = {
        (f"L{c['level']}", float(c["size_bytes"]))
        for c in (caches if isinstance(caches, list) else [])
        if isinstance(c, Mapping) and c.get("kind") != "instruction" and isinstance(c.get("size_bytes"), int)
    }
    return sorted(sizes, key=lambda claim: claim[1])


@drawing
def strides(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw latency by stride, with the latencies of random access over the same footprint for comparison."""
    latencies = selected(
        records,
        "latency",
        "load_latency",
        positive=("footprint_bytes", "stride_bytes", "processes"),
        texts=("pattern",),
        above_zero=True,
    )
    latencies = [r for r in latencies if r.conditions["processes"] == 1 and r.conditions.get("pages") != "4KiB"]
    strided = [r for r in latencies if r.conditions["pattern"] == "stride"]
    rows = _curves(strided, "stride_bytes", "footprint_bytes", "cpu", "memory_node", "pages")
    if not rows:
        return None
    # Footprints are truncated to whole strides, so they differ slightly from the requested footprint.
    largest = max(value_of(r, "footprint_bytes") for r in strided)
    nodes = {r.conditions.get("memory_node") for r in strided}
    marks = [
        row(
            r,
            label=f"random in blocks of {size(value_of(r, 'locality_bytes'))}"
            if value_of(r, "locality_bytes")
            else ", ".join(filter(None, ("random over the footprint", unusual_stride(r)))),
        )
        for r in usual_stride(r for r in latencies if r.conditions["pattern"] == "random")
        if r.conditions.get("memory_node") in nodes and abs(value_of(r, "footprint_bytes") / largest - 1) < 0.01
    ]
    marks = clearest(marks, "label")
    y = log_axis([*rows, *marks], "time per load", NS)
    chart = layered(rows, bytes_axis("x", rows, "stride"), y, "series", ["size"])
    if not marks:
        return chart
    rules = chart_of(marks).encode(y=y("value"))
    names = rules.mark_text(align="left", dy=-7, fontSize=12).encode(text="label:N", x=alt.value(6))
    return alt.layer(chart, rules.mark_rule(strokeDash=[5, 4], opacity=0.7).encode(tooltip=tooltip("label")), names)


@drawing
def bandwidth_footprint(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw net bandwidth by footprint, for write-allocate (regular) and streaming stores."""
    rates = selected(records, "bandwidth", "bandwidth_net", positive=("footprint_bytes",), above_zero=True)
    rows = _curves(rates, "footprint_bytes", "kernel", "isa", "pages", "memory_node", "mode", "threads", "store")
    if not rows:
        return None
    y = log_axis(rows, "net bandwidth", GB)
    return layered(rows, bytes_axis("x", rows, "footprint of all arrays"), y, "series", ["size"])


def in_memory(records: Sequence[Record]) -> list[Record]:
    """Return net bandwidths at the largest footprints of the run, which are assumed to exceed all caches."""
    rates = selected(
        records,
        "bandwidth",
        "bandwidth_net",
        positive=("footprint_bytes", "threads"),
        texts=("kernel",),
        above_zero=True,
    )
    largest = max((value_of(r, "footprint_bytes") for r in rates), default=0.0)
    return [r for r in rates if value_of(r, "footprint_bytes") >= 0.45 * largest]


@drawing
def bandwidth_kernels(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the bandwidth of every kernel at the largest footprint, by type of store and number of threads."""
    rates = selected(
        records, "bandwidth", "bandwidth_net", positive=("footprint_bytes", "threads"), texts=("kernel", "store")
    )
    rates = [r for r in rates if r.conditions.get("mode") in {None, "threads"}]
    max_threads = max((value_of(r, "threads") for r in rates), default=0)
    rates = [r for r in rates if r.conditions["threads"] in {1, max_threads}]
    kernels = list(dict.fromkeys(str(r.conditions["kernel"]) for r in rates))  # in the order of the instrument
    if len(kernels) < 2:
        return None
    comparable = [r for r in rates if _at_common_footprint(r, rates)]
    rows = [
        row(
            r,
            kernel=str(r.conditions["kernel"]),
            threads=value_of(r, "threads"),
            store=str(r.conditions["store"]),
            series=", ".join(condition_text(k, r.conditions[k]) for k in ("threads", "store")),
        )
        for r in comparable
    ]
    rows.sort(key=lambda r: (r["threads"], r["store"]))
    rows = clearest(rows, "kernel", "series")
    return bars(rows, "kernel", kernels, "net bandwidth", GB, ["kernel", "series"])


def _at_common_footprint(record: Record, among: Sequence[Record]) -> bool:
    """Return whether the record has the footprint that most kernels share, so that they can be compared."""
    sizes: dict[int, set[Any]] = {}
    for r in among:
        rounded = round(value_of(r, "footprint_bytes") / 2**20)
        sizes.setdefault(rounded, set()).add(r.conditions["kernel"])
    common = max(sizes, key=lambda s: (len(sizes[s]), s))
    return round(value_of(record, "footprint_bytes") / 2**20) == common


def bars(
    rows: list[Row],
    x: str,
    order: Sequence[str] | None,
    title: str,
    label: str,
    tips: Sequence[str],
    text: str = "",
) -> alt.LayerChart | alt.FacetChart:
    """Draw bars with their intervals, side by side for each series.

    Args:
        rows: Rows with a value, its interval and a series.
        x: Field that names the group of a bar.
        order: Names of the groups in their order; None: in the order of the rows.
        title: Title of the value axis.
        label: Vega expression of the labels of the value axis.
        tips: Additional fields of the tooltip.
        text: Field that is written above each bar; "" for no text.
    """
    series = sorted({r["series"] for r in rows}, key=natural)
    crowded = sum(len(str(g)) + 3 for g in {r[x] for r in rows}) > 80
    axis = alt.Axis(labelAngle=-25) if crowded else alt.Axis()
    scale = value_scale(rows)
    base = chart_of(rows).encode(
        x=alt.X(f"{x}:N", title=None, sort=list(order) if order else None, axis=axis),
        xOffset=alt.XOffset("series:N", sort=series),
    )
    bars = base.mark_bar(cornerRadiusEnd=2, strokeWidth=1.5).encode(
        y=alt.Y("value:Q", title=title, stack=None, scale=scale, axis=alt.Axis(labelExpr=label, tickCount=6)),
        color=alt.Color("series:N", title=None, sort=series, scale=alt.Scale(range=PALETTE)),
        stroke=alt.Color("series:N", sort=series, scale=alt.Scale(range=PALETTE), legend=None),
        fillOpacity=alt.condition("datum.flagged", alt.value(0.12), alt.value(1.0)),
        tooltip=tooltip(*tips),
    )
    whiskers = base.mark_rule(strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    texts = [base.mark_text(dy=-7, fontSize=10).encode(y="high:Q", text=f"{text}:N")] if text else []
    return alt.layer(bars, whiskers, *texts, *level_marks(rows, base, alt.Y("level:Q"), tips))


@drawing
def lines(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw core-to-core latency: one heat map per protocol."""
    titles = {
        "swap": "compare-and-swap, one way",
        "flag": "flag, round trip",
        "dirty": "load of a modified line",
        "clean": "load of a clean line",
    }
    latencies = selected(records, (), "line_latency", numbers=("from_cpu", "to_cpu"), texts=("state",))
    latencies = [r for r in latencies if r.conditions["state"] in titles]
    if not latencies:
        return None
    cpus = sorted({int(value_of(r, end)) for r in latencies for end in ("from_cpu", "to_cpu")})
    nodes = sorted({text_of(r, "home_node") for r in latencies}, key=natural)
    pairs = {(r.conditions["state"], value_of(r, "from_cpu"), value_of(r, "to_cpu")) for r in latencies}
    if len(pairs) == len(latencies):  # each line is at home where its owner is, so one map has them all
        nodes = [""]
    charts = []
    side = max(80, min(420, 26 * len(cpus)))
    for state, node in itertools.product(titles, nodes[:4]):
        rows = [
            row(r, from_cpu=int(value_of(r, "from_cpu")), to_cpu=int(value_of(r, "to_cpu")), ns=f"{r.value * 1e9:.0f}")
            for r in latencies
            if r.conditions["state"] == state and node in ("", text_of(r, "home_node"))
        ]
        if not rows:
            continue
        rows = clearest(rows, "from_cpu", "to_cpu")
        tips = tooltip("from_cpu", "to_cpu")
        if len(rows) > MANY:  # on large machines, tooltips omit what the store contains anyway
            fields = ("from_cpu", "to_cpu", "value", "median", "interval", "flags", "flagged")
            rows = [{k: r[k] for k in fields} for r in rows]
            tips = [alt.Tooltip(f"{k}:N", title=k.replace("_", " ")) for k in fields if k not in {"value", "flagged"}]
        low, high = min(r["value"] for r in rows), max(r["value"] for r in rows)
        # Small differences must not span the whole colour scale.
        scale = alt.Scale(scheme="cividis", reverse=True, domain=[low, max(high, 1.5 * low)])
        numbers = len(cpus) <= 16
        legend = (
            None if numbers else alt.Legend(orient="right", labelExpr=NS, gradientLength=min(side, 160), tickCount=4)
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
        title = titles[state] + (", ns" if numbers else "") + (f", memory of node {node}" if len(nodes) > 1 else "")
        charts.append(alt.layer(*layers).properties(title=title, width=side, height=side))
    columns = max(1, 1000 // (side + 160))
    maps: alt.TopLevelMixin = alt.concat(*charts, columns=columns, spacing=30).resolve_scale(color="independent")
    return maps


@drawing
def loaded(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw latency over bandwidth; tooltips show the number of chains or the pause."""
    pairs = loads_and_rates(records)
    if not pairs:
        return None
    rows = []
    homes = {r.conditions.get("memory_node") for r, _ in pairs}
    for r, rate in pairs:
        c = r.conditions
        series = f"{c['mode']}, {condition_text('threads', c['threads'])}"
        series += f", {condition_text('memory_node', c.get('memory_node'))}" if len(homes) > 1 else ""
        reads = number(r, "read_share")
        share = f", {reads:.0%} reads" if c["mode"] == "paced" and reads is not None else ""
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
    x = alt.X("bandwidth:Q", title="total bandwidth", axis=alt.Axis(labelExpr=GB, tickCount=8))
    chart = layered(rows, x, linear_axis(rows, "time per load", NS), "series", ["rate", "chains", "pause"])
    marks = [(r.value, f"knee, {condition_text('threads', r.conditions['threads'])}") for r in knees(records)]
    triad = most_triad(records)
    if triad and triad.value < 1.3 * max(r["bandwidth"] for r in rows):  # a distant mark would squeeze the curves
        marks.append((triad.value, f"triad, {condition_text('threads', triad.conditions['threads'])}"))
    return marked_x(chart, marks)


def loads_and_rates(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Return each latency under load and the bandwidth that was measured at the same time."""
    rates = {measurement_key(r): r for r in selected(records, "loaded", "bandwidth_net")}
    latencies = selected(records, "loaded", "load_latency", numbers=("threads",), texts=("mode",))
    return [(r, rates[key]) for r in latencies if (key := measurement_key(r)) in rates]


def knees(records: Sequence[Record]) -> list[Record]:
    """Return the knee of each number of threads whose latency rose enough to have a knee."""
    candidates = selected(records, "loaded", "knee_bandwidth", positive=("threads",), above_zero=True)
    candidates = [r for r in candidates if not text_of(r, "reached").startswith("no")]
    best = {value_of(r, "threads"): r for r in sorted(candidates, key=lambda r: (not r.flags, r.value))}
    return [best[n] for n in sorted(best)]


def most_triad(records: Sequence[Record]) -> Record | None:
    """Return the fastest unflagged triad in memory with the most threads, or a flagged one if all are flagged."""
    triads = [r for r in in_memory(records) if r.conditions["kernel"] == "triad"]
    return max(triads, key=lambda r: (value_of(r, "threads"), not r.flags, r.value), default=None)


def loaded_details(records: Sequence[Record]) -> str:
    """Render a sentence that says whether the loads reach the bandwidth of triad, and if not, why."""
    triad = most_triad(records)
    rates = selected(records, "loaded", "bandwidth_net", positive=("threads", "chains"), above_zero=True)
    rates = [r for r in rates if triad is not None and r.conditions["threads"] == triad.conditions["threads"]]
    if triad is None or not rates:
        return ""
    highest = max(rates, key=lambda r: r.value)
    share = highest.value / triad.value
    text = f"The highest bandwidth of the chains is {show(highest.value, 'B/s')}, {percent(share)} of triad's."
    if share < _REACHED:
        most_chains = max(value_of(r, "chains") for r in rates)
        fewer_chains_rate = max((r.value for r in rates if value_of(r, "chains") < most_chains), default=0.0)
        rising = highest.conditions["chains"] == most_chains and fewer_chains_rate < _REACHED * highest.value
        text += (
            f" It was still rising with {most_chains:g} chains per CPU, the most that were measured."
            if rising
            else " It no longer rises with more chains. Unlike triad, it only reads; no prefetcher predicts its loads."
        )
    return render("parts/sentence.html", text=text)


_REACHED = 0.95  # share of a bandwidth that counts as reached, since runs differ by about as much

_GOPS = "format(datum.value / 1e9, '~r') + ' Gop/s'"


@drawing
def gups(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw random updates by page size, kernel and threads; as curves if there are several table sizes."""
    rates = selected(records, (), "update_rate", numbers=("threads",), texts=("kernel",))
    if not rates:
        return None
    sized_rates = [r for r in rates if value_of(r, "table_bytes") > 0 and r.value > 0]
    if curves := _curves(sized_rates, "table_bytes", "memory_node", "pages", "kernel", "threads"):
        selected(rates, (), "update_rate", positive=("table_bytes",), above_zero=True)  # a note names the others
        y = log_axis(curves, "update rate", _GOPS)
        return layered(curves, bytes_axis("x", curves, "table"), y, "series", ["size"])
    rows = [
        row(
            r,
            group=listed(sized(r, "table_bytes"), text_of(r, "pages")).replace(UNKNOWN, text_of(r, "kernel")),
            series=f"{r.conditions['kernel']}, {condition_text('threads', r.conditions['threads'])}",
        )
        for r in rates
    ]
    return bars(rows, "group", None, "update rate", _GOPS, ["group", "series"])


@drawing
def io(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw storage bandwidth by direction and queue depth."""
    rates = selected(records, "io", "bandwidth_net", texts=("direction",))
    if not rates:
        return None
    rows = [
        row(
            r,
            group=listed(str(r.conditions["direction"]), sized(r, "block_bytes")),
            series=listed(
                *(condition_text(k, v) for k in ("queue_depth", "jobs") if (v := r.conditions.get(k)) is not None)
            ),
        )
        for r in rates
    ]
    return bars(rows, "group", None, "bandwidth", GB, ["group", "series"])


@drawing
def concurrent_latency(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw latency while 1, 2, 4 … CPUs run the same access pattern."""
    latencies = [r for r in walks(records) if r.conditions.get("pages") != "4KiB"]
    shared = {r.conditions["footprint_bytes"] for r in latencies if r.conditions["processes"] != 1}
    latencies = [r for r in latencies if r.conditions["footprint_bytes"] in shared]
    series = several(latencies, "pages", "memory_node", "footprint_bytes")
    processes: dict[str, set[Any]] = {}
    for r in latencies:
        processes.setdefault(series(r), set()).add(r.conditions["processes"])
    rows = [
        row(r, processes=value_of(r, "processes"), series=series(r)) for r in latencies if len(processes[series(r)]) > 1
    ]
    if not rows:
        return None
    rows = sorted(clearest(rows, "series", "processes"), key=lambda r: r["processes"])
    counts = sorted({r["processes"] for r in rows})
    x = alt.X(
        "processes:Q",
        title="concurrent CPUs",
        scale=alt.Scale(zero=False, padding=24),
        axis=alt.Axis(values=counts, format="d", labelOverlap=True),
    )
    return layered(rows, x, linear_axis(rows, "time per load", NS), "series", ["processes"], band=False)
