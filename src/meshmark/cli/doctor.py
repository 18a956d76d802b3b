"""`meshmark doctor`: settings of this machine, its launchers and MPI libraries that hide or spoil measurements."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from meshmark.cli.console import counted, say
from meshmark.cli.options import RootOption
from meshmark.errors import MeshmarkError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshmark.doctor.finding import Finding

_STYLES: Final = {"spoils-measurements": "bold red", "hidden": "yellow", "unknown": "dim", "ok": "green"}


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    what: Annotated[str, typer.Argument(help="mpi: check launchers and MPI libraries [check this machine]")] = "",
    root: RootOption = None,
    mpi: Annotated[
        str, typer.Option("--mpi", help="MPI library to check: openmpi, mpich, mpi (any other), or all")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print one finding per line")] = False,
) -> None:
    """Find settings that hide data or spoil measurements, with the command that changes each.

    example: meshmark doctor
    example: meshmark doctor mpi --mpi openmpi
    """
    if what not in {"", "mpi"}:
        raise UsageError(f"doctor: found '{what}', allowed are mpi, or nothing for this machine")
    if mpi and not what:
        raise UsageError("--mpi: found without mpi", "meshmark doctor mpi --mpi " + mpi)
    if root and what:
        raise UsageError("--root: found with mpi, allowed without: MPI pitfalls are tested on the running system")
    if what:
        from meshmark.doctor.mpi import examine as examine_mpi

        with counted("doctor mpi") as progress:
            _say(examine_mpi(mpi or "all", progress=progress), as_json)
        return
    from meshmark.doctor.finding import Finding
    from meshmark.doctor.host import examine

    absent, wrong = _seen_by_the_sampler(root)
    findings = examine(root or Path("/"), absent)
    if wrong:
        why = "the metrics that it cannot read are unknown"
        findings.append(Finding("sampler", wrong, "unknown", why))
    if all(f.judged == "unknown" for f in findings if not f.name.startswith("sampler")):
        raise MeshmarkError(
            f"doctor: nothing could be read below {root or '/'}", "allowed are folders with proc and sys"
        )
    _say(findings, as_json)


def _say(findings: Sequence[Finding], as_json: bool) -> None:
    if as_json:
        for finding in findings:
            print(json.dumps(finding.to_json()))
        return
    _print(findings)
    counts = {j: sum(f.judged == j for f in findings) for j in _STYLES}
    say(
        f"{counts['spoils-measurements']} spoil measurements, {counts['hidden']} hide something, "
        f"{counts['unknown']} could not be read, {counts['ok']} OK"
    )


def _seen_by_the_sampler(root: Path | None) -> tuple[Sequence[Mapping[str, str]], str]:
    """The metrics that the sampler lacks, or why it cannot be started."""
    from meshmark.watch.live import Live

    try:
        with Live(10, 0.1, root) as live:
            return live.header.absent, ""
    except MeshmarkError as why:
        return (), " ".join(str(why).split())


def _print(findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("judged", no_wrap=True)
    for name, ratio in (("what", 3), ("found", 4), ("why it matters", 5)):
        table.add_column(name, ratio=ratio, overflow="fold")
    for f in findings:
        judged = Text(f.judged.partition("-")[0], style=_STYLES[f.judged])
        table.add_row(judged, Text(f.name), Text(f.found), Text(f.why))
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    wanted = [f for f in findings if f.command]
    if wanted:
        console.print(Text("\nto change them", style="bold"))
    for f in wanted:
        print(f"{f.name}\n    {f.command}")  # on one line, so that it can be copied
