"""likwid-bench's text (LIKWID 4 and 5), one run or several in a file.

Its rate counts the bytes of all operands, as STREAM does. Its `stream` is STREAM's triad; its `triad` is another,
a = b + c d with four arrays, here `vector_triad`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import Line, ToolOutput, sections
from meshmark.store.record import Scalar

_BEGINS: Final = "LIKWID MICRO BENCHMARK"
_KERNELS: Final = {"load": "read", "store": "write", "stream": "triad", "triad": "vector_triad", "ddot": "dot"}
_INSTRUCTIONS: Final = {"sse": "sse2", "avx512": "avx512", "neon": "neon", "sve": "sve"}
_SIZE: Final = ("Size (Byte)", "Size")
_PAIR: Final = re.compile(r"([A-Z][\w /().-]*?):\s+(\S.*?)(?: sec)?")
_GROUP: Final = re.compile(r"Group: \d+ Thread \d+ Global Thread \d+ running on .+")
_WORKGROUPS: Final = re.compile(r"Using (\d{1,6}) work groups?")


def recognises(start: str) -> bool:
    return re.search(rf"^{_BEGINS}[ \t]*\n(?:-+\n)?Test: \S", start, re.MULTILINE) is not None


def read(output: ToolOutput) -> None:
    """The net rate, the rate of floating-point operations and the cycles per update of each run."""
    for run in sections(output.lines, lambda text: text.startswith(_BEGINS)):
        with output.item(run[0].number):
            _run(output, run)


def _run(output: ToolOutput, run: Sequence[Line]) -> None:
    values: dict[str, str] = {}
    for line in run:
        pair = _PAIR.fullmatch(line.text.strip())
        if pair is None or _GROUP.fullmatch(line.text.strip()) or pair[1] in {"Allocate", "Initialization"}:
            continue
        if pair[1] in values:
            raise FormatError(f"line {line.number}: found '{pair[1][:40]}' again, once is required")
        if not output.is_cut(line):
            values[pair[1]] = pair[2]
    size = next((name for name in _SIZE if name in values), _SIZE[0])
    required = ("Test", "Time", size, "Data volume (Byte)", "MByte/s")
    if missing := [key for key in required if key not in values]:
        raise FormatError(f"the run has no '{missing[0]}:'; it is not complete")
    text = "\n".join(line.text for line in run)
    threads = re.search(r"^Using (\d{1,6}) threads?\s*$", text, re.MULTILINE)
    running = sum(_GROUP.fullmatch(line.text.strip()) is not None for line in run)
    if threads is None or (running and running != int(threads[1])):
        raise FormatError(f"found {running} lines 'Group: 0 Thread 0 …', one for each of 'Using N threads' is required")
    names = [*required[1:], "MFlops/s", "Cycles per update", "CPU Clock", "Iterations"]
    numbers = {name: number(values[name], name) for name in names if name in values}
    volume, elapsed, rate = numbers["Data volume (Byte)"], numbers["Time"], 1e6 * numbers["MByte/s"]
    if elapsed <= 0 or (volume and not 0.99 < rate * elapsed / volume < 1.01):
        raise FormatError("'Data volume (Byte)' and 'Time' do not give the rate; a number is damaged")
    same: dict[str, Scalar] = {
        **_kernel(values["Test"]),
        "threads": int(threads[1]),
        "footprint_bytes": round(numbers[size]),
        "test": values["Test"],
    }
    if "Iterations" in numbers:
        same["iterations"] = round(numbers["Iterations"])
    if (groups := _WORKGROUPS.search(text)) and int(groups[1]) != 1:
        same["work_groups"] = int(groups[1])
    about = About(output.machine, "likwid_bench")
    if rate:
        output.add(ours(about, "bandwidth", "bandwidth_net", [rate], **same))
    if "MFlops/s" in numbers:
        output.add(theirs(about, "flop_rate", "flop/s", "higher", [1e6 * numbers["MFlops/s"]], **same))
    if "Cycles per update" in numbers:
        output.add(theirs(about, "cycles_per_update", "1", "lower", [numbers["Cycles per update"]], **same))
    if "CPU Clock" in numbers:
        output.add(theirs(about, "cpu_clock", "Hz", "none", [numbers["CPU Clock"]], **same))
    output.add(theirs(about, "elapsed", "s", "lower", [elapsed], **same))


def _kernel(test: str) -> dict[str, Scalar]:
    """The conditions that the name of a test such as `stream_mem_avx512` states."""
    base, *variants = test.split("_")
    kernel: dict[str, Scalar] = {"kernel": _KERNELS.get(base, base)}
    if "mem" in variants:
        kernel["store"] = "streaming"
    if isa := [_INSTRUCTIONS[v] for v in variants if v in _INSTRUCTIONS]:
        kernel["isa"] = isa[0]
    if "sp" in variants:
        kernel["element_bytes"] = 4
    return kernel


READERS: Final = [Reader("likwid_bench", "likwid-bench, text", recognises, read, version=2)]
