"""`meshmark export`: writes the results of a machine in the formats of other tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from meshmark.cli.completion import beginning, compared
from meshmark.cli.console import print_rows, say, say_broken
from meshmark.cli.options import InstrumentOption, JsonOption, MetricOption, StoreToReadOption, in_folder
from meshmark.errors import UsageError

_LIST = "formats"


def register(app: typer.Typer) -> None:
    """Add the command `export`."""
    app.command("export")(export)


def _formats(incomplete: str) -> Iterable[tuple[str, str]]:
    from meshmark.compare.exports.formats import FORMATS

    return beginning({**{f.name: f.summary for f in FORMATS.values()}, _LIST: "list them"}, incomplete)


def export(
    form: Annotated[
        str, typer.Argument(metavar="FORMAT", help=f"a format, or `{_LIST}` to list them", autocompletion=_formats)
    ] = "",
    side: Annotated[
        str,
        typer.Argument(
            metavar="SIDE",
            help="host, latest, a machine of the store (MACHINE, MACHINE@DATE, MACHINE@all), a run, a run folder or a "
            "file of results",
            autocompletion=compared,
        ),
    ] = "host",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="file to write [standard output]", show_default=False, callback=in_folder),
    ] = None,
    topology: Annotated[
        str,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="capture, hwloc XML or synthetic topology of the machine [this host, if the results are its own]",
            show_default=False,
        ),
    ] = "",
    flagged: Annotated[bool, typer.Option("--flagged", help="export flagged results, too")] = False,
    instrument: InstrumentOption = "",
    metric: MetricOption = "",
    listed: Annotated[bool, typer.Option("--list", help="list the formats")] = False,
    store: StoreToReadOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the results of a machine in the format of another tool.

    example: meshmark export hwloc-xml -o n042.xml
    """
    from meshmark.compare.exports.base import NEEDS, ExportMaterial, machine_of
    from meshmark.compare.exports.formats import FORMATS, format_of, write
    from meshmark.compare.sides import Sides
    from meshmark.store.files import write_text

    if listed or form == _LIST:
        rows = [
            {"format": f.name, "needs": NEEDS[f.needs] if f.write else "a recording", "what": f.summary}
            for f in FORMATS.values()
        ]
        print_rows(rows, as_json)
        return
    if not form:
        raise UsageError(f"format: missing; allowed: {', '.join(FORMATS)}", f"meshmark export {_LIST}")
    export_format = format_of(form)
    sides = Sides.here(store, "export")
    results = sides.find(side)
    records = [r for r in results.records if instrument in {"", r.instrument} and metric in {"", r.metric}]
    if not records:
        selection = [f"{k} {v}" for k, v in (("instrument", instrument), ("metric", metric)) if v]
        raise UsageError(
            f"export: found no result of {', '.join(selection)} in {side}", f"meshmark export {form} {side}"
        )
    history_rows = []
    if export_format.needs == "history":
        history_rows = [
            row
            for row in sides.store.rows(machine=results.machine)
            if instrument in {"", row[2].instrument} and metric in {"", row[2].metric}
        ]
    say_broken(sides.store)
    material = ExportMaterial(
        side=replace(results, records=records),
        opened=machine_of(results, topology, sides.host),
        rows=history_rows,
        flagged=flagged,
    )
    text = write(form, material)
    for note in [*material.notes, *material.left_out()]:
        say(f"note: {note}")
    if as_json:
        notes = [*material.notes, *material.left_out()]
        text = json.dumps({"format": form, "machine": results.machine, "text": text, "notes": notes}) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)
        say(f"meshmark: wrote {output}")
