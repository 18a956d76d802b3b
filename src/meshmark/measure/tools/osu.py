"""The OSU micro-benchmarks' text (osu_latency, osu_bw, osu_allreduce and so on), one program's output or several.

The programs print means over iterations, so `statistic` says `mean`. A collective's time is the mean over the ranks
too, and with -f also the minimum and the maximum: the condition `over_ranks` says which. Message sizes are bytes of a
message (of the whole vector in reductions). MB are 10^6 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_TITLE: Final = re.compile(r"# OSU (?P<title>\S.*?)(?: Test)? v(?P<version>\d[\w.]*)\s*$")
_NUMBER: Final = re.compile(r"-?\d+\.\d{2}|nan")
_COLUMNS: Final = re.compile(r"(\S+(?: (?!\s)\S+)*)")
_OURS: Final = {
    "Allreduce Latency": "allreduce",
    "All-to-All Personalized Exchange Latency": "alltoall",
    "Barrier Latency": "barrier",
    "Broadcast Latency": "bcast",
    "Reduce Latency": "reduce",
}
_OVER: Final = {"avg latency": "mean", "latency": "mean", "min latency": "minimum", "max latency": "maximum"}


@dataclass(slots=True)
class _Table:
    """A program's output; `columns` are those after the size."""

    title: str
    version: str
    line: int
    columns: list[str] = field(default_factory=list)
    sized: bool = True
    rows: list[tuple[int, int, list[str]]] = field(default_factory=list)  # line, bytes, cells


def recognises(start: str) -> bool:
    return any(_TITLE.match(line) for line in start.splitlines())


def read(text: str, machine: str) -> list[Record]:
    """Every row of every program."""
    if not text.endswith("\n"):
        raise FormatError("OSU: found no end of the last line; the output is incomplete")
    made: list[Record] = []
    for table in _tables(text):
        about = About(machine, "osu", table.version)
        if not table.rows:
            raise FormatError(f"OSU: line {table.line}: found no row of {quoted(table.title, 60)}")
        for at, size, cells in table.rows:
            made += _row(about, table, f"OSU: line {at}", size, cells)
    return made


def _tables(text: str) -> list[_Table]:
    tables: list[_Table] = []
    open_table = False
    for at, line in enumerate(text.splitlines(), 1):
        if title := _TITLE.match(line):
            tables.append(_Table(title["title"], title["version"], at))
            open_table = True
        elif not line.strip():
            open_table = open_table and not (tables[-1].rows or tables[-1].columns)
        elif line.startswith("#") and open_table:
            _header(tables[-1], line)
        elif open_table or re.match(r"\s*\d+\s+-?\d+\.\d\d\b", line):
            if not open_table or not tables[-1].columns:
                raise FormatError(f"OSU: line {at}: found '{quoted(line, 40)}', a title and column names are required")
            _cells(tables[-1], at, line.split())
    return tables


def _header(table: _Table, line: str) -> None:
    names = _COLUMNS.findall(line[1:].strip())
    if names[:1] == ["Size"]:
        if table.columns:
            raise FormatError(f"OSU: line {table.line}: found column names a second time")
        table.columns = names[1:]
    elif "(us)" in line and not table.columns and ":" not in line:
        table.columns, table.sized = names, False


def _cells(table: _Table, at: int, cells: list[str]) -> None:
    where = f"OSU: line {at}"
    if len(cells) != len(table.columns) + table.sized:
        wanted = len(table.columns) + table.sized
        raise FormatError(f"{where}: found {len(cells)} cells, {wanted} are required")
    size = 0
    if table.sized:
        if re.fullmatch(r"\d{1,15}", cells[0]) is None:
            raise FormatError(f"{where}: size: found '{quoted(cells[0], 40)}', a number of bytes is required")
        size = int(cells[0])
        if table.rows and size != max(2 * table.rows[-1][1], 1):
            raise FormatError(f"{where}: size: found {size} after {table.rows[-1][1]}, twice that is required")
    elif table.rows:
        raise FormatError(f"{where}: found a second row of {quoted(table.title, 60)}")
    table.rows.append((at, size, cells[table.sized :]))


def _row(about: About, table: _Table, where: str, size: int, cells: list[str]) -> list[Record]:
    made: list[Record] = []
    for name, cell in zip(table.columns, cells, strict=True):
        if name == "Validation":
            if cell != "Pass":
                raise FormatError(
                    f"{where}: validation: found '{quoted(cell, 20)}'; only results that pass are imported"
                )
            continue
        if name == "Iterations":
            number(cell, f"{where}: iterations", above_zero=True)
            continue
        if _NUMBER.fullmatch(cell) is None:
            raise FormatError(
                f"{where}: {quoted(name, 40)}: found '{quoted(cell, 40)}', a number with two decimals is required"
            )
        if cell != "nan":
            made.append(_record(about, table.title, name, number(cell, where), size))
    return made


def _record(about: About, title: str, column: str, value: float, size: int) -> Record:
    """A cell: a time in µs, a rate in MB/s or messages/s, or an overlap in percent."""
    stated: dict[str, Scalar] = {"statistic": "mean", "message_bytes": size}
    name, _, unit = column.partition("(")
    name, unit = name.strip().lower(), unit.rstrip(")") or column
    program = title.removeprefix("MPI ")
    if unit in {"us", "µs"}:
        if program == "Latency" and name in {"latency", "avg latency"}:
            ranks: dict[str, Scalar] = {"protocol": "send", "from_rank": 0, "to_rank": 1, "ranks": 2}
            return ours(about, "pingpong", "message_latency", [1e-6 * value], **stated, **ranks)
        if program in _OURS and title != program and name in _OVER:
            operation: dict[str, Scalar] = {
                "operation": _OURS[program],
                "algorithm": "library",
                "over_ranks": _OVER[name],
            }
            return ours(about, _OURS[program], "collective_time", [1e-6 * value], **stated, **operation)
        if tail := re.fullmatch(r"p(\d+) tail lat", name):
            stated |= {"statistic": "percentile", "percentile": int(tail[1])}
            name = "latency"
        elif name in _OVER:
            stated["over_ranks"] = _OVER[name]
            name = "latency"
        return theirs(about, _slug(name) or "time", "s", "lower", [1e-6 * value], program=title, **stated)
    if unit == "MB/s":
        return theirs(about, "bandwidth", "B/s", "higher", [1e6 * value], program=title, **stated)
    if unit == "Messages/s":
        return theirs(about, "message_rate", "op/s", "higher", [value], program=title, **stated)
    if unit == "%":
        return theirs(about, _slug(name) or "share", "1", "higher", [1e-2 * value], program=title, **stated)
    return theirs(about, _slug(column) or "value", "1", "none", [value], program=title, **stated)


def _slug(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_").lower()


READERS: Final = [Reader("osu", "OSU micro-benchmarks, text", recognises, whole(read))]
