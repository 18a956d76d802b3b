"""Draws the parallel efficiency of load kernels, and names the variants that are faster than in proportion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from meshmark.errors import MeshmarkError
from meshmark.measure.repetitions import measured
from meshmark.statistics.cache_gain import UNKNOWN as NO_REASON
from meshmark.statistics.cache_gain import CacheProperties, recorded_caches, superlinear_reason
from meshmark.statistics.verdicts import Interval, ratio
from meshmark.store.record import Record
from meshmark.values import grammar
from meshmark.values.units import NBSP, counted
from meshmark.views.charts.compute_charts import variant
from meshmark.views.charts.drawing import PALETTE, chart_of, drawing
from meshmark.views.content.ranking import clearest
from meshmark.views.content.selection import selected, value_of
from meshmark.views.render import render, render_sections
from meshmark.views.tables import TableSection, TextTable

MARGIN: Final = 0.05  # range around 100 % within which an efficiency is called about 100 %
SUPER: Final = "super-linear"
ABOUT: Final = "about 100 %"
BELOW: Final = "below 100 %"
DESIGN: Final = "contends by design"
UNCLEAR: Final = "not judged"
_COLOURS: Final = {ABOUT: PALETTE[0], SUPER: PALETTE[2], BELOW: PALETTE[4], DESIGN: PALETTE[1], UNCLEAR: "#A7AFB8"}
_STEP: Final = 20  # bins per 100 %
_LAST: Final = 1.5  # the last bin has all efficiencies from this value
_POINT: Final = ("kernel", "volume_bytes", "stride")  # conditions that identify a variant, besides threads


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Rate of a thread among many over the rate of a single thread or, for team kernels, among the fewest threads.

    Attributes:
        alone: Record of reference, with one thread or, for team kernels, with the fewest measured threads.
        many: Record with `threads` threads.
        interval: Conservative 95 % interval; None if there are too few samples.
        verdict: One of the keys of the legend.
        doubt: The reason why the verdict is `not judged`; "" for other verdicts.
    """

    alone: Record
    many: Record
    threads: int
    value: float
    interval: Interval | None
    verdict: str
    doubt: str


def efficiencies(records: Sequence[Record]) -> list[Efficiency]:
    """Return the efficiency of every variant that was measured with one thread and with more, by threads and variant.

    Threads of a team kernel, such as those that contend for a line, work on each unit together and are at least two:
    their reference is the fewest threads, by operations per time, because a unit has more operations with more threads.

    An efficiency is super-linear only if its whole interval is above 100 %, and about 100 % only if its whole interval
    is within 5 % of it. Flagged variants and those with wide intervals are not judged.
    """
    results = []
    for by_threads in _points(records):
        fewest = min(by_threads)
        for threads, same in by_threads.items():
            if threads > fewest and (fewest == 1 or _is_team(same[0])):
                results.append(_efficiency(clearest(by_threads[fewest]), clearest(same)))
    return sorted(results, key=lambda e: (e.threads, str(e.many.conditions["kernel"])))


def _points(records: Sequence[Record]) -> list[dict[float, list[Record]]]:
    """Return the times of a unit of each variant by number of threads."""
    points: dict[tuple[object, ...], dict[float, list[Record]]] = {}
    for r in selected(records, "kernels", "unit_time", positive=("threads",), texts=_POINT, above_zero=True):
        key = (r.machine, *(r.conditions[k] for k in _POINT))
        points.setdefault(key, {}).setdefault(value_of(r, "threads"), []).append(r)
    return list(points.values())


def _is_team(record: Record) -> bool:
    return record.conditions.get("team") is True


def _efficiency(alone: Record, many: Record) -> Efficiency:
    reference, parallel = measured(alone), measured(many)
    speed_ratio = ratio(reference, parallel, 0.0)
    threads = int(value_of(many, "threads"))
    factor = value_of(alone, "threads") / threads
    if _is_team(many) and value_of(alone, "int_ops") > 0:
        factor *= value_of(many, "int_ops") / value_of(alone, "int_ops")
    interval = speed_ratio.interval and (speed_ratio.interval[0] * factor, speed_ratio.interval[1] * factor)
    value = speed_ratio.value * factor
    doubt = reference.excluded or parallel.excluded
    if not doubt and interval is not None and interval[0] > 1:
        verdict = SUPER
    elif many.conditions.get("kind") == "sharing":
        verdict = DESIGN
    elif doubt or interval is None:
        verdict, doubt = UNCLEAR, doubt or "too few samples"
    elif interval[0] >= 1 / (1 + MARGIN) and interval[1] <= 1 + MARGIN:
        verdict = ABOUT
    elif interval[1] < 1:
        verdict = BELOW
    else:
        verdict, doubt = UNCLEAR, "the interval contains 100 % and is wider than 5 %"
    return Efficiency(alone, many, threads, value, interval, verdict, doubt if verdict == UNCLEAR else "")


@drawing
def kernel_efficiency(records: Sequence[Record], _: Mapping[str, Any]) -> alt.TopLevelMixin | None:
    """Draw a histogram of the parallel efficiency of all kernel variants, with a panel per number of threads."""
    results = efficiencies(records)
    panels = []
    names = [name for name in _COLOURS if any(e.verdict == name for e in results)]
    scale = alt.Scale(domain=names, range=[_COLOURS[n] for n in names])
    for threads in sorted({e.threads for e in results}):
        rows = [
            # Bins are given by their edges, because rounding would assign some values to the previous bin.
            {
                "from": bin_ / _STEP,
                "to": (bin_ + 1) / _STEP,
                "verdict": verdict,
                "order": names.index(verdict),
                "variants": count,
            }
            for (bin_, verdict), count in sorted(
                Counter((_bin(e.value), e.verdict) for e in results if e.threads == threads).items()
            )
        ]
        panels.append(_panel(rows, scale).properties(title=f"{threads} threads", width=620, height=170))
    chart: alt.TopLevelMixin = alt.concat(*panels, columns=1, spacing=18)
    return chart if panels else None


