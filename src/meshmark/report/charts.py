"""Charts of records, as Vega-Lite through Altair: one specification for the page, PNG and SVG.

A function takes all records and returns a chart, or None where none of them is of its kind. Colour, flags and
tooltips are the same everywhere: a hollow mark is a flagged one, and a hover tells the distribution behind a point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import altair as alt

from meshmark.report.units import show, size
from meshmark.store.record import Record

# Okabe and Ito's palette, which colour-blind readers can tell apart.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C6D31"]
WIDTH, HEIGHT = 720, 340
Row = dict[str, Any]


def is_stored(record: Record, *metrics: str) -> bool:
    return record.metric in metrics


def row(record: Record, **more: Any) -> Row:
    """What a mark needs: value, interval, and the texts of its tooltip. Values stay in the metric's unit."""
    low, high = record.interval or (record.value, record.value)
    best = min(record.samples) if record.unit == "s" else max(record.samples)
    worst = max(record.samples) if record.unit == "s" else min(record.samples)
    return {
        "value": record.value, "low": low, "high": high,
        "median": show(record.value, record.unit),
        "interval": f"{show(low, record.unit)} – {show(high, record.unit)}" if record.interval else "fewer than 6 samples",
        "best": show(best, record.unit), "worst": show(worst, record.unit),
        "spread": f"{100 * record.spread:.1f} %", "samples": len(record.samples),
        "flags": ", ".join(sorted(record.flags)) or "none", "flagged": bool(record.flags), **more,
    }  # fmt: skip


def tooltip(*more: str) -> list[alt.Tooltip]:
    names = [*more, "median", "interval", "best", "worst", "spread", "samples", "flags"]
    return [alt.Tooltip(f"{name}:N", title=name.replace("_", " ")) for name in names]


def _layers(
    rows: list[Row], x: alt.X, y: Callable[[str], alt.Y], series: str, tips: Sequence[str], band: bool = True
) -> alt.LayerChart:
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=x,
        color=alt.Color(
            f"{series}:N", title=None, scale=alt.Scale(range=PALETTE), sort=None,
            legend=alt.Legend(orient="top", columns=3, labelLimit=320),
        ),
    )  # fmt: skip
    area = base.mark_area(opacity=0.18).encode(y=y("low"), y2="high:Q")
    line = base.mark_line(strokeWidth=2).encode(y=y("value"))
    points = base.mark_point(size=42, opacity=1).encode(
        y=y("value"),
        fill=alt.condition("datum.flagged", alt.value("transparent"), alt.Color(f"{series}:N")),
        tooltip=tooltip(*tips),
    )
    return alt.layer(*([area] if band else []), line, points)


_BYTES = "datum.value >= 1073741824 ? datum.value / 1073741824 + ' GiB' : datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : datum.value / 1024 + ' KiB'"  # noqa: E501


def _bytes_axis(field: str, rows: Iterable[Row], title: str) -> alt.X:
    """Powers of four from the least to the greatest, in binary units."""
    values = [r[field] for r in rows]
    low, high = min(values), max(values)
    ticks = [2**k for k in range(10, 44, 2) if low <= 2**k <= high * 1.01]
    return alt.X(
        f"{field}:Q", title=title, scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=ticks or [low], labelExpr=_BYTES, grid=True),
    )  # fmt: skip


_NS = "datum.value >= 1e-6 ? format(datum.value * 1e6, '~r') + ' µs' : format(datum.value * 1e9, '~r') + ' ns'"
_GB = "format(datum.value / 1e9, '~r') + ' GB/s'"


def _time(title: str, log: bool = True) -> Callable[[str], alt.Y]:
    scale = alt.Scale(type="log", nice=True) if log else alt.Scale(zero=True)
    return lambda field: alt.Y(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(labelExpr=_NS, tickCount=8))


