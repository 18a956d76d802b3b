"""HPL's output (High-Performance Linpack, also of Intel and NVIDIA), one run or several in a file.

Only results whose residual passed its check are taken, and those of runs that ask for no check. The letters and digits
of the variant (`T/V`) encode the parameters of the algorithm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, UnknownMeaning, number, ours, theirs
from meshmark.measure.tools.output import Line, ToolOutput, sections
from meshmark.store.record import Scalar

_TITLE: Final = re.compile(r"HPLinpack (\d[\w.]*)")
_HEAD: Final = re.compile(r"T/V\s+N\s+NB\s+P\s+Q\s+Time\s+(\S+)(?:\s+\(\s*per GPU\))?")
_ROW: Final = re.compile(
    r"(?P<variant>W[RC]\w{1,20})\s+(?P<n>\d{1,12})\s+(?P<block>\d{1,9})\s+(?P<p>\d{1,7})\s+(?P<q>\d{1,7})"
    r"\s+(?P<time>\S+)\s+(?P<rate>\S+)(?:\s+\(\s*\S+\))?"
)
_CHECK: Final = re.compile(r"\|\|A.*\.{3,}\s*(PASSED|FAILED)")


def recognises(start: str) -> bool:
    return re.search(rf"^[ \t]*{_HEAD.pattern}", start, re.MULTILINE) is not None and "HPC Challenge" not in start


def read(output: ToolOutput) -> None:
    """Rate and time of each problem of each run."""
    titled = any(_TITLE.match(line.text) for line in output.lines)
    for run in sections(output.lines, _TITLE.match if titled else _HEAD.match):
        title = _TITLE.match(run[0].text)
        about = About(output.machine, "hpl", title[1] if title else "")
        unchecked = re.search(r"[1-9]\d* tests completed without checking", "\n".join(line.text for line in run))
        has_head = False
        for at, line in enumerate(run):
            text = line.text.strip()
            if head := _HEAD.fullmatch(text):
                if head[1] != "Gflops":
                    raise UnknownMeaning(
                        f"line {line.number}: found rates in '{quoted(head[1], 20)}', Gflops are required"
                    )
                has_head = True
            elif re.match(r"W[RC]\w+\s+\d", text):
                with output.item(line.number):
                    if not has_head:
                        raise FormatError("a line 'T/V N NB P Q Time Gflops' is required above")
                    _row(output, about, text, "" if unchecked else _outcome(run[at + 1 :]))


def _outcome(below: Sequence[Line]) -> str:
    """The reason why a result is not valid; "" if its residual passed."""
    for line in below:
        if check := _CHECK.match(line.text.strip()):
            return "" if check[1] == "PASSED" else "the residual FAILED its check"
        if re.match(r"W[RC]\w+\s+\d", line.text.strip()):
            break
    return "no residual with PASSED below"


def _row(output: ToolOutput, about: About, text: str, problem: str) -> None:
    row = _ROW.fullmatch(text)
    if row is None:
        raise FormatError(f"found '{quoted(text, 60)}', a variant, N, NB, P, Q, a time and a rate are required")
    if problem:
        raise FormatError(f"{problem}; only results that validate are taken")
    conditions: dict[str, Scalar] = {
        "n": int(row["n"]),
        "block": int(row["block"]),
        "grid": f"{row['p']}x{row['q']}",
        "ranks": int(row["p"]) * int(row["q"]),
        "variant": row["variant"],
    }
    rate = [1e9 * number(row["rate"], "Gflops", above_zero=True)]
    time = [number(row["time"], "time", above_zero=True)]
    output.add(ours(about, "linpack", "flop_rate", rate, **conditions))
    output.add(theirs(about, "elapsed", "s", "lower", time, **conditions))


READERS: Final = [Reader("hpl", "HPL, text", recognises, read)]