def _bin(value: float) -> int:
    """Return the number of the bin of an efficiency; the last bin has all from 150 %."""
    return int(min(_LAST, value) * _STEP + 1e-9)


def _panel(rows: list[dict[str, Any]], scale: alt.Scale) -> alt.LayerChart | alt.FacetChart:
    domain = alt.Scale(domain=[0, _LAST + 1 / _STEP], nice=False)
    ticks = [k / 4 for k in range(int(4 * _LAST) + 1)]
    label = f"(datum.value < {_LAST} ? '' : '≥ ') + format(100 * datum.value, 'd') + ' %'"
    x = alt.X(
        "from:Q",
        bin="binned",
        scale=domain,
        title="parallel efficiency (100 %: linear speedup)",
        axis=alt.Axis(values=ticks, labelExpr=label),
    )
    legend = alt.Legend(symbolType="square", columns=5)
    bars = (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=x,
            x2="to:Q",
            y=alt.Y(
                "variants:Q", title="variants", stack="zero", axis=alt.Axis(tickMinStep=1, format="d", tickCount=5)
            ),
            color=alt.Color("verdict:N", title=None, scale=scale, legend=legend),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("from:Q", title="efficiency from", format=".0%"),
                alt.Tooltip("verdict:N", title="verdict"),
                alt.Tooltip("variants:Q", title="variants"),
            ],
        )
    )
    line = chart_of([{"at": 1.0}]).mark_rule(strokeDash=[5, 4], opacity=0.6).encode(x=alt.X("at:Q", scale=domain))
    return alt.layer(bars, line)


def efficiency_details(records: Sequence[Record], topology: Mapping[str, Any]) -> str:
    """Render how many variants have which verdict, and every super-linear variant with its reason."""
    results, without_efficiency = efficiencies(records), _without(records)
    if not results:
        return render("parts/sentence.html", text=without_efficiency[0]) if without_efficiency else ""
    lines = [*_doubts(results), *without_efficiency]
    sections = [TableSection("Variants by verdict", _counts(results), lines=lines)]
    if rows := _superlinear(results, topology):
        columns = ["super-linear variant", "efficiency", "95 % interval", "reason"]
        sections.append(TableSection("Super-linear variants", TextTable(columns, rows, numbers=(1, 2), folds=(0, 3))))
    return render_sections(sections)


def _counts(efficiencies: Collection[Efficiency]) -> TextTable:
    """Return the number of variants with one row per number of threads and one column per verdict."""
    columns = ["threads", *_COLOURS]
    rows = []
    for threads in sorted({e.threads for e in efficiencies}):
        count = Counter(e.verdict for e in efficiencies if e.threads == threads)
        rows.append([str(threads), *(str(count[name]) for name in _COLOURS)])
    return TextTable(columns, rows, numbers=range(1, len(columns)))


def _doubts(efficiencies: Sequence[Efficiency]) -> list[str]:
    """Return sentences about the variants that are not judged, and about the absence of super-linear variants."""
    lines = []
    if not any(e.verdict == SUPER for e in efficiencies):
        lines.append("No variant is super-linear: no interval of a variant that can be judged is wholly above 100 %.")
    doubts = Counter(e.doubt for e in efficiencies if e.verdict == UNCLEAR)
    if doubts:
        reasons = "; ".join(f"{counted(n, 'variant')}: {reason}" for reason, n in doubts.most_common())
        lines.append(f"Not judged: {reasons}.")
    return lines


def _without(records: Sequence[Record]) -> list[str]:
    """Return a sentence about the team kernels that were measured with one number of threads only, or []."""
    single = [next(iter(by_threads.values()))[0] for by_threads in _points(records) if len(by_threads) == 1]
    names = sorted({str(r.conditions["kernel"]) for r in single if _is_team(r)})
    if not names:
        return []
    return [
        f"Without an efficiency, because they need at least 2 threads and were measured with one number of threads "
        f"only: {', '.join(names)}. meshmark measure kernels --threads 1,2,all compares them with 2 threads."
    ]


def _superlinear(efficiencies: Sequence[Efficiency], topology: Mapping[str, Any]) -> list[list[str]]:
    caches = recorded_caches(topology)
    rows = []
    for e in sorted((e for e in efficiencies if e.verdict == SUPER), key=lambda e: (-e.threads, -e.value)):
        low, high = e.interval or (e.value, e.value)
        interval = f"{100 * low:.1f} – {_percent(high)}"
        rows.append([variant(e.many), _percent(e.value), interval, _reason(e, caches)])
    return rows


def _reason(e: Efficiency, caches: Sequence[CacheProperties]) -> str:
    """Return the cache level that the threads gained; the kernel's volume stands in for an unrecorded memory size."""
    cpus = [_cpus(r) for r in (e.alone, e.many)]
    if not all(cpus):
        return f"the CPUs of its threads are not recorded; {NO_REASON}"
    memory = value_of(e.many, "memory_bytes") or value_of(e.many, "volume_bytes")
    return superlinear_reason(caches, memory, cpus[0], cpus[1])


def _cpus(record: Record) -> tuple[int, ...]:
    """Return the CPUs that the threads ran on; () if they are not recorded."""
    try:
        return grammar.cpus("observed_cpus", str(record.conditions.get("observed_cpus", "")))
    except MeshmarkError:
        return ()


def _percent(share: float) -> str:
    return f"{100 * share:.1f}{NBSP}%"
