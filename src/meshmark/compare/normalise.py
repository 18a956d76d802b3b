"""Divides results by what machines differ in: threads, the clock, or the theoretical peak of the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from meshmark.compare.sides import ResultSide
from meshmark.errors import UsageError, quoted
from meshmark.store.record import Record

Per = Literal["", "thread", "clock", "peak"]
PER: Final[tuple[Per, ...]] = ("thread", "clock", "peak")
_OF_MEMORY: Final = ("bandwidth", "loaded")  # instruments whose rates the memory's peak limits


def normalised(side: ResultSide, per: Per) -> ResultSide:
    """Return a side whose values are divided.

    Args:
        per: `thread`: rates per thread. `clock`: times in cycles of the measured clock, and rates per cycle. `peak`:
            rates of memory as a share of the theoretical peak. `""`: values as they are.

    Raises:
        UsageError: The side has no clock or no peak.
    """
    if per == "clock":
        return _per_clock(side)
    if per == "peak":
        return _per_peak(side)
    return replace(side, records=[_per_thread(r) for r in side.records]) if per == "thread" else side


def _scaled(record: Record, factor: float, unit: str) -> Record:
    bounds = {
        k: value * factor for k in ("run_low", "run_high") if isinstance(value := record.conditions.get(k), int | float)
    }
    interval = record.interval
    return replace(
        record,
        unit=unit,
        value=record.value * factor,
        samples=tuple(s * factor for s in record.samples),
        interval=None if interval is None else (interval[0] * factor, interval[1] * factor),
        conditions={**record.conditions, **bounds},
    )


def _per_thread(record: Record) -> Record:
    threads = record.conditions.get("threads")
    if not record.unit.endswith("/s") or not isinstance(threads, int) or threads < 1:
        return record
    return _scaled(record, 1 / threads, record.unit)


def _per_clock(side: ResultSide) -> ResultSide:
    """Return a side with times in cycles of the measured clock, and rates per cycle."""
    clocks = [r.value for r in side.points if r.metric == "core_frequency" and r.value > 0]
    if not clocks:
        raise UsageError(
            f"--per clock: found no core_frequency of {quoted(side.name)}", "meshmark measure clock measures it"
        )
    clock = max(clocks)

    def cycles(r: Record) -> Record:
        if r.unit == "s":
            return _scaled(r, clock, "cycles")
        return _scaled(r, 1 / clock, f"{r.unit[:-2]}/cycle") if r.unit.endswith("/s") else r

    return replace(side, records=[cycles(r) for r in side.records])


def _per_peak(side: ResultSide) -> ResultSide:
    def peak(r: Record) -> float | None:
        published_peak = r.provenance.get("peak")  # a publication may give one for each arrangement of its memory
        return float(published_peak) if isinstance(published_peak, int | float) else side.peak

    records = [
        _scaled(r, 1 / limit, "1")
        for r in side.records
        if r.instrument in _OF_MEMORY and r.unit == "B/s" and (limit := peak(r)) is not None
    ]
    if not records:
        raise UsageError(
            f"--per peak: found no theoretical peak of the memory of {quoted(side.name)}",
            "it is known for models, publications, and hosts whose firmware describes their memory",
        )
    return replace(side, records=records)
