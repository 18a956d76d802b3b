"""The table of machines in a store: the software and settings under which each machine gave its results.

A row is valid from the time `seen` until the next row of its machine, so the start of a result is enough to find its
row.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from meshmark.store.columns import MACHINE_COLUMNS
from meshmark.store.store import Store

FACTS: Final = MACHINE_COLUMNS[2:]
Row = Mapping[str, str]  # column → text; unknown facts are left out


def machines(store: Store, machine: str = "") -> list[dict[str, str]]:
    """Return the rows of a machine, or of all machines if `machine` is "", ordered by `seen`."""
    rows = store.machine_rows(machine)
    text_rows = [{k: str(v) for k, v in row.items() if v is not None} for row in rows]
    return sorted(text_rows, key=lambda row: (row["seen"], row["machine"]))


def without_facts(store: Store) -> list[dict[str, str]]:
    """Return a row with sources and number of records for each machine that has results but no facts.

    Imported and modelled machines have no facts.
    """
    machines_with_facts = {row["machine"] for row in store.machine_rows()}
    rows = store.select(
        """SELECT machine, min(start) AS seen, string_agg(DISTINCT source, ', ' ORDER BY source) AS source,
                  string_agg(DISTINCT instrument, ', ' ORDER BY instrument) AS instruments, count(*) AS records
           FROM {rows} GROUP BY machine ORDER BY machine"""
    )
    return [
        {k: str(v) for k, v in row.items() if v is not None}
        for row in rows
        if row["machine"] not in machines_with_facts
    ]


def add_machine(store: Store, machine: str, facts: Mapping[str, str], seen: str) -> None:
    """Add a row, unless the last row of the machine has the same facts.

    Args:
        machine: Id of the machine.
        facts: Text of each fact, by its name in `FACTS`.
        seen: Time from which the facts are valid, ISO 8601 in UTC.

    Raises:
        MeshmarkError: The store cannot be written.
    """
    rows = machines(store, machine)
    if rows and {k: v for k, v in rows[-1].items() if k in FACTS} == dict(facts):
        return
    name = f"{re.sub('[^0-9T]', '', seen[:19])}-{secrets.token_hex(4)}"
    store.add_machine_row({"machine": machine, "seen": seen, **facts}, name)


def changes(rows: Sequence[Row], since: str) -> list[str]:
    """Return the facts that changed since a time, such as `kernel 6.1 → 6.12`.

    The last row is compared with the row that was valid at that time, or with the first row if there was none yet.

    Args:
        rows: The rows of one machine, as `machines` returns them.
        since: The time, ISO 8601 in UTC.
    """
    if not rows:
        return []
    earlier_row = next((row for row in reversed(rows) if row["seen"] <= since), rows[0])
    last_row = rows[-1]
    changed = [k for k in FACTS if earlier_row.get(k) != last_row.get(k)]
    texts = [f"{k} {earlier_row.get(k, 'unknown')} → {last_row.get(k, 'unknown')}" for k in changed if k != "boot"]
    return texts or (["a new boot"] if changed else [])
