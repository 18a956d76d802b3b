"""Draws how the phases of a step scale: their times over the number of ranks, with fitted power laws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import altair as alt

from meshmark.statistics.power_law import MIN_POINTS, PowerLaw, power_law
from meshmark.store.record import Record
from meshmark.values.units import NBSP, counted, number
from meshmark.views.apps.program_charts import COLOURS
from meshmark.views.apps.programs import StepDisplay, StepParts, problem_of, steps
from meshmark.views.charts.comm import TIME
from meshmark.views.charts.drawing import FULL, Drawing, Row, chart_of, drawing, log_axis, row, tooltip
from meshmark.views.content.selection import listed, value_of
from meshmark.views.render import render_sections
from meshmark.views.tables import Cells, TableSection, TextCell, TextTable

WHOLE: Final = "whole"  # begins the name of the whole step
IDEAL: Final = "ideal, 1/ranks"
_TOTAL_COLOUR: Final = "#3F3F3F"
_IDEAL_COLOUR: Final = "#7F7F7F"


@dataclass(frozen=True, slots=True)
class Phases:
    """The same step of one library on several numbers of ranks, ascending."""

    title: str
    splits: Mapping[int, StepParts]

    @property
    def largest(self) -> int:
        """Return the largest number of ranks."""
        return max(self.splits)

    def times(self, phase: str) -> dict[int, Record]:
        """Return the times above 0 of a phase, or of the whole step, by number of ranks."""
        records = {n: split.parts.get(phase, split.total) for n, split in self.splits.items() if self.has(phase, n)}
        return {n: r for n, r in records.items() if r.value > 0}

    def has(self, phase: str, ranks: int) -> bool:
        """Return whether a phase, or the whole step, was measured with a number of ranks."""
        return phase.startswith(WHOLE) or phase in self.splits[ranks].parts


def names_of(program: StepDisplay) -> list[str]:
    """Return the names of the whole step and of its phases."""
    return [f"{WHOLE} {_step(program)}", *program.parts]


def _step(program: StepDisplay) -> str:
    """Return `step` or `iteration`."""
    return program.step.split()[-1]


def phases(records: Sequence[Record], program: StepDisplay) -> list[Phases]:
    """Return the steps that were measured with at least two numbers of ranks, for each library and problem.

    If several steps do the same work, for example by several protocols, only the step that is fastest with the most
    ranks is returned. If there are several grids with the same number of ranks, only the fastest is returned.
    """
    problem = tuple(k for k in program.within if k != "grid")  # the grid of ranks depends on their number
    groups: dict[tuple[object, ...], list[StepParts]] = {}
    for library_steps in steps(records, program):
        for split in library_steps.splits:
            key = (library_steps.machine, library_steps.library, *(split.total.conditions.get(k) for k in problem))
            groups.setdefault(key, []).append(split)
    results = []
    machines = {machine for machine, *_ in groups}
    for (machine, library, *_), splits in groups.items():
        for same in _by_hosts(splits):
            several = {name: by_ranks for name, by_ranks in _fastest(same).items() if len(by_ranks) > 1}
            if program.ranked and several:
                most = max(n for by_ranks in several.values() for n in by_ranks)
                names_with_most = [name for name in several if most in several[name]]
                best = min(names_with_most, key=lambda name: several[name][most].total.value)
                several = {best: several[best]}
            for name, by_ranks in several.items():
                label = "" if name == program.step else name
                parts = (str(machine) if len(machines) > 1 else "", str(library), label)
                title = listed(*parts, problem_of(same[0].total, *problem))
                results.append(Phases(title, dict(sorted(by_ranks.items()))))
    return results


def _by_hosts(splits: Sequence[StepParts]) -> list[list[StepParts]]:
    """Return the splits as one group, or grouped by number of hosts if a number of ranks was measured on several."""
    groups: dict[float, list[StepParts]] = {}
    hosts_of: dict[float, set[float]] = {}
    for split in splits:
        hosts = value_of(split.total, "hosts", 1.0)
        groups.setdefault(hosts, []).append(split)
        hosts_of.setdefault(value_of(split.total, "ranks"), set()).add(hosts)
    return [list(splits)] if all(len(hosts) == 1 for hosts in hosts_of.values()) else list(groups.values())


def _fastest(splits: Sequence[StepParts]) -> dict[str, dict[int, StepParts]]:
    """Return the fastest step by name and number of ranks."""
    fastest: dict[str, dict[int, StepParts]] = {}
    for split in splits:
        ranks = int(value_of(split.total, "ranks"))
        by_ranks = fastest.setdefault(split.name, {})
        if ranks > 0 and (ranks not in by_ranks or split.total.value < by_ranks[ranks].total.value):
            by_ranks[ranks] = split
    return fastest


# ------------------------------------------------------------------ chart


def phase_chart(program: StepDisplay) -> Callable[[Sequence[Record]], Drawing | None]:
    """Return the function that draws the phases of a program over the number of ranks."""

    @drawing
    def draw(records: Sequence[Record]) -> alt.TopLevelMixin | None:
        curves = phases(records, program)
        names = [name for name in names_of(program) if any(curve.times(name) for curve in curves)]
        panels = [_panel(curve, [*names, IDEAL], _step(program)) for curve in curves]
        chart: alt.TopLevelMixin = alt.concat(*panels, columns=2, spacing={"row": 24, "column": 40})
        return chart if panels else None

    return draw


def _panel(phases: Phases, names: Sequence[str], step: str) -> alt.LayerChart | alt.FacetChart:
    """Draw the phases of a step with the ideal line.

    The panel has points with intervals, and fitted lines, or lines between the points if they are too few for a fit.
    """
    points: list[Row] = []
    lines: list[Row] = []
    for phase in names[:-1]:
        times = phases.times(phase)
        points += [row(r, phase=phase, ranks=n) for n, r in times.items()]
        fit = power_law({n: r.value for n, r in times.items()})
        lines += [{"phase": phase, "ranks": n, "value": fit.at(n) if fit else times[n].value} for n in times]
    fewest = min(phases.splits)
    start = phases.splits[fewest].total.value
    ideal: list[Row] = [{"phase": IDEAL, "ranks": n, "value": start * fewest / n} for n in phases.splits]
    colours = {**COLOURS, names[0]: _TOTAL_COLOUR, IDEAL: _IDEAL_COLOUR}
    scale = alt.Scale(domain=list(names), range=[colours[n] for n in names])
    dashes = alt.Scale(domain=list(names), range=[[2, 4] if n == IDEAL else [1, 0] for n in names])
    legend = alt.Legend(symbolType="stroke", symbolOpacity=1, columns=4)
    colour = alt.Color("phase:N", title=None, scale=scale, legend=legend)
    x = alt.X(
        "ranks:Q",
        title="ranks",
        scale=alt.Scale(type="log", base=2, nice=False, padding=14),
        axis=alt.Axis(values=sorted(phases.splits), format="d", labelOverlap=True),
    )
    y = log_axis([*points, *({**r, "low": r["value"], "high": r["value"]} for r in ideal)], f"time per {step}", TIME)
    dash = alt.StrokeDash("phase:N", title=None, scale=dashes, legend=legend)
    line = chart_of([*lines, *ideal]).mark_line(strokeWidth=2).encode(x=x, y=y("value"), color=colour, strokeDash=dash)
    base = chart_of(points).encode(x=x, color=colour)
    whiskers = base.mark_rule(strokeWidth=1.5).encode(y=y("low"), y2="high:Q")
    dots = base.mark_point(size=48, filled=True, opacity=1, strokeWidth=1.5).encode(
        y=y("value"),
        stroke=alt.Stroke("phase:N", scale=scale, legend=None),
        fillOpacity=FULL,
        tooltip=tooltip("phase", "ranks"),
    )
    return alt.layer(line, whiskers, dots).properties(title=phases.title, width=385, height=300)


# ------------------------------------------------------------------ table


def phase_table(program: StepDisplay) -> Callable[[Sequence[Record]], str]:
    """Return the function that renders the exponents and shares of the phases of a program."""

    def table(records: Sequence[Record]) -> str:
        sections = []
        for curves in phases(records, program):
            columns = [
                "phase",
                "exponent (ideal: −1)",
                "95 % interval",
                f"share with {counted(curves.largest, 'rank')}",
            ]
            columns += ["95 % interval", ""]
            names = [name for name in names_of(program) if any(curves.has(name, n) for n in curves.splits)]
            rows = [_cells(curves, name) for name in names]
            sections.append(TableSection(curves.title, TextTable(columns, rows, numbers=range(1, 5))))
        return render_sections(sections)

    return table


def _cells(phases: Phases, phase: str) -> Cells:
    """Return the row of a phase: its exponent and share, each with an interval."""
    times = phases.times(phase)
    fit = power_law({n: r.value for n, r in times.items()})
    exponent, interval = _exponent(fit) if fit else ("–", f"no fit: {_points(times)}, {MIN_POINTS} are needed")
    share, bounds = ("–", "–") if phase.startswith(WHOLE) else _share(phases.splits[phases.largest], phase)
    flags = frozenset[str]().union(*(r.flags for r in times.values()))
    return [phase, exponent, interval, share, bounds, TextCell("", flags=flags)]


def _points(times: Mapping[int, Record]) -> str:
    return counted(len(times), "number of ranks", "numbers of ranks") + " with a time above 0"


def _exponent(fit: PowerLaw) -> tuple[str, str]:
    low, high = (signed(end) for end in fit.interval)
    return signed(fit.exponent), f"{low} to {high}"


def signed(value: float) -> str:
    """Return an exponent with two decimals and a minus sign; 0 without a sign."""
    text = f"{abs(value):.2f}"
    return f"−{text}" if value < 0 and float(text) else text


def _share(split: StepParts, phase: str) -> tuple[str, str]:
    """Return the share of a phase in the sum of all, and its conservative interval from the intervals of all phases."""
    if phase not in split.parts or math.isnan(split.share(phase)):
        return "–", "–"
    ends = {name: r.bounds for name, r in split.parts.items()}
    phase_bounds = ends[phase]
    share = _percent(split.share(phase))
    if phase_bounds is None or any(end is None for end in ends.values()):
        return share, "– (too few samples)"

    def end(which: int) -> float:
        others = sum(max(0.0, bounds[1 - which]) for name, bounds in ends.items() if bounds and name != phase)
        phase_time = max(0.0, phase_bounds[which])
        return phase_time / (phase_time + others) if phase_time + others > 0 else 0.0

    return share, f"{_percent(end(0))} to {_percent(end(1))}"


def _percent(share: float) -> str:
    return f"{number(100 * share)}{NBSP}%"
