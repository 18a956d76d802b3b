"""Programs among ranks: what a step of pop, gyro and swim is made of, the kernels of npb, and a step taken apart into
computing, latency, bandwidth and imbalance; as tables and as bars of their parts one after the other.

The parts are means over ranks, the whole is the slowest rank's: what is missing between them is what that rank takes
longer than the others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Final

import altair as alt

from meshmark.report.charts import FULL, PALETTE, Row, chart_of, drawing, layered, log_axis, row, tooltip
from meshmark.report.comm import TIME
from meshmark.report.ranking import bounds, clearest, half_percent, legend, letters, print_columns
from meshmark.report.units import percent, show
from meshmark.store.record import Record

if TYPE_CHECKING:
    from rich.console import Console

_WIDE: Final = 160  # columns where nobody says how many there are


@dataclass(frozen=True, slots=True)
class Program:
    """What is told of a program's steps.

    Attributes:
        parts: metrics that make up `metric`, by their name for people, in the order of a bar.
        names: conditions that tell the rows of a table apart.
        within: conditions that tell tables apart: what differs in them cannot be compared.
        ranked: rows do the same work, so that one of them is the best.
    """

    instrument: str
    metric: str
    step: str
    parts: Mapping[str, str]
    names: tuple[str, ...]
    within: tuple[str, ...]
    ranked: bool


_COMPUTING: Final = {"computing": "compute_time"}
POP: Final = Program(
    "pop", "iteration_time", "an iteration", {**_COMPUTING, "halo exchange": "halo_time", "sums": "reduce_time"},
    ("protocol", "reductions"), ("grid",), ranked=True,
)  # fmt: skip
GYRO: Final = Program(
    "gyro", "step_time", "a step", {**_COMPUTING, "transposes": "transpose_time"}, ("modes",),
    ("grid", "radii", "flops_per_point"), ranked=False,
)  # fmt: skip
SWIM: Final = Program(
    "swim", "step_time", "a step", {**_COMPUTING, "halo exchange": "halo_time"}, ("protocol",), ("cells", "steps"),
    ranked=True,
)  # fmt: skip
ANATOMY: Final = Program(
    "anatomy", "step_time", "a step",
    {**_COMPUTING, "latency": "latency_time", "bandwidth": "bandwidth_time", "imbalance": "imbalance_time",
     "other": "other_time"},
    ("program", "protocol", "reductions"), (), ranked=False,
)  # fmt: skip
_COLOURS: Final = {
    "computing": PALETTE[0], "halo exchange": PALETTE[1], "sums": PALETTE[3], "transposes": PALETTE[2],
    "latency": PALETTE[1], "bandwidth": PALETTE[2], "imbalance": PALETTE[4], "other": "#A7AFB8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Split:
    """A step and its parts, all of one run."""

    name: str
    total: Record
    parts: Mapping[str, Record]

    @property
    def flags(self) -> frozenset[str]:
        return self.total.flags.union(*(r.flags for r in self.parts.values()))

    def share(self, part: str) -> float:
        """Of all parts together; of them those below 0 are none."""
        return self.parts[part].value / sum(max(0.0, r.value) for r in self.parts.values())


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of one library among so many ranks, of one problem; the fastest first where they are ranked."""

    machine: str
    library: str
    where: str  # "2 ranks, grid 2x1"
    transport: str
    within: tuple[object, ...]
    splits: tuple[Split, ...]


def _said(key: str, value: object) -> str:
    words = {"reductions": "{} sum" + ("" if value == 1 else "s"), "protocol": "{}", "program": "{}",
             "modes": "{} modes", "cells": "{0} x {0} cells", "steps": "{} steps a run", "radii": "{} radii",
             "flops_per_point": "{} flops a point", "grid": "grid {}"}  # fmt: skip
    return words[key].format(value)


def _where(record: Record, *keys: str) -> str:
    c = record.conditions
    hosts = [f"{c['hosts']} hosts"] if c.get("hosts", 1) != 1 else []
    return ", ".join([f"{c['ranks']} ranks", *hosts, *(_said(k, c[k]) for k in keys if k in c)])


def _beside(total: Record, same: Sequence[Record]) -> Record:
    """Of several measurements of a part the one of the run that `total` is of."""

    def apart(r: Record) -> tuple[bool, float]:
        starts = [str(x.provenance.get("start", "1970-01-01T00:00Z")) for x in (r, total)]
        one, other = (datetime.fromisoformat(s).timestamp() for s in starts)
        return r.provenance.get("command") != total.provenance.get("command"), abs(one - other)

    return min(same, key=apart)


