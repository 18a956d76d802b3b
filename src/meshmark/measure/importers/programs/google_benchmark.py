"""Reader of Google Benchmark's JSON, CSV and text.

JSON and CSV (`--benchmark_format` or `--benchmark_out`) are read from version 1.0, text from version 1.5.

The samples of a record are the repetitions. If the file has aggregates only, mean, median and the author's own
statistics are records with the condition `statistic`. Only its author knows what a benchmark does, so its rates do not
become metrics of Meshmark instruments. Fits of complexity (BigO, RMS) and deviations are not read. In the text, a
counter such as `1.5M` is left out unless its name or a suffix such as `Mi` shows whether M is 10^6 or 2^20, because
versions before 1.8 print both the same way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, field, matched, number
from meshmark.measure.importers.documents import csv_table, json_objects
from meshmark.measure.importers.output import OutputLine, ToolOutput, sections
from meshmark.measure.importers.quantities import (
    ToolUnit,
    facts,
    finite,
    measured,
    named,
    optional,
    scalar,
    string,
    unit_of,
)
from meshmark.store.record import Scalar

_DEVIATIONS: Final = {"stddev", "cv", "BigO", "RMS"}  # statistics that are not values of the quantity
_SUFFIX: Final = re.compile(r"_(mean|median|stddev|cv|BigO|RMS)$")
_UNITS: Final = {
    "bytes_per_second": ToolUnit("B/s", 1.0, "higher"),
    "items_per_second": ToolUnit("op/s", 1.0, "higher"),
    "allocs_per_iter": ToolUnit("1", 1.0, "lower"),
    "max_bytes_used": ToolUnit("B", 1.0, "lower"),
    "total_allocated_bytes": ToolUnit("B", 1.0, "lower"),
    "net_heap_growth": ToolUnit("1", 1.0, "lower"),  # bytes, negative if more were freed
}
_TIMES: Final = ("real_time", "cpu_time")
_WORDS: Final = ("name", "time_unit", "label")
_NO_COUNTERS: Final = {
    *("family_index", "per_family_instance_index", "repetitions", "repetition_index", "threads", "iterations")
}
_HEADER: Final = re.compile(r"^name,iterations,real_time,cpu_time,time_unit\b", re.MULTILINE)
_TEXT: Final = re.compile(r"^Benchmark +Time +CPU +Iterations\b(?P<counters>.*)$", re.MULTILINE)
_TEXT_ROW: Final = re.compile(
    r"(?P<name>\S.*?)\s+(?P<real_time>[\d.]+(?:e[+-]?\d+)?|-?nan|-?inf|-[\d.]+) (?P<unit>[mun]?s)\s+"
    r"(?P<cpu_time>\S+) (?P=unit)\s+(?P<iterations>\d{1,18})(?:\s+(?P<rest>.*))?"
)
_LONGEST: Final = 1000  # longest row of the text that is read, in characters
_TEXT_FAILED: Final = re.compile(r"(?P<name>\S.*?)\s+(?:ERROR OCCURRED|SKIPPED): '(?P<message>.*)'")
_TEXT_FIT: Final = re.compile(r"\S.*_(?:BigO\s.*|RMS\s+\d+ %\s+\d+ %\s*)")
_TEXT_NUMBER: Final = re.compile(r"(?P<number>-?[\d.]+(?:e[+-]?\d+)?)(?P<prefix>[kMGT]i?)?(?P<rate>/s)?")
_CONTEXT: Final = {  # standard keys of the context; the user added any other key
    *("date", "host_name", "executable", "num_cpus", "mhz_per_cpu", "cpu_scaling_enabled", "aslr_enabled", "caches"),
    *("load_avg", "library_version", "library_build_type", "json_schema_version", "build_type"),
}


def recognises(start: str) -> bool:
    """Return whether a text has the keys of JSON or a header; the context may be at either end of a file."""
    if '"benchmarks"' not in start:
        return _HEADER.search(start) is not None or _TEXT.search(start) is not None
    context = all(f'"{key}"' in start for key in ("context", "num_cpus", "mhz_per_cpu"))
    return context or all(f'"{key}"' in start for key in ("iterations", "real_time", "cpu_time", "time_unit"))


def read(output: ToolOutput) -> None:
    """Read times, rates and counters of each benchmark that did not fail."""
    if _HEADER.search(output.text):
        _benchmarks(output, _csv_entries(output), {}, "")
        return
    if _TEXT.search(output.text):
        for index, run in enumerate(sections(output.lines, _TEXT.match), 1):
            _benchmarks(output, _text_entries(output, run), {}, f"run {index}: " if index > 1 else "")
        return
    for place, document in json_objects(output, "benchmarks"):
        context = document["context"] if isinstance(document.get("context"), dict) else {}
        output.set_source(*(optional(context, key) for key in ("library_version", "executable", "date")))
        extra_conditions = {k: scalar(v) for k, v in context.items() if isinstance(v, str) and k not in _CONTEXT}
        if optional(context, "library_build_type") == "debug":
            extra_conditions["library_build_type"] = "debug"
        _benchmarks(output, field(document, "benchmarks", list, f"{place}Google Benchmark"), extra_conditions, place)


def _benchmarks(output: ToolOutput, entries: Sequence[Any], added: dict[str, Scalar], place: str) -> None:
    """Group all entries, which are repetitions and aggregates, by benchmark, and read each group."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for index, entry in enumerate(entries, 1):
        with output.item(f"{place}benchmarks {index}"):
            run = _SUFFIX.sub("", string(entry, "name"))
            run = optional(entry, "run_name") or run
            groups[run, str(entry.get("family_index")), str(entry.get("per_family_instance_index"))].append(entry)
    for (run, *_), members in groups.items():
        with output.item(f"{place}{quoted(run, 60)}"):
            _group(output, run, members, added)


