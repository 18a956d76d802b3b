"""Prints the findings of the doctor as a table, followed by the commands that change them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from meshmark.doctor.finding import Finding, Judged

STYLES: Final[dict[Judged, str]] = {
    "wrong": "bold red",
    "slows": "bold red",
    "spoils-measurements": "bold red",
    "hidden": "yellow",
    "unknown": "dim",
    "ok": "green",
}


def print_findings(findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("judged", no_wrap=True)
    for name, ratio in (("what", 3), ("found", 4), ("why it matters", 5)):
        table.add_column(name, ratio=ratio, overflow="fold")
    for f in findings:
        judged = Text(f.judged.partition("-")[0], style=STYLES[f.judged])
        table.add_row(judged, Text(f.name), Text(f.found), Text(f.why))
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    fixable = [f for f in findings if f.command]
    if fixable:
        console.print(Text("\nto change them", style="bold"))
    for f in fixable:
        print(f"{f.name}\n    {f.command}")  # on one line, so that it can be copied
