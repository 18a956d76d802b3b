"""likwid-bench's text (LIKWID 4 and 5).

Its rate counts the bytes of all operands, as STREAM does. Its `stream` is STREAM's triad; its `triad` is another,
a = b + c d with four arrays, here `vector_triad`.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_KERNELS: Final = {"load": "read", "store": "write", "stream": "triad", "triad": "vector_triad", "ddot": "dot"}
_INSTRUCTIONS: Final = {"sse": "sse2", "avx512": "avx512", "neon": "neon", "sve": "sve"}
_REQUIRED: Final = (
    "Cycles",
    "CPU Clock",
    "Time",
    "Iterations",
    "Size (Byte)",
    "Data volume (Byte)",
    "MByte/s",
    "Cycles per update",
    "Cycles per cacheline",
)
_LARGEST: Final = 1e30
_RULE: Final = re.compile(r"-{20,}")
_GROUP: Final = re.compile(r"Group: \d+ Thread \d+ Global Thread \d+ running on .+")


def recognises(start: str) -> bool:
    return re.search(r"^LIKWID MICRO BENCHMARK\s*\nTest: \S", start, re.MULTILINE) is not None


def read(text: str, machine: str) -> list[Record]:
    """The net rate, the rate of floating-point operations and the cycles per update of a run."""
    if len(re.findall(r"^LIKWID MICRO BENCHMARK", text, re.MULTILINE)) != 1:
        raise FormatError("likwid-bench: found several runs; required: a file for each")
    lines = text.rstrip().splitlines()
    values: dict[str, tuple[int, str]] = {}
    for at, line in enumerate(lines, 1):
        pair = re.fullmatch(r"([A-Z][\w /().-]*?):\s+(\S.*?)(?: sec)?\s*", line)
        if pair and not _GROUP.fullmatch(line) and pair[1] not in ("Allocate", "Initialization"):
            if pair[1] in values:
                raise FormatError(f"likwid-bench: line {at}: found '{quoted(pair[1], 40)}' again; required: once")
            values[pair[1]] = at, pair[2]
    if missing := [k for k in ("Test", *_REQUIRED) if k not in values]:
        raise FormatError(f"likwid-bench: found no '{missing[0]}:'; the output is incomplete")
    if not _RULE.fullmatch(lines[-1].strip()):
        raise FormatError("likwid-bench: found no line of dashes at the end; the output is cut off")
    threads = re.search(r"^Using (\d{1,6}) threads?\s*$", text, re.MULTILINE)
    groups = sum(_GROUP.fullmatch(line.strip()) is not None for line in lines)
    if threads is None or groups != int(threads[1]):
        raise FormatError(
            f"likwid-bench: found {groups} lines 'Group: 0 Thread 0 …'; required: one for each of 'Using N threads'"
        )
    numbers = {
        k: number(v, f"likwid-bench: line {at}: {k}") for k, (at, v) in values.items() if k in (*_REQUIRED, "MFlops/s")
    }
    volume, elapsed = numbers["Data volume (Byte)"], numbers["Time"]
    rate = 1e6 * numbers["MByte/s"]
    if (
        elapsed <= 0
        or max(map(abs, numbers.values())) > _LARGEST
        or (volume and not 0.99 < rate * elapsed / volume < 1.01)
    ):
        raise FormatError(
            "likwid-bench: found a rate that 'Data volume (Byte)' and 'Time' do not give; a cell is damaged"
        )
    return _records(machine, values, numbers, int(threads[1]))


def _records(machine: str, values: dict[str, tuple[int, str]], numbers: dict[str, float], threads: int) -> list[Record]:
    about = About(machine, "likwid_bench")
    test = values["Test"][1]
    same: dict[str, Scalar] = {
        "threads": threads,
        "footprint_bytes": round(numbers["Size (Byte)"]),
        "test": test,
        "iterations": round(numbers["Iterations"]),
    }
    base, *variants = test.split("_")
    kernel: dict[str, Scalar] = {"kernel": _KERNELS.get(base, base)}
    if "mem" in variants:
        kernel["store"] = "streaming"
    if isa := [_INSTRUCTIONS[v] for v in variants if v in _INSTRUCTIONS]:
        kernel["isa"] = isa[0]
    if "sp" in variants:
        kernel["element_bytes"] = 4
    made = []
    if numbers["MByte/s"] > 0:
        made.append(ours(about, "bandwidth", "bandwidth_net", [1e6 * numbers["MByte/s"]], **kernel, **same))
    if "MFlops/s" in numbers:
        flops = 1e6 * numbers["MFlops/s"]
        made.append(theirs(about, "flop_rate", "flop/s", "higher", [flops], **kernel, **same))
    cycles = numbers["Cycles per update"]
    made.append(theirs(about, "cycles_per_update", "1", "lower", [cycles], **kernel, **same))
    made.append(theirs(about, "cpu_clock", "Hz", "none", [numbers["CPU Clock"]], **kernel, **same))
    made.append(theirs(about, "elapsed", "s", "lower", [numbers["Time"]], **kernel, **same))
    return made


READERS: Final = [Reader("likwid_bench", "likwid-bench, text", recognises, whole(read))]
