"""Finds results that probably do not measure what their name states, and recommends how to check them.

Each rule uses only the content of the run: its results, and the caches that the host reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.measure.repetitions import measured, point_key
from meshmark.statistics.verdicts import ratio
from meshmark.store.record import MODE_SUFFIX, Record
from meshmark.values import grammar
from meshmark.values.units import NBSP, number, percent, plain, size

PAGE: Final = 4096  # prefetchers do not cross a page of this size; bytes
ENOUGH_OF_PEAK: Final = 0.8  # share of the measured peak below which a BLAS library is not the machine's limit
FASTEST_CLOCK: Final = 10e9  # no processor has a faster clock; Hz
FALL: Final = 0.1  # smallest fall that is suspicious in a curve that should not fall, as a share
_MEMORY: Final = {"bandwidth": "footprint_bytes", "loaded": "footprint_bytes", "gups": "table_bytes"}
# Curves that should not fall, by instrument and metric: the condition along which they are taken.
_RISING: Final = {
    ("latency", "load_latency"): "footprint_bytes",
    ("loaded", "load_latency"): "chains",
}


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A result that probably does not measure what its name states, the reason, and a remedy."""

    record: Record
    reason: str
    remedy: str


def lines(suspicions: Iterable[Suspicion]) -> list[str]:
    """Return one line for all results of a metric that are suspicious for the same reason."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for s in suspicions:
        groups.setdefault((s.record.instrument, s.record.metric, s.reason, s.remedy), []).append(s.record)
    texts = []
    for (instrument, metric, reason, remedy), group in groups.items():
        low, high = (plain(f(r.value for r in group), group[0].unit) for f in (min, max))
        values = low if len(group) == 1 else f"{low} to {high} ({len(group)} results)"
        texts.append(f"{instrument} {metric} {values}: {reason}; {remedy}".replace(NBSP, " "))
    return texts


def suspicious(records: Sequence[Record], topology: Mapping[str, Any]) -> list[str]:
    """Return the lines about the suspicious results of a run on the host with this topology."""
    return [f"suspicious: {line}" for line in lines(suspicions(records, topology.get("caches", ())))]


def suspicions(records: Sequence[Record], caches: Iterable[Mapping[str, Any]] = ()) -> list[Suspicion]:
    """Return the suspicious results of a run on a host, at most one for each series.

    Args:
        records: Records of a run.
        caches: Caches in the topology of the host, with level, kind, size_bytes and cpus.
    """
    host_records = [r for r in records if r.source == "host" and not r.metric.endswith(MODE_SUFFIX)]
    data_caches = [
        c
        for c in caches
        if isinstance(c, Mapping) and isinstance(c.get("size_bytes"), int) and c.get("kind") != "instruction"
    ]
    return [
        *_cached(host_records, data_caches),
        *_prefetched(host_records, data_caches),
        *_falling(host_records),
        *_slow_blas(host_records),
        *_fast_clock(host_records),
    ]


def _whole(record: Record, condition: str) -> int | None:
    value = record.conditions.get(condition)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _series(records: Iterable[Record], condition: str) -> list[list[Record]]:
    """Group the records that differ in one condition only; each group is ordered by this condition."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if _whole(record, condition) is not None:
            groups.setdefault(point_key(record, condition), []).append(record)
    return [sorted(g, key=lambda r: _whole(r, condition) or 0) for g in groups.values()]


def _cached(records: Sequence[Record], caches: Sequence[Mapping[str, Any]]) -> list[Suspicion]:
    """Return memory results whose largest footprint fits the last-level caches that the CPUs report."""
    suspicions_ = []
    for instrument, condition in _MEMORY.items():
        metrics = ("bandwidth_net", "update_rate")
        memory_records = [r for r in records if r.instrument == instrument and r.metric in metrics]
        for series in _series(memory_records, condition):
            largest = series[-1]
            footprint, reported = _whole(largest, condition) or 0, _last_level(largest, caches)
            if footprint <= reported:
                suspicions_.append(
                    Suspicion(
                        largest,
                        f"{size(footprint)} fit the last-level caches ({size(reported)}), so it may not be of memory",
                        f"measure with at least {size(4 * reported)}",
                    )
                )
    return suspicions_


def _last_level(record: Record, caches: Sequence[Mapping[str, Any]]) -> int:
    """Return the reported size of all last-level caches that the CPUs of a record use, bytes; 0 if unknown."""
    level = max((int(c.get("level", 0)) for c in caches), default=0)
    text = record.conditions.get("cpus") or record.conditions.get("observed_cpus")
    cpus: set[int] = set()
    if isinstance(text, str):
        with suppress(UsageError):  # records of other tools may have any text here
            cpus = set(grammar.cpus("cpus", text))
    return sum(
        int(c.get("size_bytes") or 0)
        for c in caches
        if c.get("level") == level and (not cpus or cpus & set(c.get("cpus", ())))
    )


