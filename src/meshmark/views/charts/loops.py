"""Draws what tuning of a loop can bring: short vector loops by length, and reads by the distance of a prefetch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import altair as alt

from meshmark.statistics.verdicts import Interval
from meshmark.store.record import Record, median
from meshmark.values.units import counted, show
from meshmark.views.charts.drawing import NS, Row, clearest, drawing, layered, log_axis, row, several
from meshmark.views.content.selection import natural, selected, text_of, value_of
from meshmark.views.render import render_sections
from meshmark.views.tables import Cells, TableSection, TextCell, TextTable

_RATE: Final = "format(datum.value / 1e9, '~r') + ' G/s'"
_MIN_LENGTHS: Final = 4  # a line has two parameters


@dataclass(frozen=True, slots=True)
class HalfLength:
    """Fit of a loop's times: a loop of n elements takes (n + half) / rate.

    Attributes:
        rate: Rate of long loops in elements/s, with its 95 % interval.
        half: Elements of a loop that reaches half of this rate, with its 95 % interval.
        flags: Flags of the records.
    """

    name: str
    rate: float
    rate_interval: Interval
    half: float
    half_interval: Interval
    flags: frozenset[str]


def half_lengths(records: Sequence[Record]) -> list[HalfLength]:
    """Return the half length of each loop that was measured at four lengths or more.

    The line is fitted by least squares of relative deviations. The intervals of the fit include how far times are from
    a line, for example because of the width of vectors.

    Source: Hockney, Jesshope, Parallel Computers 2 (1988), 1.3.2.
    """
    groups: dict[tuple[str, ...], dict[float, list[Record]]] = {}  # by loop and length: the records of all processes
    times = selected(records, "loops", "loop_time", positive=("length",), texts=("kernel",), above_zero=True)
    several_machines = len({r.machine for r in times}) > 1
    for r in times:
        key = (text_of(r, "kernel"), text_of(r, "isa"), *([r.machine] if several_machines else []))
        groups.setdefault(key, {}).setdefault(value_of(r, "length"), []).append(r)
    return [
        _fitted(", ".join(key), by_length)
        for key, by_length in sorted(groups.items())
        if len(by_length) >= _MIN_LENGTHS
    ]


def _fitted(name: str, of: Mapping[float, Sequence[Record]]) -> HalfLength:
    import numpy as np
    from scipy.special import stdtrit

    # Take medians first: a fit of relative deviations to times far apart would be drawn to the shorter times.
    lengths, times = (
        np.array(list(of)),
        np.array([median([r.value for r in same_length]) for same_length in of.values()]),
    )
    design = np.stack([np.ones_like(lengths), lengths], axis=1) / times[:, None]
    inverse = np.linalg.inv(design.T @ design)
    start, step = inverse @ design.T @ np.ones_like(times)  # s, and s per element
    residuals = np.ones_like(times) - design @ np.array([start, step])
    spread = inverse * float(residuals @ residuals) / (len(times) - 2)
    quantile = float(stdtrit(len(times) - 2, 0.975))
    half = start / step
    # The variance of the quotient, to first order in the deviations of both.
    variance = (spread[0, 0] - 2 * half * spread[0, 1] + half**2 * spread[1, 1]) / step**2
    half_margin, step_margin = quantile * math.sqrt(max(0.0, variance)), quantile * math.sqrt(spread[1, 1])
    fastest = 1 / (step - step_margin) if step > step_margin else math.inf
    flags = frozenset(flag for same_length in of.values() for r in same_length for flag in r.flags)
    return HalfLength(
        name,
        1 / step,
        (1 / (step + step_margin), fastest),
        float(half),
        (float(half - half_margin), float(half + half_margin)),
        flags,
    )


def half_length_table(records: Sequence[Record]) -> str:
    """Render the rate of long loops and the half length of each loop; "" if there are no loops."""
    rows: list[Cells] = []
    for fit in half_lengths(records):
        rate = f"{show(fit.rate_interval[0], 'op/s')} to {show(fit.rate_interval[1], 'op/s')}"
        half = f"{fit.half_interval[0]:.3g} to {fit.half_interval[1]:.3g}"
        texts = [show(fit.rate, "op/s"), rate, f"{fit.half:.3g}", half]
        rows.append([fit.name, *texts, TextCell("", flags=fit.flags)])
    if not rows:
        return ""
    columns = ["loop, instructions", "rate of long loops", "95 % interval", "half length", "95 % interval", ""]
    return render_sections([TableSection("Half length", TextTable(columns, rows, range(1, 5)))])


def _rows(records: Sequence[Record], x: str, title: str, things: tuple[str, str], *keys: str) -> list[Row]:
    """Return rows over the condition `x`, in series by the conditions that vary.

    Args:
        x: Condition of the x axis.
        title: Name in tooltips of x, a count of these `things` (singular and plural).
        things: Singular and plural of what x counts.
        keys: Conditions that name the series.
    """
    name = several(records, *keys)
    rows: list[Row] = [
        row(r, series=name(r), x=value_of(r, x), **{title: counted(round(value_of(r, x)), *things)}) for r in records
    ]
    return sorted(clearest(rows, "series", "x"), key=lambda r: (natural(r["series"]), r["x"]))


@drawing
def loops(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw elements per second by the length of a loop."""
    rates = selected(records, "loops", "element_rate", positive=("length",), texts=("kernel",), above_zero=True)
    if not rates:
        return None
    rows = _rows(rates, "length", "length", ("element", "elements"), "machine", "isa", "kernel")
    x = alt.X("x:Q", title="elements of a loop", scale=alt.Scale(type="log", base=2, nice=False))
    return layered(rows, x, log_axis(rows, "elements per second", _RATE), "series", ["series", "length"])


@drawing
def prefetch(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the time of an access by the distance of its prefetch; distance 0 is without prefetch."""
    times = selected(records, "prefetch", "access_time", numbers=("distance",), texts=("access",), above_zero=True)
    if not times:
        return None
    rows = _rows(
        times, "distance", "ahead", ("access", "accesses"), "machine", "memory_node", "pages", "threads", "access"
    )
    ticks = sorted({r["x"] for r in rows})
    x = alt.X(
        "x:Q",
        title="accesses from a prefetch to its use (0: no prefetch)",
        scale=alt.Scale(type="symlog", constant=1, nice=False),
        axis=alt.Axis(values=ticks, format="d"),
    )
    return layered(rows, x, log_axis(rows, "time per access", NS), "series", ["series", "ahead"])
