"""Lays out the results of MPI programs: time by part of pop, gyro, swim and anatomy, and the npb kernels.

Parts are means over ranks; the total is the time of the slowest rank. The difference is the time that the slowest rank
takes longer than the mean. The module `program_charts` draws the charts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from meshmark.store.record import Record
from meshmark.values.units import NBSP, percent, show
from meshmark.views.content.ranking import clearest, half_percent, ranks_of, transport_of
from meshmark.views.content.selection import UNKNOWN, listed, selected, text_of, value_of
from meshmark.views.tables import Cells, TableSection, TextCell, TextTable

_SLOWEST: Final = "median of the slowest rank ± half its 95 % interval"


@dataclass(frozen=True, slots=True)
class StepDisplay:
    """How to show a program's steps.

    Attributes:
        parts: Metrics whose sum is `metric`, by display name, in the order of a bar.
        names: Conditions that distinguish the rows of a table.
        within: Conditions that distinguish tables; steps that differ in them are not comparable.
        ranked: Whether rows do the same work, so that one row is the best.
    """

    instrument: str
    metric: str
    step: str
    parts: Mapping[str, str]
    names: tuple[str, ...]
    within: tuple[str, ...]
    ranked: bool


_COMPUTING: Final = {"computing": "compute_time"}
POP: Final = StepDisplay(
    "pop",
    "iteration_time",
    "an iteration",
    {**_COMPUTING, "halo exchange": "halo_time", "reductions": "reduce_time"},
    ("protocol", "reductions"),
    ("grid",),
    ranked=True,
)
GYRO: Final = StepDisplay(
    "gyro",
    "step_time",
    "a step",
    {**_COMPUTING, "transposes": "transpose_time"},
    ("modes",),
    ("grid", "radii", "flops_per_point"),
    ranked=False,
)
SWIM: Final = StepDisplay(
    "swim",
    "step_time",
    "a step",
    {**_COMPUTING, "halo exchange": "halo_time"},
    ("protocol",),
    ("cells", "steps"),
    ranked=True,
)
ANATOMY: Final = StepDisplay(
    "anatomy",
    "step_time",
    "a step",
    {
        **_COMPUTING,
        "latency": "latency_time",
        "bandwidth": "bandwidth_time",
        "imbalance": "imbalance_time",
        "other": "other_time",
    },
    ("program", "protocol", "reductions"),
    (),
    ranked=False,
)


@dataclass(frozen=True, slots=True)
class StepParts:
    """A step and its parts, from one run."""

    name: str
    total: Record
    parts: Mapping[str, Record]

    @property
    def flags(self) -> frozenset[str]:
        """Return the flags of the whole step and of its parts."""
        return self.total.flags.union(*(r.flags for r in self.parts.values()))

    def share(self, part: str) -> float:
        """Return the share of a part in the sum of all parts; negative parts count as 0."""
        total = sum(max(0.0, r.value) for r in self.parts.values())
        return self.parts[part].value / total if total > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of one library, number of ranks and problem, the fastest first if they are ranked."""

    machine: str
    library: str
    where: str  # "2 ranks, grid 2x1"
    transport: str
    within: tuple[object, ...]
    splits: tuple[StepParts, ...]

    @property
    def grid(self) -> str:
        """Return the grid of ranks; only for pop."""
        return UNKNOWN if self.within[0] is None else str(self.within[0])


def _condition_text(key: str, value: object) -> str:
    templates = {
        "reductions": "{} reduction" + ("" if value == 1 else "s"),
        "protocol": "{}",
        "program": "{}",
        "modes": "{} modes",
        "cells": "{0} x {0} cells",
        "steps": "{} steps per run",
        "radii": "{} radii",
        "flops_per_point": "{} flops per point",
        "grid": "grid {}",
    }
    return templates[key].format(value)


def where_of(record: Record, *keys: str) -> str:
    """Return the ranks and the problem of a record as text."""
    return ", ".join(filter(None, (ranks_of(record), problem_of(record, *keys))))


