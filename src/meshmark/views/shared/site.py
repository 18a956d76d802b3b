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
from meshmark.store.files import write_text
from meshmark.values.units import show
from meshmark.views.charts.drawing import BYTES, FULL, GB, HEIGHT, LIBRARY, NS, PALETTE, Drawing, row, themed, tooltip
from meshmark.views.charts.vega import library
from meshmark.views.content.card import figures
from meshmark.views.content.selection import value_of
from meshmark.views.pages.build import report_page
from meshmark.views.render import render
from meshmark.views.shared import curves
from meshmark.views.shared.check import SharedMachine, problems, run_info
from meshmark.views.shared.texts import figure_interval, topology_text

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
    compare = render(
        "shared/compare.html", title=f"Compare: {title}", specs=specs, names=names, library=LIBRARY, most=MOST
    )
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
            interval, value = figure_interval(figure), show(figure.value, figure.unit)
            hint = f"95 % interval {interval}" if interval else ""
            cells.append({"value": figure.value, "text": value, "hint": hint, "flags": figure.flags})
        rows.append(
            {
                "id": m.id,
                "title": m.result.title,
                "model": "" if m.result.host.cpu.model in m.result.title else m.result.host.cpu.model,
                "topology": topology_text(m.result.host),
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
    known = figures(records, machine.result.host.cpus)
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
                "lower": (record := known[key][1]) is not None and record.better == "lower",
            }
            for key, f in machine.result.figures.items()
        },
        "latency": [row(r, x=value_of(r, "footprint_bytes")) for r in curves.near_walk(records)],
        "bandwidth": [row(r, x=value_of(r, "threads")) for r in curves.triads(records)],
        "loaded": [row(r, x=rate.value) for r, rate in curves.loaded(records)],
    }


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

    stroke = alt.Stroke("machine:N", scale=alt.Scale(range=PALETTE), sort=None, legend=None)
    return alt.layer(
        base.mark_area(opacity=0.15).encode(y=y("low"), y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(y=y("value")),
        base.mark_point(filled=True, size=42, opacity=1, strokeWidth=1.5).encode(
            y=y("value"),
            fillOpacity=FULL,
            stroke=stroke,
            tooltip=tooltip("machine"),
        ),
    )
