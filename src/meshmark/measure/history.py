"""Compares results with earlier results of the same host in the store.

Some modes of a machine last for an hour, longer than all repetitions of a measurement. Only its history shows them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from meshmark.describe import chosen_conditions
from meshmark.measure.repetitions import point_key, with_common_plateaus
from meshmark.statistics.verdicts import alike, judge
from meshmark.store.machines import changes, machines
from meshmark.store.record import MODE_SUFFIX, Record, varying
from meshmark.store.store import Store
from meshmark.values.units import plain

LAST: Final = 5  # number of earlier runs that are considered
MIN_RUNS: Final = 2  # minimum number of earlier runs
MARGIN: Final = 0.1  # smallest departure that is reported, as a share
_SHOWN: Final = 3  # number of departures that are described in full


@dataclass(frozen=True, slots=True)
class Departure:
    """A result whose whole interval is more than `MARGIN` outside the range of the host's last runs.

    Attributes:
        earlier: Medians of the earlier runs, in the unit of the metric, oldest first.
        since: Start of the oldest of these runs, ISO 8601; "" if unknown.
    """

    record: Record
    earlier: tuple[float, ...]
    since: str = ""

    @property
    def ratio(self) -> float:
        """Return the value over the median of the earlier runs."""
        return self.record.value / median(self.earlier)

    def text(self, keys: Iterable[str] = ()) -> str:
        """Return a line such as `bandwidth_net (threads 2): 0.60 of …`, with the conditions `keys` in parentheses."""
        r = self.record
        conditions_text = ", ".join(f"{k} {r.conditions[k]}" for k in keys if r.conditions.get(k) is not None)
        result_text = f"{r.metric} ({conditions_text})" if conditions_text else r.metric
        low, high = plain(min(self.earlier), r.unit), plain(max(self.earlier), r.unit)
        return (
            f"{result_text}: {plain(r.value, r.unit)}, {self.ratio:.2f} of the last {len(self.earlier)} runs: "
            f"{low} to {high}"
        )


def departures(records: Iterable[Record], rows: Iterable[tuple[str, str, Record]], run: str) -> list[Departure]:
    """Return the results that depart from earlier results of the same point; flagged results are not judged.

    Args:
        records: Results of one run of one host, pooled.
        rows: Run, step and record of the results of this host in the store.
        run: The name of this run, which is not part of the history.
    """
    by_run: dict[str, list[Record]] = {}
    for name, _, record in rows:
        # Flagged results are not evidence, as in all verdicts.
        if name != run and record.source == "host" and not record.flags and not record.metric.endswith(MODE_SUFFIX):
            by_run.setdefault(name, []).append(record)
    records, *earlier_runs = with_common_plateaus([list(records), *by_run.values()])
    points: dict[str, dict[str, list[Record]]] = {}
    for name, same_run in zip(by_run, earlier_runs, strict=True):
        for record in same_run:
            points.setdefault(point_key(record), {}).setdefault(name, []).append(record)
    departing = []
    for record in records:
        runs = points.get(point_key(record), {}).values()
        latest = sorted(runs, key=_start)[-LAST:]
        earlier_medians = tuple(median([s for r in results for s in r.samples]) for results in latest)
        if (
            len(earlier_medians) < MIN_RUNS
            or min(earlier_medians) <= 0
            or record.flags
            or record.metric.endswith(MODE_SUFFIX)
        ):
            continue
        bounds = record.bounds
        interval = (bounds[0] / max(earlier_medians), bounds[1] / min(earlier_medians)) if bounds else None
        low, high = alike(MARGIN)
        if judge(interval, (0, high), high) == "higher" or judge(interval, (low, math.inf), low) == "lower":
            departing.append(Departure(record, earlier_medians, _start(latest[0])))
    return sorted(departing, key=lambda d: max(d.ratio, 1 / d.ratio if d.ratio > 0 else math.inf), reverse=True)


def _start(same: Sequence[Record]) -> str:
    return str(same[0].provenance.get("start", ""))


def in_store(records: Sequence[Record], store: Store, run: str) -> list[str]:
    """Return lines about the results that depart from the history in a store, and about changes of the machine since.

    Args:
        records: Results of one run, pooled.
        store: The store, with or without this run.
        run: Name of the run.
    """
    hosts = {(r.machine, r.instrument) for r in records if r.source == "host"}
    rows = [row for machine, name in sorted(hosts) for row in store.rows(machine=machine, instrument=name)]
    departing = departures(records, rows, run)
    texts = lines(departing, records)
    if since := min((d.since for d in departing if d.since), default=""):
        machine = departing[0].record.machine
        if machine_changes := changes(machines(store, machine), since):
            texts.append(f"changed on {machine} since the first of those runs: {', '.join(machine_changes)}")
    return texts


def lines(departures: Sequence[Departure], records: Sequence[Record]) -> list[str]:
    """Return a line for each of the first departures, and one line with the number of further ones.

    Args:
        departures: The departures, largest first.
        records: All results of the run; the conditions in which they differ are named.
    """
    keys = varying(chosen_conditions(records), records)
    texts = [f"departs from this host's history: {d.text(keys)}" for d in departures[:_SHOWN]]
    further_count = len(departures) - _SHOWN
    return [
        *texts,
        *([f"and {further_count} more results depart from this host's history"] if further_count > 0 else []),
    ]
