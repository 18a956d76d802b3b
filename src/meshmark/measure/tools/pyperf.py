"""pyperf's JSON (`python -m pyperf … -o FILE`, pyperformance): all values of all worker processes.

Values are per iteration of the inner loop, as pyperf stores them. Calibration runs and warmups are not values.
"""

from __future__ import annotations

import re
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, theirs
from meshmark.measure.tools.output import whole
from meshmark.measure.tools.quantities import loaded, named, numbers, optional, string
from meshmark.store.record import Better, Record, Scalar

_TOOL: Final = "pyperf"
_METRICS: Final[dict[str, tuple[str, str, Better]]] = {
    "second": ("elapsed", "s", "lower"),
    "byte": ("memory_used", "B", "lower"),
    "integer": ("count", "1", "none"),
}
_STATED: Final = ("python_implementation", "python_version", "loops", "inner_loops")


def recognises(start: str) -> bool:
    return (
        re.match(r'\s*\{\s*"benchmarks"\s*:\s*\[', start) is not None
        and '"runs"' in start
        and ('"perf_version"' in start or '"warmups"' in start)
    )


def read(text: str, machine: str) -> list[Record]:
    """One record a benchmark."""
    found = loaded(text, _TOOL)
    version = string(found, "version", _TOOL)
    if version.split(".")[0] != "1":
        raise FormatError(f"{_TOOL}: version: found {quoted(version, 20)}, 1.0 is required")
    shared = field({"metadata": {}, **found}, "metadata", dict, _TOOL)
    benchmarks = field(found, "benchmarks", list, _TOOL)
    if not benchmarks:
        raise FormatError(f"{_TOOL}: benchmarks: found none, at least 1 is required")
    return [_benchmark(one, shared, machine, f"{_TOOL}: benchmarks {at}") for at, one in enumerate(benchmarks, 1)]


def _benchmark(benchmark: Any, shared: dict[str, Any], machine: str, where: str) -> Record:
    runs = field(benchmark, "runs", list, where)
    samples: list[float] = []
    start = ""
    stated = {**shared, **field({"metadata": {}, **benchmark}, "metadata", dict, where)}
    for at, run in enumerate(runs, 1):
        of_run = field(run, "metadata", dict, f"{where}: runs {at}") if "metadata" in run else {}
        start = start or optional(of_run, "date")
        if "values" in run:
            samples += numbers(run, "values", f"{where}: runs {at}")
            stated = {**of_run, **stated}
        elif "warmups" not in run:
            raise FormatError(f"{where}: runs {at}: found neither values nor warmups")
    if not samples:
        raise FormatError(f"{where}: found no values, at least 1 is required")
    name = string(stated, "name", where)
    unit = optional(stated, "unit") or "second"
    if unit not in _METRICS:
        raise FormatError(f"{where}: unit: found {quoted(unit, 20)}; allowed: {', '.join(_METRICS)}")
    conditions: dict[str, Scalar] = {"benchmark": name}
    for key in _STATED:
        if isinstance(value := stated.get(key), str | int):
            conditions[key] = value
    about = About(machine, _TOOL, optional(stated, "perf_version"), optional(stated, "command"), start)
    metric, si, better = _METRICS[unit]
    return theirs(about, metric, si, better, samples, **named(conditions))


READERS: Final = [Reader("pyperf", "pyperf, JSON", recognises, whole(read))]
