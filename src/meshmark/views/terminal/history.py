"""Prints the history of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from meshmark.values.units import NBSP
from meshmark.views.terminal.screen import table_console, text_table

if TYPE_CHECKING:
    from rich.table import Table

    from meshmark.compare.history import History
    from meshmark.views.pages.history import Line


def print_history(h: History, now: datetime, stale_s: float) -> None:
    """Print the changes of level, newest first, what else changed then, and the age of the newest results.

    Args:
        stale_s: Age in s above which the newest result of an instrument is marked.
    """

    from meshmark.views.pages.history import METHOD, groups, left_out, staleness, summary

    console = table_console()
    console.print(summary(h), soft_wrap=True)
    changes = groups(h)
    for group in changes:
        console.print()
        console.print(f"{group.when}, runs {group.runs}", style="bold", soft_wrap=True)
        console.print(f"also changed: {group.facts}", soft_wrap=True)
        console.print(_table(group.lines))
    console.print()
    for text in left_out(h):
        console.print(text.replace(NBSP, " "), style="dim", soft_wrap=True)
    if changes:
        console.print(METHOD.replace(NBSP, " "), style="dim", soft_wrap=True)
    console.print(staleness(h, now, stale_s), soft_wrap=True)


def _table(lines: Sequence[Line]) -> Table:
    columns = ["metric", "point", "before", "95 %", "after", "95 %", "after/before", "95 %", "it is", "runs"]
    rows = (
        (
            line.metric,
            line.point or "–",
            line.before,
            line.before_interval,
            line.after,
            line.after_interval,
            line.ratio,
            line.interval,
            line.word,
            line.runs,
        )
        for line in lines
    )
    return text_table(columns, rows, numbers=(*range(2, 8), 9), folds=(0, 1))
