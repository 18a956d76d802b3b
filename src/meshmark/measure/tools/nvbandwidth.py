"""nvbandwidth's text and JSON (`--json`): copies between GPUs and hosts, and latencies. GB are 10^9 bytes.

nvbandwidth prints the median of its samples, or with --useMean the mean, which the file does not state. Cells `N/A`
and tests that were waived are left out. Of bidirectional tests with three matrices, the last one is read (total).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, UnknownMeaning, field, number, theirs
from meshmark.measure.tools.documents import json_document
from meshmark.measure.tools.output import Line, ToolOutput, sections, unexpected
from meshmark.measure.tools.quantities import optional
from meshmark.store.record import Record, Scalar

_TEXT: Final = re.compile(r"^nvbandwidth Version: v?(\S{1,20})", re.MULTILINE)
_PLACES: Final = re.compile(r"(\w+)\(row\)\s*(->|<-|<->)\s*(\w+)\(column\)")


def recognises(start: str) -> bool:
    return re.search(r'"nvbandwidth"\s{0,9}:\s{0,9}\{', start) is not None or _TEXT.search(start) is not None


def read(output: ToolOutput) -> None:
    """The cells of each test's matrix."""
    if _TEXT.search(output.text):
        for run in sections(output.lines, _TEXT.match):
            _read_text(output, run)
        return
    root = field(json_document(output, lambda v: isinstance(v, dict) and "nvbandwidth" in v), "nvbandwidth", dict, "")
    if "error" in root:
        raise FormatError(f"error: found '{quoted(str(root['error']), 80)}'; such output is not taken")
    about = About(output.machine, "nvbandwidth", optional(root, "version").removeprefix("v"))
    for at, test in enumerate(field(root, "testcases", list, "nvbandwidth")):
        with output.item(f"testcases[{at}]"):
            name, status = field(test, "name", str, ""), field(test, "status", str, "")
            if re.fullmatch(r"\w{1,80}", name) is None:
                raise FormatError(f"name: {unexpected(name, 'a name')}")
            if status == "Waived":
                continue
            if status != "Passed":
                raise FormatError(f"status: {unexpected(status, 'Passed or Waived')}")
            output.add(*_test(about, name, test))


def _kind(text: str) -> tuple[bool, dict[str, Scalar]]:
    """Tell from its description whether a matrix has latencies, and the conditions that it states.

    Raises:
        UnknownMeaning: The unit is not known.
    """
    latency = text.endswith("(ns)")
    if not latency and not text.endswith("(GB/s)"):
        raise UnknownMeaning(f"found '{quoted(text, 60)}', (GB/s) or (ns) is required")
    places = _PLACES.search(text)
    return latency, {"row": places[1], "column": places[3], "direction": places[2]} if places else {}


def _test(about: About, name: str, test: Any) -> list[Record]:
    text = field(test, "bandwidth_description", str, "")
    latency, stated = _kind(text)
    records: list[Record] = []
    total = 0.0
    for row, cells in enumerate(_matrix(test, text)):
        for column, cell in enumerate(cells):
            if cell == "N/A":
                continue
            value = _cell(cell)
            total += value
            conditions: dict[str, Scalar] = {"testcase": name, **stated, "row_index": row, "column_index": column}
            records.append(_record(about, latency, value, conditions))
    expected = field(test, "sum", (int, float), "")
    if not abs(total - expected) <= 1e-3 * max(total, 1e-9):
        raise FormatError(f"sum: found {expected!r:.40}, the cells give {total:.6g}; a number is damaged")
    return records


def _cell(cell: object) -> float:
    if not isinstance(cell, str | int | float) or re.fullmatch(r"[\d.]+(e[+-]?\d+)?", str(cell)) is None:
        raise FormatError(f"bandwidth_matrix: {unexpected(cell, 'a number')}")
    return number(str(cell), "bandwidth_matrix", above_zero=True)


def _matrix(test: Any, text: str) -> list[list[Any]]:
    rows: list[list[Any]] = field(test, "bandwidth_matrix", list, "")
    if not rows or not all(isinstance(r, list) and len(r) == len(rows[0]) and r for r in rows):
        raise FormatError("bandwidth_matrix: rows of one length are required")
    if " Total " in text and len(rows) % 3 == 0:
        rows = rows[-(len(rows) // 3) :]
    return rows


def _read_text(output: ToolOutput, run: Sequence[Line]) -> None:
    """The matrices of the text, which is printed without --json; of bidirectional tests each part is told apart."""
    title = _TEXT.match(run[0].text)
    about = About(output.machine, "nvbandwidth", title[1] if title else "")
    name = ""
    latency, stated = False, dict[str, Scalar]()
    columns: list[int] = []
    described = False
    for line in run:
        text = line.text.strip()
        if running := re.fullmatch(r"Running (\w{1,80})\.?", text):
            name, described, columns = running[1], False, []
        elif name and re.search(r"\(row\)|\(column\)", text):
            latency, stated = _kind(text)
            described, columns = True, []
            if part := re.search(r"\b(Read1|Read2|Write1|Write2) ", text):
                stated["part"] = part[1].lower()
        elif text.startswith("SUM "):
            described = False
        elif described and re.fullmatch(r"\d+(?:\s+\d+)*", text) and not columns:
            columns = [int(cell) for cell in text.split()]
        elif described and re.match(r"\d+\s", text):
            with output.item(line.number):
                row, *cells = text.split()
                if len(cells) != len(columns):
                    raise FormatError(f"found {len(cells)} cells, {len(columns)} are required")
                for column, cell in zip(columns, cells, strict=True):
                    if cell != "N/A":
                        if re.fullmatch(r"\d+\.\d\d", cell) is None:
                            raise unexpected(cell, "a number with two decimals")
                        indices: dict[str, Scalar] = {"row_index": int(row), "column_index": column}
                        conditions = {"testcase": name, **stated, **indices}
                        output.add(_record(about, latency, number(cell, "cell", above_zero=True), conditions))
        elif described and text:
            output.other_lines += 1


def _record(about: About, latency: bool, value: float, conditions: dict[str, Scalar]) -> Record:
    if latency:
        return theirs(about, "latency", "s", "lower", [1e-9 * value], **conditions)
    return theirs(about, "bandwidth", "B/s", "higher", [1e9 * value], **conditions)


READERS: Final = [Reader("nvbandwidth", "nvbandwidth, text or JSON", recognises, read, version=2)]
