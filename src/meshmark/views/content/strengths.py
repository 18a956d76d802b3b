"""Names what a machine is good and bad at, each beside a reference that the sentence names.

The references of a figure are the machine's own peak, values that the operating system reports, earlier runs of the
same machine, and published machines of its class. A figure is a point only if its whole interval lies beyond a limit of
the comparison; a point without an interval says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from meshmark.compare.classes import PublishedPair, published_of_class
from meshmark.compare.sides import Sides
from meshmark.measure.repetitions import measured, point_key
from meshmark.statistics.verdicts import Interval, MedianEstimate
from meshmark.store.record import Record
from meshmark.store.run import RunInfo
from meshmark.store.store import Store
from meshmark.values.units import NBSP, ratio_text, show, size
from meshmark.views.content.card import Figures, farthest, figures
from meshmark.views.content.findings import cache_levels
from meshmark.views.content.selection import text_of, value_of

MOST: Final = 3  # most good and most bad points
_LEAST: Final = 1e-100  # a ratio of values below this, or above its inverse, could overflow
_RUNS: Final = 5  # most earlier runs that are read
_CHANGED: Final = (1.1, 1 / 1.1)  # limits for earlier runs
_PUBLISHED: Final = (1.25, 0.8)  # limits for published machines, few of which have an interval


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """An earlier run of the same machine: its name, its start (ISO 8601), and its results, repetitions pooled."""

    run: str
    started: str
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Strength:
    """One good or bad point.

    Attributes:
        title: What was measured.
        text: The value, the ratio, and the reference with its value.
        certainty: The interval of the ratio, or the reason why there is no interval.
        flags: Flags of the results that the point rests on.
    """

    good: bool
    title: str
    text: str
    certainty: str
    flags: tuple[str, ...]

    def __str__(self) -> str:
        flagged = f"; flagged: {', '.join(self.flags)}" if self.flags else ""
        return f"{self.title}: {self.text} ({self.certainty}{flagged})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReferenceComparison:
    """A figure beside a reference.

    Attributes:
        subject: At most one good and one bad point are shown of a subject.
        value: Value in `unit`, like `reference`. A reference without bounds counts as a constant.
        beside: The reference in words.
        limits: Performance relative to the reference: good from the first limit up, bad from the second limit down.
        note: What limits the certainty besides the interval, or "".
        published: Whether the reference is a publication; such points come last.
    """

    subject: str
    title: str
    value: MedianEstimate
    unit: str
    reference: MedianEstimate
    beside: str
    limits: tuple[float, float]
    better: str = "higher"
    note: str = ""
    flags: frozenset[str] = frozenset()
    published: bool = False

    @property
    def interval(self) -> Interval | None:
        """Return the interval of the value over the reference, at least 95 %; None if the value has no interval."""
        low, high = self.reference.bounds or (self.reference.value, self.reference.value)
        if self.value.bounds is None or low <= 0:
            return None
        return max(0.0, self.value.bounds[0]) / high, self.value.bounds[1] / low

    @property
    def performance(self) -> tuple[float, float]:
        """Return the interval of the performance over the reference; twice the same ratio without an interval."""
        ratio = self.value.value / self.reference.value
        low, high = self.interval or (ratio, ratio)
        return (low, high) if self.better != "lower" else (1 / high, 1 / low if low > 0 else math.inf)

    @property
    def is_good(self) -> bool | None:
        """Return True for a good point, False for a bad one; None if the interval includes values that are neither."""
        low, high = self.performance
        return True if low >= self.limits[0] else False if high <= self.limits[1] else None

    @property
    def beyond(self) -> float:
        """Return the distance of the point beyond its limit, as a ratio above 1."""
        ratio = self.value.value / self.reference.value
        performance = ratio if self.better != "lower" else 1 / ratio
        return performance / self.limits[0] if self.is_good else self.limits[1] / performance

    def strength(self) -> Strength:
        ratio = self.value.value / self.reference.value
        text = f"{show(self.value.value, self.unit)}, {ratio_text(ratio)}{NBSP}× {self.beside}"
        certainty = [self.note]
        if self.interval is not None and self.interval[0] < self.interval[1]:
            low, high = map(ratio_text, self.interval)
            certainty.insert(0, f"95{NBSP}%: {low} to {high}{NBSP}×")
        elif not self.note:
            certainty = ["too few samples for an interval"]
        return Strength(
            bool(self.is_good), self.title, text, "; ".join(filter(None, certainty)), tuple(sorted(self.flags))
        )


def _beside(
    subject: str,
    title: str,
    record: Record,
    reference: Record | float,
    beside: str,
    limits: tuple[float, float],
    note: str = "",
    published: bool = False,
) -> _ReferenceComparison:
    """Compare a record with another record, or with a constant in its unit."""
    reference_value = measured(reference) if isinstance(reference, Record) else _constant(reference)
    flags = record.flags | (reference.flags if isinstance(reference, Record) else frozenset())
    return _ReferenceComparison(
        subject=subject,
        title=title,
        value=measured(record),
        unit=record.unit,
        better=record.better,
        reference=reference_value,
        beside=beside,
        limits=limits,
        note=note,
        flags=flags,
        published=published,
    )


def strengths(
    records: Sequence[Record], run: RunInfo, figures: Figures, earlier: Sequence[EarlierRun] = ()
) -> list[Strength]:
    """Return at most three good and three bad points, good first, those without flags before others.

    Args:
        records: Records of the run, pooled.
        run: Facts about the run, with the facts of its host.
        figures: The figures of the records, see `card.figures`.
        earlier: Earlier runs of the same machine, newest first.
    """
    if len({(r.machine, r.source) for r in records}) != 1:
        return []  # the records are from several machines, or there are none
    candidates = [c for compare in _OWN for c in compare(records, figures, run.host)]
    if records[0].source == "host":
        candidates += [*_of_earlier(figures, earlier), *_of_papers(records, figures, run.host)]
    usable = [c for c in candidates if all(_LEAST < m.value < 1 / _LEAST for m in (c.value, c.reference))]
    judged = [c for c in usable if c.is_good is not None]
    judged.sort(key=lambda c: (bool(c.flags), c.published, -c.beyond))
    points = []
    for good in (True, False):
        subjects: dict[str, _ReferenceComparison] = {}
        for c in judged:
            if c.is_good is good:
                subjects.setdefault(c.subject, c)
        points += [c.strength() for c in [*subjects.values()][:MOST]]
    return points


def earlier_runs(records: Sequence[Record], run: RunInfo, store: Store) -> list[EarlierRun]:
    """Return the last runs of a store that started before this run, on the same host, newest first."""
    if not store.folder.is_dir() or not records or records[0].source != "host" or not run.started:
        return []
    rows = [
        row
        for row in store.runs()
        if row["machine"] == run.machine
        and row["source"] == "host"
        and row["run"] != run.run_id
        and str(row["start"] or "~") < run.started
        and {*row["instruments"]} & {r.instrument for r in records}
    ]
    sides = Sides(store, store.folder, "")
    return [
        EarlierRun(str(r["run"]), str(r["start"]), sides.run(str(r["run"])).records) for r in rows[: -_RUNS - 1 : -1]
    ]


def _constant(value: float) -> MedianEstimate:
    return MedianEstimate(value, (value, value))


def _number(facts: Mapping[str, Any], part: str, key: str) -> float:
    """Return a fact of the host as a number; 0 if it is absent."""
    section = facts.get(part)
    value = section.get(key) if isinstance(section, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _memory(records: Sequence[Record], figures: Figures, host: Mapping[str, Any]) -> Iterator[_ReferenceComparison]:
    title, triad = figures["triad_all"]
    peak = _number(host, "memory", "peak_bytes_per_s")
    if triad is not None and peak > 0:
        reference = f"the theoretical peak of the memory modules ({show(peak, 'B/s')})"
        yield _beside("bandwidth", title, triad, peak, reference, (0.8, 0.6))
    small, huge = figures["memory_latency_small_pages"], figures["memory_latency"][1]
    if small[1] is not None and huge is not None:
        reference = f"the latency with huge pages ({show(huge.value, 's')})"
        yield _beside("pages", small[0], small[1], huge, reference, (0.95, 0.8))
    # Without a knee, the record is only the highest measured bandwidth.
    knees = [r for r in records if r.metric == "knee_bandwidth" and text_of(r, "reached")[:2] != "no"]
    knee = max(knees, key=lambda r: (value_of(r, "threads"), not r.flags, r.value), default=None)
    if knee is not None and triad is not None and knee.conditions.get("threads") == triad.conditions.get("threads"):
        reference = f"the rate of triad ({show(triad.value, 'B/s')})"
        title = f"Bandwidth up to which latency stays below 1.25{NBSP}× its idle value"
        yield _beside("load", title, knee, triad, reference, (0.8, 0.4))


def _nodes(records: Sequence[Record], figures: Figures, host: Mapping[str, Any]) -> Iterator[_ReferenceComparison]:
    """Compare the farthest memory with the nearest, with the same pages."""
    nearest = figures["memory_latency"][1] or figures["memory_latency_small_pages"][1]
    if nearest is None:
        return
    others = [
        r
        for r in records
        if (r.metric, r.conditions.get("kind")) == ("level_latency", "memory")
        and all(r.conditions.get(k) == nearest.conditions.get(k) for k in ("pages", "stride_bytes", "cpu"))
        and r.conditions.get("memory_node") != nearest.conditions.get("memory_node")
    ]
    if others:
        farthest_memory = max(others, key=lambda r: r.value)
        reference = f"the nearest memory ({show(nearest.value, 's')})"
        title = f"Latency of the memory of node {farthest_memory.conditions.get('memory_node')}"
        yield _beside("nodes", title, farthest_memory, nearest, reference, (1 / 1.4, 0.5))


def _caches(records: Sequence[Record], figures: Figures, host: Mapping[str, Any]) -> Iterator[_ReferenceComparison]:
    """Compare the footprint up to which the latency of each cache holds with the reported size of the cache.

    Footprints are powers of two, so half of a size need not be bad.
    """
    for reported, level in cache_levels(records).items():
        yield _ReferenceComparison(
            subject="caches",
            title=f"Cache of {size(reported)}",
            value=_constant(value_of(level, "to_bytes")),
            unit="B",
            reference=_constant(reported),
            beside="the size that the operating system reports, up to which its latency holds",
            limits=(0.95, 0.45),
            note="footprints are powers of two",
            flags=level.flags,
        )


def _compute(records: Sequence[Record], figures: Figures, host: Mapping[str, Any]) -> Iterator[_ReferenceComparison]:
    title, peak = figures["peak_fp64"]
    dense_title, dense = figures["dgemm"]
    if peak is not None and dense is not None and dense.conditions.get("threads") == peak.conditions.get("threads"):
        reference = f"the machine's own fp64 peak ({show(peak.value, peak.unit)})"
        yield _beside("dgemm", dense_title, dense, peak, reference, (0.85, 0.6))
    single_peaks = [
        r
        for r in records
        if (r.instrument, r.metric) == ("peak", "flop_rate")
        and peak is not None
        and r.conditions.get("threads") == 1
        and all(r.conditions.get(k) == peak.conditions.get(k) for k in ("type", "isa"))
    ]
    topology = host.get("topology")
    cores = topology.get("cores") if isinstance(topology, Mapping) else None
    if single_peaks and peak is not None and isinstance(cores, list) and 1 < value_of(peak, "threads") <= len(cores):
        threads = value_of(peak, "threads")
        single = max(single_peaks, key=lambda r: (not r.flags, r.value))
        bounds = (threads * single.bounds[0], threads * single.bounds[1]) if single.bounds else None
        reference = f"the peak of one CPU ({show(single.value, single.unit)}) times {threads:g}"
        comparison = _beside("all CPUs", title, peak, single, reference, (0.95, 0.6))
        yield replace(comparison, reference=MedianEstimate(threads * single.value, bounds))
    clock, reported = figures["core_frequency"][1], _number(host, "cpu", "claimed_hz")
    if clock is not None and reported > 0:
        reference = f"the base clock that the operating system reports ({show(reported, 'Hz')})"
        yield _beside("clock", "Highest core clock", clock, reported, reference, (1.1, 0.95))


def _of_earlier(found: Figures, earlier: Sequence[EarlierRun]) -> Iterator[_ReferenceComparison]:
    """Compare each figure with the newest earlier run that has it."""
    earlier_figures = [
        (run, {key: r for key, (_, r) in figures(run.records).items() if r is not None}) for run in earlier
    ]
    for key, (title, record) in found.items():
        same = [
            (run, figure[key])
            for run, figure in earlier_figures
            if record is not None and key in figure and point_key(record) == point_key(figure[key])
        ]
        if record is not None and same:
            run, earlier_record = same[0]
            reference = (
                f"the earlier run {run.run} of {run.started[:10]} ({show(earlier_record.value, earlier_record.unit)})"
            )
            yield _beside(f"{key} over time", title, record, earlier_record, reference, _CHANGED)


def _of_papers(records: Sequence[Record], figures: Figures, host: Mapping[str, Any]) -> Iterator[_ReferenceComparison]:
    """Compare figures with the newest published machine of the class.

    The class is the same architecture and, for totals, the same number of packages.
    """
    cpu, topology = (part if isinstance(part := host.get(key), Mapping) else {} for key in ("cpu", "topology"))
    isa, packages = cpu.get("isa"), topology.get("packages")
    architecture = "x86-64" if isinstance(isa, list) and "sse2" in isa else ""
    count = len(packages) if isinstance(packages, list) else 0
    latency = farthest(records, "memory_latency") or farthest(records, "memory_latency_small_pages")
    results = [r for r in records if (r.instrument, r.metric) == ("bandwidth", "bandwidth_net")]
    results += [latency] if latency is not None else []
    levels = [r for r in records if r.metric == "level_latency"]  # they show which footprints are in memory
    for match in published_of_class(results, levels, architecture, count):
        yield _published(match)


def _published(match: PublishedPair) -> _ReferenceComparison:
    record = match.record
    latency = record.metric == "load_latency"
    quantity = "Latency" if latency else f"{str(record.conditions.get('kernel')).capitalize()} bandwidth"
    threads = value_of(record, "processes" if latency else "threads", 1)
    title = f"{quantity} at {size(value_of(record, 'footprint_bytes'))}, {threads:g} CPU{'s' if threads > 1 else ''}"
    reference = f"{match.machine} ({show(match.reference.value, match.reference.unit)})"
    note = "" if match.reference.bounds else "published without an interval"
    return _beside(quantity, title, record, match.reference, reference, _PUBLISHED, note, published=True)


_OWN: Final[tuple[Callable[[Sequence[Record], Figures, Mapping[str, Any]], Iterator[_ReferenceComparison]], ...]] = (
    _memory,
    _nodes,
    _caches,
    _compute,
)
