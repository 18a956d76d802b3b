"""Makes a static site of shared results: a table of the machines, a page for each, and comparisons of any of them.

The pages need no server: the page of comparisons loads the curves of the chosen machines as scripts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import altair as alt

from meshmark.errors import MeshmarkError, quoted
from meshmark.measure.repetitions import measurement_key
from meshmark.store.files import write_text
from meshmark.store.record import Record
from meshmark.values.units import scale_for, show
from meshmark.views.charts.charts import in_memory
from meshmark.views.charts.drawing import BYTES, GB, HEIGHT, LIBRARY, NS, PALETTE, Drawing, themed
from meshmark.views.charts.vega import library
from meshmark.views.content.card import figures
from meshmark.views.content.selection import selected, usual_stride, value_of
from meshmark.views.pages.build import report_page
from meshmark.views.render import render
from meshmark.views.shared.check import SharedMachine, problems, run_info, topology_text

# Figures of the table of machines: key and title of the column.
COLUMNS: Final = {
    "memory_latency": "Memory latency",
    "triad_one": "Triad, one CPU",
    "triad_all": "Triad, all CPUs",
    "line_swap": "Core to core",
    "peak_fp64": "Peak fp64",
    "gups": "Random updates",
}
MOST: Final = len(PALETTE)  # machines that can be compared at once: colours must be distinguishable


def write_site(machines: Sequence[SharedMachine], folder: Path, title: str) -> Path:
    """Write the site to a folder, and return its first page. Other files of the folder stay.

    Everyone may read the files, as far as the umask allows it: they are for a web server.

    Raises:
        MeshmarkError: A file cannot be written.
    """
    machines = list({m.id: m for m in machines}.values())  # a file may be there twice
    try:
        (folder / "machines").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MeshmarkError(f"cannot make {quoted(folder)}: {error.strerror}") from error
    write_text(folder / LIBRARY, library())
    for machine in machines:
        page = report_page(machine.records, [], run_info(machine), site="../")
        write_text(folder / "machines" / f"{machine.id}.html", page)
        data = json.dumps(_data(machine), ensure_ascii=True, separators=(",", ":"))
        write_text(folder / "machines" / f"{machine.id}.js", f"machine({data});\n")
    specs = {name: themed(Drawing(chart, {})) for name, chart in _charts().items()}
    names = {m.id: m.result.title for m in machines}
    compare = render("shared/compare.html", title=f"Compare: {title}", specs=specs, names=names, most=MOST)
    write_text(folder / "compare.html", str(compare))
    index = folder / "index.html"
    write_text(index, str(render("shared/index.html", title=title, columns=COLUMNS, rows=_rows(machines), most=MOST)))
    return index


def _rows(machines: Sequence[SharedMachine]) -> list[dict[str, Any]]:
    """Return a row of the table for each machine, by title."""
    rows = []
    for m in sorted(machines, key=lambda m: (m.result.title.lower(), m.result.started, m.id)):
        cells: list[dict[str, Any] | None] = []
        for key in COLUMNS:
            figure = m.result.figures.get(key)
            if figure is None:
                cells.append(None)
                continue
            scale = scale_for(figure.unit, figure.value)
            low, high = figure.interval or (None, None)
            interval = f"95 % interval {low / scale.factor:.4g} to {high / scale.factor:.4g}" if low and high else ""
            cells.append(
                {
                    "value": figure.value,
                    "text": show(figure.value, figure.unit),
                    "hint": interval,
                    "flags": figure.flags,
                }
            )
        rows.append(
            {
                "id": m.id,
                "title": m.result.title,
                "model": "" if m.result.host.cpu.model in m.result.title else m.result.host.cpu.model,
                "topology": topology_text(m.result),
                "cpus": m.result.host.cpus,
                "day": m.result.started,
                "cells": cells,
                "doubts": problems(m),
            }
        )
    return rows


# ------------------------------------------------------------------ comparisons


def _data(machine: SharedMachine) -> dict[str, Any]:
    """Return the figures and curves of a machine for the page of comparisons."""
    records = machine.records
    return {
        "id": machine.id,
        "title": machine.result.title,
        "figures": {
            key: {
                "title": f.title,
                "value": f.value,
                "text": show(f.value, f.unit),
                "interval": f.interval,
                "flags": f.flags,
                "lower": bool(record and record.better == "lower"),
            }
            for key, f in machine.result.figures.items()
            for record in [figures(records, machine.result.host.cpus)[key][1]]
        },
        "latency": [_point(r, value_of(r, "footprint_bytes")) for r in _walk(records)],
        "bandwidth": [_point(r, value_of(r, "threads")) for r in _triads(records)],
        "loaded": _loaded(records),
    }


def _point(record: Record, x: float) -> dict[str, Any]:
    low, high = record.bounds or (record.value, record.value)
    return {
        "x": x,
        "value": record.value,
        "low": low,
        "high": high,
        "text": show(record.value, record.unit),
        "flags": ", ".join(sorted(record.flags)) or "none",
        "flagged": bool(record.flags),
    }


def _walk(records: Sequence[Record]) -> list[Record]:
    """Return the latency by footprint with the largest pages, of the first CPU, in the nearest memory."""
    curve = selected(records, "latency", "load_latency", positive=("footprint_bytes",), above_zero=True)
    curve = [r for r in usual_stride(curve) if r.conditions.get("pattern", "random") == "random"]
    curve = [r for r in curve if value_of(r, "processes", 1) == 1 and not value_of(r, "locality_bytes")]
    if not curve:
        return []

    def rank(r: Record) -> tuple[float, float, bool, float]:
        return (
            -value_of(r, "page_bytes"),
            value_of(r, "cpu"),
            r.conditions.get("memory_place") != "local",
            value_of(r, "memory_node"),
        )

    first = min(map(rank, curve))
    return sorted((r for r in curve if rank(r) == first), key=lambda r: value_of(r, "footprint_bytes"))


def _triads(records: Sequence[Record]) -> list[Record]:
    """Return the best triad in memory of each number of threads."""
    best: dict[float, Record] = {}
    for r in in_memory(records):
        threads = value_of(r, "threads")
        if r.conditions.get("kernel") != "triad" or threads < 1:
            continue
        if threads not in best or (not r.flags, r.value) > (not best[threads].flags, best[threads].value):
            best[threads] = r
    return [best[n] for n in sorted(best)]


def _loaded(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return latency over bandwidth with the most threads and reads only."""
    rates = {measurement_key(r): r for r in selected(records, "loaded", "bandwidth_net")}
    latencies = [r for r in selected(records, "loaded", "load_latency") if measurement_key(r) in rates]
    latencies = [r for r in latencies if r.conditions.get("mode") == "chains"]
    most = max((value_of(r, "threads") for r in latencies), default=0)
    points = [_point(r, rates[measurement_key(r)].value) for r in latencies if value_of(r, "threads") == most]
    return sorted(points, key=lambda p: p["x"])