def _csv_entries(output: ToolOutput) -> list[dict[str, Any]]:
    """Return the rows of CSV in the form of JSON entries, without empty cells and fits of complexity."""
    entries: list[dict[str, Any]] = []
    for line_number, row in csv_table(output, _HEADER.match):
        with output.item(line_number):
            if not row["real_time"] or row["name"].endswith(("_BigO", "_RMS")):
                if row.get("error_message"):
                    raise FormatError(f"{quoted(row['name'], 60)}: {quoted(row['error_message'], 80)}")
                continue
            error = {key: row.pop(key, "") for key in ("error_occurred", "error_message")}
            entries.append({k: cell if k in _WORDS else _figure(cell) for k, cell in row.items() if cell})
            if error["error_occurred"] in {"true", "1"}:
                entries[-1] |= error
    return entries


def _text_entries(output: ToolOutput, run: Sequence[OutputLine]) -> list[dict[str, Any]]:
    """Return the rows below a header of the text in the form of JSON entries."""
    header = _TEXT.match(run[0].text)
    columns = [] if header is None or "UserCounters..." in header["counters"] else header["counters"].split()
    entries: list[dict[str, Any]] = []
    for line in run[1:]:
        with output.item(line.number):
            if len(line.text) > _LONGEST:
                raise FormatError(f"found a line of {len(line.text)} characters; at most {_LONGEST} are read")
            text = re.sub(r"\s{2,}", "  ", line.text)  # long runs of blanks would make the patterns slow
            if not text.strip("- ") or _TEXT_FIT.fullmatch(text):
                continue
            if failure := _TEXT_FAILED.fullmatch(text):
                raise FormatError(f"{quoted(failure['name'], 60)}: {quoted(failure['message'], 80)}")
            row = _TEXT_ROW.fullmatch(text)
            if row is None:
                output.other_lines += 1
                continue
            entry: dict[str, Any] = {
                "name": row["name"],
                "time_unit": row["unit"],
                "iterations": int(row["iterations"]),
            }
            entry |= {key: number(row[key], key) for key in _TIMES}
            cells = (row["rest"] or "").split()
            if columns and len(cells) == len(columns):
                cells = [f"{name}={cell}" for name, cell in zip(columns, cells, strict=True)]
            for cell in cells:
                name, equals, figure = cell.rpartition("=")
                if equals:
                    with output.item(line.number):
                        entry[name] = _text_counter(name, figure)
            label = " ".join(cell for cell in cells if "=" not in cell)
            entries.append({**entry, **({"label": label} if label else {})})
    return entries


