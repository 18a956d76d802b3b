"""Prints the comparison of two or more machines or runs."""

from __future__ import annotations

from collections.abc import Sequence

from meshmark.compare.join import ResultComparison
from meshmark.values.units import NBSP, ratio_text
from meshmark.views.content.compared_rows import LEGEND, blocks, compared_table, interval_text, named, remark, sides_of
from meshmark.views.content.compared_text import hops_texts, left_over, lettered, published, side_text, summaries
from meshmark.views.tables import Cells, TextCell, TextTable
from meshmark.views.terminal.screen import print_table, table_console


def print_comparison(comparisons: Sequence[ResultComparison], every: bool) -> None:
    """Print all results that are not shown to be equal, metric by metric, then the number of each verdict.

    Args:
        comparisons: The comparisons of A with each of the other sides.
        every: Print the equal results, too.
    """
    console = table_console()
    for letter, side in sides_of(comparisons):
        console.print(f"{letter}: {side_text(side)}", soft_wrap=True)
    for letter, c in lettered(comparisons):
        for name, a_fact, fact in c.facts:
            console.print(f"differs: {name}: A {a_fact}, {letter} {fact}", style="dim", soft_wrap=True)
    if any(c.means() for c in comparisons):
        console.print()
        print_table(console, _means(comparisons))
    equal = 0
    for block in blocks(comparisons, with_equal=every):
        equal += block.left_out
        if block.lines:
            about = f" ({block.common})" if block.common else ""
            console.print()
            console.print(f"{named(block.instrument, block.metric)}{about}", soft_wrap=True)
            print_table(console, compared_table(block.lines))
    console.print()
    several = len(comparisons) > 1
    for text in [LEGEND] if several else left_over(comparisons[0]):
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


def _means(comparisons: Sequence[ResultComparison]) -> TextTable:
    several = len(comparisons) > 1
    columns = [
        "geometric mean of",
        *(["side"] if several else []),
        "over A" if several else "B over A",
        "95 %",
        "results",
    ]
    rows: list[Cells] = []
    for letter, c in lettered(comparisons):
        for m in c.means():
            cells = [ratio_text(m.value), interval_text(m.interval), str(m.pairs)]
            rows.append([named(m.instrument, m.metric), *([letter] if several else []), *cells, TextCell(remark(m))])
    last = len(columns)
    return TextTable([*columns, ""], rows, numbers=range(1, last), folds=(0, last))
