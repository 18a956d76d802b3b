"""Charts of studies (`meshmark.load.studies`), from their records: one specification for the page, PNG and SVG.

As in `charts`: a function takes all records and returns a chart, or None where none of them is of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import altair as alt

from meshmark.report.charts import PALETTE, Drawn, Row, row, tooltip
from meshmark.store.record import Record

_NONE: Final = "none below 4 runs"


def _of(records: Sequence[Record], study: str, metric: str) -> list[Record]:
    return [
        r for r in records
        if r.instrument == "load" and r.metric == metric and r.conditions.get("study") == study
    ]  # fmt: skip


def _number(record: Record, key: str, fallback: float = 0.0) -> float:
    value = record.conditions.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else fallback


def _slowdown(r: Record, **more: Any) -> Row:
    """As `charts.row`, with the estimate of all runs and its interval in place of the pairs'."""
    value = _number(r, "estimate", r.value)
    low, high = _number(r, "estimate_low", value), _number(r, "estimate_high", value)
    bounds = f"{low:.3f} – {high:.3f}" if r.conditions.get("estimate_low") is not None else _NONE
    return {**row(r), "value": value, "low": low, "high": high, "median": f"{value:.3f}", "interval": bounds, **more}


def _data(name: str, rows: Sequence[Row]) -> tuple[alt.Chart, dict[str, list[Row]]]:
    return alt.Chart(alt.NamedData(name=name)), {name: list(rows)}


