"""Makes tables and their consoles."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from meshmark.values.units import NBSP

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

PIPE_COLUMNS = 200  # width if standard output is not a terminal


def table_console(pipe_columns: int = PIPE_COLUMNS) -> Console:
    """Return a console without markup, because conditions such as topologies may contain brackets.

    Args:
        pipe_columns: Width if standard output is not a terminal.
    """
    from rich.console import Console

    width = None if sys.stdout.isatty() else pipe_columns
    return Console(width=width, highlight=False, markup=False, emoji=False)


def text_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    numbers: Collection[int] = (),
    folds: Collection[int] = (),
) -> Table:
    """Return a table for the terminal from the same head and rows as the tables of pages and of Markdown.

    Args:
        head: The names of the columns.
        rows: Cells as formatted text; no-break spaces are printed as spaces.
        numbers: Columns that are aligned to the right.
        folds: Columns that may take several lines.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(head):
        table.add_column(
            name,
            justify="right" if i in numbers else "left",
            no_wrap=i not in folds,
            overflow="fold" if i in folds else "ellipsis",
        )
    for row in rows:
        table.add_row(*(cell.replace(NBSP, " ") if isinstance(cell, str) else cell for cell in row))
    return table
