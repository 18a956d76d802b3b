"""likwid-perfctr's CSV (`-O`), LIKWID 4 and 5, with and without the marker API.

Read are the counters and the metrics of each hardware thread. The STAT tables are sums and means of them, and are
checked only for completeness. Values that are `nan` or `-` (counters that others of the socket count) are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Better, Record, Scalar

_GROUP: Final = re.compile(r"Group (\d{1,6}) (Raw|Metric)( STAT)?")
_THREAD: Final = re.compile(r"(?:HWThread|Core) (\d{1,6})")
_REGION_LINES: Final = ("Region Info", "RDTSC Runtime [s]", "call count")
_MISSING: Final = {"", "-", "nan", "-nan", "inf"}
_UNITS: Final[dict[str, tuple[str, float, Better]]] = {
    "s": ("s", 1.0, "lower"),
    "MHz": ("Hz", 1e6, "none"),
    "MFLOP/s": ("flop/s", 1e6, "higher"),
    "MUOPS/s": ("op/s", 1e6, "higher"),
    "MBytes/s": ("B/s", 1e6, "higher"),
    "MByte/s": ("B/s", 1e6, "higher"),
    "GBytes/s": ("B/s", 1e9, "higher"),
    "GBytes": ("B", 1e9, "none"),
    "GByte": ("B", 1e9, "none"),
    "MBytes": ("B", 1e6, "none"),
    "J": ("J", 1.0, "lower"),
    "W": ("W", 1.0, "none"),
    "%": ("1", 1e-2, "none"),
    "C": ("1", 1.0, "none"),
}


@dataclass(slots=True)
class _Table:
    """A table; `threads` are the numbers of hardware threads by column, and None in a STAT table."""

    where: str
    metric: bool
    conditions: dict[str, Scalar]
    threads: dict[int, int] | None
    rows: list[tuple[int, list[str]]]


def recognises(start: str) -> bool:
    if "STRUCT,Info,3" not in start:
        return False
    return "CPU name:," in start or re.search(r"^TABLE,.*Group \d+ (Raw|Metric)", start, re.MULTILINE) is not None


def read(text: str, machine: str) -> list[Record]:
    """The counters and metrics of each hardware thread, by group and region."""
    if not text.endswith("\n"):
        raise FormatError("LIKWID: found no end of the last line; the output is incomplete")
    about = About(machine, "likwid_perfctr")
    made: list[Record] = []
    tables = list(_tables(text.splitlines()))
    for table in tables:
        if table.threads is not None:
            made += _records(about, table)
    _complete(tables)
    if not made:
        raise FormatError("LIKWID: found no counter or metric")
    return made


def _complete(tables: list[_Table]) -> None:
    """Each region's group of several threads has as many STAT tables as others."""
    kinds: dict[str, set[tuple[bool, bool]]] = {}
    for table in tables:
        kinds.setdefault(str(table.conditions), set()).add((table.metric, table.threads is None))
    for found in kinds.values():
        if (True, False) in found and (False, True) in found and (True, True) not in found:
            raise FormatError("LIKWID: found no table 'Metric STAT' after 'Raw STAT'; the output is incomplete")
        if (False, False) not in found:
            raise FormatError("LIKWID: found no table 'Raw' of a group; the output is incomplete")


def _tables(lines: list[str]) -> Iterator[_Table]:
    at, within = 0, False
    while at < len(lines):
        cells = lines[at].rstrip(",").split(",")
        if cells[0] == "TABLE":
            at, table = _table(lines, at, cells)
            within = True
            yield table
            continue
        if within and lines[at].strip() and not re.match(r"STRUCT,Info,3\b|CPU (name|type|clock):,", lines[at]):
            raise FormatError(f"LIKWID: line {at + 1}: found '{quoted(lines[at], 40)}', a table is required")
        at += 1


