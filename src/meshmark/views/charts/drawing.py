"""Provides what charts share: rows, colours, axes and sizes; writes charts to files and pages."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

import altair as alt

from meshmark.store.files import write_file, write_text
from meshmark.store.record import Record
from meshmark.values.units import percent, show, size
from meshmark.views.charts import vega
from meshmark.views.charts.vega import DrawingError, reason_of
from meshmark.views.content.selection import UNKNOWN, interval_text, modes_of, modes_texts, natural, number
from meshmark.views.render import render

# Okabe and Ito's palette, distinguishable for colour-blind readers.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C6D31"]
# Sixteen distinguishable colours: the palette and its darker shades.
COLOURS = [*PALETTE, "#003B5C", "#8A3C00", "#005B43", "#8C3F66", "#9C6B00", "#1F6F9C", "#3F3F3F", "#4F3800"]
LIBRARY = "charts.js"  # file of the chart library in a site
WIDTH, HEIGHT = 720, 340
_LABEL_ROWS, _LABEL_HEIGHT = 3, 14  # rows of the labels of vertical lines, and the height of a row in px
_BEYOND = 1.5  # an axis shows intervals up to this multiple of the values
MANY = 2500  # marks of a chart; with more, tooltips are shortened, the page uses a canvas and files omit descriptions
_last_undrawn = [""]  # the reason why the last page has no charts, or ""
NO_INTERVAL = "none (fewer than 6 samples)"
Row = dict[str, Any]
Input = ParamSpec("Input")  # parameters of a chart: records, and for some charts the machine's topology


def row(record: Record, **more: Any) -> Row:
    """Return the data of a mark.

    A row has the value and interval in the metric's unit, the values of its modes (`levels`; empty if all runs are at
    one level), and the texts of its tooltip.
    """
    low, high = record.bounds or (record.value, record.value)
    best, worst = record.ends
    modes = modes_of(_all_records.get(), record)
    return {
        "value": record.value,
        "low": low,
        "high": high,
        "median": show(record.value, record.unit),
        "interval": interval_text(record) if record.bounds else NO_INTERVAL,
        "best": show(best, record.unit),
        "worst": show(worst, record.unit),
        "spread": percent(record.spread),
        "samples": len(record.samples),
        "distribution": histogram(record.samples),
        "flags": ", ".join(sorted(record.flags)) or "none",
        "flagged": bool(record.flags),
        "levels": [m.value for m in modes],
        "modes": ", ".join(modes_texts(modes)) if modes else "none",
        **more,
    }


def histogram(samples: Sequence[float], bins: int = 16) -> str:
    """Return a histogram of the samples as one line of text; "" if all are equal.

    >>> histogram([1, 1, 1, 2], bins=4)
    '█··▃'
    """
    low, high = min(samples), max(samples)
    if high <= low:
        return ""
    counts = [0] * bins
    for s in samples:
        counts[min(bins - 1, int((s - low) / (high - low) * bins))] += 1
    return "".join("▁▂▃▄▅▆▇█"[round(7 * c / max(counts))] if c else "·" for c in counts)


def tooltip(*more: str) -> list[alt.Tooltip]:
    """Return a tooltip with these fields, followed by the fields that all results have."""
    names = [*more, "median", "interval", "best", "worst", "spread", "distribution", "samples", "flags"]
    return [alt.Tooltip(f"{name}:N", title=name.replace("_", " ")) for name in names]


def clearest(rows: Iterable[Row], *keys: str) -> list[Row]:
    """Return one row per mark: of several measurements, an unflagged row with the narrowest interval."""
    best: dict[tuple[Any, ...], Row] = {}
    for r in rows:
        key = tuple(r[k] for k in keys)
        if key not in best or _uncertainty(r) < _uncertainty(best[key]):
            best[key] = r
    return list(best.values())


def _uncertainty(r: Row) -> tuple[bool, bool, float]:
    return r["flagged"], r["interval"] == NO_INTERVAL, (r["high"] - r["low"]) / (abs(r["value"]) or 1)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart and its named data.

    Altair validates and copies every row several times, which takes half a minute for the 65 280 pairs of 256 CPUs.
    Therefore Altair gets names only, and the rows are added to the specification at the end.
    """

    chart: alt.TopLevelMixin
    data: dict[str, list[Row]]


_rows: ContextVar[dict[str, list[Row]]] = ContextVar("rows of the chart being drawn")
_all_records: ContextVar[Sequence[Record]] = ContextVar("records that the chart is drawn from", default=())


