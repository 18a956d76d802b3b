"""Prints the comparison of two machines or runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshmark.terminal.screen import table_console
from meshmark.values.units import NBSP, ratio_text

if TYPE_CHECKING:
    from rich.table import Table

    from meshmark.compare.join import Comparison, Mean
    from meshmark.report.comparison import Line


def print_comparison(c: Comparison, every: bool) -> None:
    """Print all results that are not shown to be equal, metric by metric, then the number of each verdict.

    Args:
        every: Print the equal results, too.
    """

    from meshmark.report.comparison import blocks, hops_texts, left_over, named, published, reasons, side_text, summary

    console = table_console()
    for letter, side in (("A", c.a), ("B", c.b)):
        console.print(f"{letter}: {side_text(side)}", soft_wrap=True)
    for name, one, other in c.facts:
        console.print(f"differs: {name}: {one} → {other}", style="dim", soft_wrap=True)
    made = blocks(c)
    if means := c.means():
        console.print()
        console.print(_means(means))
    hidden = 0
    for block in made:
        shown = [line for line in block.lines if every or line.word != "equal"]
        hidden += len(block.lines) - len(shown)
        if shown:
            about = f" ({block.common})" if block.common else ""
            console.print()
            console.print(f"{named(block.instrument, block.metric)}{about}", soft_wrap=True)
            console.print(_table(shown))
    console.print()
    for text in left_over(c):
        console.print(text, style="dim", soft_wrap=True)
    for text in hops_texts(c):
        console.print(text, soft_wrap=True)
    for text in published(c):
        console.print(text, style="dim", soft_wrap=True)
    console.print(summary(c).replace(NBSP, " "), soft_wrap=True)
    for text in reasons(c):
        console.print(text, style="dim", soft_wrap=True)
    if hidden:
        console.print(f"{hidden} equal result{'s are' if hidden > 1 else ' is'} not listed (--all)", style="dim")


def _means(means: Sequence[Mean]) -> Table:
    from rich.table import Table

    from meshmark.report.comparison import interval_text, named, remark

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("geometric mean of", overflow="fold")
    for name in ("B over A", "95 %", "results"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for m in means:
        cells = [ratio_text(m.value), interval_text(m.interval), str(m.pairs), remark(m)]
        table.add_row(named(m.instrument, m.metric), *cells)
    return table


def _table(lines: Sequence[Line]) -> Table:
    from rich.table import Table

    reasons = any(line.reason for line in lines)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("point", overflow="fold")
    for name in ("A", "B", "B over A", "95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("B is", no_wrap=True)
    if reasons:
        table.add_column("because", overflow="fold")
    for line in lines:
        cells = [line.point or "–", line.a, line.b, line.ratio, line.interval, line.word]
        table.add_row(*(cell.replace(NBSP, " ") for cell in cells), *([line.reason] if reasons else []))
    return table
