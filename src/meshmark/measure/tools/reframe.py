"""ReFrame's performance logs and run reports.

Three layouts are read: performance logs with a header line (version 4; `|` or `,` between the cells), those without
(version 3: `time|reframe 3.10.1|test on system:partition using environment|jobid=1|triad=1.0|ref=…|MB/s`), and the
JSON report (`--report-file`). A log holds one line a run, so each line's values are records of their own.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, number, theirs
from meshmark.measure.tools.output import whole
from meshmark.measure.tools.quantities import finite, loaded, named, optional, scalar, scaled, string, unit_of
from meshmark.store.record import Record, Scalar

_TOOL: Final = "ReFrame"
_OLD: Final = re.compile(
    r"(?P<start>[^|]+)\|reframe (?P<version>\d[^|]*)\|(?P<test>[^|]+)\|jobid=(?P<job>[^|]*)\|"
    r"(?P<metric>[^|=]+)=(?P<value>[^|]*)\|ref=[^|]*\(l=[^|]*, ?u=[^|]*\)(?:\|(?P<unit>[^|]*))?"
)
_TEST: Final = re.compile(
    r"(?P<test>.+?)(?: /(?P<hash>[0-9a-f]{6,}))?(?: on | @)(?P<system>[^:+ ]+)(?::(?P<partition>[^:+ ]+))?"
    r"(?:(?: using |\+)(?P<environ>\S+))?"
)


def _delimiter(header: str) -> str:
    """Of a log with a header: the one that separates a `…_value` from a `…_unit`; "" if it is no such header."""
    for mark in "|,":
        names = header.strip().split(mark)
        metrics = {n.removesuffix("_value") for n in names if n.endswith("_value")}
        if any(f"{m}_unit" in names for m in metrics) and {"result", "jobid", "environ"} & set(names):
            return mark
    return ""


def recognises(start: str) -> bool:
    first = start.lstrip("\n").partition("\n")[0]
    if start.lstrip().startswith("{"):
        return '"session_info"' in start and '"data_version"' in start and "reframe" in start.lower()
    return bool(_delimiter(first)) or _OLD.match(first) is not None


def read(text: str, machine: str) -> list[Record]:
    """The performance variables of all tests."""
    if text.lstrip().startswith("{"):
        return _report(text, machine)
    first = text.lstrip("\n").partition("\n")[0]
    mark = _delimiter(first)
    made = _log(text, machine, mark) if mark else _old_log(text, machine)
    if not made:
        raise FormatError(f"{_TOOL}: found no values of performance variables, at least 1 is required")
    return made


def _conditions(name: str, more: Mapping[str, Scalar], failed: bool) -> dict[str, Scalar]:
    """The test, its parameters (`stream %threads=4` has one), where it ran, and whether it failed."""
    test, *parameters = name.split(" %")
    found: dict[str, Scalar] = {"test": test}
    found |= {k: v for k, v in more.items() if v is not None}
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        found.setdefault(key.split(".")[-1].strip(), scalar(value))
    if failed:
        found["result"] = "fail"
    return named(found)


def _value(about: About, metric: str, value: float, unit: str, where: str, conditions: dict[str, Scalar]) -> Record:
    what = unit_of("" if unit in {"null", "None"} else unit)
    return theirs(about, metric, what.si, what.better, [scaled(value, what.factor, where)], **conditions)


def _log(text: str, machine: str, mark: str) -> list[Record]:
    header: list[str] = []
    made: list[Record] = []
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if not header:
            header = line.split(mark)
            continue
        if line.split(mark) == header:
            continue
        try:
            cells = next(csv.reader([line], delimiter=mark)) if mark == "," else line.split(mark)
        except csv.Error as why:
            raise FormatError(f"{_TOOL}: line {at}: {quoted(why, 60)}") from None
        if len(cells) != len(header):
            raise FormatError(f"{_TOOL}: line {at}: found {len(cells)} cells, {len(header)} are required by the header")
        made += _row(dict(zip(header, cells, strict=True)), machine, f"{_TOOL}: line {at}")
    return made


def _row(row: dict[str, str], machine: str, where: str) -> list[Record]:
    name = row.get("name") or row.get("display_name") or row.get("unique_name") or ""
    if not name:
        raise FormatError(f"{where}: found no test, one of the columns name, display_name, unique_name is required")
    result = row.get("result", "pass")
    if result not in {"pass", "fail", "xfail", "xpass"}:
        raise FormatError(f"{where}: result: found '{quoted(result, 20)}'; allowed: pass, fail, xfail, xpass")
    more = {
        "system": scalar(row.get("system", "")),
        "partition": scalar(row.get("partition", "")),
        "environ": scalar(row.get("environ", "")),
        "ranks": scalar(row.get("num_tasks", "")),
        "cpus_per_task": scalar(row.get("num_cpus_per_task", "")),
    }
    conditions = _conditions(name, more, result == "fail")
    version = row.get("version", "").removeprefix("reframe ")
    about = About(machine, "reframe", version, start=row.get("job_completion_time", ""))
    made = []
    for column, cell in row.items():
        metric = column.removesuffix("_value")
        if metric in {column, ""} or f"{metric}_unit" not in row or cell in {"", "null", "None"}:
            continue
        value = number(cell, f"{where}: {quoted(column, 40)}")
        made.append(_value(about, metric, value, row[f"{metric}_unit"], where, conditions))
    return made


def _old_log(text: str, machine: str) -> list[Record]:
    made = []
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{_TOOL}: line {at}"
        match = _OLD.fullmatch(line)
        if match is None or match["unit"] is None:
            raise FormatError(f"{where}: found '{quoted(line, 60)}', 7 cells with jobid=, a value, ref= are required")
        test = _TEST.fullmatch(match["test"])
        more = {k: scalar(test[k] or "") if test else None for k in ("system", "partition", "environ")}
        about = About(machine, "reframe", match["version"], start=match["start"])
        conditions = _conditions(test["test"] if test else match["test"], more, False)
        value = number(match["value"], f"{where}: {quoted(match['metric'], 40)}")
        made.append(_value(about, match["metric"], value, match["unit"], where, conditions))
    return made


def _report(text: str, machine: str) -> list[Record]:
    found = loaded(text, _TOOL)
    session = field(found, "session_info", dict, _TOOL)
    version, command = optional(session, "version"), optional(session, "cmdline")
    made = []
    for at, run in enumerate(field(found, "runs", list, _TOOL), 1):
        cases = field(run, "testcases", list, f"{_TOOL}: runs {at}")
        if run.get("num_cases", len(cases)) != len(cases):
            raise FormatError(f"{_TOOL}: runs {at}: found {len(cases)} of {quoted(run['num_cases'], 20)} testcases")
        for of, case in enumerate(cases, 1):
            where = f"{_TOOL}: runs {at}: testcases {of}"
            about = About(machine, "reframe", version, command, _start(case, session, where))
            made += _case(case, about, where)
    if not made:
        raise FormatError(f"{_TOOL}: found no values of performance variables, at least 1 is required")
    return made


def _start(case: Any, session: dict[str, Any], where: str) -> str:
    if not isinstance(case, dict):
        raise FormatError(f"{where}: found {type(case).__name__}, an object is required")
    return optional(case, "job_completion_time") or optional(session, "time_start")


def _case(case: dict[str, Any], about: About, where: str) -> list[Record]:
    more: dict[str, Scalar] = {
        "system": optional(case, "system") or None,
        "partition": optional(case, "partition") or None,
        "environ": optional(case, "environ") or optional(case, "environment") or None,
    }
    for ours, theirs_ in (("ranks", "num_tasks"), ("cpus_per_task", "num_cpus_per_task")):
        if isinstance(case.get(theirs_), int):
            more[ours] = case[theirs_]
    name = optional(case, "display_name") or string(case, "name", where)
    conditions = _conditions(name, more, optional(case, "result") in {"fail", "failure"})
    made = []
    for key, cells in (case.get("perfvalues") or {}).items() if isinstance(case.get("perfvalues"), dict) else ():
        metric = string({"variable": key.split(":")[-1]}, "variable", where)
        if not isinstance(cells, list) or len(cells) < 5 or not isinstance(cells[4], str | None):
            raise FormatError(f"{where}: {quoted(key, 40)}: a value, a reference, 2 thresholds and a unit are required")
        if cells[0] is not None:
            value = finite({metric: cells[0]}, metric, where)
            made.append(_value(about, metric, value, cells[4] or "", where, conditions))
    for entry in case.get("perfvars") or () if isinstance(case.get("perfvars"), list) else ():
        metric = string(entry, "name", where)  # version 3
        if entry.get("value") is not None:
            value = finite(entry, "value", f"{where}: {quoted(metric, 40)}")
            made.append(_value(about, metric, value, optional(entry, "unit"), where, conditions))
    return made


READERS: Final = [Reader("reframe", "ReFrame, performance log or JSON report", recognises, whole(read))]
