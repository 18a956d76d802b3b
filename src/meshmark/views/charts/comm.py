"""Draws charts of halo exchange, ping-pong and collectives, compares libraries, and ranks protocols.

The module `swaps` draws the charts of swaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import altair as alt

from meshmark.store.record import Record
from meshmark.values.units import show, size
from meshmark.views.charts.drawing import (
    FULL,
    PALETTE,
    Row,
    chart_of,
    clearest,
    colours,
    drawing,
    layered,
    log_axis,
    row,
    ticks,
    tooltip,
)
from meshmark.views.content import ranking
from meshmark.views.content.selection import UNKNOWN, listed, selected, text_of, value_of
from meshmark.views.render import render_sections
from meshmark.views.tables import TableSection

TIME: Final = (
    "datum.value >= 1 ? format(datum.value, '~r') + ' s' : datum.value >= 1e-3 ? format(datum.value * 1e3, '~r') "
    "+ ' ms' : datum.value >= 1e-6 ? format(datum.value * 1e6, '~r') + ' µs' : format(datum.value * 1e9, '~r') + ' ns'"
)
RATE: Final = (
    "datum.value >= 1e9 ? format(datum.value / 1e9, '~r') + ' GB/s' : datum.value >= 1e6 ? "
    "format(datum.value / 1e6, '~r') + ' MB/s' : format(datum.value / 1e3, '~r') + ' kB/s'"
)
_COUNT: Final = (
    "datum.value >= 1048576 ? datum.value / 1048576 + ' Mi{0}' : datum.value >= 1024 ? datum.value / 1024 + ' Ki{0}' "
    ": datum.value + '{1}'"
)


def doubling(rows: Iterable[Row], title: str, unit: str = "") -> alt.X:
    """Return a base-2 logarithmic axis with ticks at powers of four."""
    values = [r["x"] for r in rows]
    ticks = [2**k for k in range(0, 34, 2) if min(values) <= 2**k <= max(values) * 1.01]
    label = _COUNT.format(unit, f" {unit}" if unit else "")
    return alt.X(
        "x:Q",
        title=title,
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=ticks or [values[0]], labelExpr=label, grid=True, labelOverlap=True),
    )


def libraries_of(records: Sequence[Record]) -> list[str]:
    """Return the libraries of the records with their ranks, unique, in order of appearance."""
    return list(dict.fromkeys(library_of(r) for r in records))


def library_of(record: Record) -> str:
    """Return the name of the MPI library and the number of ranks, as the legend shows them."""
    return f"{text_of(record, 'library', 'mpi')}, {ranking.ranks_of(record).partition(',')[0]}"


def _curves(records: Sequence[Record], *keys: str) -> list[Row]:
    """Return rows over message size, each with its library and with a series named by these conditions."""
    rows = [
        row(
            r,
            series=", ".join(text_of(r, k) for k in keys),
            library=library_of(r),
            x=value_of(r, "message_bytes"),
            message=size(value_of(r, "message_bytes")),
        )
        for r in records
    ]
    return sorted(clearest(rows, "library", "series", "x"), key=lambda r: r["x"])


def _overlay(rows: list[Row], title: str, label: str) -> alt.TopLevelMixin | None:
    """Draw curves over message size: all libraries in one chart, or a panel per library if there are too many."""
    if not rows:
        return None
    x, y = doubling(rows, "message", "B"), log_axis(rows, title, label)
    libraries = list(dict.fromkeys(r["library"] for r in rows))
    if len({(r["library"], r["series"]) for r in rows}) <= len(PALETTE) or len(libraries) == 1:
        if len(libraries) > 1:
            rows = [{**r, "series": f"{r['series']}, {r['library']}"} for r in rows]
        return layered(rows, x, y, "series", ["message"])
    panels = [
        layered([r for r in rows if r["library"] == name], x, y, "series", ["message"]).properties(
            title=name, width=385, height=340
        )
        for name in libraries
    ]
    chart: alt.TopLevelMixin = alt.concat(*panels, columns=2, spacing=24)
    return chart


def _colours(records: Sequence[Record], subject: ranking.RankingSubject, best: bool = False) -> alt.Scale:
    """Return a colour scale over all measured protocols, so that each has the same colour in every chart."""
    names = list(dict.fromkeys(p for ranked in ranking.rankings(records, subject) for p in ranked.protocols))
    range_ = colours(len(names))
    if best:
        return alt.Scale(domain=[ranking.BEST, *names], range=["#B4BCC4", *range_])
    return alt.Scale(domain=names, range=range_)


@drawing
def halo(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw exchange time by words: one line per protocol, dashed by paradigm, one panel per library."""
    times = selected(records, "halo", "exchange_time", positive=("words",), texts=("protocol",), above_zero=True)
    if not times:
        return None
    rows = [
        row(
            r,
            x=value_of(r, "words"),
            words=f"{value_of(r, 'words'):.0f}",
            protocol=str(r.conditions["protocol"]),
            paradigm=text_of(r, "paradigm"),
            library=library_of(r),
        )
        for r in times
    ]
    rows = sorted(clearest(rows, "library", "protocol", "x"), key=lambda r: r["x"])
    colours = _colours(records, ranking.HALO)
    present = {r["paradigm"] for r in rows}
    paradigms = [*(p for p in ("mpi", "shmem", "caf") if p in present), *sorted(present - {"mpi", "shmem", "caf"})]
    dashes = alt.Scale(domain=paradigms, range=[[1, 0], [7, 3], [2, 2], [9, 2, 2, 2]][: len(paradigms)])
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke", columns=5)
    panels = []
    libraries = list(dict.fromkeys(r["library"] for r in rows))
    for panel, library in enumerate(libraries):
        library_rows = [r for r in rows if r["library"] == library]
        y = log_axis(rows, "time per exchange", TIME)
        # A click on a legend entry isolates its line, because there are many.
        selection = alt.selection_point(fields=["protocol"], bind="legend", name=f"chosen{panel}")
        shown = alt.condition(selection, alt.value(1.0), alt.value(0.07))
        base = chart_of(library_rows).encode(
            x=doubling(rows, "8-byte words per neighbour"),
            color=alt.Color("protocol:N", title=None, scale=colours, legend=legend),
            strokeDash=alt.StrokeDash("paradigm:N", title=None, scale=dashes, legend=alt.Legend(symbolType="stroke")),
        )
        band = base.mark_area(strokeWidth=0).encode(
            y=y("low"),
            y2="high:Q",
            opacity=alt.condition(selection, alt.value(0.14), alt.value(0.02)),
            detail="protocol:N",
        )
        line = base.mark_line(strokeWidth=1.8).encode(y=y("value"), opacity=shown, detail="protocol:N")
        points = (
            chart_of(library_rows)
            .mark_point(size=30, filled=True, strokeWidth=1.4)
            .encode(
                x=doubling(rows, "8-byte words per neighbour"),
                y=y("value"),
                color=alt.Color("protocol:N", scale=colours, legend=legend, title=None),
                stroke=alt.Stroke("protocol:N", scale=colours, legend=None),
                fillOpacity=FULL,
                opacity=shown,
                tooltip=tooltip("protocol", "paradigm", "words"),
            )
        )
        panels.append(alt.layer(band, line, points.add_params(selection)))
    if len(panels) == 1:
        single: alt.TopLevelMixin = panels[0]
        return single
    titled = [p.properties(title=name, width=385, height=340) for p, name in zip(panels, libraries, strict=True)]
    combined: alt.TopLevelMixin = alt.concat(*titled, columns=2, spacing=24)
    return combined


