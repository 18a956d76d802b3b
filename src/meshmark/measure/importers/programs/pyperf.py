"""Reader of pyperf's JSON (`python -m pyperf … -o FILE`, pyperformance), also compressed: values of all processes.

Values are times per iteration of the inner loop, as pyperf stores them. Calibration runs and warmups are not values.
"""

from __future__ import annotations

from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, field, unexpected
from meshmark.measure.importers.documents import json_objects
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import measured, named, numbers, optional, string
from meshmark.store.record import Better

_METRICS: Final[dict[str, tuple[str, str, Better]]] = {
    "second": ("elapsed", "s", "lower"),
    "byte": ("memory_used", "B", "lower"),
    "integer": ("count", "1", "none"),
}
# All statements of `pyperf timeit` have the same name, and so have all commands of `pyperf command`.
_STATED: Final = (
    *("python_implementation", "python_version", "loops", "inner_loops", "timeit_stmt", "timeit_setup", "command"),
)


def recognises(start: str) -> bool:
    """Return whether a text contains the keys of pyperf, in any order."""
    if not start.lstrip().startswith(("{", "[")) and "\n{" not in start:
        return False
    return '"benchmarks"' in start and '"runs"' in start and ('"perf_version"' in start or '"warmups"' in start)


def read(output: ToolOutput) -> None:
    """Add one record per benchmark."""
    for place, document in json_objects(output, "benchmarks", list):
        version = string(document, "version", f"{place}pyperf")
        if version.split(".")[0] != "1":
            raise unexpected(version, "1.0", f"{place}pyperf: version")
        file_metadata = field({"metadata": {}, **document}, "metadata", dict, f"{place}pyperf")
        for index, benchmark in enumerate(document["benchmarks"], 1):
            with output.item(f"{place}benchmarks {index}"):
                _benchmark(output, benchmark, file_metadata, f"{place}benchmarks {index}")


def _benchmark(output: ToolOutput, benchmark: Any, shared: dict[str, Any], where: str) -> None:
    runs = field(benchmark, "runs", list)
    metadata = {**shared, **field({"metadata": {}, **benchmark}, "metadata", dict)}
    unit = optional(metadata, "unit") or "second"
    if unit not in _METRICS:
        raise FormatError(f"unit: found {quoted(unit, 20)}; allowed: {', '.join(_METRICS)}")
    metric, si, better = _METRICS[unit]
    samples: list[float] = []
    start = ""
    for index, run in enumerate(runs, 1):
        with output.item(f"{where}: runs {index}"):
            run_metadata = field({"metadata": {}, **field({"run": run}, "run", dict)}, "metadata", dict)
            if "values" in run:
                samples += [measured(value, si, "values") for value in numbers(run, "values")]
                metadata = {**run_metadata, **metadata}
            elif "warmups" not in run:
                raise FormatError("found neither values nor warmups")
            start = start or optional(run_metadata, "date")
    if not samples:
        raise FormatError("found no values, at least 1 is required")
    conditions = {"benchmark": string(metadata, "name")}
    conditions |= {key: metadata[key] for key in _STATED if isinstance(metadata.get(key), str | int)}
    output.set_source(optional(metadata, "perf_version"), optional(metadata, "command"), start)
    output.add_tool_metric(metric, si, samples, better, **named(conditions))


READERS: Final = [FormatReader("pyperf", "pyperf, JSON", recognises, read, version=2)]
