"""The CSV of core-to-core-latency (the Rust program): a lower triangle of one-way times in ns, in the order of cores.

By default the program exchanges one line by compare-and-swap, and it halves the round trip. The file does not state the
numbers of the CPUs, so `from_cpu` and `to_cpu` are positions in the list of cores, which are the CPUs unless `--cores`
chose some.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record

_START: Final = re.compile(r",+\r?\n\d+(?:\.\d+)?(?:e-?\d+)?,+\r?\n")


def recognises(start: str) -> bool:
    return _START.match(start.lstrip("\n")) is not None


def read(text: str, machine: str) -> list[Record]:
    """The time of each pair of cores."""
    skipped = len(text) - len(text.lstrip("\n"))
    rows = text.strip("\n").splitlines()
    cores = len(rows[0].split(",")) if rows else 0
    if len(rows) != cores:
        raise FormatError(f"core-to-core-latency: found {len(rows)} rows; required: {cores}, as many as columns")
    about = About(machine, "core_to_core_latency")
    made = []
    for row, line in enumerate(rows):
        where = f"core-to-core-latency: line {skipped + row + 1}"
        cells = line.split(",")
        if len(cells) != cores or any(c.strip() for c in cells[row:]) or not all(c.strip() for c in cells[:row]):
            raise FormatError(
                f"{where}: found '{quoted(line, 40)}'; required: {row} numbers and {cores - row} empty cells"
            )
        for column, cell in enumerate(cells[:row]):
            time = 1e-9 * number(cell, f"{where}: column {column + 1}", above_zero=True)
            made.append(
                ours(about, "lines", "line_latency", [time], from_cpu=column, to_cpu=row, state="swap", trip="one_way")
            )
    return made


READERS: Final = [Reader("core_to_core_latency", "core-to-core-latency, CSV", recognises, whole(read))]
