"""Charts of what ranks do among each other: halo exchange, ping-pong, swap and collectives, as those of `charts`; and
the ranking of protocols as a table of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

import altair as alt

from meshmark.report import ranking
from meshmark.report.charts import FULL, PALETTE, Row, chart_of, clearest, drawing, layered, log_axis, row, tooltip
from meshmark.report.units import number, scale_for, size
from meshmark.store.record import Record

COLLECTIVES: Final = ("allreduce", "barrier", "bcast", "reduce", "alltoall")
# Sixteen that can be told apart: those of all charts, and darker ones.
_MANY: Final = [*PALETTE, "#003B5C", "#8A3C00", "#005B43", "#8C3F66", "#9C6B00", "#1F6F9C", "#3F3F3F", "#4F3800"]
_MOST_MAPS: Final = 4  # of pairs, by size of the message
_TIME: Final = (
    "datum.value >= 1 ? format(datum.value, '~r') + ' s' : datum.value >= 1e-3 ? format(datum.value * 1e3, '~r') "
    "+ ' ms' : datum.value >= 1e-6 ? format(datum.value * 1e6, '~r') + ' µs' : format(datum.value * 1e9, '~r') + ' ns'"
)
_RATE: Final = (
    "datum.value >= 1e9 ? format(datum.value / 1e9, '~r') + ' GB/s' : datum.value >= 1e6 ? "
    "format(datum.value / 1e6, '~r') + ' MB/s' : format(datum.value / 1e3, '~r') + ' kB/s'"
)
_COUNT: Final = (
    "datum.value >= 1048576 ? datum.value / 1048576 + ' Mi{0}' : datum.value >= 1024 ? datum.value / 1024 + ' Ki{0}' "
    ": datum.value + '{1}'"
)


def _number(record: Record, key: str, fallback: float = 0.0) -> float:
    value = record.conditions.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else fallback


def _doubling(rows: Iterable[Row], title: str, unit: str = "") -> alt.X:
    """Powers of four from the least to the greatest."""
    values = [r["x"] for r in rows]
    ticks = [2**k for k in range(0, 34, 2) if min(values) <= 2**k <= max(values) * 1.01]
    label = _COUNT.format(unit, f" {unit}" if unit else "")
    return alt.X(
        "x:Q", title=title, scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=ticks or [values[0]], labelExpr=label, grid=True, labelOverlap=True),
    )  # fmt: skip


def _libraries(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(_library(r) for r in records))


def _library(record: Record) -> str:
    c = record.conditions
    return f"{c.get('library', c.get('mpi'))}, {c.get('ranks')} ranks"


def _curves(records: Sequence[Record], *keys: str) -> list[Row]:
    """Rows over the message's size of series that are named by these conditions, with their library beside."""
    rows = [
        row(r, series=", ".join(str(r.conditions[k]) for k in keys), library=_library(r),
            x=_number(r, "message_bytes"), message=size(_number(r, "message_bytes")))
        for r in records
    ]  # fmt: skip
    return sorted(clearest(rows, "library", "series", "x"), key=lambda r: r["x"])


def _overlay(rows: list[Row], title: str, label: str) -> alt.TopLevelMixin | None:
    """Curves over the message's size: of all libraries in one chart, or a panel each where they are too many."""
    if not rows:
        return None
    x, y = _doubling(rows, "message", "B"), log_axis(rows, title, label)
    libraries = list(dict.fromkeys(r["library"] for r in rows))
    if len({(r["library"], r["series"]) for r in rows}) <= len(PALETTE) or len(libraries) == 1:
        if len(libraries) > 1:
            rows = [{**r, "series": f"{r['series']}, {r['library']}"} for r in rows]
        return layered(rows, x, y, "series", ["message"])
    panels = [
        layered([r for r in rows if r["library"] == name], x, y, "series", ["message"])
        .properties(title=name, width=385, height=340)
        for name in libraries
    ]  # fmt: skip
    both: alt.TopLevelMixin = alt.concat(*panels, columns=2, spacing=24)
    return both