def _defects(records: Sequence[Record]) -> list[str]:
    """Return the results of `defects` by library, as sentences."""
    defects = [r for r in records if r.instrument == "defects"]
    items = []
    for library in libraries_of(defects):
        trials = [r for r in defects if library_of(r) == library]
        wrong = [r for r in trials if r.value > 0]
        if not wrong:
            items.append(f"{library}: all words of {len(trials)} trial{'s' * (len(trials) > 1)} arrived correctly")
        for r in wrong:
            protocol, words = text_of(r, "protocol"), text_of(r, "words")
            trial = listed(text_of(r, "trial"), protocol if words == UNKNOWN else f"{protocol} of {words} words")
            shifted = r.conditions.get("shifted_bytes")
            shift = f", shifted by {shifted} bytes" if shifted else ""
            items.append(f"{library}: {trial}: {r.value:.0f} wrong{shift}")
    return items


def halo_details(records: Sequence[Record]) -> str:
    """Render the rankings, their winners by size, and defects; "" if there are neither rankings nor defects."""
    defects = _defects(records)
    more = [TableSection("Corrupted data", lines=defects)] if defects else []
    return render_sections([*ranking.ranking_sections(records), *more])


def _messages(records: Sequence[Record], metric: str) -> list[Row]:
    # An empty message has no place on a logarithmic axis.
    sized = [r for r in records if r.conditions.get("message_bytes") != 0]
    messages = selected(sized, "pingpong", metric, positive=("message_bytes",), texts=("protocol",), above_zero=True)
    several = len({r.conditions.get("to_rank") for r in messages}) > 1
    return _curves(messages, "protocol", *(["to_rank"] if several else []))


