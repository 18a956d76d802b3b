"""`meshmark watch --audit`: by which factor the counters of memory and links are wrong."""

from __future__ import annotations

import json
from typing import Final

from meshmark.cli.console import say
from meshmark.errors import UnjudgedError

_LOAD_S: Final = 10.0  # time per load


def audit(as_json: bool) -> None:
    """Audit the counters of this machine; store and print the result.

    Raises:
        SystemExit: Status 1: a counter is wrong; 3: none is wrong, but some could not be judged.
        AbsentError: The machine has no such counters.
    """
    from meshmark.watch.audit.run import audit_counters, store_audit

    say(f"measuring each node and each counted link for {_LOAD_S:g} s per load; other programs disturb the result")
    result = audit_counters(_LOAD_S)
    path = store_audit(result)
    if as_json:
        print(json.dumps(result.to_json()))
    else:
        from meshmark.views.tables import TableSection
        from meshmark.views.terminal.live.audit import audit_notes, audit_table
        from meshmark.views.terminal.screen import print_sections, table_console

        print_sections(table_console(), [TableSection("counters audited", audit_table(result.counters))])
        for note in audit_notes(result):
            print(note)
        print(path)
    verdicts = {c.verdict for c in result.counters}
    if verdicts & {"wrong", "counts nothing"}:
        raise SystemExit(1)
    if "could not tell" in verdicts or not verdicts:
        raise SystemExit(UnjudgedError.status)
