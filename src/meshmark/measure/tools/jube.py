"""JUBE's result tables (`jube result`), in the styles csv and pretty.

Columns with a unit in brackets, as `copy[MB/s]`, are values, unless it is a unit of size, which describes the run; the
other columns are conditions. A table without any unit does not tell values from parameters and is not recognised.
JUBE's statistical columns (`copy_avg`) become the condition `statistic`. Ids of JUBE (`jube_…`) are left out.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, theirs
from meshmark.measure.tools.output import whole
from meshmark.measure.tools.quantities import named, scalar, scaled, unit_of
from meshmark.store.record import Record, Scalar

_TOOL: Final = "JUBE"
_COLUMN: Final = re.compile(r"([A-Za-z_][\w.+-]*)(?:\[([^\[\]\s][^\[\]]{0,30})\])?")
_STATISTICS: Final = {"avg": "mean", "min": "minimum", "max": "maximum", "first": "first", "last": "last"}
_NO_VALUES: Final = {"std", "cnt"}  # deviations and counts of matches


def _cells(line: str) -> list[str]:
    if line.startswith("|"):
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    return next(csv.reader([line]))


def _columns(line: str) -> list[tuple[str, str]]:
    """Names and units of the columns; none if the line is no header of a table."""
    try:
        matches = [_COLUMN.fullmatch(cell.strip()) for cell in _cells(line)]
    except (csv.Error, StopIteration):
        return []
    found = [(m[1], m[2] or "") for m in matches if m is not None]
    if len(found) != len(matches) or len(found) < 2 or not any(unit for _, unit in found):
        return []
    return found if max(Counter(found).values()) == 1 else []


def _header(lines: list[str]) -> int | None:
    """The index of the header: the first line, or of a pretty table the line before `|---|`."""
    start = next((i for i, line in enumerate(lines) if line.strip()), None)
    if start is None:
        return None
    if re.fullmatch(r"[\w.-]+:", lines[start].strip()) and start + 1 < len(lines):
        start += 1
    if lines[start].startswith("|"):
        rule = lines[start + 1] if start + 1 < len(lines) else ""
        return start if re.fullmatch(r"\|(?:-+\|)+", rule.strip()) and _columns(lines[start]) else None
    return start if _columns(lines[start]) else None


def recognises(start: str) -> bool:
    return _header(start.splitlines()[:8]) is not None


def read(text: str, machine: str) -> list[Record]:
    """The values of each row."""
    lines = text.splitlines()
    header = _header(lines)
    if header is None:
        raise FormatError(f"{_TOOL}: found no header, names of columns with units in brackets are required")
    pretty = lines[header].startswith("|")
    columns = _columns(lines[header])
    made = []
    for at, line in enumerate(lines[header + 1 + pretty :], header + 2 + pretty):
        if not line.strip():
            continue
        if pretty and not re.fullmatch(r"\|.*\|", line.strip()):
            raise FormatError(f"{_TOOL}: line {at}: found '{quoted(line, 40)}', a row between | is required")
        try:
            cells = _cells(line)
        except csv.Error as why:
            raise FormatError(f"{_TOOL}: line {at}: {quoted(why, 60)}") from None
        if len(cells) != len(columns):
            raise FormatError(
                f"{_TOOL}: line {at}: found {len(cells)} cells, {len(columns)} are required by the header"
            )
        made += _row(columns, cells, machine, f"{_TOOL}: line {at}")
    if not made:
        raise FormatError(f"{_TOOL}: found no values in columns with a unit, at least 1 is required")
    if not pretty and not text.endswith("\n"):
        raise FormatError(f"{_TOOL}: line {len(lines)}: found no end of the line; the table is cut off")
    return made


def _row(columns: list[tuple[str, str]], cells: list[str], machine: str, where: str) -> list[Record]:
    about = About(machine, "jube")
    conditions: dict[str, Scalar] = {}
    values = []
    for (name, text), cell in zip(columns, cells, strict=True):
        unit = unit_of(text)
        if not text:
            if not name.startswith("jube_"):
                conditions[name] = scalar(cell)
        elif not cell.strip():
            continue  # a pattern that was not found
        elif unit.si == "B":
            key = name if name.endswith("_bytes") else f"{name}_bytes"
            conditions[key] = scaled(number(cell, f"{where}: {quoted(name, 40)}"), unit.factor, where)
        else:
            value = number(cell, f"{where}: {quoted(name, 40)}")
            values.append((name, unit, scaled(value, unit.factor, f"{where}: {quoted(name, 40)}")))
    made = []
    for name, unit, value in values:
        metric, _, suffix = name.rpartition("_")
        if metric and suffix in _STATISTICS:
            stated = named({**conditions, "statistic": _STATISTICS[suffix]})
            made.append(theirs(about, metric, unit.si, unit.better, [value], **stated))
        else:
            better = "none" if metric and suffix in _NO_VALUES else unit.better
            made.append(theirs(about, name, unit.si, better, [value], **named(conditions)))
    return made


READERS: Final = [Reader("jube", "JUBE result table, csv or pretty", recognises, whole(read))]
