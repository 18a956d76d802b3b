"""Google Benchmark's JSON output (`--benchmark_format=json` or `--benchmark_out`).

The samples of a record are the repetitions. If the file has aggregates only, mean and median are records with the
condition `statistic`. What a benchmark does is known to its author only, so its rates are no records of ours.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, theirs
from meshmark.measure.tools.output import whole
from meshmark.measure.tools.quantities import Unit, finite, loaded, named, optional, string, unit_of
from meshmark.store.record import Record

_TOOL: Final = "Google Benchmark"
_AGGREGATES: Final = ("mean", "median")  # deviations have no value of their own
_RATES: Final = {"bytes_per_second": Unit("B/s", 1.0, "higher"), "items_per_second": Unit("op/s", 1.0, "higher")}
_NO_COUNTERS: Final = {
    "family_index",
    "per_family_instance_index",
    "repetitions",
    "repetition_index",
    "threads",
    "iterations",
    "real_time",
    "cpu_time",
    "allocs_per_iter",
    "max_bytes_used",
    "total_allocated_bytes",
    "net_heap_growth",
}


def recognises(start: str) -> bool:
    return all(f'"{key}"' in start for key in ("context", "num_cpus", "mhz_per_cpu", "benchmarks"))


def read(text: str, machine: str) -> list[Record]:
    """Times, rates and counters of each benchmark that did not fail."""
    found = loaded(text, _TOOL)
    context = field(found, "context", dict, _TOOL)
    about = About(
        machine,
        "google_benchmark",
        optional(context, "library_version"),
        optional(context, "executable"),
        optional(context, "date"),
    )
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for at, entry in enumerate(field(found, "benchmarks", list, _TOOL), 1):
        where = f"{_TOOL}: benchmarks {at}"
        name = string(entry, "name", where)
        run = optional(entry, "run_name") or re.sub(r"_(mean|median|stddev|cv)$", "", name)
        groups[run, str(entry.get("family_index")), str(entry.get("per_family_instance_index"))].append(entry)
    made = [record for (run, *_), entries in groups.items() for record in _group(about, run, entries)]
    if not made:
        raise FormatError(f"{_TOOL}: found no benchmark that ran, at least 1 is required")
    return made


def _aggregate(entry: dict[str, Any]) -> str:
    """The aggregate's name; "" for a repetition. Version 1.4 and older only tell by the name."""
    if "run_type" not in entry:
        suffix = re.search(r"_(mean|median|stddev|cv)$", str(entry["name"]))
        return suffix[1] if suffix else ""
    return optional(entry, "aggregate_name") if entry["run_type"] == "aggregate" else ""


def _group(about: About, run: str, entries: list[dict[str, Any]]) -> list[Record]:
    where = f"{_TOOL}: {quoted(run, 60)}"
    for entry in entries:
        if entry.get("run_type", "iteration") not in {"iteration", "aggregate"}:
            raise FormatError(
                f"{where}: run_type: found {quoted(entry['run_type'], 40)}; allowed: iteration, aggregate"
            )
    repetitions = [e for e in entries if not _aggregate(e)]
    if repetitions:
        expected = repetitions[0].get("repetitions", len(repetitions))
        if expected != len(repetitions):
            raise FormatError(f"{where}: found {len(repetitions)} repetitions of {quoted(expected, 20)}")
        return _records(about, run, repetitions, where)
    return [
        record
        for name in _AGGREGATES
        for entry in entries
        if _aggregate(entry) == name
        for record in _records(about, run, [entry], where, name)
    ]


def _records(
    about: About, run: str, entries: list[dict[str, Any]], where: str, statistic: str | None = None
) -> list[Record]:
    good = [e for e in entries if not e.get("error_occurred") and not e.get("skipped")]
    if not good:
        return []
    unit = unit_of(string({"time_unit": "ns", **good[0]}, "time_unit", where))
    if unit.si != "s":
        raise FormatError(f"{where}: time_unit: found {quoted(good[0]['time_unit'], 20)}; allowed: ns, us, ms, s")
    if any(e.get("time_unit") != good[0].get("time_unit") for e in good):
        raise FormatError(f"{where}: time_unit: found several, the same in all repetitions is required")
    conditions = named(
        {
            "benchmark": run,
            "threads": field(good[0], "threads", int, where) if "threads" in good[0] else None,
            "label": optional(good[0], "label") or None,
            "statistic": statistic,
        }
    )
    made = []
    for key, value in good[0].items():
        if key in {"real_time", "cpu_time"}:
            what = unit
        elif key in _RATES:
            what = _RATES[key]
        elif key in _NO_COUNTERS or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        else:
            what = Unit("1", 1.0, "none")
        name = string({"counter": key}, "counter", where)
        samples = [finite(e, key, where, what.factor) for e in good]
        made.append(theirs(about, name, what.si, what.better, samples, **conditions))
    if not {"real_time", "cpu_time"} <= {r.metric for r in made}:
        raise FormatError(f"{where}: found no times, real_time and cpu_time are required")
    return made


READERS: Final = [Reader("google_benchmark", "Google Benchmark, JSON", recognises, whole(read))]
