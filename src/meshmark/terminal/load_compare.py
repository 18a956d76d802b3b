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
    """The comparison as tables of plain text."""
    out = []
    for letter, side in (("A", c.a), ("B", c.b)):
        of = f"{len(side.runs)} runs" if len(side.runs) > 1 else side.first.status
        out.append(
            f"{letter}: {side.name} ({side.first.scenario.get('name', 'scenario')}, "
            f"{str(side.first.header.get('start', ''))[:19].replace('T', ' ')} UTC, {of})"
        )
    head = ["program", *(f"{h} s" for h in HEADINGS), "slowdown", "95 %", "B is"]
    lines = table(head, [[name, *cells] for name, cells, _, _ in rows_of(c)]).splitlines()
    out += ["", f"{lines[0]}  flags"]
    for line, (_, _, m, one) in zip(lines[1:], rows_of(c), strict=True):
        notes = [flags_text(m)] if one is None or len(m.copies) == 1 else []
        notes += [one.reason] if one is not None and one.reason else []
        out.append(f"{line}{' ' * max(0, len(lines[0]) - len(line))}  {'; '.join(x for x in notes if x)}".rstrip())
    out += [samples_text(c), ""]
    rows = [[TOTALS[n], value_text(n, a), value_text(n, b), change_text(a, b)] for n, a, b in c.totals]
    out.append(table(["total", "A", "B", "B over A"], rows))
    if c.differ:
        out += ["", "what differs:"]
        out += [f"  {what}: {a} → {b}" for what, a, b in c.differ]
    for letter, only in (("A", c.only_a), ("B", c.only_b)):
        if only:
            out.append(f"only in {letter}: {', '.join(only)}")
    return "\n".join(out) + "\n"
