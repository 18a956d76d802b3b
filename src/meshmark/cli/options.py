"""Options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

# Options that were renamed in 0.1.0: command, old name, new name, and the values that changed. They leave in 0.2.0.
# Those of commands that become the native placer: `Arguments::renamed`.
RENAMED: Final[tuple[tuple[tuple[str, ...], str, str, dict[str, str]], ...]] = (
    (("load", "base"), "--anyway", "--force", {}),
    (("model", "place-io"), "--least", "--minimize", {}),
    (("model", "show"), "--numbers", "--origins", {}),
    (("watch",), "--of", "--full-scale", {"attained": "sustained", "wire": "theoretical"}),
)


def current(argv: list[str]) -> tuple[list[str], list[str]]:
    """Replaces options of the previous release by their present names.

    Returns:
        The command line, and a note for each option that was replaced.
    """
    notes = []
    for command, old, new, values in RENAMED:
        if tuple(argv[: len(command)]) != command:
            continue
        for n, word in enumerate(argv[len(command) :], len(command)):
            name, equals, value = word.partition("=")
            if name != old:
                continue
            argv = [*argv[:n], new + equals + values.get(value, value), *argv[n + 1 :]]
            if values and not equals and n + 1 < len(argv):
                argv[n + 1] = values.get(argv[n + 1], argv[n + 1])
            notes.append(f"{old} is now {new}; the old name will be removed in 0.2.0")
    return argv, notes


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="override one value of a modelled machine: table.key=value; may be repeated", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON object per line")]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="store folder [$XDG_DATA_HOME/meshmark/store]", show_default=False, file_okay=False),
]
NoStoreOption = Annotated[bool, typer.Option("--no-store", help="do not store the records")]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        help="read /proc and /sys of a recorded machine from this folder",
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

    shown = f"{text} [{default}]" if default else text
    return typer.Option(name, parser=parse, metavar="TIME", help=shown, show_default=False)
