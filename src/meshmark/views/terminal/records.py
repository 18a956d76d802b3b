"""Prints records as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from meshmark.store.record import MODE_SUFFIX, Record, varying
from meshmark.values.units import percent, plain
from meshmark.views.content.listing import RecordListing, conditions_text, listings, shown, title, visible
from meshmark.views.content.selection import bounds_text, modes_of, modes_texts
from meshmark.views.tables import Cells, TextCell, TextTable
from meshmark.views.terminal.screen import print_table, table_console

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_COLUMNS: Final = 220  # width if standard output is not a terminal
# Columns after the conditions, by names that no condition has: `n` is also the order of a matrix.
_MORE: Final = {":best": "best", ":spread": "spread", ":n": "n"}


def print_records(records: list[Record]) -> None:
    """Print a table for each set of conditions, or nothing if there are no records.

    Value, interval and flags come first, then the conditions in which the results differ; the shared conditions
    stand above. Modes of points whose runs settle at different levels follow as lines.
    """
    if not records:
        return

    console = table_console(_PIPE_COLUMNS)
    shared, tables = listings(_points(records))
    common = conditions_text(shared, records[0])
    about = f"{records[0].machine}: {records[0].instrument}"
    console.print(f"{about} ({common})" if common else about, style="dim")
    left_out = dict.fromkeys(name for listing in tables for name in _print_listing(console, listing))
    requested_widths = {
        f"{100 * r.requested_half_width:g} %" for r in records if r.requested_half_width is not None and not r.converged
    }
    if requested_widths:
        console.print(f"±: wider than the ±{' or '.join(sorted(requested_widths))} requested", style="dim")
    if left_out:
        console.print(f"not shown at this width: {', '.join(left_out)}", style="dim")
    print_modes(records)


def _print_listing(console: Console, listing: RecordListing) -> list[str]:
    """Print a listing and return the columns that are left out because they do not fit, the least informative first."""
    records = listing.records
    common_flags = frozenset.intersection(*(r.flags for r in records))
    heads = [] if listing.metrics else [records[0].metric]
    heads += [conditions_text(listing.common, records[0])] if listing.common else []
    heads += [f"all {', '.join(sorted(common_flags))}"] if common_flags else []
    if heads:
        console.print("; ".join(heads), style="dim", soft_wrap=True)
    return print_table(console, _table(listing, common_flags))


def _table(listing: RecordListing, everywhere: frozenset[str]) -> TextTable:
    records = listing.records
    published = all(r.source == "paper" for r in records)
    names = ["metric"] if listing.metrics else []
    numbers = [len(names), len(names) + 1]
    names += ["value" if published else "median", "95 % interval", "flags", *(["statistic"] if published else [])]
    places = {k: len(names) + i for i, k in enumerate((*listing.columns, *_MORE))}
    spare = [places[name] for name in (":n", *reversed(listing.determined), ":spread", ":best")]
    rows: list[Cells] = [
        [
            *([r.metric] if listing.metrics else []),
            plain(r.value, r.unit),
            _interval(r),
            TextCell(" ".join(sorted(r.flags - everywhere))),
            *([str(r.provenance.get("statistic", "not stated"))] if published else []),
            *(shown(k, r.conditions.get(k)) for k in listing.columns),
            *_more(r),
        ]
        for r in records
    ]
    numbers += [places[name] for name in _MORE]
    names += [*map(title, listing.columns), *_MORE.values()]
    return TextTable(names, rows, numbers, folds=set(range(len(names))) - set(numbers), spare=spare)


def _more(record: Record) -> tuple[str, str, str]:
    """Return best, spread and number of the samples.

    For a published number, these are only what the publication says about its runs.
    """
    best = "–" if record.best is None else plain(record.best, record.unit)
    spread = "–" if math.isnan(record.spread) or len(record.samples) < 2 else f"{100 * record.spread:.1f} %"
    if record.source != "paper" or len(record.samples) > 1:
        return best, spread, str(len(record.samples))
    published_spread = record.provenance.get("spread")
    return (
        best if str(record.provenance.get("statistic")).startswith("best") else "–",
        f"{100 * published_spread:.1f} %" if isinstance(published_spread, int | float) else "–",
        str(record.provenance.get("runs", "unknown")),
    )


def _interval(record: Record) -> str:
    """Return the interval as text, with its half width if it is wider than requested."""
    text = bounds_text(record, precision=4)
    if not record.converged:
        text += f" ±{percent(record.half_width)}" if record.half_width is not None else " ±?"
    return text.replace("\u00a0", " ")


def _points(records: Sequence[Record]) -> list[Record]:
    """Return the records that are not modes of other records."""
    return [r for r in records if not r.metric.endswith(MODE_SUFFIX)]


def print_modes(records: Sequence[Record]) -> None:
    """Print the modes of each point that has several modes, one line each."""
    points = _points(records)
    columns = varying(visible(points), points)
    for r in points:
        if modes := modes_of(records, r):
            values, counts = modes_texts(modes)
            where = conditions_text([k for k in columns if r.conditions.get(k) is not None], r)
            print(f"modes: {r.metric}{' of ' + where if where else ''}: {values}, {counts}")
