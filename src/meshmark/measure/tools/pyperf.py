"""pyperf's JSON (`python -m pyperf … -o FILE`, pyperformance), also compressed: all values of all worker processes.

Values are per iteration of the inner loop, as pyperf stores them. Calibration runs and warmups are not values.
"""

from __future__ import annotations

from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, theirs
from meshmark.measure.tools.documents import json_documents
from meshmark.measure.tools.output import ToolOutput
from meshmark.measure.tools.quantities import measured, named, numbers, optional, string
from meshmark.store.record import Better, Scalar

_TOOL: Final = "pyperf"
_METRICS: Final[dict[str, tuple[str, str, Better]]] = {
    "second": ("elapsed", "s", "lower"),
    "byte": ("memory_used", "B", "lower"),
    "integer": ("count", "1", "none"),
}
# All statements of `pyperf timeit` have the same name, and so have all commands of `pyperf command`.
_STATED: Final = (
    "python_implementation",
    "python_version",
    "loops",
    "inner_loops",
    "timeit_stmt",
    "timeit_setup",
    "command",
)


def recognises(start: str) -> bool:
    """The keys may be in any order."""
    if not start.lstrip().startswith(("{", "[")) and "\n{" not in start:
        return False
    return '"benchmarks"' in start and '"runs"' in start and ('"perf_version"' in start or '"warmups"' in start)


def read(output: ToolOutput) -> None:
    """One record a benchmark."""
    documents = json_documents(
        output, lambda value: isinstance(value, dict) and isinstance(value.get("benchmarks"), list)
    )
    for line, document in documents:
        place = f"line {line}: " if len(documents) > 1 else ""
        version = string(document, "version", f"{place}{_TOOL}")
        if version.split(".")[0] != "1":
            raise FormatError(f"{place}{_TOOL}: version: found {quoted(version, 20)}, 1.0 is required")
        shared = field({"metadata": {}, **document}, "metadata", dict, f"{place}{_TOOL}")
        for at, benchmark in enumerate(document["benchmarks"], 1):
            with output.item(f"{place}benchmarks {at}"):
                _benchmark(output, benchmark, shared, f"{place}benchmarks {at}")


def _benchmark(output: ToolOutput, benchmark: Any, shared: dict[str, Any], where: str) -> None:
    runs = field(benchmark, "runs", list, "")
    stated = {**shared, **field({"metadata": {}, **benchmark}, "metadata", dict, "")}
    unit = optional(stated, "unit") or "second"
    if unit not in _METRICS:
        raise FormatError(f"unit: found {quoted(unit, 20)}; allowed: {', '.join(_METRICS)}")
    metric, si, better = _METRICS[unit]
    samples: list[float] = []
    start = ""
    for at, run in enumerate(runs, 1):
        with output.item(f"{where}: runs {at}"):
            if not isinstance(run, dict):
                raise FormatError(f"found {type(run).__name__}, an object is required")
            of_run = field(run, "metadata", dict, "") if "metadata" in run else {}
            if "values" in run:
                values = [measured(value, si, "values") for value in numbers(run, "values", "")]
                samples += values
                stated = {**of_run, **stated}
            elif "warmups" not in run:
                raise FormatError("found neither values nor warmups")
            start = start or optional(of_run, "date")
    if not samples:
        raise FormatError("found no values, at least 1 is required")
    name = string(stated, "name", "")
    conditions: dict[str, Scalar] = {"benchmark": name}
    for key in _STATED:
        if isinstance(value := stated.get(key), str | int):
            conditions[key] = value
    about = About(output.machine, _TOOL, optional(stated, "perf_version"), optional(stated, "command"), start)
    output.add(theirs(about, metric, si, better, samples, **named(conditions)))


READERS: Final = [Reader("pyperf", "pyperf, JSON", recognises, read, version=2)]
