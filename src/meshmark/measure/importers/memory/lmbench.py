"""Reader of lmbench, versions 2 and 3.

It reads lat_mem_rd and bw_mem, alone or as titled sections of a results file, and other times and rates, such as
`Simple syscall: 0.0912 microseconds`.

lat_mem_rd prints footprints in MiB and times per load in ns; bw_mem prints sizes and rates in decimal MB. bw_mem does
not print which operation it ran, and it counts the bytes of a copy once. Only the titles of a results file state that a
rate was measured by reading or writing whole arrays, like the kernels `read` and `write` of `bandwidth`.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.measure.importers.base import FormatError, FormatReader, matched
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import ToolQuantity, value
from meshmark.store.record import Scalar

_STRIDE: Final = re.compile(r'"stride=(\d{1,9})')
_LATENCY: Final = re.compile(r"(\d{1,12}\.\d{5}) (\d{1,12}\.\d{3})")
_POINT: Final = re.compile(r"\d{1,12}\.\d+ \S+")
_NUMBER: Final = r"(?:0\.\d{6}|[1-9]\d{0,12}\.\d{2}(?:\d{4})?)"
_OTHER: Final = re.compile(r"([A-Za-z][\w ,/()<>&.*+-]*?): (\d+\.?\d*) (microseconds|nanoseconds|[KM]B/sec)")
_OTHERS: Final = {
    "microseconds": ToolQuantity("operation_time", "us"),
    "nanoseconds": ToolQuantity("operation_time", "ns"),
    "MB/sec": ToolQuantity("operation_bandwidth", "MB/s"),
    "KB/sec": ToolQuantity("operation_bandwidth", "kB/s"),
}
_SWITCHES: Final = re.compile(
    r'"size=(\d{1,9})k ovr=\d+\.\d+'
)  # header of context switches among processes of this size
_SWITCH: Final = re.compile(r"(\d{1,6}) (\d{1,12}\.\d{2})")
_SOCKET: Final = re.compile(rf"(?P<point>{_NUMBER} {_NUMBER}) MB/sec")
_RATE: Final = re.compile(rf"({_NUMBER}) ({_NUMBER})")
_LOADS: Final = {"Memory load latency": "stride", "Random load latency": "random"}
_RATES: Final = {
    "Memory read bandwidth": "read",
    "Memory write bandwidth": "write",
    "Memory partial read bandwidth": "partial_read",
    "Memory partial write bandwidth": "partial_write",
    "Memory partial read/write bandwidth": "partial_update",
    "Memory bzero bandwidth": "bzero",
    "read bandwidth": "file_read",
    "read open2close bandwidth": "file_read_open_to_close",
    "Mmap read bandwidth": "file_map_read",
    "Mmap read open2close bandwidth": "file_map_read_open_to_close",
    "libc bcopy unaligned": "bcopy_unaligned",
    "libc bcopy aligned": "bcopy_aligned",
    "unrolled bcopy unaligned": "unrolled_bcopy",
    "unrolled partial bcopy unaligned": "unrolled_partial_bcopy",
}
_STEP: Final = 512  # bytes; lat_mem_rd's footprints are multiples of it


def recognises(start: str) -> bool:
    """Return whether the start of a file has a line or a title of lmbench."""
    return (
        re.search(r'^"stride=\d{1,9}\n\d+\.\d{5} \d+\.\d{3}$', start, re.MULTILINE) is not None
        or re.search(r"^\[lmbench[\d.]+ results", start, re.MULTILINE) is not None
        or re.search(rf"^{_SWITCHES.pattern}\n{_SWITCH.pattern}$", start, re.MULTILINE) is not None
        or _is_bw_mem(start)
        or any(re.search(rf'^"?{re.escape(t)}\n{_RATE.pattern}$', start, re.MULTILINE) for t in _RATES)
    )


def _is_bw_mem(start: str) -> bool:
    """Return whether the first line and most other lines are a size and a rate."""
    lines = [line for line in start.split("\n", 2000) if line.strip()]
    matches = [_RATE.fullmatch(line) is not None for line in lines]
    return bool(matches) and matches[0] and 2 * sum(matches) > len(matches)


def read(output: ToolOutput) -> None:
    """Read the curves of latencies and rates, and the other times and rates of a results file."""
    version = re.search(r"^\[lmbench([\d.]+)", output.text, re.MULTILINE)
    output.set_source(version[1] if version else "")
    pattern: str | None = None
    stride: int | None = None
    operation: str | None = None
    switch_bytes: int | None = None
    has_rates = _RATE.match(output.text.lstrip("\n")) is not None  # output of bw_mem alone
    for line in output.lines:
        text = line.text.strip()
        title = text.lstrip('"')
        if not text:
            stride = switch_bytes = None
            has_rates = has_rates and operation is None
        elif title in _LOADS:
            pattern, stride, has_rates = _LOADS[title], None, False
        elif begin := _STRIDE.fullmatch(text):
            stride, has_rates = int(begin[1]), False
        elif title in _RATES:
            stride, operation, has_rates = None, _RATES[title], True
        elif switches := _SWITCHES.fullmatch(text):
            stride, has_rates, switch_bytes = None, False, int(switches[1]) << 10
        elif switch_bytes is not None and (switch := _SWITCH.fullmatch(text)):
            with output.item(line.number):
                common: dict[str, Scalar] = {"operation": "context switch", "processes": int(switch[1])}
                output.take(_OTHERS["microseconds"], switch[2], "time", **common, process_bytes=switch_bytes)
        elif socket := _SOCKET.fullmatch(text):
            with output.item(line.number):
                _rate(output, socket["point"], "socket")
        elif other := _OTHER.fullmatch(text):
            stride, has_rates = None, False
            with output.item(line.number):
                output.take(_OTHERS[other[3]], other[2], other[1], operation=other[1])
        elif _POINT.fullmatch(text) or (text[0].isdigit() and (stride or has_rates)):
            with output.item(line.number):
                if stride:
                    _latency(output, text, stride, pattern)
                elif has_rates:
                    _rate(output, text, operation)
                else:
                    raise FormatError("the title of its section is required above")
        elif text.startswith('"'):
            stride, has_rates = None, False  # another kind of section, or a damaged title
        elif stride or has_rates:
            output.other_lines += 1


def _latency(output: ToolOutput, text: str, stride: int, pattern: str | None) -> None:
    point = matched(_LATENCY, text, "a footprint in MiB with five decimals and a time in ns with three")
    footprint = value(point[1], "MiB", "footprint", above_zero=True)
    rounded_bytes = _STEP * round(footprint / _STEP)
    footprint_bytes = (
        rounded_bytes if abs(rounded_bytes - footprint) < 6 else round(footprint)
    )  # rounding to five decimals changes up to 5 bytes
    conditions: dict[str, Scalar] = {"footprint_bytes": footprint_bytes, "stride_bytes": stride, "pattern": pattern}
    output.add_meshmark_metric("latency.load_latency", value(point[2], "ns", "time"), **conditions)


def _rate(output: ToolOutput, text: str, operation: str | None) -> None:
    """Read a size and its rate; `operation` is None if the section has no title."""
    point = matched(_RATE, text, "a size and a rate in MB")
    size = round(value(point[1], "MB", "size", above_zero=True))
    rate = value(point[2], "MB/s", "rate", above_zero=True)
    if operation in {"read", "write"}:
        output.add_meshmark_metric("bandwidth.bandwidth_net", rate, kernel=operation, footprint_bytes=size)
    else:
        output.add_tool_metric("operation_bandwidth", "B/s", rate, size_bytes=size, operation=operation)


READERS: Final = [FormatReader("lmbench", "lmbench: lat_mem_rd, bw_mem and results files", recognises, read, version=3)]
