"""The OSU micro-benchmarks' text (osu_latency, osu_bw, osu_allreduce and so on), one program's output or several.

The programs print means over iterations, so `statistic` says `mean`. A collective's time is the mean over the ranks
too, and with -f also the minimum and the maximum: the condition `over_ranks` says which. Message sizes are bytes of a
message (of the whole vector in reductions). MB are 10^6 bytes. Header lines such as the number of pairs, the window
size and the synchronisation are conditions, and so are buffers on devices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, UnknownMeaning, number, ours, theirs
from meshmark.measure.tools.output import Line, ToolOutput, unexpected
from meshmark.measure.tools.quantities import Unit, slug, unit_of
from meshmark.store.record import Record, Scalar

_TITLE: Final = re.compile(r"[# ]{1,3}OSU (?P<title>\S.*?)(?: Test)?(?: v(?P<version>\d[\w.]*))?\s*$")
_BEGINS: Final = re.compile(r"^[# ]{1,3}OSU (?:MPI|OpenSHMEM|UPC|NCCL|XCCL|RCCL).*(?: Test| v\d)", re.MULTILINE)
_NUMBER: Final = re.compile(r"\d+\.\d{2}")
_COLUMNS: Final = re.compile(r"(\S+(?: (?!\s)\S+)*)")
_STATED: Final = re.compile(r"(?:# )?([A-Z][\w -]{1,40}?)\s*:\s*(\S.*?)\.?$")
_BRACKETS: Final = re.compile(r"\[\s*([\w ]{1,40}?)\s*:\s*(\w+)\s*\]")
_BUFFERS: Final = re.compile(r"Send Buffer on \w+ \((\w)\) and Receive Buffer on \w+ \((\w)\)")
_NAMES: Final = {"window_size": "window_messages"}
_DEFAULTS: Final = {"datatype": "MPI_CHAR"}
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
    """A program's output. `title` is "" if the line with it is missing; `columns` are those after the size."""

    title: str
    about: About
    columns: list[str] = field(default_factory=list)
    sized: bool = True
    stated: dict[str, Scalar] = field(default_factory=dict)
    rows: int = 0
    is_closed: bool = False  # an empty line was below its rows; other rows below it may be of another program


def recognises(start: str) -> bool:
    return _BEGINS.search(start) is not None


def read(output: ToolOutput) -> None:
    """Every row of every program."""
    table: _Table | None = None
    for line in output.lines:
        text = line.text.strip()
        if title := _TITLE.match(text):
            table = _Table(title["title"], About(output.machine, "osu", title["version"] or ""))
        elif text.startswith("#") and table is not None:
            table = _header(table, text)
        elif table is not None and text:
            _row(output, table, line)
        elif table is not None:
            table.is_closed = table.rows > 0


def _header(table: _Table, text: str) -> _Table:
    """The table that a line of a header belongs to: a new one without a title if there are column names already."""
    names = _COLUMNS.findall(text[1:].strip())
    sized = names[:1] == ["Size"]
    if sized or (names and names[0].endswith("(us)") and ":" not in text):
        if table.columns:
            table = _Table("", table.about)
        table.columns, table.sized = names[sized:], sized
        return table
    stated = dict(_BRACKETS.findall(text))
    if buffers := _BUFFERS.search(text):
        stated = {"buffers": f"{buffers[1]} {buffers[2]}"}
    elif not stated and (match := _STATED.fullmatch(text)):
        stated = {match[1]: match[2]}
    for key, value in stated.items():
        name = _NAMES.get(slug(key), slug(key))
        if _DEFAULTS.get(name) != value:
            table.stated[name] = int(value) if re.fullmatch(r"\d{1,15}", value) else quoted(value, 60)
    return table


