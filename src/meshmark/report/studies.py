"""Charts of studies (`meshmark.load.studies`), from their records: one specification for the page, PNG and SVG.

As in `charts`: a function takes all records and returns a chart, or None where none of them is of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import altair as alt

from meshmark.errors import UsageError
from meshmark.load.studies.outcome import RECORDS
from meshmark.measure.journal import Reading, read_journal
from meshmark.report.drawing import PALETTE, Drawn, Row, chart_page, row, tooltip
from meshmark.report.html import Cell, Cells, Fact, Span, Table, absent_table, flag_counts, numbers
from meshmark.report.selection import cleaned, number, number_in, selected, value_of
from meshmark.store.files import write_text
from meshmark.store.lines import whole_lines
from meshmark.store.record import Record
from meshmark.values.units import show

_NONE: Final = "none below 4 runs"


def _of(records: Sequence[Record], study: str, metric: str, *numbers: str, texts: Sequence[str] = ()) -> list[Record]:
    """Those of a study that have what its chart needs."""
    of = [r for r in records if r.conditions.get("study") == study]
    return selected(of, "load", metric, numbers=numbers, texts=texts)


def _slowdown(r: Record, **more: Any) -> Row:
    """As `charts.row`, with the estimate of all runs and its interval in place of the pairs'."""
    value = value_of(r, "estimate", r.value)
    least, most = number(r, "estimate_low"), number(r, "estimate_high")
    low, high = (value, value) if least is None or most is None else (least, most)
    bounds = _NONE if least is None or most is None else f"{low:.3f} – {high:.3f}"
    return {**row(r), "value": value, "low": low, "high": high, "median": f"{value:.3f}", "interval": bounds, **more}


def _data(name: str, rows: Sequence[Row]) -> tuple[alt.Chart, dict[str, list[Row]]]:
    return alt.Chart(alt.NamedData(name=name)), {name: list(rows)}


def _curve(rows: list[Row], x: alt.X, series: str | None = None, rule: float | None = None) -> Drawn:
    """Slowdown with its intervals; a rule where a level was looked for."""
    rows.sort(key=lambda r: (r.get("line") is False, str(r.get("series", "")), r["x"]))  # the line's own colour first
    base, data = _data("points", rows)
    y = alt.Y("value:Q", title="slowdown", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=8))
    names = list(dict.fromkeys(str(r.get("series")) for r in rows))
    scale = alt.Scale(domain=names, range=PALETTE[: len(names)])
    # With a legend of its own: one for a stroke that has none would hide both.
    legend = alt.Legend(symbolType="circle")
    colour = alt.Color("series:N", title=None, scale=scale, legend=legend) if series else alt.value(PALETTE[0])
    base = base.encode(x=x, color=colour)
    stroke = alt.Stroke("series:N", scale=scale, legend=None) if series else alt.value(PALETTE[0])
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
    return alt.X(
        "x:Q",
        title=title,
        scale=alt.Scale(zero=False, padding=24),
        axis=alt.Axis(values=sorted({r["x"] for r in rows}), format="d", labelOverlap=True),
    )


