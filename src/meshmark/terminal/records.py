"""Prints records as a table."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from meshmark.values.units import plain, wide_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshmark.store.record import Record

_HIDDEN = {"derived_from", "memory_groups", "word_bytes"}  # in addition to observed conditions


def print_records(records: list[Record]) -> None:
    """Print one table. Conditions that vary become columns; common ones are in the title. Prints nothing if empty.

    Modes of runs that do not meet follow as lines.
    """
    if not records:
        return
    from rich.console import Console
    from rich.table import Table

    everything = records
    records, columns = _columns(everything)
    common = [f"{k} {records[0].conditions.get(k)}" for k in _keys(records) if k not in columns]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("metric", *columns):
        table.add_column(name, overflow="fold")
    for name in ("median", "95 % interval", "best", "spread", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("flags", no_wrap=True)
    order = sorted(records, key=lambda r: [_sort_key(r.conditions.get(k)) for k in columns])
    for r in sorted(order, key=lambda r: r.metric):
        interval = f"{plain(r.bounds[0], r.unit)} – {plain(r.bounds[1], r.unit)}" if r.bounds else "–"
        interval += f" ({wide})" if (wide := wide_text(r.half_width, r.interval_asked)) and not r.converged else ""
        spread = "–" if math.isnan(r.spread) else f"{100 * r.spread:.1f} %"
        table.add_row(
            r.metric,
            *[_shown(k, r.conditions.get(k)) for k in columns],
            plain(r.value, r.unit),
            interval,
            "–" if r.best is None else plain(r.best, r.unit),
            spread,
            str(len(r.samples)),
            " ".join(sorted(r.flags)),
        )
    # No markup, because conditions such as topologies may contain brackets.
    console = Console(width=None if sys.stdout.isatty() else 220, highlight=False, markup=False, emoji=False)
    console.print(f"{records[0].machine}: {records[0].instrument}  ({', '.join(common)})", style="dim")
    console.print(table)
    print_modes(everything)


def _keys(records: Sequence[Record]) -> list[str]:
    from meshmark.store.record import set_conditions

    return [k for k in set_conditions(records) if k not in _HIDDEN]


def _columns(records: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """The records that are not modes of others, and the conditions in which they differ."""
    from meshmark.store.record import MODE, varying

    points = [r for r in records if not r.metric.endswith(MODE)]
    return points, varying(_keys(points), points)


def print_modes(records: Sequence[Record]) -> None:
    """Print the modes of each point that has several, a line each."""
    from meshmark.report.selection import modes_of, modes_texts

    points, columns = _columns(records)
    for r in points:
        if modes := modes_of(records, r):
            values, counts = modes_texts(modes)
            where = ", ".join(f"{k} {_shown(k, r.conditions[k])}" for k in columns if r.conditions.get(k) is not None)
            print(f"modes: {r.metric}{' of ' + where if where else ''}: {values}, {counts}")


def _sort_key(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if _is_number(value) else (1, 0.0, str(value))


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "–"
    return plain(float(value), "B") if key.endswith("_bytes") and _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    """Whether `value` is a number in the range of a float, which imported data may exceed."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
