"""`meshmark composite`: recomputes composites of runs and publications from their rows, and compares them."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from meshmark.cli.options import JsonOption, StoreToReadOption


def register(app: typer.Typer) -> None:
    """Add the command `composite`."""
    app.command("composite")(composite)


def composite(
    a: Annotated[
        str,
        typer.Argument(metavar="A", help="a run, a machine of the store, or paper:NAME", show_default=False),
    ],
    b: Annotated[str, typer.Argument(metavar="[B]", help="another, which is divided by A", show_default=False)] = "",
    store: StoreToReadOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a composite: the ratios of its members, and their geometric mean. With B, compare B with A.

    A printed composite that does not follow from the printed ratios is named. meshmark measure composite measures one.

    example: meshmark composite paper:xeon5400 paper:xeon5500
    """
    from meshmark.compare.composites import compared, composites_of
    from meshmark.compare.sides import Sides
    from meshmark.views.terminal.composite import print_comparison, print_composites

    sides = Sides.here(store, "composite")
    composites = [composites_of(sides.find(name)) for name in (a, b) if name]
    pairs = compared(*composites) if b else []
    if as_json:
        for entry in (c for side in composites for c in side):
            print(json.dumps(entry.to_json()))
        for pair in pairs:
            print(json.dumps(pair.to_json()))
        return
    for side in composites:
        print_composites([c.to_json() for c in side])
    for pair in pairs:
        print_comparison(pair.to_json())
