"""Selects the curves of a machine for the comparison of machines."""

from __future__ import annotations

from collections.abc import Sequence

from meshmark.store.record import Record
from meshmark.views.charts.charts import in_memory, loads_and_rates, walks
from meshmark.views.content.card import best_of
from meshmark.views.content.selection import usual_stride, value_of


def near_walk(records: Sequence[Record]) -> list[Record]:
    """Return latencies with the largest pages on the first CPU, in the nearest memory, by footprint."""
    curve = usual_stride(r for r in walks(records) if r.conditions["processes"] == 1)
    if not curve:
        return []

    def rank(r: Record) -> tuple[float, float, bool, float]:
        is_far = r.conditions.get("memory_place") != "local"
        return -value_of(r, "page_bytes"), value_of(r, "cpu"), is_far, value_of(r, "memory_node")

    first = min(map(rank, curve))
    return sorted((r for r in curve if rank(r) == first), key=lambda r: value_of(r, "footprint_bytes"))


def triads(records: Sequence[Record]) -> list[Record]:
    """Return the best triad in memory of each number of threads, ascending."""
    by_threads: dict[float, list[Record]] = {}
    for r in in_memory(records):
        if r.conditions["kernel"] == "triad" and value_of(r, "threads") >= 1:
            by_threads.setdefault(value_of(r, "threads"), []).append(r)
    best = (best_of(by_threads[n], lambda _: True) for n in sorted(by_threads))
    return [r for r in best if r is not None]


def loaded(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Return latency and bandwidth with the most threads that only read, by bandwidth."""
    pairs = [pair for pair in loads_and_rates(records) if pair[0].conditions["mode"] == "chains"]
    most = max((value_of(latency, "threads") for latency, _ in pairs), default=0)
    return sorted((pair for pair in pairs if value_of(pair[0], "threads") == most), key=lambda pair: pair[1].value)