def _key(record: Record, *more: str) -> tuple[object, ...]:
    c = record.conditions
    return (record.machine, str(c.get("library", c["mpi"])), c["ranks"], c.get("hosts", 1), *(c.get(k) for k in more))


def steps(records: Sequence[Record], program: Program) -> list[Steps]:
    """One for each library, number of ranks and problem among the records of a program, in their order."""
    # Without factors: of anatomy the step as it is.
    mine = [r for r in records if r.instrument == program.instrument and _factor(r) == 1]
    keys = (*program.names, *program.within)
    points: dict[tuple[object, ...], dict[str, list[Record]]] = {}
    for r in mine:
        points.setdefault(_key(r, *keys), {}).setdefault(r.metric, []).append(r)
    groups: dict[tuple[object, ...], list[Split]] = {}
    for found in points.values():
        totals = [r for r in found.get(program.metric, []) if r.value > 0]
        if not totals:
            continue
        total = clearest(totals)
        parts = {word: _beside(total, found[m]) for word, m in program.parts.items() if m in found}
        name = ", ".join(_said(k, total.conditions[k]) for k in program.names if k in total.conditions)
        groups.setdefault(_key(total, *program.within), []).append(Split(name, total, parts))
    made = []
    for key, splits in groups.items():
        if program.ranked:
            splits.sort(key=lambda s: s.total.value)
        first = splits[0].total
        transport = str(first.conditions.get("transport", "transport not told"))
        where = _where(first, *program.within)
        made.append(Steps(first.machine, str(key[1]), where, transport, key[4:], tuple(splits)))
    return made


def best_grids(records: Sequence[Record]) -> tuple[list[Steps], dict[str, list[Steps]]]:
    """Of pop: for each library and number of ranks the steps on its best grid, and on all of them by where they ran,
    in the order of rows."""
    found: dict[tuple[object, ...], list[Steps]] = {}
    for one in steps(records, POP):
        found.setdefault(_key(one.splits[0].total), []).append(one)
    best = [min(same, key=lambda s: s.splits[0].total.value) for same in found.values()]
    order = [sorted(same, key=lambda s: int(str(s.within[0]).partition("x")[0])) for same in found.values()]
    names = [f"{one.library}, {_where(one.splits[0].total)}" for one in best]
    return best, dict(zip(names, order, strict=True))


def _shown(records: Sequence[Record], program: Program) -> list[Steps]:
    return best_grids(records)[0] if program is POP else steps(records, program)


def _of_grids(one: Steps, records: Sequence[Record]) -> str:
    """What is said of pop's grid beside its name."""
    _, grids = best_grids(records)
    count = len(grids[f"{one.library}, {_where(one.splits[0].total)}"])
    if count > 1:
        return f", the best of {count} grids"
    key = _key(one.splits[0].total)
    tried = {r.conditions.get("grids_tried") for r in records if r.metric == "best_time" and _key(r) == key}
    return ", the best of a first look" if tried == {"best"} else ""


# ------------------------------------------------------------------ anatomy


@dataclass(frozen=True, slots=True)
class Prediction:
    """A step with another latency: as predicted, and as measured where that was tried."""

    half: Record | None
    more: Record | None
    measured: Record | None
    error: Record | None

    @property
    def flags(self) -> frozenset[str]:
        return frozenset().union(*(r.flags for r in (self.half, self.more, self.measured, self.error) if r))

    @property
    def factor(self) -> float:
        return _factor(self.more) if self.more else 2.0


def prediction(records: Sequence[Record], split: Split) -> Prediction:
    """What belongs to a split of anatomy."""
    key = _key(split.total, *ANATOMY.names)
    same = [r for r in records if r.instrument == "anatomy" and _key(r, *ANATOMY.names) == key]

    def find(metric: str, less: bool) -> Record | None:
        found = [r for r in same if r.metric == metric and _factor(r) != 1 and (_factor(r) < 1) == less]
        return _beside(split.total, found) if found else None

    return Prediction(find("predicted_time", True), find("predicted_time", False), find("step_time", False),
                      find("prediction_error", False))  # fmt: skip


def _factor(record: Record) -> float:
    """Of the latency of the step that a record is of."""
    return float(str(record.conditions.get("latency_factor", 1)))


