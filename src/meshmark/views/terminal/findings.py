"""Prints the findings of the doctor as a table, followed by the commands that change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meshmark.doctor.finding import HostFinding, Judgement
from meshmark.views.tables import Cells, Emphasis, TextCell, TextTable
from meshmark.views.terminal.screen import print_table, table_console

_EMPHASIS: Final[dict[Judgement, Emphasis]] = {
    "wrong": "bad",
    "slows": "bad",
    "spoils-measurements": "bad",
    "hidden": "doubtful",
    "unknown": "dim",
    "ok": "good",
}


def print_findings(findings: Sequence[HostFinding]) -> None:
    """Print a table of the findings, and the commands that change them."""
    rows: list[Cells] = [
        [TextCell(f.verdict.partition("-")[0], _EMPHASIS[f.verdict]), f.name, f.value, f.effect] for f in findings
    ]
    console = table_console(160)
    print_table(console, TextTable(["judged", "what", "found", "why it matters"], rows, folds=(1, 2, 3)))
    fixable = [f for f in findings if f.command]
    if fixable:
        console.print("\nto change them", style="bold")
    for f in fixable:
        print(f"{f.name}\n    {f.command}")  # on one line, so that it can be copied
