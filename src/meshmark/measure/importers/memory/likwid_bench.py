"""Reader of the text of likwid-bench (LIKWID 4 and 5), one or several runs in a file.

Its rate counts the bytes of all operands, as STREAM does. Its `stream` is STREAM's triad. Its `triad` is another
kernel, a = b + c d with four arrays, which is called `vector_triad` here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.measure.importers.base import FormatError, FormatReader, has, number
from meshmark.measure.importers.output import OutputLine, ToolOutput, sections
from meshmark.measure.importers.quantities import ToolQuantity, facts
from meshmark.store.record import Scalar

_BEGINS: Final = "LIKWID MICRO BENCHMARK"
_KERNELS: Final = {"load": "read", "store": "write", "stream": "triad", "triad": "vector_triad", "ddot": "dot"}
_INSTRUCTIONS: Final = {"sse": "sse2", "avx512": "avx512", "neon": "neon", "sve": "sve"}
_SIZE: Final = ("Size (Byte)", "Size")
_QUANTITIES: Final = {
    "MByte/s": ToolQuantity("bandwidth.bandwidth_net", "MB/s"),
    "MFlops/s": ToolQuantity("flop_rate", "Mflop/s"),
    "Cycles per update": ToolQuantity("cycles_per_update", "1", better="lower"),
    "CPU Clock": ToolQuantity("cpu_clock", "Hz"),
    "Time": ToolQuantity("elapsed", "s"),
}
_MORE: Final = (*_QUANTITIES, "Iterations")
_PAIR: Final = re.compile(r"([A-Z][\w /().-]*?):\s+(\S.*?)(?: sec)?")
_GROUP: Final = re.compile(r"Group: \d+ Thread \d+ Global Thread \d+ running on .+")
_WORKGROUPS: Final = re.compile(r"Using (\d{1,6}) work groups?")


def read(output: ToolOutput) -> None:
    """Read the net rate, the rate of floating-point operations and the cycles per update of each run."""
    for run in sections(output.lines, lambda text: text.startswith(_BEGINS)):
        with output.item(run[0].number):
            _run(output, run)


def _run(output: ToolOutput, run: Sequence[OutputLine]) -> None:
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
    conditions = facts(
        text, {"threads": r"^Using (\d{1,6}) threads?\s*$", "work_groups": r"Using (\d{1,6}) work groups?"}
    )
    group_lines = sum(_GROUP.fullmatch(line.text.strip()) is not None for line in run)
    if "threads" not in conditions or group_lines not in {0, conditions["threads"]}:
        raise FormatError(
            f"found {group_lines} lines 'Group: 0 Thread 0 …', one for each of 'Using N threads' is required"
        )
    numbers = {key: number(values[key], key) for key in (*required[1:], *_MORE) if key in values}
    volume, elapsed, rate = numbers["Data volume (Byte)"], numbers["Time"], 1e6 * numbers["MByte/s"]
    if elapsed <= 0 or (volume and not 0.99 < rate * elapsed / volume < 1.01):
        raise FormatError("'Data volume (Byte)' and 'Time' do not give the rate; a number is damaged")
    if conditions.get("work_groups") == 1:
        del conditions["work_groups"]
    if "Iterations" in numbers:
        conditions["iterations"] = round(numbers["Iterations"])
    conditions |= {**_kernel(values["Test"]), "footprint_bytes": round(numbers[size]), "test": values["Test"]}
    for key in filter(numbers.__contains__, _QUANTITIES):
        if key != "MByte/s" or rate:
            output.take(_QUANTITIES[key], values[key], key, **conditions)


def _kernel(test: str) -> dict[str, Scalar]:
    """Return the conditions that the name of a test such as `stream_mem_avx512` states."""
    base, *variants = test.split("_")
    kernel: dict[str, Scalar] = {"kernel": _KERNELS.get(base, base)}
    if "mem" in variants:
        kernel["store"] = "streaming"
    if isa := [_INSTRUCTIONS[v] for v in variants if v in _INSTRUCTIONS]:
        kernel["isa"] = isa[0]
    if "sp" in variants:
        kernel["element_bytes"] = 4
    return kernel


READERS: Final = [
    FormatReader("likwid_bench", "likwid-bench, text", has(rf"^{_BEGINS}[ \t]*\n(?:-+\n)?Test: \S"), read, version=2)
]
