"""Prints tables of records."""

from __future__ import annotations

from collections.abc import Sequence

from meshmark.store.record import Record
from meshmark.views.content.contention import print_contention
from meshmark.views.content.programs import PROGRAMS, print_programs
from meshmark.views.content.ranking import print_comparisons, print_rankings
from meshmark.views.content.selection import cleaned
from meshmark.views.terminal.records import print_modes, print_records


def print_tables(records: Sequence[Record]) -> None:
    """Print a table for each machine and instrument.

    Halo protocols are ranked, MPI libraries compared, contention summarized, and iterations of programs split into
    their parts. Records that do not suit these tables, such as the records of a model's halo, are listed.
    """
    tables = {"halo": print_rankings, **dict.fromkeys(PROGRAMS, print_programs)}
    records = cleaned(records)
    for machine, instrument in dict.fromkeys((r.machine, r.instrument) for r in records):
        selected = [r for r in records if r.machine == machine and r.instrument == instrument]
        if instrument not in tables or not tables[instrument](selected):
            print_records(selected)
        else:
            print_modes(selected)
        print_comparisons(selected)
        print_contention(selected)
