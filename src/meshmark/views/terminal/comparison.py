"""Prints the comparison of two or more machines or runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from meshmark.values.units import NBSP, ratio_text
from meshmark.views.terminal.screen import table_console, text_table

if TYPE_CHECKING:
    from rich.table import Table

    from meshmark.compare.join import Comparison
    from meshmark.views.content.compared_rows import Cell, Line

_SHORT: Final = {"inconclusive": "?", "not comparable": "–"}  # in the columns of tables of several sides
_LEGEND: Final = "?: inconclusive; –: not comparable, or no result of this kind"


def print_comparison(comparisons: Sequence[Comparison], every: bool) -> None:
    """Print all results that are not shown to be equal, metric by metric, then the number of each verdict.

    Args:
        comparisons: The comparisons of A with each of the other sides.
        every: Print the equal results, too.
    """

    from meshmark.views.content.compared_rows import blocks, named, sides_of
    from meshmark.views.pages.comparison import hops_texts, left_over, lettered, published, side_text, summaries

    console = table_console()
    for letter, side in sides_of(comparisons):
        console.print(f"{letter}: {side_text(side)}", soft_wrap=True)
    for letter, c in lettered(comparisons):
        for name, a_fact, fact in c.facts:
            console.print(f"differs: {name}: A {a_fact}, {letter} {fact}", style="dim", soft_wrap=True)
    if any(c.means() for c in comparisons):
        console.print()
        console.print(_means(comparisons))
    equal = 0
    for block in blocks(comparisons):
        shown = [line for line in block.lines if every or any(cell and cell.word != "equal" for cell in line.cells)]
        equal += len(block.lines) - len(shown)
        if shown:
            about = f" ({block.common})" if block.common else ""
            console.print()
            console.print(f"{named(block.instrument, block.metric)}{about}", soft_wrap=True)
            console.print(_table(shown) if len(comparisons) == 1 else _columns(shown, lettered(comparisons)))
    console.print()
    several = len(comparisons) > 1
    for text in [_LEGEND] if several else left_over(comparisons[0]):
        console.print(text, style="dim", soft_wrap=True)
    for text in hops_texts(comparisons):
        console.print(text, soft_wrap=True)
    for text in published(comparisons):
        console.print(text, style="dim", soft_wrap=True)
    for text, reasons in summaries(comparisons):
        console.print(text.replace(NBSP, " "), soft_wrap=True)
        for reason in reasons:
            console.print(reason.replace(NBSP, " "), style="dim", soft_wrap=True)
    if several:
        console.print("compare A with one side to see what is not compared, and why", style="dim")
    if equal:
        console.print(f"{equal} equal result{'s are' if equal > 1 else ' is'} not listed (--all)", style="dim")


def _means(comparisons: Sequence[Comparison]) -> Table:
    from meshmark.views.content.compared_rows import interval_text, named, remark
    from meshmark.views.pages.comparison import lettered

    several = len(comparisons) > 1
    columns = [
        "geometric mean of",
        *(["side"] if several else []),
        "over A" if several else "B over A",
        "95 %",
        "results",
    ]
    rows = []
    for letter, c in lettered(comparisons):
        for m in c.means():
            cells = [ratio_text(m.value), interval_text(m.interval), str(m.pairs), remark(m)]
            rows.append([named(m.instrument, m.metric), *([letter] if several else []), *cells])
    last = len(columns)
    return text_table([*columns, ""], rows, numbers=range(1, last), folds=(0, last))


def _table(lines: Sequence[Line]) -> Table:
    """Return a table of two sides: value, ratio, interval and verdict of each result."""
    cells = [(line, cell) for line in lines for cell in line.cells if cell]
    reasons = any(cell.reason for _, cell in cells)
    columns = ["point", "A", "B", "B over A", "95 %", "B is", *(["because"] if reasons else [])]
    rows = (
        [
            line.point or "–",
            line.a,
            cell.value,
            cell.ratio,
            cell.interval,
            cell.word,
            *([cell.reason] if reasons else []),
        ]
        for line, cell in cells
    )
    return text_table(columns, rows, numbers=range(1, 5), folds=(0, 6))


def _columns(lines: Sequence[Line], others: Sequence[tuple[str, Comparison]]) -> Table:
    """Return a table of several sides with value, ratio and verdict of each side."""
    columns = ["point", "A", *(name for letter, _ in others for name in (letter, "over A"))]
    rows = ([line.point or "–", line.a, *(text for cell in line.cells for text in _texts(cell))] for line in lines)
    return text_table(columns, rows, numbers=(1, *range(2, len(columns), 2)), folds=[0])


def _texts(cell: Cell | None) -> tuple[str, str]:
    if cell is None:
        return "–", ""
    return cell.value, f"{cell.ratio} {_SHORT.get(cell.word, cell.word)}"
