"""Draws the Gantt chart of a load run, with one lane per thread, as SVG and as a page.

A lane stacks the shares of time that the thread spent in user mode, in system mode, waiting for a CPU, and sleeping.
Below are CPU use and memory traffic of the programs and, if a monitor recorded it, of the whole machine. Modelled
after the Gantt charts of PARbench.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshmark.load.scenario.lanes import (
    CHECK,
    STATES,
    STATUS,
    ThreadLane,
    cpus_of,
    end_text,
    figure_lines,
    flags_text,
    lane_shares,
    lanes,
    percent_of,
    plan_lines,
    shortened,
    tick_step,
    totals_of,
)
from meshmark.load.scenario.recorded import MachineUse, ValueStep, binned, traffic
from meshmark.load.scenario.result import LoadRun, utilisation
from meshmark.store.files import write_file, write_text
from meshmark.values.units import seconds_of
from meshmark.views.charts.vega import png_of_svg
from meshmark.views.html import Tile
from meshmark.views.render import render
from meshmark.views.tables import Cells, TextCell, TextTable

if TYPE_CHECKING:
    from markupsafe import Markup

_BINS: Final = 380
_WIDTH, _LEFT, _RIGHT = 1100, 176, 186
_LANE, _GAP, _GROUP = 20, 5, 9  # px
_HEAD: Final = 128
_PANEL: Final = 44
_MIN_CHECK: Final = 0.5  # px; a shorter check is not drawn


@dataclass(frozen=True, slots=True)
class _GanttLane:
    """A lane of the drawing; lengths in px.

    Attributes:
        layers: Class and path of each state, from bottom to top.
        moves: Path of the marks at migrations.
        check: Position and width of the check of results; the width is 0 if there is no check.
        failed: The reason why the program was not started; "" if it was started.
        cells: Values of the columns on the right.
        end: How the program failed; "" if it did not fail.
        end_x: Position of `end`.
    """

    label: str
    y: float
    first: bool
    layers: Sequence[tuple[str, str]]
    moves: str
    check: tuple[float, float]
    failed: str
    cells: Sequence[str]
    end: str
    end_x: float
    tip: str

    @property
    def kind(self) -> str:
        return "ink" if self.first else "soft"


@dataclass(frozen=True, slots=True)
class _QuantityPanel:
    """A quantity over time: an area for these programs, a line with its interval for the whole machine."""

    title: str
    of: str
    limit: str
    top: float
    own: str
    all: str
    band: str
    label: str


def _area(values: Sequence[tuple[float, float]], x0: float, dx: float, bottom: float, height: float) -> str:
    """Return the path of the area between the lower and upper share of each bin; "" if it is empty."""
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
    min_scale: float = 0.0,
    name: str = "",
) -> Markup:
    """Draw the chart as SVG for light and dark colour schemes.

    Args:
        machine: What a monitor recorded of the machine during the run.
        header: Include title and totals, for a stand-alone file.
        end_s: End of the time axis, to align several charts; 0 is the end of the run.
        min_scale: Minimum range of the memory axis in B/s, to align several charts.
        name: Accessible name of the chart; "" is the scenario's name.
    """
    rows = lanes(run)
    end_s = max(run.bench_s, end_s, 1e-3)
    plot = _WIDTH - _LEFT - _RIGHT
    legend_y = float(_HEAD if header else 8) + 2
    top = y = legend_y + 36
    drawn: list[_GanttLane] = []
    for lane in rows:
        if lane.first and lane is not rows[0]:
            y += _GROUP if lane.group else _GAP
        drawn.append(_lane(lane, y, end_s, plot / _BINS, run))
        y += _LANE + (3 if lane.first else 2)
    bottom = y + 8
    step = tick_step(end_s, 8)
    ticks = [i * step for i in range(int(end_s / step + 1e-9) + 1)]
    panels = _panels(run, bottom + 30, end_s, machine, min_scale)
    legend, x = [], float(_LEFT)
    for kind, text in STATES:
        legend.append({"kind": kind, "text": text, "x": x})
        x += 40 + 5.9 * len(text)
    if any(lane.check[1] > _MIN_CHECK for lane in drawn):
        legend.append({"kind": "check", "text": CHECK, "x": x})
        x += 40 + 5.9 * len(CHECK)
    title = str(run.scenario.get("name", "scenario"))
    about = (
        f"{run.header.get('machine', '')} · {str(run.header.get('start', ''))[:19].replace('T', ' ')} UTC"
        + ("" if run.status == "ok" else f" · {STATUS[run.status]}")
        + (f" · {flags}" if (flags := flags_text(run)) else "")
    )
    head = {"title": title, "about": about, "ok": run.status == "ok", "totals": totals_of(run)}
    right = _WIDTH - _RIGHT
    return render(
        "gantt.svg",
        name=name or title,
        width=_WIDTH,
        height=panels[-1].top + _PANEL + 16,
        left=_LEFT,
        right=right,
        head=head if header else None,
        legend=legend,
        legend_y=legend_y,
        moved_x=x,
        columns=(("elapsed", right + 62), ("waiting", right + 116), ("moves", right + 166)),
        top=top,
        bottom=bottom,
        ticks=[{"x": _LEFT + plot * t / end_s, "text": f"{t:g}{' s' if t + step > end_s else ''}"} for t in ticks],
        lanes=drawn,
        lane_height=_LANE,
        min_check=_MIN_CHECK,
        panels=panels,
        panel_height=_PANEL,
    )


def _lane(lane: ThreadLane, y: float, end_s: float, dx: float, run: LoadRun) -> _GanttLane:
    plot = _WIDTH - _LEFT - _RIGHT
    shares = lane_shares(lane, end_s, _BINS)
    lower = [(0.0, 0.0)] * len(shares)
    layers = []
    for k, (name, _) in enumerate(STATES):
        layer = []
        for (_, upper), share in zip(lower, shares, strict=True):
            # The last layer extends to the top, so that rounding leaves no gap.
            layer.append((upper, upper + share[k] if k < 3 or sum(share) <= 0 else 1.0))
        if path := _area(layer, _LEFT, dx, y + _LANE, _LANE):
            layers.append((name, path))
        lower = layer
    moves, last = [], -9.0
    for t in lane.threads:
        for s in t.spans:
            x = _LEFT + plot * s.from_s / end_s
            if s.moved and x - last >= 3:
                moves.append(f"M{x:.1f} {y - 3:.1f}v7")
                last = x
    user, system, waiting, sleeping = lane.times_s()
    from_s, to_s = lane.check if lane.threads and lane.check else (0.0, 0.0)
    p = lane.program
    failed = shortened(f"not started: {p.reason}", 100) if lane.first and p.how == "failed" else ""
    cells: list[str] = []
    end = ""
    if lane.threads and not failed:
        waited = percent_of(waiting, user + system + waiting + sleeping)
        cells = [seconds_of(lane.duration_s()), waited, f"{sum(t.migrations for t in lane.threads)}"]
        end = end_text(p) if lane.first else ""
    tip = (
        f"{lane.label}: user {seconds_of(user)}, system {seconds_of(system)}, waiting {seconds_of(waiting)}, "
        f"sleeping {seconds_of(sleeping)}; CPUs {cpus_of(sorted({c for t in lane.threads for c in t.cpus}))}"
    )
    return _GanttLane(
        label=lane.label if len(lane.label) <= 24 else lane.label[:23] + "…",
        y=y,
        first=lane.first,
        layers=layers,
        moves="".join(moves),
        check=(_LEFT + plot * from_s / end_s, plot * (to_s - from_s) / end_s),
        failed=failed,
        cells=cells,
        end=end,
        end_x=min(_LEFT + plot * p.ended_s / end_s + 5, _WIDTH - _RIGHT - 20 - 7.5 * len(end)) if end else 0.0,
        tip=f"{tip}; {p.reason}" if p.reason else tip,
    )


def _own_traffic(run: LoadRun, end_s: float) -> list[ValueStep]:
    return [s for s in binned(traffic(run), end_s, _BINS) if s is not None]


def max_traffic(run: LoadRun, machine: MachineUse | None, end_s: float) -> float:
    """Return the highest memory traffic that a chart up to `end_s` shows, in B/s."""
    shown = [*_own_traffic(run, end_s), *(machine.memory if machine is not None else ())]
    return max((s.interval[1] if s.interval else s.value for s in shown), default=0.0)


def _panels(
    run: LoadRun, top: float, end_s: float, machine: MachineUse | None, min_scale: float
) -> list[_QuantityPanel]:
    """Return the panels of CPU use and, if it is known, of memory traffic."""
    step = max(end_s / 190, float(run.header.get("sample_s", 0.1)))
    program_steps = [ValueStep(t, min(run.bench_s, t + step), share) for t, share in utilisation(run, step)]
    cpus = shortened(cpus_of(run.cpus), 16)
    machine_steps = machine.cpu if machine is not None else ()
    panels = [_panel("CPU use", f"of CPUs {cpus}", "100 %", program_steps, machine_steps, 1.0, top, end_s)]
    program_steps, machine_steps = _own_traffic(run, end_s), machine.memory if machine is not None else ()
    if program_steps or machine_steps:
        highest = max(min_scale, max_traffic(run, machine, end_s), 1.0)
        scale, unit = (1e9, "GB/s") if highest >= 1e9 else (1e6, "MB/s")
        step = tick_step(highest / scale, 4)
        limit = step * math.ceil(highest / scale / step - 1e-9)
        label = "machine (estimated)" if machine is not None and machine.estimated else "machine (counted)"
        panel_top = top + _PANEL + 22
        text = f"{limit:g} {unit}"
        panels.append(
            _panel(
                "Memory traffic",
                "reads and writes",
                text,
                program_steps,
                machine_steps,
                limit * scale,
                panel_top,
                end_s,
                label,
            )
        )
    return panels


def _panel(
    title: str,
    of: str,
    limit_text: str,
    own: Sequence[ValueStep],
    all_: Sequence[ValueStep],
    limit: float,
    top: float,
    end_s: float,
    label: str = "machine (recorded)",
) -> _QuantityPanel:
    plot = _WIDTH - _LEFT - _RIGHT
    bottom = top + _PANEL

    def x(t: float) -> str:
        return f"{_LEFT + plot * min(max(t, 0.0), end_s) / end_s:.1f}"

    def y(value: float) -> str:
        return f"{bottom - min(max(value / limit, 0.0), 1.0) * _PANEL:.1f}"

    area, end_x = "", ""
    for s in own:
        if s.value <= 0:
            continue
        move = "" if end_x == x(s.from_s) else f"{f'V{bottom:.1f}Z' if area else ''}M{x(s.from_s)} {bottom:.1f}"
        area += f"{move}V{y(s.value)}H{x(s.to_s)}"
        end_x = x(s.to_s)
    area += f"V{bottom:.1f}Z" if area else ""
    line, end_x = "", ""
    shown = [s for s in binned(all_, end_s, _BINS) if s is not None] if len(all_) > _BINS else all_
    for s in shown:
        line += f"{'L' if end_x == x(s.from_s) else 'M'}{x(s.from_s)} {y(s.value)}H{x(s.to_s)}"
        end_x = x(s.to_s)
    band = "".join(
        f"M{x(s.from_s)} {y(s.interval[0])}V{y(s.interval[1])}H{x(s.to_s)}V{y(s.interval[0])}Z"
        for s in shown
        if s.interval
    )
    return _QuantityPanel(title, of, limit_text, top, area, line, band, label)


# ---------------------------------------------------------------- the page


def gantt_html(run: LoadRun, machine: MachineUse | None = None) -> str:
    """Return the self-contained page of a run: totals, chart and tables."""
    ok = sum(p.how == "ok" for p in run.programs)
    subtitle = [
        str(run.header.get("machine", "")),
        str(run.header.get("start", ""))[:19].replace("T", " ") + " UTC",
        f"{ok} of {len(run.programs)} programs succeeded",
    ]
    if run.status != "ok":
        subtitle.append(STATUS.get(run.status, run.status))
    cost = run.end.get("sampling", {}).get("share")
    if cost is not None:
        subtitle.append(f"sampling used {100 * float(cost):.2f} % of a CPU")
    page = render(
        "gantt.html",
        title=str(run.scenario.get("name", "scenario")),
        subtitle=" · ".join(subtitle),
        tiles=[Tile(label, value, [note]) for label, value, note in totals_of(run)],
        chart=gantt_svg(run, machine, header=False),
        recorded=_recorded(machine),
        programs=_programs(run),
        plans=[*plan_lines(run), *figure_lines(run)],
        threads=_threads(run),
    )
    return str(page)


def _programs(run: LoadRun) -> TextTable:
    heads = ("elapsed", "check", "user", "system", "waiting", "sleeping", "CPU share", "threads", "moves")
    rows: list[Cells] = []
    for p in run.programs:
        cells = [
            seconds_of(p.wall_s),
            seconds_of(p.check_s) if p.synthetic else "–",
            *map(seconds_of, (p.user_s, p.system_s, p.waiting_s, p.sleeping_s)),
            f"{100 * p.cpu_share:.0f} %",
            str(p.threads),
            str(p.migrations),
        ]
        cells = ["–"] * len(heads) if p.how == "failed" else cells
        rows.append([f"{p.program} · {p.copy + 1}", *cells, ", ".join(sorted(run.flags(p))), TextCell(p.reason, "dim")])
    return TextTable(["program", *heads, "flags", ""], rows, numbers=range(1, len(heads) + 1), folds=[len(heads) + 2])


def _threads(run: LoadRun) -> TextTable:
    head = ["thread", "TID", "start", "elapsed", "user", "system", "waiting", "sleeping", "moves", "CPUs"]
    rows = [
        [
            f"{t.program} · {t.copy + 1}: {t.command}",
            str(t.tid),
            *map(seconds_of, (t.from_s, t.wall_s, t.user_s, t.system_s, t.waiting_s, t.sleeping_s)),
            str(t.migrations),
            cpus_of(t.cpus),
        ]
        for t in run.threads
    ]
    return TextTable(head, rows, numbers=range(1, len(head)))


def _recorded(machine: MachineUse | None) -> str:
    """Describe the recording and what it lacks."""
    if machine is None:
        return ""
    text = f"Lines: the whole machine, from {machine.name}."
    text += f" CPU use was not recorded: {machine.cpu_absent}." if machine.cpu_absent else ""
    text += f" Memory traffic was not recorded: {machine.memory_absent}." if machine.memory_absent else ""
    text += " Memory traffic is estimated; the band is its 95 % interval." if machine.estimated else ""
    return text


def write_gantt(run: LoadRun, out: Path, machine: MachineUse | None = None) -> tuple[Path, ...]:
    """Write `gantt.html`, `gantt.svg` and `gantt.png` to a folder, each atomically, and return their paths.

    Raises:
        MeshmarkError: The folder is not writable.
    """
    svg = gantt_svg(run, machine)
    page, drawing, picture = out / "gantt.html", out / "gantt.svg", out / "gantt.png"
    write_text(page, gantt_html(run, machine))
    write_text(drawing, svg)
    write_file(picture, png_of_svg(svg))
    return page, drawing, picture
