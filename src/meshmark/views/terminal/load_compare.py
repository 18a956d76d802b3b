"""Prints the comparison of two load runs."""

from __future__ import annotations

from meshmark.load.compare import LoadComparison
from meshmark.views.content.load_compare import load_sections
from meshmark.views.terminal.screen import print_sections, table_console


def print_load_comparison(c: LoadComparison) -> None:
    """Print both sides, the programs, the totals, and the conditions that differ."""
    console = table_console()
    for letter, side in (("A", c.a), ("B", c.b)):
        runs_text = f"{len(side.runs)} runs" if len(side.runs) > 1 else side.first.status
        start = str(side.first.header.get("start", ""))[:19].replace("T", " ")
        about = f"{side.first.scenario.get('name', 'scenario')}, {start} UTC, {runs_text}"
        console.print(f"{letter}: {side.name} ({about})", soft_wrap=True)
    console.print()
    print_sections(console, load_sections(c))
