"""Reader of the Mess benchmark's curves of latency against bandwidth (Barcelona Supercomputing Center).

`memory_curves.csv` (Mess 2.0) contains GB/s (10^9 bytes) and nanoseconds. `bwlat_*.txt`, which the Mess simulator
reads, contains MB/s and cycles of a clock that the file does not state; only its name states the share of reads.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.measure.importers.base import FormatReader, UnknownMeaningError, matched, number, unexpected
from meshmark.measure.importers.documents import csv_cells, csv_table
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import ToolQuantity, measured, named, scalar, value
from meshmark.store.record import Scalar

_CURVE_RATE: Final = ToolQuantity("loaded.bandwidth_net", "MB/s", above_zero=True)
_CURVE_CYCLES: Final = ToolQuantity("load_cycles", "1", better="lower", above_zero=True)
_SHARES: Final = ("read_pct_rounded", "rd_percentage", "rw_ratio")  # percent of reads
_KNOWN: Final = {
    *(*_SHARES, "pause", "rd_percentage_actual_mean", "rd_percentage_actual_std"),
    *(f"{quantity}{kind}" for quantity in ("bandwidth", "latency") for kind in ("", "_mean", "_std", "_smooth")),
}
_POINT: Final = re.compile(r"-?\d+\.\d+(?:[eE][+-]?\d+)?[ \t]+-?\d+\.\d+")
_EXACT: Final = re.compile(r"-?\d+\.\d{8,}[ \t]+\d+\.\d{8,}")  # as NumPy and pandas write floats


def recognises(start: str) -> bool:
    """Return whether one of the first lines of a file is the header of a curve."""
    return any(map(_is_header, start.split("\n", 20)[:20]))


def _is_header(line: str) -> bool:
    names = {name.strip() for name in line.split(",")}
    return any(n in names for n in _SHARES) and bool(
        {"bandwidth_mean", "latency_mean"} <= names or {"bandwidth_smooth", "latency_smooth"} <= names
    )


def read(output: ToolOutput) -> None:
    """Read latency and bandwidth of each point; points of bandwidth 0, which the plotter adds, are ignored."""
    begin, header = next(((line.number, line.text) for line in output.lines if _is_header(line.text)), (1, ""))
    names = csv_cells(header)
    if len(set(names)) != len(names):
        raise UnknownMeaningError(f"line {begin}: found two columns of one name")
    bandwidth, latency = ("bandwidth_mean", "latency_mean") if "bandwidth_mean" in names else ("bandwidth", "latency")
    if missing := {bandwidth, latency} - {*names}:
        raise UnknownMeaningError(f"line {begin}: found no column {min(missing)}")
    share = next(name for name in _SHARES if name in names)
    for line, row in csv_table(output, _is_header, {bandwidth, latency, share}):
        with output.item(line):
            rate, time = value(row[bandwidth], "GB/s", bandwidth), value(row[latency], "ns", latency)
            reads = number(row[share], share)
            if not 0 <= reads <= 100:
                raise unexpected(row[share], "a percentage", share)
            conditions: dict[str, Scalar] = {"mode": "paced", "read_share": reads / 100, "statistic": "mean"}
            if "pause" in row:
                conditions["injected_pause"] = round(number(row["pause"], "pause"))
            conditions |= named({name: scalar(cell) for name, cell in row.items() if name not in _KNOWN})
            if rate != 0:
                output.add_meshmark_metric("loaded.bandwidth_net", measured(rate, "B/s", bandwidth), **conditions)
                output.add_meshmark_metric("loaded.load_latency", measured(time, "s", latency), **conditions)


def recognises_bwlat(start: str) -> bool:
    """Return whether the start of a file is a table of bandwidths and latencies without a header.

    At least four of five lines must be points, and one bandwidth above 1000 MB/s distinguishes them from other numbers.
    """
    lines = start.splitlines()
    lines = lines[:-1] if len(lines) > 5 and not start.endswith("\n") else lines
    exact_lines = sum(_EXACT.fullmatch(line.strip()) is not None for line in lines)
    if len(lines) < 5 or exact_lines < 0.8 * len(lines):
        return False
    return any(float(line.split()[0]) > 1000 for line in lines if _POINT.fullmatch(line.strip()))


def read_bwlat(output: ToolOutput) -> None:
    """Read bandwidth and cycles of each point of a curve, in the order of the file."""
    point = 0
    for line in output.lines:
        if not line.text.strip():
            continue
        point += re.match(r"\s*[-+.\d]", line.text) is not None
        with output.item(line.number):
            matched(
                _EXACT if output.is_cut(line) else _POINT, line.text.strip(), "a whole bandwidth and a whole latency"
            )
            rate, cycles = line.text.split()
            conditions: dict[str, Scalar] = {"mode": "paced", "point": point, "statistic": "smoothed"}
            output.take(_CURVE_RATE, rate, "bandwidth", **conditions)
            output.take(_CURVE_CYCLES, cycles, "latency", **conditions)


READERS: Final = [
    FormatReader("mess", "Mess memory_curves.csv", recognises, read, version=2),
    FormatReader("mess_bwlat", "Mess simulator bwlat_*.txt", recognises_bwlat, read_bwlat, version=2),
]
