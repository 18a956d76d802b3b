"""Reader of JUBE's result tables (`jube result`), in the styles csv, pretty and aligned.

Columns with a unit in brackets, such as `copy[MB/s]`, are values, except units of size. Sizes and columns without unit
are conditions. A table without any unit does not distinguish values from parameters and is not recognised. JUBE's
statistical columns (`copy_avg`) become the condition `statistic`. Ids of JUBE (`jube_…`) are left out. If a file
contains several tables, the name of the table is the condition `table`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, number
from meshmark.measure.importers.documents import csv_cells
from meshmark.measure.importers.output import OutputLine, ToolOutput
from meshmark.measure.importers.quantities import ToolUnit, measured, named, scalar, scaled, unit_of, value
from meshmark.store.record import Scalar

_COLUMN: Final = re.compile(r"([A-Za-z_][\w.+-]*)(?:\[([^\[\]\s][^\[\]]{0,30})\])?")
_STATISTICS: Final = {"avg": "mean", "min": "minimum", "max": "maximum", "first": "first", "last": "last"}
_NO_VALUES: Final = {"std", "cnt"}  # deviations and counts of matches
_TITLE: Final = re.compile(r"([\w.-]+):")
_RULE: Final = re.compile(r"\|?(?:-+[|+])+-*\|?|-+")
_MARKS: Final = ",;\t"
_LONGEST: Final = 8192  # longest header, in characters
_SEARCHED: Final = 40  # number of lines in which the first table must begin


def _cells(line: str, mark: str) -> list[str]:
    if mark == "|":
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    return csv_cells(line, mark)


def _columns(line: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the mark between the cells, and name and unit of each column; "" and [] if the line is not a header."""
    if "[" not in line or len(line) > _LONGEST:
        return "", []
    for mark in "|" if "|" in line else _MARKS:
        try:
            matches = [_COLUMN.fullmatch(cell) for cell in _cells(line, mark)]
        except FormatError:
            continue
        columns = [(m[1], m[2] or "") for m in matches if m is not None]
        if len(columns) != len(matches) or len(columns) < 2 or not any(unit for _, unit in columns):
            continue
        if max(Counter(columns).values()) == 1:
            return mark, columns
    return "", []


def recognises(start: str) -> bool:
    """Return whether a header is the first line or follows a title; a header of a pretty table precedes `|---|`."""
    lines = [line for line in start.splitlines()[:_SEARCHED] if line.strip()]
    for index, line in enumerate(lines):
        mark, columns = _columns(line)
        if columns and (index == 0 or _TITLE.fullmatch(lines[index - 1].strip()) or mark == "|"):
            return mark != "|" or (index + 1 < len(lines) and _RULE.fullmatch(lines[index + 1].strip()) is not None)
    return False


def read(output: ToolOutput) -> None:
    """Read the values of each row."""
    tables: list[tuple[str, str, list[tuple[str, str]], list[OutputLine]]] = []
    title = ""
    for line in output.lines:
        text = line.text.strip()
        mark, columns = _columns(text)
        if not text or (tables and tables[-1][1] == "|" and _RULE.fullmatch(text)):
            continue
        if match := _TITLE.fullmatch(text):
            title = match[1]
        elif columns:
            tables.append((title, mark, columns, []))
        elif tables:
            tables[-1][3].append(line)
        else:
            output.other_lines += 1
    names = {title for title, *_ in tables}
    for title, mark, columns, rows in tables:
        for line in rows:
            with output.item(line.number):
                if mark == "|" and "|" not in line.text:
                    output.other_lines += 1
                else:
                    _row(output, line, mark, columns, {"table": title} if len(names) > 1 and title else {})


def _row(
    output: ToolOutput, line: OutputLine, mark: str, columns: Sequence[tuple[str, str]], conditions: dict[str, Scalar]
) -> None:
    cells = _cells(line.text, mark)
    if len(cells) != len(columns):
        raise FormatError(f"found {len(cells)} cells, {len(columns)} are required by the header")
    values: list[tuple[str, ToolUnit, str]] = []
    for (name, text), cell in zip(columns, cells, strict=True):
        unit = unit_of(text)
        if not text and not name.startswith("jube_"):
            conditions[name] = scalar(cell)
        elif unit.si == "B" and cell:
            key = name if name.endswith("_bytes") else f"{name}_bytes"
            conditions[key] = measured(value(cell, text, quoted(name, 40)), "B", quoted(name, 40))
        elif text and cell:  # an empty cell is a pattern that was not found
            values.append((name, unit, cell))
    is_cut = output.is_cut(line) and not line.text.endswith("|") and columns[-1][1]
    for name, unit, cell in values:
        with output.item(line.number):
            if is_cut and name == columns[-1][0]:
                raise FormatError(f"{quoted(name, 40)}: found no end of the line; it is cut off")
            figure = scaled(number(cell, quoted(name, 40)), unit.factor, quoted(name, 40))
            metric, _, suffix = name.rpartition("_")
            if metric and suffix in _NO_VALUES:
                output.add_tool_metric(name, unit.si, figure, "none", **named(conditions))
                continue
            statistic = _STATISTICS.get(suffix) if metric else None
            all_conditions = named({**conditions, **({"statistic": statistic} if statistic else {})})
            figure = measured(figure, unit.si, quoted(name, 40))
            output.add_tool_metric(metric if statistic else name, unit.si, figure, unit.better, **all_conditions)


READERS: Final = [FormatReader("jube", "JUBE result table, csv or pretty", recognises, read, version=2)]
