"""Reader of HPL's output (High-Performance Linpack, also by Intel and NVIDIA), one or several runs in a file.

A result is read only if its residual passed the check, or if the run disabled the check. The letters and digits of the
variant (`T/V`) encode the parameters of the algorithm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, UnknownMeaningError, matched
from meshmark.measure.importers.output import OutputLine, ToolOutput, sections
from meshmark.measure.importers.quantities import value
from meshmark.store.record import Scalar

_TITLE: Final = re.compile(r"HPLinpack (\d[\w.]*)")
_HEAD: Final = re.compile(r"T/V\s+N\s+NB\s+P\s+Q\s+Time\s+(\S+)(?:\s+\(\s*per GPU\))?")
_ROW: Final = re.compile(
    r"(?P<variant>W[RC]\w{1,20})\s+(?P<n>\d{1,12})\s+(?P<block>\d{1,9})\s+(?P<p>\d{1,7})\s+(?P<q>\d{1,7})"
    r"\s+(?P<time>\S+)\s+(?P<rate>\S+)(?:\s+\(\s*\S+\))?"
)
_IS_ROW: Final = re.compile(r"W[RC]\w+\s+\d")
_CHECK: Final = re.compile(r"\|\|A.*\.{3,}\s*(PASSED|FAILED)")


def recognises(start: str) -> bool:
    """Return whether the start of a file has HPL's heading, and does not belong to HPC Challenge."""
    return re.search(rf"^[ \t]*{_HEAD.pattern}", start, re.MULTILINE) is not None and "HPC Challenge" not in start


def read(output: ToolOutput) -> None:
    """Read rate and time of each problem of each run."""
    is_titled = any(_TITLE.match(line.text) for line in output.lines)
    for run in sections(output.lines, _TITLE.match if is_titled else _HEAD.match):
        title = _TITLE.match(run[0].text)
        output.set_source(title[1] if title else "")
        is_unchecked = any(re.search(r"[1-9]\d* tests completed without checking", line.text) for line in run)
        has_head = False
        for index, line in enumerate(run):
            text = line.text.strip()
            if head := _HEAD.fullmatch(text):
                has_head = True
                if head[1] != "Gflops":
                    raise UnknownMeaningError(
                        f"line {line.number}: found rates in '{quoted(head[1], 20)}', Gflops are required"
                    )
            elif _IS_ROW.match(text):
                with output.item(line.number):
                    if not has_head:
                        raise FormatError("a line 'T/V N NB P Q Time Gflops' is required above")
                    _row(output, text, "" if is_unchecked else _problem(run[index + 1 :]))


def _problem(below: Sequence[OutputLine]) -> str:
    """Return the reason why a result is not valid; "" if its residual passed the check."""
    for line in below:
        if check := _CHECK.match(line.text.strip()):
            return "" if check[1] == "PASSED" else "the residual FAILED its check"
        if _IS_ROW.match(line.text.strip()):
            break
    return "no residual with PASSED below"


def _row(output: ToolOutput, text: str, problem: str) -> None:
    row = matched(_ROW, text, "a variant, N, NB, P, Q, a time and a rate")
    if problem:
        raise FormatError(f"{problem}; only results that validate are imported")
    conditions: dict[str, Scalar] = {
        "n": int(row["n"]),
        "block": int(row["block"]),
        "grid": f"{row['p']}x{row['q']}",
        "ranks": int(row["p"]) * int(row["q"]),
        "variant": row["variant"],
    }
    output.add_meshmark_metric(
        "linpack.flop_rate", value(row["rate"], "Gflop/s", "Gflops", above_zero=True), **conditions
    )
    output.add_tool_metric("elapsed", "s", value(row["time"], "s", "time", above_zero=True), **conditions)


READERS: Final = [FormatReader("hpl", "HPL, text", recognises, read)]
