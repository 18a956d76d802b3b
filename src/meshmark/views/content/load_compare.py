"""Lays out the comparison of two load runs, for terminals and as a page."""

from __future__ import annotations

import math

from meshmark.load.compare import (
    HEADINGS,
    TOTALS,
    CopyTimes,
    LoadComparison,
    ProgramComparison,
    change_text,
    flags_text,
    rows_of,
    samples_text,
    value_text,
)
from meshmark.views.tables import Cells, Dot, TableSection, TextCell, TextTable, ratio_dot, ratio_range


def load_sections(c: LoadComparison) -> list[TableSection]:
    """Return the programs of both runs, the totals, and the conditions that differ."""
    totals = [[TOTALS[n], value_text(n, a), value_text(n, b), change_text(a, b)] for n, a, b in c.totals]
    only = [f"only in {letter}: {', '.join(names)}" for letter, names in (("A", c.only_a), ("B", c.only_b)) if names]
    differ = TextTable(["condition", "A", "B"], c.differ, folds=(1, 2))
    return [
        TableSection(
            "Programs", _programs(c), notes=[f"{samples_text(c)}. Letters before a flag name the run."], lines=only
        ),
        TableSection("Totals", TextTable(["total", "A", "B", "B over A"], totals, numbers=(1, 2, 3))),
        TableSection("Differences", differ, lines=[] if c.differ else ["no known differences"]),
    ]


def _programs(c: LoadComparison) -> TextTable:
    """Return a row for each copy, and one over all copies of a program if there are several."""
    intervals = [m.slowdown.interval or (m.slowdown.ratio,) for m in c.programs if m.slowdown]
    copies = [copy.ratio for m in c.programs for copy in m.copies]
    axis = ratio_range([*copies, *(end for interval in intervals for end in interval)])
    rows: list[Cells] = []
    for name, cells, m, copy in rows_of(c):
        whole = copy is None or len(m.copies) == 1
        dot = TextCell("", dot=_dot(m, copy, axis))
        flags, reason = flags_text(m) if whole else "", copy.reason if copy is not None else ""
        rows.append(
            [name if copy else TextCell(name, "bold"), *cells[:-1], dot, cells[-1], flags, TextCell(reason, "dim")]
        )
    plot = f"{axis[0]:.2g} to {axis[1]:.2g}; dashed: 1"
    head = ["program", *(f"{h} s" for h in HEADINGS), "slowdown", "95 %", plot, "B is", "flags", "because"]
    return TextTable(head, rows, numbers=range(1, 7), folds=[len(head) - 1])


def _dot(m: ProgramComparison, copy: CopyTimes | None, axis: tuple[float, float]) -> Dot | None:
    ratio = copy.ratio if copy is not None else m.slowdown.ratio if m.slowdown else math.nan
    shows_interval = copy is None or len(m.copies) == 1
    return ratio_dot(ratio, m.slowdown.interval if shows_interval and m.slowdown else None, *axis)
