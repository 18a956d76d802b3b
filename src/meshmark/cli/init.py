"""`init` of `survey` and `load`: writes a commented input file to begin with. `cli.model_init` adds templates to it."""

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
        check_new(file, force)
        write_template(package, file, then)

    command = package.removeprefix("meshmark.").replace("measure", "survey")
    init.__doc__ = f"Write {what} with comments, to begin with.\n\nexample: meshmark {command} init mine.toml"
    app.command("init")(init)


def check_new(file: Path, force: bool) -> None:
    """Refuse to overwrite a file.

    Raises:
        UsageError: The file exists, and `force` is not given.
    """
    if file.exists() and not force:
        raise UsageError(f"file: {quoted(file)} exists; allowed: a new file, or --force")


def write_template(package: str, file: Path, then: str) -> None:
    """Write the `template.toml` of a package to a file, and print what to do with it."""
    from importlib import resources

    from meshmark.store.files import write_file

    write_file(file, resources.files(package).joinpath("template.toml").read_bytes())
    print(file)
    say_next(file, then)


def say_next(file: Path, then: str) -> None:
    """Print what to do with a file: `then` with `FILE` in place of its name."""
    say(f"next: {then.replace('FILE', shlex.quote(str(file) if '/' in str(file) or file.suffix else f'./{file}'))}")
