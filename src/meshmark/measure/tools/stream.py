"""STREAM's output (McCalpin): C, Fortran, Java and MPI versions, one run or several in a file.

STREAM prints the best rate of its repetitions, so its rates have no interval and the condition `statistic` says `best`;
versions that print a table of best, mean and worst rates give one record of each. `threads` counts the threads of all
MPI ranks, whose rates are added. Runs that do not validate are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.measure.tools.base import About, FormatError, Reader, UnknownMeaning, number, ours
from meshmark.measure.tools.output import Line, ToolOutput, sections
from meshmark.store.record import Scalar

_TITLE: Final = re.compile(r"STREAM[ \t]+(?:MPI )?version[ \t]+\$[ ]?Revision: ([\d.]+)", re.IGNORECASE)
_ARRAYS: Final = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
_ROW: Final = re.compile(r"[ \t|]*(copy|scale|add|triad)[ \t]*[:|](.*)", re.IGNORECASE)
_HEAD: Final = re.compile(r"[ \t|]*Function\b")
_RATE: Final = re.compile(r"(?:(Best|Avg|Average|Worst|Min|Max) )?(?:Rate )?\(?([MG]i?B)/s(?:ec)?\)?", re.IGNORECASE)
_STATISTICS: Final = {
    "": "best",
    "best": "best",
    "max": "best",
    "avg": "mean",
    "average": "mean",
    "worst": "worst",
    "min": "worst",
}
_UNITS: Final = {"MB": 1e6, "GB": 1e9, "MIB": 2.0**20, "GIB": 2.0**30}


def recognises(start: str) -> bool:
    return _TITLE.search(start) is not None and "HPC Challenge" not in start


def read(output: ToolOutput) -> None:
    """The rates of each kernel of each run."""
    runs = sections(output.lines, _TITLE.search)
    first = len(output.lines) - sum(map(len, runs))
    for run in runs:
        above = output.lines[max(0, first - 8) : first]
        _run(output, run, "\n".join(line.text for line in above))
        first += len(run)


def _run(output: ToolOutput, section: Sequence[Line], before: str) -> None:
    text = "\n".join(line.text for line in section)
    title = _TITLE.search(text)
    about = About(output.machine, "stream", title[1] if title else "")
    conditions, elements_bytes = _conditions(text, before)
    problem = ""
    if "solution validates" not in text.lower():
        failed = re.search(r"^.*(?:failed validation|not validate).*$", text, re.IGNORECASE | re.MULTILINE)
        problem = f"the run says '{failed[0].strip()[:60]}'" if failed else "the run does not say 'Solution Validates'"
    columns: list[tuple[str, float] | None] | None = None  # statistic and factor of each column of rates
    seen: set[str] = set()
    rows = 0
    for line in section:
        if _HEAD.match(line.text):
            columns = _columns(line)
        elif (row := _ROW.match(line.text)) is not None and re.search(r"\d|nan|inf|\*\*", row[2], re.IGNORECASE):
            kernel = row[1].lower()
            rows += 1
            with output.item(line.number):
                if problem:
                    raise FormatError(f"{problem}; only results that validate are taken")
                if columns is None:
                    raise FormatError(f"rate of {kernel}: a line 'Function Best Rate MB/s' is required above")
                if kernel in seen:
                    raise FormatError(f"a second rate of {kernel} in one run")
                cells = row[2].replace("|", " ").split()
                if len(cells) < len(columns):
                    raise FormatError(f"found {len(cells)} numbers, {len(columns)} are required; cut off?")
                seen.add(kernel)
                for cell, column in zip(cells, columns, strict=False):
                    if column is None:
                        continue
                    rate = column[1] * number(cell, f"rate of {kernel}", above_zero=True)
                    stated = {"kernel": kernel, **conditions, "statistic": column[0]}
                    if elements_bytes:
                        stated["footprint_bytes"] = _ARRAYS[kernel] * elements_bytes
                    output.add(ours(about, "bandwidth", "bandwidth_net", [rate], **stated))
    missing = [kernel for kernel in _ARRAYS if kernel not in seen]
    if missing and (not problem or not rows):
        output.leave_out(section[0].number, f"the run has no rate of {', '.join(missing)}")


def _columns(line: Line) -> list[tuple[str, float] | None]:
    """Statistic and factor of each column after the first; None for times."""
    cells = [c for c in re.split(r"[ \t]*\|[ \t]*|[ \t]{2,}", line.text.strip(" \t|")) if c]
    columns: list[tuple[str, float] | None] = []
    for name in cells[1:]:
        rate = _RATE.fullmatch(name.strip())
        if rate is not None:
            columns.append((_STATISTICS[(rate[1] or "").lower()], _UNITS[rate[2].upper()]))
        elif "time" in name.lower():
            columns.append(None)
        else:
            raise UnknownMeaning(
                f"line {line.number}: found the column '{name.strip()[:40]}', a rate in MB/s or a time"
            )
    if not any(columns):
        raise UnknownMeaning(f"line {line.number}: found no column of rates in MB/s or GB/s")
    return columns


def _conditions(text: str, before: str) -> tuple[dict[str, Scalar], int]:
    """The conditions of a run, and the size of an array in bytes, 0 if the run does not state it."""

    def stated(pattern: str, where: str = text) -> int:
        match = re.search(pattern, where, re.IGNORECASE)
        return int(match[1]) if match else 0

    ranks = stated(r"distributed across\s+(\d{1,9})\s+MPI ranks") or stated(
        r"Number of (?:MPI )?(?:ranks|processors|processes|tasks)\s*=\s*(\d{1,9})"
    )
    counted = r"Number of Threads counted(?: for rank 0)?\s*=\s*(\d{1,9})"
    requested = r"Number of Threads(?: requested)?(?: for each MPI rank)?\s*=\s*(\d{1,9})"
    threads = stated(counted) or stated(requested) or 1
    width = stated(r"(\d{1,2})\s*bytes per (?:array element|double ?precision)")
    width = width or stated(r"Assuming\s+(\d{1,2})\s+bytes per", before)
    if not width and "STREAM Version" in text:  # Fortran: DOUBLE PRECISION
        width = 8
    elements = stated(r"Total Aggregate Array size\s*=\s*(\d{1,18})") or stated(r"Array size\s*=\s*(\d{1,18})")
    conditions: dict[str, Scalar] = {"threads": threads * max(ranks, 1)}
    if ranks:
        conditions |= {"ranks": ranks}
    if offset := stated(r"Offset\s*=\s*(\d{1,18})"):
        conditions["offset_elements"] = offset
    if width not in {0, 8}:
        conditions["element_bytes"] = width
    return conditions, elements * width


READERS: Final = [Reader("stream", "STREAM, text (C, Fortran, MPI)", recognises, read, version=2)]
