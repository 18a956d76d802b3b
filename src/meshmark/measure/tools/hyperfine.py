"""hyperfine's exports of elapsed times of commands: JSON (`--export-json`), all versions and all runs of each command,
and CSV (`--export-csv`), which has summaries only.

Versions before 1.6 have no median. A time of 0 s, which hyperfine states where a command took less time than the start
of its shell, was not measured.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, number, theirs
from meshmark.measure.tools.documents import csv_rows, json_documents
from meshmark.measure.tools.output import ToolOutput
from meshmark.measure.tools.quantities import finite, measured, named, numbers, scalar, string
from meshmark.store.record import Scalar, median

_TOOL: Final = "hyperfine"
_HEADER: Final = re.compile(r"^command,mean,stddev,(?:median,)?user,system,min,max\b", re.MULTILINE)
_STATISTICS: Final = {"mean": "mean", "median": "median", "min": "minimum", "max": "maximum"}
_KEYS: Final = ("command", "mean", "user", "system")


def recognises(start: str) -> bool:
    if _HEADER.search(start):
        return True
    if re.search(r'"results"\s*:\s*\[', start) is None:
        return False
    return all(f'"{key}"' in start for key in _KEYS) and ('"stddev"' in start or '"times"' in start)


def read(output: ToolOutput) -> None:
    """Elapsed times, mean user and system times and memory of each command."""
    if _HEADER.search(output.text):
        _read_csv(output)
        return
    documents = json_documents(output, lambda value: isinstance(value, dict) and isinstance(value.get("results"), list))
    for line, document in documents:
        place = f"line {line}: " if len(documents) > 1 else ""
        for at, result in enumerate(document["results"], 1):
            with output.item(f"{place}results {at}"):
                _command(output, result, f"{place}results {at}")


def _read_csv(output: ToolOutput) -> None:
    begin = next(at for at, line in enumerate(output.lines) if _HEADER.match(line.text))
    output.other_lines += begin
    for at, row in csv_rows(output, output.lines[begin:]):
        with output.item(at):
            command = row["command"]
            if command == "command" and row["mean"] == "mean":
                continue  # of a further file
            if output.is_cut(output.lines[at - 1]):
                raise FormatError("found no end of the line; it is cut off")
            about = About(output.machine, _TOOL, command=string(row, "command", ""))
            parameters = {k.removeprefix("parameter_"): scalar(v) for k, v in row.items() if k.startswith("parameter")}
            conditions: dict[str, Scalar] = {**parameters, "benchmark": command}
            for column, statistic in _STATISTICS.items():
                if row.get(column):
                    value = measured(number(row[column], column), "s", column)
                    stated = named({**conditions, "statistic": statistic})
                    output.add(theirs(about, "elapsed", "s", "lower", [value], **stated))
            for key in ("user", "system"):
                mean = named({**conditions, "statistic": "mean"})
                output.add(theirs(about, f"{key}_time", "s", "lower", [number(row[key], key)], **mean))


def _command(output: ToolOutput, result: Any, where: str) -> None:
    command = string(result, "command", "")
    about = About(output.machine, _TOOL, command=command)
    conditions = _parameters(result)
    conditions["benchmark"] = command
    with output.item(where):
        if "times" in result:
            times = [measured(time, "s", "times") for time in numbers(result, "times", "")]
            _check(result, times)
            if failures := _failures(result, len(times)):
                conditions["failures"] = failures
            output.add(theirs(about, "elapsed", "s", "lower", times, **named(conditions)))
        else:  # removed by a filter
            for statistic in ("mean", "median"):
                if statistic in result:
                    value = measured(finite(result, statistic, ""), "s", statistic)
                    output.add(
                        theirs(about, "elapsed", "s", "lower", [value], **named({**conditions, "statistic": statistic}))
                    )
    for key in ("user", "system"):
        if result.get(key) is not None:
            with output.item(where):
                mean = named({**conditions, "statistic": "mean"})
                output.add(theirs(about, f"{key}_time", "s", "lower", [finite(result, key, "")], **mean))
    if result.get("memory_usage_byte") is not None:
        with output.item(where):
            memory = numbers(result, "memory_usage_byte", "")
            if min(memory) <= 0:
                raise FormatError(f"memory_usage_byte: found {min(memory)!r}, a number above 0 is required")
            output.add(theirs(about, "memory_used", "B", "lower", memory, **named(conditions)))


def _parameters(result: dict[str, Any]) -> dict[str, Scalar]:
    """The values of --parameter-scan and --parameter-list; versions 1.6 to 1.10 have one without its name."""
    parameters = field({"parameters": {}, **result}, "parameters", dict, "")
    if "parameter" in result:
        parameters = {"parameter": result["parameter"], **parameters}
    return {
        str(name): scalar(value) if isinstance(value, str) else value if isinstance(value, int | float) else None
        for name, value in parameters.items()
    }


def _check(result: dict[str, Any], times: list[float]) -> None:
    """The summary, as far as it is stated, must be that of the times."""
    expected = {"min": min(times), "max": max(times), "median": median(times), "mean": sum(times) / len(times)}
    for key, value in expected.items():
        if result.get(key) is not None and not math.isclose(finite(result, key, ""), value, rel_tol=1e-6):
            raise FormatError(f"{key}: found {quoted(result[key], 30)}, the times give {value:.6g}")


def _failures(result: dict[str, Any], runs: int) -> int:
    """How many runs ended with another exit status than 0; null is one ended by a signal."""
    if result.get("exit_codes") is None:
        return 0
    codes = field(result, "exit_codes", list, "")
    if len(codes) != runs:
        raise FormatError(f"exit_codes: found {len(codes)}, {runs} are required, one a time")
    return sum(code != 0 for code in codes)


READERS: Final = [Reader("hyperfine", "hyperfine, JSON or CSV", recognises, read, version=2)]
