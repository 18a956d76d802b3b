"""Reader of the text of the OSU micro-benchmarks (osu_latency, osu_bw, osu_allreduce and so on), one or several.

The programs print means over iterations, so the condition `statistic` is `mean`. The time of a collective is also the
mean over the ranks, or with -f the minimum or the maximum; the condition `over_ranks` states which. Message sizes are
bytes of a message (of the whole vector in reductions). A MB is 10^6 bytes. Header lines such as the number of pairs,
the window size and the synchronisation become conditions, and so do buffers on devices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, UnknownMeaningError, count, has, matched, number
from meshmark.measure.importers.documents import row_of
from meshmark.measure.importers.output import OutputLine, ToolOutput
from meshmark.measure.importers.quantities import ToolQuantity, slug, unit_of
from meshmark.store.record import Scalar

_TITLE: Final = re.compile(r"[# ]{1,3}OSU (?P<title>\S.*?)(?: Test)?(?: v(?P<version>\d[\w.]*))?\s*$")
_BEGINS: Final = re.compile(r"^[# ]{1,3}OSU (?:MPI|OpenSHMEM|UPC|NCCL|XCCL|RCCL).*(?: Test| v\d)", re.MULTILINE)
_NUMBER: Final = re.compile(r"\d+\.\d{2}")
_COLUMNS: Final = re.compile(r"(\S+(?: (?!\s)\S+)*)")
_STATED: Final = re.compile(r"(?:# )?([A-Z][\w -]{1,40}?)\s*:\s*(\S.*?)\.?$")
_BRACKETS: Final = re.compile(r"\[\s*([\w ]{1,40}?)\s*:\s*(\w+)\s*\]")
_STARTUP: Final = re.compile(r"nprocs: (\d{1,9}), min: (\d+) ms, max: (\d+) ms, avg: (\d+) ms")
_OPERATION: Final = re.compile(r"# Operation\s{2,}(?P<columns>\S.*)")
_PROFILES: Final = {"Uni-directional Bandwidth (MB/sec)": "MB/s", "Message Rate Profile": "Messages/s"}
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
class _OsuTable:
    """The output of one program.

    Attributes:
        title: Title of the program; "" if its line is missing.
        columns: Names of the columns after the size.
        sized: Whether the first cell of a row is a size.
        stated: Conditions that header lines state.
        rows: Number of rows that were read.
    """

    title: str
    columns: list[str] = field(default_factory=list)
    sized: bool = True
    stated: dict[str, Scalar] = field(default_factory=dict)
    rows: int = 0
    has_operations: bool = False  # the first cell of a row is the name of an operation
    windows: list[int] = field(default_factory=list)  # window size of each column, if columns differ in it
    profile: str = ""  # unit of the columns with window sizes
    is_closed: bool = False  # an empty line followed the rows; rows after it may belong to another program


def read(output: ToolOutput) -> None:
    """Read every row of every program."""
    table: _OsuTable | None = None
    for line in output.lines:
        text = line.text.strip()
        if title := _TITLE.match(text):
            table = _OsuTable(title["title"])
            output.set_source(title["version"] or "")
        elif table is not None and (text.startswith("#") or _is_column_line(table, text)):
            table = _header(table, text)
        elif table is not None and (startup := _STARTUP.fullmatch(text)):
            with output.item(line.number):
                _startup(output, table, startup)
        elif table is not None and text:
            _row(output, table, line)
        elif table is not None:
            table.is_closed = table.rows > 0


def _is_column_line(table: _OsuTable, text: str) -> bool:
    """Return whether a line without `#` names columns of times; the non-blocking barrier prints such a line."""
    return not table.columns and re.fullmatch(r"(?:[A-Z][\w .]{0,30}\([u%]s?\)\s*)+", text) is not None


def _startup(output: ToolOutput, table: _OsuTable, startup: re.Match[str]) -> None:
    for statistic, milliseconds in zip(("minimum", "maximum", "mean"), startup.groups()[1:], strict=True):
        conditions: dict[str, Scalar] = {"program": table.title, "ranks": int(startup[1]), "over_ranks": statistic}
        output.take(ToolQuantity("startup_time", "ms"), milliseconds, statistic, **conditions)
    table.rows += 1


def _profile(table: _OsuTable, text: str) -> _OsuTable | None:
    """Return the table of rates by window size to which a header line belongs; None for any other line."""
    name = text.lstrip("# ").strip()
    if name in _PROFILES:
        if table.rows:
            table = _OsuTable(table.title, stated=table.stated)
        table.profile = _PROFILES[name]
        return table
    if table.profile and re.fullmatch(r"#(?:\s+\d{1,9})+", text):
        table.windows = [int(size) for size in text[1:].split()]
        table.columns = [f"window {size}" for size in table.windows]
        return table
    return None


def _header(table: _OsuTable, text: str) -> _OsuTable:
    """Return the table to which a header line belongs. Further column names begin a new table without a title."""
    if (profile := _profile(table, text)) is not None:
        return profile
    if operations := _OPERATION.match(text):
        table.columns, table.sized = re.split(r"\s{2,}", operations["columns"].strip()), False
        table.has_operations = True
        return table
    names = _COLUMNS.findall(text.lstrip("#").strip())
    sized = names[:1] == ["Size"]
    if sized or (names and names[0].endswith("(us)") and ":" not in text):
        if table.columns:
            table = _OsuTable("")
        table.columns, table.sized = names[sized:], sized
        return table
    conditions = dict(_BRACKETS.findall(text))
    if buffers := _BUFFERS.search(text):
        conditions = {"buffers": f"{buffers[1]} {buffers[2]}"}
    elif not conditions and (match := _STATED.fullmatch(text)):
        conditions = {match[1]: match[2]}
    for key, value in conditions.items():
        name = _NAMES.get(slug(key), slug(key))
        if _DEFAULTS.get(name) != value:
            table.stated[name] = int(value) if re.fullmatch(r"\d{1,15}", value) else quoted(value, 60)
    return table


def _row(output: ToolOutput, table: _OsuTable, line: OutputLine) -> None:
    cells = line.text.split()
    if table.has_operations and len(cells) != 1 + len(table.columns):
        output.other_lines += 1
        return
    operation = cells.pop(0) if table.has_operations else None
    is_row = re.fullmatch(r"\d[\d.]*" if table.sized else r"[\d.]+|nan|-[\d.]+", cells[0])
    values = cells[table.sized :]
    fits = len(values) == len(table.columns) and any(map(_NUMBER.fullmatch, values))
    if not is_row or (table.is_closed and not fits):
        output.other_lines += 1
        return
    with output.item(line.number):
        if not table.columns or not table.title:
            raise FormatError("a title and column names are required above")
        size = count(cells.pop(0), "size") if table.sized else None if table.has_operations else 0
        row = row_of(table.columns, cells)
        if row.pop("Validation", "Pass") != "Pass":
            raise FormatError("validation: only results that pass are imported")
        number(row.pop("Iterations", "1"), "iterations", above_zero=True)
        for name, cell in row.items():
            matched(r"[^n].*" if "%" in name else _NUMBER, cell, "a number with two decimals")
            quantity, conditions = _meaning(table, table.profile if table.windows else name)
            if operation is not None:
                conditions["operation"] = operation
            elif table.windows:
                conditions["window_messages"] = int(name.rpartition(" ")[2])
            output.take(quantity, cell, name, **{"message_bytes": size, **table.stated, **conditions})
        table.rows += 1


def _meaning(table: _OsuTable, column: str) -> tuple[ToolQuantity, dict[str, Scalar]]:
    """Return the quantity of a column such as `Avg Latency(us)` or `MB/s`, and the conditions that the column states.

    Raises:
        UnknownMeaningError: The unit is not known.
    """
    name, bracket, unit = column.partition("(")
    unit = unit.rstrip(")").strip() if bracket else column.strip()
    name = name.strip().lower() if bracket else ""
    si = unit_of(unit).si
    if si not in {"s", "B/s", "op/s", "1"} or not unit:
        raise UnknownMeaningError(f"column '{quoted(column, 40)}': the unit is not known")
    library, _, program = table.title.partition(" ")
    conditions: dict[str, Scalar] = {"statistic": "mean"}
    if library.startswith("MPI-"):
        conditions["device"] = library.removeprefix("MPI-").lower()
    tool_conditions = {**conditions, "program": table.title}
    if si != "s":
        metric = {"B/s": "bandwidth", "op/s": "message_rate"}.get(si, slug(name) or "share")
        return ToolQuantity(metric, unit, better="higher"), tool_conditions
    is_mpi = library in {"MPI", "MPI-CUDA", "MPI-ROCM", "MPI-OPENACC"}
    if is_mpi and program == "Latency" and name in {"latency", "avg latency"}:
        ranks: dict[str, Scalar] = {"protocol": "send", "from_rank": 0, "to_rank": 1, "ranks": 2}
        return ToolQuantity("pingpong.message_latency", unit), {**conditions, **ranks}
    if is_mpi and program in _OURS and name in _OVER:
        conditions |= {"operation": _OURS[program], "algorithm": "library", "over_ranks": _OVER[name]}
        return ToolQuantity(f"{_OURS[program]}.collective_time", unit), conditions
    if tail := re.fullmatch(r"p(\d+) tail lat", name):
        return ToolQuantity("latency", unit), {**tool_conditions, "statistic": "percentile", "percentile": int(tail[1])}
    if name in _OVER:
        return ToolQuantity("latency", unit), {**tool_conditions, "over_ranks": _OVER[name]}
    return ToolQuantity(slug(name) or "time", unit), tool_conditions


READERS: Final = [FormatReader("osu", "OSU micro-benchmarks, text", has(_BEGINS), read, version=3)]
