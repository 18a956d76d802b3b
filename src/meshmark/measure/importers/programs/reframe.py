"""Reader of ReFrame's performance logs and run reports.

Three layouts are read: performance logs with a header line (version 4; `|` or `,` between the cells), performance logs
without it (version 3: `time|reframe 3.10.1|test on system:partition using environment|jobid=1|triad=1.0|ref=…|MB/s`),
and the JSON report (`--report-file`). A log contains one line per run, so the values of each line are records of their
own. Sites configure the cells of logs: prefixes such as `jobid=` are removed, and unknown columns become conditions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, field, number, unexpected
from meshmark.measure.importers.documents import csv_cells, json_documents, row_of
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import finite, measured, named, optional, scalar, scaled, string, unit_of
from meshmark.store.record import Scalar

_OLD: Final = re.compile(r"[^|]{4,60}\|reframe \d[^|]*\|[^|]+\|(?:[^|]*\|)*?[^|=]+=[^|]*\|ref=")
_TEST: Final = re.compile(
    r"(?P<test>.+?)(?: /(?P<hash>[0-9a-f]{6,}))?(?: on | @)(?P<system>[^:+ ]+)(?::(?P<partition>[^:+ ]+))?"
    r"(?:(?: using |\+)(?P<environ>\S+))?"
)
_RESULTS: Final = ("pass", "fail", "xfail", "xpass", "success", "failure")
_FAILED: Final = {"fail", "failure"}
_NOTHING: Final = {"", "null", "None", "{}", "[]", "false", "False"}
_NO_UNIT: Final = {"null", "None"}  # unit of a variable whose test states no unit; an empty unit counts as stated
_NAMES: Final = ("name", "display_name", "info", "unique_name", "short_name")
_STATED: Final = {  # names of conditions by column of a log or field of a report
    "num_tasks": "ranks",
    "num_cpus_per_task": "cpus_per_task",
    "num_tasks_per_node": "ranks_per_node",
    "num_gpus_per_node": "gpus_per_node",
    "environment": "environ",
    "variables": "env_vars",
}
# Fields of a report that become conditions; in a log, all columns that are not in `_OTHERS` become conditions.
_FIELDS: Final = (
    *("system", "partition", "environ", "num_tasks", "num_cpus_per_task", "num_tasks_per_node", "num_gpus_per_node"),
    *("num_tasks_per_core", "num_tasks_per_socket", "use_multithreading", "exclusive_access", "extra_resources"),
    *("modules", "env_vars", "environment", "variables", "display_name", "name", "unique_name", "result"),
    "job_completion_time",
)
# Columns that do not describe how a test ran.
_OTHERS: Final = {
    *("result", "version", "descr", "jobid", "hashcode", "job_completion_time", "job_completion_time_unix"),
    *("job_exitcode", "job_nodelist", "job_submit_time", "hostname", "osuser", "osgroup", "tags", "maintainers"),
    *("sourcesdir", "sourcepath", "prefix", "stagedir", "outputdir", "build_jobid", "asctime", "levelname", "message"),
    *("perf_var", *_NAMES),
}
_HEADERS: Final = {"result", "jobid", "environ", "job_completion_time", "version", *_NAMES}


def recognises(start: str) -> bool:
    """Return whether the start of a file is a run report, or has a line of a performance log."""
    if '"session_info"' in start and '"runs"' in start:
        return '"data_version"' in start and "reframe" in start.lower()
    return any(_delimiter(line) or _OLD.match(line) for line in start.splitlines()[:50])


def read(output: ToolOutput) -> None:
    """Read the performance variables of all tests."""
    if '"session_info"' in output.text:
        _reports(output)
        return
    columns: list[str] = []
    mark = ""
    for line in output.lines:
        if not line.text.strip():
            continue
        if delimiter := _delimiter(line.text):  # there are several headers if several logs are in one file
            columns, mark = _columns(line.text, delimiter), delimiter
            for metric in _metrics(columns):
                if f"{metric}_unit" not in columns:
                    output.leave_out(line.number, f"{quoted(metric, 40)}: found no column {metric}_unit")
        elif columns:
            with output.item(line.number):
                cells = [cell.strip() for cell in line.text.split("|")] if mark == "|" else csv_cells(line.text)
                _row(output, line.number, columns, cells, is_cut=output.is_cut(line))
        elif "|reframe " in line.text:
            with output.item(line.number):
                _old_row(output, line.text.split("|"), is_cut=output.is_cut(line))
        else:
            output.other_lines += 1


# ------------------------------------------------------------------ logs with a header


def _metrics(columns: Sequence[str]) -> list[str]:
    return [name[:-6] for name in columns if name.endswith("_value") and len(name) > 6]


def _columns(line: str, mark: str) -> list[str]:
    """Return the names of the columns. The header also has prefixes of a format, such as `jobid=%(check_jobid)s`."""
    cells = [cell.strip().removeprefix("reframe ") for cell in line.split(mark)]
    return [cell.partition("=")[2].partition(" ")[0] if "=" in cell else cell for cell in cells]


def _delimiter(line: str) -> str:
    """Return the delimiter of a header; "" if the line is not a header."""
    if "_value" not in line:
        return ""
    for mark in "|,":
        columns = _columns(line, mark)
        has_metric = any(f"{metric}_{kind}" in columns for metric in _metrics(columns) for kind in ("unit", "ref"))
        if has_metric and _HEADERS & set(columns):
            return mark
    return ""


def _row(output: ToolOutput, line: int, columns: Sequence[str], cells: Sequence[str], *, is_cut: bool) -> None:
    metrics = _metrics(columns)
    kinds = tuple(f"{metric}_" for metric in metrics)
    row = row_of(columns, cells)
    labels: dict[str, str] = {}  # prefixes of the cells, such as `jobid=`
    for column, cell in row.items():
        label, equals, value_text = cell.partition("=")
        is_label = equals and re.fullmatch(r"[A-Za-z_][\w.:-]*", label)
        if is_label and (label == column or column.startswith(kinds)):
            labels[column], row[column] = label, value_text
    result = _result(row)
    output.set_source(row.get("version", "").removeprefix("reframe "), start=row.get("job_completion_time", ""))
    conditions = {name: cell for name, cell in row.items() if not name.startswith(kinds)}
    for metric in (metric for metric in metrics if f"{metric}_unit" in row):
        value, unit = row[f"{metric}_value"], row[f"{metric}_unit"]
        name = metric
        if metric == "perf":  # there is one line per variable, whose name is in a cell
            name = row.get("perf_var") or labels.get("perf_value", metric)
        is_failed = (result or row.get(f"{metric}_result")) in _FAILED
        with output.item(line):
            end = columns[-1].removeprefix(metric)
            if is_cut and (end == "_value" or (end == "_unit" and not _is_whole(unit))):
                raise FormatError(f"{quoted(metric, 40)}: found no end of the line; it is cut off")
            _add(output, name, value, unit, conditions, result, is_failed=is_failed)


def _result(row: Mapping[str, str]) -> str:
    """Return the result of a test; "" if it is not stated.

    Raises:
        FormatError: The test was not measured.
    """
    result = row.get("result", "")
    if result in {"abort", "skip"}:
        raise FormatError(f"result: {result}; the test was not measured")
    if result and result not in _RESULTS:
        raise FormatError(f"result: found '{quoted(result, 20)}'; allowed: {', '.join(_RESULTS)}, abort, skip")
    return result


def _is_whole(unit: str) -> bool:
    """Return whether a unit at the end of a cut-off text is complete: no unit continues after the seconds."""
    return unit.endswith("s") and unit_of(unit).better != "none"


def _conditions(row: Mapping[str, str]) -> dict[str, Scalar]:
    """Return the conditions of a test: its name, its parameters (one in `stream %threads=4`), where and how it ran."""
    kind = next((kind for kind in _NAMES if row.get(kind, "") not in _NOTHING), "")
    if not kind:
        raise FormatError(f"found no name of the test, one of the columns {', '.join(_NAMES)} is required")
    test = _TEST.fullmatch(row[kind]) if kind == "info" else None
    name, *parameters = (test["test"] if test else row[kind]).split(" %")
    conditions: dict[str, Scalar] = {"test": name}
    if test:
        conditions |= {key: test[key] for key in ("system", "partition", "environ") if test[key]}
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        conditions.setdefault(key.split(".")[-1].strip(), scalar(value))
    for key, cell in row.items():
        if key in _OTHERS or cell in _NOTHING or (key.startswith("num_") and re.fullmatch(r"0|-\d+", cell)):
            continue  # a number of tasks of 0 or below requests all nodes
        conditions.setdefault(_STATED.get(key, key), scalar(cell))
    return conditions


def _add(
    output: ToolOutput, metric: str, value: Any, unit: Any, row: Mapping[str, str], result: str = "", *, is_failed: bool
) -> None:
    """Add a record of a performance variable of a test."""
    metric = string({"variable": metric}, "variable")
    quoted_name = quoted(metric, 40)
    if value is None or value in _NOTHING:
        raise FormatError(f"{f'result {result}: ' if result else ''}{quoted_name}: found no value")
    if unit is None or unit in _NO_UNIT:
        raise FormatError(f"{quoted_name}: found no unit, which is required")
    si, factor, better = astuple(unit_of(field({"unit": unit}, "unit", str, quoted_name)))
    figure = number(value, quoted_name) if isinstance(value, str) else finite({metric: value}, metric)
    conditions = {**_conditions(row), **({"result": "fail"} if is_failed else {})}
    output.add_tool_metric(
        metric, si, measured(scaled(figure, factor, quoted_name), si, quoted_name), better, **named(conditions)
    )


# ------------------------------------------------------------------ logs of version 3


def _old_row(output: ToolOutput, cells: Sequence[str], *, is_cut: bool) -> None:
    index = next((index for index, cell in enumerate(cells) if cell.startswith("ref=")), 0)
    if index < 4 or not cells[1].startswith("reframe "):
        raise unexpected("|".join(cells), "cells with a test, jobid=, a value and ref=")
    metric, _, value = cells[index - 1].partition("=")
    later_cells = [cell for cell in cells[index + 1 :] if not re.match(r"(?:l|u|lower|upper)(?:_thres)?=", cell)]
    unit = re.sub(r"^units?=", "", later_cells[0].strip()) if later_cells else None
    if is_cut and len(later_cells) == 1 and not _is_whole(unit or ""):
        raise FormatError(f"{quoted(metric, 40)}: found no end of the line; it is cut off")
    pairs = (cell.partition("=") for cell in (*cells[3 : index - 1], *later_cells[1:]))
    row = {"info": cells[2], **{key.strip(): text.strip() for key, equals, text in pairs if equals}}
    output.set_source(cells[1].removeprefix("reframe ").strip(), start=cells[0].strip())
    _add(output, metric.strip(), value, unit, row, is_failed=False)


# ------------------------------------------------------------------ reports


def _is_session(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("session_info"), dict) and "runs" in value


def _reports(output: ToolOutput) -> None:
    documents = json_documents(
        output, lambda value: _is_session(value) or (isinstance(value, list) and any(map(_is_session, value)))
    )
    for line, document in documents:
        place = f"line {line}: " if len(documents) > 1 else ""
        for session in filter(_is_session, document if isinstance(document, list) else [document]):
            _session(output, session, place)


def _session(output: ToolOutput, document: dict[str, Any], place: str) -> None:
    session = document["session_info"]
    for index, run in enumerate(field(document, "runs", list, f"{place}ReFrame"), 1):
        where = f"{place}runs {index}"
        with output.item(where):
            cases = field(run, "testcases", list)
            expected = run.get("num_cases")
            if isinstance(expected, int) and expected > len(cases):
                output.leave_out(where, f"found {len(cases)} of {expected} testcases")
            for number_of_case, case in enumerate(cases, 1):
                with output.item(f"{where}: testcases {number_of_case}"):
                    start = optional(case, "job_completion_time") or optional(session, "time_start")
                    output.set_source(optional(session, "version"), optional(session, "cmdline"), start)
                    _case(output, field({"case": case}, "case", dict), f"{where}: testcases {number_of_case}")


def _case(output: ToolOutput, case: dict[str, Any], where: str) -> None:
    row: dict[str, str] = {key: _cell(case[key]) for key in _FIELDS if key in case}
    if row.get("display_name", "") not in _NOTHING:
        row["name"] = row["display_name"]
    result = _result(row)
    variables: list[tuple[str, Any, Any, Any]] = []  # name, value, unit and result of each
    if isinstance(case.get("perfvalues"), dict):
        for key, cells in case["perfvalues"].items():
            if not isinstance(cells, list) or len(cells) < 5:
                raise FormatError(f"{quoted(key, 40)}: a value, a reference, 2 thresholds and a unit are required")
            variables.append((key.split(":")[-1], cells[0], cells[4], cells[5] if len(cells) > 5 else None))
    entries = case["perfvars"] if isinstance(case.get("perfvars"), list) else []  # version 3
    variables += [(string(entry, "name"), entry.get("value"), entry.get("unit"), None) for entry in entries]
    if not variables and result in _FAILED:
        raise FormatError(f"result {result}: found no value")
    for name, value, unit, variable_result in variables:
        with output.item(where):
            _add(output, name, value, unit, row, result, is_failed=(result or variable_result) in _FAILED)


def _cell(value: Any) -> str:
    """Return a field of a report as a log prints it."""
    if isinstance(value, list):
        return ",".join(map(_cell, value))
    return value if isinstance(value, str) else json.dumps(value)


READERS: Final = [FormatReader("reframe", "ReFrame, performance log or JSON report", recognises, read, version=3)]
