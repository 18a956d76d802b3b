"""The Mess benchmark's curves of latency against bandwidth (Barcelona Supercomputing Center).

`memory_curves.csv` (Mess 2.0) has GB/s (10^9 bytes) and nanoseconds. `bwlat_*.txt`, which the Mess simulator reads, has
MB/s and cycles of a clock that the file does not state, of a curve whose share of reads is in the file's name only.
"""

from __future__ import annotations

import csv
import re
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_SHARES: Final = ("read_pct_rounded", "rd_percentage", "rw_ratio")  # percent of reads
_POINT: Final = re.compile(r"-?\d+\.\d+(?:[eE][+-]?\d+)?[ \t]+\d+\.\d+")
_EXACT: Final = re.compile(r"-?\d+\.\d{8,}[ \t]+\d+\.\d{8,}")  # as NumPy and pandas write floats


def recognises(start: str) -> bool:
    names = _names(start.partition("\n")[0])
    return any(n in names for n in _SHARES) and bool(
        {"bandwidth_mean", "latency_mean"} <= names or {"bandwidth_smooth", "latency_smooth"} <= names
    )


def read(text: str, machine: str) -> list[Record]:
    """Latency and bandwidth of each point; the points of bandwidth 0, which the plotter adds, are left out."""
    about = About(machine, "mess")
    rows = _rows(text)
    header = rows[0]
    bandwidth, latency = ("bandwidth_mean", "latency_mean") if "bandwidth_mean" in header else ("bandwidth", "latency")
    share = next(n for n in _SHARES if n in header)
    for name in (bandwidth, latency):
        if name not in header:
            raise FormatError(f"Mess: line 1: found no column {name}")
    made: list[Record] = []
    for at, cells in enumerate(rows[1:], 2):
        where = f"Mess: line {at}"
        if len(cells) != len(header):
            raise FormatError(f"{where}: found {len(cells)} cells, {len(header)} are required")
        row = dict(zip(header, cells, strict=True))
        rate = 1e9 * number(row[bandwidth], f"{where}: {bandwidth}")
        time = 1e-9 * number(row[latency], f"{where}: {latency}")
        reads = number(row[share], f"{where}: {share}")
        if not 0 <= reads <= 100:
            raise FormatError(f"{where}: {share}: found {reads}, a percentage is required")
        stated: dict[str, Scalar] = {"mode": "paced", "read_share": reads / 100, "statistic": "mean"}
        if "pause" in row:
            stated["injected_pause"] = round(number(row["pause"], f"{where}: pause"))
        if rate != 0:
            made.append(ours(about, "loaded", "bandwidth_net", [rate], **stated))
            made.append(ours(about, "loaded", "load_latency", [time], **stated))
    if not made:
        raise FormatError("Mess: found no point")
    return made


def _names(header: str) -> set[str]:
    return {name.strip() for name in header.split(",")}


def _rows(text: str) -> list[list[str]]:
    if not text.endswith("\n"):
        raise FormatError("Mess: found no end of the last line; the file is incomplete")
    try:
        rows = list(csv.reader(text.splitlines(), strict=True))
    except csv.Error as why:
        raise FormatError(f"Mess: found a line that is no CSV ({quoted(str(why), 60)})") from None
    if len(set(rows[0])) != len(rows[0]):
        raise FormatError("Mess: line 1: found two columns of one name")
    return rows


def recognises_bwlat(start: str) -> bool:
    lines = start.splitlines()
    lines = lines[:-1] if len(lines) > 5 and not start.endswith("\n") else lines
    exact = sum(_EXACT.fullmatch(line.strip()) is not None for line in lines)
    if len(lines) < 5 or exact < 0.8 * len(lines):
        return False
    return any(float(line.split()[0]) > 1000 for line in lines if _POINT.fullmatch(line.strip()))


def read_bwlat(text: str, machine: str) -> list[Record]:
    """Bandwidth and cycles of each point of a curve, in the file's order."""
    if not text.endswith("\n"):
        raise FormatError("Mess: found no end of the last line; the file is incomplete")
    about = About(machine, "mess_bwlat")
    made: list[Record] = []
    for at, line in enumerate(text.splitlines(), 1):
        where = f"Mess: line {at}"
        if _POINT.fullmatch(line.strip()) is None:
            raise FormatError(f"{where}: found '{quoted(line, 40)}', a bandwidth and a latency are required")
        rate, cycles = line.split()
        stated: dict[str, Scalar] = {"mode": "paced", "point": at, "statistic": "smoothed"}
        value = 1e6 * number(rate, f"{where}: bandwidth")
        made.append(ours(about, "loaded", "bandwidth_net", [value], **stated))
        made.append(theirs(about, "load_cycles", "1", "lower", [number(cycles, f"{where}: latency")], **stated))
    return made


READERS: Final = [
    Reader("mess", "Mess memory_curves.csv", recognises, whole(read)),
    Reader("mess_bwlat", "Mess simulator bwlat_*.txt", recognises_bwlat, whole(read_bwlat)),
]
