"""lmbench: lat_mem_rd and bw_mem, alone or as titled sections of a results file (versions 2 and 3), and its other times
and rates, such as `Simple syscall: 0.0912 microseconds`.

lat_mem_rd prints footprints in MiB and times per load in ns; bw_mem prints sizes and rates in decimal MB. bw_mem does
not print which operation it ran, and it counts the bytes of a copy once; only the titles of a results file tell that a
rate is that of reading or writing whole arrays, as in our kernels `read` and `write`.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import Line, ToolOutput, unexpected
from meshmark.store.record import Scalar

_STRIDE: Final = re.compile(r'"stride=(\d{1,9})')
_LATENCY: Final = re.compile(r"(\d{1,12}\.\d{5}) (\d{1,12}\.\d{3})")
_POINT: Final = re.compile(r"\d{1,12}\.\d+ \S+")
_OTHER: Final = re.compile(r"([A-Za-z][\w ,/()<>&.*+-]*?): (\d+\.?\d*) (microseconds|nanoseconds|MB/sec)")
_OTHER_UNITS: Final = {"microseconds": 1e-6, "nanoseconds": 1e-9, "MB/sec": 1e6}
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
        or re.search(r"^\[lmbench[\d.]+ results", start, re.MULTILINE) is not None
        or _is_bw_mem(start)
        or any(re.search(rf'^"?{re.escape(t)}\n{_RATE.pattern}$', start, re.MULTILINE) for t in _RATES)
    )


def _is_bw_mem(start: str) -> bool:
    """Return whether most lines are a size and a rate, the first one included."""
    lines = [line for line in start.split("\n", 2000) if line.strip()]
    matches = [_RATE.fullmatch(line) is not None for line in lines]
    return bool(matches) and matches[0] and 2 * sum(matches) > len(matches)


def read(output: ToolOutput) -> None:
    """The curves of latency and rate, and the other times and rates of a results file."""
    version = re.search(r"^\[lmbench([\d.]+)", output.text, re.MULTILINE)
    about = About(output.machine, "lmbench", version[1] if version else "")
    pattern: str | None = None
    stride: int | None = None
    operation: str | None = None
    has_rates = _RATE.match(output.text.lstrip("\n")) is not None  # of bw_mem alone
    for line in output.lines:
        text = line.text.strip()
        title = text.lstrip('"')
        if not text:
            stride = None
            has_rates = has_rates and operation is None
        elif title in _LOADS:
            pattern, stride, has_rates = _LOADS[title], None, False
        elif begin := _STRIDE.fullmatch(text):
            stride, has_rates = int(begin[1]), False
        elif title in _RATES:
            stride, operation, has_rates = None, _RATES[title], True
        elif other := _OTHER.fullmatch(text):
            stride, has_rates = None, False
            with output.item(line.number):
                value = [_OTHER_UNITS[other[3]] * number(other[2], other[1])]
                if other[3] == "MB/sec":
                    output.add(theirs(about, "operation_bandwidth", "B/s", "higher", value, operation=other[1]))
                else:
                    output.add(theirs(about, "operation_time", "s", "lower", value, operation=other[1]))
        elif _POINT.fullmatch(text) or (text[0].isdigit() and (stride or has_rates)):
            with output.item(line.number):
                if stride:
                    _latency(output, about, line, stride, pattern)
                elif has_rates:
                    _rate(output, about, line, operation)
                else:
                    raise FormatError("the title of its section is required above")
        elif text.startswith('"'):
            stride, has_rates = None, False  # a section of another kind, or a damaged title
        elif stride or has_rates:
            output.other_lines += 1


def _latency(output: ToolOutput, about: About, line: Line, stride: int, pattern: str | None) -> None:
    point = _LATENCY.fullmatch(line.text.strip())
    if point is None:
        raise unexpected(line.text, "a footprint in MiB with five decimals and a time in ns with three")
    footprint = number(point[1], "footprint", above_zero=True) * 2**20
    exact = _STEP * round(footprint / _STEP)
    conditions: dict[str, Scalar] = {
        "footprint_bytes": exact if abs(exact - footprint) < 6 else round(footprint),  # five decimals: 5 bytes
        "stride_bytes": stride,
    }
    if pattern:
        conditions["pattern"] = pattern
    output.add(ours(about, "latency", "load_latency", [1e-9 * number(point[2], "time")], **conditions))


def _rate(output: ToolOutput, about: About, line: Line, operation: str | None) -> None:
    """Add a size and its rate; `operation` is None without a title."""
    point = _RATE.fullmatch(line.text.strip())
    if point is None:
        raise unexpected(line.text, "a size and a rate in MB")
    size = round(1e6 * number(point[1], "size", above_zero=True))
    rate = [1e6 * number(point[2], "rate", above_zero=True)]
    if operation in ("read", "write"):
        output.add(ours(about, "bandwidth", "bandwidth_net", rate, kernel=operation, footprint_bytes=size))
        return
    same: dict[str, Scalar] = {"size_bytes": size, **({"operation": operation} if operation else {})}
    output.add(theirs(about, "operation_bandwidth", "B/s", "higher", rate, **same))


READERS: Final = [Reader("lmbench", "lmbench: lat_mem_rd, bw_mem and results files", recognises, read, version=2)]
