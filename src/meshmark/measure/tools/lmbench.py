"""lmbench's numbers of memory: lat_mem_rd and bw_mem, alone or as titled sections of a results file (versions 2 and 3).

lat_mem_rd prints footprints in MiB and times per load in ns; bw_mem prints sizes and rates in decimal MB. bw_mem does
not print which operation it ran, and it counts the bytes of a copy once; only the titles of a results file tell that a
rate is that of reading or writing whole arrays, as in our kernels `read` and `write`.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_STRIDE: Final = re.compile(r'"stride=(\d{1,9})')
_LATENCY: Final = re.compile(r"(\d{1,12}\.\d{5}) (\d{1,12}\.\d{3})")
_RATE: Final = re.compile(r"(0\.\d{6}|[1-9]\d{0,12}\.\d{2}) (0\.\d{6}|[1-9]\d{0,12}\.\d{2})")
_LOADS: Final = {"Memory load latency": "stride", "Random load latency": "random"}
_RATES: Final = {
    "Memory read bandwidth": "read",
    "Memory write bandwidth": "write",
    "Memory partial read bandwidth": "partial_read",
    "Memory partial write bandwidth": "partial_write",
    "Memory partial read/write bandwidth": "partial_update",
    "Memory bzero bandwidth": "bzero",
    "libc bcopy unaligned": "bcopy_unaligned",
    "libc bcopy aligned": "bcopy_aligned",
    "unrolled bcopy unaligned": "unrolled_bcopy",
    "unrolled partial bcopy unaligned": "unrolled_partial_bcopy",
}
_STEP: Final = 512  # bytes; lat_mem_rd's footprints are multiples of it


def recognises(start: str) -> bool:
    return (
        re.search(r'^"stride=\d{1,9}\n\d+\.\d{5} \d+\.\d{3}$', start, re.MULTILINE) is not None
        or re.match(rf"(?:{_RATE.pattern}\n)+\n*\Z", start) is not None
        or any(re.search(rf'^"?{re.escape(t)}\n{_RATE.pattern}$', start, re.MULTILINE) for t in _RATES)
    )


def read(text: str, machine: str) -> list[Record]:
    """The curves of latency and rate; other sections of a results file are left out."""
    if not text.endswith("\n"):
        raise FormatError("lmbench: found no end of the last line; the output is cut off")
    lines = text.splitlines()
    made: list[Record] = []
    version = re.search(r"^\[lmbench([\d.]+)", text, re.MULTILINE)
    about = About(machine, "lmbench", version[1] if version else "")
    pattern: str | None = None
    at = 0
    bare = re.match(_RATE, text) is not None
    if bare:
        at = _rates(about, lines, 0, None, made)
    while at < len(lines):
        title = lines[at].strip().lstrip('"')
        at += 1
        if title in _LOADS:
            pattern = _LOADS[title]
        elif stride := _STRIDE.fullmatch(lines[at - 1].strip()):
            at = _latencies(about, lines, at, int(stride[1]), pattern, made)
        elif title in _RATES:
            at = _rates(about, lines, at, _RATES[title], made)
        elif _LATENCY.fullmatch(title) or (bare and title) or title.startswith("stride"):
            raise FormatError(
                f"lmbench: line {at}: found '{quoted(title, 40)}'; required: the title of its section above"
            )
    if not made:
        raise FormatError("lmbench: found no section of memory; required: '\"stride=64' or a title with rates below it")
    return made


def _latencies(about: About, lines: list[str], at: int, stride: int, pattern: str | None, made: list[Record]) -> int:
    """Adds the curve of a stride; returns the index of the line behind it."""
    begin = at
    last = 0.0
    while at < len(lines) and lines[at].strip():
        point = _LATENCY.fullmatch(lines[at].strip())
        where = f"lmbench: line {at + 1}"
        if point is None:
            raise FormatError(f"{where}: found '{quoted(lines[at], 40)}'; required: a footprint in MiB, a time in ns")
        mebibytes = number(point[1], f"{where}: footprint", above_zero=True)
        if last and not last < mebibytes < 2.1 * last:
            raise FormatError(
                f"{where}: found {point[1][:20]} MiB after {last:g}; required: more, at most twice as much"
            )
        last = mebibytes
        footprint = mebibytes * 2**20
        exact = _STEP * round(footprint / _STEP)
        conditions: dict[str, Scalar] = {
            "footprint_bytes": exact if abs(exact - footprint) < 6 else round(footprint),  # five decimals: 5 bytes
            "stride_bytes": stride,
        }
        if pattern:
            conditions["pattern"] = pattern
        time = 1e-9 * number(point[2], f"{where}: time")
        made.append(ours(about, "latency", "load_latency", [time], **conditions))
        at += 1
    if at == begin or at == len(lines):
        raise FormatError(
            f"lmbench: line {at + 1}: found no empty line below the curve of stride {stride}; it is cut off"
        )
    return at + 1


def _rates(about: About, lines: list[str], at: int, operation: str | None, made: list[Record]) -> int:
    """Adds the rates of a section; returns the index of the line behind it.

    Args:
        operation: None without a title.
    """
    begin = at
    last = 0.0
    while at < len(lines) and lines[at].strip():
        where = f"lmbench: line {at + 1}"
        point = _RATE.fullmatch(lines[at].strip())
        if point is None:
            raise FormatError(f"{where}: found '{quoted(lines[at], 40)}'; required: a size and a rate in MB")
        megabytes = number(point[1], f"{where}: size", above_zero=True)
        if operation and megabytes <= last:
            raise FormatError(f"{where}: found {point[1][:20]} MB after {last:g}; required: a larger size")
        last = megabytes
        rate = 1e6 * number(point[2], f"{where}: rate", above_zero=True)
        size = round(1e6 * megabytes)
        if operation in ("read", "write"):
            made.append(ours(about, "bandwidth", "bandwidth_net", [rate], kernel=operation, footprint_bytes=size))
        else:
            same: dict[str, Scalar] = {"size_bytes": size, **({"operation": operation} if operation else {})}
            made.append(theirs(about, "operation_bandwidth", "B/s", "higher", [rate], **same))
        at += 1
    if at == begin or (operation and at == len(lines)):
        raise FormatError(f"lmbench: line {at + 1}: found no rates with an empty line below; the section is cut off")
    return at + 1


READERS: Final = [Reader("lmbench", "lmbench, lat_mem_rd and bw_mem", recognises, whole(read))]
