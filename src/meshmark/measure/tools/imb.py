"""The Intel MPI Benchmarks' text: IMB-MPI1, IMB-NBC, IMB-RMA, IMB-EXT and IMB-P2P, one run or several in a file.

IMB prints means over the repetitions, so `statistic` says `mean`; the condition `over_ranks` says whether a time is
that of the slowest rank (t_max), the fastest (t_min) or their mean (t_avg). Mbytes are 10^6 bytes since the version of
2018 and 2^20 bytes before. With -multi, `groups` is the number of groups of `ranks` processes that run at the same
time, and `group` the one that a row is about.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, UnknownMeaning, number, ours, theirs
from meshmark.measure.tools.output import Line, ToolOutput, sections, unexpected
from meshmark.store.record import Record, Scalar

_TITLE: Final = re.compile(
    r"^#[ \t]*Intel ?\(R\) MPI Benchmark(?:s| Suite) V?(?P<version>[\d.]+\w*(?:\.\w+)*)[^,\n]*, (?P<part>[\w-]+) part",
    re.MULTILINE,
)
_DATE: Final = re.compile(r"^# Date +: (\w{3} \w{3} +\d+ [\d:]{8} \d{4})", re.MULTILINE)
_COMMAND: Final = re.compile(
    r"^# Calling sequence was:[ \t]*\n[ \t]*(?:#?[ \t]*\n){0,3}# (?P<command>\S.*)$", re.MULTILINE
)
_BENCHMARK: Final = re.compile(r"# Benchmarking (Multi-)?(\S+)")
_RANKS: Final = re.compile(r"# #processes = (\d{1,9})\b")
_GROUPS: Final = re.compile(r"# \( *(\d{1,9}) groups of (\d{1,9}) processes")
_FAILED: Final = re.compile(r"(?:\d+\s+){1,2}(time-out|out-of-mem|int-overflow)\.?;(.*)")
_COUNTS: Final = {"Group", "#bytes", "#repetitions"}
_OVER: Final = {"t_min[usec]": "minimum", "t_max[usec]": "maximum", "t_avg[usec]": "mean"}
_TIMES: Final = {"t[usec]": "operation_time", **dict.fromkeys(_OVER, "operation_time")} | {
    "t_pure[usec]": "pure_time",
    "t_ovrl[usec]": "overlapped_time",
    "t_CPU[usec]": "compute_time",
}
_KNOWN: Final = {*_COUNTS, *_TIMES, "Mbytes/sec", "Msg/sec", "overlap[%]", "defects"}
_COLLECTIVES: Final = {"Allreduce": "allreduce", "Alltoall": "alltoall", "Barrier": "barrier", "Bcast": "bcast"} | {
    "Reduce": "reduce",
    "Exchange": "exchange",
}


@dataclass(slots=True)
class _Section:
    """A benchmark with a number of ranks; `setting` says what else IMB prints below its name, such as a mode."""

    about: About
    part: str
    megabyte: float
    name: str
    ranks: int = 0
    groups: int = 0
    setting: str = ""
    more: dict[str, Scalar] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    rows: int = 0


def recognises(start: str) -> bool:
    return _TITLE.search(start) is not None


def read(output: ToolOutput) -> None:
    """Every row of every benchmark."""
    for run in sections(output.lines, _TITLE.match):
        _run(output, run)


def _run(output: ToolOutput, run: Sequence[Line]) -> None:
    text = "\n".join(line.text for line in run)
    title = _TITLE.match(text)
    if title is None:
        raise FormatError("no version")
    command = _COMMAND.search(text)
    about = About(output.machine, "imb", title["version"], command["command"] if command else "", _start(text))
    decimal = re.match(r"20(\d\d)", title["version"])
    megabyte = 1e6 if decimal and int(decimal[1]) >= 18 else 2.0**20
    more: dict[str, Scalar] = {"off_cache": True} if "-off_cache" in about.command else {}
    section: _Section | None = None
    seen: set[str] = set()
    for line in run:
        if benchmark := _BENCHMARK.match(line.text):
            _check_rows(output, section, line.number)
            section = _Section(about, title["part"], megabyte, benchmark[2], more=more)
            seen.add(benchmark[2].lower())
        elif line.text.startswith("# All processes entering MPI_Finalize"):
            _check_rows(output, section, line.number)
            section = None
        elif section is not None and line.text.strip():
            _line(output, section, line)
    _check_rows(output, section, run[-1].number)
    for name, number_of_line in _listed(run):
        if name.lower() not in seen:
            output.leave_out(number_of_line, f"{quoted(name, 40)} is in the list of benchmarks, but has no results")


def _check_rows(output: ToolOutput, section: _Section | None, line: int) -> None:
    if section is not None and not section.rows:
        output.leave_out(line, f"found no rows of {quoted(section.name, 40)} above")


def _start(text: str) -> str:
    date = _DATE.search(text)
    try:
        return datetime.strptime(date[1], "%a %b %d %H:%M:%S %Y").isoformat() if date else ""
    except ValueError:
        return ""


def _listed(run: Sequence[Line]) -> list[tuple[str, int]]:
    """The benchmarks that the run says it runs, with the lines that name them."""
    names: list[tuple[str, int]] = []
    within = False
    for line in run:
        if line.text.startswith("# List of Benchmarks to run"):
            within = True
        elif within and line.text.startswith(("#--", "# Benchmarking", "# For nonblocking")):
            break
        elif within and (name := re.fullmatch(r"# (\w+)(?:\s+\(.*)?", line.text)):
            names.append((name[1], line.number))
    return names


def _line(output: ToolOutput, section: _Section, line: Line) -> None:
    text = line.text
    if ranks := _RANKS.match(text):
        section.ranks = int(ranks[1])
    elif groups := _GROUPS.match(text):
        section.groups, section.ranks = int(groups[1]), int(groups[2])
    elif "#repetitions" in text:
        section.columns = text.split()
        if unknown := [c for c in section.columns if c not in _KNOWN]:
            raise UnknownMeaning(f"line {line.number}: the column '{quoted(unknown[0], 40)}' is not known")
    elif text.startswith("#"):
        if mode := re.search(r"(MODE: \S+)", text):
            section.setting = mode[1]
        elif not text.startswith(("#--", "# Group", "# All processes")) and "additional process" not in text:
            section.setting = section.setting or text.strip("#() ")[:80]
    elif re.match(r"\s*\d", text) and (section.columns or "." in text):
        section.rows += 1
        with output.item(line.number):
            _row(output, section, text)
    elif not re.fullmatch(r"[\s\d]+", text):  # the ranks of -map
        output.other_lines += 1


def _row(output: ToolOutput, section: _Section, text: str) -> None:
    if failed := _FAILED.match(text.strip()):
        raise FormatError(f"{section.name}: {failed[1]}; not measured")
    if not section.columns or not section.ranks:
        raise FormatError(f"column names and the number of processes of {quoted(section.name, 40)} are required above")
    cells = text.split()
    if len(cells) != len(section.columns):
        raise FormatError(f"found {len(cells)} cells, {len(section.columns)} are required")
    row = dict(zip(section.columns, cells, strict=True))
    for column in _COUNTS & row.keys():
        if re.fullmatch(r"\d{1,15}", row[column]) is None:
            raise FormatError(f"{column}: {unexpected(row[column], 'a count')}")
    if float(row.get("defects", "0") or 0) > 0:
        raise FormatError(f"defects: found {quoted(row['defects'], 20)}; only results without defects are taken")
    stated: dict[str, Scalar] = {
        "statistic": "mean",
        "message_bytes": int(row.get("#bytes", "0")),
        "ranks": section.ranks,
        "setting": section.setting or None,
        "groups": section.groups or None,
        "group": int(row["Group"]) if "Group" in row else None,
        **section.more,
    }
    for column in [c for c in section.columns if c not in _COUNTS and c != "defects"]:
        if re.fullmatch(r"\d+" if column == "Msg/sec" else r"\d+\.\d\d", row[column]) is None:
            raise FormatError(f"{column}: {unexpected(row[column], 'a number with two decimals')}")
        output.add(*_cell(section, column, number(row[column], column), stated))


def _cell(section: _Section, column: str, value: float, stated: dict[str, Scalar]) -> list[Record]:
    about, name = section.about, section.name
    is_mpi1 = section.part.upper() == "MPI-1"
    pair: dict[str, Scalar] = {"protocol": "send"}
    if not section.groups:
        pair |= {"from_rank": 0, "to_rank": 1}
    of_tool: dict[str, Scalar] = {"benchmark": name, **({} if is_mpi1 else {"part": section.part})}
    if column == "Mbytes/sec":
        if stated["message_bytes"] == 0:
            return []
        rate = [section.megabyte * value]
        if name == "PingPong" and is_mpi1:
            return [ours(about, "pingpong", "bandwidth_net", rate, **stated, **pair)]
        if name == "Exchange" and is_mpi1:  # counts each message four times, as ours does
            operation: dict[str, Scalar] = {"operation": "exchange", "algorithm": "library"}
            return [ours(about, "exchange", "bandwidth_net", rate, **stated, **operation)]
        return [theirs(about, "bandwidth", "B/s", "higher", rate, **of_tool, **stated)]
    if column == "Msg/sec":
        return [theirs(about, "message_rate", "op/s", "higher", [value], **of_tool, **stated)]
    if column == "overlap[%]":
        return [theirs(about, "overlap", "1", "higher", [1e-2 * value], **of_tool, **stated)]
    over = {"over_ranks": _OVER[column]} if column in _OVER else {}
    time = [1e-6 * value]
    if name == "PingPong" and is_mpi1:
        return [ours(about, "pingpong", "message_latency", time, **stated, **pair, **over)]
    collective = _COLLECTIVES.get(name) if is_mpi1 else None
    if collective is not None and column in {"t[usec]", *_OVER}:
        operation = {"operation": collective, "algorithm": "library"}
        return [ours(about, collective, "collective_time", time, **stated, **operation, **over)]
    return [theirs(about, _TIMES[column], "s", "lower", time, **of_tool, **stated, **over)]


READERS: Final = [
    Reader("imb", "Intel MPI Benchmarks (MPI1, NBC, RMA, EXT, P2P), text", recognises, read, version=2),
]
