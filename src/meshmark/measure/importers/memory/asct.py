"""Reader of the Arm System Characterization Tool's JSON (`report.json`, or one benchmark) and CSV (one benchmark).

The memory benchmarks are read. A file with only idle-latency or cross-numa-bandwidth does not state which benchmark it
contains, so these are read from `report.json` only. The numbers are averages, so the condition `statistic` is `mean`,
except for core-to-core latencies, which are samples. Columns in cycles are not read, because no file states the clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, count, matched
from meshmark.measure.importers.documents import csv_table, json_documents
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import ToolQuantity, optional, value
from meshmark.store.record import Scalar

_SHARES: Final = {"All Reads": 1.0, "3:1 Reads-Writes": 0.75, "2:1 Reads-Writes": 2 / 3, "1:1 Reads-Writes": 0.5}
_CORES: Final = "c2c-latency"
_RATE: Final = ToolQuantity("bandwidth.bandwidth_net", "GB/s", above_zero=True)
_LATENCY: Final = ToolQuantity("latency.load_latency", "ns", {"pattern": "random"}, above_zero=True)
_PACED: Final = {"mode": "paced"}
# The required columns of each benchmark: the metric or the condition that a column states; "" for neither.
_COLUMNS: Final[dict[str, dict[str, ToolQuantity | str]]] = {
    "latency-sweep": {
        "Lower Bound": "",
        "Upper Bound": "",
        "Optimum Datasize": "footprint_bytes",
        "Latency [ns]": _LATENCY,
    },
    "bandwidth-sweep": {
        "Datasize Used": "footprint_bytes",
        "Level": "level",
        "Bandwidth [GB/s]": replace(_RATE, conditions={"threads": 1}),
    },
    "peak-bandwidth": {"Traffic type": "traffic", "Peak BW [GB/s]": _RATE},
    "loaded-latency": {
        "Injected NOPs": "injected_nops",
        "Loaded latency [ns]": ToolQuantity("loaded.load_latency", "ns", _PACED, above_zero=True),
        "Bandwidth [GB/s]": ToolQuantity("loaded.bandwidth_net", "GB/s", _PACED, above_zero=True),
    },
    _CORES: dict.fromkeys(("CPUA", "CPUB", "LATENCY", "CPUA_NODE", "MEMBIND_NODE"), ""),
}
_MORE: Final = {"% of Peak Theoretical": ToolQuantity("peak_share", "%", better="higher", above_zero=True)}
_NAMES: Final = ("level", "traffic")
_MATRICES: Final = {"idle-latency": _LATENCY, "cross-numa-bandwidth": _RATE}
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def recognises(start: str) -> bool:
    """Return whether the start of a file is a report or a table of the tool."""
    if re.search(r"^[ \t]*\{", start, re.MULTILINE):
        if re.search(r'"memory"\s*:\s*\{', start) and any(f'"{n}"' in start for n in (*_COLUMNS, *_MATRICES)):
            return True
        return any(all(f'"{c}"' in start for c in columns) for columns in _COLUMNS.values())
    return any(map(_benchmark_of_header, start.splitlines()[:20]))


def _benchmark_of_header(line: str) -> str:
    """Return the benchmark whose CSV has this header; "" if the line is not a header. Its first cell is empty."""
    first, *cells = line.split(",")
    return next((n for n, columns in _COLUMNS.items() if not first and cells[: len(columns)] == [*columns]), "")


def read(output: ToolOutput) -> None:
    """Read the memory benchmarks."""
    if any(line.text.startswith("{") for line in output.lines):
        _read_json(output)
        return
    name = next(filter(None, (_benchmark_of_header(line.text) for line in output.lines)), "")
    if not name:
        raise FormatError("line 1: found no columns of a memory benchmark")
    _benchmark(output, name, csv_table(output, _benchmark_of_header, _COLUMNS[name]), "line ")


def _read_json(output: ToolOutput) -> None:
    def is_report(document: Any) -> bool:
        return isinstance(document, dict) and bool(isinstance(document.get("memory"), dict) or _of_columns(document))

    documents = json_documents(output, is_report, _DECODER)
    for line, document in documents:
        place = f"line {line}: " if len(documents) > 1 else ""
        output.set_source()
        if name := _of_columns(document):
            _benchmark(output, name, _rows(document), f"{place}{name}: row ")
            continue
        output.set_source(_version(document.get("system-info")))
        for name, values in document["memory"].items():
            where = f"{place}memory: {quoted(name, 40)}"
            with output.item(where):
                if name in _COLUMNS:
                    _benchmark(output, name, _rows(values), f"{where}: row ")
                elif name in _MATRICES:
                    _matrix(output, _MATRICES[name], _rows(values), f"{where}: row ")
                else:
                    raise FormatError("the benchmark is not known")


def _of_columns(values: dict[str, Any]) -> str:
    """Return the benchmark whose columns an object has; "" if it is not a benchmark."""
    return next((name for name, columns in _COLUMNS.items() if {*columns} <= values.keys()), "")


def _version(system: Any) -> str:
    version = optional(system.get("report") if isinstance(system, dict) else None, "asct_ver")
    return version if re.fullmatch(r"[\w.+-]{1,40}", version) else ""


def _rows(values: Any) -> list[tuple[str, dict[str, str]]]:
    """Return the rows of columns {"name": {"row": value}}, with their names, which also are the cells of column ""."""
    if not isinstance(values, dict) or not values or not all(isinstance(c, dict) and c for c in values.values()):
        raise FormatError("found no table, an object of columns is required")
    labels = list(next(iter(values.values())))
    for name, column in values.items():
        if {*column} != {*labels} or not all(isinstance(v, str | None) for v in column.values()):
            raise FormatError(f"{quoted(name, 40)}: found other rows than in the first column, or no values")
    return [
        (quoted(label, 40), {"": label, **{name: column[label] or "" for name, column in values.items()}})
        for label in labels
    ]


def _benchmark(output: ToolOutput, name: str, rows: Iterable[tuple[object, dict[str, str]]], where: str) -> None:
    """Read the rows of a benchmark; ASCT stores one row per sample of a core-to-core latency."""
    series: dict[tuple[int, ...], list[float]] = {}
    for label, row in rows:
        if missing := [column for column in _COLUMNS[name] if column not in row]:
            raise FormatError(f"found no column '{missing[0]}'")
        with output.item(f"{where}{label}"):
            if name == _CORES:
                key = tuple(count(row[column], column) for column in ("CPUA", "CPUB", "CPUA_NODE", "MEMBIND_NODE"))
                series.setdefault(key, []).append(value(row["LATENCY"], "ns", "LATENCY", above_zero=True))
                continue
            conditions = _conditions(name, row)
            for column, quantity in {**_COLUMNS[name], **_MORE}.items():
                if isinstance(quantity, ToolQuantity) and (row.get(column) or column not in _MORE):
                    output.take(quantity, row[column], column, **conditions)
    for (from_cpu, to_cpu, cpu_node, home_node), times in series.items():
        output.add_meshmark_metric(
            "lines.line_latency", times, from_cpu=from_cpu, to_cpu=to_cpu, cpu_node=cpu_node, home_node=home_node
        )


def _conditions(name: str, row: dict[str, str]) -> dict[str, Scalar]:
    """Return the conditions that the cells of a row state."""
    conditions: dict[str, Scalar] = {"statistic": "mean"}
    for column, condition in _COLUMNS[name].items():
        if isinstance(condition, str) and condition:
            conditions[condition] = (_name if condition in _NAMES else count)(row[column], column)
    if name == "latency-sweep":
        low, footprint, high = (count(row[c], c) for c in ("Lower Bound", "Optimum Datasize", "Upper Bound"))
        if not low <= footprint <= high:
            raise FormatError(f"Optimum Datasize: found {footprint}, one from {low} to {high} is required")
        conditions["level"] = _name(row[""], "")
    if "traffic" in conditions:
        conditions["read_share"] = _SHARES.get(str(conditions["traffic"]))
    return conditions


def _matrix(output: ToolOutput, quantity: ToolQuantity, rows: list[tuple[str, dict[str, str]]], where: str) -> None:
    """Read a matrix of nodes: each column is a memory node, each row is a node of CPUs."""
    for label, row in rows:
        for memory, cell in list(row.items())[1:]:
            with output.item(f"{where}{label}: {quoted(memory, 40)}"):
                nodes = {"cpu_node": _node(row[""]), "memory_node": _node(memory)}
                output.take(quantity, cell, "value", statistic="mean", **nodes)


def _node(text: str) -> int:
    return int(matched(r"Node (\d{1,6})", text, "'Node' and its number")[1])


def _name(text: str, column: str) -> str:
    return matched(r"[\w :()-]{1,60}", text, "a name", column)[0]


READERS: Final = [FormatReader("asct", "Arm System Characterization Tool, JSON and CSV", recognises, read, version=2)]