def problem_of(record: Record, *keys: str) -> str:
    """Return these conditions as text, such as `256 x 256 cells, 50 steps per run`."""
    c = record.conditions
    return ", ".join(_condition_text(k, c[k]) for k in keys if c.get(k) is not None)


def _same_run(total: Record, same: Sequence[Record]) -> Record:
    """Return the measurement of a part that is from the same run as `total`, or else the closest in time."""

    def distance(r: Record) -> tuple[bool, float]:
        return r.provenance.get("command") != total.provenance.get("command"), abs(_started(r) - _started(total))

    return min(same, key=distance)


def _started(record: Record) -> float:
    """Return the start time in seconds since 1970; 0 if it is not recorded."""
    try:
        return datetime.fromisoformat(str(record.provenance.get("start"))).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _key(record: Record, *more: str) -> tuple[object, ...]:
    c = record.conditions
    common = (record.machine, text_of(record, "library", "mpi"), c.get("ranks"), c.get("hosts", 1))
    return (*common, *(c.get(k) for k in more))


def order_of(record: Record) -> tuple[int, ...]:
    """Return a sort key: programs, kernels and classes in the order of the instruments, then modes."""
    c = record.conditions
    kernels_ = ("ep", "cg", "is", "ft", "mg", "lu", "bt", "sp")
    orders = (("pop", "gyro", "swim"), kernels_, ("S", "W", "A", "B", "C"))
    positions = [
        names.index(str(c[k])) if str(c.get(k)) in names else 0
        for k, names in zip(("program", "kernel", "class"), orders, strict=True)
    ]
    return positions[0], positions[2], positions[1], int(value_of(record, "modes"))


def steps(records: Sequence[Record], program: StepDisplay) -> list[Steps]:
    """Return the steps of each library, number of ranks and problem, in the order of the records."""
    # Anatomy also has steps with another latency, which are predictions.
    measurements = [r for r in records if r.instrument == program.instrument and _factor(r) == 1]
    keys = (*program.names, *program.within)
    points: dict[tuple[object, ...], dict[str, list[Record]]] = {}
    for r in measurements:
        points.setdefault(_key(r, *keys), {}).setdefault(r.metric, []).append(r)
    groups: dict[tuple[object, ...], list[StepParts]] = {}
    for by_metric in points.values():
        totals = selected(by_metric.get(program.metric, []), (), program.metric, above_zero=True)
        if not totals:
            continue
        total = clearest(totals)
        parts = {part: _same_run(total, by_metric[m]) for part, m in program.parts.items() if m in by_metric}
        name = ", ".join(
            _condition_text(k, total.conditions[k]) for k in program.names if total.conditions.get(k) is not None
        )
        name = name or program.step
        groups.setdefault(_key(total, *program.within), []).append(StepParts(name, total, parts))
    results = []
    for key, splits in groups.items():
        if program.ranked:
            splits.sort(key=lambda s: s.total.value)
        else:
            splits.sort(key=lambda s: order_of(s.total))
        first = splits[0].total
        transport = transport_of(first)
        where = where_of(first, *program.within)
        results.append(Steps(first.machine, str(key[1]), where, transport, key[4:], tuple(splits)))
    return results


def grids(records: Sequence[Record]) -> list[list[Steps]]:
    """Return the steps of pop on all measured grids, for each library and number of ranks, the tallest grid last."""
    groups: dict[tuple[object, ...], list[Steps]] = {}
    for group in steps(records, POP):
        groups.setdefault(_key(group.splits[0].total), []).append(group)

    def rows(steps: Steps) -> tuple[int, str]:
        tall = steps.grid.partition("x")[0]
        return len(tall), tall

    return [sorted(same, key=rows) for same in groups.values()]


def best_of(same: Sequence[Steps]) -> Steps:
    """Return the steps that contain the fastest step."""
    return min(same, key=lambda s: s.splits[0].total.value)


