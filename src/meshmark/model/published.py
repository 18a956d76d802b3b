"""Compares records of models with values that publications measured at the same points, to report known misses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from meshmark.model.statements import MachineStatement, claims, copy_5400, copy_5500_each, figure_13, table_3
from meshmark.store.record import Record
from meshmark.values.units import percent, show

_ALL_OF_MEMORY: Final = 64 << 20  # smallest footprint in bytes that no cache of these machines holds


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """A published value, and the record of a model that corresponds to it. `value` is in the SI unit of the metric."""

    statement: str
    machine: str
    instrument: str
    metric: str
    conditions: Mapping[str, object]
    value: float


def _latencies(statement: str, machine: str) -> Iterable[PublishedPoint]:
    for processes, ns in table_3(machine).items():
        conditions = {"pattern": "random", "state": "clean", "processes": processes}
        yield PublishedPoint(statement, machine, "latency", "load_latency", conditions, ns * 1e-9)


def _copies(statement: str, machine: str, totals: Mapping[str, float]) -> Iterable[PublishedPoint]:
    for cpus, gb_per_s in totals.items():
        conditions = {"kernel": "copy", "store": "streaming", "cpus": cpus}
        yield PublishedPoint(statement, machine, "bandwidth", "bandwidth_net", conditions, gb_per_s * 1e9)


def _map() -> Iterable[PublishedPoint]:
    for node, ns in enumerate(figure_13()):
        placement = {"cpu": 0, "memory_node": node}
        conditions = {"pattern": "stride", "stride_bytes": 64, "state": "clean", "processes": 1, **placement}
        yield PublishedPoint("A12", "gs1280-16", "latency", "load_latency", conditions, ns * 1e-9)


@cache
def points() -> tuple[PublishedPoint, ...]:
    """Return all published values that a model can be compared with."""
    return (
        *_map(),
        *_latencies("G09", "xeon5400"),
        *_latencies("G10", "xeon5500"),
        *_copies("G03", "xeon5400", copy_5400()),
        *_copies("G05", "xeon5500", {"0-7": 8 * copy_5500_each()[-1]}),
    )


def published(record: Record) -> PublishedPoint | None:
    """Return the published value for the point of a record; None if it was not published or the machine was changed."""
    footprint = record.conditions.get("footprint_bytes")
    if record.source != "model" or not isinstance(footprint, int) or footprint < _ALL_OF_MEMORY:
        return None
    for point in points():
        if (
            (point.machine, point.instrument, point.metric) == (record.machine, record.instrument, record.metric)
        ) and all(record.conditions.get(k) == v for k, v in point.conditions.items()):
            return point
    return None


def with_published(records: Iterable[Record]) -> list[Record]:
    """Return the records. The provenance of a record with a published value contains this value."""
    return [
        replace(r, provenance={**r.provenance, "published": point.value, "statement": point.statement})
        if (point := published(r))
        else r
        for r in records
    ]


def _tolerance(claim: MachineStatement) -> float:
    """Return the tolerance of each value as a share of 1: 0.05 for `each 5 %, rms 3 %`."""
    return float(claim.tolerance.partition(" %")[0].rpartition(" ")[2]) / 100


def misses(records: Iterable[Record]) -> list[str]:
    """Return one line for each record outside the tolerance of the statement about its point."""
    claim_by_id = {c.id: c for c in claims()}
    lines = []
    for record in records:
        point = published(record)
        if point is None:
            continue
        claim = claim_by_id[point.statement]
        if abs(record.value / point.value - 1) <= _tolerance(claim):
            continue
        conditions = ", ".join(f"{k} {v}" for k, v in point.conditions.items())
        lines.append(
            f"known miss of {record.machine} at {conditions}: measured {show(point.value, record.unit)} "
            f"({claim.document}, {claim.place}), this model predicts {show(record.value, record.unit)}, "
            f"{percent(record.value / point.value - 1)}: meshmark model validate {claim.id}"
        )
    return lines