def _percent(ratio: float) -> str:
    """`+3.2 %`, `-0.41 %` of a ratio less 1."""
    return f"{'+' if ratio >= 0 else '-'}{percent(abs(ratio))}"


def _times(factor: float) -> str:
    return "twice the latency" if factor == 2 else f"{factor:g} times the latency"


def told(split: Split, predicted: Prediction, known: frozenset[str] = frozenset()) -> list[str]:
    """What another latency would do, as sentences."""
    lines = []
    total = split.total.value
    if predicted.half:
        value = predicted.half.value
        lines.append(f"half the latency: {show(value, 's')} predicted, {_percent(value / total - 1)}")
    if predicted.more and predicted.measured and predicted.error:
        own = sorted(predicted.flags - known)
        lines.append(
            f"{_times(predicted.factor)}: {show(predicted.more.value, 's')} predicted, "
            f"{show(predicted.measured.value, 's')} {half_percent(predicted.measured)} measured; the prediction is off "
            f"by {_percent(predicted.error.value)}" + (f" [{' '.join(own)}]" if own else "")
        )
    other = split.parts.get("other")
    if other and other.value < 0:
        lines.append(f"other is {show(other.value, 's')}: the curves explain more than its messages take")
    return lines


# ------------------------------------------------------------------ tables


def _head(program: Program) -> list[str]:
    return [program.names[0], program.step, *(["over best"] if program.ranked else []), *program.parts]


def _row(one: Steps, split: Split, program: Program) -> list[str]:
    """Texts of a row, without its flags."""
    over = [f"{split.total.value / one.splits[0].total.value:.2f}"] if program.ranked else []
    cells = [split.name, f"{show(split.total.value, 's')} {half_percent(split.total)}", *over]
    for part in program.parts:
        r = split.parts.get(part)
        cells.append(f"{show(r.value, 's')} {100 * split.share(part):.0f} %" if r else "–")
    return cells


_KERNEL_HEAD: Final = ["kernel", "class", "time", "operations", "in the library", "check"]


def _kernels(records: Sequence[Record]) -> dict[tuple[object, ...], list[tuple[list[str], frozenset[str]]]]:
    """Rows of npb with their flags, by library and ranks, in the order of kernels and classes."""
    points: dict[tuple[object, ...], dict[str, list[Record]]] = {}
    for r in records:
        if r.instrument == "npb":
            points.setdefault(_key(r, "class", "kernel", "fft"), {}).setdefault(r.metric, []).append(r)
    found: dict[tuple[object, ...], list[tuple[list[str], frozenset[str]]]] = {}
    for key, metrics in points.items():
        if "elapsed" not in metrics:
            continue
        total = clearest(metrics["elapsed"])
        rate, share = (
            _beside(total, metrics[m]) if m in metrics else None for m in ("operation_rate", "communication_share")
        )
        c = total.conditions
        # A solution that is wrong is no record: it is absent, with what was expected.
        check = "not verified" if "unverified" in total.flags else "verified"
        fft = f", {c['fft']}" if "fft" in c else ""
        cells = [
            f"{c['kernel']}{fft}", str(c["class"]), f"{show(total.value, 's')} {half_percent(total)}",
            show(rate.value, rate.unit) if rate else "–", percent(share.value) if share else "–", check,
        ]  # fmt: skip
        flags = total.flags.union(*(r.flags for r in (rate, share) if r))
        found.setdefault((*key[:4], str(c.get("transport", "transport not told")), _where(total)), []).append(
            (cells, flags)
        )
    return found


def _table(head: Sequence[str], rows: Sequence[tuple[Sequence[str], frozenset[str]]], best: bool) -> str:
    """As a part of the page; the first row in bold where it is the best."""
    from meshmark.report.build import badges, grid

    body = []
    for i, (cells, flags) in enumerate(rows):
        texts = [f"<b>{escape(t)}</b>" if best and i == 0 else escape(t) for t in cells]
        cells_html = f"<td>{texts[0]}</td>" + "".join(f"<td class=n>{t}</td>" for t in texts[1:])
        body.append(f"<tr>{cells_html}<td>{badges(flags)}</td></tr>")
    return grid([*head, ""], body, numbers=range(1, len(head)))


def tables(records: Sequence[Record], program: Program) -> str:
    """What follows the chart of a program."""
    parts = []
    for one in _shown(records, program):
        more = _of_grids(one, records) if program is POP else ""
        name = f"{escape(one.library)}, {escape(one.where + more)}, {escape(one.transport)}"
        rows = [(_row(one, s, program), s.flags) for s in one.splits]
        parts.append(f"<h3>{name}</h3>{_table(_head(program), rows, program.ranked)}")
    return "".join(parts)


