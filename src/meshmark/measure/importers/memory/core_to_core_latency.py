"""Reader of core-to-core-latency (the Rust program): CSV and the table for terminals.

The CSV is a lower triangle of one-way times in ns, in the order of the cores.

By default the program exchanges one cache line by compare-and-swap, and prints half of the round trip. The CSV does not
state the numbers of the CPUs, so `from_cpu` and `to_cpu` are positions in the list of cores, which are the numbers of
the CPUs unless `--cores` selected some. The table states the numbers.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.measure.importers.base import (
    FormatError,
    FormatReader,
    UnknownMeaningError,
    count,
    has,
    number,
    unexpected,
)
from meshmark.measure.importers.output import Cursor, ToolOutput, matrix_row, sections
from meshmark.measure.importers.quantities import slug
from meshmark.store.record import Scalar

_CSV: Final = re.compile(r"^,+\n[ \t]*\d+(?:\.\d+)?(?:e-?\d+)?,+$", re.MULTILINE)
_TITLE: Final = re.compile(r"\d+\) (\S.* latency on \S.* shared cache lines?|Message passing.*)")
_TABLE: Final = re.compile(r"^\d+\) \S.* latency on \S.* shared cache lines?", re.MULTILINE)
_HEAD: Final = re.compile(r"(?:\s*\d{1,6})+")


def read(output: ToolOutput) -> None:
    """Read the time of each pair of cores."""
    if (unit := re.search(r"latency\S* in (\w+):", output.text)) and unit[1] != "nanoseconds":
        raise UnknownMeaningError(f"found times in {unit[1][:20]}, nanoseconds are required")
    _read_csv(output)
    for section in sections(output.lines, _TITLE.match):
        title = section[0].text.partition(") ")[2]
        kind = slug(title.partition(" latency")[0])
        conditions: dict[str, Scalar] = {"state": "swap"} if kind == "cas" else {"exchange": kind}
        lines = Cursor(section[1:])
        head = lines.next()
        if head is None or not _HEAD.fullmatch(head.text):
            output.leave_out(section[0].number, "the numbers of the CPUs are required below the title")
            continue
        columns = [int(cell) for cell in head.text.split()]
        for line in lines.skip(lambda text: re.match(r"\s*\d", text)):
            with output.item(line.number):
                row = count(line.text.split()[0], "CPU")
                if row not in columns:
                    raise unexpected(row, "one of the CPUs in the line above")
                for cpu, cell in matrix_row(line.text, columns[: columns.index(row)])[1].items():
                    _add(output, cpu, row, re.sub(r"±\d+(?:\.\d+)?$", "", cell), conditions)


def _read_csv(output: ToolOutput) -> None:
    lines = Cursor(output.lines)
    while head := lines.next(lambda text: re.fullmatch(r",+", text)):
        cores = len(head.text) + 1
        rows = {0}
        for line in lines.skip(lambda text: "," in text):
            with output.item(line.number):
                cells = [cell.strip() for cell in line.text.split(",")]
                row = next((index for index, cell in enumerate(cells) if not cell), len(cells))
                if len(cells) != cores or any(cells[row:]) or row in rows:
                    raise unexpected(line.text, f"{max(rows) + 1} numbers and {cores - max(rows) - 1} empty cells")
                rows.add(row)
                for column, cell in enumerate(cells[:row]):
                    _add(output, column, row, cell, {"state": "swap"})
        if len(rows) != cores:
            output.leave_out(head.number, f"the matrix has {len(rows)} of {cores} whole rows")


def _add(output: ToolOutput, from_cpu: int, to_cpu: int, cell: str, stated: dict[str, Scalar]) -> None:
    time = 1e-9 * number(cell, f"core {from_cpu}", above_zero=True)
    if to_cpu == from_cpu:
        raise FormatError(f"found a time of core {to_cpu} to itself")
    output.add_meshmark_metric("lines.line_latency", time, from_cpu=from_cpu, to_cpu=to_cpu, trip="one_way", **stated)


READERS: Final = [
    FormatReader("core_to_core_latency", "core-to-core-latency, CSV and text", has(_CSV, _TABLE), read, version=2)
]
