"""Shows results in notebooks: as HTML, and the charts of the report as charts of Altair."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import altair as alt

from meshmark.compare.join import ResultComparison
from meshmark.errors import AbsentError, UsageError, quoted
from meshmark.model.machine import MachineFile
from meshmark.store.export import Row
from meshmark.store.record import Record
from meshmark.values.units import plain
from meshmark.views.charts.drawing import Drawing, for_file
from meshmark.views.content.listing import result_tables
from meshmark.views.content.selection import cleaned
from meshmark.views.mesh import mesh_svg
from meshmark.views.pages import comparison, recording
from meshmark.views.pages.sections import SECTIONS
from meshmark.views.render import render
from meshmark.views.tables import TableSection, TextTable
from meshmark.watch.frames import Frame, Header

ROWS: Final = 40  # most rows of a table; further rows are only counted
_PALETTE: Final = "inferno"


@dataclass(frozen=True, slots=True)
class ResultGroup:
    """The results of an instrument on a machine, below the conditions that they share."""

    head: str
    common: str
    listed: Sequence[TableSection]


def records_html(rows: Sequence[Row], notes: Sequence[str] = ()) -> str:
    """Render records as tables, in groups by machine and instrument, in the order of the rows.

    Args:
        rows: Run, step and record of each row.
        notes: Lines below the tables.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row[2].machine, row[2].instrument), []).append(row)
    rows_left, shown_groups = ROWS, []
    for (machine, instrument), group_rows in groups.items():
        common, listed = result_tables(cleaned(_told_apart(group_rows)), (), rows_left)
        if not listed:
            break
        rows_left -= sum(len(section.table.rows) for section in listed)
        shown_groups.append(ResultGroup(f"{machine}: {instrument}", common, listed))
    return render("notebook/records.html", groups=shown_groups, shown=ROWS - rows_left, total=len(rows), notes=notes)


def _told_apart(rows: Sequence[Row]) -> list[Record]:
    """Return the records, with run and step as conditions where these differ."""
    runs, steps = {run for run, _, _ in rows}, {step for _, step, _ in rows}
    return [
        replace(
            record,
            conditions={
                **({"run": run} if len(runs) > 1 else {}),
                **({"step": step} if len(steps) > 1 else {}),
                **record.conditions,
            },
        )
        for run, step, record in rows
    ]


def rows_html(
    columns: Sequence[str], units: Mapping[str, str], records: Collection[Mapping[str, Any]], notes: Sequence[str] = ()
) -> str:
    """Render rows of any columns as a table. Numbers have a unit if their column has one.

    Args:
        columns: Names of the columns, in their order.
        units: Units by column.
        records: The rows, each with its values by column.
        notes: Lines below the table.
    """
    rows = list(islice(records, ROWS))
    cells = [[_cell(row[name], units.get(name, "") or _text(row.get("unit"))) for name in columns] for row in rows]
    numbers = {i for row in rows for i, name in enumerate(columns) if type(row[name]) in {int, float}}
    table = TextTable([name.replace("_", " ") for name in columns], cells, numbers)
    return render("notebook/rows.html", rows=table, shown=len(rows), total=len(records), notes=notes)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _cell(value: Any, unit: str) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else plain(value, unit) if isinstance(value, float) else str(value)


def comparison_html(c: ResultComparison) -> str:
    """Render the pairs of a comparison, metric by metric, with ratios on an axis."""
    return render("notebook/comparison.html", **comparison.parts([c]))


def machine_html(machine: MachineFile, figures: Sequence[tuple[str, str, str]], notes: Sequence[str] = ()) -> str:
    """Render the mesh of a model, and its figures.

    Args:
        machine: The modelled machine.
        figures: Name, value and source of each figure.
        notes: Lines below the figures.
    """
    return render(
        "notebook/machine.html",
        label=machine.label,
        title=machine.title,
        # Embed the mesh as an image, since the style of an inline drawing would apply to the whole notebook.
        mesh="data:image/svg+xml;base64," + b64encode(mesh_svg(machine, light=True).encode()).decode(),
        figures=TextTable(["figure", "value", "by"], figures, {1}),
        shown=len(figures),
        total=len(figures),
        notes=notes,
    )


# ------------------------------------------------------------------ charts


def altair_chart(drawn: Drawing) -> Any:
    """Return a chart of the report as an `altair` chart, with the size and style of the report's files."""
    kind: Any = type(drawn.chart)
    return kind.from_dict(for_file(drawn), validate=False)  # Altair validates the chart when it is shown


def charts_of(records: Sequence[Record]) -> dict[str, Drawing]:
    """Return the charts that these records give, by the name of their section, in the order of the report."""
    usable = cleaned(records)
    charts = {s.name: s.draw(usable, {}) if s.needs_topology else s.draw(usable) for s in SECTIONS}
    return {name: drawn for name, drawn in charts.items() if drawn is not None}


def chosen(charts: Mapping[str, Drawing], name: str, known: Sequence[str]) -> Drawing:
    """Return a chart by name; "" is the first chart.

    Args:
        charts: The charts that the results give, by name.
        name: Name of a chart, or "".
        known: The names of all charts that exist.

    Raises:
        UsageError: There is no chart of this name.
        AbsentError: The results do not give this chart, or do not give any chart.
    """
    if name and name not in known:
        raise UsageError(f"chart: found '{quoted(name)}'; allowed: {', '.join(known)}")
    if not charts or (name and name not in charts):
        available = f"; they give {', '.join(charts)}" if charts else ""
        raise AbsentError(f"chart: these results do not give {f'the chart {name}' if name else 'a chart'}{available}")
    return charts[name] if name else next(iter(charts.values()))


def chart_names() -> list[str]:
    """Return the names of the charts of records."""
    return [s.name for s in SECTIONS]


def recording_chart(header: Header, frames: Sequence[Frame]) -> Any:
    """Return the use of each class of components over time, one raster below the other.

    Raises:
        MeshmarkError: There is no frame.
        AbsentError: No frame has the use of a class.
    """
    classes = recording.binned(header, frames)
    unit_s = 1e-6 if header.period_s < 1e-3 else 1.0
    rasters = [
        recording.raster(b, 0.0, 1.0, _PALETTE, unit_s) for b in classes if any(v is not None for u in b.use for v in u)
    ]
    if not rasters:
        raise AbsentError("chart: no frame has the use of a CPU, memory, link or device")
    return alt.vconcat(*rasters).properties(background="white")
