"""Reads, checks and writes files of results, and generates the tables of bench/README.md from them.

    .venv/bin/python bench/results.py                 write the tables into the README
    .venv/bin/python bench/results.py --check         fail if the tables of the README do not match the files
    .venv/bin/python bench/results.py --show FILE …   print all rows of files as tables

A script calls `add_row` for each figure inside of `recording`; with `--record`, the rows of the run are written to
`bench/results/DATE-PROCESSOR.json` and the README is generated again.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import math
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, Field

from meshmark.errors import MeshmarkError, UsageError
from meshmark.store.files import read_json, write_file
from meshmark.values.inputs import LIST, Input, checked

BENCH: Final = Path(__file__).resolve().parent
FOLDER: Final = BENCH / "results"
README: Final = BENCH / "README.md"
Limits = tuple[float | None, float | None]  # the lowest and the highest figure that the aim allows; None: unbounded


class Figure(NamedTuple):
    """A median or estimate with its range or interval; NaN: unknown."""

    median: float
    low: float
    high: float


def _number_or_range(value: Any) -> Any:
    numbers = value if isinstance(value, list) and len(value) == 3 else [value]
    median, low, high = numbers if len(numbers) == 3 else (None, None, value)
    known = [n for n in (low, median, high) if n is not None]
    are_numbers = all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in known)
    if high is not None and are_numbers and known == sorted(known):
        return value
    raise ValueError("allowed: a number, or a list of median (or null), lowest (or null) and highest")


FigureJson = Annotated[Any, AfterValidator(_number_or_range)]
Text = Annotated[str, Field(min_length=1)]
Date = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$", description="a date such as 2026-11-21")]


@dataclass(frozen=True, slots=True)
class ResultRow(Input):
    """One figure.

    Attributes:
        unit: Displayed unit; `of 20` for a count.
        peer: Program that Meshmark is compared with, in this `version`; `theirs` is its value in the same unit.
        ratio: Ours over theirs; in several rounds, the median of the ratios of pairs and their range. If `what` says
            so, it is the ratio of speeds, the inverse of the ratio of times.
        reached: Whether the aim is reached; None without an aim, or if the figure does not decide it.
        flags: Flags of the records of Meshmark.
        absent: Why there is no figure.
    """

    what: Text
    unit: str
    ours: FigureJson | None = None
    peer: str = ""
    version: str = ""
    theirs: FigureJson | None = None
    ratio: FigureJson | None = None
    aim: str = ""
    reached: bool | None = None
    rounds: int | None = None
    flags: Annotated[tuple[str, ...], LIST] = ()
    notes: str = ""
    absent: str = ""


@dataclass(frozen=True, slots=True)
class ResultRun(Input):
    """The rows of one run of a command. An empty commit or condition was not recorded."""

    subject: Text
    command: Text
    rows: Annotated[tuple[ResultRow, ...], LIST]
    commit: str = ""
    conditions: str = ""


@dataclass(frozen=True, slots=True)
class ResultMachine(Input):
    """The machine on which a file was recorded."""

    processor: Text
    cpus: int
    guest: bool
    memory_gib: int | None = None
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class ResultFile(Input):
    """All results of one day and one machine."""

    date: Date
    machine: ResultMachine
    runs: Annotated[tuple[ResultRun, ...], LIST]


# ------------------------------------------------------------------ files


def read_results(path: Path) -> ResultFile:
    """Return a checked file of results.

    Raises:
        UsageError: The file cannot be read or is not valid; the message is one line.
    """
    return checked(ResultFile, read_json(path), path.name)


def all_results(folder: Path = FOLDER) -> dict[str, ResultFile]:
    """Return all files of results by name, the oldest first."""
    return {path.name: read_results(path) for path in sorted(folder.glob("*.json"))}


def results_text(results: ResultFile) -> str:
    """Return the JSON of results, one line per row, without fields that have their default."""
    line_by_mark: dict[str, str] = {}

    def marked(row: dict[str, Any]) -> str:
        mark = f"row {len(line_by_mark)}"
        line_by_mark[json.dumps(mark)] = json.dumps(row, ensure_ascii=False, allow_nan=False)
        return mark

    document = _without_defaults(asdict(results))
    for run in document["runs"]:
        run["rows"] = [marked(row) for row in run.pop("rows")]
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return re.sub(r'"row \d+"', lambda match: line_by_mark[match[0]], text) + "\n"


def _without_defaults(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_defaults(v) for k, v in value.items() if v not in (None, "", ()) or k == "unit"}
    return [_without_defaults(v) for v in value] if isinstance(value, tuple) else value


def save_run(run: ResultRun, date: str, machine: ResultMachine, folder: Path = FOLDER) -> Path:
    """Write a run to the file of its date and machine, and return the path.

    A run of the same command replaces the earlier one. Another machine with the same name of its processor gets a
    file with a number.
    """
    name = f"{date}-{re.sub(r'[^a-z0-9]+', '-', machine.processor.lower()).strip('-')}"
    for number in itertools.count(1):
        path = folder / (f"{name}.json" if number == 1 else f"{name}-{number}.json")
        results = read_results(path) if path.exists() else ResultFile(date, machine, ())
        if results.machine == machine:
            break
    runs = (*(r for r in results.runs if r.command != run.command), run)
    path.parent.mkdir(exist_ok=True)
    write_file(path, results_text(ResultFile(date, machine, runs)).encode())
    return path


# ------------------------------------------------------------------ recording

_ROWS: Final[list[ResultRow]] = []  # of the current run of a script


def bench_parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a script, with `--record`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the rows to bench/results, and bench/README.md")
    return parser


def this_machine() -> ResultMachine:
    """Return the description of this machine."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    match = re.search(r"model name\s*:\s*(.+)", cpuinfo)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return ResultMachine(
        processor=match[1] if match else platform.processor() or platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        guest=" hypervisor" in cpuinfo,
        memory_gib=round(memory),
        kernel=platform.release().split("-")[0],
    )


