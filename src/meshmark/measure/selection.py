"""Checks the names that an export selects, so that a mistyped name is an error and not an empty result."""

from __future__ import annotations

from collections.abc import Mapping

from meshmark.describe import descriptions
from meshmark.errors import UsageError, near, quoted
from meshmark.machine.facts import host_id
from meshmark.store.store import Store

_HINTS = {
    "run": "meshmark store list",
    "machine": "meshmark store machines",
    "instrument": "meshmark list instruments",
    "metric": "meshmark list metrics",
}


def check_selection(store: Store, selected: Mapping[str, str], prefix: str = "") -> None:
    """Raise if a selected run, machine, instrument or metric is neither in the store nor known to Meshmark.

    Args:
        selected: Name by column.
        prefix: Beginning of the names of options, `--` on the command line.

    Raises:
        UsageError: A name is unknown; the message names the option.
    """
    for column, name in selected.items():
        stored = [str(row["name"]) for row in store.select(f"SELECT DISTINCT {column} AS name FROM {{rows}}")]
        known_names = {*stored, *_known(column)}
        if name not in known_names:
            hint = near(name, sorted(known_names)) or _HINTS[column]
            raise UsageError(f"{prefix}{column}: found no {column} '{quoted(name)}'", hint)


def _known(column: str) -> set[str]:
    """Return the names that are valid even if they are not in the store."""
    if column == "machine":
        return {host_id()}
    if column == "instrument":
        return {*descriptions()}
    if column == "metric":
        return {metric.name for description in descriptions().values() for metric in description.metrics}
    return set()
