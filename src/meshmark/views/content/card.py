"""Builds the machine card: key figures of a machine, each with its interval.

Every figure is `{"value", "unit", "interval", "best", "spread", "samples", "flags", "conditions"}` or
`{"absent": reason}`, in SI units, with the keys of `figures`. If runs settled at different levels, `modes` has the
value, the interval and the number of runs of each level. `records` has all results, so that a card can be compared
and imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshmark.measure.importers.card import SCHEMA, TYPE, StepRecord, results
from meshmark.measure.repetitions import PLATEAU
from meshmark.store.record import Record
from meshmark.store.run import Absence, RunInfo
from meshmark.views.charts.charts import in_memory
from meshmark.views.charts.drawing import condition_text
from meshmark.views.content.selection import cleaned, modes_of, unusual_stride, usual_stride, value_of

Figure = dict[str, Any]
Figures = Mapping[str, tuple[str, Record | None]]  # title and record by key


def best_of(records: Sequence[Record], keep: Callable[[Record], bool]) -> Record | None:
    """Return the best record that `keep` accepts, by the direction of its metric; flagged only if all are flagged."""
    accepted = [r for r in records if keep(r)]
    candidates = [r for r in accepted if not r.flags] or accepted
    if not candidates:
        return None
    return (min if candidates[0].better == "lower" else max)(candidates, key=lambda r: r.value)


def _max_threads(records: Sequence[Record], instrument: str) -> float:
    return max((value_of(r, "threads") for r in records if r.instrument == instrument), default=1)


def balance(figures: Figures) -> tuple[Record, Record] | None:
    """Return the fp64 peak and the triad with the same number of threads; None if there is no such pair."""
    peak, triad = figures["peak_fp64"][1], figures["triad_all"][1]
    if peak and triad and triad.value > 0 and peak.conditions.get("threads") == triad.conditions.get("threads"):
        return peak, triad
    return None


def figures(records: Sequence[Record], cpus: int = 0) -> dict[str, tuple[str, Record | None]]:
    """Return title and record (or None) of each figure by its key, in order of display.

    Args:
        records: Records of a run.
        cpus: Number of CPUs of the host; 0 if unknown, so that no title says `all CPUs`.
    """
    triads = [r for r in in_memory(records) if r.conditions["kernel"] == "triad"]
    all_threads = _max_threads(records, "bandwidth")
    peak_threads = _max_threads(records, "peak")
    largest_table = max((value_of(r, "table_bytes") for r in records if r.metric == "update_rate"), default=0)
    dense_threads = _max_threads(records, "dgemm")

    def by(threads: float) -> str:
        return "all CPUs" if threads >= cpus > 0 else condition_text("threads", int(threads) or None)

    def triad(threads: float) -> Record | None:
        return best_of(triads, lambda r: value_of(r, "threads") == threads)

    def memory(key: str) -> Record | None:
        levels = [
            r
            for r in records
            if r.metric == "level_latency"
            and r.conditions.get("kind") == "memory"
            and MEMORY_PAGES[key](r.conditions.get("pages"))
        ]
        return best_of(usual_stride(levels), lambda _: True)

    def stride(key: str) -> str:
        record = memory(key)
        return f", {text}" if record is not None and (text := unusual_stride(record)) else ""

    return {
        "triad_all": (f"Triad bandwidth, {by(all_threads)}", triad(all_threads)),
        "triad_one": ("Triad bandwidth, one CPU", triad(1)),
        "memory_latency": (f"Memory latency, huge pages{stride('memory_latency')}", memory("memory_latency")),
        "memory_latency_small_pages": (
            f"Memory latency, 4 KiB pages{stride('memory_latency_small_pages')}",
            memory("memory_latency_small_pages"),
        ),
        "line_swap": (
            "Core-to-core latency, one way",
            best_of(records, lambda r: r.metric == "line_latency" and r.conditions.get("state") == "swap"),
        ),
        "peak_fp64": (
            f"Peak fp64, {by(peak_threads)}",
            best_of(
                records,
                lambda r: (
                    r.metric == "flop_rate"
                    and r.instrument == "peak"
                    and r.conditions.get("type") == "fp64"
                    and value_of(r, "threads") == peak_threads
                ),
            ),
        ),
        "dgemm": (
            f"dgemm, {by(dense_threads)}",
            best_of(
                records,
                lambda r: (
                    r.instrument == "dgemm" and r.metric == "flop_rate" and value_of(r, "threads") == dense_threads
                ),
            ),
        ),
        "linpack": ("linpack", best_of(records, lambda r: r.instrument == "linpack" and r.metric == "flop_rate")),
        "gups": (
            "Random updates" + (", largest table" if largest_table else ""),
            best_of(records, lambda r: r.metric == "update_rate" and value_of(r, "table_bytes") == largest_table),
        ),
        "memory_parallelism": (
            "Outstanding loads, one core",
            best_of(records, lambda r: r.metric == "memory_parallelism"),
        ),
        "core_frequency": ("Highest core clock", best_of(records, lambda r: r.metric == "core_frequency")),
        "io_read": (
            "Storage read",
            best_of(
                records,
                lambda r: (
                    r.instrument == "io"
                    and r.metric == "bandwidth_net"
                    and str(r.conditions.get("direction")).endswith("read")
                ),
            ),
        ),
    }


def farthest(records: Sequence[Record], key: str) -> Record | None:
    """Return the latency at the largest footprint of a memory figure whose curve does not level off.

    Returns None if the curve has fewer than two footprints.
    """
    curve = [
        r
        for r in records
        if r.metric == "load_latency"
        and r.instrument == "latency"
        and r.conditions.get("pattern", "random") == "random"
        and value_of(r, "processes", 1) == 1
        and value_of(r, "locality_bytes") == 0
        and MEMORY_PAGES[key](r.conditions.get("pages"))
    ]
    curve = usual_stride(curve)
    sizes = {value_of(r, "footprint_bytes") for r in curve}
    return best_of(curve, lambda r: value_of(r, "footprint_bytes") == max(sizes)) if len(sizes) > 1 else None


def _figure(record: Record, modes: Sequence[Record]) -> Figure:
    figure = {
        "value": record.value,
        "unit": record.unit,
        "interval": list(record.bounds) if record.bounds else None,
        "best": record.best,
        "spread": None if math.isnan(record.spread) else record.spread,
        "samples": len(record.samples),
        "flags": sorted(record.flags),
        "conditions": dict(record.conditions),
        "command": record.provenance.get("command"),
    }
    if modes:
        figure["modes"] = [
            {"value": m.value, "interval": list(m.bounds) if m.bounds else None, "runs": m.conditions.get("mode_runs")}
            for m in modes
        ]
    return figure


def why_no_figure(records: Sequence[Record], absences: Sequence[Absence], key: str) -> str:
    """Return the reason why a figure has no value in this run."""
    if key in MEMORY_PAGES:
        curve = [r for r in records if r.metric == "load_latency" and MEMORY_PAGES[key](r.conditions.get("pages"))]
        if len({value_of(r, "footprint_bytes") for r in curve}) > 1:
            return "the latency does not level off beyond the caches: measure larger footprints"
    return why_absent(records, absences, INSTRUMENT_OF[key])


def why_absent(records: Sequence[Record], absences: Sequence[Absence], instrument: str) -> str:
    """Return the reason why an instrument has no result in this run."""
    if any(r.instrument == instrument for r in records):
        return "this run did not measure it"
    reasons = [a.reason for a in absences if a.instrument == instrument]
    return reasons[0] if reasons else "not measured in this run"


# Predicates by figure, which accept the page sizes that the figure is measured with.
MEMORY_PAGES: Mapping[str, Callable[[object], bool]] = {
    "memory_latency": lambda pages: pages not in {None, "4KiB"},
    "memory_latency_small_pages": lambda pages: pages == "4KiB",
}
INSTRUMENT_OF = {
    "triad_all": "bandwidth",
    "triad_one": "bandwidth",
    "memory_latency": "latency",
    "memory_latency_small_pages": "latency",
    "line_swap": "lines",
    "peak_fp64": "peak",
    "dgemm": "dgemm",
    "linpack": "linpack",
    "gups": "gups",
    "memory_parallelism": "loaded",
    "core_frequency": "clock",
    "io_read": "io",
}


def machine_card(
    records: Sequence[Record], absences: Sequence[Absence], run: RunInfo, steps: Sequence[StepRecord] | None = None
) -> dict[str, Any]:
    """Return the content of `card.json`, which the module's description specifies.

    Args:
        records: Records of the run, pooled.
        absences: Absences of the run.
        run: Facts about the run.
        steps: Step and record of all results before repetitions were pooled; None if `records` come from one step.
    """
    step_records = [("card", r) for r in records] if steps is None else steps
    records = cleaned(records)
    key_figures = figures(records)
    card: dict[str, Any] = {
        "type": TYPE,
        "schema": SCHEMA,
        "machine": run.machine,
        "run": run.run_id,
        "started": run.started,
        "version": run.version,
        "figures": {
            key: _figure(record, modes_of(records, record))
            if record
            else {"absent": why_no_figure(records, absences, key)}
            for key, (_, record) in key_figures.items()
        },
    }
    if (pair := balance(key_figures)) is not None:
        peak, triad = pair
        card["figures"]["balance"] = {
            "value": peak.value / triad.value,
            "unit": "1",
            "of": "peak_fp64 / triad_all, flop/byte",
            "flags": sorted(peak.flags | triad.flags),
        }
    else:
        card["figures"]["balance"] = {"absent": "requires peak and bandwidth with the same number of threads"}
    same = ("level", *PLATEAU, "pages", "memory_node", "cpu", "stride_bytes")
    capacities = {tuple(r.conditions.get(k) for k in same): r.value for r in records if r.metric == "level_capacity"}
    card["levels"] = [
        {**_figure(r, modes_of(records, r)), "capacity": capacities.get(tuple(r.conditions.get(k) for k in same))}
        for r in records
        if r.metric == "level_latency"
    ]
    card["host"] = dict(run.host)
    card["absent"] = [
        {k: getattr(a, k) for k in ("instrument", "metric", "conditions", "reason", "enable", "kind", "step")}
        for a in absences
    ]
    return card | results(step_records)
