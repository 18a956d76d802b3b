"""The Arm System Characterization Tool's JSON (`report.json`, or one benchmark's) and CSV (one benchmark's).

Read are the memory benchmarks. A file of only idle-latency or cross-numa-bandwidth does not say which of them it is,
so these are read from `report.json` only. The numbers are averages, so `statistic` says `mean`, except core-to-core
latencies, which are samples. Columns in cycles are not read, because no file states the clock.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_Row: TypeAlias = dict[str, str]
_Take: TypeAlias = Callable[[About, _Row, str], list[Record]]

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


def recognises(start: str) -> bool:
    if start.lstrip().startswith("{"):
        if re.search(r'"memory"\s*:\s*\{', start) and any(f'"{n}"' in start for n in (*_COLUMNS, *_MATRICES)):
            return True
        return any(all(f'"{c}"' in start for c in columns) for columns in _COLUMNS.values())
    return _of_header(start.partition("\n")[0].rstrip("\r").split(",")) is not None


def _of_header(cells: list[str]) -> str | None:
    """The benchmark of a CSV file by its first line, whose first cell is empty."""
    if cells[0] != "":
        return None
    return next((n for n, columns in _COLUMNS.items() if tuple(cells[1 : 1 + len(columns)]) == columns), None)


def read(text: str, machine: str) -> list[Record]:
    """The memory benchmarks."""
    made = _read_json(text, machine) if text.lstrip().startswith("{") else _read_csv(text, machine)
    if not made:
        raise FormatError("ASCT: found no result of a memory benchmark")
    return made


def _read_json(text: str, machine: str) -> list[Record]:
    try:
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        raise FormatError("ASCT: found no complete JSON object; the file is damaged or incomplete") from None
    if not isinstance(found, dict):
        raise FormatError("ASCT: found no JSON object")
    if "memory" not in found:
        name = next((n for n, columns in _COLUMNS.items() if all(c in found for c in columns)), None)
        if name is None:
            raise FormatError("ASCT: found neither 'memory' nor the columns of a memory benchmark")
        return _benchmark(About(machine, "asct"), name, _table(found, f"ASCT: {name}"))
    about = About(machine, "asct", _version(found.get("system-info")))
    if not isinstance(found["memory"], dict):
        raise FormatError("ASCT: memory: found no object of benchmarks")
    made: list[Record] = []
    for name, values in found["memory"].items():
        if name in _COLUMNS:
            made += _benchmark(about, name, _table(values, f"ASCT: memory: {name}"))
        elif name in _MATRICES:
            made += _matrix(about, name, values)
        else:
            raise FormatError(f"ASCT: memory: found the unknown benchmark '{quoted(name, 40)}'")
    return made


def _version(system: Any) -> str:
    report = system.get("report") if isinstance(system, dict) else None
    version = report.get("asct_ver") if isinstance(report, dict) else None
    return version if isinstance(version, str) and re.fullmatch(r"[\w.+-]{1,40}", version) else ""


def _table(values: Any, where: str) -> list[tuple[str, _Row]]:
    """Rows of columns {"name": {"row": value}}: where each is, and its cells."""
    if not isinstance(values, dict) or not values or not all(isinstance(c, dict) and c for c in values.values()):
        raise FormatError(f"{where}: found no table, an object of columns is required")
    labels = list(next(iter(values.values())))
    for name, column in values.items():
        if list(column) != labels or not all(isinstance(v, str) for v in column.values()):
            raise FormatError(f"{where}: {quoted(name, 40)}: found other rows than in the first column, or no values")
    return [
        (f"{where}: row {quoted(label, 40)}", {"": label, **{name: column[label] for name, column in values.items()}})
        for label in labels
    ]


def _read_csv(text: str, machine: str) -> list[Record]:
    if not text.endswith("\n"):
        raise FormatError("ASCT: found no end of the last line; the file is incomplete")
    try:
        rows = list(csv.reader(text.splitlines(), strict=True))
    except csv.Error as why:
        raise FormatError(f"ASCT: found a line that is no CSV ({quoted(str(why), 60)})") from None
    name = _of_header(rows[0])
    if name is None:
        raise FormatError("ASCT: line 1: found no columns of a memory benchmark")
    found: list[tuple[str, _Row]] = []
    for at, cells in enumerate(rows[1:], 2):
        if len(cells) != len(rows[0]):
            raise FormatError(f"ASCT: line {at}: found {len(cells)} cells, {len(rows[0])} are required")
        if cells[0] != str(at - 2) and name != "latency-sweep":
            raise FormatError(f"ASCT: line {at}: found row '{quoted(cells[0], 40)}', {at - 2} is required")
        found.append((f"ASCT: line {at}", dict(zip(rows[0], cells, strict=True))))
    return _benchmark(About(machine, "asct"), name, found)


def _benchmark(about: About, name: str, rows: list[tuple[str, _Row]]) -> list[Record]:
    for where, row in rows[:1]:
        if missing := [c for c in _COLUMNS[name] if c not in row]:
            raise FormatError(f"{where}: found no column '{missing[0]}'")
    if name == "c2c-latency":
        return _core_to_core(about, rows)
    take = _TAKES[name]
    return [record for where, row in rows for record in take(about, row, where)]


def _matrix(about: About, name: str, values: Any) -> list[Record]:
    """A matrix of nodes: columns are nodes of memory, rows are nodes of CPUs."""
    rows = _table(values, f"ASCT: memory: {name}")
    if [row[""] for _, row in rows] != list(values):
        raise FormatError(f"ASCT: memory: {name}: found rows and columns of different nodes")
    made: list[Record] = []
    for where, row in rows:
        for memory, cell in list(row.items())[1:]:
            stated: dict[str, Scalar] = {"cpu_node": _node(row[""], where), "memory_node": _node(memory, where)}
            value = number(cell, f"{where}: {quoted(memory, 40)}", above_zero=True)
            if name == "idle-latency":
                stated["pattern"] = "random"
                made.append(ours(about, "latency", "load_latency", [1e-9 * value], **stated, statistic=_MEAN))
            else:
                made.append(ours(about, "bandwidth", "bandwidth_net", [1e9 * value], **stated, statistic=_MEAN))
    return made


def _node(text: str, where: str) -> int:
    match = _NODE.fullmatch(text)
    if match is None:
        raise FormatError(f"{where}: found '{quoted(text, 40)}', 'Node' and its number are required")
    return int(match[1])


def _whole(row: _Row, column: str, where: str) -> int:
    if re.fullmatch(r"\d{1,15}", row[column]) is None:
        raise FormatError(f"{where}: {column}: found '{quoted(row[column], 40)}', a whole number is required")
    return int(row[column])


def _name(row: _Row, column: str, where: str) -> str:
    if re.fullmatch(r"[\w :()-]{1,60}", row[column]) is None:
        raise FormatError(f"{where}: {column}: found '{quoted(row[column], 40)}', a name is required")
    return row[column]


def _latency_sweep(about: About, row: _Row, where: str) -> list[Record]:
    footprint = _whole(row, "Optimum Datasize", where)
    low, high = _whole(row, "Lower Bound", where), _whole(row, "Upper Bound", where)
    if not low <= footprint <= high:
        raise FormatError(f"{where}: Optimum Datasize: found {footprint}, one from {low} to {high} is required")
    value = 1e-9 * number(row["Latency [ns]"], f"{where}: Latency [ns]", above_zero=True)
    stated: dict[str, Scalar] = {"footprint_bytes": footprint, "pattern": "random", "level": _name(row, "", where)}
    return [ours(about, "latency", "load_latency", [value], **stated, statistic=_MEAN)]


def _bandwidth_sweep(about: About, row: _Row, where: str) -> list[Record]:
    value = 1e9 * number(row["Bandwidth [GB/s]"], f"{where}: Bandwidth [GB/s]", above_zero=True)
    stated: dict[str, Scalar] = {
        "footprint_bytes": _whole(row, "Datasize Used", where),
        "threads": 1,
        "level": _name(row, "Level", where),
    }
    return [ours(about, "bandwidth", "bandwidth_net", [value], **stated, statistic=_MEAN)]


def _peak_bandwidth(about: About, row: _Row, where: str) -> list[Record]:
    value = 1e9 * number(row["Peak BW [GB/s]"], f"{where}: Peak BW [GB/s]", above_zero=True)
    traffic = _name(row, "Traffic type", where)
    stated: dict[str, Scalar] = {"traffic": traffic, "read_share": _SHARES.get(traffic), "statistic": _MEAN}
    made = [ours(about, "bandwidth", "bandwidth_net", [value], **stated)]
    if "% of Peak Theoretical" in row:
        share = number(row["% of Peak Theoretical"], f"{where}: % of Peak Theoretical") / 100
        made.append(theirs(about, "peak_share", "1", "higher", [share], **stated))
    return made


def _loaded_latency(about: About, row: _Row, where: str) -> list[Record]:
    stated: dict[str, Scalar] = {"mode": "paced", "injected_nops": _whole(row, "Injected NOPs", where)}
    time = 1e-9 * number(row["Loaded latency [ns]"], f"{where}: Loaded latency [ns]", above_zero=True)
    rate = 1e9 * number(row["Bandwidth [GB/s]"], f"{where}: Bandwidth [GB/s]", above_zero=True)
    return [
        ours(about, "loaded", "load_latency", [time], **stated, statistic=_MEAN),
        ours(about, "loaded", "bandwidth_net", [rate], **stated, statistic=_MEAN),
    ]


def _core_to_core(about: About, rows: list[tuple[str, _Row]]) -> list[Record]:
    """ASCT stores a row of each sample."""
    series: dict[tuple[int, ...], list[float]] = {}
    for where, row in rows:
        key = tuple(_whole(row, column, where) for column in ("CPUA", "CPUB", "CPUA_NODE", "MEMBIND_NODE"))
        value = 1e-9 * number(row["LATENCY"], f"{where}: LATENCY", above_zero=True)
        series.setdefault(key, []).append(value)
    return [
        ours(about, "lines", "line_latency", values, from_cpu=a, to_cpu=b, cpu_node=cpu_node, home_node=home)
        for (a, b, cpu_node, home), values in series.items()
    ]


_TAKES: Final[dict[str, _Take]] = {
    "latency-sweep": _latency_sweep,
    "bandwidth-sweep": _bandwidth_sweep,
    "peak-bandwidth": _peak_bandwidth,
    "loaded-latency": _loaded_latency,
}

READERS: Final = [Reader("asct", "Arm System Characterization Tool, JSON and CSV", recognises, whole(read))]
