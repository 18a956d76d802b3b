"""Selects the newest results of a machine in DuckDB, because parsing all records of a month takes seconds."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from meshmark.errors import UsageError, quoted
from meshmark.store.columns import POINT
from meshmark.store.record import OBSERVED, Record
from meshmark.store.store import Store
from meshmark.values.arrow import listed

if TYPE_CHECKING:
    from arro3.core import Table

# If there is only one run, all of its results are the newest; the window, which takes most of the time, is skipped.
_QUERY: Final = """
    WITH found AS (SELECT *, row_number() OVER () AS place FROM {rows}),
         runs AS (SELECT run, coalesce(min(start), '') AS run_start FROM found GROUP BY run),
         counted AS (SELECT count(*) AS runs FROM runs WHERE {when}),
         dated AS (SELECT found.*, run_start, counted.runs FROM found JOIN runs USING (run), counted WHERE {when})
    SELECT * EXCLUDE (run_start) FROM (
        SELECT * FROM dated WHERE runs = 1
        UNION ALL
        SELECT * FROM dated WHERE runs > 1 QUALIFY run_start = max(run_start) OVER (PARTITION BY {key})
    ) ORDER BY place"""


@dataclass(frozen=True, slots=True)
class NewestResults:
    """The results of the newest run of each point, and perhaps some older results.

    Attributes:
        rows: Run, step and record of each result, in the order of the files.
        runs: Number of runs from which the results were selected.
    """

    rows: list[tuple[str, str, Record]]
    runs: int


def _key(observed: Collection[str]) -> str:
    """Return SQL of a key that may split one point into several.

    An older result may then be returned, too, but no result is lost.
    """
    patch = json.dumps(dict.fromkeys(sorted(observed)))  # a JSON patch that removes the observed conditions
    columns = ["source", "instrument", "metric", *(name for name in POINT if name not in observed)]
    return ", ".join([*columns, f"json_merge_patch(TRY_CAST(conditions AS JSON), '{patch}')"])


def newest(store: Store, machine: str, until: str = "", observed: Collection[str] = OBSERVED) -> NewestResults:
    """Return the newest results of a machine.

    Args:
        machine: Id of the machine.
        until: An ISO date and time, or its first part. Runs that began later are left out; "" leaves out none.
        observed: Names of conditions that do not distinguish points.

    Raises:
        UsageError: `until` is neither a date and time nor its first part.
    """
    if not re.fullmatch("[0-9T:.Z-]*", until):
        raise UsageError(
            f"date: found '{quoted(until)}'; allowed: a date and time or its first part, such as 2026-10-25"
        )
    predicate = f"left(run_start, {len(until)}) <= '{until}'" if until else "true"
    counts: list[int] = []  # the same in every row

    def rows(table: Table) -> list[tuple[str, str, Record]]:
        counts.extend(listed(table["runs"].slice(0, 1)))
        return store.rows_in(table)

    newest_rows = store.selected(
        _QUERY.replace("{when}", predicate).replace("{key}", _key(observed)), rows, machine=machine
    )
    return NewestResults(newest_rows, counts[0] if counts else 0)


def first_start(store: Store, machine: str) -> str:
    """Return the start of the first run of a machine, ISO 8601; "" if unknown."""
    rows = store.select("SELECT min(start) AS first FROM {rows}", machine=machine)
    return str(rows[0]["first"] or "") if rows else ""
