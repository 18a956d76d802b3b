"""Prints tables of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meshmark.store.record import Record
from meshmark.views.apps.programs import ANATOMY, GYRO, POP, SWIM, kernel_sections, program_sections
from meshmark.views.content.contention import contention_sections
from meshmark.views.content.ranking import COLLECTIVES, HALO, MESSAGE, comparison_sections, ranking_sections
from meshmark.views.content.selection import cleaned
from meshmark.views.tables import TableSection
from meshmark.views.terminal.records import print_modes, print_records
from meshmark.views.terminal.screen import print_sections, table_console

PIPE_COLUMNS: Final = 160  # width if standard output is not a terminal


def print_tables(records: Sequence[Record]) -> None:
    """Print a table for each machine and instrument.

    Halo protocols are ranked, MPI libraries compared, contention summarized, and iterations of programs split into
    their parts. Records that do not suit these tables, such as the records of a model's halo, are listed.
    """
    console = table_console(PIPE_COLUMNS)
    records = cleaned(records)
    for machine, instrument in dict.fromkeys((r.machine, r.instrument) for r in records):
        selected = [r for r in records if r.machine == machine and r.instrument == instrument]
        if sections := _instead_of_a_list(selected):
            print_sections(console, sections)
            print_modes(selected)
        else:
            print_records(selected)
        sections = [s for subject in (HALO, MESSAGE, COLLECTIVES) for s in comparison_sections(selected, subject)]
        sections += contention_sections(selected)
        if sections:
            console.print()
            print_sections(console, sections)


def _instead_of_a_list(records: Sequence[Record]) -> list[TableSection]:
    programs = [s for program in (POP, GYRO, SWIM, ANATOMY) for s in program_sections(records, program)]
    return ranking_sections(records) + programs + kernel_sections(records)
