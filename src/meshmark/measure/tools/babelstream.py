"""BabelStream's text and CSV (versions 4 and 5).

BabelStream prints the best rate of each kernel, and the shortest, the longest and the mean time of it; the condition
`statistic` says which one a record is. The kernel that it calls Mul is STREAM's Scale.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, UnknownMeaning, number, ours, theirs
from meshmark.measure.tools.documents import csv_rows
from meshmark.measure.tools.output import Line, ToolOutput, sections, unexpected
from meshmark.store.record import Record, Scalar

_KERNELS: Final = {
    "Copy": ("copy", 2, 2),  # name, arrays that it uses, elements that it moves
    "Mul": ("scale", 2, 2),
    "Add": ("add", 3, 3),
    "Triad": ("triad", 3, 3),
    "Dot": ("dot", 2, 2),
    "Nstream": ("nstream", 3, 4),
}
_LARGEST: Final = 1e18  # B/s
_UNIT: Final = {"m": (1e6, 2**20), "g": (1e9, 2**30), "t": (1e12, 2**40)}
_TEXT: Final = re.compile(r"^BabelStream[ \t]*\nVersion: (\S+)[ \t]*\nImplementation: ([^\n]+)", re.MULTILINE)
_HEAD: Final = re.compile(
    r"^function,num_times,n_elements,sizeof,max_([mgt])(i?)(?:bytes|b)_per_sec,min_runtime,max_runtime,avg_runtime\s*$",
    re.MULTILINE | re.IGNORECASE,
)
_TABLE: Final = re.compile(r"Function\s+([MGT])(i?)B(?:ytes)?/s(?:ec)?\s+Min \(sec\)\s+Max\s+Average\s*")


def recognises(start: str) -> bool:
    return _TEXT.search(start) is not None or _HEAD.search(start) is not None


def read(output: ToolOutput) -> None:
    """The best rate and the times of each kernel of each run."""
    for run in sections(output.lines, lambda text: text.strip() == "BabelStream" or _HEAD.match(text)):
        text = "\n".join(line.text for line in run)
        if failed := re.search(r"^.*(?:Validation failed|FAILED validation).*$", text, re.MULTILINE):
            output.leave_out(
                run[0].number, f"the run says '{quoted(failed[0].strip(), 60)}'; only valid ones are taken"
            )
        elif _HEAD.match(run[0].text):
            if not (output.records or "Running" in text):
                _check_head(output, run[0])
            _read_csv(output, run)
        else:
            with output.item(run[0].number):
                _read_text(output, run, text)


def _check_head(output: ToolOutput, head: Line) -> None:
    """Leave a CSV out below which a failed validation was printed before its table."""
    before = "\n".join(line.text for line in output.lines if line.number < head.number)
    if "Validation failed" in before or "FAILED validation" in before:
        raise FormatError("a failed validation above the table; only results that validate are taken")


def _read_text(output: ToolOutput, run: Sequence[Line], text: str) -> None:
    title = _TEXT.search(text)
    if title is None:
        raise FormatError("a version and an implementation are required below 'BabelStream'")
    running = re.search(r"^Running (.*)", text, re.MULTILINE)
    precision = re.search(r"^Precision: (float|double)\b", text, re.MULTILINE)
    array = re.search(r"^Array size: ([\d.]{1,20}) ([KMGT])(i?)B\b", text, re.MULTILINE)
    elements = re.search(r"^Number of elements: (\d{1,18})\b", text, re.MULTILINE)
    if precision is None or (array is None and elements is None):
        raise FormatError("'Precision: double' and 'Array size: 268.4 MB' are required")
    times = re.search(r"(\d{1,9}) times", running[1]) if running else None
    about = About(output.machine, "babelstream", title[1])
    width = 8 if precision[1] == "double" else 4
    each = int(elements[1]) * width if elements else 0
    if array is not None and not elements:
        unit = {"K": (1e3, 2**10), "M": (1e6, 2**20), "G": (1e9, 2**30), "T": (1e12, 2**40)}[array[2]]
        each = round(number(array[1], "Array size") * unit[bool(array[3])])
    conditions: dict[str, Scalar] = {
        "implementation": title[2].strip(),
        "repetitions": int(times[1]) if times else None,
        **_stated(text),
    }
    scale = 0.0
    seen: set[str] = set()
    for line in run:
        cells = line.text.split()
        if line.text.startswith("Function"):
            head = _TABLE.fullmatch(line.text)
            if head is None:
                raise UnknownMeaning(f"line {line.number}: found the columns '{quoted(line.text, 60)}'")
            scale = _UNIT[head[1].lower()][bool(head[2])]
        elif scale and len(cells) > 1 and re.match(r"[\d.]", cells[1]):
            with output.item(line.number):
                if cells[0] not in _KERNELS or cells[0] in seen or len(cells) != 5 or output.is_cut(line):
                    raise unexpected(line.text, "a kernel and 4 whole numbers")
                seen.add(cells[0])
                output.add(*_kernel(about, cells, scale, each, width, conditions))
        elif scale and cells:
            output.other_lines += 1
    if not seen:
        raise FormatError("the run has no rates")


def _stated(text: str) -> dict[str, Scalar]:
    """Conditions of header lines: the device, the order and what is shared or managed."""
    stated: dict[str, Scalar] = {}
    for key, name in (("Using .*? device", "device"), ("Memory", "memory"), ("Reduction kernel config", "reduction")):
        if match := re.search(rf"^{key}:?[ \t]+(\S.*)$", text, re.MULTILINE):
            stated[name] = quoted(match[1].strip(), 60)
    return stated


def _read_csv(output: ToolOutput, run: Sequence[Line]) -> None:
    head = _HEAD.match(run[0].text)
    if head is None:
        return
    about = About(output.machine, "babelstream")
    scale = _UNIT[head[1].lower()][bool(head[2])]
    names = ("kernel", "times", "elements", "width", "rate", "min", "max", "avg")
    rows = [Line(run[0].number, ",".join(names)), *run[1:]]
    last = run[-1].number
    for at, row in csv_rows(output, rows):
        with output.item(at):
            if row["kernel"] not in _KERNELS or (at == last and output.is_cut(run[-1])):
                raise unexpected(",".join(row.values()), "a kernel and 7 whole numbers")
            counts = [row[key] for key in ("times", "elements", "width")]
            if not all(re.fullmatch(r"\d{1,18}", count) for count in counts):
                raise unexpected(",".join(counts), "three counts")
            repetitions, elements, width = map(int, counts)
            if width not in (2, 4, 8):
                raise unexpected(width, "2, 4 or 8 bytes")
            cells = [row[key] for key in ("kernel", "rate", "min", "max", "avg")]
            records = _kernel(about, cells, scale, elements * width, width, {"repetitions": repetitions})
            rate, best = records[0].value, records[1].value
            if not 0.99 < rate * best / (_KERNELS[cells[0]][2] * elements * width) < 1.01:
                raise FormatError("its size and min_runtime do not give the rate; a cell is damaged")
            output.add(*records)


def _kernel(
    about: About, cells: list[str], scale: float, each: int, width: int, conditions: dict[str, Scalar]
) -> list[Record]:
    """The records of a line: the best rate, and the shortest and the mean time.

    Args:
        cells: Kernel, rate in `scale` B/s, and the three times in s.
        each: Size of an array in bytes.
        width: Of an element in bytes.
    """
    kernel, arrays, _ = _KERNELS[cells[0]]
    same = {"kernel": kernel, "footprint_bytes": arrays * each, "element_bytes": width, **conditions}
    rate = scale * number(cells[1], "rate", above_zero=True)
    best, worst, mean = (number(c, "time") for c in cells[2:])
    if not 0 <= best <= mean <= worst or rate > _LARGEST:
        raise FormatError(
            f"found {', '.join(cells[1:])}; required: a rate, then the shortest, longest and mean time"[:250]
        )
    rates = [ours(about, "bandwidth", "bandwidth_net", [rate], **same, statistic="best")]
    times = (("best", best), ("worst", worst), ("mean", mean))
    return rates + [
        theirs(about, "kernel_time", "s", "lower", [v], **same, statistic=s) for s, v in times[:1] + times[2:]
    ]


READERS: Final = [Reader("babelstream", "BabelStream, text or CSV", recognises, read, version=2)]
