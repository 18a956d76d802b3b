"""Draws charts of `swap`: contention by distance and size, and all pairs of ranks as a matrix and a ring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from meshmark.store.record import Better, Record, median
from meshmark.values.units import number, scale_for, show, size
from meshmark.views.charts.comm import RATE, TIME, libraries_of, library_of
from meshmark.views.charts.drawing import Row, chart_of, clearest, drawing, row, tooltip
from meshmark.views.content.contention import Contention, contentions
from meshmark.views.content.ranking import interval_text
from meshmark.views.content.selection import UNKNOWN, selected, value_of
from meshmark.views.render import render
from meshmark.views.tables import TextTable

# Lines in these colours are visible on light and dark pages, and white text is readable on these colours.
_GOOD_TO_BAD: Final = ("#0072B2", "#75747A", "#B84E00")
_FIGURES: Final = 16  # maximum ranks or sizes for which cells show their values
_ON_MAP: Final = 32  # maximum ranks for which lines are distinguishable
_RANKS: Final = 1 << 16  # a record with more ranks is invalid
_LATENCY: Final = 4096  # B; the ring shows times up to this size and bandwidths above it
_FAR: Final = "node distance "
_RING: Final = 1.5  # half the width of the map, relative to the radius of the ring


@dataclass(frozen=True, slots=True)
class _CpuLocation:
    """The location of a rank's CPU.

    Attributes:
        cache: Lowest CPU that shares the last-level cache; -1 if caches coincide with nodes.
    """

    cpu: int
    package: int
    node: int
    cache: int
    core: int


def _places(records: Sequence[Record], topology: Mapping[str, Any]) -> dict[int, _CpuLocation]:
    """Return locations by rank; {} unless every rank was always bound to its own CPU of this machine."""
    bindings = {str(r.conditions.get("rank_cpus")) for r in records}
    numbers_ = bindings.pop().split(",") if len(bindings) == 1 else []
    if not all(n.isdecimal() and len(n) < 10 for n in numbers_) or any(
        r.conditions.get("hosts", 1) != 1 for r in records
    ):
        return {}
    cpus = [int(n) for n in numbers_]
    parts = {c["os_index"]: c for c in topology.get("cpus") or []}
    if len({*cpus} & parts.keys()) < len(cpus) or any(value_of(r, "ranks") != len(cpus) for r in records):
        return {}
    caches = [c for c in topology.get("caches") or [] if c.get("kind") != "instruction"]
    level = max((int(c["level"]) for c in caches), default=0)
    last = [c["cpus"] for c in caches if c["level"] == level]
    nodes = [n["cpus"] for n in topology.get("nodes") or [] if n["cpus"]]
    shared = {cpu: min(group) for group in last for cpu in group} if level > 1 and len(last) > len(nodes) else {}

    def place(cpu: int) -> _CpuLocation:
        part = parts[cpu]
        node = part["node"] if isinstance(part["node"], int) else -1
        package = part["package"] if isinstance(part["package"], int) else -1
        return _CpuLocation(cpu, package, node, shared.get(cpu, -1), part["core"])

    return {rank: place(cpu) for rank, cpu in enumerate(cpus)}


def _between(a: _CpuLocation, b: _CpuLocation, topology: Mapping[str, Any]) -> tuple[int, str]:
    """Return the closest level that two CPUs share: a sort key and its name."""
    if a.core == b.core:
        return 0, "same core"
    if a.cache == b.cache != -1:
        return 1, "same cache"
    if a.node == b.node:
        return 2, "same node"
    distances, nodes = topology.get("distances"), [n["os_index"] for n in topology.get("nodes") or []]
    if isinstance(distances, list) and {a.node, b.node} <= {*nodes}:
        distance = int(distances[nodes.index(a.node)][nodes.index(b.node)])
        return 10 + distance, f"{_FAR}{distance}"
    return (3, "same package") if a.package == b.package else (4, "other package")


# ------------------------------------------------------------------ contention


def _label(distance: int, places: Mapping[int, _CpuLocation], topology: Mapping[str, Any]) -> str:
    """Return a distance of ranks as text, with the topological distance of its pairs."""
    levels = sorted(
        {
            _between(places[i], places[i + distance], topology)
            for i in places
            if i // distance % 2 == 0 and i + distance in places
        }
    )
    if not levels:
        return str(distance)
    (_, nearest), (_, farthest) = levels[0], levels[-1]
    if nearest.startswith(_FAR) and nearest != farthest:
        farthest = farthest.removeprefix(_FAR)
    return f"{distance}: {nearest}" + (f" to {farthest}" if nearest != farthest else "")


@drawing
def contention(records: Sequence[Record], topology: Mapping[str, Any]) -> alt.TopLevelMixin | None:
    """Draw a heat map of contention by distance and size for each library."""
    libraries = [library for library in contentions(records) if library.cells]
    maps = [_contention_map(library, topology, wide=len(libraries) == 1) for library in libraries]
    if not maps:
        return None
    chart: alt.TopLevelMixin = alt.concat(*maps, columns=2, spacing=30).resolve_scale(color="independent")
    return chart


def _contention_map(contention: Contention, topology: Mapping[str, Any], wide: bool) -> alt.LayerChart | alt.FacetChart:
    places = _places([r for f in contention.cells.values() for r in (f.alone, f.together)], topology)
    names = {d: _label(d, places, topology) for d in contention.distances if contention.by_size(d)}
    rows: list[Row] = []
    for (distance, bytes_), f in contention.cells.items():
        rows.append(
            {
                "distance": names[distance],
                "message": size(bytes_),
                "value": f.ratio.value,
                "contention": f"{f.ratio.value:.2f}",
                "interval": interval_text(f.ratio),
                "all_at_once": show(f.together.value, "s"),
                "alone": show(f.alone.value, "s"),
                "starts": f.starts,
                "pairs": f"{value_of(f.together, 'pairs_at_once'):.0f}",
                "flags": ", ".join(sorted(f.flags)) or "none",
                "flagged": bool(f.flags),
            }
        )
    highest = max([2.0, *(r["value"] for r in rows)])
    columns, lines = [size(s) for s in contention.sizes], list(names.values())
    # Long labels leave no room beside the axis for a title.
    y_axis = alt.Axis(
        labelOverlap=True, labelLimit=240, titleAngle=0, titleAlign="right", titleAnchor="end", titleX=-10, titleY=-8
    )
    base = chart_of(rows).encode(
        x=alt.X("message:O", title="message", sort=columns, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("distance:O", title="distance between ranks", sort=lines, axis=y_axis),
    )
    tips = ("distance", "message", "pairs", "contention", "interval", "all_at_once", "alone", "flags")
    figures = len(lines) <= 2 * _FIGURES and len(columns) <= _FIGURES
    legend = None if figures else alt.Legend(orient="right", format=".1f", gradientLength=120)
    cells = _cells(base, _scale(1, highest), legend).encode(
        tooltip=[alt.Tooltip(f"{t}:N", title=t.replace("_", " ")) for t in tips]
    )
    texts = [
        base.transform_filter(f"datum.starts === {'true' if starts else 'false'}")
        .mark_text(fontSize=12, fontWeight="bold" if starts else "normal", opacity=1 if starts else 0.7)
        .encode(text="contention:N", color=alt.value("white"))
        for starts in (True, False)
    ]
    return alt.layer(cells, *(texts if figures else [])).properties(
        title=f"{contention.library}, {contention.where}",
        width=max(150, min(760 if wide else 300, 70 * len(columns))),
        height=max(50, min(560, 26 * len(lines))),
    )


def _scale(good: float, bad: float) -> alt.Scale:
    return alt.Scale(domain=[good, (good + bad) / 2, bad], range=[*_GOOD_TO_BAD], interpolate="rgb", clamp=True)


def _cells(base: alt.Chart, scale: alt.Scale, legend: alt.Legend | None) -> alt.Chart:
    cells: alt.Chart = base.mark_rect(strokeWidth=2, strokeDash=[3, 2]).encode(
        color=alt.Color("value:Q", title=None, scale=scale, legend=legend),
        stroke=alt.condition("datum.flagged", alt.value("black"), alt.value(None)),
    )
    return cells


# ------------------------------------------------------------------ pairs


@dataclass(frozen=True, slots=True)
class _LibraryPairs:
    """All pairs of one library and message size: times of short messages or bandwidths of long messages."""

    library: str
    bytes: float
    rows: list[Row]  # one per pair, from the lower rank
    ranks: list[int]
    places: Mapping[int, _CpuLocation]
    unit: str
    better: Better

    @property
    def scale(self) -> alt.Scale:
        low, high = min(r["value"] for r in self.rows), max(r["value"] for r in self.rows)
        # Small differences must not span the whole colour scale.
        return _scale(low, max(high, 1.5 * low)) if self.better == "lower" else _scale(high, min(low, high / 1.5))

    @property
    def side(self) -> int:
        return max(190, min(420, 30 * len(self.ranks)))

    @property
    def tips(self) -> list[alt.Tooltip]:
        return tooltip("pair", "CPUs", *(["between"] if self.places else []))


def _pairs(records: Sequence[Record], topology: Mapping[str, Any]) -> list[_LibraryPairs]:
    """Return the pairs of each library with the shortest and the longest message."""
    required = ("message_bytes", "from_rank", "to_rank")
    alone = [
        r
        for metric in ("exchange_time", "bandwidth_net")
        for r in selected(
            [r for r in records if r.conditions.get("mode") == "alone"],
            "swap",
            metric,
            numbers=required,
            above_zero=True,
        )
    ]
    results = []
    for library in libraries_of(alone):
        library_records = [r for r in alone if library_of(r) == library]
        swapping_ranks = {int(value_of(r, end)) for r in library_records for end in ("from_rank", "to_rank")}
        places = _places(library_records, topology)
        places = places if swapping_ranks <= places.keys() else {}
        ranks = sorted({*range(min(_RANKS, int(value_of(library_records[0], "ranks")))), *swapping_ranks})
        for bytes_ in sorted({value_of(r, "message_bytes") for r in library_records}):
            metric = "exchange_time" if bytes_ <= _LATENCY else "bandwidth_net"
            matches = [r for r in library_records if r.metric == metric and value_of(r, "message_bytes") == bytes_]
            rows = []
            for r in matches:
                a, b = int(value_of(r, "from_rank")), int(value_of(r, "to_rank"))
                level, between = _between(places[a], places[b], topology) if places else (0, "")
                unbound = "not bound" if topology else UNKNOWN
                cpus = f"{places[a].cpu} and {places[b].cpu}" if places else unbound
                rows.append(row(r, a=a, b=b, pair=f"ranks {a} and {b}", CPUs=cpus, between=between, level=level))
            if rows:
                results.append(
                    _LibraryPairs(
                        library, bytes_, clearest(rows, "a", "b"), ranks, places, matches[0].unit, matches[0].better
                    )
                )
    ends = {(p.library, f(q.bytes for q in results if q.library == p.library)) for p in results for f in (min, max)}
    return [p for p in results if (p.library, p.bytes) in ends]


@drawing
def pairs(records: Sequence[Record], topology: Mapping[str, Any]) -> alt.TopLevelMixin | None:
    """Draw all pairs, as a matrix and as lines on a ring."""
    results = _pairs(records, topology)
    several = len({p.library for p in results}) > 1
    panels = []
    for p in results:
        flags = frozenset.intersection(*(frozenset(r["flags"].split(", ")) for r in p.rows)) - {"none"}
        title = size(p.bytes) + (f", {p.library}" if several else "")
        title += f"; all {', '.join(sorted(flags))}" if flags else ""
        if len(p.rows) > 1:  # a matrix of one pair shows nothing
            panels.append(_matrix(p).properties(title=title, width=p.side, height=p.side))
        if len(p.ranks) <= _ON_MAP:
            panels.append(_ring(p).properties(title=title, width=p.side, height=p.side if len(p.ranks) > 2 else 80))
    if not panels:
        return None
    columns = max(1, 1000 // (results[0].side + 75))
    columns -= columns % 2 if columns > 1 else 0  # keep each matrix and its ring on one row
    chart: alt.TopLevelMixin = alt.concat(*panels, columns=columns, spacing=26).resolve_scale(
        color="independent", x="independent", y="independent"
    )
    return chart


def _matrix(p: _LibraryPairs) -> alt.LayerChart | alt.FacetChart:
    rows = [{**r, "a": i, "b": j} for r in p.rows for i, j in ((r["a"], r["b"]), (r["b"], r["a"]))]
    scale = scale_for(p.unit, max(r["value"] for r in rows))  # a common unit keeps the values short
    for r in rows:
        r["figure"] = number(r["value"] / scale.factor, 2 if len(p.ranks) > 8 else 3)
    figures = len(p.ranks) <= _FIGURES
    legend = None if figures else _legend(p)
    axis = alt.Axis(labelOverlap=True)
    base = chart_of(rows).encode(
        x=alt.X("b:O", title=f"rank; values in {scale.symbol}" if figures else "rank", sort=p.ranks, axis=axis),
        y=alt.Y("a:O", title="rank", sort=p.ranks, axis=axis),
    )
    cells = _cells(base, p.scale, legend).encode(tooltip=p.tips)
    text = base.mark_text(fontSize=11).encode(text="figure:N", color=alt.value("white"))
    return alt.layer(cells, *([text] if figures else []))


def _legend(p: _LibraryPairs) -> alt.Legend:
    return alt.Legend(
        orient="bottom",
        direction="horizontal",
        tickCount=3,
        gradientLength=min(p.side, 190),
        labelSeparation=12,
        labelExpr=(TIME if p.unit == "s" else RATE).replace("'~r'", "'.3~r'"),
    )


def _ring(p: _LibraryPairs) -> alt.LayerChart | alt.FacetChart:
    """Draw ranks on a ring in the order of the machine's topology, with one line per pair."""

    def key(rank: int) -> tuple[int, ...]:
        place = p.places.get(rank)
        return (place.package, place.node, place.cache, place.core, place.cpu) if place else (rank,)

    order = sorted(p.ranks, key=key)
    groups: dict[tuple[int, int], list[int]] = {}
    for rank in order:
        place = p.places.get(rank)
        groups.setdefault((place.package, place.node) if place else (0, 0), []).append(rank)
    slots = len(order) + (len(groups) if len(groups) > 1 else 0)
    angles: dict[int, float] = {}
    slot = 0
    for ranks in groups.values():
        for rank in ranks:
            angles[rank] = math.pi * (1 - 2 * slot / slots)  # clockwise from the left
            slot += 1
        slot += len(groups) > 1

    def point(angle: float, radius: float) -> Row:
        return {"x": radius * math.cos(angle), "y": radius * math.sin(angle)}

    def axis(field: str, half: float) -> dict[str, Any]:
        return {"shorthand": f"{field}:Q", "axis": None, "scale": alt.Scale(domain=[-half, half], nice=False)}

    x, y = alt.X(**axis("x", _RING)), alt.Y(**axis("y", _RING if len(order) > 2 else 0.6))
    # Draw the worst pairs first, so that the short, good lines of neighbours are on top.
    lines = sorted(p.rows, key=lambda r: r["value"], reverse=p.better == "lower")
    lines = [
        {**r, **point(angles[r["a"]], 1), "x2": math.cos(angles[r["b"]]), "y2": math.sin(angles[r["b"]])} for r in lines
    ]
    few_lines = len(lines) <= 3
    width = 4 if few_lines else 2.5 if len(lines) <= 60 else 1.6 if len(lines) <= 150 else 0.7
    some_flagged = {r["flagged"] for r in lines} == {True, False}  # if all pairs are flagged, the title says so
    links = (
        chart_of(lines)
        .mark_rule(strokeWidth=width, opacity=0.9)
        .encode(
            x=x,
            y=y,
            x2="x2:Q",
            y2="y2:Q",
            color=alt.Color("value:Q", title=None, scale=p.scale, legend=None if few_lines else _legend(p)),
            strokeDash=alt.condition("datum.flagged", alt.value([4, 3] if some_flagged else [1, 0]), alt.value([1, 0])),
            tooltip=p.tips,
        )
    )
    dot = min(20.0, 0.62 * p.side / _RING * math.pi / slots)
    marks = chart_of([{**point(angles[r], 1), "rank": str(r)} for r in order]).encode(x=x, y=y)
    dots = marks.mark_point(shape="circle", filled=True, size=dot * dot, opacity=1, color="#5D6670")
    layers: list[Any] = [links, dots]
    if dot >= 11:
        layers.append(marks.mark_text(fontSize=min(11.0, 0.6 * dot)).encode(text="rank:N", color=alt.value("white")))
    if p.places:
        step = math.pi / slots
        arcs, names = [], []
        for n, ((package, node), ranks) in enumerate(groups.items()):
            first, last = angles[ranks[0]] + 0.8 * step, angles[ranks[-1]] - 0.8 * step
            arcs += [{**point(first + (last - first) * k / 24, 1.16), "group": n, "at": k} for k in range(25)]
            name = f"node {node}" if node >= 0 else f"package {package}"
            names.append({**point((first + last) / 2, 1.33), "name": name})
        if len(groups) > 1:
            layers.append(
                chart_of(arcs)
                .mark_line(strokeWidth=3, opacity=0.55, color="#5D6670")
                .encode(x=x, y=y, detail="group:N", order="at:Q")
            )
            layers.append(chart_of(names).mark_text(fontSize=11).encode(x=x, y=y, text="name:N"))
    if few_lines:
        middles = [{"x": (r["x"] + r["x2"]) / 2, "y": (r["y"] + r["y2"]) / 2, "text": r["median"]} for r in lines]
        layers.append(chart_of(middles).mark_text(fontSize=13, dy=-12).encode(x=x, y=y, text="text:N"))
        if len(order) == 2 and p.places:
            cpus = [{**point(angles[r], 1), "text": f"CPU {p.places[r].cpu}"} for r in order]
            layers.append(chart_of(cpus).mark_text(fontSize=11, dy=20).encode(x=x, y=y, text="text:N"))
    return alt.layer(*layers)


def pair_details(records: Sequence[Record], topology: Mapping[str, Any]) -> str:
    """Render times or bandwidths by topological distance; "" if there are no pairs."""
    results = _pairs(records, topology)
    if not results:
        return ""
    rows = []
    for p in results:
        for level, between in sorted({(r["level"], r["between"]) for r in p.rows if p.places}):
            values = [r["value"] for r in p.rows if r["level"] == level]
            scale = scale_for(p.unit, median(values))
            low, high = (show(f(values), p.unit, scale) for f in (min, max))
            median_text = show(median(values), p.unit, scale)
            rows.append([p.library, size(p.bytes), between, str(len(values)), median_text, f"{low} – {high}"])
    columns = ["library", "message", "distance", "pairs", "median", "range"]
    reason = "Ranks were not bound to one CPU each" if topology else "The machine's topology is not recorded"
    return render("parts/pairs.html", table=TextTable(columns, rows, numbers=(3, 4, 5)), why=reason)
