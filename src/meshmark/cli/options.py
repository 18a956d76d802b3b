"""Options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="of a described machine: table.key=value; may be repeated", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="one object a line")]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="store folder [$XDG_DATA_HOME/meshmark/store]", show_default=False, file_okay=False),
]
NoStoreOption = Annotated[bool, typer.Option("--no-store", help="keep no records")]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        help="a recorded tree with proc and sys instead of this machine",
        exists=True,
        file_okay=False,
        show_default=False,
    ),
]


def time_option(name: str, text: str, low: float = 0.0, high: float = float("inf"), default: str = "") -> Any:
    """An option that takes a time as every command does (`500ms`, `10s`, `5m`; a bare number is s) and yields s.

    Args:
        low, high: what is allowed, s.
        default: as the help shows it; the parameter's own default is a number, in s.
    """

    def parse(value: str | float) -> float:
        from meshmark.values.grammar import seconds

        return value if isinstance(value, float) else seconds(name, value, low, high)

    told = f"{text} [{default}]" if default else text
    return typer.Option(name, parser=parse, metavar="TIME", help=told, show_default=False)
