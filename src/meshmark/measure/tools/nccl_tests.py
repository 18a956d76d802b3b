"""The text of nccl-tests and rccl-tests: times and rates of collectives among GPUs, one run or several in a file.

Times are means over the iterations. The algorithm bandwidth is the size over the time; the bus bandwidth is corrected
for the number of ranks. GB are 10^9 bytes. The collective is known from the line `Collective test starting`, or from
the name of the program in a line above.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, UnknownMeaning, number, theirs
from meshmark.measure.tools.output import Line, ToolOutput, unexpected
from meshmark.store.record import Record, Scalar

_HEAD: Final = re.compile(r"#\s+size\s+count\s.*\balgbw\b.*\bbusbw\b")
_VERSION: Final = re.compile(r"# (?:n|r)ccl-tests version (\S{1,40})")
_COLLECTIVE: Final = re.compile(
    r"\b((?:all_reduce|all_gather|alltoall|broadcast|reduce_scatter|reduce|gather|scatter|sendrecv|hypercube)\w{0,20})_perf\b"
)
_RUN: Final = re.compile(r"# nThread (\d{1,6}) nGpus (\d{1,6}) ")
_AVERAGE: Final = re.compile(r"# Avg bus bandwidth\s*:\s*(\S+)")
_TEXTS: Final = {"type": "datatype", "redop": "reduction", "root": "root"}
_NAMES: Final = {"size", "count", "time", "algbw", "busbw", "#wrong", "error", *_TEXTS}


@dataclass(slots=True)
class _Run:
    """The facts that the lines above the rows state."""

    about: About
    collective: str = ""
    stated: dict[str, Scalar] = field(default_factory=dict)
    ranks: int = 0
    columns: list[str] = field(default_factory=list)
    has_units: bool = False

    @property
    def conditions(self) -> dict[str, Scalar]:
        collective = {"operation": self.collective} if self.collective else {}
        return {**collective, **self.stated, **({"ranks": self.ranks} if self.ranks else {})}


def recognises(start: str) -> bool:
    return re.search(rf"^[ \t]*{_HEAD.pattern}", start, re.MULTILINE) is not None


def read(output: ToolOutput) -> None:
    """Time and rates of each size, out of place and in place."""
    run = _Run(About(output.machine, "nccl_tests"))
    for line in output.lines:
        text = line.text.strip()
        if version := _VERSION.match(text):
            run = _Run(About(output.machine, "nccl_tests", version[1]))
        elif begin := _RUN.match(text):
            run = _Run(run.about, run.collective, _options(text, int(begin[1]), int(begin[2])))
        elif (collective := _COLLECTIVE.search(text)) and not text.startswith("#  Rank"):
            run.collective = collective[1]
        elif re.match(r"#\s+Rank\s+\d+ ", text):
            run.ranks += 1
        elif _HEAD.match(text):
            run.columns, run.has_units = text.lstrip("#").split(), False
            if unknown := [name for name in run.columns if name not in _NAMES]:
                raise UnknownMeaning(f"line {line.number}: the column '{quoted(unknown[0], 40)}' is not known")
        elif run.columns and re.match(r"#\s+\(B\)", text):
            units = re.findall(r"\((\S+?)\)", text)
            if not {*units} <= {"B", "elements", "elts", "us", "GB/s"}:
                raise UnknownMeaning(f"line {line.number}: found '{quoted(text, 60)}', (us) and (GB/s) are required")
            run.has_units = True
        elif average := _AVERAGE.match(text):
            with output.item(line.number):
                value = [1e9 * number(average[1], "average bus bandwidth")]
                if output.is_cut(line):
                    raise FormatError("the text ends within the line")
                output.add(theirs(run.about, "mean_bus_bandwidth", "B/s", "higher", value, **run.conditions))
        elif run.columns and re.match(r"\d", text):
            with output.item(line.number):
                _row(output, run, line)
        elif run.columns and text and not text.startswith("#"):
            output.other_lines += 1


def _options(text: str, threads: int, gpus: int) -> dict[str, Scalar]:
    """The options that change what is measured, without those that have their default."""
    options = dict(re.findall(r"(agg iters|graph|unalign|blocking): (\d{1,9})", text))
    stated: dict[str, Scalar] = {"host_threads": threads, "gpus_per_thread": gpus}
    if int(options.get("agg iters", "1")) != 1:
        stated["aggregated"] = int(options["agg iters"])
    return stated | {key: int(options[key]) for key in ("graph", "unalign", "blocking") if int(options.get(key, "0"))}


def _row(output: ToolOutput, run: _Run, line: Line) -> None:
    cells = line.text.split()
    if len(cells) != len(run.columns) or output.is_cut(line):
        raise FormatError(f"found {len(cells)} whole cells, {len(run.columns)} are required")
    if not run.has_units:
        raise FormatError("the line with the units (us) and (GB/s) is required above")
    first = run.columns.index("time")
    width = (len(run.columns) - first) // (2 if run.columns.count("time") == 2 else 1)
    fixed = dict(zip(run.columns[:first], cells[:first], strict=True))
    if not re.fullmatch(r"\d{1,18}", fixed.get("size", "")):
        raise FormatError(f"size: {unexpected(fixed.get('size', ''), 'a number of bytes')}")
    stated: dict[str, Scalar] = {**run.conditions, "message_bytes": int(fixed["size"]), "statistic": "mean"}
    for column, name in _TEXTS.items():
        if column in fixed and fixed[column] not in {"-1", "none"}:
            stated[name] = int(fixed[column]) if column == "root" and fixed[column].isdecimal() else fixed[column]
    for place, begin in (("out", first), ("in", first + width)):
        names, values = run.columns[begin : begin + width], cells[begin : begin + width]
        if names:
            output.add(*_records(run.about, dict(zip(names, values, strict=True)), {**stated, "place": place}))


def _records(about: About, cells: dict[str, str], stated: dict[str, Scalar]) -> list[Record]:
    if cells.get("#wrong", "0") not in {"0", "N/A"}:
        raise FormatError(f"#wrong: found {quoted(cells['#wrong'], 20)}; only results without errors are taken")
    if cells["time"] == "N/A":
        return []
    records = [theirs(about, "operation_time", "s", "lower", [1e-6 * number(cells["time"], "time")], **stated)]
    for column, metric in (("algbw", "algorithm_bandwidth"), ("busbw", "bus_bandwidth")):
        records.append(theirs(about, metric, "B/s", "higher", [1e9 * number(cells[column], column)], **stated))
    return records


READERS: Final = [Reader("nccl_tests", "nccl-tests and rccl-tests, text", recognises, read)]
