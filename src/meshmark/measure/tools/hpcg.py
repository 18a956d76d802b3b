"""HPCG's result file (versions 2 and 3): rates of operations and bytes, and times, of each kernel.

`threads` counts the threads of all processes. The kernel `rating` is the rate that HPCG rates a machine by, which
includes the overheads of convergence and optimisation. Results that HPCG calls invalid are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, theirs
from meshmark.measure.tools.output import Line, ToolOutput, sections
from meshmark.measure.tools.quantities import slug
from meshmark.store.record import Scalar

_BEGIN: Final = re.compile(r"HPCG-Benchmark(?: version: (\S+))?")
_VALID: Final = "Final Summary::HPCG result is VALID with a GFLOP/s rating of"


def recognises(start: str) -> bool:
    return (
        re.search(
            r"^[ \t]*(?:HPCG-Benchmark(?: version: \S+)?[ \t]*$|Final Summary::HPCG result is )", start, re.MULTILINE
        )
        is not None
    )


def read(output: ToolOutput) -> None:
    """The rates and times of each run."""
    runs = sections(output.lines, lambda text: _BEGIN.fullmatch(text.strip()))
    for run in runs or [list(output.lines)]:
        with output.item(run[0].number):
            _run(output, run)


def _run(output: ToolOutput, run: Sequence[Line]) -> None:
    values = _values(output, run)
    if _VALID not in values:
        invalid = next((key for key in values if key.startswith("Final Summary::HPCG result is")), "")
        outcome = quoted(invalid.removeprefix("Final Summary::"), 60) if invalid else "no final summary"
        raise FormatError(f"found {outcome}; only results that are VALID are taken")
    about = About(output.machine, "hpcg", values.get("version", (0, ""))[1])
    conditions: dict[str, Scalar] = {}
    for size in ("nx", "ny", "nz"):
        if (count := _count(values, f"Local Domain Dimensions::{size}")) is not None:
            conditions[size] = count
    ranks = _count(values, "Machine Summary::Distributed Processes")
    threads = _count(values, "Machine Summary::Threads per processes")
    if ranks is not None:
        conditions |= {"ranks": ranks, "threads": ranks * (threads or 1)}
    for key, (line, value) in values.items():
        group, _, name = key.partition("::")
        with output.item(line):
            if key == _VALID:
                rate = [1e9 * number(value, "rating", above_zero=True)]
                output.add(theirs(about, "flop_rate", "flop/s", "higher", rate, kernel="rating", **conditions))
            elif group == "GFLOP/s Summary" and name.startswith("Raw "):
                rate = [1e9 * number(value, name)]
                output.add(theirs(about, "flop_rate", "flop/s", "higher", rate, kernel=_kernel(name), **conditions))
            elif group == "GB/s Summary" and name.startswith("Raw "):
                rate = [1e9 * number(value, name)]
                traffic = slug(name.removeprefix("Raw ").removesuffix(" B/W"))
                output.add(theirs(about, "bandwidth", "B/s", "higher", rate, traffic=traffic, **conditions))
            elif group == "Benchmark Time Summary" and name != "Optimization phase":
                time = [number(value, name)]
                output.add(theirs(about, "elapsed", "s", "lower", time, kernel=_kernel(name), **conditions))


def _values(output: ToolOutput, run: Sequence[Line]) -> dict[str, tuple[int, str]]:
    """The line and the value of each key, such as `GFLOP/s Summary::Raw MG`; those of YAML are named alike."""
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


def _kernel(name: str) -> str:
    return slug(name.removeprefix("Raw "))


def _count(values: dict[str, tuple[int, str]], key: str) -> int | None:
    text = values.get(key, (0, ""))[1]
    return int(text) if re.fullmatch(r"\d{1,12}", text) else None


READERS: Final = [Reader("hpcg", "HPCG, result file", recognises, read)]
