"""Words the comparison of two machines or runs, for terminals and pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from meshmark.compare.hops import by_hops, fit
from meshmark.compare.join import ResultComparison
from meshmark.compare.pairing import NO_METRIC
from meshmark.compare.sides import ResultSide
from meshmark.store.record import Record
from meshmark.values.units import NBSP, scale_for, show
from meshmark.views.content.compared_rows import LETTERS, named, sides_of

_PER: Final = {"": "", "thread": ", rates per thread", "clock": ", in clock cycles", "peak": ", as shares of the peak"}


def summary(c: ResultComparison) -> str:
    """Return the count of each verdict: `180 results on both: 12 slower, 168 equal (margin 2 %)`."""
    if not c.pairs:
        return "no result of A pairs with one of B"
    counts = ", ".join(f"{n} {word}" for word, n in c.counts().items())
    results = f"{len(c.pairs)} result{'s' * (len(c.pairs) != 1)} on both"
    return f"{results}{_PER[c.per]}: {counts} (margin {100 * c.margin:g}{NBSP}%)"


def reasons(c: ResultComparison) -> list[str]:
    """Return why results are not comparable or inconclusive, one line per verdict, with the count of each reason."""
    texts = []
    for word in ("not comparable", "inconclusive"):
        counts = Counter(_kind(p.reason) for p in c.pairs if p.word == word)
        if counts:
            texts.append(f"{word}: " + ", ".join(f"{reason} ({n})" for reason, n in counts.most_common()))
    return texts


def _kind(reason: str) -> str:
    """Return a reason without its side and its number."""
    kinds = {re.sub("^[AB]: ", "", part) for part in reason.split("; ")} - {""}
    kinds = {"intervals too wide" if "±" in k else "modes" if k.endswith(" modes") else k for k in kinds}
    return " and ".join(sorted(kinds)) or "the interval of the ratio includes 1"


def left_over(c: ResultComparison) -> list[str]:
    """Return the results that only one side has, as lines.

    There is one line per metric and reason with the number of results or the value of a single one, then one line
    with the metrics that the other side lacks.
    """
    texts = []
    for letter, unpaired in (("A", c.only_a), ("B", c.only_b)):
        groups: dict[tuple[str, str], list[Record]] = {}
        for u in unpaired:
            groups.setdefault((named(u.record.instrument, u.record.metric), u.reason), []).append(u.record)
        missing_metrics = {name: len(records) for (name, reason), records in groups.items() if reason == NO_METRIC}
        texts += [
            f"only in {letter}: {name}, {_values(records)}: {reason}"
            for (name, reason), records in groups.items()
            if reason != NO_METRIC
        ]
        if missing_metrics:
            names = ", ".join(f"{name} ({n})" for name, n in missing_metrics.items())
            texts.append(f"only {letter} has these metrics: {names}")
    return texts


def _values(records: Sequence[Record]) -> str:
    """Return one value or a range of values as text: `1.47 ns`, or `12 results of 1.47 ns to 98.2 ns`."""
    values, unit = sorted(r.value for r in records), records[0].unit
    texts = dict.fromkeys(show(value, unit) for value in (values[0], values[-1]))
    many = f"{len(values)} results of " if len(values) > 1 else ""
    return many + " to ".join(texts)


def published(comparisons: Sequence[ResultComparison]) -> list[str]:
    """Return where the compared numbers were published, and their known misprints, as lines."""
    records_by_side = [[p.a for c in comparisons for p in c.pairs], *([p.b for p in c.pairs] for c in comparisons)]
    lines = []
    for letter, records in zip(LETTERS, records_by_side, strict=False):
        places: dict[str, dict[str, None]] = {}
        for r in records:
            if "place" in r.provenance:
                places.setdefault(str(r.provenance["place"]), {})[named(r.instrument, r.metric)] = None
        lines += [f"{letter}: {', '.join(metrics)}: {place}" for place, metrics in places.items()]
        misprints = {str(r.provenance["misprint"]): r for r in records if "misprint" in r.provenance}
        lines += [f"{letter}: {named(r.instrument, r.metric)}: {text}" for text, r in misprints.items()]
    return lines


def with_hops(comparisons: Sequence[ResultComparison]) -> list[tuple[str, ResultSide, list[Record]]]:
    """Return the sides with their latencies by hops, with the same access pattern as A if they have measured it."""
    a_latencies = by_hops(comparisons[0].a.points)
    return [(letter, side, by_hops(side.points, a_latencies)) for letter, side in sides_of(comparisons)]


def hops_texts(comparisons: Sequence[ResultComparison]) -> list[str]:
    """Return a line for each side that has remote latencies by hops.

    Example: `A: latency of remote memory 106 ns + 36.9 ns per hop (33.6 – 40.1 ns), 15 nodes`.
    """
    lines = []
    for letter, _, latencies in with_hops(comparisons):
        if (line := fit(latencies)) is None:
            continue
        bounds = ""
        if line.interval is not None:
            low, high = (show(v, "s", scale_for("s", line.per_hop_s)) for v in line.interval)
            bounds = f" ({low.split(NBSP)[0]} – {high})"
        per_hop = f"{show(line.base_s, 's')} + {show(line.per_hop_s, 's')} per hop{bounds}"
        lines.append(f"{letter}: latency of remote memory {per_hop}, {line.points} nodes")
    return lines


def side_text(side: ResultSide) -> str:
    """Return machine, start and source of a side: `vm-2d3a42d6, 2026-11-25 15:53 UTC, run …`.

    The start of a publication is a month or a year.
    """
    start = f", {side.start[:16].replace('T', ' ')}{' UTC' if 'T' in side.start else ''}" if side.start else ""
    return f"{side.machine}{start}, {side.what}"


def lettered(comparisons: Sequence[ResultComparison]) -> list[tuple[str, ResultComparison]]:
    """Return the comparisons by the letter of the side that is compared with A."""
    return list(zip(LETTERS[1:], comparisons, strict=False))


def summaries(comparisons: Sequence[ResultComparison]) -> list[tuple[str, list[str]]]:
    """Return how many results each comparison has with each verdict, and lines that say why some have no verdict.

    If there are several comparisons, each line begins with the letter of the side.
    """
    names = [f"{letter}: " if len(comparisons) > 1 else "" for letter, _ in lettered(comparisons)]
    return [
        (name + summary(c), [name + text for text in reasons(c)]) for name, c in zip(names, comparisons, strict=True)
    ]
