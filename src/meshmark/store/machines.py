"""The table of machines in a store: the software and settings under which each gave its results.

A row holds from the time `seen` until the next row of its machine. Results of the same machine therefore need no other
key than their start.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from meshmark.store.checks import MACHINE_COLUMNS
from meshmark.store.store import Store

FACTS: Final = MACHINE_COLUMNS[2:]
Row = Mapping[str, str]  # column → text; unknown facts are left out


def machines(store: Store, machine: str = "") -> list[dict[str, str]]:
    """The rows of a machine, or of all machines, by the time from which they hold."""
    rows = store.machine_rows(machine)
    known = [{k: str(v) for k, v in row.items() if v is not None} for row in rows]
    return sorted(known, key=lambda row: (row["seen"], row["machine"]))


def without_facts(store: Store) -> list[dict[str, str]]:
    """A row for each machine that has results but no facts, such as imported and modelled ones: source and records."""
    known = {row["machine"] for row in store.machine_rows()}
    rows = store.select(
        """SELECT machine, min(start) AS seen, string_agg(DISTINCT source, ', ' ORDER BY source) AS source,
                  string_agg(DISTINCT instrument, ', ' ORDER BY instrument) AS instruments, count(*) AS records
           FROM {rows} GROUP BY machine ORDER BY machine"""
    )
    return [{k: str(v) for k, v in row.items() if v is not None} for row in rows if row["machine"] not in known]


def add_machine(store: Store, machine: str, facts: Mapping[str, str], seen: str) -> None:
    """Add a row, unless the machine's last one has the same facts.

    Args:
        facts: Texts, by a name in `FACTS`.
        seen: Time from which they hold, ISO 8601 in UTC.

    Raises:
        MeshmarkError: The store cannot be written.
    """
    rows = machines(store, machine)
    if rows and {k: v for k, v in rows[-1].items() if k in FACTS} == dict(facts):
        return
    name = f"{re.sub('[^0-9T]', '', seen[:19])}-{secrets.token_hex(4)}"
    store.add_machine_row({"machine": machine, "seen": seen, **facts}, name)


def changes(rows: Sequence[Row], since: str) -> list[str]:
    """What changed between the row that held at a time, or the first, and the last row, as `kernel 6.1 → 6.12`.

    Args:
        rows: Of one machine, as `machines` returns them.
        since: ISO 8601 in UTC.
    """
    if not rows:
        return []
    then = next((row for row in reversed(rows) if row["seen"] <= since), rows[0])
    now = rows[-1]
    differ = [k for k in FACTS if then.get(k) != now.get(k)]
    texts = [f"{k} {then.get(k, 'unknown')} → {now.get(k, 'unknown')}" for k in differ if k != "boot"]
    return texts or (["a new boot"] if differ else [])
