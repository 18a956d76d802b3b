"""`init` of `survey`, `load` and `model`: writes a commented input file to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from meshmark.cli.console import say
from meshmark.errors import UsageError, quoted


def register(app: typer.Typer, package: str, what: str, default: str, then: str) -> None:
    """Add `init` to a group of commands.

    Args:
        package: The package with `template.toml`.
        what: What the file describes, for the help: "a scenario".
        default: The name of the file if none is given.
        then: What to do with the file, with `FILE` in place of its name.
    """

    def init(
        file: Annotated[Path, typer.Argument(help="file to write")] = Path(default),
        force: Annotated[bool, typer.Option("--force", help="overwrite it")] = False,
    ) -> None:
        from importlib import resources

        from meshmark.store.files import write_file

        if file.exists() and not force:
            raise UsageError(f"file: {quoted(file)} exists; allowed: a new file, or --force")
        write_file(file, resources.files(package).joinpath("template.toml").read_bytes())
        print(file)
        say(f"next: {then.replace('FILE', shlex.quote(str(file) if '/' in str(file) or file.suffix else f'./{file}'))}")

    command = package.removeprefix("meshmark.").replace("measure", "survey")
    init.__doc__ = f"Write {what} with comments, to begin with.\n\nexample: meshmark {command} init mine.toml"
    app.command("init")(init)
