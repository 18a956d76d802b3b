"""Options of the commands that run a command under several settings, and the completion of a setting."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from meshmark.cli.completion import beginning, policies

_HELPS: Final = {
    "same": "the command as it is",
    "slots:": "number of slots of meshmark run",
    "memory:": "memory policy of meshmark run",
    "pages:": "page size of meshmark run",
    "run:": "options of meshmark run",
    "ssh:": "run the command on another machine",
    "shell:": "a shell command before each run",
}

MetricOption = Annotated[
    str,
    typer.Option(
        "--metric",
        help="compare this metric of the records that the command prints with --json [elapsed time]",
        show_default=False,
    ),
]

PatternOption = Annotated[
    str,
    typer.Option(
        "--pattern",
        help="compare the last match of this regular expression in the output, or its first group",
        metavar="REGEX",
        show_default=False,
    ),
]

BetterOption = Annotated[
    str,
    typer.Option(
        "--better",
        help="which values of --pattern or --metric are better: lower, higher",
        autocompletion=lambda: ["lower", "higher"],
        show_default=False,
    ),
]

RestoreOption = Annotated[
    str,
    typer.Option("--restore", help="shell command to run at the end", metavar="COMMAND", show_default=False),
]


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Return the completions of a setting, with their help."""
    if incomplete.startswith("bind:"):
        return [(f"bind:{word}", text) for word, text in policies(incomplete.removeprefix("bind:"))]
    return beginning({"bind:": "policy of meshmark run", **_HELPS}, incomplete)
