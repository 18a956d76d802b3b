"""`meshmark store`: lists, exports, imports, verifies and removes records."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple

import typer

from meshmark.cli.completion import instruments, stored
from meshmark.cli.console import print_rows, say, say_broken
from meshmark.cli.options import StoreOption, StoreToReadOption, in_folder
from meshmark.errors import MeshmarkError, UsageError, near, quoted
from meshmark.values.paths import default_store

if TYPE_CHECKING:
    from arro3.core import Table

    from meshmark.store.store import Store

_REASONS = 20  # maximum number of omitted items that are listed
_LINES_IN_MEMORY_BYTES = 32 << 20  # exported lines beyond these are in a temporary file

app = typer.Typer(help="List, export, import, verify and remove records.", no_args_is_help=True)


def existing(folder: Path | None) -> Store:
    """Return the store for a command that only reads."""
    from meshmark.store.store import Store

    return Store(folder or default_store())


def check_runs(store: Store, field: str, runs: list[str]) -> None:
    """Raise UsageError if one of the runs is not in the store."""
    run_names = [row["run"] for row in store.runs()]
    if unknown := [run for run in runs if run not in run_names]:
        raise UsageError(f"{field}: found no run '{unknown[0]}'", near(unknown[0], run_names) or "meshmark store list")


@app.command("list")
def store_list(
    store: StoreToReadOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """List the runs of the store.

    example: meshmark store list --json
    """
    archive = existing(store)
    rows = archive.runs()
    say_broken(archive)
    print_rows(rows, as_json)


@app.command("machines")
def store_machines(
    store: StoreToReadOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """List the machines of the store, and the software and settings under which each produced its results.

    A row applies from its time until the next row of the same machine. Machines whose results were imported or modelled
    have a source instead.

    example: meshmark store machines --json
    """
    from meshmark.store.machines import machines, without_facts

    archive = existing(store)
    rows = [*machines(archive), *without_facts(archive)]
    say_broken(archive)
    if as_json:
        print_rows(list(rows), True)
        return
    for row in rows:
        about = "".join(f"\n    {k:<16}{v}" for k, v in row.items() if k not in {"machine", "seen"})
        print(f"{row['machine']} from {row.get('seen', 'an unknown time')}{about}")


@app.command("export")
def store_export(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="file to write [standard output]", show_default=False, callback=in_folder),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="output format: jsonl, csv, table")] = "jsonl",
    run: Annotated[str, typer.Option("--run", help="export only this run", autocompletion=stored)] = "",
    instrument: Annotated[
        str, typer.Option("--instrument", help="export only this instrument", autocompletion=instruments)
    ] = "",
    metric: Annotated[str, typer.Option("--metric", help="export only this metric")] = "",
    machine: Annotated[str, typer.Option("--machine", help="export only this machine, see store machines")] = "",
    since: Annotated[str, typer.Option("--since", help="export only results from this time on", metavar="DATE")] = "",
    until: Annotated[str, typer.Option("--until", help="export only results up to this time", metavar="DATE")] = "",
    store: StoreToReadOption = None,
) -> None:
    """Export records as JSON Lines, CSV or a table. Times are ISO 8601, such as 2026-11 or 2026-11-25T08.

    example: meshmark store export --format csv --instrument latency --since 2026-11
    """
    from meshmark.measure.selection import check_selection
    from meshmark.store.export import check_date, csv_header, csv_rows, row_of_line, started_between
    from meshmark.store.files import written

    if form not in {"jsonl", "csv", "table"}:
        raise UsageError(f"format: found '{form}'; allowed: jsonl, csv, table")
    if form == "table" and out is not None:
        raise UsageError("--out: found with --format table, allowed with jsonl and csv", "--format csv")
    check_date("--since", since)
    check_date("--until", until)
    equal = {"run": run, "instrument": instrument, "metric": metric, "machine": machine}
    selection = {k: v for k, v in equal.items() if v}
    archive = existing(store)
    if form == "table":
        rows = [row for row in archive.rows(**selection) if started_between(row, since, until)]
        if not rows:
            check_selection(archive, selection, "--")
        say_broken(archive)
        from meshmark.views.terminal.tables import print_tables

        print_tables([record for _, _, record in rows])
        return
    with tempfile.SpooledTemporaryFile(_LINES_IN_MEMORY_BYTES) as lines:
        parts = _write_lines(archive, lines, selection, since, until, with_conditions=form == "csv")
        if not parts:
            check_selection(archive, selection, "--")
        say_broken(archive)
        conditions = sorted({name for part in parts for name in part.conditions})
        sys.stdout.flush()
        with contextlib.nullcontext(sys.stdout.buffer) if out is None else written(out) as file:
            if form == "csv":
                file.write(csv_header(conditions).encode())  # UTF-8 in every locale, as in a file
            for part in parts:
                lines.seek(part.begin)
                text = lines.read(part.end - part.begin)
                if form == "csv":
                    text = csv_rows(map(row_of_line, text.splitlines()), conditions).encode()
                file.write(text)


class _Part(NamedTuple):
    """A part of a temporary file of JSON Lines, in bytes, and the conditions of its results if they are needed."""

    begin: int
    end: int
    conditions: set[str]


def _write_lines(
    archive: Store, lines: IO[bytes], selection: dict[str, str], since: str, until: str, with_conditions: bool
) -> list[_Part]:
    """Write results to a temporary file as JSON Lines, and return where each part of them is.

    The store reads the results again if a file turns out to be damaged; the parts before that remain in the temporary
    file, but are not returned.
    """
    from meshmark.store.export import started_between, to_jsonl

    def write(table: Table) -> list[_Part]:
        begin = lines.tell()
        rows = [row for row in archive.rows_in(table) if started_between(row, since, until)]
        try:
            lines.write(to_jsonl(rows).encode())
        except OSError as error:
            raise MeshmarkError(
                f"export: cannot write a temporary file: {error.strerror or error}",
                "set TMPDIR to a folder with more space",
            ) from error
        conditions = {name for _, _, record in rows for name in record.conditions} if with_conditions else set()
        return [_Part(begin, lines.tell(), conditions)] if rows else []

    return archive.selected("SELECT * FROM {rows}", write, **selection)


@app.command("import")
def store_import(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="card.json, or output of --json, store export, meshmark-probe or another tool",
            show_default=False,
        ),
    ],
    machine: Annotated[
        str,
        typer.Option(
            "--machine",
            help="machine of a card or of another tool's output [name in the card, name of the file]",
            show_default=False,
        ),
    ] = "",
    name: Annotated[
        str, typer.Option("--name", help="name of the run [machine, start and content]", show_default=False)
    ] = "",
    replace: Annotated[
        list[str] | None,
        typer.Option("--replace", help="remove this run, which the import replaces", metavar="RUN", show_default=False),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="exit with status 1 if anything was left out")] = False,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """Import records into the store. Existing records are skipped.

    Only runs that --replace names, and runs that an earlier version imported from the same output, are replaced.

    Output of other tools is recognised by its content: meshmark store formats lists them. Every row that is certainly
    correct is imported; the others are counted, with their lines and the reasons.

    example: ssh n042 meshmark-probe latency > n042.jsonl; meshmark store import n042.jsonl
    """
    from meshmark.measure.importers.importing import add_to, read_output
    from meshmark.measure.importers.outdated import superseded
    from meshmark.store.store import Store

    archive = Store(store or default_store())
    files = {source: read_output(source, machine) for source in sources}
    parts = [part for file in files.values() for part in file.parts]
    if replace:
        check_runs(archive, "--replace", replace)
    replaced_runs = list(dict.fromkeys([*(replace or ()), *superseded(archive, parts)]))
    imported = add_to(archive, parts, name, replaced_runs)
    say_broken(archive)
    total = sum(len(part.records) for part in parts)
    new = sum(count for _, count in imported)
    other_lines = sum(file.other_lines for file in files.values())
    left_out = [(source, item) for source, file in files.items() for item in file.left_out]
    left_out_count = sum(file.left_out_count for file in files.values())
    if as_json:
        rows = [{"type": "run", "run": run, "imported": count} for run, count in imported]
        rows += [
            {"type": "left_out", "file": str(source), "where": item.where, "reason": item.reason}
            for source, item in left_out
        ]
        rows += [{"type": "replaced", "run": run} for run in replaced_runs]
        counts = {"already_present": total - new, "left_out": left_out_count, "other_lines": other_lines}
        print_rows([*rows, {"type": "summary", "imported": new, **counts}], True)
    else:
        for run in dict.fromkeys(run for run, _ in imported):
            print(run)
        reasons = [f"{quoted(source.name)}: {item}" if len(files) > 1 else str(item) for source, item in left_out]
        say_imported(new, total - new, left_out_count, reasons, other_lines)
        for run in replaced_runs:
            say(f"replaced {run}")
    if strict and left_out_count:
        raise SystemExit(1)


def say_imported(new: int, present: int, left_out: int, reasons: list[str], other_lines: int) -> None:
    """Print the number of imported and omitted items; the first reason follows the count, others follow below."""
    notes = [f"already present {present}"] * bool(present)
    notes += [f"ignored {other_lines} other line{'s' * (other_lines != 1)}"] * bool(other_lines)
    if reasons:
        say(f"imported {new}, left out {left_out}: {quoted(reasons[0], 240)}")
    else:
        notes.insert(0, f"imported {new}")
    if notes:
        say(", ".join(notes))
    for reason in reasons[1:_REASONS]:
        say(f"left out: {quoted(reason, 240)}")
    if left_out > _REASONS:
        say(f"left out: {left_out - _REASONS} more; --json lists them")


@app.command("formats")
def store_formats(
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """List the tools whose output can be imported and compared.

    example: meshmark store formats
    """
    from meshmark.measure.importers.formats import readers

    print_rows([{"format": r.name, "what": r.title} for r in readers()], as_json)


@app.command("verify")
def store_verify(store: StoreToReadOption = None) -> None:
    """Verify the files of the store. Checks that values, intervals and samples agree.

    Also lists the runs that an earlier version imported from another tool's output and that this version reads
    differently. Importing the same files again replaces them.

    example: meshmark store verify
    """
    from meshmark.measure.importers.outdated import outdated_runs
    from meshmark.measure.runs.rank_files import abandoned
    from meshmark.store.files import leftovers

    archive = existing(store)
    bad = good = 0
    for path, problem in archive.verify():
        if problem:
            bad += 1
            print(f"{path.name}: {problem}")
        else:
            good += 1
    outdated = outdated_runs(archive)
    for run in outdated:
        print(run)
    say(f"{good} files OK, {bad} corrupt" + (f", {len(outdated)} runs outdated" if outdated else ""))
    if outdated:
        say("hint: import the files of these runs again: meshmark store import FILE replaces them")
    files, folders = leftovers(archive.folder), abandoned()
    if files:
        say(f"{len(files)} temporary files of writers that were killed, such as {files[0].name}")
    if folders:
        say(f"{len(folders)} folders of shared memory of measurements that were killed, such as {folders[0]}")
    if files or folders:
        say("hint: meshmark store compact removes them")
    if bad or outdated:
        raise SystemExit(1)


def _removed(runs: int, files: int) -> str:
    return f"removed {runs} run{'s' * (runs != 1)} ({files} file{'s' * (files != 1)})"


@app.command("rm")
def store_rm(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="names, see store list", show_default=False, autocompletion=stored),
    ],
    store: StoreToReadOption = None,
) -> None:
    """Remove runs from the store. Their run folders and reports are kept.

    example: meshmark store rm measure-20261125T064908-ae4ab4e8
    """
    archive = existing(store)
    check_runs(archive, "run", runs)
    say_broken(archive)
    files = sum(map(archive.remove, dict.fromkeys(runs)))
    say(_removed(len({*runs}), files))


@app.command("compact")
def store_compact(
    days: Annotated[
        float, typer.Option("--older-than", min=0, max=36500, help="days since the date of a run", metavar="DAYS")
    ] = 31.0,
    store: StoreToReadOption = None,
) -> None:
    """Join the files of a store: the steps of unfinished runs, and the older runs of each month and machine.

    No result changes. Queries of large stores become faster.

    example: meshmark store compact --older-than 7
    """
    from datetime import UTC, datetime, timedelta

    from meshmark.measure.runs.rank_files import remove_abandoned
    from meshmark.store.compaction import compact

    cutoff_date = (datetime.now(UTC) - timedelta(days=days)).date().isoformat()
    result = compact(existing(store), cutoff_date)
    folders = remove_abandoned()
    say(
        f"files: {result.finished} of unfinished runs joined, {result.joined} of months joined"
        + (f", {result.leftovers} temporary files of killed writers removed" if result.leftovers else "")
        + (f", {folders} folders of shared memory of killed measurements removed" if folders else "")
        + (f", {result.unreadable} unreadable left" if result.unreadable else "")
    )


@app.command("prune")
def store_prune(
    days: Annotated[
        float, typer.Option("--older-than", min=0, max=36500, help="days since the start of a run", metavar="DAYS")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="remove them; without it they are only listed")] = False,
    store: StoreToReadOption = None,
) -> None:
    """Remove old runs from the store. Without --yes, list them.

    example: meshmark store prune --older-than 90
    """
    from datetime import UTC, datetime, timedelta

    archive = existing(store)
    limit = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S")
    old_rows = [
        row for row in archive.runs() if re.match(r"\d{4}-\d\d-\d\dT", row["start"] or "") and row["start"] < limit
    ]
    say_broken(archive)
    if not yes:
        print_rows(old_rows, False)
        say(f"{len(old_rows)} run{'s' * (len(old_rows) != 1)}; remove with --yes")
        return
    files = sum(archive.remove(row["run"]) for row in old_rows)
    say(_removed(len(old_rows), files))
