"""Writes results for tools that track or check numbers over time: Prometheus, Apache Otava, ReFrame, Kubernetes' NFD.

Source:
    Prometheus, text format 0.0.4, which the textfile collector of node_exporter reads; it refuses time stamps.
    Apache Otava, docs/CSV.md and otava/importer.py: a column of times, and a number in every cell.
    ReFrame, RegressionTest.reference: (value, lower, upper, unit), bounds relative to the value.
    Node Feature Discovery, customization guide: NAMESPACE/NAME=VALUE, files up to 64 KiB.
    Kubernetes, labels: names and values of at most 63 characters, letters and digits at both ends.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import combinations
from typing import Final

from meshmark.compare.exports.base import ExportMaterial, Format, commented, nothing
from meshmark.compare.exports.matrix import latencies, line_latencies
from meshmark.errors import AbsentError
from meshmark.measure.repetitions import point, pool
from meshmark.statistics.verdicts import MARGIN
from meshmark.store.record import MODE_SUFFIX, Record, median
from meshmark.values.units import plain

_UNITS: Final = {
    "s": "seconds",
    "B": "bytes",
    "B/s": "bytes_per_second",
    "op/s": "operations_per_second",
    "flop/s": "flops",
    "Hz": "hertz",
    "1": "",
}
_SURVEY: Final = "meshmark survey --quick"
_DOMAIN: Final = "feature.node.kubernetes.io"
_MAX_LABEL: Final = 63
_MAX_SETS: Final = 64  # number of sets of columns that are combined


def point_of(record: Record) -> dict[str, str]:
    """Return the conditions that identify a point, as texts; conditions that are not set are left out."""
    _, *groups = point(record)
    return {k: _text(v) for conditions in groups for k, v in conditions.items() if v is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def name_of(record: Record) -> str:
    """Return a name of a point and metric, such as `latency.load_latency.cpu_0.footprint_1GiB`."""
    parts = []
    for key, value in point_of(record).items():
        parts.append(f"{key.removesuffix('_bytes')}_{_size(value) if key.endswith('_bytes') else value}")
    return ".".join(re.sub(r"[^A-Za-z0-9_.+-]", "-", p) for p in (record.instrument, record.metric, *parts))


def _size(text: str) -> str:
    """Return a size in B, as short as is exact, since names must differ where sizes differ: `512MiB`, `536870880B`."""
    exact = text.isdigit() and int(text) % 1024 == 0 and int(text) > 0
    short = plain(float(text), "B").replace(" ", "") if exact else ""
    return short if short and "." not in short else f"{text}B"


def _all(material: ExportMaterial) -> list[Record]:
    """Return every result that may be exported.

    Raises:
        AbsentError: There is no such result.
    """
    records = material.usable(material.side.points)
    if not records:
        raise nothing("result without flags" if material.side.points else "result", _SURVEY)
    return records


# ------------------------------------------------------------------ Prometheus


def openmetrics(material: ExportMaterial) -> str:
    """Return gauges of every result and of the ends of its interval, in Prometheus' text format.

    Raises:
        AbsentError: There is no result to export.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    families: dict[tuple[str, str, str], list[Record]] = {}
    for r in _all(material):
        families.setdefault((r.instrument, r.metric, r.unit), []).append(r)
    start = _seconds(material.side.start)

    class SeriesCollector(Collector):
        def collect(self) -> Iterable[Metric]:
            for (instrument, metric, unit), records in families.items():
                labels = sorted({k for r in records for k in point_of(r)})
                for end in ("", "low", "high"):
                    name = "_".join(p for p in ("meshmark_result", instrument, metric, end) if p)
                    text = {"": "median", "low": "lower end of the 95 % interval", "high": "upper end"}[end]
                    family = GaugeMetricFamily(
                        re.sub(r"[^a-zA-Z0-9_]", "_", name),
                        f"{instrument} {metric}: {text}",
                        labels=["machine", "source", "flags", *labels],
                        unit=_UNITS.get(unit, re.sub(r"[^a-z0-9]+", "_", unit.lower()).strip("_")),
                    )
                    for r in records:
                        value = r.value if not end else r.bounds[end == "high"] if r.bounds else None
                        if value is not None:
                            point = point_of(r)
                            label_values = [
                                r.machine,
                                r.source,
                                ",".join(sorted(r.flags)),
                                *(point.get(k, "") for k in labels),
                            ]
                            family.add_metric(label_values, value)
                    if family.samples:
                        yield family
            if start is not None:
                newest = GaugeMetricFamily(
                    "meshmark_result_newest_timestamp", "start of the newest result", labels=["machine"], unit="seconds"
                )
                newest.add_metric([material.side.machine], start)
                yield newest

    registry = CollectorRegistry()
    registry.register(SeriesCollector())
    return generate_latest(registry).decode()


