"""Reader of the text of the Intel MPI Benchmarks: IMB-MPI1, -NBC, -RMA, -EXT, -P2P and -MT, one or several runs.

IMB prints means over the repetitions, so the condition `statistic` is `mean`. The condition `over_ranks` states whether
a time is the time of the slowest rank (t_max), of the fastest rank (t_min) or the mean over the ranks (t_avg). A Mbyte
is 10^6 bytes since version 2018, and 2^20 bytes before. With -multi, `groups` is the number of groups of `ranks`
processes that run at the same time, and `group` is the number of the group of a row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import (
    FormatError,
    FormatReader,
    UnknownMeaningError,
    count,
    ctime,
    has,
    matched,
    number,
)
from meshmark.measure.importers.documents import row_of
from meshmark.measure.importers.output import OutputLine, ToolOutput, sections
from meshmark.measure.importers.quantities import ToolQuantity
from meshmark.store.record import Scalar

_TITLE: Final = re.compile(
    r"^#[ \t]*Intel ?\(R\) MPI Benchmark(?:s| Suite) V?(?P<version>[\d.]+\w*(?:\.\w+)*)[^,\n]*, (?P<part>[\w-]+) part"
    r"(?P<gpu> \(GPU\))?",
    re.MULTILINE,
)
_DATE: Final = re.compile(r"^# Date +: (\w{3} \w{3} +\d+ [\d:]{8} \d{4})", re.MULTILINE)
_COMMAND: Final = re.compile(
    r"^# Calling sequence was:[ \t]*\n[ \t]*(?:#?[ \t]*\n){0,3}# (?P<command>\S.*)$", re.MULTILINE
)
_BENCHMARK: Final = re.compile(r"# Benchmarking (Multi-)?(\S+)")
_RANKS: Final = re.compile(
    r"# (?:#processes =|\( *(?P<groups>\d{1,9}) groups of) (?P<ranks>\d{1,9})\b(?: +\(threads: (?P<threads>\d{1,9})\))?"
)
_FAILED: Final = re.compile(r"(?:\d+\s+){1,2}(time-out|out-of-mem|int-overflow)\.?;(.*)")
_COUNTS: Final = {"Group", "#bytes", "#repetitions"}
_COLUMNS: Final = {
    "t[usec]": ToolQuantity("operation_time", "us"),
    "t_min[usec]": ToolQuantity("operation_time", "us", {"over_ranks": "minimum"}),
    "t_max[usec]": ToolQuantity("operation_time", "us", {"over_ranks": "maximum"}),
    "t_avg[usec]": ToolQuantity("operation_time", "us", {"over_ranks": "mean"}),
    "t_pure[usec]": ToolQuantity("pure_time", "us"),
    "t_ovrl[usec]": ToolQuantity("overlapped_time", "us"),
    "t_CPU[usec]": ToolQuantity("compute_time", "us"),
    "Mbytes/sec": ToolQuantity("bandwidth", "MB/s"),
    "Msg/sec": ToolQuantity("message_rate", "op/s"),
    "overlap[%]": ToolQuantity("overlap", "%", better="higher"),
}
# Meshmark's metric by benchmark of MPI-1 and metric of IMB. Both count each message of an exchange four times.
_COLLECTIVES: Final = ("Allreduce", "Alltoall", "Barrier", "Bcast", "Reduce", "Exchange")
_OURS: Final = {
    ("PingPong", "operation_time"): "pingpong.message_latency",
    ("PingPong", "bandwidth"): "pingpong.bandwidth_net",
    ("Exchange", "bandwidth"): "exchange.bandwidth_net",
    **{(name, "operation_time"): f"{name.lower()}.collective_time" for name in _COLLECTIVES},
}


@dataclass(slots=True)
class _ImbSection:
    """A benchmark with a number of ranks.

    Attributes:
        stated: Conditions of the benchmark.
        setting: Other text that IMB prints below the name, such as a mode.
    """

    part: str
    megabyte: str
    name: str
    stated: dict[str, Scalar]
    setting: str = ""
    columns: list[str] = field(default_factory=list)
    rows: int = 0


def read(output: ToolOutput) -> None:
    """Read every row of every benchmark."""
    for run in sections(output.lines, _TITLE.match):
        _run(output, run)


def _run(output: ToolOutput, run: Sequence[OutputLine]) -> None:
    text = "\n".join(line.text for line in run)
    title, command, date = (pattern.search(text) for pattern in (_TITLE, _COMMAND, _DATE))
    if title is None:
        raise FormatError("no version")
    output.set_source(title["version"], command["command"] if command else "", ctime(date[1]) if date else "")
    is_recent = title["version"][:2] == "20" and int(title["version"][2:4] or 0) >= 18
    part = re.sub(r"^(?:MPI|IMB)-(?=[A-Z])", "", title["part"])
    common: dict[str, Scalar] = {
        "off_cache": True if "-off_cache" in output.about.command else None,
        "device": "gpu" if title["gpu"] else None,
    }
    section: _ImbSection | None = None
    seen: set[str] = set()
    for line in run:
        if benchmark := _BENCHMARK.match(line.text):
            _check_rows(output, section, line.number)
            section = _ImbSection(part, "MB/s" if is_recent else "MiB/s", benchmark[2], {**common})
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


def _check_rows(output: ToolOutput, section: _ImbSection | None, line: int) -> None:
    if section is not None and not section.rows:
        output.leave_out(line, f"found no rows of {quoted(section.name, 40)} above")


def _listed(run: Sequence[OutputLine]) -> list[tuple[str, int]]:
    """Return the benchmarks in the list at the start of a run, each with its line number."""
    names: list[tuple[str, int]] = []
    in_list = False
    for line in run:
        if line.text.startswith("# List of Benchmarks to run"):
            in_list = True
        elif in_list and line.text.startswith(("#--", "# Benchmarking", "# For nonblocking")):
            break
        elif in_list and (name := re.fullmatch(r"# (\w+)(?:\s+\(.*)?", line.text)):
            names.append((name[1], line.number))
    return names


def _line(output: ToolOutput, section: _ImbSection, line: OutputLine) -> None:
    text = line.text
    if ranks := _RANKS.match(text):
        section.stated |= {key: int(count) for key, count in ranks.groupdict().items() if count}
    elif "#repetitions" in text:
        section.columns = text.split()
        if unknown := {*section.columns} - {*_COUNTS, *_COLUMNS, "defects"}:
            raise UnknownMeaningError(f"line {line.number}: the column '{quoted(min(unknown), 40)}' is not known")
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


def _row(output: ToolOutput, section: _ImbSection, text: str) -> None:
    if failure := _FAILED.match(text.strip()):
        raise FormatError(f"{section.name}: {failure[1]}; not measured")
    if not section.columns or "ranks" not in section.stated:
        raise FormatError(f"column names and the number of processes of {quoted(section.name, 40)} are required above")
    row = row_of(section.columns, text.split())
    counts = {column: count(row.pop(column), column) for column in _COUNTS & row.keys()}
    if number(row.pop("defects", "0"), "defects") > 0:
        raise FormatError("defects: found some; only results without defects are imported")
    row_conditions: dict[str, Scalar] = {
        "statistic": "mean",
        "message_bytes": counts.get("#bytes", 0),
        "setting": section.setting or None,
        "group": counts.get("Group"),
        **section.stated,
    }
    for column, cell in row.items():
        matched(r"\d+" if column == "Msg/sec" else r"\d+\.\d\d", cell, "a number with two decimals", column)
        if column != "Mbytes/sec" or row_conditions["message_bytes"]:
            quantity, conditions = _meaning(section, column)
            output.take(quantity, cell, column, **row_conditions, **conditions)


def _meaning(section: _ImbSection, column: str) -> tuple[ToolQuantity, dict[str, Scalar]]:
    """Return the quantity of a column, and the conditions that belong to it."""
    quantity, name = _COLUMNS[column], section.name
    if column == "Mbytes/sec":
        quantity = replace(quantity, unit=section.megabyte)
    metric = _OURS.get((name, quantity.metric)) if section.part == "MPI-1" else None
    if metric is None:
        return quantity, {"benchmark": name, "part": section.part if section.part != "MPI-1" else None}
    quantity = replace(quantity, metric=metric)
    if name != "PingPong":
        return quantity, {"operation": name.lower(), "algorithm": "library"}
    return quantity, {"protocol": "send"} | ({} if "groups" in section.stated else {"from_rank": 0, "to_rank": 1})


READERS: Final = [
    FormatReader("imb", "Intel MPI Benchmarks (MPI1, NBC, RMA, EXT, P2P, MT), text", has(_TITLE), read, version=3),
]
