"""nvbandwidth's JSON (`--json`): copies between GPUs and hosts, and latencies. GB are 10^9 bytes.

nvbandwidth prints the median of its samples, or with --useMean the mean, which the file does not state. Cells `N/A`
and tests that were waived are left out. Of bidirectional tests with three matrices, the last one is read (total).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, number, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_PLACES: Final = re.compile(r"(\w+)\(row\)\s*(->|<-|<->)\s*(\w+)\(column\)")


def recognises(start: str) -> bool:
    return re.search(r'"nvbandwidth"\s*:\s*\{', start) is not None


def read(text: str, machine: str) -> list[Record]:
    """The cells of each test's matrix, and its sum."""
    try:
        found = json.loads(text[text.index("{") :], parse_int=float)
    except (ValueError, RecursionError):
        raise FormatError("nvbandwidth: found no complete JSON object; the output is damaged or incomplete") from None
    root = field(found, "nvbandwidth", dict, "nvbandwidth")
    if "error" in root:
        raise FormatError(f"nvbandwidth: error: found '{quoted(str(root['error']), 80)}'; such output is not imported")
    version = field(root, "version", str, "nvbandwidth")
    if re.fullmatch(r"v?\d[\w.]{0,20}", version) is None:
        raise FormatError(f"nvbandwidth: version: found '{quoted(version, 20)}', a version is required")
    about = About(machine, "nvbandwidth", version.removeprefix("v"))
    made: list[Record] = []
    for at, test in enumerate(field(root, "testcases", list, "nvbandwidth")):
        where = f"nvbandwidth: testcases[{at}]"
        name, status = field(test, "name", str, where), field(test, "status", str, where)
        if re.fullmatch(r"\w{1,80}", name) is None:
            raise FormatError(f"{where}: name: found '{quoted(name, 40)}', a name is required")
        if status == "Waived":
            continue
        if status != "Passed":
            raise FormatError(f"{where}: status: found '{quoted(status, 40)}', Passed or Waived is required")
        made += _test(about, name, test, where)
    if not made:
        raise FormatError("nvbandwidth: testcases: found no result")
    return made


def _test(about: About, name: str, test: Any, where: str) -> list[Record]:
    text = field(test, "bandwidth_description", str, where)
    latency = text.endswith("(ns)")
    if not latency and not text.endswith("(GB/s)"):
        raise FormatError(f"{where}: bandwidth_description: found '{quoted(text, 60)}', (GB/s) or (ns) is required")
    places = _PLACES.search(text)
    stated: dict[str, Scalar] = {"testcase": name}
    if places is not None:
        stated |= {"row": places[1], "column": places[3], "direction": places[2]}
    rows = _matrix(test, text, where)
    made: list[Record] = []
    total = 0.0
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            if cell == "N/A":
                continue
            if not isinstance(cell, str) or re.fullmatch(r"[\d.]+(e[+-]?\d+)?", cell) is None:
                raise FormatError(f"{where}: bandwidth_matrix: found {quoted(repr(cell), 40)}, a number is required")
            value = number(cell, f"{where}: bandwidth_matrix", above_zero=True)
            total += value
            made.append(_record(about, latency, value, {**stated, "row_index": row, "column_index": column}))
    expected = field(test, "sum", float, where)
    if not abs(total - expected) <= 1e-3 * max(total, 1e-9):
        raise FormatError(f"{where}: sum: found {expected!r:.40}, the cells give {total:.6g}; the output is damaged")
    return made


def _matrix(test: Any, text: str, where: str) -> list[list[Any]]:
    rows: list[list[Any]] = field(test, "bandwidth_matrix", list, where)
    if not rows or not all(isinstance(r, list) and len(r) == len(rows[0]) and r for r in rows):
        raise FormatError(f"{where}: bandwidth_matrix: found no matrix, rows of one length are required")
    if " Total " in text and len(rows) % 3 == 0:
        rows = rows[-(len(rows) // 3) :]
    return rows


def _record(about: About, latency: bool, value: float, conditions: dict[str, Scalar]) -> Record:
    if latency:
        return theirs(about, "latency", "s", "lower", [1e-9 * value], **conditions)
    return theirs(about, "bandwidth", "B/s", "higher", [1e9 * value], **conditions)


READERS: Final = [Reader("nvbandwidth", "nvbandwidth --json", recognises, whole(read))]
