"""Finds results that are probably not what they are called, and says what would tell.

Each rule uses only what a run itself contains: its results, and the caches that the host claims to have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.measure.repetitions import measured, point_key
from meshmark.store.record import MODE, Record
from meshmark.values import grammar
from meshmark.values.units import NBSP, number, percent, plain, size
from meshmark.values.verdicts import ratio

PAGE: Final = 4096  # prefetchers do not cross a page of this size; bytes
ENOUGH_OF_PEAK: Final = 0.8  # share of the measured peak below which a BLAS library is not the machine's limit
FASTEST_CLOCK: Final = 10e9  # no processor has a faster one; Hz
FALL: Final = 0.1  # of a curve that should not fall, as a share
_MEMORY: Final = {"bandwidth": "footprint_bytes", "loaded": "footprint_bytes", "gups": "table_bytes"}
# Curves that should not fall, by instrument and metric: the condition along which they are taken.
_RISING: Final = {
    ("latency", "load_latency"): "footprint_bytes",
    ("loaded", "load_latency"): "chains",
}


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A result that is probably not what it is called: why, and what to do."""

    record: Record
    reason: str
    remedy: str


def lines(found: Iterable[Suspicion]) -> list[str]:
    """One line for all results of a metric that are suspicious for the same reason."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for s in found:
        groups.setdefault((s.record.instrument, s.record.metric, s.reason, s.remedy), []).append(s.record)
    texts = []
    for (instrument, metric, reason, remedy), same in groups.items():
        low, high = (plain(f(r.value for r in same), same[0].unit) for f in (min, max))
        values = low if len(same) == 1 else f"{low} to {high} ({len(same)} results)"
        texts.append(f"{instrument} {metric} {values}: {reason}; {remedy}".replace(NBSP, " "))
    return texts


def suspicious(records: Sequence[Record], topology: Mapping[str, Any]) -> list[str]:
    """The lines about the suspicious results of a run of the host with this topology."""
    return [f"suspicious: {line}" for line in lines(suspicions(records, topology.get("caches", ())))]


def suspicions(records: Sequence[Record], caches: Iterable[Mapping[str, Any]] = ()) -> list[Suspicion]:
    """Return the suspicious results of a run of a host, at most one for each series.

    Args:
        caches: Of the host's topology: level, kind, size_bytes, cpus.
    """
    own = [r for r in records if r.source == "host" and not r.metric.endswith(MODE)]
    known = [
        c
        for c in caches
        if isinstance(c, Mapping) and isinstance(c.get("size_bytes"), int) and c.get("kind") != "instruction"
    ]
    return [*_cached(own, known), *_prefetched(own, known), *_falling(own), *_slow_blas(own), *_fast_clock(own)]


def _whole(record: Record, condition: str) -> int | None:
    value = record.conditions.get(condition)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _series(records: Iterable[Record], condition: str) -> list[list[Record]]:
    """Records that differ in one condition only, ascending in it."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if _whole(record, condition) is not None:
            groups.setdefault(point_key(record, condition), []).append(record)
    return [sorted(g, key=lambda r: _whole(r, condition) or 0) for g in groups.values()]


def _cached(records: Sequence[Record], caches: Sequence[Mapping[str, Any]]) -> list[Suspicion]:
    """Memory figures whose largest footprint fits the last-level caches that the CPUs claim to have."""
    found = []
    for instrument, condition in _MEMORY.items():
        metrics = ("bandwidth_net", "update_rate")
        own = [r for r in records if r.instrument == instrument and r.metric in metrics]
        for series in _series(own, condition):
            last = series[-1]
            footprint, claimed = _whole(last, condition) or 0, _last_level(last, caches)
            if footprint <= claimed:
                found.append(
                    Suspicion(
                        last,
                        f"{size(footprint)} fit the last-level caches ({size(claimed)}), so it may not be of memory",
                        f"measure with at least {size(4 * claimed)}",
                    )
                )
    return found


def _last_level(record: Record, caches: Sequence[Mapping[str, Any]]) -> int:
    """Claimed size of all last-level caches that the CPUs of a record use, bytes; 0 if unknown."""
    level = max((int(c.get("level", 0)) for c in caches), default=0)
    text = record.conditions.get("cpus") or record.conditions.get("observed_cpus")
    cpus: set[int] = set()
    if isinstance(text, str):
        with suppress(UsageError):  # records of other tools may have anything here
            cpus = set(grammar.cpus("cpus", text))
    return sum(
        int(c.get("size_bytes") or 0)
        for c in caches
        if c.get("level") == level and (not cpus or cpus & set(c.get("cpus", ())))
    )