def shown(records: Sequence[Record], program: StepDisplay) -> list[Steps]:
    """Return the steps to show in tables; for pop, the steps on the best grid, with a note on how it was determined."""
    if program is not POP:
        return steps(records, program)
    quick_searches = {_key(r) for r in records if r.metric == "best_time" and r.conditions.get("grids_tried") == "best"}
    results = []
    for same in grids(records):
        best = best_of(same)
        by_quick_search = _key(best.splits[0].total) in quick_searches
        note = (
            f", the best of {len(same)} grids"
            if len(same) > 1
            else ", the best in a quick search"
            if by_quick_search
            else ""
        )
        results.append(replace(best, where=best.where + note))
    return results


# ------------------------------------------------------------------ swim, by threads and by ranks


@dataclass(frozen=True, slots=True)
class ModelStep:
    """The fastest step of swim by a programming model with a number of threads or ranks.

    Attributes:
        name: `threads`, or the paradigm and the library.
        how: Pages and memory of threads, or the protocol of ranks.
        share: Bandwidth over the bandwidth of triad; only for threads.
    """

    name: str
    workers: int
    how: str
    step: Record
    share: Record | None


def programming_models(records: Sequence[Record]) -> dict[str, list[ModelStep]]:
    """Return the programming models on each grid that threads stepped, by number of workers, the fastest first.

    Returns:
        The models by machine and grid as text; {} without results of `swim_threads`.
    """
    points: dict[tuple[object, ...], dict[tuple[str, int, str], list[Record]]] = {}
    for r in selected(records, ("swim_threads", "swim"), "step_time", positive=("cells", "steps"), above_zero=True):
        c = r.conditions
        is_threads = r.instrument == "swim_threads"
        workers = value_of(r, "threads" if is_threads else "ranks")
        if workers < 1:
            continue
        name = (
            "threads" if is_threads else ", ".join([text_of(r, "paradigm"), text_of(r, "library", "mpi"), *_hosts(r)])
        )
        variant = (
            listed(f"{text_of(r, 'pages')} pages", f"memory {text_of(r, 'memory_node')}")
            if is_threads
            else text_of(r, "protocol")
        )
        key = (name, int(workers), variant)
        points.setdefault((r.machine, c["cells"], c["steps"]), {}).setdefault(key, []).append(r)
    by_grid = {}
    for (machine, cells, steps_), variants in points.items():
        if not any(name == "threads" for name, *_ in variants):
            continue
        fastest: dict[tuple[str, int], ModelStep] = {}
        for (name, count, variant), same in variants.items():
            step = clearest(same)
            model = ModelStep(name, count, variant, step, _share(records, step))
            best = fastest.setdefault((model.name, model.workers), model)
            if step.value < best.step.value:
                fastest[model.name, model.workers] = model
        grid = ", ".join([str(machine), _condition_text("cells", cells), _condition_text("steps", steps_)])
        by_grid[grid] = sorted(fastest.values(), key=lambda m: (m.workers, m.step.value))
    return by_grid


def _hosts(record: Record) -> list[str]:
    hosts = record.conditions.get("hosts", 1)
    return [] if hosts == 1 else [f"{hosts} hosts"]


def _share(records: Sequence[Record], step: Record) -> Record | None:
    same = [
        r
        for r in records
        if (r.machine, r.instrument, r.metric) == (step.machine, "swim_threads", "bandwidth_share")
        and all(r.conditions.get(k) == step.conditions.get(k) for k in ("cells", "steps", "threads", "pages", "cpus"))
        and r.conditions.get("memory_node") == step.conditions.get("memory_node")
    ]
    return _same_run(step, same) if same and step.instrument == "swim_threads" else None


# ------------------------------------------------------------------ anatomy


@dataclass(frozen=True, slots=True)
class Prediction:
    """A step with another latency: predicted and, if available, measured."""

    half: Record | None
    more: Record | None
    measured: Record | None
    error: Record | None

    @property
    def flags(self) -> frozenset[str]:
        """Return the flags of all results that the prediction contains."""
        return frozenset().union(*(r.flags for r in (self.half, self.more, self.measured, self.error) if r))

    @property
    def factor(self) -> float:
        """Return by how much the latency was multiplied; 2 if that was not measured."""
        return _factor(self.more) if self.more else 2.0