def _row(output: ToolOutput, table: _Table, line: Line) -> None:
    cells = line.text.split()
    is_row = re.fullmatch(r"\d[\d.]*" if table.sized else r"[\d.]+|nan|-[\d.]+", cells[0])
    values = cells[table.sized :]
    fits = len(values) == len(table.columns) and any(map(_NUMBER.fullmatch, values))
    if not is_row or (table.is_closed and not fits):
        output.other_lines += 1
        return
    with output.item(line.number):
        if not table.columns or not table.title:
            raise FormatError("a title and column names are required above")
        size = 0
        if table.sized:
            if re.fullmatch(r"\d{1,15}", cells[0]) is None:
                raise FormatError(f"size: found '{quoted(cells[0], 40)}', a number of bytes is required")
            size = int(cells.pop(0))
        if len(cells) != len(table.columns):
            raise FormatError(f"found {len(cells)} cells, {len(table.columns)} are required")
        for name, cell in zip(table.columns, cells, strict=True):
            if name == "Validation":
                if cell != "Pass":
                    raise FormatError(f"validation: found '{quoted(cell, 20)}'; only results that pass are taken")
            elif name == "Iterations":
                number(cell, "iterations", above_zero=True)
            elif cell == "nan" or (_NUMBER.fullmatch(cell) is None and "%" not in name):
                raise unexpected(cell, "a number with two decimals") if cell != "nan" else FormatError(f"{name}: nan")
            else:
                output.add(_record(table, name, number(cell, quoted(name, 40)), size))
        table.rows += 1


def _unit(column: str) -> tuple[str, Unit]:
    """Name and unit of a column such as `Avg Latency(us)` or `MB/s`.

    Raises:
        UnknownMeaning: The unit is not known.
    """
    name, bracket, unit = column.partition("(")
    unit = unit.rstrip(")").strip() if bracket else column.strip()
    known = unit_of(unit)
    if known.si not in {"s", "B/s", "op/s", "1"} or not unit:
        raise UnknownMeaning(f"column '{quoted(column, 40)}': the unit is not known")
    return name.strip().lower() if bracket else "", known


def _record(table: _Table, column: str, value: float, size: int) -> Record:
    """A cell: a time, a rate of bytes or messages, or an overlap in percent."""
    stated: dict[str, Scalar] = {"statistic": "mean", "message_bytes": size, **table.stated}
    name, unit = _unit(column)
    samples = [unit.factor * value]
    library, _, program = table.title.partition(" ")
    if library.startswith("MPI-"):
        stated["device"] = library.removeprefix("MPI-").lower()
    if unit.si == "B/s":
        return theirs(table.about, "bandwidth", "B/s", "higher", samples, program=table.title, **stated)
    if unit.si == "op/s":
        return theirs(table.about, "message_rate", "op/s", "higher", samples, program=table.title, **stated)
    if unit.si == "1":
        return theirs(table.about, slug(name) or "share", "1", "higher", samples, program=table.title, **stated)
    is_mpi = library in {"MPI", "MPI-CUDA", "MPI-ROCM", "MPI-OPENACC"}
    if is_mpi and program == "Latency" and name in {"latency", "avg latency"}:
        ranks: dict[str, Scalar] = {"protocol": "send", "from_rank": 0, "to_rank": 1, "ranks": 2}
        return ours(table.about, "pingpong", "message_latency", samples, **stated, **ranks)
    if is_mpi and program in _OURS and name in _OVER:
        operation: dict[str, Scalar] = {
            "operation": _OURS[program],
            "algorithm": "library",
            "over_ranks": _OVER[name],
        }
        return ours(table.about, _OURS[program], "collective_time", samples, **stated, **operation)
    if tail := re.fullmatch(r"p(\d+) tail lat", name):
        stated |= {"statistic": "percentile", "percentile": int(tail[1])}
        name = "latency"
    elif name in _OVER:
        stated["over_ranks"] = _OVER[name]
        name = "latency"
    return theirs(table.about, slug(name) or "time", "s", "lower", samples, program=table.title, **stated)


READERS: Final = [Reader("osu", "OSU micro-benchmarks, text", recognises, read, version=2)]