def anatomy_told(records: Sequence[Record]) -> str:
    """What follows the chart of anatomy: the parts as a table, and what another latency would do."""
    parts = []
    for one in steps(records, ANATOMY):
        rows = [(_row(one, s, ANATOMY), s.flags) for s in one.splits]
        lines = "".join(
            f"<li>{escape(s.name)}, {escape(line)}</li>" for s in one.splits for line in told(s, prediction(records, s))
        )
        name = f"{escape(one.library)}, {escape(one.where)}, {escape(one.transport)}"
        parts.append(f"<h3>{name}</h3>{_table(_head(ANATOMY), rows, False)}<ul>{lines}</ul>")
    return "".join(parts)


def kernels_told(records: Sequence[Record]) -> str:
    """The kernels of npb as a part of the page."""
    return "".join(
        f"<h3>{escape(', '.join(map(str, (key[1], key[5], key[4]))))}</h3>{_table(_KERNEL_HEAD, rows, False)}"
        for key, rows in _kernels(records).items()
    )


# ------------------------------------------------------------------ in the terminal


def print_programs(records: Sequence[Record]) -> None:
    """Tables that fit the terminal, of programs, of kernels, and of a step taken apart."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, markup=False)
    for program in (POP, GYRO, SWIM, ANATOMY):
        for one in _shown(records, program):
            everywhere = frozenset.intersection(*(s.flags for s in one.splits))
            more = _of_grids(one, records) if program is POP else ""
            title = f"{program.instrument}, {one.library}, {one.where}{more}, {one.transport}"
            rows = [(_row(one, s, program), s.flags) for s in one.splits]
            _print_table(console, f"{one.machine}: {title}", _head(program), rows, program.ranked)
            note = "median ± half of its 95 % interval, the slowest rank's; parts are means over ranks"
            key = legend(s.total for s in one.splits if s.flags - everywhere)
            console.print(note + (f"; {key}" if key else ""), style="dim", soft_wrap=True)
            for s in one.splits if program is ANATOMY else ():
                for line in told(s, prediction(records, s), everywhere):
                    console.print(f"  {s.name}, {line}", soft_wrap=True)
    for name, grids in best_grids(records)[1].items():
        if len(grids) > 1:
            console.print(f"grids of {name}:")
            best = min(grids, key=lambda g: g.splits[0].total.value)
            for g in grids:
                s = g.splits[0]
                star = "*" if g is best else " "
                console.print(f"  {star}{g.within[0]}  {show(s.total.value, 's')} {half_percent(s.total)}  {s.name}")
    for where, kernels in _kernels(records).items():
        title = f"{where[0]}: npb, {where[1]}, {where[5]}, {where[4]}"
        _print_table(console, title, _KERNEL_HEAD, kernels, False)


def _print_table(
    console: Console, title: str, head: Sequence[str], rows: Sequence[tuple[Sequence[str], frozenset[str]]], best: bool
) -> None:
    from rich.text import Text

    everywhere = frozenset.intersection(*(flags for _, flags in rows))
    said = f"; all {', '.join(sorted(everywhere))}" if everywhere else ""
    console.print(title + said, style="dim", soft_wrap=True)
    columns = [
        [Text(h, style="bold"), *(Text(cells[i], style="bold" if best and n == 0 else "")
                                  for n, (cells, _) in enumerate(rows))]
        for i, h in enumerate(head)
    ]  # fmt: skip
    marks = [letters(flags - everywhere) for _, flags in rows]
    if any(marks):
        columns.append([Text(""), *map(Text, marks)])
    print_columns(console, columns[:1], columns[1:])


# ------------------------------------------------------------------ charts


def _bars(
    labelled: Sequence[tuple[str, Split]], program: Program, most: float, wide: int
) -> alt.LayerChart | alt.FacetChart:
    """A bar a step, its parts one after the other; a mark where the step ends as it was measured."""
    rows: list[Row] = []
    ends: list[Row] = []
    for label, split in labelled:
        at = 0.0
        flagged = bool(split.flags)
        for part in program.parts:
            r = split.parts.get(part)
            if r is None or r.value <= 0:
                continue
            texts = row(r, label=label, part=part, share=f"{100 * split.share(part):.1f} %")
            rows.append({**texts, "from": at, "to": at + r.value, "flagged": flagged})
            at += r.value
        low, high = split.total.interval or (split.total.value,) * 2
        # Of few samples an interval reaches far beyond its bar: it must not press all others together.
        high = min(high, most)
        other = split.parts.get("other")
        note = f"{show(split.total.value, 's')}"
        if other is not None and other.value < 0:
            note += f"; other {show(other.value, 's')}"
        ends.append({**row(split.total, label=label, part=program.step, share="–"), "low": low, "high": high,
                     "note": note, "end": max(at, high)})  # fmt: skip
    order = [label for label, _ in labelled]
    names = [p for p in program.parts if any(r["part"] == p for r in rows)] or list(program.parts)
    scale = alt.Scale(domain=list(program.parts), range=[_COLOURS[p] for p in program.parts])
    y = alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=260, ticks=False, domain=False))
    axis = alt.Axis(labelExpr=TIME, tickCount=5, labelOverlap=True)
    reach = alt.Scale(domain=[0, most * 1.02], clamp=True, nice=False)
    tips = tooltip("label", "part", "share")
    bars = (
        chart_of(rows)
        .mark_bar(strokeWidth=1.5, height={"band": 0.62})
        .encode(
            y=y,
            x=alt.X("from:Q", title=None, scale=reach, axis=axis),
            x2="to:Q",
            color=alt.Color("part:N", title=None, scale=scale, legend=alt.Legend(values=names, columns=5)),
            stroke=alt.Stroke("part:N", scale=scale, legend=None),
            fillOpacity=alt.condition("datum.flagged", alt.value(0.3), alt.value(1.0)),
            tooltip=tips,
        )
    )
    base = chart_of(ends).encode(y=y)
    x = alt.X("low:Q", scale=reach)
    whisker = base.mark_rule(strokeWidth=1.5).encode(x=x, x2="high:Q", tooltip=tips)
    mark = base.mark_text(text="┃", fontSize=17, baseline="middle").encode(x=alt.X("value:Q", scale=reach))
    text = base.mark_text(align="left", dx=8, fontSize=12).encode(x=alt.X("end:Q", scale=reach), text="note:N")
    return alt.layer(bars, whisker, mark, text).properties(width=wide, height=alt.Step(26))


def _reach(splits: Sequence[Split]) -> float:
    """How far an axis goes: the longest bar, or its interval where that is not too far away."""
    longest = max(max(s.total.value, sum(max(0.0, r.value) for r in s.parts.values())) for s in splits)
    return min(1.5 * longest, max(longest, *(bounds(s.total)[1] for s in splits)))


def _program_chart(records: Sequence[Record], program: Program) -> alt.TopLevelMixin | None:
    """A panel a library and problem; panels of one problem share their axis."""
    found = _shown(records, program)
    if not found:
        return None
    panels = []
    for one in found:
        # Of pop the best grids of libraries may differ, and are compared all the same.
        alike = [s for other in found if program is POP or other.within == one.within for s in other.splits]
        more = _of_grids(one, records) if program is POP else ""
        chart = _bars([(s.name, s) for s in one.splits], program, _reach(alike), 560)
        panels.append(chart.properties(title=f"{one.library}, {one.where}{more}"))
    chart_: alt.TopLevelMixin = alt.concat(*panels, columns=1, spacing=16)
    return chart_


@drawing
def pop(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    return _program_chart(records, POP)


@drawing
def gyro(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    return _program_chart(records, GYRO)


@drawing
def swim(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    return _program_chart(records, SWIM)


@drawing
def pop_grids(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Iteration time by grid, a line a protocol, each with the better number of sums; the best grid is marked."""
    panels = []
    for name, grids in best_grids(records)[1].items():
        if len(grids) < 2:
            continue
        rows: list[Row] = []
        for g in grids:
            for s in g.splits:  # the fastest first
                protocol = str(s.total.conditions["protocol"])
                if not any(r["grid"] == g.within[0] and r["series"] == protocol for r in rows):
                    rows.append(row(s.total, grid=g.within[0], series=protocol, sums=s.total.conditions["reductions"]))
        order = [str(g.within[0]) for g in grids]
        x = alt.X("grid:N", title="ranks south to north x west to east", sort=order, axis=alt.Axis(labelAngle=0))
        y = log_axis(rows, "time of an iteration", TIME)
        chart = layered(rows, x, y, "series", ["grid", "series", "sums"], band=False)
        best = min(rows, key=lambda r: r["value"])
        mark = (
            chart_of([best]).mark_text(text="▲ best", dy=16, fontSize=13, fontWeight="bold").encode(x=x, y=y("value"))
        )
        panels.append(alt.layer(chart, mark).properties(title=name, width=385, height=300))
    if not panels:
        return None
    chart_: alt.TopLevelMixin = alt.concat(*panels, columns=2, spacing=24)
    return chart_