@drawing
def halo(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Exchange time over words, a line a protocol, dashed by paradigm; a panel a library where there are several."""
    found = [r for r in records if r.instrument == "halo" and r.metric == "exchange_time" and r.value > 0]
    if not found:
        return None
    rows = [
        row(r, x=_number(r, "words"), words=f"{_number(r, 'words'):.0f}", protocol=str(r.conditions["protocol"]),
            paradigm=str(r.conditions["paradigm"]), library=_library(r))
        for r in found
    ]  # fmt: skip
    rows = sorted(clearest(rows, "library", "protocol", "x"), key=lambda r: r["x"])
    names = list(dict.fromkeys(p for one in ranking.rankings(found) for p in one.protocols))
    colours = alt.Scale(domain=names, range=(_MANY * (1 + len(names) // len(_MANY)))[: len(names)])
    paradigms = [p for p in ("mpi", "shmem", "caf") if any(r["paradigm"] == p for r in rows)]
    dashes = alt.Scale(domain=paradigms, range=[[1, 0], [7, 3], [2, 2]][: len(paradigms)])
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke", columns=5)
    panels = []
    libraries = list(dict.fromkeys(r["library"] for r in rows))
    for panel, library in enumerate(libraries):
        mine = [r for r in rows if r["library"] == library]
        y = log_axis(rows, "time of an exchange", _TIME)
        # A click on a name leaves that line alone; there are too many to follow each.
        chosen = alt.selection_point(fields=["protocol"], bind="legend", name=f"chosen{panel}")
        shown = alt.condition(chosen, alt.value(1.0), alt.value(0.07))
        base = chart_of(mine).encode(
            x=_doubling(rows, "words of 8 bytes to each neighbour"),
            color=alt.Color("protocol:N", title=None, scale=colours, legend=legend),
            strokeDash=alt.StrokeDash("paradigm:N", title=None, scale=dashes, legend=alt.Legend(symbolType="stroke")),
        )
        band = base.mark_area(strokeWidth=0).encode(
            y=y("low"), y2="high:Q", opacity=alt.condition(chosen, alt.value(0.14), alt.value(0.02)),
            detail="protocol:N",
        )  # fmt: skip
        line = base.mark_line(strokeWidth=1.8).encode(y=y("value"), opacity=shown, detail="protocol:N")
        points = (
            chart_of(mine)
            .mark_point(size=30, filled=True, strokeWidth=1.4)
            .encode(
                x=_doubling(rows, "words of 8 bytes to each neighbour"),
                y=y("value"),
                color=alt.Color("protocol:N", scale=colours, legend=legend, title=None),
                stroke=alt.Stroke("protocol:N", scale=colours, legend=None),
                fillOpacity=FULL,
                opacity=shown,
                tooltip=tooltip("protocol", "paradigm", "words"),
            )
        )
        panels.append(alt.layer(band, line, points.add_params(chosen)))
    if len(panels) == 1:
        alone: alt.TopLevelMixin = panels[0]
        return alone
    titled = [p.properties(title=name, width=385, height=340) for p, name in zip(panels, libraries, strict=True)]
    both: alt.TopLevelMixin = alt.concat(*titled, columns=2, spacing=24)
    return both


def ranking_table(records: Sequence[Record]) -> str:
    """Tables of protocols by sizes and the stretches of their winners, as a part of the page; '' without any."""
    from meshmark.report.build import badges, grid

    parts = []
    found = ranking.rankings(records)
    for one in found:
        scales = ranking.column_scales(one)
        head = ["protocol", "over best", *(f"{s} words, {scales[s].symbol}" for s in one.sizes)]
        body = []
        for protocol in one.protocols:
            cells = [f"<td>{escape(protocol)}</td><td class=n>{one.over_best(protocol):.2f}</td>"]
            for s in one.sizes:
                r = one.cells.get((protocol, s))
                if r is None:
                    cells.append("<td class=n>–</td>")
                    continue
                factor = scales[s].factor
                text = f"{number(r.value / factor)} {ranking.half_percent(r)}"
                text = f"<b>{text}</b>" if r is one.best(s) else text
                cells.append(f"<td class=n>{text}{badges(r.flags)}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        table = grid(head, body, numbers=range(1, len(head)))
        winners = "".join(f"<li>{escape(line)}</li>" for line in ranking.told(ranking.stretches(one)))
        name = f"{escape(one.library)}, {escape(one.where)}, {escape(one.transport)}"
        parts.append(
            f"<h3>{name}</h3><ul>{winners}</ul>"
            f"<details><summary>Ranking of {len(one.protocols)} protocols: median ± half of its interval, the best of "
            f"a size in bold</summary>{table}</details>"
        )
    for a, b, ratios in ranking.comparisons(found):
        sizes = sorted({s for _, s in ratios})
        body = []
        for protocol in a.protocols:
            cells = []
            for s in sizes:
                ratio = ratios.get((protocol, s))
                text = f"{ratio.value:.2f} ({ratio.low:.2f} – {ratio.high:.2f})" if ratio else "–"
                cells.append(f"<td class=n>{f'<b>{text}</b>' if ratio and ratio.clear else text}</td>")
            if any((protocol, s) in ratios for s in sizes):
                body.append(f"<tr><td>{escape(protocol)}</td>{''.join(cells)}</tr>")
        table = grid(["protocol", *(f"{s} words" for s in sizes)], body, numbers=range(1, len(sizes) + 1))
        parts.append(
            f"<details><summary>{escape(b.library)} over {escape(a.library)}, {escape(a.where)}: ratio of times with "
            f"its interval, in bold where it is clear</summary>{table}</details>"
        )
    return "".join(parts)


def defects(records: Sequence[Record]) -> str:
    """What `defects` counted, library by library, as a part of the page; '' where it was not asked."""
    found = [r for r in records if r.instrument == "defects"]
    items = []
    for library in _libraries(found):
        mine = [r for r in found if _library(r) == library]
        wrong = [r for r in mine if r.value > 0]
        if not wrong:
            items.append(f"<li>{escape(library)}: all words of {len(mine)} trials arrived</li>")
        for r in wrong:
            c = r.conditions
            how = f"{c['trial']}, {c['protocol']} of {c['words']} words"
            shift = f", found {c['shifted_bytes']} bytes beside their place" if c.get("shifted_bytes") else ""
            items.append(f"<li>{escape(library)}: {escape(how)}: {r.value:.0f} wrong{escape(shift)}</li>")
    return f"<h3>Data that went astray</h3><ul>{''.join(items)}</ul>" if items else ""


def beside(records: Sequence[Record]) -> str:
    """What follows the chart of the halo exchange."""
    return ranking_table(records) + defects(records)


def _messages(records: Sequence[Record], metric: str) -> list[Row]:
    found = [
        r for r in records
        if r.instrument == "pingpong" and r.metric == metric and _number(r, "message_bytes") > 0 and r.value > 0
    ]  # fmt: skip
    several = len({r.conditions.get("to_rank") for r in found}) > 1
    return _curves(found, "protocol", *(["to_rank"] if several else []))


@drawing
def pingpong(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Latency of one message over its size."""
    return _overlay(_messages(records, "message_latency"), "time until it is there", _TIME)


@drawing
def pingpong_bandwidth(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Bandwidth of one message after the other over its size."""
    return _overlay(_messages(records, "bandwidth_net"), "bandwidth", _RATE)


@drawing
def swap(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Time of all pairs at once over that of one alone, over the distance of the pairs."""
    found = [r for r in records if r.instrument == "swap" and r.metric == "contention"]
    several = len(_libraries(found)) > 1
    rows = [
        row(r, x=_number(r, "distance"), distance=f"{_number(r, 'distance'):.0f}",
            series=size(_number(r, "message_bytes")) + (f", {_library(r)}" if several else ""),
            bytes=_number(r, "message_bytes"), pairs=f"{_number(r, 'pairs_at_once'):.0f}")
        for r in found
    ]  # fmt: skip
    if not rows:
        return None
    rows = sorted(clearest(rows, "series", "x"), key=lambda r: (r["bytes"], r["x"]))
    distances = sorted({r["x"] for r in rows})
    x = alt.X("x:Q", title="distance of the two ranks of a pair", scale=alt.Scale(zero=False, padding=24),
              axis=alt.Axis(values=distances, format="d", labelOverlap=True))  # fmt: skip

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="contention (1: as if alone)", scale=alt.Scale(zero=True))

    chart = layered(rows, x, y, "series", ["distance", "pairs"], band=False)
    rule = chart_of([{"y": 1.0}]).mark_rule(strokeDash=[5, 4], opacity=0.6).encode(y="y:Q")
    return alt.layer(chart, rule)


@drawing
def swap_pairs(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Exchange time of every pair alone: a map a size of message."""
    found = [
        r for r in records
        if r.instrument == "swap" and r.metric == "exchange_time" and r.conditions.get("mode") == "alone"
    ]  # fmt: skip
    ranks = range(1 + max((int(_number(r, "to_rank")) for r in found), default=0))
    side = max(80, min(420, 34 * len(ranks)))
    maps = []
    for library in _libraries(found):
        mine = [r for r in found if _library(r) == library]
        sizes = sorted({_number(r, "message_bytes") for r in mine})
        for bytes_ in sizes[:: max(1, -(-len(sizes) // _MOST_MAPS))]:
            pairs = [
                (int(_number(r, "from_rank")), int(_number(r, "to_rank")), r)
                for r in mine if _number(r, "message_bytes") == bytes_
            ]  # fmt: skip
            if len({(a, b) for a, b, _ in pairs}) > 1:  # one pair is no map
                both = [row(r, a=i, b=j, pair=f"{a} and {b}") for a, b, r in pairs for i, j in ((a, b), (b, a))]
                rows = clearest(both, "a", "b")
                title = size(bytes_) + (f", {library}" if len(_libraries(found)) > 1 else "")
                maps.append(_map(rows, list(ranks), side).properties(title=title, width=side, height=side))
    if not maps:
        return None
    drawn: alt.TopLevelMixin = alt.concat(
        *maps, columns=max(1, 1000 // (side + 160)), spacing=30
    ).resolve_scale(color="independent")  # fmt: skip
    return drawn


def _map(rows: list[Row], ranks: list[int], side: int) -> alt.LayerChart | alt.FacetChart:
    """Times by pair of ranks, as figures too where they can be read."""
    low, high = min(r["value"] for r in rows), max(r["value"] for r in rows)
    scale = scale_for("s", low)
    for r in rows:
        r["figure"] = number(r["value"] / scale.factor)
    # A difference of a few per cent must not look like black and white.
    top = max(high, 1.5 * low)
    figures = len(ranks) <= 16
    legend = None if figures else alt.Legend(orient="right", labelExpr=_TIME, gradientLength=min(side, 160))
    axis = alt.Axis(labelOverlap=True)
    base = chart_of(rows).encode(
        x=alt.X("b:O", title=f"rank; figures in {scale.symbol}" if figures else "rank", sort=ranks, axis=axis),
        y=alt.Y("a:O", title="rank", sort=ranks, axis=axis),
    )
    colours = alt.Scale(scheme="cividis", reverse=True, domain=[low, top])
    cells = base.mark_rect(strokeWidth=2, strokeDash=[3, 2]).encode(
        color=alt.Color("value:Q", title=None, scale=colours, legend=legend),
        stroke=alt.condition("datum.flagged", alt.value("#D55E00"), alt.value(None)),
        tooltip=tooltip("pair"),
    )
    if not figures:
        return alt.layer(cells)
    dark = alt.condition(f"datum.value > {low + 0.5 * (top - low)}", alt.value("white"), alt.value("black"))
    return alt.layer(cells, base.mark_text(fontSize=11).encode(text="figure:N", color=dark))


@drawing
def collectives(records: Sequence[Record]) -> alt.TopLevelMixin | None:
    """Time of a collective over the message's size, by operation and algorithm."""
    found = [
        r for r in records
        if r.instrument in COLLECTIVES and r.metric == "collective_time" and _number(r, "message_bytes") > 0
        and r.value > 0
    ]  # fmt: skip
    return _overlay(_curves(found, "operation", "algorithm"), "time of one operation", _TIME)
