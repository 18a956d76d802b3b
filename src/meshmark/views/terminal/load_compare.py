"""Compares two runs of a scenario in tables."""

from __future__ import annotations

from meshmark.load.compare import (
    HEADINGS,
    TOTALS,
    Comparison,
    change_text,
    flags_text,
    rows_of,
    samples_text,
    value_text,
)
from meshmark.load.studies.results import table


def compare_text(c: Comparison) -> str:
    """Return the comparison as tables of plain text."""
    result = []
    for letter, side in (("A", c.a), ("B", c.b)):
        runs_text = f"{len(side.runs)} runs" if len(side.runs) > 1 else side.first.status
        result.append(
            f"{letter}: {side.name} ({side.first.scenario.get('name', 'scenario')}, "
            f"{str(side.first.header.get('start', ''))[:19].replace('T', ' ')} UTC, {runs_text})"
        )
    columns = ["program", *(f"{h} s" for h in HEADINGS), "slowdown", "95 %", "B is", "flags"]
    rows = []
    for name, cells, m, copy in rows_of(c):
        notes = [flags_text(m)] if copy is None or len(m.copies) == 1 else []
        notes += [copy.reason] if copy is not None else []
        rows.append([name, *cells, "; ".join(filter(None, notes))])
    result += ["", table(columns, rows, left=(0, len(columns) - 1))]
    result += [samples_text(c), ""]
    rows = [[TOTALS[n], value_text(n, a), value_text(n, b), change_text(a, b)] for n, a, b in c.totals]
    result.append(table(["total", "A", "B", "B over A"], rows))
    if c.differ:
        result += ["", "what differs:"]
        result += [f"  {quantity}: {a} → {b}" for quantity, a, b in c.differ]
    for letter, names in (("A", c.only_a), ("B", c.only_b)):
        if names:
            result.append(f"only in {letter}: {', '.join(names)}")
    return "\n".join(result) + "\n"
