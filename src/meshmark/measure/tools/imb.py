"""The Intel MPI Benchmarks' text, IMB-MPI1 (versions of 2018 and later, whose Mbytes are 10^6 bytes).

IMB prints means over the repetitions, so `statistic` says `mean`; the condition `over_ranks` says whether a time is
that of the slowest rank (t_max), the fastest (t_min) or their mean (t_avg).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_VERSION: Final = re.compile(
    r"^# *Intel ?\(R\) MPI Benchmarks (?P<version>[\w.]+)(?: Update \d+)?, MPI-1 part", re.MULTILINE
)
_DATE: Final = re.compile(r"^# Date +: (\w{3} \w{3} +\d+ [\d:]{8} \d{4})", re.MULTILINE)
_COMMAND: Final = re.compile(r"^# Calling sequence was:\s*\n\s*(?:#\s*\n)*# (?P<command>\S.*?)\s*$", re.MULTILINE)
_TITLE: Final = re.compile(r"# Benchmarking (\S+)\s*$")
_RANKS: Final = re.compile(r"# #processes = (\d+)\s*$")
_COLUMNS: Final = {"#bytes", "#repetitions", "t[usec]", "t_min[usec]", "t_max[usec]", "t_avg[usec]", "Mbytes/sec"}
_OVER: Final = {"t_min[usec]": "minimum", "t_max[usec]": "maximum", "t_avg[usec]": "mean"}
_COLLECTIVES: Final = {"Allreduce": "allreduce", "Alltoall": "alltoall", "Barrier": "barrier", "Bcast": "bcast"} | {
    "Reduce": "reduce",
    "Exchange": "exchange",
}


@dataclass(slots=True)
class _Section:
    """A benchmark with a number of ranks; `setting` says what else IMB prints below its name, such as a mode."""

    name: str
    line: int
    ranks: int = 0
    setting: str = ""
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)


def recognises(start: str) -> bool:
    return _VERSION.search(start) is not None


def read(text: str, machine: str) -> list[Record]:
    """Every row of every benchmark."""
    version = _VERSION.search(text)
    if version is None:
        raise FormatError("IMB: found no version, '# Intel(R) MPI Benchmarks …, MPI-1 part' is required")
    if re.fullmatch(r"20\d\d(\.\w+)*", version["version"]) is None:
        raise FormatError(f"IMB: found version {quoted(version['version'], 20)}, one of 2018 or later is required")
    if "# All processes entering MPI_Finalize" not in text:
        raise FormatError("IMB: found no '# All processes entering MPI_Finalize'; the output is incomplete")
    command = _COMMAND.search(text)
    about = About(machine, "imb", version["version"], command["command"] if command else "", _start(text))
    made: list[Record] = []
    names = set()
    for section in _sections(text):
        where = f"IMB: line {section.line}"
        if not section.rows or not section.ranks:
            raise FormatError(f"{where}: found no rows or no number of processes of {quoted(section.name, 40)}")
        names.add(section.name)
        for at, cells in section.rows:
            made += _row(about, section, f"IMB: line {at}", cells)
    if missing := [name for name in _listed(text) if name not in names]:
        raise FormatError(
            f"IMB: found no results of {quoted(missing[0], 40)}, which is in the list of benchmarks to run"
        )
    if not made:
        raise FormatError("IMB: found no results")
    return made


def _start(text: str) -> str:
    date = _DATE.search(text)
    try:
        return datetime.strptime(date[1], "%a %b %d %H:%M:%S %Y").isoformat() if date else ""
    except ValueError:
        return ""


def _listed(text: str) -> Iterator[str]:
    _, heading, after = text.partition("# List of Benchmarks to run:")
    if not heading:
        raise FormatError("IMB: found no '# List of Benchmarks to run:'")
    for line in after.splitlines():
        if line.startswith(("#--", "# Benchmarking")):
            return
        if name := re.match(r"# (\w+)\s*$", line):
            yield name[1]


def _sections(text: str) -> Iterator[_Section]:
    section: _Section | None = None
    last_bytes = -1
    for at, line in enumerate(text.splitlines(), 1):
        where = f"IMB: line {at}"
        if title := _TITLE.match(line):
            if section is not None:
                yield section
            section, last_bytes = _Section(title[1], at), -1
        elif (
            section is None
            or not line.strip()
            or line.startswith(("#--", "# All processes"))
            or "additional processes waiting" in line
        ):
            continue
        elif ranks := _RANKS.match(line):
            section.ranks = int(ranks[1][:9])
        elif line.strip().startswith("#") and "#repetitions" in line:
            if section.columns:
                raise FormatError(f"{where}: found column names a second time")
            section.columns = line.split()
            if unknown := [c for c in section.columns if c not in _COLUMNS]:
                raise FormatError(f"{where}: found the unknown column '{quoted(unknown[0], 40)}'")
        elif line.startswith("#"):
            section.setting = line.strip("#() ")[:80]  # a mode, or how many groups run at once
        else:
            cells = line.split()
            if len(cells) != len(section.columns):
                raise FormatError(f"{where}: found {len(cells)} cells, {len(section.columns)} are required")
            if section.columns[0] == "#bytes":
                if re.fullmatch(r"\d{1,15}", cells[0]) is None or int(cells[0]) <= last_bytes:
                    raise FormatError(f"{where}: #bytes: found '{quoted(cells[0], 40)}', more than above is required")
                last_bytes = int(cells[0])
            section.rows.append((at, cells))
    if section is not None:
        yield section


def _row(about: About, section: _Section, where: str, cells: list[str]) -> list[Record]:
    row = dict(zip(section.columns, cells, strict=True))
    if re.fullmatch(r"[1-9]\d{0,11}", row.get("#repetitions", "")) is None:
        raise FormatError(
            f"{where}: #repetitions: found '{quoted(row.get('#repetitions', ''), 40)}', a count is required"
        )
    stated: dict[str, Scalar] = {
        "statistic": "mean",
        "message_bytes": int(row.get("#bytes", "0")),
        "ranks": section.ranks,
        "setting": section.setting or None,
    }
    made: list[Record] = []
    for column, cell in row.items():
        if column in {"#bytes", "#repetitions"}:
            continue
        if re.fullmatch(r"\d+\.\d\d", cell) is None:
            raise FormatError(f"{where}: {column}: found '{quoted(cell, 40)}', a number with two decimals is required")
        made += _cell(about, section.name, column, number(cell, where), stated)
    return made


def _cell(about: About, name: str, column: str, value: float, stated: dict[str, Scalar]) -> list[Record]:
    pair: dict[str, Scalar] = {"protocol": "send", "from_rank": 0, "to_rank": 1}
    collective = _COLLECTIVES.get(name)
    if column == "Mbytes/sec":
        if stated["message_bytes"] == 0:
            return []
        if name == "PingPong":
            return [ours(about, "pingpong", "bandwidth_net", [1e6 * value], **stated, **pair)]
        if name == "Exchange":  # counts each message four times, as ours does
            operation: dict[str, Scalar] = {"operation": "exchange", "algorithm": "library"}
            return [ours(about, "exchange", "bandwidth_net", [1e6 * value], **stated, **operation)]
        return [theirs(about, "bandwidth", "B/s", "higher", [1e6 * value], benchmark=name, **stated)]
    if name == "PingPong":
        return [ours(about, "pingpong", "message_latency", [1e-6 * value], **stated, **pair)]
    over = {"over_ranks": _OVER[column]} if column in _OVER else {}
    if collective is not None:
        operation = {"operation": collective, "algorithm": "library"}
        return [ours(about, collective, "collective_time", [1e-6 * value], **stated, **operation, **over)]
    return [theirs(about, "operation_time", "s", "lower", [1e-6 * value], benchmark=name, **stated, **over)]


READERS: Final = [Reader("imb", "Intel MPI Benchmarks (IMB-MPI1), text", recognises, whole(read))]
