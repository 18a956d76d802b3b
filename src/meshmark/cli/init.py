"""`meshmark survey init` and `load init`: write a commented input file as a starting point.

`cli.model_init` extends this by templates of machines.
"""

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
        app: The group.
        package: The package with `template.toml`.
        what: Content of the file in words of the help, such as "a scenario".
        default: The default name of the file.
        then: The next commands, in which `FILE` stands for the name of the file.
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
    """Refuse to overwrite a file unless `force` is set.

    Raises:
        UsageError: The file exists, and `force` is not set.
    """
    if file.exists() and not force:
        raise UsageError(f"file: {quoted(file)} exists; allowed: a new file, or --force")


def write_template(package: str, file: Path, then: str) -> None:
    """Write the `template.toml` of a package to a file, and print the next commands."""
    from importlib import resources

    from meshmark.store.files import write_file

    write_file(file, resources.files(package).joinpath("template.toml").read_bytes())
    print(file)
    say_next(file, then)


def say_next(file: Path, then: str) -> None:
    """Print the next commands for a file: `then`, in which `FILE` is replaced by the name of the file."""
    say(f"next: {then.replace('FILE', shlex.quote(str(file) if '/' in str(file) or file.suffix else f'./{file}'))}")
