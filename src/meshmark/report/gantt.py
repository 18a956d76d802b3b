"""The picture of a run: a lane for each thread, filled by what it did; as SVG, and as a page.

A lane is filled from below by shares of its time: user, system, then waiting for a CPU; what is left it slept. Below
are the use of the CPUs and the traffic to memory: what these programs had, and, where a monitor recorded it, what all
had. After the Gantt charts of PARbench, with their header of totals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from meshmark.load.lanes import (
    STATES,
    STATUS,
    Lane,
    end_told,
    flags_told,
    lane_shares,
    lanes,
    percent_of,
    shortened,
    tick_step,
    totals_of,
)
from meshmark.load.recorded import MachineUse, Step, binned, traffic
from meshmark.load.result import LoadRun, utilisation
from meshmark.machine.tree import format_list
from meshmark.store.files import write_file, write_text
from meshmark.values.units import seconds_of

_BINS: Final = 380
_WIDTH, _LEFT, _RIGHT = 1100, 176, 186
_LANE, _GAP, _GROUP = 20, 5, 9  # px
_HEAD: Final = 128

# Okabe and Ito's colours, told apart by the colour-blind. One style for light and dark, by the reader's setting.
_STYLE: Final = (
    ".user{fill:#0072b2}.system{fill:#56b4e9}.waiting{fill:#d55e00}.sleeping{fill:#e4e8ec}"
    ".ink{fill:#1c2024}.soft{fill:#5d6670}.bad{fill:#b3261e}.move{stroke:#1c2024;stroke-width:1.4;fill:none}"
    ".grid{stroke:#d5dade;stroke-width:1;fill:none}.rule{stroke:#b4bcc4;stroke-width:1;fill:none}"
    ".use{fill:#0072b2;fill-opacity:.28;stroke:#0072b2;stroke-width:1}.paper{fill:#ffffff}"
    ".all{fill:none;stroke:#1c2024;stroke-width:1.2}.band{fill:#1c2024;fill-opacity:.16}"
    "text{font-family:Inter,system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
)
_DARK: Final = (
    ".user{fill:#3a93cc}.system{fill:#8fd0f5}.waiting{fill:#f0773a}.sleeping{fill:#333a41}"
    ".ink{fill:#e8eaed}.soft{fill:#9aa4ae}.bad{fill:#ff8a80}.move{stroke:#ffffff}"
    ".grid{stroke:#30363c}.rule{stroke:#4a525a}.use{fill:#56b4e9;stroke:#56b4e9}.paper{fill:#1c2024}"
    ".all{stroke:#e8eaed}.band{fill:#e8eaed}"
)


def _area(values: Sequence[tuple[float, float]], x0: float, dx: float, bottom: float, height: float) -> str:
    """Steps between a lower and an upper share of each bin, as a path; '' where there is nothing to fill."""
    out: list[str] = []
    i = 0
    while i < len(values):
        low, high = values[i]
        j = i
        while j < len(values) and abs(values[j][0] - low) < 0.004 and abs(values[j][1] - high) < 0.004:
            j += 1
        if high - low > 0.004:
            out.append(
                f"M{x0 + i * dx:.1f} {bottom - high * height:.1f}H{x0 + j * dx:.1f}V{bottom - low * height:.1f}"
                f"H{x0 + i * dx:.1f}Z"
            )
        i = j
    return "".join(out)


def gantt_svg(
    run: LoadRun,
    machine: MachineUse | None = None,
    header: bool = True,
    end_s: float = 0.0,
    most: float = 0.0,
    name: str = "",
) -> str:
    """The chart as SVG, light and dark by the reader's setting.

    Args:
        machine: what a monitor recorded of the machine meanwhile.
        header: with title and totals, for use by itself.
        end_s: where the axis ends, for several charts on one; 0: with the run.
        most: B/s of memory that the scale has at least, likewise.
        name: of the chart, for those who hear it; "": the scenario's.
    """
    rows = lanes(run)
    end_s = max(run.bench_s, end_s, 1e-3)
    plot = _WIDTH - _LEFT - _RIGHT
    dx = plot / _BINS
    parts: list[str] = []
    y = float(_HEAD if header else 8)
    if header:
        parts.append(_header(run))
    legend_y = y + 2
    parts.append(_legend(legend_y))
    top = y = y + 38
    body: list[str] = []
    for lane in rows:
        if lane.first:
            y += _GROUP if lane.group and lane is not rows[0] else _GAP if lane is not rows[0] else 0
        body.append(_lane(lane, y, end_s, dx, run))
        y += _LANE + (2 if not lane.first else 3)
    y += 8
    bottom = y
    step = tick_step(end_s, 8)
    ticks = [i * step for i in range(int(end_s / step + 1e-9) + 1)]
    for t in ticks:
        x = _LEFT + plot * t / end_s
        parts.append(f'<path class="grid" d="M{x:.1f} {top - 4:.1f}V{bottom:.1f}"/>')
        last = t + step > end_s
        parts.append(
            f'<text class="soft" x="{x:.1f}" y="{bottom + 15:.1f}" font-size="12" text-anchor="middle">'
            f"{t:g}{' s' if last else ''}</text>"
        )
    parts.append(f'<path class="rule" d="M{_LEFT} {bottom:.1f}H{_LEFT + plot}"/>')
    parts += body
    panels, height = _panels(run, bottom + 30, end_s, machine, most)
    parts.append(panels)
    title = escape(name or str(run.scenario.get("name", "scenario")))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="Gantt chart of {title}">'
        f"<style>{_STYLE}@media (prefers-color-scheme:dark){{{_DARK}}}</style>"
        f'<rect class="paper" width="{_WIDTH}" height="{height:.0f}"/>' + "".join(parts) + "</svg>\n"
    )


def _header(run: LoadRun) -> str:
    title = escape(str(run.scenario.get("name", "scenario")))
    of = escape(
        f"{run.header.get('machine', '')} · {str(run.header.get('start', ''))[:19].replace('T', ' ')} UTC"
        + ("" if run.status == "ok" else f" · {STATUS[run.status]}")
        + (f" · {flags}" if (flags := flags_told(run)) else "")
    )
    out = [
        f'<text class="ink" x="20" y="34" font-size="20" font-weight="bold">{title}</text>',
        f'<text class="{"soft" if run.status == "ok" else "bad"}" x="{_WIDTH - 20}" y="33" font-size="12.5" '
        f'text-anchor="end">{of}</text>',
    ]
    shown = totals_of(run)
    width = (_WIDTH - 40) / len(shown)
    for i, (label, value, _) in enumerate(shown):
        x = 20 + i * width
        out.append(
            f'<text class="soft" x="{x:.0f}" y="68" font-size="11.5">{escape(label)}</text>'
            f'<text class="ink" x="{x:.0f}" y="90" font-size="18" font-weight="600">{escape(value)}</text>'
        )
    out.append(f'<path class="grid" d="M20 106H{_WIDTH - 20}"/>')
    return "".join(out)


def _legend(y: float) -> str:
    out, x = [], float(_LEFT)
    for name, said in STATES:
        out.append(f'<rect class="{name}" x="{x:.0f}" y="{y:.0f}" width="14" height="12" rx="2"/>')
        out.append(f'<text class="ink" x="{x + 20:.0f}" y="{y + 10.5:.1f}" font-size="12">{said}</text>')
        x += 40 + 5.9 * len(said)
    out.append(f'<path class="move" d="M{x + 6:.0f} {y:.0f}v12"/>')
    out.append(f'<text class="ink" x="{x + 16:.0f}" y="{y + 10.5:.1f}" font-size="12">moved to another CPU</text>')
    right = _WIDTH - _RIGHT
    for label, at in (("lasted", right + 62), ("waited", right + 116), ("moves", right + 166)):
        out.append(f'<text class="soft" x="{at}" y="{y + 10.5:.1f}" font-size="11.5" text-anchor="end">{label}</text>')
    return "".join(out)


def _lane(lane: Lane, y: float, end_s: float, dx: float, run: LoadRun) -> str:
    plot = _WIDTH - _LEFT - _RIGHT
    bottom = y + _LANE
    out: list[str] = []
    label = lane.label if len(lane.label) <= 24 else lane.label[:23] + "…"
    kind, indent = ("ink", 0) if lane.first else ("soft", 12)
    out.append(
        f'<text class="{kind}" x="{20 + indent}" y="{y + 14.5:.1f}" font-size="{13 if lane.first else 12}">'
        f"{escape(label)}</text>"
    )
    found = lane_shares(lane, end_s, _BINS)
    below = [(0.0, 0.0)] * len(found)
    for k, (name, _) in enumerate(STATES):
        layer = []
        for (_, upper), share in zip(below, found, strict=True):
            # The last layer goes to the top, so that rounding leaves no slit.
            layer.append((upper, upper + share[k] if k < 3 or sum(share) <= 0 else 1.0))
        if path := _area(layer, _LEFT, dx, bottom, _LANE):
            out.append(f'<path class="{name}" d="{path}"/>')
        below = layer
    marks, last = [], -9.0
    for t in lane.threads:
        for s in t.spans:
            x = _LEFT + plot * s.from_s / end_s
            if s.moved and x - last >= 3:
                marks.append(f"M{x:.1f} {y - 3:.1f}v7")
                last = x
    if marks:
        out.append(f'<path class="move" d="{"".join(marks)}"/>')
    user, system, waiting, sleeping = lane.sums()
    p = lane.program
    right = _WIDTH - _RIGHT
    if lane.first and p.how == "failed":
        out.append(
            f'<text class="bad" x="{_LEFT + 4}" y="{y + 14.5:.1f}" font-size="12">'
            f"{escape(shortened(f'not started: {p.reason}', 100))}</text>"
        )
    elif lane.threads:
        whole = user + system + waiting + sleeping
        moves = sum(t.migrations for t in lane.threads)
        for text, at in (
            (seconds_of(lane.lasted()), right + 62),
            (percent_of(waiting, whole), right + 116),
            (f"{moves}", right + 166),
        ):
            out.append(
                f'<text class="{kind}" x="{at}" y="{y + 14.5:.1f}" font-size="12" text-anchor="end" '
                f'style="font-variant-numeric:tabular-nums">{text}</text>'
            )
        if lane.first and (said := end_told(p)):
            x = min(_LEFT + plot * p.ended_s / end_s + 5, right - 20 - 7.5 * len(said))
            out.append(f'<text class="bad" x="{x:.1f}" y="{y + 14.5:.1f}" font-size="12">✕ {escape(said)}</text>')
    tip = (
        f"{lane.label}: user {seconds_of(user)}, system {seconds_of(system)}, waiting {seconds_of(waiting)}, "
        f"sleeping {seconds_of(sleeping)}; CPUs {format_list(sorted({c for t in lane.threads for c in t.cpus}))}"
    )
    if p.reason:
        tip += f"; {p.reason}"
    return f"<g>{''.join(out)}<title>{escape(tip)}</title></g>"


_PANEL: Final = 44  # px


def _own_traffic(run: LoadRun, end_s: float) -> list[Step]:
    return [s for s in binned(traffic(run), end_s, _BINS) if s is not None]


def most_traffic(run: LoadRun, machine: MachineUse | None, end_s: float) -> float:
    """The highest rate of memory that a chart on an axis to `end_s` shows, B/s."""
    shown = [*_own_traffic(run, end_s), *(machine.memory if machine is not None else ())]
    return max((s.interval[1] if s.interval else s.value for s in shown), default=0.0)


def _panels(run: LoadRun, top: float, end_s: float, machine: MachineUse | None, most: float) -> tuple[str, float]:
    """Use of the CPUs, and traffic to memory where it is known of anybody; and where they end."""
    step = max(end_s / 190, float(run.header.get("sample_s", 0.1)))
    own = [Step(t, min(run.bench_s, t + step), share) for t, share in utilisation(run, step)]
    those = shortened(format_list(run.cpus), 16)
    all_ = machine.cpu if machine is not None else ()
    out = [_panel("CPU use", f"of CPUs {those}", "100 %", own, all_, 1.0, top, end_s)]
    bottom = top + _PANEL
    own, all_ = _own_traffic(run, end_s), machine.memory if machine is not None else ()
    if own or all_:
        most = max(most, most_traffic(run, machine, end_s), 1.0)
        scale, unit = (1e9, "GB/s") if most >= 1e9 else (1e6, "MB/s")
        step = tick_step(most / scale, 4)
        limit = step * math.ceil(most / scale / step - 1e-9)
        what = "all (estimated)" if machine is not None and machine.estimated else "all (counted)"
        out.append(
            _panel(
                "Memory traffic",
                "read and written",
                f"{limit:g} {unit}",
                own,
                all_,
                limit * scale,
                bottom + 22,
                end_s,
                what,
            )
        )
        bottom += 22 + _PANEL
    return "".join(out), bottom + 16


def _panel(
    title: str,
    of: str,
    most: str,
    own: Sequence[Step],
    all_: Sequence[Step],
    limit: float,
    top: float,
    end_s: float,
    what: str = "all (recorded)",
) -> str:
    """One quantity over time: filled what these programs had, as a line what all had, with its interval's band."""
    plot = _WIDTH - _LEFT - _RIGHT
    bottom = top + _PANEL

    def x(t: float) -> str:
        return f"{_LEFT + plot * min(max(t, 0.0), end_s) / end_s:.1f}"

    def y(value: float) -> str:
        return f"{bottom - min(max(value / limit, 0.0), 1.0) * _PANEL:.1f}"

    filled, at = "", ""
    for s in own:
        if s.value <= 0:
            continue
        before = "" if at == x(s.from_s) else f"{f'V{bottom:.1f}Z' if filled else ''}M{x(s.from_s)} {bottom:.1f}"
        filled += f"{before}V{y(s.value)}H{x(s.to_s)}"
        at = x(s.to_s)
    filled += f"V{bottom:.1f}Z" if filled else ""
    line, at = "", ""
    shown = [s for s in binned(all_, end_s, _BINS) if s is not None] if len(all_) > _BINS else all_
    for s in shown:
        line += f"{'L' if at == x(s.from_s) else 'M'}{x(s.from_s)} {y(s.value)}H{x(s.to_s)}"
        at = x(s.to_s)
    band = "".join(
        f"M{x(s.from_s)} {y(s.interval[0])}V{y(s.interval[1])}H{x(s.to_s)}V{y(s.interval[0])}Z"
        for s in shown
        if s.interval
    )
    out = [
        f'<text class="ink" x="20" y="{top + 14:.1f}" font-size="13">{escape(title)}</text>',
        f'<text class="soft" x="20" y="{top + 31:.1f}" font-size="12">{escape(of)}</text>',
        f'<path class="grid" d="M{_LEFT} {top:.1f}H{_LEFT + plot}"/>',
        f'<path class="use" d="{filled}"/>' if filled else "",
        f'<path class="band" d="{band}"/>' if band else "",
        f'<path class="all" d="{line}"/>' if line else "",
        f'<path class="rule" d="M{_LEFT} {bottom:.1f}H{_LEFT + plot}"/>',
        f'<text class="soft" x="{_LEFT - 8}" y="{top + 5:.1f}" font-size="11" text-anchor="end">{escape(most)}</text>',
        f'<text class="soft" x="{_LEFT - 8}" y="{bottom + 1:.1f}" font-size="11" text-anchor="end">0</text>',
    ]
    right = _LEFT + plot + 12
    keys = (
        (filled, f'<rect class="use" x="{right}" y="{top + 7:.1f}" width="14" height="10"/>', 16, "these programs"),
        (line, f'<path class="all" d="M{right} {top + 29:.1f}h14"/>', 33, what),
    )
    for there, mark, down, text in keys:
        if there:
            at_text = f'x="{right + 20}" y="{top + down:.1f}"'
            out.append(f'{mark}<text class="soft" {at_text} font-size="11.5">{escape(text)}</text>')
    return "".join(out)