def _several(records: Sequence[Record], *keys: str) -> Callable[[Record], str]:
    """Names a series by those conditions that differ among the records; the last key always counts."""
    varying = [k for k in keys if len({str(r.conditions.get(k)) for r in records}) > 1] or [keys[-1]]
    words = {"pages": "pages {}", "memory_node": "memory of node {}", "processes": "{} at once", "cpu": "CPU {}",
             "stride_bytes": "stride {} B", "threads": "{} threads", "store": "{} stores", "isa": "{}",
             "kernel": "{}", "mode": "{}", "read_share": "{} reads"}  # fmt: skip
    return lambda r: ", ".join(words.get(k, k + " {}").format(r.conditions.get(k)) for k in varying)


def latency(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Latency against footprint, log-log, with the levels found."""
    curve = [r for r in records if r.instrument == "latency" and r.metric == "load_latency"]
    counts: dict[str, int] = {}
    name = _several(curve, "pattern", "stride_bytes", "locality_bytes", "cpu", "memory_node", "processes", "pages")
    for r in curve:
        counts[name(r)] = counts.get(name(r), 0) + 1
    rows = [
        row(r, series=name(r), footprint=r.conditions["footprint_bytes"],
            size=size(float(str(r.conditions["footprint_bytes"]))))
        for r in curve if counts[name(r)] > 2
    ]  # fmt: skip
    if not rows:
        return None
    rows.sort(key=lambda r: r["footprint"])
    chart = _layers(rows, _bytes_axis("footprint", rows, "footprint"), _time("time per load"), "series", ["size"])
    levels = [r for r in records if r.metric == "level_latency"]
    series = sorted({str(r.conditions.get("pages")) for r in levels}, reverse=True)
    marks = [
        {"value": r.value, "from": r.conditions["from_bytes"], "to": r.conditions["to_bytes"],
         "label": show(r.value, "s")}
        for r in levels if r.conditions.get("pages") == (series[0] if series else None)
    ]  # fmt: skip
    if marks:
        base = alt.Chart(alt.Data(values=marks))
        text = base.mark_text(dy=-12, align="left", fontWeight="bold", fontSize=12).encode(
            x="from:Q", y="value:Q", text="label:N"
        )
        chart = chart + text
    return chart


def bandwidth_footprint(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Net bandwidth against footprint, ordinary against streaming stores."""
    found = [r for r in records if r.metric == "bandwidth_net" and r.instrument == "bandwidth"]
    name = _several(found, "kernel", "isa", "pages", "memory_node", "threads", "store")
    counts: dict[str, set[Any]] = {}
    for r in found:
        counts.setdefault(name(r), set()).add(r.conditions["footprint_bytes"])
    rows = [
        row(r, series=name(r), footprint=r.conditions["footprint_bytes"],
            size=size(float(str(r.conditions["footprint_bytes"]))))
        for r in found if len(counts[name(r)]) > 2
    ]  # fmt: skip
    if not rows:
        return None
    rows.sort(key=lambda r: r["footprint"])

    def y(field: str) -> alt.Y:
        axis = alt.Axis(labelExpr=_GB, tickCount=6)
        return alt.Y(f"{field}:Q", title="net bandwidth", scale=alt.Scale(type="log"), axis=axis)

    return _layers(rows, _bytes_axis("footprint", rows, "footprint of all arrays"), y, "series", ["size"])


def bandwidth_kernels(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Bars of every kernel at the largest footprint, by stores and threads, with intervals."""
    found = [r for r in records if r.metric == "bandwidth_net" and r.instrument == "bandwidth"]
    kernels = {str(r.conditions["kernel"]) for r in found}
    if len(kernels) < 2:
        return None
    wide = [r for r in found if _largest(r, found)]
    rows = [
        row(r, kernel=r.conditions["kernel"], threads=r.conditions["threads"], store=r.conditions["store"],
            series=f"{r.conditions['threads']} thread{'s' if r.conditions['threads'] != 1 else ''}, "
                   f"{r.conditions['store']} stores")
        for r in wide
    ]  # fmt: skip
    rows.sort(key=lambda r: (r["threads"], r["store"]))
    order = [k for k in ("copy", "scale", "add", "triad", "read", "write", "update") if k in kernels]
    return _bars(rows, "kernel", order, "net bandwidth", _GB, ["kernel", "series"])


def _largest(record: Record, among: Sequence[Record]) -> bool:
    """Of its kernel's footprints the one at which most kernels were measured: that is the comparison that was asked."""
    sizes: dict[int, set[Any]] = {}
    for r in among:
        rounded = round(float(str(r.conditions["footprint_bytes"])) / 2**20)
        sizes.setdefault(rounded, set()).add(r.conditions["kernel"])
    most = max(sizes, key=lambda s: (len(sizes[s]), s))
    return round(float(str(record.conditions["footprint_bytes"])) / 2**20) == most


def _bars(
    rows: list[Row], x: str, order: Sequence[str] | None, title: str, label: str, tips: Sequence[str]
) -> alt.LayerChart:
    series = list(dict.fromkeys(r["series"] for r in rows))
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X(f"{x}:N", title=None, sort=list(order) if order else None, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("series:N", sort=series),
    )
    bars = base.mark_bar(cornerRadiusEnd=2, strokeWidth=1.5).encode(
        y=alt.Y("value:Q", title=title, axis=alt.Axis(labelExpr=label, tickCount=6)),
        color=alt.Color("series:N", title=None, sort=series, scale=alt.Scale(range=PALETTE),
                        legend=alt.Legend(orient="top", columns=4, labelLimit=320)),
        stroke=alt.Color("series:N", sort=series, scale=alt.Scale(range=PALETTE), legend=None),
        fillOpacity=alt.condition("datum.flagged", alt.value(0.15), alt.value(1.0)),
        tooltip=tooltip(*tips),
    )  # fmt: skip
    whiskers = base.mark_rule(strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    return alt.layer(bars, whiskers)


def lines(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Core to core: a heat map a protocol."""
    found = [r for r in records if r.metric == "line_latency"]
    if not found:
        return None
    what = {"swap": "compare-and-swap, one way", "flag": "flag, round trip", "dirty": "load of a modified line",
            "clean": "load of a clean line"}  # fmt: skip
    cpus = sorted(
        {int(str(r.conditions["from_cpu"])) for r in found} | {int(str(r.conditions["to_cpu"])) for r in found}
    )
    charts = []
    for state in what:
        rows = [
            row(r, from_cpu=r.conditions["from_cpu"], to_cpu=r.conditions["to_cpu"], ns=f"{r.value * 1e9:.0f}")
            for r in found if r.conditions["state"] == state
        ]  # fmt: skip
        if not rows:
            continue
        side = max(70, min(300, 26 * len(cpus)))
        base = alt.Chart(alt.Data(values=rows)).encode(
            x=alt.X("to_cpu:O", title="to CPU", sort=cpus, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("from_cpu:O", title="from CPU", sort=cpus, axis=alt.Axis(labelOverlap=True)),
        )
        heat = base.mark_rect().encode(
            color=alt.Color("value:Q", title=None, scale=alt.Scale(scheme="cividis", reverse=True),
                            legend=alt.Legend(labelExpr=_NS, gradientLength=80)),
            tooltip=tooltip("from_cpu", "to_cpu"),
        )  # fmt: skip
        layers: list[Any] = [heat]
        if len(cpus) <= 16:
            mean = sum(r["value"] for r in rows) / len(rows)
            layers.append(
                base.mark_text(fontSize=12).encode(
                    text="ns:N", color=alt.condition(f"datum.value > {mean}", alt.value("white"), alt.value("black"))
                )
            )
        charts.append(alt.layer(*layers).properties(title=what[state], width=side, height=side))
    return alt.concat(*charts, columns=2).resolve_scale(color="independent")


def loaded(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Latency against bandwidth; a point's chains or pause are in its tooltip."""
    mine = [r for r in records if r.instrument == "loaded"]
    rates = {_point(r): r for r in mine if r.metric == "bandwidth_net"}
    found = [r for r in mine if r.metric == "load_latency" and _point(r) in rates]
    if not found:
        return None
    rows = []
    for r in found:
        c = r.conditions
        plural = "s" if c["threads"] != 1 else ""
        share = f", {float(str(c['read_share'])):.0%} reads" if c["mode"] == "paced" else ""
        rate = rates[_point(r)]
        rows.append(
            row(r, series=f"{c['mode']}, {c['threads']} thread{plural}{share}", bandwidth=rate.value, chains=c["chains"],
                pause=c["pause"], rate=show(rate.value, "B/s"))
        )  # fmt: skip
    rows.sort(key=lambda r: (r["series"], r["bandwidth"]))
    x = alt.X("bandwidth:Q", title="bandwidth of all", axis=alt.Axis(labelExpr=_GB, tickCount=8))
    return _layers(rows, x, _time("time per load", log=False), "series", ["rate", "chains", "pause"])


def _point(r: Record) -> str:
    keys = ("mode", "chains", "threads", "read_share", "pause", "pages", "memory_node", "footprint_bytes")
    return str([r.conditions.get(k) for k in keys])


def gups(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Random updates by pages, kernel and threads."""
    found = [r for r in records if r.metric == "update_rate"]
    if not found:
        return None
    rows = [
        row(r, group=f"{size(float(str(r.conditions['table_bytes'])))}, {r.conditions['pages']}",
            series=f"{r.conditions['kernel']}, {r.conditions['threads']} thread{'s' if r.conditions['threads'] != 1 else ''}")
        for r in sorted(found, key=lambda r: (str(r.conditions["threads"]), str(r.conditions["kernel"]) != "plain"))
    ]  # fmt: skip
    return _bars(
        rows, "group", None, "updates a second", "format(datum.value / 1e9, '~r') + ' Gop/s'", ["group", "series"]
    )


def compute(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Peak, dgemm and linpack beside each other."""
    found = [r for r in records if r.metric == "flop_rate"]
    if not found:
        return None
    rows = []
    for r in found:
        c = r.conditions
        what = f"peak {c['type']} {c['isa']}" if r.instrument == "peak" else f"{r.instrument} n={c['n']}"
        library = f"{c.get('library')} {c.get('library_kernel') or ''}".strip() if r.instrument != "peak" else "–"
        plural = "s" if c["threads"] != 1 else ""
        rows.append(row(r, what=what, series=f"{c['threads']} thread{plural}", threads=c["threads"], library=library))
    rows.sort(key=lambda r: r["threads"])
    label = "format(datum.value / 1e9, '~r') + ' GFLOP/s'"
    return _bars(
        rows, "what", list(dict.fromkeys(r["what"] for r in rows)), "rate", label, ["what", "series", "library"]
    )


def roofline(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Measured ceilings: best fp64 rate and best net bandwidth of one thread and of all."""
    peaks = [r for r in records if r.instrument == "peak" and r.conditions.get("type") == "fp64"]
    streams = [r for r in records if r.instrument == "bandwidth" and r.metric == "bandwidth_net"]
    rows: list[Row] = []
    marks: list[Row] = []
    for threads in sorted({int(str(r.conditions["threads"])) for r in peaks}):
        top = max((r for r in peaks if r.conditions["threads"] == threads), key=lambda r: r.value)
        among = [r for r in streams if r.conditions["threads"] == threads]
        wide = [
            r
            for r in among
            if float(str(r.conditions["footprint_bytes"])) >= 2**27 and r.conditions["kernel"] == "triad"
        ]
        if not wide:
            continue
        slope = max(wide, key=lambda r: r.value)
        ridge = top.value / slope.value
        name = f"{threads} thread{'s' if threads != 1 else ''}: {show(top.value, 'flop/s')}, {show(slope.value, 'B/s')}"
        for intensity in (2**-5, ridge, 2**6):
            rows.append({"intensity": intensity, "rate": min(top.value, slope.value * intensity), "series": name})
        marks.append({"intensity": ridge, "rate": top.value, "series": name, "label": f"balance {ridge:.2g} flop/byte"})
    if not rows:
        return None
    color = alt.Color("series:N", title=None, scale=alt.Scale(range=PALETTE), sort=None,
                      legend=alt.Legend(orient="top", columns=2, labelLimit=400))  # fmt: skip
    x = alt.X("intensity:Q", title="arithmetic intensity, flop/byte", scale=alt.Scale(type="log", base=2))
    y = alt.Y("rate:Q", title="attainable rate", scale=alt.Scale(type="log"),
              axis=alt.Axis(labelExpr="format(datum.value / 1e9, '~r') + ' GFLOP/s'", tickCount=6))  # fmt: skip
    line = alt.Chart(alt.Data(values=rows)).mark_line(strokeWidth=2.5).encode(x=x, y=y, color=color)
    base = alt.Chart(alt.Data(values=marks)).encode(x=x, y=y, color=color)
    return (
        line + base.mark_point(filled=True, size=60) + base.mark_text(dy=14, dx=6, align="left").encode(text="label:N")
    )


def io(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Rates by direction and queue depth."""
    found = [r for r in records if r.instrument == "io" and r.metric == "bandwidth_net"]
    if not found:
        return None
    rows = [
        row(r, group=f"{r.conditions['direction']}, {size(float(str(r.conditions['block_bytes'])))}",
            series=f"depth {r.conditions['queue_depth']}, {r.conditions['jobs']} job{'s' if r.conditions['jobs'] != 1 else ''}")
        for r in found
    ]  # fmt: skip
    return _bars(rows, "group", None, "bandwidth", _GB, ["group", "series"])


def company(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Latency while 1, 2, 4 … CPUs chase together."""
    found = [r for r in records if r.instrument == "latency" and r.metric == "load_latency"]
    by_size: dict[Any, set[Any]] = {}
    for r in found:
        by_size.setdefault(r.conditions["footprint_bytes"], set()).add(r.conditions["processes"])
    rows = [
        row(r, processes=r.conditions["processes"], series=f"{size(float(str(r.conditions['footprint_bytes'])))}, "
            f"{r.conditions['pages']}")
        for r in found if len(by_size[r.conditions["footprint_bytes"]]) > 1
    ]  # fmt: skip
    if not rows:
        return None
    rows.sort(key=lambda r: r["processes"])
    x = alt.X("processes:Q", title="CPUs that chase at once", scale=alt.Scale(zero=False, padding=20),
              axis=alt.Axis(tickMinStep=1, format="d"))  # fmt: skip
    return _layers(rows, x, _time("time per load", log=False), "series", ["processes"], band=False)


def themed(chart: alt.TopLevelMixin, wide: bool = True) -> dict[str, Any]:
    """The Vega-Lite specification with the common look; texts take the page's colour."""
    spec: dict[str, Any] = chart.to_dict()
    if "concat" not in spec and wide:
        spec["width"], spec["height"] = "container", HEIGHT
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["background"] = "transparent"
    font = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
    spec["config"] = {
        "font": font, "view": {"stroke": None},
        "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "gridOpacity": 0.25,
                 "domainOpacity": 0.5, "tickOpacity": 0.5, "titlePadding": 10},
        "legend": {"labelFontSize": 12, "symbolStrokeWidth": 2}, "title": {"fontSize": 12, "fontWeight": "normal"},
    }  # fmt: skip
    return spec


def for_file(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The same on white and of fixed size, for PNG and SVG."""
    spec = themed(chart, wide=False)
    if "concat" not in spec:
        spec["width"], spec["height"] = WIDTH, HEIGHT
    spec["background"] = "white"
    return spec
