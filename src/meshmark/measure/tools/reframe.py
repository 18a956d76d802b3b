"""ReFrame's performance logs and run reports.

Three layouts are read: performance logs with a header line (version 4; `|` or `,` between the cells), those without
(version 3: `time|reframe 3.10.1|test on system:partition using environment|jobid=1|triad=1.0|ref=…|MB/s`), and the
JSON report (`--report-file`). A log holds one line a run, so each line's values are records of their own. Sites
configure the cells of logs: prefixes such as `jobid=` are removed, and columns that are not known become conditions.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, number, theirs
from meshmark.measure.tools.documents import json_documents
from meshmark.measure.tools.output import ToolOutput
from meshmark.measure.tools.quantities import finite, measured, named, optional, scalar, scaled, string, unit_of
from meshmark.store.record import Scalar

_TOOL: Final = "ReFrame"
_OLD: Final = re.compile(r"[^|]{4,60}\|reframe \d[^|]*\|[^|]+\|(?:[^|]*\|)*?[^|=]+=[^|]*\|ref=")
_TEST: Final = re.compile(
    r"(?P<test>.+?)(?: /(?P<hash>[0-9a-f]{6,}))?(?: on | @)(?P<system>[^:+ ]+)(?::(?P<partition>[^:+ ]+))?"
    r"(?:(?: using |\+)(?P<environ>\S+))?"
)
_RESULTS: Final = ("pass", "fail", "xfail", "xpass", "success", "failure")
_FAILED: Final = {"fail", "failure"}
_NOTHING: Final = {"", "null", "None", "{}", "[]", "false", "False"}
_NAMES: Final = ("name", "display_name", "info", "unique_name", "short_name")
_STATED: Final = {  # conditions by columns of a log and fields of a report
    "num_tasks": "ranks",
    "num_cpus_per_task": "cpus_per_task",
    "num_tasks_per_node": "ranks_per_node",
    "num_gpus_per_node": "gpus_per_node",
    "environment": "environ",
    "variables": "env_vars",
}
# Fields of a report that become conditions; of a log, all columns do that are not listed below.
_FIELDS: Final = (
    *("system", "partition", "environ", "num_tasks", "num_cpus_per_task", "num_tasks_per_node", "num_gpus_per_node"),
    *("num_tasks_per_core", "num_tasks_per_socket", "use_multithreading", "exclusive_access", "extra_resources"),
    *("modules", "env_vars", "environment", "variables", "display_name", "name", "unique_name", "result"),
    "job_completion_time",
)
# Columns that do not say how a test ran.
_OTHERS: Final = {
    *("result", "version", "descr", "jobid", "hashcode", "job_completion_time", "job_completion_time_unix"),
    *("job_exitcode", "job_nodelist", "job_submit_time", "hostname", "osuser", "osgroup", "tags", "maintainers"),
    *("sourcesdir", "sourcepath", "prefix", "stagedir", "outputdir", "build_jobid", "asctime", "levelname", "message"),
    *("perf_var", *_NAMES),
}
_HEADERS: Final = {"result", "jobid", "environ", "job_completion_time", "version", *_NAMES}


def recognises(start: str) -> bool:
    if '"session_info"' in start and '"runs"' in start:
        return '"data_version"' in start and "reframe" in start.lower()
    return any(_delimiter(line) or _OLD.match(line) for line in start.splitlines()[:50])


def read(output: ToolOutput) -> None:
    """The performance variables of all tests."""
    if '"session_info"' in output.text:
        _reports(output)
        return
    columns: list[str] = []
    mark = ""
    for line in output.lines:
        if not line.text.strip():
            continue
        if delimiter := _delimiter(line.text):  # a new one if several logs are in one file
            columns, mark = _columns(line.text, delimiter), delimiter
            for metric in _metrics(columns):
                if f"{metric}_unit" not in columns:
                    output.leave_out(line.number, f"{quoted(metric, 40)}: found no column {metric}_unit")
        elif columns:
            with output.item(line.number):
                _row(output, line.number, columns, _cells(line.text, mark), is_cut=output.is_cut(line))
        elif "|reframe " in line.text:
            with output.item(line.number):
                _old_row(output, line.text.split("|"), is_cut=output.is_cut(line))
        else:
            output.other_lines += 1


# ------------------------------------------------------------------ logs with a header


def _metrics(columns: Sequence[str]) -> list[str]:
    return [name[:-6] for name in columns if name.endswith("_value") and len(name) > 6]


def _columns(line: str, mark: str) -> list[str]:
    """Names of the columns. A format with prefixes, as `jobid=%(check_jobid)s`, has them in the header, too."""
    cells = [cell.strip().removeprefix("reframe ") for cell in line.split(mark)]
    return [cell.partition("=")[2].partition(" ")[0] if "=" in cell else cell for cell in cells]


def _delimiter(line: str) -> str:
    """The delimiter of a header; "" if the line is not one."""
    if "_value" not in line:
        return ""
    for mark in "|,":
        columns = _columns(line, mark)
        known = any(f"{metric}_{kind}" in columns for metric in _metrics(columns) for kind in ("unit", "ref"))
        if known and _HEADERS & set(columns):
            return mark
    return ""


def _cells(line: str, mark: str) -> list[str]:
    try:
        cells = next(csv.reader([line]), []) if mark == "," else line.split(mark)
    except csv.Error as error:
        raise FormatError(f"not CSV: {quoted(error, 60)}") from None
    return [cell.strip() for cell in cells]


def _row(output: ToolOutput, line: int, columns: Sequence[str], cells: Sequence[str], *, is_cut: bool) -> None:
    if len(cells) != len(columns):
        raise FormatError(f"found {len(cells)} cells, {len(columns)} are required by the header")
    metrics = _metrics(columns)
    kinds = tuple(f"{metric}_" for metric in metrics)
    row: dict[str, str] = {}
    labels: dict[str, str] = {}  # prefixes that the cells have, such as `jobid=`
    for column, cell in zip(columns, cells, strict=True):
        label, equals, rest = cell.partition("=")
        is_label = equals and re.fullmatch(r"[A-Za-z_][\w.:-]*", label)
        if is_label and (label == column or column.startswith(kinds)):
            labels[column], row[column] = label, rest
        else:
            row[column] = cell
    result = _result(row)
    about = About(
        output.machine,
        "reframe",
        row.get("version", "").removeprefix("reframe "),
        start=row.get("job_completion_time", ""),
    )
    stated = {name: cell for name, cell in row.items() if not name.startswith(kinds)}
    for metric in metrics:
        if f"{metric}_unit" not in row:
            continue
        with output.item(line):
            if row[f"{metric}_value"] in _NOTHING:
                raise FormatError(f"{_why(result)}{quoted(metric, 40)}: found no value")
            unit = row[f"{metric}_unit"]
            if is_cut and (
                columns[-1] == f"{metric}_value" or (columns[-1] == f"{metric}_unit" and not _is_whole(unit))
            ):
                raise FormatError(f"{quoted(metric, 40)}: found no end of the line; it is cut off")
            name = metric
            if metric == "perf":  # one line a variable, whose name is in a cell
                name = row.get("perf_var") or labels.get("perf_value", metric)
            value = number(row[f"{metric}_value"], quoted(name, 40))
            failed = (result or row.get(f"{metric}_result")) in _FAILED
            _add(output, about, name, value, unit, _conditions(stated, failed=failed))


def _result(row: Mapping[str, str]) -> str:
    """The result of a test; "" if it is not stated.

    Raises:
        FormatError: The test was not measured.
    """
    result = row.get("result", "")
    if result in {"abort", "skip"}:
        raise FormatError(f"result: {result}; the test was not measured")
    if result and result not in _RESULTS:
        raise FormatError(f"result: found '{quoted(result, 20)}'; allowed: {', '.join(_RESULTS)}, abort, skip")
    return result


def _why(result: str) -> str:
    return f"result {result}: " if result else ""


def _is_whole(unit: str) -> bool:
    """Whether a unit at the end of a text that is cut off is whole: it cannot go on after the seconds."""
    return unit.endswith("s") and unit_of(unit).better != "none"


def _conditions(row: Mapping[str, str], *, failed: bool) -> dict[str, Scalar]:
    """The test, its parameters (`stream %threads=4` has one), where and how it ran, and whether it failed."""
    kind, text = next(((kind, row[kind]) for kind in _NAMES if row.get(kind, "") not in _NOTHING), ("", ""))
    if not text:
        raise FormatError(f"found no name of the test, one of the columns {', '.join(_NAMES)} is required")
    test = _TEST.fullmatch(text) if kind == "info" else None
    name, *parameters = (test["test"] if test else text).split(" %")
    conditions: dict[str, Scalar] = {"test": name}
    if test:
        conditions |= {key: test[key] for key in ("system", "partition", "environ") if test[key]}
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        conditions.setdefault(key.split(".")[-1].strip(), scalar(value))
    for key, cell in row.items():
        if key in _OTHERS or cell in _NOTHING or (key.startswith("num_") and re.fullmatch(r"0|-\d+", cell)):
            continue  # a number of tasks of 0 or below asks for all nodes
        conditions.setdefault(_STATED.get(key, key), scalar(cell))
    if failed:
        conditions["result"] = "fail"
    return named(conditions)


def _add(
    output: ToolOutput, about: About, metric: str, value: float, unit: str, conditions: Mapping[str, Scalar]
) -> None:
    if not metric.strip():
        raise FormatError("found no name of the variable")
    what = unit_of("" if unit in _NOTHING else unit)
    value = measured(scaled(value, what.factor, quoted(metric, 40)), what.si, quoted(metric, 40))
    output.add(theirs(about, metric, what.si, what.better, [value], **conditions))


# ------------------------------------------------------------------ logs of version 3


def _old_row(output: ToolOutput, cells: Sequence[str], *, is_cut: bool) -> None:
    at = next((at for at, cell in enumerate(cells) if cell.startswith("ref=")), 0)
    if at < 4 or not cells[1].startswith("reframe "):
        raise FormatError(
            f"found '{quoted('|'.join(cells), 60)}', cells with a test, jobid=, a value and ref= are required"
        )
    metric, _, value = cells[at - 1].partition("=")
    rest = [cell for cell in cells[at + 1 :] if not re.match(r"(?:l|u|lower|upper)(?:_thres)?=", cell)]
    if not rest:
        raise FormatError(f"{quoted(metric, 40)}: found no unit, which is required after ref=")
    unit = re.sub(r"^units?=", "", rest[0].strip())
    if is_cut and len(rest) == 1 and not _is_whole(unit):
        raise FormatError(f"{quoted(metric, 40)}: found no end of the line; it is cut off")
    if value in _NOTHING:
        raise FormatError(f"{quoted(metric, 40)}: found no value")
    row = {"info": cells[2]}
    for cell in (*cells[3 : at - 1], *rest[1:]):
        key, equals, text = cell.partition("=")
        if equals:
            row[key.strip()] = text.strip()
    about = About(output.machine, "reframe", cells[1].removeprefix("reframe ").strip(), start=cells[0].strip())
    _add(output, about, metric.strip(), number(value, quoted(metric, 40)), unit, _conditions(row, failed=False))


# ------------------------------------------------------------------ reports


def _reports(output: ToolOutput) -> None:
    def is_session(value: Any) -> bool:
        return isinstance(value, dict) and isinstance(value.get("session_info"), dict) and "runs" in value

    documents = json_documents(
        output, lambda value: is_session(value) or (isinstance(value, list) and any(map(is_session, value)))
    )
    for line, document in documents:
        place = f"line {line}: " if len(documents) > 1 else ""
        for session in document if isinstance(document, list) else [document]:
            if is_session(session):
                _session(output, session, place)


def _session(output: ToolOutput, document: dict[str, Any], place: str) -> None:
    session = document["session_info"]
    version, command = optional(session, "version"), optional(session, "cmdline")
    for at, run in enumerate(field(document, "runs", list, f"{place}{_TOOL}"), 1):
        where = f"{place}runs {at}"
        with output.item(where):
            cases = field(run, "testcases", list, "")
            expected = run.get("num_cases")
            if isinstance(expected, int) and expected > len(cases):
                output.leave_out(where, f"found {len(cases)} of {expected} testcases")
            for of, case in enumerate(cases, 1):
                with output.item(f"{where}: testcases {of}"):
                    if not isinstance(case, dict):
                        raise FormatError(f"found {type(case).__name__}, an object is required")
                    start = optional(case, "job_completion_time") or optional(session, "time_start")
                    about = About(output.machine, "reframe", version, command, start)
                    _case(output, case, about, f"{where}: testcases {of}")


def _case(output: ToolOutput, case: dict[str, Any], about: About, where: str) -> None:
    row: dict[str, str] = {key: _cell(case[key]) for key in _FIELDS if key in case}
    if row.get("display_name", "") not in _NOTHING:
        row["name"] = row["display_name"]
    result = _result(row)
    variables: list[tuple[str, Any, Any, Any]] = []  # name, value, unit and result
    if isinstance(case.get("perfvalues"), dict):
        for key, cells in case["perfvalues"].items():
            name = key.split(":")[-1]
            if not isinstance(cells, list) or len(cells) < 5:
                raise FormatError(f"{quoted(key, 40)}: a value, a reference, 2 thresholds and a unit are required")
            variables.append((name, cells[0], cells[4], cells[5] if len(cells) > 5 else None))
    entries = case["perfvars"] if isinstance(case.get("perfvars"), list) else []  # version 3
    variables += [(string(entry, "name", ""), entry.get("value"), entry.get("unit"), None) for entry in entries]
    if not variables and result in _FAILED:
        raise FormatError(f"{_why(result)}found no value")
    for name, value, unit, of_variable in variables:
        with output.item(where):
            metric = string({"variable": name}, "variable", "")
            if value is None:
                raise FormatError(f"{_why(result)}{quoted(metric, 40)}: found no value")
            if not isinstance(unit, str | None):
                raise FormatError(f"{quoted(metric, 40)}: unit: found {quoted(repr(unit), 40)}, str is required")
            failed = (result or of_variable) in _FAILED
            conditions = _conditions(row, failed=failed)
            _add(output, about, metric, finite({metric: value}, metric, ""), unit or "", conditions)


def _cell(value: Any) -> str:
    """A field of a report as a log has it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ",".join(_cell(one) for one in value)
    return json.dumps(value)


READERS: Final = [Reader("reframe", "ReFrame, performance log or JSON report", recognises, read, version=2)]