def public_command(argv: Sequence[str]) -> str:
    """Return a command line without the paths in its arguments, which may be private."""
    words = ("PATH" if Path(w).exists() else re.sub(r"[^=]*/.*", "PATH", w) for w in argv[1:])
    return shlex.join([f"bench/{Path(argv[0]).name}", *words])


@contextlib.contextmanager
def recording(subject: str, options: argparse.Namespace) -> Iterator[None]:
    """Collect the rows of a block; with `--record`, write them at its end, also after an interruption.

    Raises:
        SystemExit: `--record` was given with `--brief`.
    """
    if options.record and getattr(options, "brief", False):
        raise SystemExit("--record: the figures of --brief mean nothing")
    now = datetime.datetime.now(datetime.UTC)
    conditions = f"{now:%H:%M} UTC, load {os.getloadavg()[0]:.1f} at the start"
    _ROWS.clear()
    try:
        yield
    finally:
        if options.record and _ROWS:
            words = [w for w in sys.argv if w != "--record"]
            git = ["git", "-C", str(BENCH), "describe", "--always", "--exclude", "*", "--dirty=.dirty", "--abbrev=8"]
            commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
            run = ResultRun(subject, public_command(words), tuple(_ROWS), commit, conditions)
            path = save_run(run, f"{now:%Y-%m-%d}", this_machine())
            update_readme()
            print(f"written: bench/results/{path.name} and bench/README.md", file=sys.stderr)


def result_row(
    what: str,
    unit: str,
    ours: float | Sequence[float] | Figure,
    *,
    peer: str = "",
    version: str = "",
    theirs: float | Sequence[float] | Figure = (),
    limits: Limits = (None, None),
    of_speeds: bool = False,
    flags: Iterable[str] = (),
    notes: str = "",
    absent: str = "",
) -> ResultRow:
    """Return a row.

    Args:
        what: What was measured.
        unit: Unit of `ours` and `theirs`.
        ours: One value, all values (their median and range are kept), or an estimate with its interval.
        peer: What ours is compared with.
        version: Version of the peer.
        theirs: Values of the peer. If both are lists of one length, they are pairs, whose ratios count.
        limits: Aim for the ratio, or for `ours` if there is no ratio.
        of_speeds: Whether the values are times and the ratio is a ratio of speeds.
        flags: Flags of the records.
        notes: What else a reader needs.
        absent: Why there are no values.
    """
    ratios: list[float] = []
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        ratios = [b / a if of_speeds else a / b for a, b in zip(ours, theirs, strict=True)]
    figure, (low, high) = _figure(ours), limits
    judged = _figure(ratios) if ratios else figure
    middle = judged[0] if isinstance(judged, list) else judged
    reached = (low is None or middle >= low) and (high is None or middle <= high) if middle is not None else None
    return ResultRow(
        what=what,
        unit=unit,
        ours=figure,
        peer=peer,
        version=version,
        theirs=_figure(theirs),
        ratio=_figure(ratios),
        aim=_aim(limits),
        reached=None if limits == (None, None) else reached,
        rounds=len(ours) if isinstance(ours, list) and ours else None,
        flags=tuple(sorted(flags)),
        notes=notes,
        absent=absent,
    )


def add_row(what: str, unit: str, ours: float | Sequence[float] | Figure, **options: Any) -> None:
    """Add a row to the current run, with the arguments of `result_row`. A NaN is not added."""
    row = result_row(what, unit, ours, **options)
    if row.ours is not None or row.absent:
        _ROWS.append(row)


def add_rows(rows: Iterable[ResultRow]) -> None:
    """Add complete rows to the current run."""
    _ROWS.extend(rows)


def _figure(values: float | Sequence[float] | Figure) -> Any:
    if isinstance(values, Figure):
        median, low, high = map(_rounded, values)
        return median if high is None else [median, low, high]
    if not isinstance(values, Sequence):
        return _rounded(values)
    if not values:
        return None
    if len(values) == 1:
        return _rounded(values[0])
    return [_rounded(n) for n in (statistics.median(values), min(values), max(values))]