def _curve(rows: list[Row], x: alt.X, series: str | None = None, rule: float | None = None) -> Drawn:
    """Slowdown with its intervals; a rule where a level was looked for."""
    rows.sort(key=lambda r: (str(r.get("series", "")), r["x"]))
    base, data = _data("points", rows)
    y = alt.Y("value:Q", title="slowdown", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=8))
    colour = (
        alt.Color("series:N", title=None, scale=alt.Scale(range=PALETTE)) if series else alt.value(PALETTE[0])
    )  # fmt: skip
    base = base.encode(x=x, color=colour)
    stroke = alt.Stroke("series:N", scale=alt.Scale(range=PALETTE), legend=None) if series else alt.value(PALETTE[0])
    points = base.mark_point(size=46, filled=True, opacity=1, strokeWidth=1.5).encode(
        y=y,
        stroke=stroke,
        fillOpacity=alt.condition("datum.flagged", alt.value(0.0), alt.value(1.0)),
        tooltip=tooltip("label"),
    )
    layers: list[Any] = [
        base.mark_rule(strokeWidth=1.2).encode(y=alt.Y("low:Q", title="slowdown"), y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(y=y).transform_filter("datum.line !== false"),
        points,
    ]
    level, more = _data("level", [{"y": rule or 1.0}])
    layers.append(level.mark_rule(strokeDash=[5, 4], opacity=0.6).encode(y="y:Q"))
    return Drawn(alt.layer(*layers), {**data, **more})


_GB: Final = "format(datum.value / 1e9, '~r') + ' GB/s'"


def _gb(title: str) -> alt.X:
    return alt.X("x:Q", title=title, axis=alt.Axis(labelExpr=_GB, tickCount=8), scale=alt.Scale(zero=True))


def _counts(rows: Sequence[Row], title: str) -> alt.X:
    return alt.X("x:Q", title=title, scale=alt.Scale(zero=False, padding=24),
                 axis=alt.Axis(values=sorted({r["x"] for r in rows}), format="d", labelOverlap=True))  # fmt: skip


def shared_bus(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over what each program moves alone; dashed the level that was looked for."""
    found = _of(records, "shared_bus", "slowdown")
    if not found:
        return None
    level = 1 + max((_number(r, "threshold") for r in _of(records, "shared_bus", "crossing_rate")), default=0.1)
    rows = [
        _slowdown(r, x=_number(r, "memory_rate"), label=f"{_number(r, 'memory_rate') / 1e9:.3g} GB/s",
                  series=f"{_number(r, 'copies'):g} copies")
        for r in found
    ]  # fmt: skip
    return _curve(rows, _gb("rate of one program alone"), "series", level)


def mix(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over the part of the traffic that writes."""
    found = _of(records, "mix", "slowdown")
    rows = [_slowdown(r, x=_number(r, "write_fraction"), label=f"{_number(r, 'write_fraction'):.0%} writes")
            for r in found]  # fmt: skip
    axis = alt.Axis(format=".0%")
    return _curve(rows, alt.X("x:Q", title="part of the traffic that writes", axis=axis)) if rows else None


def isolation(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over the memory domains that are loaded."""
    rows = [_slowdown(r, x=_number(r, "domains"), label=f"{_number(r, 'domains'):g} domains")
            for r in _of(records, "isolation", "slowdown")]  # fmt: skip
    return _curve(rows, _counts(rows, "memory domains loaded")) if rows else None


def copies(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over copies of a command."""
    rows = [_slowdown(r, x=_number(r, "copies"), label=f"{_number(r, 'copies'):g} copies")
            for r in _of(records, "copies", "slowdown")]  # fmt: skip
    return _curve(rows, _counts(rows, "copies")) if rows else None


def interference_curve(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over the neighbour's rate; what was held out, to check the prediction, stands beside the line."""
    rows = [
        _slowdown(r, x=_number(r, "neighbour_rate"), label=str(r.conditions.get("neighbour", "")),
                  series="held out" if r.conditions.get("held_out") else "measured",
                  line=not r.conditions.get("held_out"))
        for r in _of(records, "interference_curve", "slowdown")
    ]  # fmt: skip
    return _curve(rows, _gb("rate of the neighbours"), "series") if rows else None


def interference_matrix(records: Sequence[Record]) -> Drawn | None:
    """A heat map: fixed work of the row's class while the column's runs beside it. Framed: flagged."""
    rows = [
        _slowdown(r, measured=str(r.conditions.get("class")), neighbour=str(r.conditions.get("neighbour")),
                  text=f"{_number(r, 'estimate', r.value):.2f}")
        for r in _of(records, "interference_matrix", "slowdown")
    ]  # fmt: skip
    if not rows:
        return None
    names = list(dict.fromkeys(r["measured"] for r in rows))
    top = max(1.1, *(r["value"] for r in rows))
    base, data = _data("cells", rows)
    base = base.encode(
        x=alt.X("neighbour:N", title="beside", sort=names, axis=alt.Axis(labelAngle=-25)),
        y=alt.Y("measured:N", title="measured", sort=names),
    )
    cells = base.mark_rect(strokeWidth=2, strokeDash=[3, 2]).encode(
        color=alt.Color("value:Q", title=None, scale=alt.Scale(scheme="cividis", reverse=True, domain=[1, top]),
                        legend=alt.Legend(orient="right", format=".2f")),
        stroke=alt.condition("datum.flagged", alt.value("#D55E00"), alt.value(None)),
        tooltip=tooltip("measured", "neighbour"),
    )  # fmt: skip
    dark = f"datum.value > {1 + 0.5 * (top - 1)}"
    texts = base.mark_text(fontSize=12).encode(
        text="text:N", color=alt.condition(dark, alt.value("white"), alt.value("black"))
    )
    return Drawn(alt.layer(cells, texts), data)


_PARTS: Final = {"user_sum": "user", "system_sum": "system", "idle": "idle or others'", "waiting_sum": "waiting"}


def _bars(rows: list[Row], x: str, title: str, order: Sequence[str], stack: bool) -> Drawn:
    base, data = _data("bars", rows)
    scale = alt.Scale(domain=list(order), range=PALETTE)
    encoded: dict[str, Any] = {
        "x": alt.X(f"{x}:N", title=None, sort=list(dict.fromkeys(r[x] for r in rows))),
        "y": alt.Y("value:Q", title=title, stack="zero" if stack else None),
        "color": alt.Color("series:N", title=None, sort=list(order), scale=scale),
        "fillOpacity": alt.condition("datum.flagged", alt.value(0.45), alt.value(1.0)),
        "tooltip": tooltip(x, "series"),
    }  # fmt: skip
    if stack:
        encoded["order"] = "rank:O"
    else:
        encoded["xOffset"] = alt.XOffset("series:N", sort=list(order))
    return Drawn(base.mark_bar(strokeWidth=1).encode(**encoded), data)


def overload(records: Sequence[Record]) -> Drawn | None:
    """What the CPUs gave (user, system, the rest), and beside it what the programs waited."""
    rows = [
        row(r, case=f"{_number(r, 'programs'):g} at once: " + ("waiting" if metric == "waiting_sum" else "CPUs"),
            series=name, rank=rank, programs=_number(r, "programs"))
        for rank, (metric, name) in enumerate(_PARTS.items())
        for r in _of(records, "overload", metric)
    ]  # fmt: skip
    rows.sort(key=lambda r: (r["programs"], r["rank"]))
    return _bars(rows, "case", "time, s", list(_PARTS.values()), stack=True) if rows else None


def omp_overload(records: Sequence[Record]) -> Drawn | None:
    """By waiting policy: how much longer, and the serialisation index alone and together."""
    rows = [_slowdown(r, policy=str(r.conditions.get("wait_policy")), series="slowdown")
            for r in _of(records, "omp_overload", "slowdown")]  # fmt: skip
    rows += [
        row(r, policy=str(r.conditions.get("wait_policy")), series=f"serialisation {r.conditions.get('company')}")
        for r in _of(records, "omp_overload", "serialisation")
    ]
    order = ["slowdown", "serialisation alone", "serialisation together"]
    return _bars(rows, "policy", "slowdown; share of the time", order, stack=False) if rows else None


STUDIES: Final[Mapping[str, tuple[str, Callable[[Sequence[Record]], Drawn | None]]]] = {
    "shared_bus": ("Programs that share a bus: slowdown over rate", shared_bus),
    "mix": ("Slowdown over the part of the traffic that writes", mix),
    "isolation": ("Slowdown over the memory domains that are loaded", isolation),
    "overload": ("More programs than CPUs: where the time goes", overload),
    "omp_overload": ("OpenMP programs among others, by OMP_WAIT_POLICY", omp_overload),
    "interference_matrix": ("Who slows down whom: slowdown of the row beside the column", interference_matrix),
    "interference_curve": ("Slowdown over a neighbour's rate", interference_curve),
    "copies": ("Slowdown over copies", copies),
}


def draw(records: Sequence[Record]) -> dict[str, Drawn]:
    """The charts that the records allow, by study."""
    made = {name: chart(records) for name, (_, chart) in STUDIES.items()}
    return {name: d for name, d in made.items() if d is not None}
