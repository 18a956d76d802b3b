"""Reader of STREAM's output (McCalpin): C, Fortran, Java and MPI versions, one or several runs in a file.

STREAM prints the best rate of its repetitions, so its rates have no interval and the condition `statistic` is `best`;
versions that print a table of best, mean and worst rates give one record for each. `threads` counts the threads of all
MPI ranks, whose rates are added. Runs that do not validate are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.measure.importers.base import FormatError, FormatReader, UnknownMeaningError
from meshmark.measure.importers.output import OutputLine, ToolOutput, sections
from meshmark.measure.importers.quantities import ToolQuantity, facts
from meshmark.store.record import Scalar

_TITLE: Final = re.compile(r"STREAM(?:_MPI)?[ \t]+(?:MPI )?version[ \t]+\$[ ]?Revision: ([\d.]+)", re.IGNORECASE)
_ARRAYS: Final = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
_ROW: Final = re.compile(r"[ \t|]*(copy|scale|add|triad)[ \t]*[:|](.*)", re.IGNORECASE)
_HEAD: Final = re.compile(r"[ \t|]*Function\b")
_RATE: Final = re.compile(r"(?:(Best|Avg|Average|Worst|Min|Max) )?(?:Rate )?\(?([MG]i?B)/s(?:ec)?\)?", re.IGNORECASE)
_STATISTICS: Final = {"avg": "mean", "average": "mean", "worst": "worst", "min": "worst"}  # any other rate is the best
_FACTS: Final = {
    "ranks": r"distributed across\s+(\d{1,9})\s+MPI ranks",
    "processes": r"Number of (?:MPI )?(?:ranks|processors|processes|tasks)\s*=\s*(\d{1,9})",
    "counted": r"Number of Threads counted(?: for rank 0)?\s*=\s*(\d{1,9})",
    "requested": r"Number of Threads(?: requested)?(?: for each MPI rank)?\s*=\s*(\d{1,9})",
    "width": r"(\d{1,2})\s*bytes per (?:array element|double ?precision)",
    "all_elements": r"Total Aggregate Array size\s*=\s*(\d{1,15})",
    "elements": r"Array size\s*=\s*(\d{1,15})",
    "offset": r"Offset\s*=\s*(\d{1,15})",
}


def recognises(start: str) -> bool:
    """Return whether the start of a file has STREAM's title, and does not belong to HPC Challenge."""
    return _TITLE.search(start) is not None and "HPC Challenge" not in start


def read(output: ToolOutput) -> None:
    """Read the rates of each kernel of each run."""
    runs = sections(output.lines, _TITLE.search)
    first = len(output.lines) - sum(map(len, runs))
    for run in runs:
        lines_above = output.lines[max(0, first - 8) : first]
        _run(output, run, "\n".join(line.text for line in lines_above))
        first += len(run)


def _run(output: ToolOutput, section: Sequence[OutputLine], before: str) -> None:
    text = "\n".join(line.text for line in section)
    title = _TITLE.search(text)
    output.set_source(title[1] if title else "")
    conditions, elements_bytes = _conditions(text, before)
    problem = ""
    if "solution validates" not in text.lower():
        failure = re.search(r"^.*(?:failed validation|not validate).*$", text, re.IGNORECASE | re.MULTILINE)
        problem = (
            f"the run says '{failure[0].strip()[:60]}'" if failure else "the run does not say 'Solution Validates'"
        )
    columns: list[ToolQuantity | None] | None = None
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
                    raise FormatError(f"{problem}; only results that validate are imported")
                if columns is None:
                    raise FormatError(f"rate of {kernel}: a line 'Function Best Rate MB/s' is required above")
                if kernel in seen:
                    raise FormatError(f"a second rate of {kernel} in one run")
                cells = row[2].replace("|", " ").split()
                if len(cells) < len(columns):
                    raise FormatError(f"found {len(cells)} numbers, {len(columns)} are required; cut off?")
                seen.add(kernel)
                footprint = _ARRAYS[kernel] * elements_bytes or None
                common = {"kernel": kernel, **conditions, "footprint_bytes": footprint}
                for cell, quantity in zip(cells, columns, strict=False):
                    if quantity is not None:
                        output.take(quantity, cell, f"rate of {kernel}", **common)
    missing = [kernel for kernel in _ARRAYS if kernel not in seen]
    if missing and (not problem or not rows):
        output.leave_out(section[0].number, f"the run has no rate of {', '.join(missing)}")


def _columns(line: OutputLine) -> list[ToolQuantity | None]:
    """Return the quantity of each column after the first; None for times."""
    cells = [cell for cell in re.split(r"[ \t]*\|[ \t]*|[ \t]{2,}", line.text.strip(" \t|")) if cell]
    columns: list[ToolQuantity | None] = []
    for name in cells[1:]:
        rate = _RATE.fullmatch(name.strip())
        if rate is None and "time" not in name.lower():
            raise UnknownMeaningError(
                f"line {line.number}: found the column '{name.strip()[:40]}', a rate in MB/s or a time"
            )
        statistic = {"statistic": _STATISTICS.get((rate[1] or "").lower(), "best")} if rate else {}
        unit = f"{rate[2][0].upper()}{rate[2][1:-1].lower()}B/s" if rate else ""
        columns.append(ToolQuantity("bandwidth.bandwidth_net", unit, statistic, above_zero=True) if rate else None)
    if not any(columns):
        raise UnknownMeaningError(f"line {line.number}: found no column of rates in MB/s or GB/s")
    return columns


def _conditions(text: str, before: str) -> tuple[dict[str, Scalar], int]:
    """Return the conditions of a run, and the size of an array in bytes; 0 if the run does not state the size."""
    values = {name: int(str(fact)) for name, fact in facts(text, _FACTS).items()}
    ranks = values.get("ranks") or values.get("processes", 0)
    threads = values.get("counted") or values.get("requested") or 1
    width = values.get("width") or facts(before, {"": r"Assuming\s+(\d{1,2})\s+bytes per"}).get("", 0)
    if not width and re.search(r"STREAM(?:_MPI)? Version", text):  # Fortran: DOUBLE PRECISION
        width = 8
    elements = values.get("all_elements") or values.get("elements", 0)
    conditions: dict[str, Scalar] = {
        "threads": threads * max(ranks, 1),
        "ranks": ranks or None,
        "offset_elements": values.get("offset") or None,
        "element_bytes": width if width not in {0, 8} else None,
    }
    return conditions, elements * int(str(width))


READERS: Final = [FormatReader("stream", "STREAM, text (C, Fortran, MPI)", recognises, read, version=2)]
