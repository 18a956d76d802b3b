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
from meshmark.measure.tools.base import FormatError, Reader, field, unexpected
from meshmark.measure.tools.documents import csv_table, json_objects
from meshmark.measure.tools.output import ToolOutput
from meshmark.measure.tools.quantities import finite, measured, named, numbers, scalar, string, value
from meshmark.store.record import Scalar, median

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
    """Read elapsed times, mean user and system times and memory of each command."""
    if _HEADER.search(output.text):
        _read_csv(output)
        return
    for place, document in json_objects(output, "results", list):
        for index, result in enumerate(document["results"], 1):
            with output.item(f"{place}results {index}"):
                _command(output, result, f"{place}results {index}")


def _read_csv(output: ToolOutput) -> None:
    for number, row in csv_table(output, _HEADER.match):
        with output.item(number):
            output.stated(command=string(row, "command"))
            parameters = {k.removeprefix("parameter_"): scalar(v) for k, v in row.items() if k.startswith("parameter")}
            conditions = named({**parameters, "benchmark": row["command"]})
            for column, statistic in _STATISTICS.items():
                if row.get(column):
                    time = measured(value(row[column], "s", column), "s", column)
                    output.theirs("elapsed", "s", time, **{**conditions, "statistic": statistic})
            for key in ("user", "system"):
                output.theirs(f"{key}_time", "s", value(row[key], "s", key), **{**conditions, "statistic": "mean"})


def _command(output: ToolOutput, result: Any, where: str) -> None:
    command = string(result, "command")
    output.stated(command=command)
    conditions = named({**_parameters(result), "benchmark": command})
    with output.item(where):
        if "times" in result:
            times = [measured(time, "s", "times") for time in numbers(result, "times")]
            _check(result, times)
            conditions["failures"] = _failures(result, len(times)) or None
            output.theirs("elapsed", "s", times, **conditions)
        else:  # removed by a filter
            for statistic in ("mean", "median"):
                if statistic in result:
                    time = measured(finite(result, statistic), "s", statistic)
                    output.theirs("elapsed", "s", time, **{**conditions, "statistic": statistic})
    for key in ("user", "system"):
        if result.get(key) is not None:
            with output.item(where):
                output.theirs(f"{key}_time", "s", finite(result, key), **{**conditions, "statistic": "mean"})
    if result.get("memory_usage_byte") is not None:
        with output.item(where):
            memory = numbers(result, "memory_usage_byte")
            if min(memory) <= 0:
                raise unexpected(min(memory), "a number above 0", "memory_usage_byte")
            output.theirs("memory_used", "B", memory, "lower", **conditions)


def _parameters(result: dict[str, Any]) -> dict[str, Scalar]:
    """Return the values of --parameter-scan and --parameter-list; versions 1.6 to 1.10 have one without its name."""
    parameters = field({"parameters": {}, **result}, "parameters", dict)
    if "parameter" in result:
        parameters = {"parameter": result["parameter"], **parameters}
    return {
        str(name): scalar(value) if isinstance(value, str) else value if isinstance(value, int | float) else None
        for name, value in parameters.items()
    }


def _check(result: dict[str, Any], times: list[float]) -> None:
    """Check that the summary, as far as it is stated, is the one of the times."""
    expected = {"min": min(times), "max": max(times), "median": median(times), "mean": sum(times) / len(times)}
    for key, time in expected.items():
        if result.get(key) is not None and not math.isclose(finite(result, key), time, rel_tol=1e-6):
            raise FormatError(f"{key}: found {quoted(result[key], 30)}, the times give {time:.6g}")


def _failures(result: dict[str, Any], runs: int) -> int:
    """Return how many runs ended with another exit status than 0; null is one ended by a signal."""
    if result.get("exit_codes") is None:
        return 0
    codes = field(result, "exit_codes", list)
    if len(codes) != runs:
        raise FormatError(f"exit_codes: found {len(codes)}, {runs} are required, one a time")
    return sum(code != 0 for code in codes)


READERS: Final = [Reader("hyperfine", "hyperfine, JSON or CSV", recognises, read, version=2)]