def _prefetched(records: Sequence[Record], caches: Sequence[Mapping[str, Any]]) -> list[Suspicion]:
    """Latencies of a constant stride within a page, beyond the first cache."""
    first = min((int(c["size_bytes"]) for c in caches if c.get("level") == 1), default=32 << 10)
    own = [
        r
        for r in records
        if (r.instrument, r.metric) == ("latency", "load_latency")
        and r.conditions.get("pattern") == "stride"
        and 0 < (_whole(r, "stride_bytes") or PAGE) < PAGE
        and (_whole(r, "footprint_bytes") or 0) > first
    ]
    return [
        Suspicion(
            series[-1],
            f"prefetchers can follow a constant stride of {_condition('stride_bytes', series[-1])}, so it may not be a "
            "latency",
            "use --pattern random",
        )
        for series in _series(own, "footprint_bytes")
    ]


def _falling(records: Sequence[Record]) -> list[Suspicion]:
    """Latencies that fall as the footprint or the load grows; the largest fall of each curve."""
    found = []
    for (instrument, metric), condition in _RISING.items():
        own = [r for r in records if (r.instrument, r.metric) == (instrument, metric)]
        for series in _series(own, condition):
            falls = [
                (after.value / before.value, before, after)
                for before, after in pairwise(series)
                if ratio(measured(after), measured(before), FALL).word == "lower"
                and after.value < before.value / (1 + FALL)
            ]
            if falls:
                share, before, after = min(falls, key=lambda f: f[0])
                shown = [_condition(condition, r) for r in (before, after)]
                found.append(
                    Suspicion(
                        after,
                        f"{number(share, 2)} of the {plain(before.value, before.unit)} at {shown[0]}, although at "
                        f"{shown[1]} it cannot be less",
                        "repeat both points together",
                    )
                )
    return found


def _condition(name: str, record: Record) -> str:
    value = _whole(record, name) or 0
    return size(value) if name.endswith("_bytes") else f"{value} {name}"


def _slow_blas(records: Sequence[Record]) -> list[Suspicion]:
    """BLAS libraries that multiply far below the measured peak; the best matrix of each library counts."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in records:
        if r.instrument == "dgemm" and r.metric == "peak_share":  # what others do has limits of its own
            key = (r.instrument, *(r.conditions.get(k) for k in ("cpus", "threads", "library", "library_kernel")))
            groups.setdefault(key, []).append(r)
    found = []
    for same in groups.values():
        best = max(same, key=lambda r: r.value)
        if best.value >= ENOUGH_OF_PEAK or best.flags:
            continue
        c = best.conditions
        tried = ", ".join(
            f"{k.removeprefix('trial_')} {plain(v, 'flop/s')}"
            for k, v in c.items()
            if k.startswith("trial_") and isinstance(v, float) and v > 0
        )
        who = f"{c.get('library')}" + (f" with its kernel {c['library_kernel']}" if c.get("library_kernel") else "")
        forced = c.get("kernel_chosen_by") == "environment"
        gain = 1 / max(best.value, 0.01)
        missing = f"; not installed: {c['library_missing']}" if c.get("library_missing") else ""
        found.append(
            Suspicion(
                best,
                f"{who} stays below {percent(ENOUGH_OF_PEAK)} of the measured peak"
                + (", which OPENBLAS_CORETYPE in the environment forces" if forced else "")
                + (f"; tried on one core: {tried}" if tried else "")
                + missing,
                "unset OPENBLAS_CORETYPE"
                if forced
                else f"a library that supports this processor (--library) may give up to {gain:.2f} times as much",
            )
        )
    return found


def _fast_clock(records: Iterable[Record]) -> list[Suspicion]:
    """Core clocks that no processor has, so that the timed additions cannot have taken a cycle each."""
    return [
        Suspicion(
            r,
            "no core has such a clock, so this processor executes several dependent additions per cycle",
            "do not use it, and report the processor to the authors of Meshmark",
        )
        for r in records
        if r.metric == "core_frequency" and r.value > FASTEST_CLOCK
    ]