def _table(lines: list[str], at: int, title: list[str]) -> tuple[int, _Table]:
    """The table of the title at a line, and the line after it."""
    where = f"LIKWID: line {at + 1}"
    region = title[1].removeprefix("Region ") if len(title) == 5 else None
    kind = _GROUP.fullmatch(title[-3]) if len(title) in {4, 5} else None
    if kind is None or re.fullmatch(r"\d{1,6}", title[-1]) is None or (region is not None and region == title[1]):
        raise FormatError(f"{where}: found '{quoted(lines[at], 60)}', TABLE, its name, group and length are required")
    group, length = title[-2], int(title[-1])
    if not group.isprintable() or not group or not (region or "x").isprintable():
        raise FormatError(f"{where}: found no name of a group or a region")
    at += 1
    while at < len(lines) and lines[at].startswith(_REGION_LINES):
        at += 1
    conditions: dict[str, Scalar] = {"group": group, "group_number": int(kind[1])}
    if region is not None:
        conditions["region"] = region
    if at >= len(lines):
        raise FormatError(f"{where}: found no column names; the output is incomplete")
    header = lines[at].split(",")
    metric, fixed = kind[2] == "Metric", 1 if kind[2] == "Metric" else 2
    if header[:fixed] != (["Metric"] if metric else ["Event", "Counter"]):
        raise FormatError(f"LIKWID: line {at + 1}: found '{quoted(lines[at], 40)}', column names are required")
    threads: dict[int, int] | None = None
    if kind[3] is None:
        threads = {}
        for column, name in enumerate(header[fixed:], fixed):
            thread = _THREAD.fullmatch(name)
            if thread is None and name:
                raise FormatError(f"LIKWID: line {at + 1}: found column '{quoted(name, 40)}', HWThread is required")
            if thread is not None:
                threads[column] = int(thread[1])
        if not threads:
            raise FormatError(f"LIKWID: line {at + 1}: found no column of a hardware thread")
    rows = []
    for line in range(at + 1, at + 1 + length):
        cells = lines[line].split(",") if line < len(lines) else []
        if cells[:1] in (["TABLE"], ["STRUCT"]):
            raise FormatError(f"{where}: found {line - at - 1} of {length} rows; the output is incomplete")
        if len(cells) != len(header):
            raise FormatError(f"LIKWID: line {line + 1}: found {len(cells)} cells, {len(header)} are required")
        rows.append((line + 1, cells))
    return at + 1 + length, _Table(where, metric, conditions, threads, rows)


def _records(about: About, table: _Table) -> Iterator[Record]:
    for at, cells in table.rows:
        where = f"LIKWID: line {at}: {quoted(cells[0], 40)}"
        name, unit, scale, better = _metric(cells[0].removesuffix(" STAT"), where)
        for column, thread in (table.threads or {}).items():
            text = cells[column].strip()
            if text in _MISSING and text:
                continue
            value = scale * number(text, where)
            counter = {} if table.metric else {"counter": _printable(cells[1], where)}
            yield theirs(about, name, unit, better, [value], **table.conditions, cpu=thread, **counter)


def _metric(name: str, where: str) -> tuple[str, str, float, Better]:
    """Name, SI unit, its factor and direction of a metric or an event."""
    match = re.fullmatch(r"(.+?)\s*\[(.+)\]", _printable(name, where))
    if match is None:
        return name, "1", 1.0, "lower" if name == "CPI" else "none"
    if match[2] not in _UNITS:
        raise FormatError(f"{where}: found the unknown unit '{quoted(match[2], 20)}'")
    return re.sub(r"\W+", "_", match[1]).strip("_").lower() or match[1], *_UNITS[match[2]]


def _printable(text: str, where: str) -> str:
    if not text or not text.isprintable():
        raise FormatError(f"{where}: found no name, one is required")
    return text


READERS: Final = [Reader("likwid_perfctr", "likwid-perfctr -O, CSV", recognises, whole(read))]
