"""Tables of records for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from meshmark.report.contention import print_contention
from meshmark.report.programs import PROGRAMS, print_programs
from meshmark.report.ranking import print_comparisons, print_rankings
from meshmark.report.selection import cleaned
from meshmark.store.record import Record
from meshmark.terminal.records import print_records


def print_tables(records: Sequence[Record]) -> None:
    """A table for each instrument: halo protocols are ranked, libraries compared, contention summed up, iterations of
    programs split into their parts. What cannot be told so, such as a model's halo, is listed."""
    tables = {"halo": print_rankings, **dict.fromkeys(PROGRAMS, print_programs)}
    records = cleaned(records)
    for instrument in dict.fromkeys(r.instrument for r in records):
        mine = [r for r in records if r.instrument == instrument]
        if instrument not in tables or not tables[instrument](mine):
            print_records(mine)
        print_comparisons(mine)
        print_contention(mine)
