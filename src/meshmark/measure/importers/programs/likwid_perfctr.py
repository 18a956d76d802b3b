"""Reader of likwid-perfctr's tables and CSV (`-O`), LIKWID 4 and 5, with and without the marker API, one or more runs.

The counters and metrics of each hardware thread are read; the STAT tables with their sums and means are not. Values
`nan` or `-` (counters that another thread of the socket counts) were not measured and have no record. A metric whose
unit is not known is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, UnknownMeaningError, matched, number
from meshmark.measure.importers.output import OutputLine, ToolOutput
from meshmark.measure.importers.quantities import ToolUnit, scaled, slug, unit_of
from meshmark.store.record import Scalar

_TITLE: Final = re.compile(
    r"TABLE,(?:Region (?P<region>[^,]+),)?Group (?P<number>\d{1,6}) (?P<kind>Raw|Metric)(?P<stat> STAT)?,"
    r"(?P<group>[^,\x00-\x1f]*),(?P<length>\d{1,6})"
)
_GROUP: Final = re.compile(r"(?:Region (.+), )?Group (\d{1,6}): (\S.*)")
_COLUMN: Final = re.compile(r"(HWThread|Core|GPU) (\d{1,6})")
_REGION_LINES: Final = ("Region Info", "RDTSC Runtime [s]", "call count")
_MISSING: Final = {"-", "nan", "-nan", "inf", "-inf"}
_UNITS: Final = {
    "MUOPS/s": ToolUnit("op/s", 1e6, "higher"),
    "J": ToolUnit("J", 1.0, "lower"),
    "W": ToolUnit("W", 1.0, "none"),
    "%": ToolUnit("1", 1e-2, "none"),
    "C": ToolUnit("1", 1.0, "none"),
    "FLOP/Byte": ToolUnit("flop/B", 1.0, "none"),
    "Byte/FLOP": ToolUnit("B/flop", 1.0, "none"),
}
_KNOWN: Final = {"s", "B", "B/s", "flop/s", "op/s", "Hz"}
_COUNTS: Final = re.compile(
    r"(?:(?:k|M|G)?(?:cycles?|Cy|Bytes?|B|FLOP|FLOPS|UOPS?|instr\w*|events?)/(?:cycles?|Cy|CL|instr\w*|it)|cycles?|Cy|counts?|#)"
)


@dataclass(slots=True)
class _LikwidTable:
    """A table of counters or metrics; `cpus` has the conditions of each column."""

    line: int
    metric: bool
    length: int
    stated: dict[str, Scalar]
    width: int = 0
    cpus: dict[int, dict[str, Scalar]] = field(default_factory=dict)
    rows: int = 0


def recognises(start: str) -> bool:
    """Return whether the start of a file has a table of events, or CSV with their groups."""
    if re.search(r"^\|[ \t]+Event[ \t]+\|[ \t]+Counter[ \t]+\|", start, re.MULTILINE):
        return True
    if "STRUCT,Info,3" not in start:
        return False
    return "CPU name:," in start or re.search(r"^TABLE,.*Group \d+ (Raw|Metric)", start, re.MULTILINE) is not None


def read(output: ToolOutput) -> None:
    """Read the counters and metrics of each hardware thread in each group and region."""
    table: _LikwidTable | None = None
    box_conditions: dict[str, Scalar] = {}  # conditions of tables that are drawn with lines
    has_csv = False
    for line in output.lines:
        text = line.text
        if group := _GROUP.fullmatch(text.strip()):
            box_conditions = {"group": quoted(group[3], 60), "group_number": int(group[2])}
            box_conditions |= {"region": quoted(group[1], 100)} if group[1] else {}
        elif text.startswith("|"):
            table = _boxed(output, table, box_conditions, line)
        elif text.startswith(("TABLE,", "STRUCT,")):
            _close(output, table)
            table, has_csv = None, True
            with output.item(line.number):
                table = _opened(line)
        elif table is not None and not table.width:
            _columns(table, line)
        elif table is not None and text and table.rows < table.length:
            table.rows += 1
            with output.item(line.number):
                _row(output, table, line)
        elif text.strip() and has_csv and not text.startswith("+-") and not text.startswith("CPU "):
            output.other_lines += 1
    _close(output, table)


def _boxed(
    output: ToolOutput, table: _LikwidTable | None, stated: dict[str, Scalar], line: OutputLine
) -> _LikwidTable | None:
    """Read a line of a table that is drawn with lines; return the table of the lines below it."""
    cells = [cell.strip() for cell in line.text.strip().strip("|").split("|")]
    row = OutputLine(line.number, ",".join(cells))
    if cells[0] in {"Event", "Metric", "Region Info"}:
        if cells[0] == "Region Info" or cells[-4:] == ["Sum", "Min", "Max", "Avg"]:
            return None
        table = _LikwidTable(line.number, cells[0] == "Metric", 0, stated)
        _columns(table, row)
    elif table is not None:
        with output.item(line.number):
            if not stated or not line.text.endswith("|"):
                raise FormatError("a line such as 'Group 1: MEM' above and whole cells are required")
            _row(output, table, row)
    return table


def _close(output: ToolOutput, table: _LikwidTable | None) -> None:
    if table is not None and table.rows < table.length:
        output.leave_out(table.line, f"the table has {table.rows} of {table.length} rows; it is not complete")


def _opened(line: OutputLine) -> _LikwidTable | None:
    """Return the table that begins on a line; None for a table of statistics or a structure."""
    if line.text.startswith("STRUCT,"):
        return None
    title = matched(_TITLE, line.text.rstrip(","), "TABLE, a group, its name and its length")
    if title["stat"]:
        return None
    conditions: dict[str, Scalar] = {"group": title["group"], "group_number": int(title["number"])}
    if title["region"]:
        conditions["region"] = quoted(title["region"], 100)
    return _LikwidTable(line.number, title["kind"] == "Metric", int(title["length"]), conditions)


def _columns(table: _LikwidTable, line: OutputLine) -> None:
    header = line.text.split(",")
    if line.text.startswith(_REGION_LINES):
        return
    fixed = 1 if table.metric else 2
    if header[:fixed] != (["Metric"] if table.metric else ["Event", "Counter"]):
        raise UnknownMeaningError(f"line {line.number}: found '{quoted(line.text, 40)}', column names are required")
    for column, name in enumerate(header[fixed:], fixed):
        match = _COLUMN.fullmatch(name.strip())
        if match is not None:
            table.cpus[column] = {"gpu" if match[1] == "GPU" else "cpu": int(match[2])}
        elif name.strip():
            raise UnknownMeaningError(f"line {line.number}: found column '{quoted(name, 40)}', HWThread is required")
    if not table.cpus:
        raise UnknownMeaningError(f"line {line.number}: found no column of a hardware thread")
    table.width = len(header)


def _row(output: ToolOutput, table: _LikwidTable, line: OutputLine) -> None:
    cells = [cell.strip() for cell in line.text.split(",")]
    if len(cells) != table.width or (output.is_cut(line) and max(table.cpus) == table.width - 1):
        raise FormatError(f"found {len(cells)} whole cells, {table.width} are required")
    if not cells[0] or not cells[0].isprintable() or not (table.metric or cells[1]):
        raise FormatError("found no name of a metric or counter")
    name, unit = _metric(cells[0])
    counter = {} if table.metric else {"counter": quoted(cells[1], 60)}
    for column, cpu in table.cpus.items():
        if cells[column] not in _MISSING:
            value = scaled(number(cells[column], quoted(cells[0], 40)), unit.factor, quoted(cells[0], 40))
            output.add_tool_metric(name, unit.si, value, unit.better, **table.stated, **cpu, **counter)


def _metric(text: str) -> tuple[str, ToolUnit]:
    """Return the name and the unit of a metric such as `DP [MFLOP/s]` or of an event."""
    match = re.fullmatch(r"(.+?)\s*\[(.+)\]", text)
    if match is None:
        return text, ToolUnit("1", 1.0, "lower" if text == "CPI" else "none")
    unit = _UNITS.get(match[2], unit_of(match[2]))
    if _COUNTS.fullmatch(match[2]) and unit.si not in _KNOWN:
        unit = ToolUnit(match[2], 1.0, "none")
    elif match[2] not in _UNITS and unit.si not in _KNOWN:
        raise FormatError(f"{quoted(match[1], 40)}: the unit '{quoted(match[2], 20)}' is not known")
    return slug(match[1]) or match[1], unit


READERS: Final = [FormatReader("likwid_perfctr", "likwid-perfctr, text or CSV (-O)", recognises, read, version=2)]
