"""Prints declared numbers beside measured ones."""

from __future__ import annotations

from collections.abc import Sequence

from meshmark.compare.declared import Declaration
from meshmark.values.units import ratio_text, show
from meshmark.views.content.compared_rows import interval_text
from meshmark.views.tables import TextTable
from meshmark.views.terminal.screen import print_table, table_console


def print_declared(rows: Sequence[Declaration]) -> None:
    """Print a table with a row for each declaration."""
    columns = ["part", "quantity", "by", "declared", "measured", "ratio", "95 %", "verdict", "because"]
    cells = [
        [
            row.part,
            row.quantity,
            row.source,
            show(row.declared, row.unit),
            "–" if row.value is None else show(row.value, row.unit),
            "–" if row.ratio is None else ratio_text(row.ratio.value),
            interval_text(None if row.ratio is None else row.ratio.interval),
            row.word,
            row.reason,
        ]
        for row in rows
    ]
    print_table(table_console(), TextTable(columns, cells, numbers=range(3, 7), folds=[8]))
