"""Reader of hyperfine's elapsed times of commands.

JSON (`--export-json`, all versions) contains all runs of each command. CSV (`--export-csv`), Markdown
(`--export-markdown`) and the text that hyperfine prints contain only summaries.

Versions before 1.6 have no median. A time of 0 s, which hyperfine states if a command took less time than the start of
its shell, was not measured.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, field, unexpected
from meshmark.measure.importers.documents import csv_table, json_objects
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import finite, measured, named, numbers, scalar, string, value
from meshmark.store.record import Scalar, median

_HEADER: Final = re.compile(r"^command,mean,stddev,(?:median,)?user,system,min,max\b", re.MULTILINE)
_MARKDOWN: Final = re.compile(r"^\| Command \| Mean \[(?P<unit>[mun\u00b5\u03bc]?s)\] \| Min \[", re.MULTILINE)
_TEXT: Final = re.compile(r"^(?:Benchmark #?\d{1,6}: (?P<command>\S.*)|\s+Time \((?:mean|abs) .*)$", re.MULTILINE)
_TEXT_TIME: Final = re.compile(r"^[ \t]{1,8}Time \((?:mean|abs) ", re.MULTILINE)
_TIME: Final = r"([\d.]+) ([mun\u00b5\u03bc]?s|min|h)"
_TEXT_MEAN: Final = re.compile(
    rf"\s+Time \((?:mean \u00b1 \u03c3|abs \u2261)\):\s+{_TIME}(?:\s+\u00b1\s+{_TIME})?"
    rf"\s+\[User: {_TIME}, System: {_TIME}\]"
)
_TEXT_RANGE: Final = re.compile(rf"\s+Range \(min \u2026 max\):\s+{_TIME} \u2026\s+{_TIME}\s+\d+ runs")
_STATISTICS: Final = {"mean": "mean", "median": "median", "min": "minimum", "max": "maximum"}
_KEYS: Final = ("command", "mean", "user", "system")


def recognises(start: str) -> bool:
    """Return whether the start of a file is a table, a JSON object or text of hyperfine."""
    if _HEADER.search(start) or _MARKDOWN.search(start):
        return True
    if _TEXT_TIME.search(start) and re.search(r"^Benchmark #?\d{1,6}: ", start, re.MULTILINE):
        return True
    if re.search(r'"results"\s*:\s*\[', start) is None:
        return False
    return all(f'"{key}"' in start for key in _KEYS) and ('"stddev"' in start or '"times"' in start)


def read(output: ToolOutput) -> None:
    """Read elapsed times, mean user and system times, and memory of each command."""
    if _HEADER.search(output.text):
        _read_csv(output)
        return
    if _MARKDOWN.search(output.text):
        _read_markdown(output)
        return
    if _TEXT_TIME.search(output.text):
        _read_text(output)
        return
    for place, document in json_objects(output, "results", list):
        for index, result in enumerate(document["results"], 1):
            with output.item(f"{place}results {index}"):
                _command(output, result, f"{place}results {index}")


def _read_csv(output: ToolOutput) -> None:
    for number, row in csv_table(output, _HEADER.match):
        with output.item(number):
            output.set_source(command=string(row, "command"))
            parameters = {k.removeprefix("parameter_"): scalar(v) for k, v in row.items() if k.startswith("parameter")}
            conditions = named({**parameters, "benchmark": row["command"]})
            for column, statistic in _STATISTICS.items():
                if row.get(column):
                    time = measured(value(row[column], "s", column), "s", column)
                    output.add_tool_metric("elapsed", "s", time, **{**conditions, "statistic": statistic})
            for key in ("user", "system"):
                output.add_tool_metric(
                    f"{key}_time", "s", value(row[key], "s", key), **{**conditions, "statistic": "mean"}
                )


def _read_markdown(output: ToolOutput) -> None:
    """Read the tables; all times of a table have the same unit."""
    unit = ""
    for line in output.lines:
        if head := _MARKDOWN.match(line.text):
            unit = head["unit"]
        elif not line.text.startswith("|"):
            unit = ""
        elif unit and not line.text.startswith("|:--"):
            with output.item(line.number):
                cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.text)[1:-1]]
                if len(cells) not in {4, 5} or output.is_cut(line):
                    raise FormatError(f"found {len(cells)} whole cells, 4 or 5 are required")
                command = cells[0].strip("`").replace("\\|", "|")
                output.set_source(command=command)
                for cell, statistic in zip(cells[1:4], ("mean", "minimum", "maximum"), strict=True):
                    _summary(output, command, cell.partition(" \u00b1 ")[0], unit, statistic)


def _read_text(output: ToolOutput) -> None:
    command = ""
    for line in output.lines:
        if title := re.fullmatch(_TEXT.pattern, line.text):
            command = title["command"] or command
            output.set_source(command=command)
        if not command:
            continue
        with output.item(line.number):
            if mean := _TEXT_MEAN.fullmatch(line.text):
                is_mean = mean[3] is not None
                _summary(output, command, mean[1], mean[2], "mean" if is_mean else None)
                for key, text, unit in (("user", mean[5], mean[6]), ("system", mean[7], mean[8])):
                    time = value(text, unit, key)
                    output.add_tool_metric(
                        f"{key}_time", "s", time, **named({"benchmark": command, "statistic": "mean"})
                    )
            elif extremes := _TEXT_RANGE.fullmatch(line.text):
                _summary(output, command, extremes[1], extremes[2], "minimum")
                _summary(output, command, extremes[3], extremes[4], "maximum")
            elif re.match(r"\s+(?:Time|Range) \(", line.text):
                raise unexpected(line.text.strip(), "a mean or a range of times")


def _summary(output: ToolOutput, command: str, text: str, unit: str, statistic: str | None) -> None:
    time = measured(value(text, unit, statistic or "time"), "s", statistic or "time")
    output.add_tool_metric("elapsed", "s", time, **named({"benchmark": command, "statistic": statistic}))


def _command(output: ToolOutput, result: Any, where: str) -> None:
    command = string(result, "command")
    output.set_source(command=command)
    conditions = named({**_parameters(result), "benchmark": command})
    with output.item(where):
        if "times" in result:
            times = [measured(time, "s", "times") for time in numbers(result, "times")]
            _check(result, times)
            conditions["failures"] = _failures(result, len(times)) or None
            output.add_tool_metric("elapsed", "s", times, **conditions)
        else:  # a filter removed the times
            for statistic in ("mean", "median"):
                if statistic in result:
                    time = measured(finite(result, statistic), "s", statistic)
                    output.add_tool_metric("elapsed", "s", time, **{**conditions, "statistic": statistic})
    for key in ("user", "system"):
        if result.get(key) is not None:
            with output.item(where):
                output.add_tool_metric(f"{key}_time", "s", finite(result, key), **{**conditions, "statistic": "mean"})
    if result.get("memory_usage_byte") is not None:
        with output.item(where):
            memory = numbers(result, "memory_usage_byte")
            if min(memory) <= 0:
                raise unexpected(min(memory), "a number above 0", "memory_usage_byte")
            output.add_tool_metric("memory_used", "B", memory, "lower", **conditions)


def _parameters(result: dict[str, Any]) -> dict[str, Scalar]:
    """Return the values of --parameter-scan and --parameter-list; versions 1.6 to 1.10 do not state the name."""
    parameters = field({"parameters": {}, **result}, "parameters", dict)
    if "parameter" in result:
        parameters = {"parameter": result["parameter"], **parameters}
    return {
        str(name): scalar(value) if isinstance(value, str) else value if isinstance(value, int | float) else None
        for name, value in parameters.items()
    }


def _check(result: dict[str, Any], times: list[float]) -> None:
    """Check that the summary, as far as it is stated, agrees with the times."""
    expected = {"min": min(times), "max": max(times), "median": median(times), "mean": sum(times) / len(times)}
    for key, time in expected.items():
        if result.get(key) is not None and not math.isclose(finite(result, key), time, rel_tol=1e-6):
            raise FormatError(f"{key}: found {quoted(result[key], 30)}, the times give {time:.6g}")


def _failures(result: dict[str, Any], runs: int) -> int:
    """Return how many runs ended with another exit status than 0; null means that a signal ended the run."""
    if result.get("exit_codes") is None:
        return 0
    codes = field(result, "exit_codes", list)
    if len(codes) != runs:
        raise FormatError(f"exit_codes: found {len(codes)}, {runs} are required, one a time")
    return sum(code != 0 for code in codes)


READERS: Final = [FormatReader("hyperfine", "hyperfine, JSON, CSV, Markdown or text", recognises, read, version=2)]
