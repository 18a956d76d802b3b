"""Draws charts of studies (`meshmark.load.studies`) from their records, and writes the page of a study.

Like in `charts`, a drawing function takes all records and returns a chart, or None if no record is suitable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import altair as alt

from meshmark.describe import chosen_conditions
from meshmark.errors import UsageError
from meshmark.load.studies.outcome import RECORDS
from meshmark.measure.runs.journal import JournalContent, read_journal
from meshmark.store.files import write_text
from meshmark.store.record import Record, varying
from meshmark.store.session import whole_lines
from meshmark.values.units import show
from meshmark.views.charts.drawing import PALETTE, Drawing, Row, chart_page, row, tooltip
from meshmark.views.content.selection import cleaned, number, number_in, selected, value_of
from meshmark.views.html import CardRow, TextSpan, absent_table, flag_counts
from meshmark.views.tables import Cells, TextCell, TextTable

_NONE: Final = "none (fewer than 4 runs)"


def _of(records: Sequence[Record], study: str, metric: str, *numbers: str, texts: Sequence[str] = ()) -> list[Record]:
    """Return the records of a study that have the conditions that its chart needs."""
    study_records = [r for r in records if r.conditions.get("study") == study]
    return selected(study_records, "load", metric, numbers=numbers, texts=texts)


def _slowdown(r: Record, **more: Any) -> Row:
    """Return a row like `drawing.row`, but with the estimate over all runs and its interval.

    `drawing.row` has the median of the pairs and its interval.
    """
    value = value_of(r, "estimate", r.value)
    low, high = number(r, "estimate_low"), number(r, "estimate_high")
    if low is None or high is None:
        low, high, bounds = value, value, _NONE
    else:
        bounds = f"{low:.3f} – {high:.3f}"
    estimate = {"value": value, "low": low, "high": high, "median": f"{value:.3f}", "interval": bounds, "levels": []}
    return {**row(r), **estimate, **more}


def _data(name: str, rows: Sequence[Row]) -> tuple[alt.Chart, dict[str, list[Row]]]:
    return alt.Chart(alt.NamedData(name=name)), {name: list(rows)}


def _curve(rows: list[Row], x: alt.X, series: str | None = None, rule: float | None = None) -> Drawing:
    """Draw slowdowns with intervals, and a dashed line at `rule`."""
    rows.sort(
        key=lambda r: (r.get("line") is False, str(r.get("series", "")), r["x"])
    )  # the connected series gets the first colour
    base, data = _data("points", rows)
    y = alt.Y("value:Q", title="slowdown", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=8))
    names = list(dict.fromkeys(str(r.get("series")) for r in rows))
    scale = alt.Scale(domain=names, range=PALETTE[: len(names)])
    # An explicit legend, because stroke=None without one would hide both.
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
    return Drawing(alt.layer(*layers), {**data, **more})


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


def shared_bus(records: Sequence[Record]) -> Drawing | None:
    """Draw slowdown by the memory rate of each program alone, with the threshold as a dashed line."""
    slowdowns = _of(records, "shared_bus", "slowdown", "memory_rate", "copies")
    if not slowdowns:
        return None
    level = 1 + max((value_of(r, "threshold") for r in _of(records, "shared_bus", "crossing_rate")), default=0.1)
    rows = [
        _slowdown(
            r,
            x=value_of(r, "memory_rate"),
            label=f"{value_of(r, 'memory_rate') / 1e9:.3g} GB/s",
            series=f"{value_of(r, 'copies'):g} copies",
        )
        for r in slowdowns
    ]
    return _curve(rows, _gb("memory rate of one program alone"), "series", level)


def mix(records: Sequence[Record]) -> Drawing | None:
    """Draw slowdown by share of writes."""
    slowdowns = _of(records, "mix", "slowdown", "write_fraction")
    rows = [
        _slowdown(r, x=value_of(r, "write_fraction"), label=f"{value_of(r, 'write_fraction'):.0%} writes")
        for r in slowdowns
    ]
    axis = alt.Axis(format=".0%")
    return _curve(rows, alt.X("x:Q", title="share of writes", axis=axis)) if rows else None


def isolation(records: Sequence[Record]) -> Drawing | None:
    """Draw slowdown by number of loaded memory domains."""
    rows = [
        _slowdown(r, x=value_of(r, "domains"), label=f"{value_of(r, 'domains'):g} domains")
        for r in _of(records, "isolation", "slowdown", "domains")
    ]
    return _curve(rows, _counts(rows, "loaded memory domains")) if rows else None


def copies(records: Sequence[Record]) -> Drawing | None:
    """Draw slowdown by number of copies of a command."""
    rows = [
        _slowdown(r, x=value_of(r, "copies"), label=f"{value_of(r, 'copies'):g} copies")
        for r in _of(records, "copies", "slowdown", "copies")
    ]
    return _curve(rows, _counts(rows, "copies")) if rows else None


def interference_curve(records: Sequence[Record]) -> Drawing | None:
    """Draw slowdown by the neighbours' memory rate.

    Held-out points, which validate the prediction, are not connected.
    """
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
    return _curve(rows, _gb("memory rate of the neighbours"), "series") if rows else None


def interference_matrix(records: Sequence[Record]) -> Drawing | None:
    """Draw a heat map of the slowdown of the row's class while the column's class co-runs.

    Flagged cells are framed.
    """
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
        x=alt.X("neighbour:N", title="co-running", sort=names, axis=alt.Axis(labelAngle=0 if len(names) <= 5 else -25)),
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
    if len(names) <= 8:  # with more, the text would not fit; the tooltip shows it
        layers.append(base.mark_text(fontSize=11, dy=10).encode(text="between:N", color=colour))
    return Drawing(alt.layer(*layers), data)


_PARTS: Final = {"user_sum": "user", "system_sum": "system", "idle": "idle or other programs", "waiting_sum": "waiting"}
_GANTT_COLOURS: Final = ("#0072B2", "#56B4E9", "#B4BCC4", "#D55E00")  # colours of _PARTS, as in the Gantt charts


def _bars(
    rows: list[Row], x: str, title: str, order: Sequence[str], stack: bool, colours: Sequence[str] = PALETTE
) -> Drawing:
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
        return Drawing(bars, data)
    shared = {k: encoded[k] for k in ("x", "xOffset")}
    ends = base.mark_rule(strokeWidth=1.5).encode(**shared, y=alt.Y("low:Q", title=title), y2="high:Q")
    return Drawing(alt.layer(bars, ends), data)


def overload(records: Sequence[Record]) -> Drawing | None:
    """Draw CPU time (user, system, idle) beside the time that the programs waited for a CPU."""
    rows = [
        row(
            r,
            case=f"{value_of(r, 'programs'):g} programs: " + ("waiting" if metric == "waiting_sum" else "CPUs"),
            series=name,
            rank=rank,
            programs=value_of(r, "programs"),
        )
        for rank, (metric, name) in enumerate(_PARTS.items())
        for r in _of(records, "overload", metric, "programs")
    ]
    rows.sort(key=lambda r: (r["programs"], r["rank"]))
    return _bars(rows, "case", "time, s", list(_PARTS.values()), True, _GANTT_COLOURS) if rows else None


def omp_overload(records: Sequence[Record]) -> Drawing | None:
    """Draw slowdown and serialisation, alone and co-running, by wait policy and priority."""
    rows = [
        _slowdown(r, policy=_wait_policy(r), series="slowdown")
        for r in _of(records, "omp_overload", "slowdown", texts=("wait_policy",))
    ]
    rows += [
        row(r, policy=_wait_policy(r), series=f"serialisation {r.conditions['company']}")
        for r in _of(records, "omp_overload", "serialisation", texts=("wait_policy", "company"))
    ]
    order = ["slowdown", "serialisation alone", "serialisation together"]
    return _bars(rows, "policy", "slowdown; share of time", order, stack=False) if rows else None


def _wait_policy(record: Record) -> str:
    """Return the wait policy, and the priority of the sequential programs if it is not the usual one."""
    priority = record.conditions.get("priority")
    return f"{record.conditions['wait_policy']}{'' if priority is None else f', priority {priority}'}"


def co_running(records: Sequence[Record]) -> Drawing | None:
    """Draw the co-run slowdown of each program of a scenario, with intervals and a dashed line at no slowdown."""
    slowdowns = _of(records, "scenario", "slowdown", texts=("program",))
    rows = [_slowdown(r, program=str(r.conditions["program"])) for r in slowdowns]
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
    return Drawing(
        alt.layer(level.mark_rule(strokeDash=[5, 4], opacity=0.6).encode(x="x:Q"), intervals, points), {**data, **more}
    )


STUDIES: Final[Mapping[str, tuple[str, Callable[[Sequence[Record]], Drawing | None]]]] = {
    "shared_bus": ("Programs on a shared memory bus: slowdown by memory rate", shared_bus),
    "mix": ("Slowdown by share of writes", mix),
    "isolation": ("Slowdown by number of loaded memory domains", isolation),
    "overload": ("More programs than CPUs: use of time", overload),
    "omp_overload": ("Co-running OpenMP programs, by OMP_WAIT_POLICY", omp_overload),
    "interference_matrix": ("Interference: slowdown of the row by the column", interference_matrix),
    "interference_curve": ("Slowdown by memory rate of the neighbours", interference_curve),
    "copies": ("Slowdown by number of copies", copies),
    "scenario": ("Co-running programs: slowdown of each program", co_running),
}


def draw(records: Sequence[Record]) -> dict[str, Drawing]:
    """Return all charts for which there are records, by study."""
    charts = {name: chart(records) for name, (_, chart) in STUDIES.items()}
    return {name: d for name, d in charts.items() if d is not None}


# ---------------------------------------------------------------- the page

CAPTIONS: Final[Mapping[str, str]] = {
    "shared_bus": "Copies of one program on every CPU. Lines are 95 % intervals; dashed: the slowdown whose memory "
    "rate the study determines.",
    "mix": "Copies of one program at the same rate on every CPU. Lines are 95 % intervals.",
    "isolation": "Slowdown of the first domain's programs while other domains are loaded. Lines are 95 % intervals.",
    "overload": "For each number of programs: CPU time, and the time that the programs waited for a CPU.",
    "omp_overload": "Serialisation: share of time in which at most one thread of the team ran.",
    "interference_matrix": "Fixed work of the row while the column co-runs; 1 means no slowdown. Small text: 95 % "
    "interval.",
    "interference_curve": "The command beside neighbours with a known memory rate. Held out: neighbours that the "
    "prediction was not fitted to.",
    "copies": "Concurrent copies of one command, relative to one alone. Lines are 95 % intervals.",
    "scenario": "Run time of each program in the scenario, relative to the program alone. Lines are 95 % intervals.",
}
_PARAMETERS: Final = (
    "program",
    "wait_policy",
    "priority",
    "class",
    "neighbour_rate",
    "memory_rate",
    "write_fraction",
    "domains",
    "programs",
    "copies",
)
_MANY_ROWS: Final = 12  # longer tables are collapsed
_SHOWN_ELSEWHERE: Final = {"study", "estimate", "estimate_low", "estimate_high", "alone_runs", "together_runs"}


def read_study(folder: Path) -> JournalContent:
    """Return the records and absences of a finished study.

    Raises:
        UsageError: The folder contains no finished study.
    """
    path = folder / RECORDS
    if not path.is_file():
        raise UsageError(f"{folder}: contains no finished study", "repeat its command with --out to resume it")
    return read_journal(whole_lines(path), "study")


def study_page(folder: Path) -> str:
    """Return the self-contained page of a finished study: charts, tables and absent results.

    Raises:
        UsageError: The folder contains no finished study, or the study has no readable results.
    """
    reading = read_study(folder)
    records = cleaned(reading.records)
    if not records:
        raise UsageError(f"{folder}: contains a study without results")
    common = records[0].conditions
    study = str(common.get("study") or "")
    drawn = draw(records)
    about = records[0].provenance
    flagged = sum(bool(r.flags) for r in records)
    title = STUDIES[study][0] if study in STUDIES else study.replace("_", " ")
    start = str(about.get("start", ""))[:19].replace("T", " ")
    details = [
        records[0].machine,
        f"{start} UTC" if start else "",
        f"CPUs {common['cpus']}" if common.get("cpus") else "",
        f"{about['repetitions']} repetitions" if "repetitions" in about else "",
        "run times without waiting for CPUs" if common.get("clock") == "dedicated" else "",
    ]
    verdict = f"{len(records)} results, " + (f"{flagged} flagged" if flagged else "none flagged")
    verdict += f", {len(reading.absences)} absent." if reading.absences else "."
    slowdowns = [r for r in records if r.metric == "slowdown"]
    others = [r for r in records if r.metric not in {"slowdown", "elapsed"}]
    provenance = [(k, about.get(k)) for k in ("run", "command", "seed", "repetitions", "build", "compiler", "kernel")]
    absent = [
        replace(
            a,
            conditions={
                k.replace("_", " "): _value_text(k, v)
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
        subtitle=" · ".join(d for d in details if d),
        verdict=verdict,
        charts=[(name, STUDIES[name][0], CAPTIONS[name]) for name in drawn],
        slowdowns=_slowdowns(slowdowns, records) if slowdowns else None,
        others=_others(others) if others else None,
        many=_MANY_ROWS,
        absent=absent_table(absent),
        flag_counts=flag_counts(records),
        records=len(records),
        provenance=[CardRow(k, [TextSpan(str(v))]) for k, v in provenance if v not in (None, "")],
    )


def write_study(folder: Path) -> Path:
    """Write `study.html` to the folder of a finished study, and return its path.

    Raises:
        UsageError: The folder contains no finished study.
        MeshmarkError: The folder is not writable.
    """
    page = folder / "study.html"
    write_text(page, study_page(folder))
    return page


def _value_text(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    number = number_in(value)
    if (
        number is not None
        and key.rpartition("_")[2] in {"rate", "asked"}
        and key.startswith(("memory_rate", "neighbour_rate"))
    ):
        return show(number, "B/s")
    return str(value) if number is None else f"{number:g}"


def _varying(records: Sequence[Record]) -> list[str]:
    keys = [k for k in chosen_conditions(records) if k not in _SHOWN_ELSEWHERE]
    return varying(keys, records) or [str(k) for k in _PARAMETERS if k in keys][:1]


def _slowdowns(slowed: Sequence[Record], records: Sequence[Record]) -> TextTable:
    """Return a table with one row per point: times alone and together, and the estimated slowdown with its interval."""
    keys = _varying(slowed)
    times = {
        (str(r.conditions.get("company")), *(str(r.conditions.get(k)) for k in keys)): r.value
        for r in records
        if r.metric == "elapsed"
    }
    rows: list[Cells] = []
    for r in slowed:
        point = tuple(str(r.conditions.get(k)) for k in keys)
        point_times = [times.get((company, *point)) for company in ("alone", "together")]
        s = _slowdown(r)
        runs = " + ".join(_value_text(k, r.conditions.get(k)) for k in ("alone_runs", "together_runs"))
        cells = [*("–" if t is None else show(t, "s") for t in point_times), s["median"], s["interval"], runs]
        rows.append([*(_value_text(k, r.conditions.get(k)) for k in keys), *cells, TextCell("", flags=r.flags)])
    columns = [*(k.replace("_", " ") for k in keys), "alone", "together", "slowdown", "95 % interval", "runs", "flags"]
    return TextTable(columns, rows, numbers=range(len(keys), len(keys) + 5))


def _span(r: Record) -> str:
    return " – ".join(show(end, r.unit) for end in r.ends)


def _others(records: Sequence[Record]) -> TextTable:
    keys = _varying(records)
    rows: list[Cells] = [
        [
            r.metric.replace("_", " "),
            *(_value_text(k, r.conditions.get(k)) for k in keys),
            show(r.value, r.unit),
            _span(r),
            str(len(r.samples)),
            TextCell("", flags=r.flags),
        ]
        for r in records
    ]
    head = ["metric", *(k.replace("_", " ") for k in keys), "median", "best – worst", "n", "flags"]
    return TextTable(head, rows, numbers=range(len(keys) + 1, len(keys) + 4))