def _seconds(start: str) -> float | None:
    try:
        return datetime.fromisoformat(start).timestamp() if start else None
    except ValueError:
        return None


# ------------------------------------------------------------------ Otava


def _history(material: ExportMaterial) -> tuple[list[tuple[str, str, dict[str, Record]]], list[str]]:
    """Return the runs that have all columns, oldest first (start, run, results by column), and the columns.

    The columns are chosen so that there are the most cells, since Otava accepts no empty cell.

    Raises:
        AbsentError: Fewer than two runs have a result in common.
    """
    steps: dict[str, dict[str, list[Record]]] = {}
    for run, step, record in material.rows:
        steps.setdefault(run, {}).setdefault(step, []).append(record)
    runs = []
    for run, entries in steps.items():
        pooled = [r for r in pool([*entries.values()]) if not r.metric.endswith(MODE_SUFFIX)]
        columns = {name_of(r): r for r in material.usable(pooled)}
        start = max((str(r.provenance.get("start", "")) for r in pooled), default="")
        if columns and _seconds(start) is not None and start <= (material.side.start or start):
            runs.append((start, run, columns))
    runs.sort(key=lambda one: one[:2])
    # Runs of one survey have one set of columns, so few sets differ; pairs of the most common ones are tried as well.
    sets = Counter(frozenset(entries) for _, _, entries in runs)
    common = [columns for columns, _ in sets.most_common(_MAX_SETS)]
    choices = {*common, *(candidate & other_candidate for candidate, other_candidate in combinations(common, 2))}

    def cells(chosen: frozenset[str]) -> int:
        rows = sum(count for columns, count in sets.items() if chosen <= columns)
        return rows * len(chosen) if rows > 1 else 0

    best = max(choices, key=lambda chosen: (cells(chosen), sorted(chosen)), default=frozenset())
    if not cells(best):
        raise AbsentError(
            f"export: found {len(runs)} run{'s' * (len(runs) != 1)} of {material.side.machine} with unflagged results "
            "in the store, and no result that two of them share",
            f"{_SURVEY}, on several days",
        )
    complete_runs = [candidate for candidate in runs if best <= candidate[2].keys()]
    for _, _, columns in runs:
        for name, r in columns.items():
            if name not in best or not best <= columns.keys():
                material.omit(r, "of a point that not all exported runs have, or of a run that lacks exported points")
    return complete_runs, sorted(best)


def otava(material: ExportMaterial) -> str:
    """Return CSV with a row for each run: time, run, and a column for each point, in the unit of its record.

    Raises:
        AbsentError: Fewer than two runs have a result in common.
    """
    runs, columns = _history(material)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["time", "run", *columns])
    for start, run, results in runs:
        writer.writerow([start, run, *(repr(results[name].value) for name in columns)])
    material.notes.append(f"{len(runs)} runs, {len(columns)} metrics")
    return buffer.getvalue()


# ------------------------------------------------------------------ ReFrame