def _text_counter(name: str, text: str) -> float:
    """Return a counter that may have a prefix, as in `items_per_second=1.5M/s`.

    Raises:
        FormatError: The text is not a number, or its prefix may be decimal or binary.
    """
    match = matched(_TEXT_NUMBER, text, "a number", quoted(name, 40))
    prefix = match["prefix"] or ""
    if prefix and not prefix.endswith("i") and name != "items_per_second":
        raise FormatError(f"{quoted(name, 40)}: found {quoted(text, 40)}; the prefix may be decimal or binary")
    power = "kMGT".index(prefix[0]) + 1 if prefix else 0
    return number(match["number"], name) * (1024.0 if prefix.endswith("i") else 1000.0) ** power


def _figure(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _aggregate(entry: dict[str, Any]) -> str:
    """Return the statistic of an aggregate; "" for a repetition. Versions up to 1.4 state it only in the name."""
    if "run_type" not in entry:
        suffix = _SUFFIX.search(str(entry["name"]))
        return suffix[1] if suffix else ""
    return optional(entry, "aggregate_name") if entry["run_type"] == "aggregate" else ""


def _group(output: ToolOutput, run: str, entries: list[dict[str, Any]], added: dict[str, Scalar]) -> None:
    """Read the repetitions of a benchmark, or its aggregates if there are no repetitions."""
    for entry in entries:
        if entry.get("run_type", "iteration") not in {"iteration", "aggregate"}:
            raise FormatError(f"run_type: found {quoted(entry['run_type'], 40)}; allowed: iteration, aggregate")
    repetitions = [entry for entry in entries if not _aggregate(entry)]
    if not repetitions:
        for entry in entries:
            statistic = _aggregate(entry)
            if statistic not in _DEVIATIONS and optional(entry, "aggregate_unit") != "percentage":
                _records(output, run, [entry], {**added, "statistic": statistic})
        return
    expected = repetitions[0].get("repetitions", len(repetitions))
    if isinstance(expected, int) and expected > len(repetitions):
        output.leave_out(quoted(run, 60), f"found {len(repetitions)} repetitions of {expected}")
    valid_entries = []
    for entry in repetitions:
        if entry.get("error_occurred") or entry.get("skipped"):
            message = optional(entry, "error_message") or optional(entry, "skip_message")
            output.leave_out(quoted(run, 60), f"it failed or was skipped: {quoted(message, 80)}")
        elif entry.get("iterations", 1) == 0:
            output.leave_out(quoted(run, 60), "iterations: found 0, so it was not measured")
        else:
            valid_entries.append(entry)
    if valid_entries:
        _records(output, run, valid_entries, added)


def _records(output: ToolOutput, run: str, entries: list[dict[str, Any]], added: dict[str, Scalar]) -> None:
    """Add a record for each time, rate and counter."""
    first = entries[0]
    unit = unit_of(string({"time_unit": "ns", **first}, "time_unit"))
    if unit.si != "s":
        raise FormatError(f"time_unit: found {quoted(first['time_unit'], 20)}; allowed: ns, us, ms, s")
    if any(entry.get("time_unit") != first.get("time_unit") for entry in entries):
        raise FormatError("time_unit: found several, the same in all repetitions is required")
    if not set(_TIMES) & first.keys():
        raise FormatError("found no times, real_time and cpu_time are required")
    threads = facts(run, {"threads": r"/threads:(\d{1,6})"}).get(
        "threads", 1
    )  # before version 1.5, only the name states it
    threads = field({"threads": threads, **first}, "threads", int)
    label = optional(first, "label") or None
    conditions = named({"benchmark": run, "threads": threads, "label": label, **added})
    for key, value in first.items():
        if key in _NO_COUNTERS or isinstance(value, bool):
            continue
        if not isinstance(value, int | float) and key not in {*_TIMES, *_UNITS}:
            continue
        quantity = unit if key in _TIMES else _UNITS.get(key, ToolUnit("1", 1.0, "none"))
        with output.item(quoted(run, 60)):
            name = string({"counter": key}, "counter")
            samples = [measured(finite(entry, key, "", quantity.factor), quantity.si, key) for entry in entries]
            output.add_tool_metric(name, quantity.si, samples, quantity.better, **conditions)


READERS: Final = [FormatReader("google_benchmark", "Google Benchmark, JSON, CSV or text", recognises, read, version=2)]
