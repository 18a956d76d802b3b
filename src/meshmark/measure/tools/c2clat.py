"""c2clat's matrix of one-way times between CPUs, in whole ns.

c2clat measures each pair of CPUs once and prints it in both directions, so each pair gives one record.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.measure.tools.base import About, FormatError, Reader, number, ours
from meshmark.measure.tools.output import Cursor, ToolOutput, unexpected

_HEAD: Final = re.compile(r"[ \t]*CPU(?:[ \t]+\d{1,6})+")
_START: Final = re.compile(rf"^{_HEAD.pattern}\n[ \t]*\d{{1,6}}(?:[ \t]+\d+)+$", re.MULTILINE)


def recognises(start: str) -> bool:
    return _START.search(start) is not None


def read(output: ToolOutput) -> None:
    """The time of each pair of CPUs, of each matrix."""
    about = About(output.machine, "c2clat")
    lines = Cursor(output.lines)
    while lines.peek() is not None:
        lines.skip(lambda text: not _HEAD.fullmatch(text))
        head = lines.take()
        if head is None:
            return
        columns = [int(cell) for cell in head.text.split()[1:]]
        times: dict[tuple[int, int], float] = {}
        for line in lines.skip(lambda text: re.match(r"[ \t]*\d", text)):
            with output.item(line.number):
                row, *cells = line.text.split()
                is_cut = output.is_cut(line) and cells[-1:] != ["0"]  # the last cell of a whole matrix is 0
                if not row.isdecimal() or int(row) not in columns or len(cells) != len(columns) or is_cut:
                    raise unexpected(line.text, f"one of the CPUs and {len(columns)} times")
                values = {(int(row), cpu): number(cell, f"CPU {cpu}") for cpu, cell in zip(columns, cells, strict=True)}
                if values.get((int(row), int(row))):
                    raise FormatError(f"found a time of CPU {row} to itself")
                times |= values
        for at, first in enumerate(columns):
            for second in columns[at + 1 :]:
                with output.item(f"line {head.number}: CPUs {first} and {second}"):
                    both = {t for t in (times.get((first, second)), times.get((second, first))) if t is not None}
                    if len(both) != 1 or 0 in both:
                        raise FormatError(f"found {len(both)} times above 0, the same in both directions is required")
                    time = [1e-9 * both.pop()]
                    output.add(
                        ours(about, "lines", "line_latency", time, from_cpu=first, to_cpu=second, trip="one_way")
                    )


READERS: Final = [Reader("c2clat", "c2clat, text", recognises, read)]
