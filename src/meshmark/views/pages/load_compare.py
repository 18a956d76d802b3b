"""Writes the page that compares two load runs."""

from __future__ import annotations

import math

from meshmark.load.compare import (
    HEADINGS,
    TOTALS,
    Comparison,
    change_text,
    flags_text,
    rows_of,
    samples_text,
    value_text,
)
from meshmark.load.scenario.recorded import recorded_use, recording_in
from meshmark.values.units import seconds_of
from meshmark.views.gantt import gantt_svg, max_traffic
from meshmark.views.html import ratio_dot
from meshmark.views.render import render


def _scale(c: Comparison) -> tuple[float, float]:
    """Return the range of the plot of ratios, which includes 1."""
    ratios = [1.0]
    for m in c.programs:
        ratios += [o.ratio for o in m.copies if math.isfinite(o.ratio)]
        ratios += (m.slowdown.interval or (m.slowdown.ratio,)) if m.slowdown else ()
    return min(0.9, 0.97 * min(ratios)), max(1.1, 1.03 * max(ratios))


def compare_html(c: Comparison) -> str:
    """Return the self-contained page: both charts on one time axis, times, totals and differences."""
    end_s = max(c.a.first.bench_s, c.b.first.bench_s, 1e-3)
    charts = []
    machines = [recorded_use(s.first, recording_in(s.first.folder))[0] for s in (c.a, c.b)]
    min_scale = max(max_traffic(s.first, m, end_s) for s, m in zip((c.a, c.b), machines, strict=True))
    for letter, side, machine in (("A", c.a, machines[0]), ("B", c.b, machines[1])):
        run = side.first
        runs_note = f", the first of {len(side.runs)} runs" if len(side.runs) > 1 else ""
        start = str(run.header.get("start", ""))[:19].replace("T", " ")
        name = f"{letter}: {side.name}"
        about = f"{run.scenario.get('name', '')} · {start} UTC{runs_note}"
        svg = gantt_svg(run, machine, header=False, end_s=end_s, min_scale=min_scale, name=name)
        charts.append({"letter": letter, "name": name, "about": about, "svg": svg})
    low, high = _scale(c)
    rows = []
    for name, cells, m, copy in rows_of(c):
        shows_interval = copy is None or len(m.copies) == 1
        ratio = copy.ratio if copy is not None else m.slowdown.ratio if m.slowdown else math.nan
        interval = m.slowdown.interval if shows_interval and m.slowdown else None
        rows.append(
            {
                "cells": [name, *cells],
                "all": copy is None,
                "dot": ratio_dot(ratio, interval, low, high),
                "flags": flags_text(m) if shows_interval else "",
                "why": copy.reason if copy is not None else "",
            }
        )
    page = render(
        "load_compare.html",
        title=f"{c.a.name} and {c.b.name}",
        subtitle=f"A and B on a common time axis of {seconds_of(end_s)}",
        charts=charts,
        heads=[*(f"{h}, s" for h in HEADINGS), "slowdown", "95 %", "B is"],
        plot=f"{low:.2g} to {high:.2g}; dashed: 1",
        rows=rows,
        samples=samples_text(c),
        only=(("A", c.only_a), ("B", c.only_b)),
        totals=[(TOTALS[n], value_text(n, a), value_text(n, b), change_text(a, b)) for n, a, b in c.totals],
        differ=list(c.differ),
    )
    return str(page)