def prediction(records: Sequence[Record], split: StepParts) -> Prediction:
    """Return the prediction for a split of anatomy."""
    key = _key(split.total, *ANATOMY.names)
    same = [r for r in records if r.instrument == "anatomy" and _key(r, *ANATOMY.names) == key]

    def find(metric: str, less: bool) -> Record | None:
        matches = [r for r in same if r.metric == metric and _factor(r) != 1 and (_factor(r) < 1) == less]
        return _same_run(split.total, matches) if matches else None

    return Prediction(
        find("predicted_time", True),
        find("predicted_time", False),
        find("step_time", False),
        find("prediction_error", False),
    )


def _factor(record: Record) -> float:
    """Return the factor by which the latency was changed."""
    return value_of(record, "latency_factor", 1.0)


def _percent(ratio: float) -> str:
    """Return a relative difference such as `+3.2 %`; without a sign if it rounds to 0."""
    text = f"{100 * ratio:+.1f}"
    return f"{text[1:] if float(text) == 0 else text}{NBSP}%"


def times(factor: float) -> str:
    """Return a factor of the latency in words."""
    return "twice the latency" if factor == 2 else f"{factor:g} times the latency"


def prediction_lines(split: StepParts, predicted: Prediction, known: frozenset[str] = frozenset()) -> list[str]:
    """Describe the step with another latency.

    Args:
        split: The step by its parts.
        predicted: The predictions, with the measurement that tests one of them.
        known: Flags to omit, because all results have them.
    """
    lines = []
    total = split.total.value
    if predicted.half:
        value = predicted.half.value
        lines.append(f"half the latency: predicted {show(value, 's')}, {_percent(value / total - 1)}")
    if predicted.more and predicted.measured and predicted.error:
        flags = sorted(predicted.flags - known)
        error, bounds = predicted.error, predicted.error.interval
        interval = f" ({_percent(bounds[0])} to {_percent(bounds[1])})" if bounds else ""
        lines.append(
            f"{times(predicted.factor)}: predicted {show(predicted.more.value, 's')}, "
            f"measured {show(predicted.measured.value, 's')} {half_percent(predicted.measured)}; "
            f"error of the prediction {_percent(error.value)}{interval}" + (f" [{' '.join(flags)}]" if flags else "")
        )
    other = split.parts.get("other")
    if other and other.value < 0:
        lines.append(f"other is {show(other.value, 's')}: the curves overestimate the communication time")
    return lines


# ------------------------------------------------------------------ tables


def program_sections(records: Sequence[Record], program: StepDisplay) -> list[TableSection]:
    """Return the parts of a program's steps; for anatomy with its predictions, for pop with all grids."""
    sections = []
    head = [program.names[0], program.step, *(["vs. best"] if program.ranked else []), *program.parts]
    order = "; fastest first" if program.ranked else ""
    for group in shown(records, program):
        table = _table(head, [(_row(group, s, program), s.flags) for s in group.splits], program.ranked)
        sections.append(
            TableSection(
                f"{group.library}, {group.where}, {group.transport}",
                table,
                about=f"{group.machine}: {program.instrument}",
                notes=[f"{_SLOWEST}; parts are means over ranks{order}"],
                lines=_lines(records, group, program, table.common_flags),
            )
        )
    return sections


def _table(head: Sequence[str], rows: Sequence[tuple[list[str], frozenset[str]]], ranked: bool = False) -> TextTable:
    """Return a table of rows with their flags; the first row is bold if it is the best."""
    body: list[Cells] = []
    for i, (cells, flags) in enumerate(rows):
        texts = [TextCell(text, "bold") for text in cells] if ranked and i == 0 else cells
        body.append([*texts, TextCell("", flags=flags)])
    return TextTable([*head, ""], body, numbers=range(1, len(head)))


