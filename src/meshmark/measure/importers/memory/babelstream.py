"""Reader of BabelStream's text and CSV (versions 4 and 5).

BabelStream prints the best rate of each kernel, and its shortest, longest and mean time; the condition `statistic`
states which of them a record is. Its kernel Mul is STREAM's Scale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import (
    FormatError,
    FormatReader,
    UnknownMeaningError,
    count,
    has,
    number,
    unexpected,
)
from meshmark.measure.importers.documents import csv_cells, row_of
from meshmark.measure.importers.output import OutputLine, ToolOutput, sections
from meshmark.measure.importers.quantities import facts, unit_of
from meshmark.store.record import Scalar

_KERNELS: Final = {
    "Copy": ("copy", 2, 2),  # name, number of arrays, elements that are moved per iteration
    "Mul": ("scale", 2, 2),
    "Add": ("add", 3, 3),
    "Triad": ("triad", 3, 3),
    "Dot": ("dot", 2, 2),
    "Nstream": ("nstream", 3, 4),
}
_LARGEST: Final = 1e18  # B/s
_TEXT: Final = re.compile(r"^BabelStream[ \t]*\nVersion: (\S+)[ \t]*\nImplementation: ([^\n]+)", re.MULTILINE)
_HEAD: Final = re.compile(
    r"^function,num_times,n_elements,sizeof,max_([mgt]i?)(?:bytes|b)_per_sec,min_runtime,max_runtime,avg_runtime\s*$",
    re.MULTILINE | re.IGNORECASE,
)
_TABLE: Final = re.compile(r"Function\s+([MGT]i?)B(?:ytes)?/s(?:ec)?\s+Min \(sec\)\s+Max\s+Average\s*")
_TRIAD: Final = re.compile(r"Bandwidth \(([MGT]i?)B/s\):\s+(\S+)")  # rate of all triads together, with --triad-only
_FAILED: Final = re.compile(r"^.*(?:Validation failed|FAILED validation).*$", re.MULTILINE)
_FACTS: Final = {
    "repetitions": r"^Running .*?(\d{1,9}) times",
    "device": r"^Using .*? device:?[ \t]+(\S.{0,59})",
    "memory": r"^Memory:?[ \t]+(\S.{0,59})",
    "reduction": r"^Reduction kernel config:?[ \t]+(\S.{0,59})",
}


def read(output: ToolOutput) -> None:
    """Read the best rate and the times of each kernel of each run."""
    for run in sections(output.lines, lambda text: text.strip() == "BabelStream" or _HEAD.match(text)):
        text = "\n".join(line.text for line in run)
        if failure := _FAILED.search(text):
            output.leave_out(run[0].number, f"the run says '{failure[0].strip()[:60]}'; only valid ones are imported")
        elif head := _HEAD.match(run[0].text):
            if not output.records and "Running" not in text and _has_failed_above(output, run[0]):
                raise FormatError("a failed validation above the table; only results that validate are imported")
            _read_csv(output, run[1:], _rate_unit(head[1]))
        else:
            with output.item(run[0].number):
                _read_text(output, run, text)


def _has_failed_above(output: ToolOutput, head: OutputLine) -> bool:
    return any(_FAILED.search(line.text) for line in output.lines if line.number < head.number)


def _rate_unit(prefix: str) -> float:
    """Return the factor of a unit such as `MB/s` or `GiB/s` by its prefix."""
    return unit_of(f"{prefix[0].upper()}{prefix[1:].lower()}B/s").factor


def _read_text(output: ToolOutput, run: Sequence[OutputLine], text: str) -> None:
    title = _TEXT.search(text)
    if title is None:
        raise FormatError("a version and an implementation are required below 'BabelStream'")
    precision = re.search(r"^Precision: (float|double)\b", text, re.MULTILINE)
    array = re.search(r"^Array size: ([\d.]{1,20}) ([KMGT]i?B)\b", text, re.MULTILINE)
    elements = re.search(r"^Number of elements: (\d{1,18})\b", text, re.MULTILINE)
    if precision is None or (array is None and elements is None):
        raise FormatError("'Precision: double' and 'Array size: 268.4 MB' are required")
    output.set_source(title[1])
    width = 8 if precision[1] == "double" else 4
    array_bytes = int(elements[1]) * width if elements else 0
    if array is not None and not elements:
        array_bytes = round(number(array[1], "Array size") * unit_of(array[2]).factor)
    conditions: dict[str, Scalar] = {"implementation": title[2].strip(), **facts(text, _FACTS)}
    scale = 0.0
    seen: set[str] = set()
    for line in run:
        cells = line.text.split()
        if line.text.startswith("Function"):
            head = _TABLE.fullmatch(line.text)
            if head is None:
                raise UnknownMeaningError(f"line {line.number}: found the columns '{quoted(line.text, 60)}'")
            scale = _rate_unit(head[1])
        elif (triad := _TRIAD.fullmatch(line.text)) and not scale:
            with output.item(line.number):
                if output.is_cut(line):
                    raise FormatError("the text ends within the line")
                seen.add("Triad")
                rate = _rate_unit(triad[1]) * number(triad[2], "Bandwidth", above_zero=True)
                common = {"kernel": "triad", "footprint_bytes": 3 * array_bytes, "element_bytes": width, **conditions}
                output.add_meshmark_metric("bandwidth.bandwidth_net", rate, **common, statistic="mean")
        elif scale and len(cells) > 1 and re.match(r"[\d.]", cells[1]):
            with output.item(line.number):
                if cells[0] not in _KERNELS or cells[0] in seen or len(cells) != 5 or output.is_cut(line):
                    raise unexpected(line.text, "a kernel and 4 whole numbers")
                seen.add(cells[0])
                _kernel(output, cells, scale, array_bytes, width, conditions)
        elif scale and cells:
            output.other_lines += 1
    if not seen:
        raise FormatError("the run has no rates")


def _read_csv(output: ToolOutput, rows: Sequence[OutputLine], scale: float) -> None:
    output.set_source()
    for line in filter(lambda line: line.text.strip(","), rows):
        with output.item(line.number):
            row = row_of(("kernel", "repetitions", "elements", "width", *"1234"), csv_cells(line.text))
            kernel, repetitions, elements, width = list(row.values())[:4]
            if kernel not in _KERNELS or output.is_cut(line):
                raise unexpected(line.text, "a kernel and 7 whole numbers")
            if width not in {"2", "4", "8"}:
                raise unexpected(width, "2, 4 or 8 bytes")
            times = {"repetitions": count(repetitions)}
            array_bytes = count(elements) * int(width)
            rate_time = _kernel(output, [kernel, *list(row.values())[4:]], scale, array_bytes, int(width), times)
            if not 0.99 < rate_time / (_KERNELS[kernel][2] * array_bytes) < 1.01:
                raise FormatError("its size and min_runtime do not give the rate; a cell is damaged")


def _kernel(
    output: ToolOutput, cells: Sequence[str], scale: float, array_bytes: int, width: int, stated: Mapping[str, Scalar]
) -> float:
    """Add the best rate, the shortest time and the mean time of a kernel; return best rate times shortest time, in B.

    Args:
        output: The output, to which the records are added.
        cells: Kernel, rate in units of `scale` B/s, and the shortest, longest and mean time in s.
        scale: Factor of the rate, in B/s.
        array_bytes: Size of an array in bytes.
        width: Size of an element in bytes.
        stated: Conditions that the output states for all kernels.
    """
    kernel, arrays, _ = _KERNELS[cells[0]]
    rate = scale * number(cells[1], "rate", above_zero=True)
    best, worst, mean = (number(cell, "time") for cell in cells[2:])
    if not 0 <= best <= mean <= worst or rate > _LARGEST:
        raise FormatError(
            f"found {', '.join(cells[1:])}; required: a rate, then the shortest, longest and mean time"[:250]
        )
    common = {"kernel": kernel, "footprint_bytes": arrays * array_bytes, "element_bytes": width, **stated}
    output.add_meshmark_metric("bandwidth.bandwidth_net", rate, **common, statistic="best")
    output.add_tool_metric("kernel_time", "s", best, **common, statistic="best")
    output.add_tool_metric("kernel_time", "s", mean, **common, statistic="mean")
    return rate * best


READERS: Final = [FormatReader("babelstream", "BabelStream, text or CSV", has(_TEXT, _HEAD), read, version=2)]
