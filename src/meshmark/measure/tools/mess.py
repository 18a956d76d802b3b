"""The Mess benchmark's curves of latency against bandwidth (Barcelona Supercomputing Center).

`memory_curves.csv` (Mess 2.0) has GB/s (10^9 bytes) and nanoseconds. `bwlat_*.txt`, which the Mess simulator reads, has
MB/s and cycles of a clock that the file does not state, of a curve whose share of reads is in the file's name only.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, UnknownMeaning, number, ours, theirs
from meshmark.measure.tools.documents import csv_rows
from meshmark.measure.tools.output import ToolOutput
from meshmark.measure.tools.quantities import measured, named, scalar, scaled
from meshmark.store.record import Scalar

_SHARES: Final = ("read_pct_rounded", "rd_percentage", "rw_ratio")  # percent of reads
_KNOWN: Final = {
    *(*_SHARES, "pause", "rd_percentage_actual_mean", "rd_percentage_actual_std"),
    *(f"{quantity}{kind}" for quantity in ("bandwidth", "latency") for kind in ("", "_mean", "_std", "_smooth")),
}
_POINT: Final = re.compile(r"-?\d+\.\d+(?:[eE][+-]?\d+)?[ \t]+-?\d+\.\d+")
_EXACT: Final = re.compile(r"-?\d+\.\d{8,}[ \t]+\d+\.\d{8,}")  # as NumPy and pandas write floats


def recognises(start: str) -> bool:
    return any(map(_is_header, start.split("\n", 20)[:20]))


def _is_header(line: str) -> bool:
    names = {name.strip() for name in line.split(",")}
    return any(n in names for n in _SHARES) and bool(
        {"bandwidth_mean", "latency_mean"} <= names or {"bandwidth_smooth", "latency_smooth"} <= names
    )


def read(output: ToolOutput) -> None:
    """Latency and bandwidth of each point; the points of bandwidth 0, which the plotter adds, are passed over."""
    about = About(output.machine, "mess")
    begin = next((at for at, line in enumerate(output.lines) if _is_header(line.text)), 0)
    output.other_lines += begin
    names = [name.strip() for name in output.lines[begin].text.split(",")]
    if len(set(names)) != len(names):
        raise UnknownMeaning(f"line {begin + 1}: found two columns of one name")
    bandwidth, latency = ("bandwidth_mean", "latency_mean") if "bandwidth_mean" in names else ("bandwidth", "latency")
    for name in (bandwidth, latency):
        if name not in names:
            raise UnknownMeaning(f"line {begin + 1}: found no column {name}")
    share = next(name for name in _SHARES if name in names)
    for at, row in csv_rows(output, output.lines[begin:]):
        if list(row.values()) == names:
            continue  # of a further file
        with output.item(at):
            rate, time = number(row[bandwidth], bandwidth), number(row[latency], latency)
            reads = number(row[share], share)
            if not 0 <= reads <= 100:
                raise FormatError(f"{share}: found {reads}, a percentage is required")
            if output.is_cut(output.lines[at - 1]) and names[-1] in {bandwidth, latency, share}:
                raise FormatError(f"{names[-1]}: found no end of the line; it is cut off")
            stated: dict[str, Scalar] = {"mode": "paced", "read_share": reads / 100, "statistic": "mean"}
            if "pause" in row:
                stated["injected_pause"] = round(number(row["pause"], "pause"))
            stated |= named({name: scalar(cell) for name, cell in row.items() if name not in _KNOWN})
            if rate != 0:
                rate, time = scaled(rate, 1e9, bandwidth), scaled(time, 1e-9, latency)
                output.add(
                    ours(about, "loaded", "bandwidth_net", [measured(rate, "B/s", bandwidth)], **stated),
                    ours(about, "loaded", "load_latency", [measured(time, "s", latency)], **stated),
                )


def recognises_bwlat(start: str) -> bool:
    lines = start.splitlines()
    lines = lines[:-1] if len(lines) > 5 and not start.endswith("\n") else lines
    exact = sum(_EXACT.fullmatch(line.strip()) is not None for line in lines)
    if len(lines) < 5 or exact < 0.8 * len(lines):
        return False
    return any(float(line.split()[0]) > 1000 for line in lines if _POINT.fullmatch(line.strip()))


def read_bwlat(output: ToolOutput) -> None:
    """Bandwidth and cycles of each point of a curve, in the file's order."""
    about = About(output.machine, "mess_bwlat")
    for line in output.lines:
        if not line.text.strip():
            continue
        with output.item(line.number):
            if _POINT.fullmatch(line.text.strip()) is None:
                raise FormatError(f"found '{quoted(line.text, 40)}', a bandwidth and a latency are required")
            if output.is_cut(line) and _EXACT.fullmatch(line.text.strip()) is None:
                raise FormatError("found no end of the line; it is cut off")
            rate, cycles = line.text.split()
            stated: dict[str, Scalar] = {"mode": "paced", "point": line.number, "statistic": "smoothed"}
            value = measured(scaled(number(rate, "bandwidth"), 1e6, "bandwidth"), "B/s", "bandwidth")
            output.add(
                ours(about, "loaded", "bandwidth_net", [value], **stated),
                theirs(about, "load_cycles", "1", "lower", [number(cycles, "latency", above_zero=True)], **stated),
            )


READERS: Final = [
    Reader("mess", "Mess memory_curves.csv", recognises, read, version=2),
    Reader("mess_bwlat", "Mess simulator bwlat_*.txt", recognises_bwlat, read_bwlat, version=2),
]
