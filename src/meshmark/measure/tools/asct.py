"""The Arm System Characterization Tool's JSON (`report.json`, or one benchmark's) and CSV (one benchmark's).

Read are the memory benchmarks. A file of only idle-latency or cross-numa-bandwidth does not say which of them it is,
so these are read from `report.json` only. The numbers are averages, so `statistic` says `mean`, except core-to-core
latencies, which are samples. Columns in cycles are not read, because no file states the clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.documents import csv_rows, json_documents
from meshmark.measure.tools.output import ToolOutput
from meshmark.measure.tools.quantities import scaled
from meshmark.store.record import Record, Scalar

_Row: TypeAlias = dict[str, str]
_Take: TypeAlias = Callable[[About, _Row], list[Record]]

_NODE: Final = re.compile(r"Node (\d{1,6})")
_SHARES: Final = {"All Reads": 1.0, "3:1 Reads-Writes": 0.75, "2:1 Reads-Writes": 2 / 3, "1:1 Reads-Writes": 0.5}
_COLUMNS: Final = {
    "latency-sweep": ("Lower Bound", "Upper Bound", "Optimum Datasize", "Latency [ns]"),
    "bandwidth-sweep": ("Datasize Used", "Level", "Bandwidth [GB/s]"),
    "peak-bandwidth": ("Traffic type", "Peak BW [GB/s]"),
    "loaded-latency": ("Injected NOPs", "Loaded latency [ns]", "Bandwidth [GB/s]"),
    "c2c-latency": ("CPUA", "CPUB", "LATENCY", "CPUA_NODE", "MEMBIND_NODE"),
}
_MATRICES: Final = ("idle-latency", "cross-numa-bandwidth")
_MEAN: Final = "mean"
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def recognises(start: str) -> bool:
    if re.search(r"^[ \t]*\{", start, re.MULTILINE):
        if re.search(r'"memory"\s*:\s*\{', start) and any(f'"{n}"' in start for n in (*_COLUMNS, *_MATRICES)):
            return True
        return any(all(f'"{c}"' in start for c in columns) for columns in _COLUMNS.values())
    return any(_of_header(line.split(",")) for line in start.splitlines()[:20])


def _of_header(cells: list[str]) -> str | None:
    """The benchmark of a CSV file by its first line, whose first cell is empty."""
    if cells[0] != "":
        return None
    return next((n for n, columns in _COLUMNS.items() if tuple(cells[1 : 1 + len(columns)]) == columns), None)


def read(output: ToolOutput) -> None:
    """The memory benchmarks."""
    is_json = any(line.text.startswith("{") for line in output.lines)
    if is_json:
        _read_json(output)
    else:
        _read_csv(output)


def _read_json(output: ToolOutput) -> None:
    def is_report(value: Any) -> bool:
        return isinstance(value, dict) and (isinstance(value.get("memory"), dict) or _of_columns(value) is not None)

    documents = json_documents(output, is_report, _DECODER)
    for line, document in documents:
        place = f"line {line}: " if len(documents) > 1 else ""
        if (single := _of_columns(document)) is not None:
            _benchmark(output, About(output.machine, "asct"), single, _table(document, f"{place}{single}"))
            continue
        about = About(output.machine, "asct", _version(document.get("system-info")))
        for name, values in document["memory"].items():
            where = f"{place}memory: {quoted(name, 40)}"
            with output.item(where):
                if name in _COLUMNS:
                    _benchmark(output, about, name, _table(values, where))
                elif name in _MATRICES:
                    _matrix(output, about, name, _table(values, where))
                else:
                    raise FormatError("the benchmark is not known")


def _of_columns(values: dict[str, Any]) -> str | None:
    """The benchmark whose columns an object has."""
    return next((name for name, columns in _COLUMNS.items() if all(column in values for column in columns)), None)


def _version(system: Any) -> str:
    report = system.get("report") if isinstance(system, dict) else None
    version = report.get("asct_ver") if isinstance(report, dict) else None
    return version if isinstance(version, str) and re.fullmatch(r"[\w.+-]{1,40}", version) else ""


def _table(values: Any, where: str) -> list[tuple[str, _Row]]:
    """Rows of columns {"name": {"row": value}}: where each is, and its cells."""
    if not isinstance(values, dict) or not values or not all(isinstance(c, dict) and c for c in values.values()):
        raise FormatError("found no table, an object of columns is required")
    labels = list(next(iter(values.values())))
    for name, column in values.items():
        if {*column} != {*labels} or not all(isinstance(v, str | None) for v in column.values()):
            raise FormatError(f"{quoted(name, 40)}: found other rows than in the first column, or no values")
    return [
        (
            f"{where}: row {quoted(label, 40)}",
            {"": label, **{name: column[label] or "" for name, column in values.items()}},
        )
        for label in labels
    ]


def _read_csv(output: ToolOutput) -> None:
    begin = next((at for at, line in enumerate(output.lines) if _of_header(line.text.split(","))), 0)
    name = _of_header(output.lines[begin].text.split(","))
    if name is None:
        raise FormatError("line 1: found no columns of a memory benchmark")
    output.other_lines += begin
    header = output.lines[begin].text.split(",")
    rows = []
    for at, row in csv_rows(output, output.lines[begin:]):
        if list(row.values()) == header:
            continue  # of a further run
        if output.is_cut(output.lines[at - 1]) and header[-1] in _COLUMNS[name]:
            output.leave_out(at, f"{header[-1]}: found no end of the line; it is cut off")
        else:
            rows.append((f"line {at}", row))
    _benchmark(output, About(output.machine, "asct"), name, rows)


def _benchmark(output: ToolOutput, about: About, name: str, rows: list[tuple[str, _Row]]) -> None:
    for _, row in rows[:1]:
        if missing := [column for column in _COLUMNS[name] if column not in row]:
            raise FormatError(f"found no column '{quoted(missing[0], 40)}'")
    if name == "c2c-latency":
        _core_to_core(output, about, rows)
        return
    for where, row in rows:
        with output.item(where):
            output.add(*_TAKES[name](about, row))


def _matrix(output: ToolOutput, about: About, name: str, rows: list[tuple[str, _Row]]) -> None:
    """A matrix of nodes: columns are nodes of memory, rows are nodes of CPUs."""
    for where, row in rows:
        for memory, cell in list(row.items())[1:]:
            with output.item(f"{where}: {quoted(memory, 40)}"):
                stated: dict[str, Scalar] = {"cpu_node": _node(row[""]), "memory_node": _node(memory)}
                if name == "idle-latency":
                    stated |= {"pattern": "random", "statistic": _MEAN}
                    output.add(ours(about, "latency", "load_latency", [_value({"": cell}, "", 1e-9)], **stated))
                else:
                    stated["statistic"] = _MEAN
                    output.add(ours(about, "bandwidth", "bandwidth_net", [_value({"": cell}, "", 1e9)], **stated))


def _node(text: str) -> int:
    match = _NODE.fullmatch(text)
    if match is None:
        raise FormatError(f"found '{quoted(text, 40)}', 'Node' and its number are required")
    return int(match[1])


def _value(row: _Row, column: str, factor: float) -> float:
    """A time or rate above 0, times `factor`."""
    return scaled(number(row[column], column or "value", above_zero=True), factor, column or "value")


def _whole(row: _Row, column: str) -> int:
    if re.fullmatch(r"\d{1,15}", row[column]) is None:
        raise FormatError(f"{column}: found '{quoted(row[column], 40)}', a whole number is required")
    return int(row[column])


def _name(row: _Row, column: str) -> str:
    if re.fullmatch(r"[\w :()-]{1,60}", row[column]) is None:
        raise FormatError(f"{column}: found '{quoted(row[column], 40)}', a name is required")
    return row[column]


def _latency_sweep(about: About, row: _Row) -> list[Record]:
    footprint = _whole(row, "Optimum Datasize")
    low, high = _whole(row, "Lower Bound"), _whole(row, "Upper Bound")
    if not low <= footprint <= high:
        raise FormatError(f"Optimum Datasize: found {footprint}, one from {low} to {high} is required")
    stated: dict[str, Scalar] = {"footprint_bytes": footprint, "pattern": "random", "level": _name(row, "")}
    return [ours(about, "latency", "load_latency", [_value(row, "Latency [ns]", 1e-9)], **stated, statistic=_MEAN)]


def _bandwidth_sweep(about: About, row: _Row) -> list[Record]:
    stated: dict[str, Scalar] = {
        "footprint_bytes": _whole(row, "Datasize Used"),
        "threads": 1,
        "level": _name(row, "Level"),
    }
    rate = _value(row, "Bandwidth [GB/s]", 1e9)
    return [ours(about, "bandwidth", "bandwidth_net", [rate], **stated, statistic=_MEAN)]


def _peak_bandwidth(about: About, row: _Row) -> list[Record]:
    traffic = _name(row, "Traffic type")
    stated: dict[str, Scalar] = {"traffic": traffic, "read_share": _SHARES.get(traffic), "statistic": _MEAN}
    records = [ours(about, "bandwidth", "bandwidth_net", [_value(row, "Peak BW [GB/s]", 1e9)], **stated)]
    if row.get("% of Peak Theoretical"):
        share = _value(row, "% of Peak Theoretical", 0.01)
        records.append(theirs(about, "peak_share", "1", "higher", [share], **stated))
    return records


def _loaded_latency(about: About, row: _Row) -> list[Record]:
    stated: dict[str, Scalar] = {"mode": "paced", "injected_nops": _whole(row, "Injected NOPs"), "statistic": _MEAN}
    return [
        ours(about, "loaded", "load_latency", [_value(row, "Loaded latency [ns]", 1e-9)], **stated),
        ours(about, "loaded", "bandwidth_net", [_value(row, "Bandwidth [GB/s]", 1e9)], **stated),
    ]


def _core_to_core(output: ToolOutput, about: About, rows: list[tuple[str, _Row]]) -> None:
    """ASCT stores a row of each sample."""
    series: dict[tuple[int, ...], list[float]] = {}
    for where, row in rows:
        with output.item(where):
            key = tuple(_whole(row, column) for column in ("CPUA", "CPUB", "CPUA_NODE", "MEMBIND_NODE"))
            series.setdefault(key, []).append(_value(row, "LATENCY", 1e-9))
    for (a, b, cpu_node, home), values in series.items():
        stated: dict[str, Scalar] = {"from_cpu": a, "to_cpu": b, "cpu_node": cpu_node, "home_node": home}
        output.add(ours(about, "lines", "line_latency", values, **stated))


_TAKES: Final[dict[str, _Take]] = {
    "latency-sweep": _latency_sweep,
    "bandwidth-sweep": _bandwidth_sweep,
    "peak-bandwidth": _peak_bandwidth,
    "loaded-latency": _loaded_latency,
}

READERS: Final = [Reader("asct", "Arm System Characterization Tool, JSON and CSV", recognises, read, version=2)]
