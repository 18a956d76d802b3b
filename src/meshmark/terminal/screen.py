"""Makes the consoles of tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_COLUMNS = 200  # width if standard output is not a terminal


def table_console(pipe_columns: int = PIPE_COLUMNS) -> Console:
    """A console without markup, because conditions such as topologies may contain brackets.

    Args:
        pipe_columns: Width if standard output is not a terminal.
    """
    from rich.console import Console

    width = None if sys.stdout.isatty() else pipe_columns
    return Console(width=width, highlight=False, markup=False, emoji=False)