def _prefetched(records: Sequence[Record], caches: Sequence[Mapping[str, Any]]) -> list[Suspicion]:
    """Return latencies that were measured with a constant stride within a page, beyond the first-level cache."""
    first_level_bytes = min((int(c["size_bytes"]) for c in caches if c.get("level") == 1), default=32 << 10)
    strided = [
        r
        for r in records
        if (r.instrument, r.metric) == ("latency", "load_latency")
        and r.conditions.get("pattern") == "stride"
        and 0 < (_whole(r, "stride_bytes") or PAGE) < PAGE
        and (_whole(r, "footprint_bytes") or 0) > first_level_bytes
    ]
    return [
        Suspicion(
            series[-1],
            f"prefetchers can follow a constant stride of {_condition('stride_bytes', series[-1])}, so the "
            "result may not be a latency",
            "use --pattern random",
        )
        for series in _series(strided, "footprint_bytes")
    ]


def _falling(records: Sequence[Record]) -> list[Suspicion]:
    """Return latencies that fall as the footprint or the load grows, with the largest fall of each curve."""
    suspicions_ = []
    for (instrument, metric), condition in _RISING.items():
        curve_records = [r for r in records if (r.instrument, r.metric) == (instrument, metric)]
        for series in _series(curve_records, condition):
            falls = [
                (current.value / previous.value, previous, current)
                for previous, current in pairwise(series)
                if ratio(measured(current), measured(previous), FALL).word == "lower"
                and current.value < previous.value / (1 + FALL)
            ]
            if falls:
                share, previous, current = min(falls, key=lambda f: f[0])
                point_texts = [_condition(condition, r) for r in (previous, current)]
                suspicions_.append(
                    Suspicion(
                        current,
                        f"{number(share, 2)} of the {plain(previous.value, previous.unit)} at {point_texts[0]}, "
                        f"although at {point_texts[1]} it cannot be less",
                        "repeat both points together",
                    )
                )
    return suspicions_


def _condition(name: str, record: Record) -> str:
    value = _whole(record, name) or 0
    return size(value) if name.endswith("_bytes") else f"{value} {name}"


def _slow_blas(records: Sequence[Record]) -> list[Suspicion]:
    """Return results of BLAS libraries far below the measured peak; the best matrix of each library decides."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in records:
        if r.instrument == "dgemm" and r.metric == "peak_share":  # other instruments have other limits
            key = (r.instrument, *(r.conditions.get(k) for k in ("cpus", "threads", "library", "library_kernel")))
            groups.setdefault(key, []).append(r)
    suspicions_ = []
    for group in groups.values():
        best = max(group, key=lambda r: r.value)
        if best.value >= ENOUGH_OF_PEAK or best.flags:
            continue
        c = best.conditions
        trial_text = ", ".join(
            f"{k.removeprefix('trial_')} {plain(v, 'flop/s')}"
            for k, v in c.items()
            if k.startswith("trial_") and isinstance(v, float) and v > 0
        )
        library = f"{c.get('library')}" + (f" with its kernel {c['library_kernel']}" if c.get("library_kernel") else "")
        is_forced = c.get("kernel_chosen_by") == "environment"
        gain = 1 / max(best.value, 0.01)
        missing_text = f"; not installed: {c['library_missing']}" if c.get("library_missing") else ""
        suspicions_.append(
            Suspicion(
                best,
                f"{library} stays below {percent(ENOUGH_OF_PEAK)} of the measured peak"
                + (", which OPENBLAS_CORETYPE in the environment forces" if is_forced else "")
                + (f"; tried on one core: {trial_text}" if trial_text else "")
                + missing_text,
                "unset OPENBLAS_CORETYPE"
                if is_forced
                else f"a library that supports this processor (--library) may give up to {gain:.2f} times as much",
            )
        )
    return suspicions_


def _fast_clock(records: Iterable[Record]) -> list[Suspicion]:
    """Return core clocks that no processor has: the timed additions cannot have taken one cycle each."""
    return [
        Suspicion(
            r,
            "no core has such a clock, so this processor executes several dependent additions per cycle",
            "do not use it, and report the processor to the authors of Meshmark",
        )
        for r in records
        if r.metric == "core_frequency" and r.value > FASTEST_CLOCK
    ]
