"""Writes the validation page: statements of the publications, the results of the models, and charts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import altair as alt

from meshmark.model.statements import copy_5400, copy_5500_each, figure_13, table_3
from meshmark.store.files import write_file, write_text
from meshmark.validation import TEMPLATES
from meshmark.validation.models.base import StatementRow
from meshmark.views.charts.drawing import PALETTE, Drawing, chart_page, charts_or_reason
from meshmark.views.html import Tile

TITLES: Final = {
    "gs1280_2003": "AlphaServer GS1280 (2003)",
    "eserver_325_2004": "IBM eServer 325 (2004)",
    "cray_x1_2005": "Cray X1 (2005)",
    "parbench_altix_2007": "PARbench on SGI Altix (2007)",
    "xeon_5500_lsf_2009": "Xeon 5500 with Platform LSF (2009)",
}
ROLES: Final = ("structure", "calibrate", "assumed", "fitted", "predict")
BLIND: Final = "predict"  # only these statements can show that a model is right or wrong
TITLE_OF: Final = {
    "structure": "structure",
    "calibrate": "calibrated",
    "assumed": "assumed from the statement",
    "fitted": "fitted",
    "predict": "blind predictions",
}


def scores(rows: Sequence[StatementRow]) -> dict[str, dict[str, int]]:
    """Return the number of statements inside tolerance, outside of it and not modelled, by role."""
    score_by_role = {role: {"inside": 0, "outside": 0, "not_modelled": 0} for role in ROLES}
    for row in rows:
        key = {True: "inside", False: "outside", None: "not_modelled"}[row.finding.inside]
        score_by_role[row.counts_as][key] += 1
    return score_by_role


def verdict(row: StatementRow) -> str:
    """Return whether the result is `inside` or `outside` the tolerance, or `not modelled`."""
    return {True: "inside", False: "outside", None: "not modelled"}[row.finding.inside]


def published(row: StatementRow) -> str:
    """Return the published value with its unit."""
    value = row.claim.value
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{text} {row.claim.unit}".strip()


def write_page(rows: Sequence[StatementRow], out: Path, made: str) -> tuple[list[Path], str]:
    """Write `validation.html`, `validation.json` and the charts as PNG and SVG, each atomically.

    Returns:
        The paths, and the reason why charts are absent; "" if they are present.
    """
    charts = draw(rows)
    html, data = out / "validation.html", out / "validation.json"
    write_file(
        data, json.dumps({"scores": scores(rows), "statements": [as_json(r) for r in rows]}, indent=1).encode() + b"\n"
    )
    write_text(html, _page(rows, charts, made))
    paths, undrawn = charts_or_reason(charts, out / "charts")
    return [html, data, *paths], undrawn


def as_json(row: StatementRow) -> dict[str, Any]:
    """Return the statement with its result as JSON; values are in the unit of the publication."""
    return {
        "id": row.claim.id,
        "document": row.claim.document,
        "place": row.claim.place,
        "quantity": row.claim.quantity,
        "published": row.claim.value,
        "unit": row.claim.unit,
        "tolerance": row.claim.tolerance,
        "role": row.claim.role,
        "counts_as": row.counts_as,
        "modelled": row.finding.modelled,
        "inside": row.finding.inside,
        "error_percent": row.finding.error_percent,
        "why": row.finding.why,
        "fitted_in": list(row.fitted_in),
        "depends_on": None
        if row.depends is None
        else [{"machine": d.machine, "key": d.key, "elasticity": d.elasticity} for d in row.depends],
        "series": {name: list(values) for name, values in row.finding.series},
    }


def _page(rows: Sequence[StatementRow], drawn: Mapping[str, Drawing], made: str) -> str:
    tiles = []
    score_by_role = scores(rows)
    for role in (BLIND, *(r for r in ROLES if r != BLIND)):
        score = score_by_role[role]
        total = sum(score.values())
        if total == 0:
            continue
        outside = f"{score['outside']} outside, {score['not_modelled']} not modelled"
        note = outside if score["outside"] or score["not_modelled"] else "all inside"
        tiles.append(Tile(TITLE_OF[role], f"{score['inside']} of {total}", [note]))
    names = list(dict.fromkeys(r.claim.document for r in rows))
    documents = [
        {
            "id": name,
            "title": TITLES.get(name, name),
            "statements": [_statement(r) for r in rows if r.claim.document == name],
        }
        for name in names
    ]
    return chart_page(
        "validation.html",
        drawn,
        folder=TEMPLATES,
        subtitle=f"{len(rows)} statements of {len(names)} publications, compared with the models",
        tiles=tiles,
        charts=[(name, *about) for name, about in CHARTS.items() if name in drawn],
        documents=documents,
        made=made,
    )


def _statement(row: StatementRow) -> dict[str, Any]:
    """Return a row of the table of a publication."""
    finding = row.finding
    return {
        "claim": row.claim,
        "published": published(row),
        "modelled": finding.modelled,
        "error": "" if finding.error_percent is None else f"{finding.error_percent:+.1f} %",
        "role": row.counts_as + (f" (by {', '.join(row.fitted_in)})" if row.counts_as == "fitted" else ""),
        "depends": list(map(str, (row.depends or ())[:3])),
        "kind": {True: "in", False: "out", None: "none"}[finding.inside],
        "verdict": verdict(row),
        "why": finding.why,
    }


# ------------------------------------------------------------------ charts

CHARTS: Final = {
    "levels": (
        "Load latency by footprint (figure 3)",
        "Dependent loads at a stride of 64 bytes; GS1280, GS320 and ES45.",
    ),
    "figure_13": (
        "Latency map of the 16-CPU GS1280 (figure 13)",
        "From node 0 to every node of the 4 × 4 torus: modelled latency in ns, and its error.",
    ),
    "figure_15": (
        "Latency under load (figure 15)",
        "1 to 20 outstanding reads per CPU to random other CPUs (ES45: to its shared memory).",
    ),
    "figure_70": (
        "Ring and torus of eight CPUs (figure 70)",
        "1 to 16 outstanding reads per CPU to random other CPUs.",
    ),
    "gups_links": (
        "Link use under random updates (figure 62)",
        "Share of time in which each link of the 8 × 4 torus is busy.",
    ),
    "parbench_5": (
        "Two programs on a bus (PARbench, figure 5)",
        "Increase in run time of synchronous copies of a program, by the memory rate of one alone.",
    ),
    "xeon_copy": ("Copy rate by number of processes (Xeon)", "Streaming copy, published and modelled."),
    "xeon_latency": ("Latency by number of processes (Xeon)", "Random dependent loads, published and modelled."),
    "errors": (
        "All statements with a single value",
        "Error of the model by role. Statements on ranges, orders and series are not shown.",
    ),
}


def draw(rows: Sequence[StatementRow]) -> dict[str, Drawing]:
    """Return all charts for which statements exist."""
    by_id = {r.claim.id: r for r in rows}
    series = {i: dict(r.finding.series) for i, r in by_id.items()}
    charts: dict[str, alt.TopLevelMixin] = {}
    if series.get("A08"):
        sizes = [2**k for k in range(7, 17)]
        charts["levels"] = _lines(
            [
                {"x": x, "y": y, "of": label}
                for label, ys in series["A08"].items()
                for x, y in zip(sizes, ys, strict=True)
            ],
            "footprint",
            "ns per load",
            sizes=True,
        )
    if series.get("A12"):
        charts["figure_13"] = _map(series["A12"]["modelled"])
    for name, claim in (("figure_15", "A24"), ("figure_70", "A34")):
        if curves := series.get(claim):
            machines = [n.removesuffix(": s") for n in curves if n.endswith(": s")]
            charts[name] = _lines(
                [
                    {"x": b / 1e9, "y": t * 1e9, "of": n}
                    for n in machines
                    for b, t in zip(curves[f"{n}: B/s"], curves[f"{n}: s"], strict=True)
                ],
                "bandwidth of all CPUs (GB/s)",
                "ns per load",
            )
    if curves := series.get("E03"):
        rates = curves["GB/s"]
        charts["parbench_5"] = _lines(
            [{"x": x, "y": y, "of": n} for n in curves if n != "GB/s" for x, y in zip(rates, curves[n], strict=True)],
            "memory rate of each program alone (GB/s)",
            "increase in run time (%)",
            log_x=False,
            log_y=False,
        )
    if series.get("A31"):
        data = [{"x": i, "y": 100 * v, "of": n} for n, values in series["A31"].items() for i, v in enumerate(values)]
        charts["gups_links"] = _bars(data, "link", "busy (%)")
    old_copy, new_copy = (
        ("G03", tuple(copy_5400().values()), "Xeon 5400, all"),
        ("G05", copy_5500_each(), "Xeon 5500, a core"),
    )
    old_ns = ("G09", tuple(table_3("xeon5400").values()), "Xeon 5400")
    new_ns = ("G10", tuple(table_3("xeon5500").values()), "Xeon 5500")
    for name, pair, unit in (("xeon_copy", (old_copy, new_copy), "GB/s"), ("xeon_latency", (old_ns, new_ns), "ns")):
        bars = [
            {"x": str(n), "y": v, "of": source, "panel": label}
            for claim, printed, label in pair
            for source, values in (("published", printed), ("modelled", series.get(claim, {}).get(unit, ())))
            for n, v in zip((1, 2, 4, 8, 16), values, strict=False)
            if claim in series
        ]
        if any(b["of"] == "modelled" for b in bars):
            charts[name] = _grouped(bars, "processes", unit)
    errors = [
        {"id": r.claim.id, "error": r.finding.error_percent, "role": r.counts_as, "quantity": r.claim.quantity}
        for r in rows
        if r.finding.error_percent is not None
    ]
    if errors:
        charts["errors"] = (
            _chart(errors)
            .mark_bar()
            .encode(
                x=alt.X("id:N", title=None, sort=None),
                y=alt.Y("error:Q", title="error (%)"),
                color=alt.Color("role:N", title=None, scale=alt.Scale(domain=list(ROLES), range=PALETTE[: len(ROLES)])),
                tooltip=["id:N", "quantity:N", alt.Tooltip("error:Q", format="+.2f"), "role:N"],
            )
        )
    return {name: Drawing(chart, {}) for name, chart in charts.items()}


def _chart(data: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=data))


def _colour() -> alt.Color:
    return alt.Color("of:N", title=None, sort=None, scale=alt.Scale(range=PALETTE))


def _lines(
    data: list[dict[str, Any]], x: str, y: str, log_x: bool = True, log_y: bool = True, sizes: bool = False
) -> alt.TopLevelMixin:
    scale = alt.Scale(type="log", base=2, nice=False, padding=12) if log_x else alt.Scale(zero=False)
    kib = "datum.value < 1024 ? datum.value + ' KiB' : datum.value / 1024 + ' MiB'"
    axis = alt.Axis(labelExpr=kib) if sizes else alt.Axis(format="~g", tickCount=8)
    base = _chart(data).encode(
        x=alt.X("x:Q", title=x, scale=scale, axis=axis),
        y=alt.Y("y:Q", title=y, scale=alt.Scale(type="log", nice=True) if log_y else alt.Scale(zero=True)),
        color=_colour(),
        order="x:Q" if not log_x else alt.Undefined,
        tooltip=["of:N", alt.Tooltip("x:Q", title=x, format=".4~g"), alt.Tooltip("y:Q", title=y, format=".4~g")],
    )
    return alt.layer(base.mark_line(strokeWidth=2), base.mark_point(size=42, filled=True, opacity=1))


def _bars(data: list[dict[str, Any]], x: str, y: str) -> alt.TopLevelMixin:
    chart: alt.TopLevelMixin = (
        _chart(data)
        .mark_bar()
        .encode(
            x=alt.X("x:O", title=x, axis=alt.Axis(labels=False, ticks=False)),
            y=alt.Y("y:Q", title=y),
            color=_colour(),
            xOffset="of:N",
            tooltip=["of:N", alt.Tooltip("y:Q", title=y, format=".1f")],
        )
    )
    return chart


def _grouped(data: list[dict[str, Any]], x: str, y: str) -> alt.ConcatChart:
    panels = list(dict.fromkeys(d["panel"] for d in data))
    return alt.concat(
        *[
            _chart([d for d in data if d["panel"] == panel])
            .properties(title=panel, width=330, height=260)
            .mark_bar()
            .encode(
                x=alt.X("x:N", title=x, sort=None, axis=alt.Axis(labelAngle=0)),
                y=alt.Y("y:Q", title=y),
                xOffset=alt.XOffset("of:N", sort=["published", "modelled"]),
                color=alt.Color(
                    "of:N", title=None, sort=["published", "modelled"], scale=alt.Scale(range=["#7F7F7F", "#0072B2"])
                ),
                tooltip=["of:N", alt.Tooltip("x:N", title=x), alt.Tooltip("y:Q", title=y, format=".4~g")],
            )
            for panel in panels
        ],
        columns=2,
    )


def _map(modelled: Sequence[float]) -> alt.TopLevelMixin:
    data: list[dict[str, Any]] = [
        {
            "column": i % 4,
            "row": i // 4,
            "modelled": v,
            "published": printed,
            "error": 100 * (v / printed - 1),
            "text": f"{v:.0f}",
            "small": f"{100 * (v / printed - 1):+.1f} %",
        }
        for i, (v, printed) in enumerate(zip(modelled, figure_13(), strict=True))
    ]
    base = _chart(data).encode(
        x=alt.X("column:O", title=None, axis=alt.Axis(labels=False, ticks=False, domain=False)),
        y=alt.Y("row:O", title=None, axis=alt.Axis(labels=False, ticks=False, domain=False)),
        tooltip=[
            alt.Tooltip("published:Q", title="published (ns)"),
            alt.Tooltip("modelled:Q", title="modelled (ns)", format=".1f"),
            alt.Tooltip("error:Q", title="error (%)", format="+.2f"),
        ],
    )
    shade = base.mark_rect(stroke="white", strokeWidth=2).encode(
        color=alt.Color("modelled:Q", title="ns", scale=alt.Scale(scheme="blues", domain=[40, 460]), legend=None)
    )
    large = base.mark_text(dy=-7, fontSize=20, fontWeight=600, color="#10202c").encode(text="text:N")
    small = base.mark_text(dy=14, fontSize=12, color="#10202c").encode(text="small:N")
    return alt.layer(shade, large, small)
