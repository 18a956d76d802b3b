"""`meshmark share` and `meshmark site`: results that others may see, and a site of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.completion import runs as known_runs
from meshmark.cli.console import say
from meshmark.cli.options import JsonOption, in_folder
from meshmark.errors import MeshmarkError, UsageError

if TYPE_CHECKING:
    from meshmark.views.shared.check import SharedMachine


def register(app: typer.Typer) -> None:
    """Add the commands `share` and `site`."""
    app.command("share")(share)
    app.command("site")(site)


def share(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="run or folder of a survey, or latest; with --check, shared files",
            autocompletion=known_runs,
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="file to write [none: only show]", show_default=False, callback=in_folder),
    ] = None,
    title: Annotated[
        str, typer.Option("--title", help="name of the machine [its processors]", show_default=False)
    ] = "",
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="FIGURE", help="leave out a figure and its results", show_default=False),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="check shared files; exit with status 1 if one must not be published")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a small file with the results of a run that others may see.

    The file has figures, intervals, flags, curves and facts of the machine, but no name of a host or user, no serial
    number, address or path. What it contains is printed before it is written.

    example: meshmark share latest --title "Two EPYC 9654" -o epyc-9654.json
    """
    if check:
        if output is not None or title or without:
            raise UsageError("--check: found another option; only files can be given with --check")
        _check([Path(name) for name in runs or []], as_json)
        return
    if len(runs or []) > 1:
        raise UsageError(f"found {len(runs or [])} runs; allowed: one run (to check shared files: --check)")
    _share((runs or ["latest"])[0], output, title, without or [], as_json)


def _share(run: str, output: Path | None, title: str, without: list[str], as_json: bool) -> None:
    from meshmark.cli.measure.survey import results_of
    from meshmark.store.files import write_text
    from meshmark.views.shared.check import checked_text, problems
    from meshmark.views.shared.reduce import shared_result
    from meshmark.views.terminal.shared import print_shared

    _, (records, _, info), _ = results_of(run)
    shared = shared_result(records, info, title, without)
    machine = checked_text(shared.text)
    refused = problems(machine)
    if as_json:
        print(json.dumps(json.loads(shared.text)))
    else:
        print_shared(machine, len(shared.text.encode()), shared.left_out)
    for reason in refused:
        say(f"warning: {reason}")
    if refused:
        say("meshmark: meshmark share --check refuses this file; measure again, or leave figures out: --without FIGURE")
    if output is None:
        say("meshmark: nothing was written; to write this to a file: -o FILE")
        return
    write_text(output, shared.text)
    say(f"meshmark: wrote {output}")


def _check(paths: list[Path], as_json: bool) -> None:
    from meshmark.views.shared.check import problems, read_shared

    if not paths:
        raise UsageError("--check: found no file; at least one is required")
    refused = 0
    for path in paths:
        machine = ""
        try:
            shared = read_shared(path)
            machine, reasons = shared.result.title, problems(shared)
        except MeshmarkError as error:
            reasons = [str(error)]
        refused += bool(reasons)
        if as_json:
            print(json.dumps({"file": str(path), "machine": machine, "refused": reasons}))
        else:
            print(f"{path}: {'refused' if reasons else f'accepted: {machine}'}")
            for reason in reasons:
                print(f"  {reason}")
    if refused:
        raise typer.Exit(1)


def site(
    folder: Annotated[Path, typer.Argument(help="folder with shared files (*.json), also below it")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="folder to write to; it may be published as it is")
    ] = Path("html"),
    title: Annotated[str, typer.Option("--title", help="title of the site")] = "Measured machines",
    strict: Annotated[
        bool, typer.Option("--strict", help="exit with status 1 if a file is left out, and write nothing")
    ] = False,
) -> None:
    """Make a static site of shared files: a table of machines, a page for each, and comparisons.

    example: meshmark site results -o html
    """
    from meshmark.values.units import counted
    from meshmark.views.shared.check import read_shared
    from meshmark.views.shared.site import write_site

    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder; a folder with shared files is required")
    machines: list[SharedMachine] = []
    left_out = 0
    for path in sorted(folder.rglob("*.json")):
        try:
            machines.append(read_shared(path))
        except MeshmarkError as error:
            left_out += 1
            say(f"left out: {error}")
    if strict and left_out:
        raise MeshmarkError(f"--strict: {counted(left_out, 'file')} left out, so nothing was written")
    if not machines:
        raise UsageError(f"{folder}: has no shared result", "meshmark share -o FILE writes one")
    index = write_site(machines, output, title)
    say(
        f"meshmark: {counted(len(machines), 'machine')}"
        + (f", {counted(left_out, 'file')} left out" if left_out else "")
    )
    print(index)