def shared_bus(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over what each program moves alone; dashed the level that was looked for."""
    found = _of(records, "shared_bus", "slowdown", "memory_rate", "copies")
    if not found:
        return None
    level = 1 + max((value_of(r, "threshold") for r in _of(records, "shared_bus", "crossing_rate")), default=0.1)
    rows = [
        _slowdown(
            r,
            x=value_of(r, "memory_rate"),
            label=f"{value_of(r, 'memory_rate') / 1e9:.3g} GB/s",
            series=f"{value_of(r, 'copies'):g} copies",
        )
        for r in found
    ]
    return _curve(rows, _gb("rate of one program alone"), "series", level)


def mix(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over the part of the traffic that writes."""
    found = _of(records, "mix", "slowdown", "write_fraction")
    rows = [
        _slowdown(r, x=value_of(r, "write_fraction"), label=f"{value_of(r, 'write_fraction'):.0%} writes")
        for r in found
    ]
    axis = alt.Axis(format=".0%")
    return _curve(rows, alt.X("x:Q", title="part of the traffic that writes", axis=axis)) if rows else None


def isolation(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over the memory domains that are loaded."""
    rows = [
        _slowdown(r, x=value_of(r, "domains"), label=f"{value_of(r, 'domains'):g} domains")
        for r in _of(records, "isolation", "slowdown", "domains")
    ]
    return _curve(rows, _counts(rows, "memory domains loaded")) if rows else None


def copies(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over copies of a command."""
    rows = [
        _slowdown(r, x=value_of(r, "copies"), label=f"{value_of(r, 'copies'):g} copies")
        for r in _of(records, "copies", "slowdown", "copies")
    ]
    return _curve(rows, _counts(rows, "copies")) if rows else None


def interference_curve(records: Sequence[Record]) -> Drawn | None:
    """Slowdown over the neighbour's rate; what was held out, to check the prediction, stands beside the line."""
    rows = [
        _slowdown(
            r,
            x=value_of(r, "neighbour_rate"),
            label=str(r.conditions.get("neighbour", "")),
            series="held out" if r.conditions.get("held_out") else "measured",
            line=not r.conditions.get("held_out"),
        )
        for r in _of(records, "interference_curve", "slowdown", "neighbour_rate")
    ]
    return _curve(rows, _gb("rate of the neighbours"), "series") if rows else None


def interference_matrix(records: Sequence[Record]) -> Drawn | None:
    """A heat map: fixed work of the row's class while the column's runs beside it. Framed: flagged."""
    rows = [
        _slowdown(
            r,
            measured=str(r.conditions["class"]),
            neighbour=str(r.conditions["neighbour"]),
            text=f"{value_of(r, 'estimate', r.value):.2f}",
        )
        for r in _of(records, "interference_matrix", "slowdown", texts=("class", "neighbour"))
    ]
    if not rows:
        return None
    names = list(dict.fromkeys(r["measured"] for r in rows))
    for r in rows:
        r["between"] = f"{r['low']:.2f} – {r['high']:.2f}" if r["interval"] != _NONE else ""
    top = max(1.1, *(r["value"] for r in rows))
    base, data = _data("cells", rows)
    base = base.encode(
        x=alt.X("neighbour:N", title="beside", sort=names, axis=alt.Axis(labelAngle=0 if len(names) <= 5 else -25)),
        y=alt.Y("measured:N", title="measured", sort=names),
    )
    cells = base.mark_rect(strokeWidth=2, strokeDash=[3, 2]).encode(
        color=alt.Color(
            "value:Q",
            title="slowdown",
            scale=alt.Scale(scheme="cividis", reverse=True, domain=[1, top], clamp=True),
            legend=alt.Legend(orient="right", format=".2f"),
        ),
        stroke=alt.condition("datum.flagged", alt.value("#D55E00"), alt.value(None)),
        tooltip=tooltip("measured", "neighbour"),
    )
    dark = f"datum.value > {1 + 0.5 * (top - 1)}"
    colour = alt.condition(dark, alt.value("white"), alt.value("black"))
    layers = [cells, base.mark_text(fontSize=14, dy=-7, fontWeight=600).encode(text="text:N", color=colour)]
    if len(names) <= 8:  # else it would not fit its cell; a hover tells it
        layers.append(base.mark_text(fontSize=11, dy=10).encode(text="between:N", color=colour))
    return Drawn(alt.layer(*layers), data)


_PARTS: Final = {"user_sum": "user", "system_sum": "system", "idle": "idle or others'", "waiting_sum": "waiting"}
_LIKE_GANTT: Final = ("#0072B2", "#56B4E9", "#B4BCC4", "#D55E00")  # of _PARTS, as the Gantt charts have them


def _bars(
    rows: list[Row], x: str, title: str, order: Sequence[str], stack: bool, colours: Sequence[str] = PALETTE
) -> Drawn:
    base, data = _data("bars", rows)
    scale = alt.Scale(domain=list(order), range=list(colours)[: len(order)])
    encoded: dict[str, Any] = {
        "x": alt.X(f"{x}:N", title=None, sort=list(dict.fromkeys(r[x] for r in rows))),
        "y": alt.Y("value:Q", title=title, stack="zero" if stack else None),
        "fill": alt.Fill("series:N", title=None, sort=list(order), scale=scale, legend=alt.Legend(symbolType="square")),
        "stroke": alt.Stroke("series:N", scale=scale, legend=None),
        "strokeDash": alt.condition("datum.flagged", alt.value([4, 3]), alt.value([1, 0])),
        "fillOpacity": alt.condition("datum.flagged", alt.value(0.5), alt.value(1.0)),
        "tooltip": tooltip(x, "series"),
    }
    if stack:
        encoded["order"] = "rank:O"
    else:
        encoded["xOffset"] = alt.XOffset("series:N", sort=list(order))
    bars = base.mark_bar(strokeWidth=1.5).encode(**encoded)
    if stack:
        return Drawn(bars, data)
    shared = {k: encoded[k] for k in ("x", "xOffset")}
    ends = base.mark_rule(strokeWidth=1.5).encode(**shared, y=alt.Y("low:Q", title=title), y2="high:Q")
    return Drawn(alt.layer(bars, ends), data)


def overload(records: Sequence[Record]) -> Drawn | None:
    """What the CPUs gave (user, system, the rest), and beside it what the programs waited."""
    rows = [
        row(
            r,
            case=f"{value_of(r, 'programs'):g} at once: " + ("waiting" if metric == "waiting_sum" else "CPUs"),
            series=name,
            rank=rank,
            programs=value_of(r, "programs"),
        )
        for rank, (metric, name) in enumerate(_PARTS.items())
        for r in _of(records, "overload", metric, "programs")
    ]
    rows.sort(key=lambda r: (r["programs"], r["rank"]))
    return _bars(rows, "case", "time, s", list(_PARTS.values()), True, _LIKE_GANTT) if rows else None


def omp_overload(records: Sequence[Record]) -> Drawn | None:
    """By waiting policy: how much longer, and the serialisation index alone and together."""
    rows = [
        _slowdown(r, policy=str(r.conditions["wait_policy"]), series="slowdown")
        for r in _of(records, "omp_overload", "slowdown", texts=("wait_policy",))
    ]
    rows += [
        row(r, policy=str(r.conditions["wait_policy"]), series=f"serialisation {r.conditions['company']}")
        for r in _of(records, "omp_overload", "serialisation", texts=("wait_policy", "company"))
    ]
    order = ["slowdown", "serialisation alone", "serialisation together"]
    return _bars(rows, "policy", "slowdown; share of the time", order, stack=False) if rows else None


def company(records: Sequence[Record]) -> Drawn | None:
    """A scenario's programs together over each alone, with their intervals; dashed: no slowdown."""
    found = _of(records, "scenario", "slowdown", texts=("program",))
    rows = [_slowdown(r, program=str(r.conditions["program"])) for r in found]
    if not rows:
        return None
    base, data = _data("points", rows)
    base = base.encode(y=alt.Y("program:N", title=None, sort=[r["program"] for r in rows]))
    scale = alt.Scale(zero=False, nice=True)
    intervals = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q", title="slowdown", scale=scale), x2="high:Q")
    points = base.mark_point(size=60, filled=True, opacity=1, strokeWidth=1.5, stroke=PALETTE[0]).encode(
        x=alt.X("value:Q", title="slowdown", scale=scale),
        fill=alt.value(PALETTE[0]),
        fillOpacity=alt.condition("datum.flagged", alt.value(0.0), alt.value(1.0)),
        tooltip=tooltip("program"),
    )
    level, more = _data("level", [{"x": 1.0}])
    return Drawn(
        alt.layer(level.mark_rule(strokeDash=[5, 4], opacity=0.6).encode(x="x:Q"), intervals, points), {**data, **more}
    )


STUDIES: Final[Mapping[str, tuple[str, Callable[[Sequence[Record]], Drawn | None]]]] = {
    "shared_bus": ("Programs that share a bus: slowdown over rate", shared_bus),
    "mix": ("Slowdown over the part of the traffic that writes", mix),
    "isolation": ("Slowdown over the memory domains that are loaded", isolation),
    "overload": ("More programs than CPUs: where the time goes", overload),
    "omp_overload": ("OpenMP programs among others, by OMP_WAIT_POLICY", omp_overload),
    "interference_matrix": ("Who slows down whom: slowdown of the row beside the column", interference_matrix),
    "interference_curve": ("Slowdown over a neighbour's rate", interference_curve),
    "copies": ("Slowdown over copies", copies),
    "scenario": ("Programs in each other's company: slowdown over each alone", company),
}


def draw(records: Sequence[Record]) -> dict[str, Drawn]:
    """The charts that the records allow, by study."""
    made = {name: chart(records) for name, (_, chart) in STUDIES.items()}
    return {name: d for name, d in made.items() if d is not None}


# ---------------------------------------------------------------- the page

CAPTIONS: Final[Mapping[str, str]] = {
    "shared_bus": "Copies of one program on every CPU, over what one moves alone. Lines are 95 % intervals; dashed the "
    "level that was looked for.",
    "mix": "Copies of one program at one rate on every CPU. Lines are 95 % intervals.",
    "isolation": "The first domain's programs while others are loaded too. Lines are 95 % intervals.",
    "overload": "For each number of programs: what the CPUs gave, and beside it what the programs waited for one.",
    "omp_overload": "Serialisation: share of the time in which one thread of the team ran at most.",
    "interference_matrix": "Fixed work of the row while the column runs beside it; 1 is undisturbed. Small: the 95 % "
    "interval.",
    "interference_curve": "The command beside neighbours of a known rate. Held out: neighbours that the prediction has "
    "not seen.",
    "copies": "Copies of one command at once, over one alone. Lines are 95 % intervals.",
    "scenario": "The whole scenario at once, over each of its programs alone. Lines are 95 % intervals.",
}
_ASKED: Final = (
    "program",
    "wait_policy",
    "class",
    "neighbour_rate",
    "memory_rate",
    "write_fraction",
    "domains",
    "programs",
    "copies",
)
_MANY_ROWS: Final = 12  # beyond which a table is folded
_SAID_ELSEWHERE: Final = {"study", "estimate", "estimate_low", "estimate_high", "alone_runs", "together_runs"}


def read_study(folder: Path) -> Reading:
    """The records and absences of a finished study.

    Raises:
        UsageError: none lies there.
    """
    path = folder / RECORDS
    if not path.is_file():
        raise UsageError(f"{folder}: holds no finished study", "the same command with --out goes on with it")
    return read_journal(whole_lines(path), "study")


def study_page(folder: Path) -> str:
    """The page of a finished study: chart, tables, what is absent, in one file that opens offline.

    Raises:
        UsageError: none lies there, or not one of its results can be read.
    """
    reading = read_study(folder)
    records = cleaned(reading.records)
    if not records:
        raise UsageError(f"{folder}: holds a study without results")
    common = records[0].conditions
    study = str(common.get("study") or "")
    drawn = draw(records)
    about = records[0].provenance
    flagged = sum(bool(r.flags) for r in records)
    title = STUDIES[study][0] if study in STUDIES else study.replace("_", " ")
    start = str(about.get("start", ""))[:19].replace("T", " ")
    words = [
        records[0].machine,
        f"{start} UTC" if start else "",
        f"CPUs {common['cpus']}" if common.get("cpus") else "",
        f"{about['repetitions']} repetitions" if "repetitions" in about else "",
        "run times without waiting for CPUs" if common.get("clock") == "dedicated" else "",
    ]
    verdict = f"{len(records)} results, " + (f"{flagged} flagged" if flagged else "none flagged")
    verdict += f", {len(reading.absences)} absent." if reading.absences else "."
    slowed = [r for r in records if r.metric == "slowdown"]
    others = [r for r in records if r.metric not in {"slowdown", "elapsed"}]
    shown = [(k, about.get(k)) for k in ("run", "command", "seed", "repetitions", "build", "compiler", "kernel")]
    absent = [
        replace(
            a,
            conditions={
                k.replace("_", " "): _told(k, v)
                for k, v in a.conditions.items()
                if v is not None and common.get(k) != v
            },
        )
        for a in reading.absences
    ]
    return chart_page(
        "study.html",
        drawn,
        title=title,
        subtitle=" · ".join(w for w in words if w),
        verdict=verdict,
        charts=[(name, STUDIES[name][0], CAPTIONS[name]) for name in drawn],
        slowdowns=_slowdowns(slowed, records) if slowed else None,
        others=_others(others) if others else None,
        many=_MANY_ROWS,
        absent=absent_table(absent),
        flag_counts=flag_counts(records),
        records=len(records),
        provenance=[Fact(k, [Span(str(v))]) for k, v in shown if v not in (None, "")],
    )


def write_study(folder: Path) -> Path:
    """`study.html` in a finished study's folder.

    Raises:
        UsageError: none lies there. MeshmarkError: the folder cannot be written.
    """
    page = folder / "study.html"
    write_text(page, study_page(folder))
    return page


def _told(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    found = number_in(value)
    if (
        found is not None
        and key.rpartition("_")[2] in {"rate", "asked"}
        and key.startswith(("memory_rate", "neighbour_rate"))
    ):
        return show(found, "B/s")
    return str(value) if found is None else f"{found:g}"


def _varying(records: Sequence[Record]) -> list[str]:
    keys = dict.fromkeys(k for r in records for k in r.conditions if k not in _SAID_ELSEWHERE)
    found = [k for k in keys if len({str(r.conditions.get(k)) for r in records}) > 1]
    return found or [str(k) for k in _ASKED if k in keys][:1]


def _slowdowns(slowed: Sequence[Record], records: Sequence[Record]) -> Table:
    """A line a point: alone, together, the estimate of all runs and its interval."""
    keys = _varying(slowed)
    times = {
        (str(r.conditions.get("company")), *(str(r.conditions.get(k)) for k in keys)): r.value
        for r in records
        if r.metric == "elapsed"
    }
    rows: list[Cells] = []
    for r in slowed:
        of = tuple(str(r.conditions.get(k)) for k in keys)
        spent = [times.get((company, *of)) for company in ("alone", "together")]
        s = _slowdown(r)
        runs = " + ".join(_told(k, r.conditions.get(k)) for k in ("alone_runs", "together_runs"))
        cells = numbers(*("–" if t is None else show(t, "s") for t in spent), s["median"], s["interval"], runs)
        rows.append([*(_told(k, r.conditions.get(k)) for k in keys), *cells, Cell("", flags=r.flags)])
    head = [*(k.replace("_", " ") for k in keys), "alone", "together", "slowdown", "95 % interval", "runs", "flags"]
    return Table(head, rows, numbers=range(len(keys), len(keys) + 5))


def _span(r: Record) -> str:
    return " – ".join(show(end, r.unit) for end in r.ends)


def _others(records: Sequence[Record]) -> Table:
    keys = _varying(records)
    rows: list[Cells] = [
        [
            r.metric.replace("_", " "),
            *(_told(k, r.conditions.get(k)) for k in keys),
            *numbers(show(r.value, r.unit), _span(r), str(len(r.samples))),
            Cell("", flags=r.flags),
        ]
        for r in records
    ]
    head = ["what", *(k.replace("_", " ") for k in keys), "median", "best – worst", "n", "flags"]
    return Table(head, rows, numbers=range(len(keys) + 1, len(keys) + 4))
