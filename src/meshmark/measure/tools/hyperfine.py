"""hyperfine's JSON export (`--export-json`): elapsed times of commands, all runs of each."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, theirs
from meshmark.measure.tools.output import whole
from meshmark.measure.tools.quantities import finite, loaded, named, numbers, scalar, string
from meshmark.store.record import Record, Scalar, median

_TOOL: Final = "hyperfine"
_START: Final = re.compile(r'\s*\{\s*"results"\s*:\s*\[\s*\{\s*"command"\s*:')


def recognises(start: str) -> bool:
    return _START.match(start) is not None and all(f'"{k}"' in start for k in ("mean", "stddev", "user", "system"))


def read(text: str, machine: str) -> list[Record]:
    """Elapsed times, mean user and system times and memory of each command."""
    results = field(loaded(text, _TOOL), "results", list, _TOOL)
    if not results:
        raise FormatError(f"{_TOOL}: results: found none, at least 1 is required")
    return [record for at, result in enumerate(results, 1) for record in _command(result, machine, at)]


def _command(result: Any, machine: str, at: int) -> list[Record]:
    where = f"{_TOOL}: results {at}"
    command = string(result, "command", where)
    about = About(machine, _TOOL, command=command)
    conditions: dict[str, Scalar] = {
        str(k): scalar(v) if isinstance(v, str) else None for k, v in _parameters(result, where).items()
    }
    conditions["benchmark"] = command
    made = []
    if "times" in result:
        times = numbers(result, "times", where)
        _check(result, times, where)
        if failures := _failures(result, len(times), where):
            conditions["failures"] = failures
        made.append(theirs(about, "elapsed", "s", "lower", times, **named(conditions)))
    else:  # with --export-json of old versions, or removed by a filter
        for statistic in ("mean", "median"):
            value = finite(result, statistic, where)
            made.append(
                theirs(about, "elapsed", "s", "lower", [value], **named({**conditions, "statistic": statistic}))
            )
    for key in ("user", "system"):
        mean = {**conditions, "statistic": "mean"}
        made.append(theirs(about, f"{key}_time", "s", "lower", [finite(result, key, where)], **named(mean)))
    if result.get("memory_usage_byte") is not None:
        memory = numbers(result, "memory_usage_byte", where)
        made.append(theirs(about, "memory_used", "B", "lower", memory, **named(conditions)))
    return made


def _parameters(result: dict[str, Any], where: str) -> dict[str, Any]:
    found: dict[str, Any] = field({"parameters": {}, **result}, "parameters", dict, where)
    return found


def _check(result: dict[str, Any], times: list[float], where: str) -> None:
    """The summary must be that of the times."""
    expected = {"min": min(times), "max": max(times), "median": median(times), "mean": sum(times) / len(times)}
    for key, value in expected.items():
        if not math.isclose(finite(result, key, where), value, rel_tol=1e-6):
            raise FormatError(f"{where}: {key}: found {quoted(result[key], 30)}, the times give {value:.6g}")


def _failures(result: dict[str, Any], runs: int, where: str) -> int:
    """How many runs ended with another exit status than 0; null is one ended by a signal."""
    if result.get("exit_codes") is None:
        return 0
    codes = field(result, "exit_codes", list, where)
    if len(codes) != runs:
        raise FormatError(f"{where}: exit_codes: found {len(codes)}, {runs} are required, one a time")
    return sum(code != 0 for code in codes)


READERS: Final = [Reader("hyperfine", "hyperfine, JSON", recognises, whole(read))]