def _row(steps: Steps, split: StepParts, program: StepDisplay) -> list[str]:
    relative = [f"{split.total.value / steps.splits[0].total.value:.2f}"] if program.ranked else []
    cells = [split.name, f"{show(split.total.value, 's')} {half_percent(split.total)}", *relative]
    for part in program.parts:
        r = split.parts.get(part)
        share = split.share(part) if r else math.nan
        cells.append((show(r.value, "s") + ("" if math.isnan(share) else f" {100 * share:.0f} %")) if r else "–")
    return cells


def _lines(records: Sequence[Record], group: Steps, program: StepDisplay, known: frozenset[str]) -> list[str]:
    if program is ANATOMY:
        predictions = {s.name: prediction_lines(s, prediction(records, s), known) for s in group.splits}
        return [f"{name}: {line}" for name, lines in predictions.items() for line in lines]
    same = next((same for same in grids(records) if best_of(same).splits == group.splits), []) if program is POP else []
    lines = []
    for one in same if len(same) > 1 else ():
        fastest = one.splits[0]
        mark = "*" if fastest == group.splits[0] else ""
        time = f"{show(fastest.total.value, 's')} {half_percent(fastest.total)}"
        lines.append(f"{mark}grid {one.grid}: {time}, {fastest.name}")
    return lines


def model_sections(records: Sequence[Record]) -> list[TableSection]:
    """Return the programming models of swim on each grid; a step is compared with the best of as many workers."""
    head = ["programming model", "threads or ranks", "how", "a step", "vs. best", "of triad's bandwidth"]
    sections = []
    for grid, models in programming_models(records).items():
        best = {m.workers: min(o.step.value for o in models if o.workers == m.workers) for m in models}
        rows = [
            (
                [
                    m.name,
                    str(m.workers),
                    m.how,
                    f"{show(m.step.value, 's')} {half_percent(m.step)}",
                    f"{m.step.value / best[m.workers]:.2f}",
                    percent(m.share.value) if m.share else "–",
                ],
                m.step.flags | (m.share.flags if m.share else frozenset()),
            )
            for m in models
        ]
        sections.append(TableSection(grid, _table(head, rows)))
    return sections


def kernel_sections(records: Sequence[Record]) -> list[TableSection]:
    """Return the results of npb by library and ranks, in the order of kernels and classes."""
    points: dict[tuple[object, ...], dict[str, list[Record]]] = {}
    for r in records:
        if r.instrument == "npb" and None not in (r.conditions.get("kernel"), r.conditions.get("class")):
            points.setdefault(_key(r, "threads", "class", "kernel", "fft"), {}).setdefault(r.metric, []).append(r)
    tables: dict[tuple[str, str], list[tuple[list[str], frozenset[str]]]] = {}
    for metrics in sorted(points.values(), key=lambda by_metric: order_of(next(iter(by_metric.values()))[0])):
        elapsed = selected(metrics.get("elapsed", []), "npb", "elapsed", texts=("kernel", "class"), above_zero=True)
        if not elapsed:
            continue
        total = clearest(elapsed)
        rate, share = (
            _same_run(total, metrics[m]) if m in metrics else None for m in ("operation_rate", "communication_share")
        )
        c = total.conditions
        # Wrong solutions have no records; the instrument reports them as absent.
        check = "not verified" if "unverified" in total.flags else "verified"
        fft = f", {c['fft']}" if "fft" in c else ""
        cells = [
            f"{c['kernel']}{fft}",
            str(c["class"]),
            f"{show(total.value, 's')} {half_percent(total)}",
            show(rate.value, rate.unit) if rate else "–",
            percent(share.value) if share else "–",
            check,
        ]
        flags = total.flags.union(*(r.flags for r in (rate, share) if r))
        title = f"{text_of(total, 'library', 'mpi')}, {where_of(total)}, {transport_of(total)}"
        tables.setdefault((total.machine, title), []).append((cells, flags))
    head = ["kernel", "class", "time", "rate", "time in MPI", "check"]
    notes = [f"{_SLOWEST}; largest share of time in the MPI library"]
    return [
        TableSection(title, _table(head, rows), about=f"{machine}: npb", notes=notes)
        for (machine, title), rows in tables.items()
    ]
