"""Prints declared numbers beside measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshmark.terminal.screen import table_console
from meshmark.values.units import NBSP, ratio_text, show

if TYPE_CHECKING:
    from meshmark.compare.declared import Declaration


def print_declared(rows: Sequence[Declaration]) -> None:
    """A table with a row for each declaration."""
    from rich.table import Table

    from meshmark.report.compared_rows import interval_text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, right in (
        ("part", False),
        ("quantity", False),
        ("by", False),
        ("declared", True),
        ("measured", True),
        ("ratio", True),
        ("95 %", True),
        ("verdict", False),
        ("because", False),
    ):
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "because")
    for row in rows:
        ratio = row.ratio
        table.add_row(
            row.part,
            row.quantity,
            row.source,
            show(row.declared, row.unit).replace(NBSP, " "),
            "–" if row.value is None else show(row.value, row.unit).replace(NBSP, " "),
            "–" if ratio is None else ratio_text(ratio.value),
            interval_text(None if ratio is None else ratio.interval),
            row.word,
            row.reason,
        )
    table_console().print(table)
