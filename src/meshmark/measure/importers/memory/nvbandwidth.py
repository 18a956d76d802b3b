"""Reader of nvbandwidth's text and JSON (`--json`): copies between GPUs and hosts, and latencies. A GB is 10^9 bytes.

nvbandwidth prints the median of its samples, or with --useMean the mean; the file does not state which. Cells `N/A` and
tests that were waived are left out. If a bidirectional test has three matrices, the last matrix (total) is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import (
    FormatError,
    FormatReader,
    UnknownMeaningError,
    field,
    has,
    matched,
    unexpected,
)
from meshmark.measure.importers.documents import json_objects
from meshmark.measure.importers.output import OutputLine, ToolOutput, matrix_row, sections
from meshmark.measure.importers.quantities import ToolQuantity, finite, optional
from meshmark.store.record import Scalar

_TEXT: Final = re.compile(r"^nvbandwidth Version: v?(\S{1,20})", re.MULTILINE)
_QUANTITIES: Final = {
    "ns": ToolQuantity("latency", "ns", above_zero=True),
    "GB/s": ToolQuantity("bandwidth", "GB/s", above_zero=True),
}
_PLACES: Final = re.compile(r"(\w+)\(row\)\s*(->|<-|<->)\s*(\w+)\(column\)")


def read(output: ToolOutput) -> None:
    """Read the cells of the matrix of each test."""
    if _TEXT.search(output.text):
        for run in sections(output.lines, _TEXT.match):
            _read_text(output, run)
        return
    (_, document), *other_documents = json_objects(output, "nvbandwidth")
    for place, _ in other_documents:
        output.leave_out(place.removesuffix(": "), "a second document; one per file is read")
    root = field(document, "nvbandwidth", dict)
    if "error" in root:
        raise FormatError(f"error: found '{quoted(str(root['error']), 80)}'; such output is not imported")
    output.set_source(optional(root, "version").removeprefix("v"))
    for index, test in enumerate(field(root, "testcases", list, "nvbandwidth")):
        with output.item(f"testcases[{index}]"):
            name = matched(r"\w{1,80}", field(test, "name", str), "a name", "name")[0]
            status = field(test, "status", str)
            if status not in {"Passed", "Waived"}:
                raise unexpected(status, "Passed or Waived", "status")
            if status == "Passed":
                _test(output, name, test)


def _meaning(text: str) -> tuple[ToolQuantity, dict[str, Scalar]]:
    """Return the quantity of a matrix, and the conditions that its description states.

    Raises:
        UnknownMeaningError: The unit is not known.
    """
    unit = next((unit for unit in _QUANTITIES if text.endswith(f"({unit})")), "")
    if not unit:
        raise UnknownMeaningError(f"found '{quoted(text, 60)}', (GB/s) or (ns) is required")
    places = _PLACES.search(text)
    return _QUANTITIES[unit], {"row": places[1], "column": places[3], "direction": places[2]} if places else {}


def _test(output: ToolOutput, name: str, test: Any) -> None:
    text = field(test, "bandwidth_description", str)
    quantity, description = _meaning(text)
    rows: list[list[Any]] = field(test, "bandwidth_matrix", list)
    if not rows or not all(isinstance(row, list) and len(row) == len(rows[0]) and row for row in rows):
        raise FormatError("bandwidth_matrix: rows of one length are required")
    if " Total " in text and len(rows) % 3 == 0:
        rows = rows[-(len(rows) // 3) :]
    total = 0.0
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            if cell != "N/A":
                number = matched(r"[\d.]+(e[+-]?\d+)?", str(cell), "a number", "bandwidth_matrix")[0]
                conditions = {"testcase": name, **description, "row_index": row, "column_index": column}
                output.take(quantity, number, "bandwidth_matrix", **conditions)
                total += float(number)
    expected = finite(test, "sum")
    if not abs(total - expected) <= 1e-3 * max(total, 1e-9):
        raise FormatError(f"sum: found {expected!r:.40}, the cells give {total:.6g}; a number is damaged")


def _read_text(output: ToolOutput, run: Sequence[OutputLine]) -> None:
    """Read the matrices of the text, which is printed without --json; parts of bidirectional tests have a condition."""
    output.set_source(run[0].text.partition(":")[2].strip().removeprefix("v"))
    name = ""
    quantity: ToolQuantity | None = None
    description: dict[str, Scalar] = {}
    columns: list[int] = []
    for line in run:
        text = line.text.strip()
        if test_line := re.fullmatch(r"Running (\w{1,80})\.?", text):
            name, quantity, columns = test_line[1], None, []
        elif name and re.search(r"\(row\)|\(column\)", text):
            quantity, description = _meaning(text)
            columns = []
            if part := re.search(r"\b(Read1|Read2|Write1|Write2) ", text):
                description["part"] = part[1].lower()
        elif text.startswith("SUM "):
            quantity = None
        elif quantity and re.fullmatch(r"\d+(?:\s+\d+)*", text) and not columns:
            columns = [int(cell) for cell in text.split()]
        elif quantity and re.match(r"\d+\s", text):
            with output.item(line.number):
                row, cells = matrix_row(text, columns)
                for column, cell in cells.items():
                    if cell != "N/A":
                        matched(r"\d+\.\d\d", cell, "a number with two decimals")
                        conditions = {"testcase": name, **description, "row_index": row, "column_index": column}
                        output.take(quantity, cell, "cell", **conditions)
        elif quantity and text:
            output.other_lines += 1


READERS: Final = [
    FormatReader(
        "nvbandwidth", "nvbandwidth, text or JSON", has(r'"nvbandwidth"\s{0,9}:\s{0,9}\{', _TEXT), read, version=2
    )
]
