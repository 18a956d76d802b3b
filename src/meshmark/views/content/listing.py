"""Lays out results as tables that are alike on pages and in terminals."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.describe import chosen_conditions
from meshmark.store.record import Record, varying
from meshmark.values.units import percent, plain, show
from meshmark.views.content.selection import interval_text, number_in
from meshmark.views.tables import Cells, TableSection, TextCell, TextTable

_HIDDEN: Final = frozenset({"derived_from", "memory_groups", "word_bytes"})  # in addition to observed conditions
_TRIALS: Final = "trial_"  # prefix of the rates of the libraries that were tried: views only name the chosen library


@dataclass(frozen=True, slots=True)
class RecordListing:
    """Results that have the same conditions, with different values.

    Attributes:
        records: Records ordered by metric, then by the values of `columns`.
        metrics: Whether there are several metrics.
        columns: Conditions in which the results differ.
        determined: The columns whose value another column determines, such as the traffic of a kernel.
        common: Conditions that the results share, but other listings do not.
    """

    records: Sequence[Record]
    metrics: bool
    columns: Sequence[str]
    determined: Sequence[str]
    common: Sequence[str]


def visible(records: Sequence[Record], hidden: Collection[str] = ()) -> list[str]:
    """Return the conditions that views show."""
    return [k for k in chosen_conditions(records) if not (k in _HIDDEN or k in hidden or k.startswith(_TRIALS))]


def listings(records: Sequence[Record], hidden: Collection[str] = ()) -> tuple[list[str], list[RecordListing]]:
    """Return the conditions that all results share, and a listing for each set of conditions.

    A set is the conditions that some of the results have besides the shared ones.

    Args:
        hidden: Conditions that are left out.
    """
    keys = visible(records, hidden)
    differing = varying(keys, records)
    groups: dict[tuple[str, ...], list[Record]] = {}
    for r in records:
        groups.setdefault(tuple(k for k in differing if r.conditions.get(k) is not None), []).append(r)
    result = []
    for present, members in groups.items():
        columns = varying(present, members)
        members.sort(key=lambda r: (r.metric, *(in_order(r.conditions.get(k)) for k in columns)))
        common = [k for k in present if k not in columns]
        result.append(
            RecordListing(members, len({r.metric for r in members}) > 1, columns, _determined(columns, members), common)
        )
    return [k for k in keys if k not in differing], result


def _determined(columns: Sequence[str], records: Sequence[Record]) -> list[str]:
    """Return the columns whose value follows from the value of an earlier column, and not the other way round."""

    def values(*keys: str) -> int:
        return len({tuple(str(r.conditions.get(k)) for k in keys) for r in records})

    determined: list[str] = []
    for i, k in enumerate(columns):
        if any(values(c) == values(c, k) < len(records) for c in columns[:i] if c not in determined):
            determined.append(k)
    return determined


def result_tables(records: Sequence[Record], hidden: Collection[str], limit: int) -> tuple[str, list[TableSection]]:
    """Return what all results share, and a table for each listing.

    Args:
        hidden: Conditions that are left out.
        limit: Most rows of all tables together.
    """
    shared, groups = listings(records, hidden)
    tables: list[TableSection] = []
    for group in groups:
        if not (rows := group.records[:limit]):
            break
        limit -= len(rows)
        names = [] if group.metrics else [rows[0].metric.replace("_", " ")]
        common = conditions_text(group.common, rows[0])
        tables.append(TableSection(", ".join([*names, common] if common else names), _table(group, rows)))
    return conditions_text(shared, records[0]) if records else "", tables


def _table(listing: RecordListing, records: Sequence[Record]) -> TextTable:
    """Return a table of value, interval and flags, followed by the conditions in which the results differ."""
    metric = ["metric"] * listing.metrics
    values = ["median", "95 % interval", "flags"]
    rows: list[Cells] = [
        [
            *(r.metric.replace("_", " ") for _ in metric),
            *(show(r.value, r.unit), interval_text(r), TextCell("", flags=r.flags)),
            *(shown(k, r.conditions.get(k)) for k in listing.columns),
            *("–" if r.best is None else show(r.best, r.unit), percent(r.spread), str(len(r.samples))),
        ]
        for r in records
    ]
    head = [*metric, *values, *(title(k) for k in listing.columns), "best", "spread", "n"]
    numbers = {*range(len(metric), len(metric) + 2), *range(len(head) - 3, len(head))}
    for i, k in enumerate(listing.columns, len(metric) + len(values)):
        numbers |= {i} if any(number_in(r.conditions.get(k)) is not None for r in records) else set()
    return TextTable(head, rows, numbers)


def title(key: str) -> str:
    """Return the heading of a condition's column, whose cells have units: `footprint`."""
    if key == "n":
        return "order"  # `n` is the order of a matrix; the last column `n` counts samples
    return key.removesuffix("_bytes").replace("_", " ")


def shown(key: str, value: Any) -> str:
    """Return the value of a condition: sizes with a unit, absent values as a dash."""
    if value is None:
        return "–"
    size = number_in(value) if key.endswith("_bytes") else None
    return str(value) if size is None else plain(size, "B")


def conditions_text(keys: Sequence[str], record: Record) -> str:
    """Return conditions of a record as text: `pages thp, threads 2`."""
    return ", ".join(f"{title(k)} {shown(k, record.conditions.get(k))}" for k in keys)


def in_order(value: Any) -> tuple[int, float, str]:
    """Return a sort key for the values of a condition: numbers by value, then texts."""
    number = number_in(value)
    return (1, 0.0, str(value)) if number is None else (0, number, "")
