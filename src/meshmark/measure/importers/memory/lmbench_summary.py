"""Reader of lmbench's summary: the tables that `make see` prints, with a row for each results file.

The words above a column and the title of its table name the operation; the title also states the unit. Cells contain
all digits that lmbench prints, and `K` is 1000. Empty cells and `-` were not measured. Rows of one host are
repetitions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from meshmark.measure.importers.base import FormatError, FormatReader, has, matched, unexpected
from meshmark.measure.importers.output import OutputLine, ToolOutput
from meshmark.measure.importers.quantities import ToolQuantity
from meshmark.store.record import Scalar

_SUMMARY: Final = re.compile(r"L M B E N C H +(\d) ?\. ?(\d) +S U M M A R Y")
_TITLE: Final = re.compile(r"(\S.*?) (?:- times )?in (microseconds|nanoseconds|MB/s)\b.*better")
_RULE: Final = re.compile(r"-+(?: +-+){2,}")
_CELL: Final = re.compile(r"(\d*\.?\d+\.?)([KM]?)")
_QUANTITIES: Final = {
    "microseconds": ToolQuantity("operation_time", "us"),
    "nanoseconds": ToolQuantity("operation_time", "ns"),
    "MB/s": ToolQuantity("operation_bandwidth", "MB/s"),
}
_SUFFIXES: Final = {"": "", "K": "e3", "M": "e6"}
_NOT_MEASURED: Final = {"Guesses", "Mhz"}


@dataclass(slots=True)
class _LmbenchTable:
    """A table. `columns` are the begin, end and name of each column; the first two are host and system."""

    title: str
    unit: str
    columns: list[tuple[int, int, str]]


def read(output: ToolOutput) -> None:
    """Read the cells of all tables whose title states a unit."""
    table: _LmbenchTable | None = None
    head: list[str] = []
    for line in output.lines:
        text = line.text
        if summary := _SUMMARY.search(text):
            output.set_source(f"{summary[1]}.{summary[2]}")
        elif title := _TITLE.fullmatch(text.strip()):
            table, head = _LmbenchTable(title[1].strip("*, "), title[2], []), []
        elif not text.strip():
            if table is not None and table.columns:
                table = None
        elif table is None:
            continue
        elif _RULE.fullmatch(text.strip()):
            table.columns = _columns(text, head)
        elif not table.columns:
            head = head if re.fullmatch(r"-+", text.strip()) or "WARNING" in text else [*head, text]
        else:
            with output.item(line.number):
                _row(output, table, line)


def _columns(rule: str, head: list[str]) -> list[tuple[int, int, str]]:
    """Return the columns below a rule of dashes, each with the words of the header that are nearest to it."""
    spans = [(m.start(), m.end()) for m in re.finditer(r"-+", rule)]
    words: list[list[str]] = [[] for _ in spans]
    for text in head:
        for word in re.finditer(r"\S+", text):
            words[_nearest(spans, word.start(), word.end())].append(word[0])
    return [(begin, end, " ".join(column_words)) for (begin, end), column_words in zip(spans, words, strict=True)]


def _nearest(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    """Return the index of the span that overlaps an interval most, or else is nearest to it."""
    return max(range(len(spans)), key=lambda i: min(end, spans[i][1]) - max(begin, spans[i][0]))


def _row(output: ToolOutput, table: _LmbenchTable, line: OutputLine) -> None:
    if len(table.columns) < 3 or len(line.text) <= table.columns[1][1]:
        raise unexpected(line.text, "a host, its system and the cells of the columns")
    host = line.text[: table.columns[0][1]].split()
    if not host:
        raise FormatError("the name of a host is required in the first column")
    data = table.columns[2:]
    spans = [(begin, end) for begin, end, _ in data]
    cells: dict[int, str] = {}
    text = line.text[table.columns[1][1] :]
    if any(name == "Guesses" for _, _, name in data):
        text = re.split(r"\s[A-Za-z]", text, maxsplit=1)[0]
    if not any(_CELL.fullmatch(cell) or cell == "-" for cell in text.split()):
        output.other_lines += 1
        return
    for word in re.finditer(r"\S+", text):
        offset = table.columns[1][1]
        index = _nearest(spans, word.start() + offset, word.end() + offset)
        if index in cells and data[index][2] not in _NOT_MEASURED:
            raise FormatError(f"two values for the column '{data[index][2][:40]}'")
        cells[index] = word[0]
    conditions: dict[str, Scalar] = {"host": host[0], "table": table.title}
    for index, cell in cells.items():
        name = data[index][2]
        if cell == "-" or name in _NOT_MEASURED:
            continue
        match = matched(_CELL, cell, "a number", name)
        if not name:
            raise FormatError("a value without a column")
        output.take(_QUANTITIES[table.unit], match[1] + _SUFFIXES[match[2]], name, operation=name, **conditions)


READERS: Final = [FormatReader("lmbench_summary", "lmbench, summary", has(_SUMMARY), read, tool="lmbench")]
