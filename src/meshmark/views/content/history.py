"""Lays out the history of a machine, for terminals and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from meshmark.compare.history import MIN_RUNS, RATE, History, HistoryPoint, LevelChange
from meshmark.compare.pairing import identity
from meshmark.statistics.verdicts import MARGIN, MedianEstimate
from meshmark.store.record import Record, varying
from meshmark.store.series import RunValue
from meshmark.values.units import NBSP, ratio_text, scale_for, show
from meshmark.views.content.compared_rows import interval_text, named, verdict_emphasis
from meshmark.views.content.listing import conditions_text
from meshmark.views.content.selection import natural
from meshmark.views.tables import Cells, TextCell, TextTable

_DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """The changes between the same two runs, as a table.

    Attributes:
        when: Start of the last run before the changes and of the first run after them.
        facts: What else changed.
    """

    when: str
    runs: str
    facts: str
    table: TextTable


def groups(h: History) -> list[ChangeGroup]:
    """Return the changes grouped by the two runs that they are between, newest first."""
    texts = point_texts(h.points)
    result = []
    for (last, first), group in groupby(h.changes, lambda c: tuple(run.run for run in c.between)):
        changes = list(group)
        facts = dict.fromkeys(fact for c in changes for fact in c.facts)
        before, after = changes[0].between
        result.append(
            ChangeGroup(
                when=f"{when(before)} – {when(after)} UTC",
                runs=f"{last} → {first}",
                facts=", ".join(facts) or "nothing recorded",
                table=_table(changes, texts),
            )
        )
    return result


def point_texts(points: Sequence[HistoryPoint]) -> dict[int, str]:
    """Return the conditions that distinguish the points of a metric, by the identity of the point's record."""
    by_metric: dict[tuple[str, str], list[Record]] = {}
    for p in points:
        by_metric.setdefault((p.record.instrument, p.record.metric), []).append(p.record)
    texts: dict[int, str] = {}
    for records in by_metric.values():
        keys = list(dict.fromkeys(k for r in records for k in identity(r)))
        keys = varying([k for k in keys if k != "cpus" or "threads" not in keys], records)
        texts |= {id(r): conditions_text([k for k in keys if r.conditions.get(k) is not None], r) for r in records}
    return texts


def _table(changes: Sequence[LevelChange], texts: Mapping[int, str]) -> TextTable:
    """Return a row for each change, by metric and point."""
    head = ["metric", "point", "before", "95 %", "after", "95 %", "after/before", "95 %", "it is", "runs"]
    names = {id(c): (named(c.record.instrument, c.record.metric), texts[id(c.record)]) for c in changes}
    in_order = sorted(changes, key=lambda c: (names[id(c)][0], natural(names[id(c)][1])))
    rows = [_row(c, *names[id(c)]) for c in in_order]
    return TextTable(head, rows, numbers=(*range(2, 8), 9), folds=(0, 1))


def _row(c: LevelChange, metric: str, point: str) -> Cells:
    unit, scale = c.record.unit, scale_for(c.record.unit, c.before.measured.value)

    def value(side: MedianEstimate) -> tuple[str, str]:
        ends = [show(v, unit, scale).rpartition(NBSP)[0] or show(v, unit) for v in side.bounds or ()]
        return show(side.value, unit, scale), " – ".join(ends) or "–"

    better = None if c.record.better == "none" else not c.worse()
    return [
        metric,
        point or "–",
        *value(c.before.measured),
        *value(c.after.measured),
        ratio_text(c.ratio.value),
        interval_text(c.ratio.interval),
        TextCell(c.word, verdict_emphasis(better)),
        f"{len(c.before.runs)} | {len(c.after.runs)}",
    ]


def when(run: RunValue) -> str:
    """Return the start of a run in UTC, such as `2026-11-25 15:53`."""
    return run.start[:16].replace("T", " ")


# ------------------------------------------------------------------ summaries


def summary(h: History) -> str:
    """Return runs and points of a machine in one line.

    Example: `n042: 200 runs from … to … UTC, 308 points: 40 changed, 260 steady, 8 too few runs (fewer than 7)`.
    """
    runs = h.runs
    counts = ", ".join(
        f"{n} {status}" + (f" (fewer than {MIN_RUNS})" if status == "too few runs" else "")
        for status, n in h.counts().items()
    )
    span = f" from {when(runs[0])} to {when(runs[-1])} UTC" if runs else ""
    points = f"{len(h.points)} point{'s' * (len(h.points) != 1)}"
    return f"{h.machine}: {len(runs)} run{'s' * (len(runs) != 1)}{span}, {points}" + (f": {counts}" if counts else "")


def left_out(h: History) -> list[str]:
    """Return what does not take part and what is not listed, one line each."""
    texts = []
    if h.flagged:
        kinds = ", ".join(f"{flag} {n}" for flag, n in h.flags.items())
        texts.append(f"flagged results, which do not take part: {h.flagged} ({kinds})")
    if h.without_start:
        texts.append(f"results without a valid start, left out: {h.without_start}")
    if small := sum(p.small for p in h.points):
        texts.append(
            f"significant changes that are not listed: {small} (within the margin of {100 * MARGIN:g}{NBSP}%, or "
            "their intervals overlap)"
        )
    return texts


METHOD: Final = (
    "Each run gives one value per point. A change has a p-value of at most 0.001 by the test of Student or of Mann and "
    f"Whitney, corrected for the choice of its position; over all points, at most {100 * RATE:g}{NBSP}% of the changes "
    "are expected to be false (Benjamini and Yekutieli)."
)


def ages(h: History, now: datetime, stale_s: float) -> list[tuple[str, str, bool]]:
    """Return each instrument, the age of its newest result, and whether that age is stale."""
    rows = []
    for name, newest in h.newest.items():
        age = (now - newest).total_seconds()
        rows.append((name, _age(age), age > stale_s))
    return rows


def staleness(h: History, now: datetime, stale_s: float) -> str:
    """Return the ages as one line: `newest results: latency 3 days ago, lines 45 days ago (older than 30 days)`."""
    limit = f" (older than {_age(stale_s).removesuffix(' ago')})"
    texts = [f"{name} {age}{limit if stale else ''}" for name, age, stale in ages(h, now, stale_s)]
    return f"newest results: {', '.join(texts)}"


def _age(age_s: float) -> str:
    if age_s < 0:
        return "in the future"
    for length, unit in ((_DAY_S, "day"), (3600.0, "hour"), (60.0, "minute")):
        if age_s >= length:
            n = int(age_s // length)
            return f"{n} {unit}{'s' * (n != 1)} ago"
    return f"{age_s:.0f} s ago"
