"""Writes the page that compares two load runs."""

from __future__ import annotations

from meshmark.load.compare import LoadComparison
from meshmark.load.scenario.recorded import recorded_use, recording_in
from meshmark.values.units import seconds_of
from meshmark.views.content.load_compare import load_sections
from meshmark.views.gantt import gantt_svg, max_traffic
from meshmark.views.render import render


def compare_html(c: LoadComparison) -> str:
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
    page = render(
        "load_compare.html",
        title=f"{c.a.name} and {c.b.name}",
        subtitle=f"A and B on a common time axis of {seconds_of(end_s)}",
        charts=charts,
        sections=load_sections(c),
    )
    return str(page)
