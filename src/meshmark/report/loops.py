"""Draws what tuning of a loop can bring: short vector loops by length, and reads by the distance of a prefetch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import altair as alt

from meshmark.report.drawing import NS, Row, clearest, drawing, layered, log_axis, natural, row, several
from meshmark.report.html import Cell, Table
from meshmark.report.render import render
from meshmark.report.selection import selected, text_of, value_of
from meshmark.store.record import Record, median
from meshmark.values.units import counted, show
from meshmark.values.verdicts import Interval

_RATE: Final = "format(datum.value / 1e9, '~r') + ' G/s'"
_MIN_LENGTHS: Final = 4  # a line has two parameters


@dataclass(frozen=True, slots=True)
class HalfLength:
    """A loop of n elements takes (n + half) / rate.

    Attributes:
        rate: Of long loops, elements/s, with its 95 % interval.
        half: Elements of a loop that reaches half of this rate, with its 95 % interval.
        flags: Of the records.
    """

    name: str
    rate: float
    rate_interval: Interval
    half: float
    half_interval: Interval
    flags: frozenset[str]


def half_lengths(records: Sequence[Record]) -> list[HalfLength]:
    """The half length of each loop that was measured at four lengths or more.

    The line is fitted by least squares of relative deviations. Intervals are those of the fit: they include how far
    times are from a line, such as by the width of vectors.

    Source: Hockney, Jesshope, Parallel Computers 2 (1988), 1.3.2.
    """
    groups: dict[tuple[str, ...], dict[float, list[Record]]] = {}  # by length: of all processes
    chosen = selected(records, "loops", "loop_time", positive=("length",), texts=("kernel",), above_zero=True)
    several_machines = len({r.machine for r in chosen}) > 1
    for r in chosen:
        key = (text_of(r, "kernel"), text_of(r, "isa"), *([r.machine] if several_machines else []))
        groups.setdefault(key, {}).setdefault(value_of(r, "length"), []).append(r)
    return [_fitted(", ".join(key), of) for key, of in sorted(groups.items()) if len(of) >= _MIN_LENGTHS]


def _fitted(name: str, of: Mapping[float, Sequence[Record]]) -> HalfLength:
    import numpy as np
    from scipy.special import stdtrit

    # Medians first: a fit of relative deviations to times far apart would be drawn to the shorter ones.
    lengths, times = np.array(list(of)), np.array([median([r.value for r in each]) for each in of.values()])
    design = np.stack([np.ones_like(lengths), lengths], axis=1) / times[:, None]
    inverse = np.linalg.inv(design.T @ design)
    start, step = inverse @ design.T @ np.ones_like(times)  # s, and s an element
    left = np.ones_like(times) - design @ np.array([start, step])
    spread = inverse * float(left @ left) / (len(times) - 2)
    quantile = float(stdtrit(len(times) - 2, 0.975))
    half = start / step
    # Of the quotient, to first order in the deviations of both.
    variance = (spread[0, 0] - 2 * half * spread[0, 1] + half**2 * spread[1, 1]) / step**2
    reach, of_step = quantile * math.sqrt(max(0.0, variance)), quantile * math.sqrt(spread[1, 1])
    fastest = 1 / (step - of_step) if step > of_step else math.inf
    flags = frozenset(flag for each in of.values() for r in each for flag in r.flags)
    return HalfLength(
        name, 1 / step, (1 / (step + of_step), fastest), float(half), (float(half - reach), float(half + reach)), flags
    )


def half_length_table(records: Sequence[Record]) -> str:
    """Renders the rate of long loops and the half length of each loop."""
    rows = []
    for one in half_lengths(records):
        rate = f"{show(one.rate_interval[0], 'op/s')} to {show(one.rate_interval[1], 'op/s')}"
        half = f"{one.half_interval[0]:.3g} to {one.half_interval[1]:.3g}"
        texts = [show(one.rate, "op/s"), rate, f"{one.half:.3g}", half]
        rows.append([Cell(one.name), *(Cell(t, number=True) for t in texts), Cell("", flags=one.flags)])
    if not rows:
        return ""
    head = ["loop, instructions", "rate of long loops", "95 % interval", "half length", "95 % interval", ""]
    return render("parts/programs.html", parts=[("Half length", Table(head, rows, numbers=range(1, 5)), None)])


def _rows(records: Sequence[Record], x: str, title: str, things: tuple[str, str], *keys: str) -> list[Row]:
    """Rows over the condition `x`, in series by the conditions that vary.

    Args:
        title: In tooltips, of how many of these `things` (one, or several) x is.
    """
    name = several(records, *keys)
    rows: list[Row] = [
        row(r, series=name(r), x=value_of(r, x), **{title: counted(round(value_of(r, x)), *things)}) for r in records
    ]
    return sorted(clearest(rows, "series", "x"), key=lambda r: (natural(r["series"]), r["x"]))


@drawing
def loops(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Elements per second by the length of a loop."""
    found = selected(records, "loops", "element_rate", positive=("length",), texts=("kernel",), above_zero=True)
    if not found:
        return None
    rows = _rows(found, "length", "length", ("element", "elements"), "machine", "isa", "kernel")
    x = alt.X("x:Q", title="elements of a loop", scale=alt.Scale(type="log", base=2, nice=False))
    return layered(rows, x, log_axis(rows, "elements per second", _RATE), "series", ["series", "length"])


@drawing
def prefetch(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Time of an access by the distance of its prefetch; 0 is none."""
    found = selected(records, "prefetch", "access_time", numbers=("distance",), texts=("access",), above_zero=True)
    if not found:
        return None
    rows = _rows(
        found, "distance", "ahead", ("access", "accesses"), "machine", "memory_node", "pages", "threads", "access"
    )
    ticks = sorted({r["x"] for r in rows})
    x = alt.X(
        "x:Q",
        title="accesses from a prefetch to its use (0: no prefetch)",
        scale=alt.Scale(type="symlog", constant=1, nice=False),
        axis=alt.Axis(values=ticks, format="d"),
    )
    return layered(rows, x, log_axis(rows, "time per access", NS), "series", ["series", "ahead"])