@drawing
def pingpong(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw message latency by size."""
    return _overlay(_messages(records, "message_latency"), "message latency", TIME)


@drawing
def pingpong_bandwidth(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the bandwidth of consecutive messages by size."""
    return _overlay(_messages(records, "bandwidth_net"), "bandwidth", RATE)


@drawing
def collectives(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the time of collectives by message size, operation and algorithm."""
    subject = ranking.COLLECTIVES
    sized = [r for r in records if r.conditions.get("message_bytes") != 0]
    times = selected(
        sized, subject.instruments, subject.metric, positive=("message_bytes",), texts=subject.names, above_zero=True
    )
    return _overlay(_curves(times, "operation", "algorithm"), "time per operation", TIME)


def _ratios(records: Sequence[Record], subject: ranking.RankingSubject) -> alt.TopLevelMixin | None:
    """Draw ratios of times with two libraries: one panel per pair of libraries, one line per protocol."""
    panels: list[tuple[str, alt.LayerChart | alt.FacetChart]] = []
    for pair in ranking.comparisons(ranking.rankings(records, subject)):
        a, b, _ = pair
        rows: list[Row] = []
        for name, ratios in pair.lines.items():
            for x, ratio in ratios.items():
                if x == 0 or ratio.interval is None:
                    continue
                first, second = (a.best(x), b.best(x)) if name == ranking.BEST else (a.cells[name, x], b.cells[name, x])
                assert first is not None and second is not None
                low, high = ratio.interval
                flags = sorted(first.flags | second.flags)
                rows.append(
                    {
                        "series": name,
                        "x": x,
                        "at": subject.size_text(x),
                        "value": ratio.value,
                        "low": low,
                        "high": high,
                        "ratio": f"{ratio.value:.2f}",
                        "interval": f"{low:.2f} – {high:.2f}",
                        "first": show(first.value, "s"),
                        "second": show(second.value, "s"),
                        "flags": ", ".join(flags) or "none",
                        "flagged": bool(flags),
                    }
                )
        if len({r["x"] for r in rows}) > 1:
            colours = _colours(records, subject, best=subject is ranking.HALO)
            chart = _ratio_chart(pair, rows, colours, len(panels))
            panels.append((f"{b.library} relative to {a.library}, {a.where}", chart))
    if len(panels) < 2:
        return panels[0][1] if panels else None
    titled = [chart.properties(title=name, width=385, height=340) for name, chart in panels]
    both: alt.TopLevelMixin = alt.concat(*titled, columns=2, spacing=24).resolve_scale(color="independent")
    return both


def _ratio_chart(
    pair: ranking.LibraryComparison, rows: list[Row], colours: alt.Scale, panel: int
) -> alt.LayerChart | alt.FacetChart:
    a, b, _ = pair
    names = list(dict.fromkeys(r["series"] for r in rows))
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke", columns=5, values=names)
    selection = alt.selection_point(fields=["series"], bind="legend", name=f"compared{panel}")
    shown = alt.condition(selection, alt.value(1.0), alt.value(0.07))
    # The axis covers the ratios and clips wide bands, which would compress all lines.
    low, high = 0.8 * min([0.9, *(r["value"] for r in rows)]), 1.25 * max([1.1, *(r["value"] for r in rows)])
    scale = alt.Scale(type="log", domain=[low, high], clamp=True)
    axis = alt.Axis(values=ticks(low, high), format="~r")

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="ratio of times", scale=scale, axis=axis)

    in_words = pair.a.subject is ranking.HALO
    x = doubling(rows, *(("8-byte words per neighbour", "") if in_words else ("message", "B")))
    base = chart_of(rows).encode(x=x, color=alt.Color("series:N", title=None, scale=colours, legend=legend))
    band = base.mark_area(strokeWidth=0).encode(y=y("low"), y2="high:Q", detail="series:N")
    if len(names) > 6:  # many bands would cover each other: only the selected one is shown
        band = band.encode(opacity=alt.condition(selection, alt.value(0.2), alt.value(0.0), empty=False))
    else:
        band = band.encode(opacity=alt.condition(selection, alt.value(0.14), alt.value(0.02)))
    thick = alt.condition(f"datum.series === '{ranking.BEST}'", alt.value(9.0), alt.value(1.8))
    line = base.mark_line().encode(y=y("value"), opacity=shown, strokeWidth=thick, detail="series:N")
    titles = {"first": a.library, "second": b.library}
    tips = ("series", "at", "ratio", "interval", "first", "second", "flags")
    points = base.mark_point(size=30, filled=True, strokeWidth=1.4).encode(
        y=y("value"),
        stroke=alt.Stroke("series:N", scale=colours, legend=None),
        fillOpacity=FULL,
        opacity=shown,
        tooltip=[alt.Tooltip(f"{t}:N", title=titles.get(t, t)) for t in tips],
    )
    rule = chart_of([{"y": 1.0}]).mark_rule(strokeDash=[5, 4], opacity=0.6).encode(y=y("y"))
    notes = [
        chart_of([{"y": position, "text": f"{arrow} {library} is faster"}])
        .mark_text(align="right", baseline="middle", dx=-6, dy=dy, fontSize=12)
        .encode(x=alt.value("width"), y=y("y"), text="text:N")
        for position, arrow, library, dy in ((high, "↑", a.library, 10), (low, "↓", b.library, -10))
    ]
    return alt.layer(band, line, points.add_params(selection), rule, *notes)


@drawing
def halo_libraries(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the ratios of libraries for halo exchanges; None with fewer than two."""
    return _ratios(records, ranking.HALO)


@drawing
def pingpong_libraries(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the ratios of libraries for messages; None with fewer than two."""
    return _ratios(records, ranking.MESSAGE)


@drawing
def collectives_libraries(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Draw the ratios of libraries for collectives; None with fewer than two."""
    return _ratios(records, ranking.COLLECTIVES)
