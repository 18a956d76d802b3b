"""Prints tables: the renderer for terminals and pipes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from meshmark.values.units import NBSP
from meshmark.views.tables import TableSection, TextCell, TextTable, legend, letters

if TYPE_CHECKING:
    from rich.console import Console

PIPE_COLUMNS: Final = 200  # width if standard output is not a terminal
_FOLDED: Final = 20  # minimum width of columns that fold, unless their text is narrower
_GAP: Final = 2
_STYLES: Final = {"bold": "bold", "best": "bold", "dim": "dim", "good": "green", "bad": "red", "doubtful": "yellow"}


def table_console(pipe_columns: int = PIPE_COLUMNS, stderr: bool = False) -> Console:
    """Return a console without markup, because conditions such as topologies may contain brackets.

    Args:
        pipe_columns: Width if the output is not a terminal.
        stderr: Print on standard error, because standard output belongs to a command.
    """
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else pipe_columns
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def print_table(console: Console, table: TextTable) -> list[str]:
    """Print a table without its empty columns, as several tables below each other if it is wider than the console.

    Each of them begins with the first column. Flags are printed as letters, without the flags that all results have.

    Returns:
        The names of the columns that are left out because they do not fit.
    """
    common_flags = table.common_flags
    texts = [[_text(cell, common_flags) for cell in row] for row in table.rows]
    widths = {i: _width(table.head[i], *(row[i] for row in texts if i < len(row))) for i in table.columns_with(texts)}
    widths |= {i: min(widths[i], _FOLDED) for i in table.folds if i in widths}
    left_out = []
    for i in table.spare:
        if sum(widths.values()) + _GAP * (len(widths) - 1) <= console.width:
            break
        if widths.pop(i, 0):
            left_out.append(table.head[i])
    for number, block in enumerate(_blocks(widths, console.width) if widths else ()):
        if number:
            console.print()
        _print_block(console, table, texts, {i: widths[i] for i in block})
    return left_out


def print_sections(console: Console, sections: Iterable[TableSection]) -> None:
    """Print tables, each with its title, its notes and the conclusions from it."""
    for number, section in enumerate(sections):
        if number:
            console.print()
        table = section.table
        title = f"{section.about}, {section.title}" if section.about else section.title
        common_flags = table.common_flags
        common = f"; all {', '.join(sorted(common_flags))}" if common_flags else ""
        console.print(title + common, style="dim", soft_wrap=True)
        if table.rows:
            print_table(console, table)
        cells = [cell for row in table.rows for cell in row if isinstance(cell, TextCell)]
        rest = {flag for cell in cells for flag in cell.flags or ()} - common_flags
        notes = [*section.notes]
        if rest:
            notes[:1] = ["; ".join([*notes[:1], *legend(rest)])]
        for note in notes:
            console.print(note.replace(NBSP, " "), style="dim")
        if section.heading:
            console.print(f"{section.heading}:")
        for line in section.lines:
            console.print(f"  {line}", soft_wrap=True)


def _text(cell: TextCell | str, common_flags: frozenset[str]) -> str:
    """Return what the terminal shows of a cell: a star if it is the best, its text, and the letters of its flags."""
    if isinstance(cell, str):
        return cell.replace(NBSP, " ")
    marks = letters(set(cell.flags or ()) - common_flags)
    star = "*" if cell.emphasis == "best" else ""
    return " ".join(filter(None, (star + cell.text.replace(NBSP, " "), marks)))


def _width(*texts: str) -> int:
    from rich.cells import cell_len

    return max(cell_len(line) for text in texts for line in text.split("\n"))


def _blocks(widths: dict[int, int], available: int) -> list[list[int]]:
    """Return the columns of tables that fit, to print below each other; each begins with the first column."""
    first, *other_columns = widths
    blocks = [[first]]
    for i in other_columns:
        if len(blocks[-1]) > 1 and sum(widths[k] + _GAP for k in (*blocks[-1], i)) - _GAP > available:
            blocks.append([first])
        blocks[-1].append(i)
    return blocks


def _print_block(console: Console, table: TextTable, texts: Sequence[Sequence[str]], widths: dict[int, int]) -> None:
    from rich.table import Table
    from rich.text import Text

    block = Table(box=None, pad_edge=False, header_style="bold")
    for i, width in widths.items():
        folds = i in table.folds and width == _FOLDED
        block.add_column(
            Text(table.head[i]),
            justify="right" if i in table.numbers else "left",
            min_width=width if i in table.folds else None,
            no_wrap=not folds,
            overflow="fold" if folds else "ellipsis",
        )
    for cells, row in zip(table.rows, texts, strict=True):
        styles = [_STYLES.get(cell.emphasis, "") if isinstance(cell, TextCell) else "" for cell in cells]
        block.add_row(*(Text(row[i], styles[i]) if i < len(row) else "" for i in widths))
    console.print(block)
