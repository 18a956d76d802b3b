"""Prints the history of a machine."""

from __future__ import annotations

from datetime import datetime

from meshmark.compare.history import History
from meshmark.values.units import NBSP
from meshmark.views.content.history import METHOD, groups, left_out, staleness, summary
from meshmark.views.terminal.screen import print_table, table_console


def print_history(h: History, now: datetime, stale_s: float) -> None:
    """Print the changes of level, newest first, what else changed then, and the age of the newest results.

    Args:
        h: The history.
        now: Time with a zone, from which ages are counted.
        stale_s: Age in s above which the newest result of an instrument is marked.
    """
    console = table_console()
    console.print(summary(h), soft_wrap=True)
    changes = groups(h)
    for group in changes:
        console.print()
        console.print(f"{group.when}, runs {group.runs}", style="bold", soft_wrap=True)
        console.print(f"also changed: {group.facts}", soft_wrap=True)
        print_table(console, group.table)
    console.print()
    for text in left_out(h):
        console.print(text.replace(NBSP, " "), style="dim", soft_wrap=True)
    if changes:
        console.print(METHOD.replace(NBSP, " "), style="dim", soft_wrap=True)
    console.print(staleness(h, now, stale_s), soft_wrap=True)
