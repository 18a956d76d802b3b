"""Reader of HPCG's result file (versions 2 and 3): rates of operations and bytes, and times, of each kernel.

`threads` counts the threads of all processes. The kernel `rating` is the rate by which HPCG ranks machines; it includes
the overheads of convergence and optimisation. Results that HPCG calls invalid are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.measure.importers.base import FormatError, FormatReader, has
from meshmark.measure.importers.output import OutputLine, ToolOutput, sections
from meshmark.measure.importers.quantities import ToolQuantity, slug
from meshmark.store.record import Scalar

_BEGIN: Final = re.compile(r"HPCG-Benchmark(?: version: (\S+))?")
_RESULT: Final = "Final Summary::HPCG result is"
_VALID: Final = f"{_RESULT} VALID with a GFLOP/s rating of"
# Patterns of the keys of results; their group is the kernel or the traffic.
_QUANTITIES: Final = (
    (re.compile(rf"{_VALID}()"), "kernel", ToolQuantity("flop_rate", "Gflop/s", above_zero=True)),
    (re.compile(r"GFLOP/s Summary::Raw (.*)"), "kernel", ToolQuantity("flop_rate", "Gflop/s")),
    (re.compile(r"GB/s Summary::Raw (.*?)(?: B/W)?"), "traffic", ToolQuantity("bandwidth", "GB/s")),
    (re.compile(r"Benchmark Time Summary::(?!Optimization phase$)(.*)"), "kernel", ToolQuantity("elapsed", "s")),
)


def read(output: ToolOutput) -> None:
    """Read the rates and times of each run."""
    runs = sections(output.lines, lambda text: _BEGIN.fullmatch(text.strip()))
    for run in runs or [list(output.lines)]:
        with output.item(run[0].number):
            _run(output, run)


def _run(output: ToolOutput, run: Sequence[OutputLine]) -> None:
    values = _values(output, run)
    if _VALID not in values:
        outcome = next((key for key in values if key.startswith(_RESULT)), "no final summary")
        raise FormatError(f"found '{outcome[:70]}'; only results that are VALID are imported")
    output.set_source(values.get("version", (0, ""))[1])
    conditions: dict[str, Scalar] = {n: _count(values, f"Local Domain Dimensions::{n}") for n in ("nx", "ny", "nz")}
    if ranks := _count(values, "Machine Summary::Distributed Processes"):
        threads = _count(values, "Machine Summary::Threads per processes") or 1
        conditions |= {"ranks": ranks, "threads": ranks * threads}
    for key, (line, value) in values.items():
        for pattern, condition, quantity in _QUANTITIES:
            if match := pattern.fullmatch(key):
                with output.item(line):
                    part = {condition: "rating" if key == _VALID else slug(match[1])}
                    output.take(quantity, value, key, **part, **conditions)


def _values(output: ToolOutput, run: Sequence[OutputLine]) -> dict[str, tuple[int, str]]:
    """Return line and value of each key, such as `GFLOP/s Summary::Raw MG`; keys of YAML get the same form."""
    values: dict[str, tuple[int, str]] = {}
    begin = _BEGIN.fullmatch(run[0].text.strip())
    if begin and begin[1]:
        values["version"] = run[0].number, begin[1]
    group = ""
    for line in run:
        if output.is_cut(line):
            continue
        key, equals, value = line.text.strip().partition("=")
        if equals and value.strip():
            values[key.strip()] = line.number, value.strip()
        elif heading := re.fullmatch(r"(\S.*?):", line.text):
            group = heading[1].strip("_ ")
        elif pair := re.fullmatch(r"\s+(\S.*?): (\S.*)", line.text):
            values[f"{group}::{pair[1]}"] = line.number, pair[2]
    return values


def _count(values: dict[str, tuple[int, str]], key: str) -> int | None:
    text = values.get(key, (0, ""))[1]
    return int(text) if re.fullmatch(r"\d{1,12}", text) else None


READERS: Final = [
    FormatReader("hpcg", "HPCG, result file", has(rf"^[ \t]*(?:{_BEGIN.pattern}[ \t]*$|{_RESULT} )"), read)
]
