"""Compares results with those that the same host gave before, from the store.

Some modes of a machine last for an hour, longer than all repetitions of a measurement. Only its history shows them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from meshmark.measure.repetitions import point_key, same_plateaus
from meshmark.store.machines import changes, machines
from meshmark.store.record import MODE, Record, set_conditions, varying
from meshmark.store.store import Store
from meshmark.values.units import plain
from meshmark.values.verdicts import alike, judge

LAST: Final = 5  # earlier runs that count
MIN_RUNS: Final = 2  # of which at least so many are needed
MARGIN: Final = 0.1  # smallest departure, as a share
_SHOWN: Final = 3  # departures described in full


@dataclass(frozen=True, slots=True)
class Departure:
    """A result whose whole interval is more than `MARGIN` outside the range of the host's last runs.

    Attributes:
        earlier: The medians of the earlier runs, in the metric's unit, oldest first.
        since: The start of the oldest of them, ISO 8601; "" if unknown.
    """

    record: Record
    earlier: tuple[float, ...]
    since: str = ""

    @property
    def ratio(self) -> float:
        """The value over the median of the earlier runs."""
        return self.record.value / median(self.earlier)

    def text(self, keys: Iterable[str] = ()) -> str:
        """`bandwidth_net (threads 2): 0.60 of …`; `keys`: the conditions to name."""
        r = self.record
        named = ", ".join(f"{k} {r.conditions[k]}" for k in keys if r.conditions.get(k) is not None)
        where = f"{r.metric} ({named})" if named else r.metric
        low, high = plain(min(self.earlier), r.unit), plain(max(self.earlier), r.unit)
        return (
            f"{where}: {plain(r.value, r.unit)}, {self.ratio:.2f} of the last {len(self.earlier)} runs: {low} to {high}"
        )


def departures(records: Iterable[Record], rows: Iterable[tuple[str, str, Record]], run: str) -> list[Departure]:
    """The results that depart from earlier ones of the same point; flagged results are not judged.

    Args:
        records: Results of one run of one host, pooled.
        rows: Run, step and record of the store, of this host.
        run: The name of this run, which is not part of the history.
    """
    by_run: dict[str, list[Record]] = {}
    for name, _, record in rows:
        # Flagged results are no evidence, here as in all verdicts.
        if name != run and record.source == "host" and not record.flags and not record.metric.endswith(MODE):
            by_run.setdefault(name, []).append(record)
    records, *earlier_runs = same_plateaus([list(records), *by_run.values()])
    points: dict[str, dict[str, list[Record]]] = {}
    for name, same_run in zip(by_run, earlier_runs, strict=True):
        for record in same_run:
            points.setdefault(point_key(record), {}).setdefault(name, []).append(record)
    found = []
    for record in records:
        runs = points.get(point_key(record), {}).values()
        latest = sorted(runs, key=_start)[-LAST:]
        earlier = tuple(median([s for r in same for s in r.samples]) for same in latest)
        if len(earlier) < MIN_RUNS or min(earlier) <= 0 or record.flags or record.metric.endswith(MODE):
            continue
        bounds = record.bounds
        interval = (bounds[0] / max(earlier), bounds[1] / min(earlier)) if bounds else None
        low, high = alike(MARGIN)
        if judge(interval, (0, high), high) == "higher" or judge(interval, (low, math.inf), low) == "lower":
            found.append(Departure(record, earlier, _start(latest[0])))
    return sorted(found, key=lambda d: max(d.ratio, 1 / d.ratio if d.ratio > 0 else math.inf), reverse=True)


def _start(same: Sequence[Record]) -> str:
    return str(same[0].provenance.get("start", ""))


def in_store(records: Sequence[Record], store: Store, run: str) -> list[str]:
    """Departures of the results of a run from those in a store, in words, and what changed on the machine since then.

    Args:
        records: Results of one run, pooled.
        run: Its name.
    """
    hosts = {(r.machine, r.instrument) for r in records if r.source == "host"}
    rows = [row for machine, name in sorted(hosts) for row in store.rows(machine=machine, instrument=name)]
    found = departures(records, rows, run)
    texts = lines(found, records)
    if since := min((d.since for d in found if d.since), default=""):
        machine = found[0].record.machine
        if changed := changes(machines(store, machine), since):
            texts.append(f"changed on {machine} since the first of those runs: {', '.join(changed)}")
    return texts


def lines(found: Sequence[Departure], records: Sequence[Record]) -> list[str]:
    """Departures in words, the largest first.

    Args:
        records: All results; conditions in which they differ are named.
    """
    named = varying(set_conditions(records), records)
    texts = [f"departs from this host's history: {d.text(named)}" for d in found[:_SHOWN]]
    more = len(found) - _SHOWN
    return [*texts, *([f"and {more} more results depart from this host's history"] if more > 0 else [])]