# ---------------------------------------------------------------- the page

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>{title}</title><style>
:root{{color-scheme:light dark;--bg:#fbfbfa;--panel:#fff;--ink:#1c2024;--soft:#5d6670;--line:#e1e4e8;--bad:#b3261e}}
@media (prefers-color-scheme:dark){{:root{{--bg:#14171a;--panel:#1c2024;--ink:#e8eaed;--soft:#9aa4ae;--line:#30363c;
--bad:#ff8a80}}}}
*{{box-sizing:border-box}}body{{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 Inter,system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}}
main{{max-width:1160px;margin:0 auto;padding:28px 20px 80px}}h1{{font-size:28px;line-height:1.2;margin:0}}
h2{{font-size:19px;margin:0 0 8px}}header p{{margin:6px 0 0;color:var(--soft)}}
section{{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:20px;margin-top:20px}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fill,minmax(170px,1fr));gap:12px;margin-top:20px}}
.tile{{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:12px 14px}}
.tile h3{{font-size:13px;font-weight:500;color:var(--soft);margin:0}}.tile p{{margin:0}}
.big{{font-size:22px;font-weight:650;font-variant-numeric:tabular-nums}}.small{{font-size:12.5px;color:var(--soft)}}
.scroll{{overflow-x:auto}}.scroll svg{{display:block;max-width:100%;min-width:820px;height:auto}}
table{{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;width:100%}}
th{{text-align:right;font-weight:600;white-space:nowrap;padding:5px 0 5px 14px;border-bottom:1px solid var(--line)}}
td{{text-align:right;padding:3px 0 3px 14px;white-space:nowrap}}
th:first-child,td:first-child{{text-align:left;padding-left:0}}
td.why{{text-align:left;white-space:normal;color:var(--bad)}}td.flags{{text-align:left;color:var(--soft)}}
th.left{{text-align:left}}summary{{cursor:pointer}}details{{margin-top:14px}}
</style></head><body><main><header><h1>{title}</h1><p>{subtitle}</p></header>
{body}
</main></body></html>
"""


def page(title: str, subtitle: str, body: str) -> str:
    """A page in the style of a run's; title and subtitle are text, the body is HTML."""
    return _PAGE.format(title=escape(title), subtitle=escape(subtitle), body=body)


def scrolled(what: str, label: str) -> str:
    """A box of its own for what may be wider than the page, which those can scroll who have keys only."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{what}</div>'


def gantt_html(run: LoadRun, machine: MachineUse | None = None) -> str:
    """The page of a run: totals, chart and tables in one file that needs nothing else."""
    tiles = "".join(
        f'<div class="tile"><h3>{escape(label)}</h3><p class="big">{escape(value)}</p>'
        f'<p class="small">{escape(what)}</p></div>'
        for label, value, what in totals_of(run)
    )
    ok = sum(p.how == "ok" for p in run.programs)
    words = [
        str(run.header.get("machine", "")),
        str(run.header.get("start", ""))[:19].replace("T", " ") + " UTC",
        f"{ok} of {len(run.programs)} programs ended well",
    ]
    if run.status != "ok":
        words.append(STATUS.get(run.status, run.status))
    cost = run.end.get("sampling", {}).get("share")
    if cost is not None:
        words.append(f"looking cost {100 * float(cost):.2f} % of a CPU")
    head = ("elapsed", "user", "system", "waiting", "sleeping", "got", "threads", "moves")
    rows = "".join(
        f"<tr><td>{escape(p.program)} · {p.copy + 1}</td>"
        + (
            "".join(
                f"<td>{v}</td>"
                for v in (
                    seconds_of(p.wall_s),
                    seconds_of(p.user_s),
                    seconds_of(p.system_s),
                    seconds_of(p.waiting_s),
                    seconds_of(p.sleeping_s),
                    f"{100 * p.attained:.0f} %",
                    p.threads,
                    p.migrations,
                )
            )
            if p.how != "failed"
            else "<td>–</td>" * len(head)
        )
        + f'<td class="flags">{escape(", ".join(sorted(run.flags(p))))}</td>'
        + f'<td class="why">{escape(p.reason)}</td></tr>'
        for p in run.programs
    )
    programs = (
        "<table><tr><th>program</th>"
        + "".join(f"<th>{h}</th>" for h in head)
        + f'<th class="left">flags</th><th></th></tr>{rows}</table>'
    )
    rows = "".join(
        f"<tr><td>{escape(t.program)} · {t.copy + 1}: {escape(t.command)}</td><td>{t.tid}</td>"
        + "".join(
            f"<td>{seconds_of(v)}</td>" for v in (t.from_s, t.wall_s, t.user_s, t.system_s, t.waiting_s, t.sleeping_s)
        )
        + f"<td>{t.migrations}</td><td>{escape(format_list(t.cpus))}</td></tr>"
        for t in run.threads
    )
    names = ("thread", "number", "from", "for", "user", "system", "waiting", "sleeping", "moves", "CPUs")
    threads = "<table><tr>" + "".join(f"<th>{h}</th>" for h in names) + f"</tr>{rows}</table>"
    body = (
        f'<div class="tiles">{tiles}</div><section>{scrolled(gantt_svg(run, machine, header=False), "Gantt chart")}'
        f"{_recorded(machine)}</section><section><h2>Programs</h2>{scrolled(programs, 'programs')}"
        f"<details><summary>All threads</summary>{scrolled(threads, 'threads')}</details></section>"
    )
    return page(str(run.scenario.get("name", "scenario")), " · ".join(words), body)


def _recorded(machine: MachineUse | None) -> str:
    """What the recording is, and what it could not say."""
    if machine is None:
        return ""
    said = f"Lines: the whole machine, as {machine.name} has it."
    said += f" CPU use was not recorded: {machine.cpu_absent}." if machine.cpu_absent else ""
    said += f" Memory traffic was not recorded: {machine.memory_absent}." if machine.memory_absent else ""
    said += " Memory traffic is estimated; the band is its 95 % interval." if machine.estimated else ""
    return f'<p class="small">{escape(said)}</p>'


def write_gantt(run: LoadRun, out: Path, machine: MachineUse | None = None) -> tuple[Path, ...]:
    """`gantt.html`, `gantt.svg` and `gantt.png` in a folder, each whole or not at all.

    Raises:
        MeshmarkError: the folder cannot be written.
    """
    import vl_convert

    svg = gantt_svg(run, machine)
    page, drawing, picture = out / "gantt.html", out / "gantt.svg", out / "gantt.png"
    write_text(page, gantt_html(run, machine))
    write_text(drawing, svg)
    write_file(picture, vl_convert.svg_to_png(svg, scale=2))
    return page, drawing, picture