def reframe(material: ExportMaterial) -> str:
    """Return the dictionary `reference` of a ReFrame test.

    The bound on the worse side is the distance to the end of the interval, but at least the smallest difference that
    matters, 2 %; the better side is open.

    Raises:
        AbsentError: There is no result with an interval.
    """
    references: dict[str, tuple[float, float | None, float | None, str]] = {}
    for r in _all(material):
        bounds = r.bounds
        if bounds is None or r.value == 0:
            material.omit(r, "no interval (fewer than 6 samples), so no bounds")
            continue
        low = -max(MARGIN, abs((r.value - bounds[0]) / r.value))
        high = max(MARGIN, abs((bounds[1] - r.value) / r.value))
        references[name_of(r)] = (
            r.value,
            None if r.better == "lower" else -math.ceil(-low * 1e4) / 1e4,
            None if r.better == "higher" else math.ceil(high * 1e4) / 1e4,
            r.unit,
        )
    if not references:
        raise nothing("result with an interval", _SURVEY)
    entries = [f"        {name!r}: {references[name]!r}," for name in sorted(references)]
    head = ["reference = {", f"    {material.side.machine!r}: {{"]
    return "\n".join([*commented(material.about("reframe")), *head, *entries, "    }", "}", ""])


# ------------------------------------------------------------------ Node Feature Discovery


def nfd(material: ExportMaterial) -> str:
    """Return labels of a node for `/etc/kubernetes/node-feature-discovery/features.d/`.

    Values have two significant digits, so that labels do not change with every measurement.

    Raises:
        AbsentError: None of the results behind the labels was measured.
    """
    figures = _figures(material)
    if not figures:
        raise nothing("latency, bandwidth or clock", _SURVEY)
    lines = commented(material.about("nfd"))
    for name, (value, description) in figures.items():
        label = f"meshmark-{name}"
        text = f"{float(f'{value:.2g}'):.10g}"
        assert len(label) <= _MAX_LABEL and len(text) <= _MAX_LABEL
        lines += [f"# {description}", f"{_DOMAIN}/{label}={text}"]
    return "\n".join(lines) + "\n"


def _figures(material: ExportMaterial) -> dict[str, tuple[float, str]]:
    """Return the values of the labels, with descriptions."""
    figures: dict[str, tuple[float, str]] = {}
    if material.opened is None:
        material.notes.append("no topology, so no latency of local and remote memory; --topology FILE")
    else:
        matrix = latencies(material)
        local = [r.value for (a, b), r in matrix.cells.items() if a == b]
        remote = [r.value for (a, b), r in matrix.cells.items() if a != b]
        if local:
            figures["latency-local-ns"] = median(local) * 1e9, f"median of the nodes' own memory, {matrix.conditions}"
        if remote:
            figures["latency-remote-ns"] = max(remote) * 1e9, f"farthest memory, {matrix.conditions}"
    lines = line_latencies(material)
    if lines.cells:
        pairs = [r.value for r in lines.cells.values()]
        figures["line-latency-ns"] = median(pairs) * 1e9, f"median of all pairs of CPUs, {lines.conditions}"
    rates: Mapping[str, tuple[str, str, float, str]] = {
        "bandwidth-gbyte-per-s": ("bandwidth", "bandwidth_net", 1e-9, "highest of all kernels and numbers of threads"),
        "peak-fp64-gflops": ("peak", "flop_rate", 1e-9, "highest of all instructions and numbers of threads"),
        "core-frequency-mhz": ("clock", "core_frequency", 1e-6, "highest of all CPUs"),
    }
    for name, (instrument, metric, scale, description) in rates.items():
        values = [r for r in material.take(instrument, metric) if r.conditions.get("type", "fp64") == "fp64"]
        if instrument == "bandwidth" and values:
            largest = max(_footprint(r) for r in values)
            values = [r for r in values if _footprint(r) >= largest / 2]  # not in caches
        if values:
            figures[name] = max(r.value for r in values) * scale, description
    return figures


def _footprint(record: Record) -> float:
    size = record.conditions.get("footprint_bytes")
    return float(size) if isinstance(size, int | float) else math.inf


FORMATS: Final = [
    Format(
        name="openmetrics",
        summary="Prometheus text for node_exporter's textfile collector",
        write=openmetrics,
        suffix=".prom",
    ),
    Format(name="nfd", summary="labels for Node Feature Discovery, features.d", write=nfd),
    Format(
        name="otava", summary="runs of a machine as CSV for Apache Otava", write=otava, needs="history", suffix=".csv"
    ),
    Format(name="reframe", summary="reference values of a ReFrame test, Python", write=reframe, suffix=".py"),
]