def _charts() -> dict[str, alt.TopLevelMixin]:
    """Return the charts of the page of comparisons; their data, `rows`, come from the chosen machines."""
    footprint = alt.X(
        "x:Q", title="footprint", scale=alt.Scale(type="log", base=2), axis=alt.Axis(labelExpr=BYTES, tickCount=10)
    )
    threads = alt.X("x:Q", title="threads", scale=alt.Scale(type="log", base=2), axis=alt.Axis(format="d"))
    rate = alt.X("x:Q", title="total bandwidth", scale=alt.Scale(zero=True), axis=alt.Axis(labelExpr=GB))
    return {
        "latency": _overlay(footprint, "time per load", NS, "log"),
        "bandwidth": _overlay(threads, "triad bandwidth", GB, "linear"),
        "loaded": _overlay(rate, "time per load", NS, "linear"),
    }


def _overlay(x: alt.X, title: str, label: str, scale: Literal["log", "linear"]) -> alt.TopLevelMixin:
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke")
    colour = alt.Color("machine:N", title=None, scale=alt.Scale(range=PALETTE), sort=None, legend=legend)
    base = alt.Chart(alt.NamedData(name="rows"), height=HEIGHT).encode(x=x, color=colour)
    ticks = [m * 10.0**k for k in range(-10, -3) for m in (1, 2, 5)] if scale == "log" else alt.Undefined
    axis = alt.Axis(labelExpr=label, values=ticks)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=title, scale=alt.Scale(type=scale, nice=scale != "log"), axis=axis)

    tips = [alt.Tooltip(f"{field}:N") for field in ("machine", "text", "flags")]
    hollow = alt.condition("datum.flagged", alt.value(0.0), alt.value(1.0))
    stroke = alt.Stroke("machine:N", scale=alt.Scale(range=PALETTE), sort=None, legend=None)
    return alt.layer(
        base.mark_area(opacity=0.15).encode(y=y("low"), y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(y=y("value")),
        base.mark_point(filled=True, size=42, opacity=1, strokeWidth=1.5).encode(
            y=y("value"),
            fillOpacity=hollow,
            stroke=stroke,
            tooltip=tips,
        ),
    )