def drawing(draw: Callable[Input, alt.TopLevelMixin | None]) -> Callable[Input, Drawing | None]:
    """Decorate a function that draws a chart, so that the rows which it uses are collected."""

    @functools.wraps(draw)
    def drawn(*args: Input.args, **kwargs: Input.kwargs) -> Drawing | None:
        token = _rows.set({})
        first: Any = args[0] if args else ()
        records = _all_records.set(first)
        try:
            chart = draw(*args, **kwargs)
            return None if chart is None else Drawing(chart, _rows.get())
        finally:
            _rows.reset(token)
            _all_records.reset(records)

    return drawn


def chart_of(rows: Sequence[Row]) -> alt.Chart:
    """Return an empty chart of rows, which are stored by name with the current drawing."""
    data = _rows.get()
    name = f"rows{len(data)}"
    data[name] = list(rows)
    return alt.Chart(alt.NamedData(name=name))


def colours(count: int) -> list[str]:
    """Return `count` colours, which repeat after sixteen."""
    return (COLOURS * (1 + count // len(COLOURS)))[:count]


def layered(
    rows: list[Row], x: alt.X, y: Callable[[str], alt.Y], series: str, tips: Sequence[str], band: bool = True
) -> alt.LayerChart | alt.FacetChart:
    """Return lines with points, and with bands of their intervals, one line for each series.

    Args:
        rows: Rows with a value and its interval.
        x: The x axis.
        y: Function that makes the y axis of a field.
        series: Field that names the line of a row.
        tips: Additional fields of the tooltip.
        band: Whether intervals are drawn as a band.
    """
    names = sorted({r[series] for r in rows}, key=natural)
    scale = alt.Scale(domain=names, range=colours(len(names)))
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke")
    base = chart_of(rows).encode(x=x, color=alt.Color(f"{series}:N", title=None, scale=scale, legend=legend))
    area = base.mark_area(opacity=0.18).encode(y=y("low"), y2="high:Q")
    line = base.mark_line(strokeWidth=2).encode(y=y("value"))
    points = base.mark_point(size=42, filled=True, opacity=1, strokeWidth=1.5).encode(
        y=y("value"),
        stroke=alt.Stroke(f"{series}:N", scale=scale, legend=None),
        fillOpacity=FULL,
        tooltip=tooltip(*tips),
    )
    return alt.layer(*([area] if band else []), line, points, *level_marks(rows, base, y("level"), tips))


def level_marks(rows: Sequence[Row], base: alt.Chart, y: alt.Y, tips: Sequence[str]) -> list[alt.Chart]:
    """Return a short line at the value of each mode of the rows' points; [] if there are no modes.

    Args:
        rows: Rows of a chart.
        base: The chart of the rows, with the encodings of x and colour.
        y: The y axis.
        tips: Additional fields of the tooltip.
    """
    levels = [{**r, "level": level} for r in rows for level in r.get("levels", ())]
    if not levels:
        return []
    marks: alt.Chart = base.copy()
    marks.data = chart_of(levels).data
    return [marks.mark_point(shape="stroke", size=200, strokeWidth=2.5).encode(y=y, tooltip=tooltip(*tips, "modes"))]


def marked_x(chart: alt.LayerChart | alt.FacetChart, marks: Sequence[tuple[float, str]]) -> alt.TopLevelMixin:
    """Return the chart with a labelled vertical line at each of these values of x; labels do not overlap."""
    if not marks:
        return chart
    rows = [{"x": position, "text": text, "row": i % _LABEL_ROWS} for i, (position, text) in enumerate(sorted(marks))]
    base = chart_of(rows).encode(x="x:Q")
    labels = [
        base.transform_filter(f"datum.row == {i}")
        .mark_text(align="left", baseline="top", dx=4, fontSize=11, opacity=0.8)
        .encode(y=alt.value(2 + _LABEL_HEIGHT * i), text="text:N")
        for i in range(min(_LABEL_ROWS, len(rows)))
    ]
    return alt.layer(chart, base.mark_rule(strokeDash=[2, 4], opacity=0.7), *labels)


FULL = alt.condition("datum.flagged", alt.value(0.0), alt.value(1.0))


def ticks(low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: several per decade if the range is short, otherwise powers of ten."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 1.5, 2, 3, 5, 7) if high < 12 * low else (1, 2, 5) if high < 2000 * low else (1,)
    return [t for d in decades for m in steps if low <= (t := m * 10.0**d) <= high]


def visible_range(rows: Iterable[Row]) -> tuple[float, float]:
    """Return the lowest and highest value that an axis shows.

    An interval far wider than the values is cut, since it would flatten the others. Both ends are above 0, or (0, 0) if
    no value is above 0.
    """
    all_rows = list(rows)
    values = [v for r in all_rows for v in (r["value"], *r.get("levels", ())) if v > 0]
    if not values:
        return 0.0, 0.0
    low, high = min(values), max(values)
    lows = [r["low"] for r in all_rows if r["low"] > 0]  # an interval may include 0
    return max(min([low, *lows]), low / _BEYOND), min(max([high, *(r["high"] for r in all_rows)]), high * _BEYOND)


def value_scale(rows: Iterable[Row]) -> alt.Scale:
    """Return a linear scale from 0; see `visible_range` for its end."""
    all_rows = list(rows)
    high = visible_range(all_rows)[1]
    if high < max((r["high"] for r in all_rows), default=0.0):
        return alt.Scale(domain=[min(0.0, *(r["value"] for r in all_rows)), high], clamp=True)
    return alt.Scale(zero=True)


def log_axis(rows: Iterable[Row], title: str, label: str, labelled: bool = False) -> Callable[[str], alt.Y]:
    """Return a function that makes a logarithmic y axis of a field, with a small margin around the intervals.

    Args:
        rows: Rows with a value and its interval.
        title: Title of the axis.
        label: Vega expression of the labels.
        labelled: Whether to leave room at the top for the labels of vertical lines, see `marked_x`.
    """
    low, high = visible_range(rows)
    low, high = 0.8 * low, 1.25 * high
    if labelled:
        high *= (high / low) ** (_LABEL_ROWS * _LABEL_HEIGHT / HEIGHT)
    scale, axis = (
        alt.Scale(type="log", domain=[low, high], clamp=True),
        alt.Axis(labelExpr=label, values=ticks(low, high)),
    )
    return lambda field: alt.Y(f"{field}:Q", title=title, scale=scale, axis=axis)


BYTES = "datum.value >= 1073741824 ? datum.value / 1073741824 + ' GiB' : datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : datum.value / 1024 + ' KiB'"  # noqa: E501


def bytes_axis(field: str, rows: Iterable[Row], title: str) -> alt.X:
    """Return an axis with ticks at powers of four, in binary units."""
    values = [r[field] for r in rows]
    low, high = min(values), max(values)
    ticks = [2**k for k in range(10, 44, 2) if low <= 2**k <= high * 1.01]
    return alt.X(
        f"{field}:Q",
        title=title,
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=ticks or [low], labelExpr=BYTES, grid=True),
    )


NS = "datum.value >= 1e-6 ? format(datum.value * 1e6, '~r') + ' µs' : format(datum.value * 1e9, '~r') + ' ns'"
GB = "format(datum.value / 1e9, '~r') + ' GB/s'"


def linear_axis(rows: Iterable[Row], title: str, label: str) -> Callable[[str], alt.Y]:
    """Return a function that makes a linear y axis of a field, with the range of the rows' values."""
    axis, scale = alt.Axis(labelExpr=label, tickCount=8), value_scale(rows)
    return lambda field: alt.Y(f"{field}:Q", title=title, scale=scale, axis=axis)


def several(records: Sequence[Record], *keys: str) -> Callable[[Record], str]:
    """Return a function that names a record's series by the conditions that vary, or by the last if none varies."""
    varying = [k for k in keys if len({str(r.conditions.get(k)) for r in records}) > 1] or [keys[-1]]

    def name(r: Record) -> str:
        return ", ".join(condition_text(k, r.conditions.get(k)) for k in varying)

    return name


_TEMPLATES = {
    "pages": "pages {}",
    "memory_node": "memory of node {}",
    "cpu": "CPU {}",
    "store": "{} stores",
    "from_cpu": "from CPU {}",
    "to_cpu": "to CPU {}",
    "n": "n = {}",
    "library_kernel": "kernel {}",
    "queue_depth": "depth {}",
    "best_chains": "{} chains",
}
_MEMORIES = {"all": "memory of all nodes", "local": "local memory"}
_BARE = {"isa", "kernel", "mode", "type"}


def condition_text(key: str, value: Any) -> str:
    """Return a condition as text for a legend."""
    if value is None:
        return f"{key.removesuffix('_bytes').replace('_', ' ')} {UNKNOWN}"
    if key == "memory_node" and value in _MEMORIES:
        return _MEMORIES[str(value)]
    if key in {"threads", "jobs"}:
        return f"{value} {key if value != 1 else key[:-1]}"
    if key.endswith("_bytes") and isinstance(value, int | float) and not isinstance(value, bool):
        name = key.removesuffix("_bytes")
        return size(float(value)) if name in {"footprint", "table", "block"} else f"{name} {size(float(value))}"
    return str(value) if key in _BARE else _TEMPLATES.get(key, key.replace("_", " ") + " {}").format(value)


def sized(record: Record, key: str) -> str:
    """Return a condition in bytes as text, such as `4 KiB`."""
    value = number(record, key)
    return UNKNOWN if value is None else size(value)


def themed(drawn: Drawing, wide: bool = True) -> dict[str, Any]:
    """Return the Vega-Lite specification with the common style; the page sets the colours of texts."""
    spec: dict[str, Any] = drawn.chart.to_dict()
    spec["datasets"] = {**spec.get("datasets", {}), **drawn.data}
    if "concat" not in spec and wide:
        spec["width"], spec["height"] = "container", spec.get("height", HEIGHT)
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["background"] = "transparent"
    font = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
    spec["config"] = {
        "font": font,
        "view": {"stroke": None},
        "axis": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "gridOpacity": 0.25,
            "domainOpacity": 0.5,
            "tickOpacity": 0.5,
            "titlePadding": 10,
        },
        "axisBand": {"labelAngle": 0},
        "legend": {"labelFontSize": 12, "symbolStrokeWidth": 2, "orient": "top", "columns": 4, "labelLimit": 400},
        "title": {"fontSize": 12, "fontWeight": "normal"},
    }
    return spec


def for_file(drawn: Drawing) -> dict[str, Any]:
    """Return the specification for PNG and SVG: white background, fixed size."""
    spec = themed(drawn, wide=False)
    if "concat" not in spec:
        spec["width"], spec["height"] = WIDTH, spec.get("height", HEIGHT)
    spec["background"] = "white"
    if sum(len(rows) for rows in drawn.data.values()) > MANY:
        spec["config"]["aria"] = False  # the description of each mark: 60 % of a file, and half of the time to draw it
    return spec


def write_specs(specs: Mapping[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Write each Vega-Lite specification as PNG and SVG, each file atomically, and return the paths.

    Raises:
        DrawingError: Charts cannot be drawn on this machine.
    """
    paths: list[Path] = []
    for name, (png, svg) in zip(specs, vega.pictures(list(specs.values())), strict=True):
        pictures = folder / f"{name}.png", folder / f"{name}.svg"
        write_file(pictures[0], png)
        write_text(pictures[1], svg)
        paths += pictures
    return paths


def write_charts(drawn: Mapping[str, Drawing], folder: Path) -> list[Path]:
    """Write each drawing to a folder in the formats of files, and return the paths."""
    return write_specs({name: for_file(chart) for name, chart in drawn.items()}, folder)


def charts_or_reason(drawn: Mapping[str, Drawing], folder: Path) -> tuple[list[Path], str]:
    """Write charts like `write_charts`, but return no paths and the reason if charts cannot be drawn.

    The reason is "" if they were drawn.
    """
    try:
        return write_charts(drawn, folder), ""
    except DrawingError as error:
        return [], reason_of(error)


def chart_page(template: str, drawn: Mapping[str, Drawing], site: str = "", **data: Any) -> str:
    """Render a template with its data, charts and the chart library into a self-contained page.

    If the chart library is missing from the installation, the page states the reason in place of each chart.

    Args:
        template: Name of the template.
        drawn: The charts.
        site: Address of a folder with the chart library (`LIBRARY`); "" for a page that includes the library.
        data: Values by the name that the template uses.
    """
    specs = {name: themed(chart) for name, chart in drawn.items()}
    try:
        bundle, undrawn = "" if site else vega.library(), ""
    except DrawingError as error:
        bundle, undrawn = "", reason_of(error)
    _last_undrawn[0] = undrawn
    library = site and f"{site}{LIBRARY}"
    return str(render(template, specs=specs, bundle=bundle, library=library, site=site, undrawn=undrawn, **data))


def last_undrawn() -> str:
    """Return the reason why the page that `chart_page` rendered last has no charts, or ""."""
    return _last_undrawn[0]
