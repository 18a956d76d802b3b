"""Reader of the matrix of one-way times between CPUs, in whole ns, that c2clat prints.

c2clat measures each pair of CPUs once and prints the time in both directions, so there is one record per pair.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import Final

from meshmark.measure.importers.base import FormatError, FormatReader, has, number, unexpected
from meshmark.measure.importers.output import Cursor, ToolOutput, matrix_row

_HEAD: Final = re.compile(r"[ \t]*CPU(?:[ \t]+\d{1,6})+")
_START: Final = re.compile(rf"^{_HEAD.pattern}\n[ \t]*\d{{1,6}}(?:[ \t]+\d+)+$", re.MULTILINE)


def read(output: ToolOutput) -> None:
    """Read the time of each pair of CPUs of each matrix."""
    lines = Cursor(output.lines)
    while head := lines.next(_HEAD.fullmatch):
        columns = [int(cell) for cell in head.text.split()[1:]]
        times: dict[tuple[int, int], float] = {}
        for line in lines.skip(lambda text: re.match(r"[ \t]*\d", text)):
            with output.item(line.number):
                row, cells = matrix_row(line.text, columns)
                if row not in columns or (output.is_cut(line) and cells[columns[-1]] != "0"):
                    raise unexpected(line.text, "one of the CPUs and whole times")  # the last cell of a matrix is 0
                values = {(row, cpu): number(cell, f"CPU {cpu}") for cpu, cell in cells.items()}
                if values.get((row, row)):
                    raise FormatError(f"found a time of CPU {row} to itself")
                times |= values
        for first, second in combinations(columns, 2):
            with output.item(f"line {head.number}: CPUs {first} and {second}"):
                pair_times = {times[pair] for pair in ((first, second), (second, first)) if pair in times}
                if len(pair_times) != 1 or 0 in pair_times:
                    raise FormatError(f"found {len(pair_times)} times above 0, the same in both directions is required")
                output.add_meshmark_metric(
                    "lines.line_latency", 1e-9 * pair_times.pop(), from_cpu=first, to_cpu=second, trip="one_way"
                )


READERS: Final = [FormatReader("c2clat", "c2clat, text", has(_START), read)]