def _rounded(value: float) -> float | None:
    if isinstance(value, int):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _aim(limits: Limits) -> str:
    low, high = limits
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return f"≥ {low:g}" if low is not None else f"≤ {high:g}" if high is not None else ""


# ------------------------------------------------------------------ tables


def figure_text(figure: Any, unit: str = "") -> str:
    """Return a figure for readers, for example `0.4`, `0.4 [0.3, 0.5]`, `0.3 to 0.5`, `0.4, at most 0.5`."""
    if figure is None:
        return "–"
    if not isinstance(figure, list):
        return f"{figure:,} {unit}".strip()
    median, low, high = figure
    if low is None:
        text = f"at most {high:,}" if median is None else f"{median:,}, at most {high:,}"
    else:
        text = f"{low:,} to {high:,}" if median is None else f"{median:,} [{low:,}, {high:,}]"
    return f"{text} {unit}".strip()


def _cells(row: ResultRow) -> list[str]:
    peer = f"{row.peer} {row.version}".strip()
    notes = [*([row.absent] if row.absent else []), *([row.notes] if row.notes else []), *(f"`{f}`" for f in row.flags)]
    reached = "absent" if row.absent else {None: "–", True: "yes", False: "no"}[row.reached]
    ours, theirs = figure_text(row.ours, row.unit), figure_text(row.theirs)
    peer_text = f"{peer}: {theirs}" if peer and row.theirs is not None else peer or "–"
    return [row.what, ours, peer_text, figure_text(row.ratio), row.aim or "–", reached, ", ".join(notes)]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def rows_table(rows: Iterable[ResultRow]) -> str:
    """Return the table of all fields of rows."""
    return table(("what", "ours", "peer", "ours / peer", "aim", "reached", "notes"), map(_cells, rows))


class PlacedRow(NamedTuple):
    """A row with its subject and with a link to its file."""

    row: ResultRow
    subject: str
    link: str


def newest_rows(files: dict[str, ResultFile]) -> list[PlacedRow]:
    """Return the newest row for each figure and peer."""
    newest: dict[tuple[str, str, str], PlacedRow] = {}
    for name, results in files.items():
        for run in results.runs:
            for row in run.rows:
                link = f"[{results.date}](results/{name})"
                key = (run.subject, row.what, row.peer)
                newest.pop(key, None)
                newest[key] = PlacedRow(row, run.subject, link)
    return list(newest.values())


def comparison_table(files: dict[str, ResultFile]) -> str:
    """Return the table of the newest comparisons with other programs."""
    rows = [r for r in newest_rows(files) if r.row.ratio is not None]
    head = ("what", "ours", "peer", "ours / peer", "aim", "reached", "notes", "date")
    return table(head, ([*_cells(r.row), r.link] for r in rows))


def missed_table(files: dict[str, ResultFile]) -> str:
    """Return the table of missed aims that the table of comparisons does not contain, one line for each aim."""
    groups: dict[tuple[str, str], list[PlacedRow]] = {}
    for placed in newest_rows(files):
        if placed.row.reached is False and placed.row.ratio is None:
            groups.setdefault((placed.subject, placed.row.aim), []).append(placed)
    cells = []
    for (subject, aim), members in groups.items():
        texts, previous = [], ""
        for row, _, _ in members:
            head, _, tail = row.what.rpartition(": ")  # a head that rows share is shown once
            shown = tail if head and head == previous else row.what
            texts.append(f"{shown}: {figure_text(row.ours, row.unit)}" if row.ours is not None else shown)
            previous = head
        notes = dict.fromkeys(member.row.notes for member in members if member.row.notes)
        links = dict.fromkeys(member.link for member in members)
        cells.append((f"{subject}: {'; '.join(texts)}", aim, "; ".join(notes), ", ".join(links)))
    return table(("figure", "aim", "reason or conditions", "date"), cells)


def generated(text: str, files: dict[str, ResultFile]) -> str:
    """Return the text of a README with new tables between its markers.

    Raises:
        UsageError: A marker is missing.
    """
    for name, content in (("newest", comparison_table(files)), ("missed", missed_table(files))):
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
            raise UsageError(f"bench/README.md: found no pair of markers {start.strip()} and {end}")
        text = f"{text[: text.index(start)]}{start}{content}{text[text.index(end) :]}"
    return text


def update_readme() -> None:
    """Generate the tables of the README again."""
    README.write_text(generated(README.read_text(), all_results()))


def main() -> int:
    """Run the command of this module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare the README with the files")
    parser.add_argument("--show", nargs="+", metavar="FILE", type=Path, help="print the rows of files")
    options = parser.parse_args()
    try:
        for path in options.show or ():
            for run in read_results(path).runs:
                about = ", ".join(filter(None, (f"`{run.command}`", run.commit, run.conditions)))
                print(f"## {run.subject}\n\n{about}\n\n{rows_table(run.rows)}")
        if options.check and generated(README.read_text(), all_results()) != README.read_text():
            raise MeshmarkError("bench/README.md does not show the newest results: python bench/results.py")
        if not (options.check or options.show):
            update_readme()
    except MeshmarkError as error:
        print(f"bench/results.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