@drawing
def anatomy(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Two panels a program: its parts, a bar a library; and its time with another latency over that of now."""
    found = steps(records, ANATOMY)
    ranks = len({one.where for one in found}) > 1
    by_program: dict[str, list[tuple[str, Split]]] = {}  # and its protocol
    for one in found:
        for s in one.splits:
            label = f"{one.library}, {one.where}" if ranks else one.library
            by_program.setdefault(s.name, []).append((label, s))
    panels = []
    for name, labelled in by_program.items():
        bars = _bars(labelled, ANATOMY, _reach([s for _, s in labelled]) * 1.25, 400)
        per = "an iteration" if name.startswith("pop") else "a step"
        panels.append(bars.properties(title=f"{name}: {per}"))
        panels.append(_latencies(records, labelled).properties(title="with another latency, over the time of now"))
    if not panels:
        return None
    chart: alt.TopLevelMixin = alt.concat(*panels, columns=2, spacing={"row": 14, "column": 34}).resolve_scale(
        color="shared", fill="shared", shape="shared"
    )
    return chart


def _latencies(records: Sequence[Record], labelled: Sequence[tuple[str, Split]]) -> alt.LayerChart | alt.FacetChart:
    rows: list[Row] = []
    for label, split in labelled:
        total = split.total.value
        predicted = prediction(records, split)
        factor = _times(predicted.factor)
        for r, what in ((predicted.half, "half the latency, predicted"), (predicted.more, f"{factor}, predicted"),
                        (predicted.measured, f"{factor}, measured")):  # fmt: skip
            if r is None:
                continue
            texts = row(r, label=label, what=what)
            rows.append({**texts, "value": r.value / total, "low": texts["low"] / total, "high": texts["high"] / total,
                         "over": f"{r.value / total:.3f}"})  # fmt: skip
    names = list(dict.fromkeys(r["what"] for r in rows))
    colours = [PALETTE[2], PALETTE[1], PALETTE[0]]
    shapes = ["diamond", "diamond", "circle"]
    least = min([0.9, *(r["value"] for r in rows)])
    most = max([1.1, *(r["value"] for r in rows)])
    room = 0.06 * (most - least)
    reach = alt.Scale(domain=[least - room, most + room], clamp=True, nice=False)
    y = alt.Y("label:N", title=None, sort=[label for label, _ in labelled], axis=None)
    x = alt.X("value:Q", title=None, scale=reach, axis=alt.Axis(tickCount=4, format="~r"))
    colour = alt.Scale(domain=names, range=colours[: len(names)])
    base = chart_of(rows).encode(y=y)
    whisker = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X("low:Q", scale=reach), x2="high:Q", stroke=alt.Stroke("what:N", scale=colour, legend=None)
    )
    points = base.mark_point(size=70, filled=True, strokeWidth=1.6).encode(
        x=x, fill=alt.Fill("what:N", title=None, scale=colour),
        stroke=alt.Stroke("what:N", scale=colour, legend=None),
        shape=alt.Shape("what:N", title=None, scale=alt.Scale(domain=names, range=shapes[: len(names)])),
        fillOpacity=FULL, tooltip=tooltip("label", "what", "over"),
    )  # fmt: skip
    rule = chart_of([{"x": 1.0}]).mark_rule(strokeDash=[5, 4], opacity=0.6).encode(x=alt.X("x:Q", scale=reach))
    return alt.layer(rule, whisker, points).properties(width=250, height=alt.Step(26))


@drawing
def npb(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Share of the library by kernel, a bar a library."""
    found = [r for r in records if r.instrument == "npb" and r.metric == "communication_share"]
    if not found:
        return None
    several = len({_where(r) for r in found}) > 1
    rows = [
        row(r, kernel=f"{r.conditions['kernel']}, class {r.conditions['class']}",
            series=str(r.conditions.get("library", r.conditions["mpi"])) + (f", {_where(r)}" if several else ""))
        for r in found
    ]  # fmt: skip
    rows = clearest_rows(rows, "kernel", "series")
    order = list(dict.fromkeys(r["kernel"] for r in rows))
    return horizontal_bars(rows, "kernel", order)
