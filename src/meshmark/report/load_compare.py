"""Two runs of a bench side by side, as a page."""

from __future__ import annotations

import math
from html import escape
from typing import Final

from meshmark.load.compare import (
    HEADS,
    TOTALS,
    Comparison,
    change_told,
    flags_told,
    rows_of,
    samples_told,
    value_told,
)
from meshmark.load.recorded import checked_beside, found_beside
from meshmark.report.gantt import gantt_svg, most_traffic, page, scrolled
from meshmark.values.units import seconds_of

_STYLE: Final = (
    "<style>.dot .i{stroke:var(--ink);stroke-width:2}.dot .d{fill:var(--ink)}.dot .one{stroke:var(--soft);"
    "stroke-dasharray:2 2}.scroll svg.dot{min-width:0;display:inline-block;"
    "vertical-align:middle}td.text{text-align:left;white-space:normal}td.all{font-weight:600}"
    "h2 small{font-weight:400;color:var(--soft);font-size:14px}</style>"
)


def _scale(c: Comparison) -> tuple[float, float]:
    """Lowest and highest ratio of the plot, round 1."""
    seen = [1.0]
    for m in c.programs:
        seen += [o.ratio for o in m.copies if math.isfinite(o.ratio)]
        seen += (m.slowdown.interval or (m.slowdown.ratio,)) if m.slowdown else ()
    return min(0.9, 0.97 * min(seen)), max(1.1, 1.03 * max(seen))


def _dot(ratio: float, interval: tuple[float, float] | None, low: float, high: float) -> str:
    """A ratio on a logarithmic axis, dashed where it would be 1."""
    if not math.isfinite(ratio) or ratio <= 0:
        return ""

    def x(v: float) -> str:
        return f"{4 + 132 * math.log(max(v, 1e-9) / low) / math.log(high / low):.1f}"

    line = f'<path class="i" d="M{x(interval[0])} 9H{x(interval[1])}"/>' if interval else ""
    return (
        f'<svg class="dot" width="140" height="18" viewBox="0 0 140 18" aria-hidden="true"><path class="one" '
        f'd="M{x(1)} 0V18"/>{line}<circle class="d" cx="{x(ratio)}" cy="9" r="4"/></svg>'
    )


def compare_html(c: Comparison) -> str:
    """Both charts on one axis, times, totals and what differs, in one file that needs nothing else."""
    end_s = max(c.a.first.bench_s, c.b.first.bench_s, 1e-3)
    charts = []
    machines = [checked_beside(s.first, found_beside(s.first.folder))[0] for s in (c.a, c.b)]
    most = max(most_traffic(s.first, m, end_s) for s, m in zip((c.a, c.b), machines, strict=True))
    for letter, side, machine in (("A", c.a, machines[0]), ("B", c.b, machines[1])):
        run = side.first
        of = f", the first of {len(side.runs)} runs" if len(side.runs) > 1 else ""
        when = str(run.header.get("start", ""))[:19].replace("T", " ")
        name = f"{letter}: {side.name}"
        about = f"{run.scenario.get('name', '')} · {when} UTC{of}"
        svg = gantt_svg(run, machine, header=False, end_s=end_s, most=most, name=name)
        charts.append(f"<h2>{escape(name)} <small>{escape(about)}</small></h2>{scrolled(svg, f'chart {letter}')}")
    low, high = _scale(c)
    rows = []
    for name, cells, m, one in rows_of(c):
        last = one is None or len(m.copies) == 1
        ratio = one.ratio if one is not None else m.slowdown.ratio if m.slowdown else math.nan
        interval = m.slowdown.interval if last and m.slowdown else None
        why = one.reason if one is not None else ""
        kind = ' class="all"' if one is None else ""
        rows.append(
            f"<tr><td{kind}>{escape(name)}</td>"
            + "".join(f"<td{kind}>{x}</td>" for x in cells)
            + f'<td>{_dot(ratio, interval, low, high)}</td><td class="flags">'
            f'{escape(flags_told(m)) if last else ""}</td><td class="why">{escape(why)}</td></tr>'
        )
    heads = [*(f"{h}, s" for h in HEADS), "slowdown", "95 %"]
    plot = f"{low:.2g} to {high:.2g}, dashed: 1"
    programs = (
        "<table><tr><th>program</th>"
        + "".join(f"<th>{h}</th>" for h in heads)
        + f'<th>{plot}</th><th class="left">flags</th><th></th></tr>{"".join(rows)}</table>'
    )
    totals = (
        "<table><tr><th>total</th><th>A</th><th>B</th><th>B over A</th></tr>"
        + "".join(
            f"<tr><td>{escape(TOTALS[n])}</td><td>{value_told(n, a)}</td><td>{value_told(n, b)}</td>"
            f"<td>{change_told(a, b)}</td></tr>"
            for n, a, b in c.totals
        )
        + "</table>"
    )
    told = "".join(
        f'<tr><td>{escape(what)}</td><td class="text">{escape(a)}</td><td class="text">{escape(b)}</td></tr>'
        for what, a, b in c.differ
    )
    heads_ab = '<tr><th>condition</th><th class="left">A</th><th class="left">B</th></tr>'
    differ = scrolled(f"<table>{heads_ab}{told}</table>", "conditions") if told else "<p>Nothing that is known.</p>"
    only = "".join(
        f'<p class="small">Only in {letter}: {escape(", ".join(names))}</p>'
        for letter, names in (("A", c.only_a), ("B", c.only_b))
        if names
    )
    body = (
        f"{_STYLE}<section>{charts[0]}</section><section>{charts[1]}</section>"
        f"<section><h2>Programs</h2>{scrolled(programs, 'programs')}"
        f'<p class="small">{escape(samples_told(c))}. Letters before a flag say whose it is.</p>{only}</section>'
        f"<section><h2>Totals</h2>{scrolled(totals, 'totals')}</section>"
        f"<section><h2>What differs</h2>{differ}</section>"
    )
    return page(f"{c.a.name} and {c.b.name}", f"A → B on one axis of {seconds_of(end_s)}", body)
