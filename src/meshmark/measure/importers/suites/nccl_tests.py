"""Reader of the text of nccl-tests and rccl-tests: times and rates of collectives among GPUs, one or several runs.

Times are means over the iterations. The algorithm bandwidth is the size over the time; the bus bandwidth is corrected
for the number of ranks. A GB is 10^9 bytes. The line `Collective test starting`, or the name of the program in a line
above, states the collective.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, UnknownMeaningError, count, has, unexpected
from meshmark.measure.importers.documents import row_of
from meshmark.measure.importers.output import OutputLine, ToolOutput
from meshmark.measure.importers.quantities import ToolQuantity
from meshmark.store.record import Scalar

_HEAD: Final = re.compile(r"#\s+size\s+count\s.*\balgbw\b.*\bbusbw\b")
_VERSION: Final = re.compile(r"# (?:n|r)ccl-tests version (\S{1,40})")
_COLLECTIVE: Final = re.compile(
    r"\b((?:all_reduce|all_gather|alltoall|broadcast|reduce_scatter|reduce|gather|scatter|sendrecv|hypercube)\w{0,20})_perf\b"
)
_RUN: Final = re.compile(r"# nThread (\d{1,6}) nGpus (\d{1,6}) ")
_AVERAGE: Final = re.compile(r"# Avg bus bandwidth\s*:\s*(\S+)")
_TEXTS: Final = {"type": "datatype", "redop": "reduction", "root": "root"}
_QUANTITIES: Final = {
    "time": ToolQuantity("operation_time", "us"),
    "algbw": ToolQuantity("algorithm_bandwidth", "GB/s"),
    "busbw": ToolQuantity("bus_bandwidth", "GB/s"),
}
_NAMES: Final = {"size", "count", "#wrong", "error", *_TEXTS, *_QUANTITIES}


@dataclass(slots=True)
class _NcclRun:
    """The facts that the lines above the rows state."""

    collective: str = ""
    stated: dict[str, Scalar] = field(default_factory=dict)
    ranks: int = 0
    columns: list[str] = field(default_factory=list)
    has_units: bool = False

    @property
    def conditions(self) -> dict[str, Scalar]:
        collective = {"operation": self.collective} if self.collective else {}
        return {**collective, **self.stated, **({"ranks": self.ranks} if self.ranks else {})}


def read(output: ToolOutput) -> None:
    """Read the time and the rates of each size, out of place and in place."""
    run = _NcclRun()
    for line in output.lines:
        text = line.text.strip()
        if version := _VERSION.match(text):
            run = _NcclRun()
            output.set_source(version[1])
        elif begin := _RUN.match(text):
            run = _NcclRun(run.collective, _options(text, int(begin[1]), int(begin[2])))
        elif (collective := _COLLECTIVE.search(text)) and not text.startswith("#  Rank"):
            run.collective = collective[1]
        elif re.match(r"#\s+Rank\s+\d+ ", text):
            run.ranks += 1
        elif _HEAD.match(text):
            run.columns, run.has_units = text.lstrip("#").split(), False
            if unknown := [name for name in run.columns if name not in _NAMES]:
                raise UnknownMeaningError(f"line {line.number}: the column '{quoted(unknown[0], 40)}' is not known")
        elif run.columns and re.match(r"#\s+\(B\)", text):
            units = re.findall(r"\((\S+?)\)", text)
            if not {*units} <= {"B", "elements", "elts", "us", "GB/s"}:
                raise UnknownMeaningError(
                    f"line {line.number}: found '{quoted(text, 60)}', (us) and (GB/s) are required"
                )
            run.has_units = True
        elif average := _AVERAGE.match(text):
            with output.item(line.number):
                if output.is_cut(line):
                    raise FormatError("the text ends within the line")
                output.take(ToolQuantity("mean_bus_bandwidth", "GB/s"), average[1], "average", **run.conditions)
        elif run.columns and re.match(r"\d", text):
            with output.item(line.number):
                _row(output, run, line)
        elif run.columns and text and not text.startswith("#"):
            output.other_lines += 1


def _options(text: str, threads: int, gpus: int) -> dict[str, Scalar]:
    """Return the options that change the measured operation, without options that have their default."""
    options = dict(re.findall(r"(agg iters|graph|unalign|blocking): (\d{1,9})", text))
    conditions: dict[str, Scalar] = {"host_threads": threads, "gpus_per_thread": gpus}
    if int(options.get("agg iters", "1")) != 1:
        conditions["aggregated"] = int(options["agg iters"])
    return conditions | {
        key: int(options[key]) for key in ("graph", "unalign", "blocking") if int(options.get(key, "0"))
    }


def _row(output: ToolOutput, run: _NcclRun, line: OutputLine) -> None:
    cells = line.text.split()
    if len(cells) != len(run.columns) or output.is_cut(line):
        raise FormatError(f"found {len(cells)} whole cells, {len(run.columns)} are required")
    if not run.has_units:
        raise FormatError("the line with the units (us) and (GB/s) is required above")
    time_index = run.columns.index("time")
    width = (len(run.columns) - time_index) // (2 if run.columns.count("time") == 2 else 1)
    fixed = row_of(run.columns[:time_index], cells[:time_index])
    conditions: dict[str, Scalar] = {**run.conditions, "message_bytes": count(fixed.get("size", ""), "size")}
    for column, name in _TEXTS.items():
        if fixed.get(column, "none") not in {"-1", "none"}:
            conditions[name] = int(fixed[column]) if column == "root" and fixed[column].isdecimal() else fixed[column]
    for place, begin in (("out", time_index), ("in", time_index + width)):
        row = row_of(run.columns[begin : begin + width], cells[begin : begin + width])
        if row.get("#wrong", "0") not in {"0", "N/A"}:
            raise unexpected(row["#wrong"], "0", "#wrong")
        for column, quantity in _QUANTITIES.items():
            if column in row and row.get("time", "N/A") != "N/A":
                output.take(quantity, row[column], column, **conditions, statistic="mean", place=place)


READERS: Final = [FormatReader("nccl_tests", "nccl-tests and rccl-tests, text", has(rf"^[ \t]*{_HEAD.pattern}"), read)]
