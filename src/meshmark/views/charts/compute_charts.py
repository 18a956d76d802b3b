"""Draws charts of compute records: peak and libraries, the roofline, rates of load kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from meshmark.store.record import Record
from meshmark.values.units import percent, show
from meshmark.views.charts.charts import bars, in_memory
from meshmark.views.charts.drawing import (
    FULL,
    PALETTE,
    Row,
    chart_of,
    clearest,
    condition_text,
    drawing,
    row,
    sized,
    ticks,
    tooltip,
)
from meshmark.views.content.selection import listed, number, selected, text_of, value_of

_DENSE = ("peak", "dgemm", "linpack", "mod2d", "mod2e", "fft")  # in this order


@drawing
def compute(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw rates of peak, linear algebra and transforms, with their shares of the peak measured at the same time."""
    rates = [r for r in selected(records, (), "flop_rate", numbers=("threads",)) if r.instrument in _DENSE]
    if not rates:
        return None
    peak_shares = {_point(r): percent(r.value) for r in selected(records, (), "peak_share", numbers=("threads",))}
    rows = []
    for r in rates:
        settings = [str(v) for k in ("type", "isa") if (v := r.conditions.get(k)) is not None]
        settings += [f"{k}={r.conditions[k]}" for k in ("n", "edge") if number(r, k) is not None]
        settings += [str(v) for k in ("shape", "numbering") if (v := r.conditions.get(k)) is not None]
        library = [str(v) for k in ("library", "library_kernel") if (v := r.conditions.get(k))]
        rows.append(
            row(
                r,
                what=" ".join([r.instrument, *settings]),
                series=condition_text("threads", r.conditions["threads"]),
                threads=value_of(r, "threads"),
                library=" ".join(library) or "–",
                of_peak=peak_shares.get(_point(r), "–"),
                share=peak_shares.get(_point(r), ""),
                n=value_of(r, "n"),
            )
        )
    rows = clearest(rows, "what", "series")
    rows.sort(key=lambda r: (_DENSE.index(r["what"].split()[0]), r["n"], r["what"], r["threads"]))
    label = "format(datum.value / 1e9, '~r') + ' GFLOP/s'"
    order, tips = list(dict.fromkeys(r["what"] for r in rows)), ["what", "series", "library", "of_peak"]
    return bars(rows, "what", order, "rate", label, tips, text="share")


def _point(record: Record) -> tuple[str, ...]:
    """Return what a rate and its share of the peak have in common."""
    keys = ("n", "threads", "cpus", "library", "library_kernel")
    return (record.machine, record.instrument, *(str(record.conditions.get(k)) for k in keys))


_RATIO = "datum.value < 1 ? '1/' + 1 / datum.value : datum.value"


@drawing
def roofline(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the measured ceilings: best fp64 rate and best net bandwidth, with one thread and with all."""
    peaks = selected(records, "peak", "flop_rate", positive=("threads",), texts=("type",), above_zero=True)
    peaks = [r for r in peaks if r.conditions["type"] == "fp64"]
    streams = [r for r in in_memory(records) if r.conditions["kernel"] == "triad"]
    rows: list[Row] = []
    marks: list[Row] = []
    for threads in sorted({value_of(r, "threads") for r in peaks}):
        peak = max((r for r in peaks if r.conditions["threads"] == threads), key=lambda r: r.value)
        triads = [r for r in streams if r.conditions["threads"] == threads]
        if not triads:
            continue
        triad = max(triads, key=lambda r: r.value)
        ridge = peak.value / triad.value
        label = condition_text("threads", peak.conditions["threads"])
        name = f"{label}: {show(peak.value, 'flop/s')}, {show(triad.value, 'B/s')}"
        rows += [
            {"intensity": i, "rate": min(peak.value, triad.value * i), "series": name} for i in (2**-5, ridge, 2**6)
        ]
        marks.append(
            {"intensity": ridge, "rate": peak.value, "series": name, "label": f"balance {ridge:.2g} flop/byte"}
        )
    if not rows:
        return None
    color = alt.Color("series:N", title=None, scale=alt.Scale(range=PALETTE), sort=None)
    x = alt.X(
        "intensity:Q",
        title="arithmetic intensity, flop/byte",
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=[2.0**k for k in range(-5, 7)], labelExpr=_RATIO),
    )
    low, high = 0.8 * min(r["rate"] for r in rows), 1.6 * max(r["rate"] for r in rows)
    axis = alt.Axis(labelExpr="format(datum.value / 1e9, '~r') + ' GFLOP/s'", values=ticks(low, high))
    y = alt.Y("rate:Q", title="attainable rate", scale=alt.Scale(type="log", domain=[low, high]), axis=axis)
    line = chart_of(rows).mark_line(strokeWidth=2.5).encode(x=x, y=y, color=color)
    base = chart_of(marks).encode(x=x, y=y, color=color)
    labels = base.mark_text(dy=14, dx=6, align="left").encode(text="label:N")
    return alt.layer(line, base.mark_point(filled=True, size=60), labels)


def _rate(record: Record, *counts: str) -> float:
    """Return the sum of these counts per unit of work, divided by the time of a unit."""
    return sum(value_of(record, c) for c in counts) / record.value


def variant(record: Record) -> str:
    """Return kernel, volume, stride and threads of a load kernel's record as text."""
    c = record.conditions
    volume = "no data" if c.get("volume_bytes") == 0 else sized(record, "volume_bytes")
    return listed(
        str(c["kernel"]), volume, *(condition_text(k, v) for k in ("stride", "threads") if (v := c.get(k)) is not None)
    )


@drawing
def kernel_rates(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw all variants of the load kernels: arithmetic rate over line traffic."""
    times = selected(records, "kernels", "unit_time", texts=("kernel", "kind"), above_zero=True)
    if not times:
        return None
    rows = [
        row(
            r,
            x=_rate(r, "line_read_bytes", "line_write_bytes") / 1e9,
            y=_rate(r, "flops") / 1e9,
            kind=str(r.conditions["kind"]),
            level=text_of(r, "served_by"),
            what=variant(r),
        )
        for r in times
    ]
    kinds = sorted({r["kind"] for r in rows})
    # Symlog scale, because many kernels do no arithmetic.
    marks = [0, 0.1, 1, 10, 100, 1000]

    def axis(field: str, title: str, unit: str) -> dict[str, Any]:
        return {
            "shorthand": f"{field}:Q",
            "title": title,
            "scale": alt.Scale(type="symlog", constant=0.1),
            "axis": alt.Axis(values=marks, labelExpr=f"datum.value + ' {unit}'"),
        }

    colours = alt.Scale(domain=kinds, range=[*PALETTE, "#000000", "#B0B000", "#A05195"][: len(kinds)])
    chart: alt.Chart = (
        chart_of(rows)
        .mark_point(filled=True, size=34, opacity=0.75, strokeWidth=1.2)
        .encode(
            x=alt.X(**axis("x", "line traffic", "GB/s")),
            y=alt.Y(**axis("y", "arithmetic rate", "GFLOP/s")),
            fill=alt.Fill("kind:N", title="kind", scale=colours, legend=alt.Legend(symbolType="circle", columns=5)),
            stroke=alt.Stroke("kind:N", title="kind", scale=colours, legend=None),
            shape=alt.Shape("level:N", title="served by", sort=["L1", "L2", "L3", "memory"]),
            fillOpacity=FULL,
            tooltip=tooltip("what", "level"),
        )
    )
    return chart
