"""Shows the traffic between nodes and the coverage of a recording, for `meshmark replay`."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.console import say
from meshmark.cli.options import given
from meshmark.cli.watch.options import given_colours, refuse_colours
from meshmark.errors import UsageError

if TYPE_CHECKING:
    from meshmark.views.tables import TableSection
    from meshmark.watch.recorder.window import TimeWindow
    from meshmark.watch.recording import RecordingFile

TrafficOption = Annotated[
    bool, typer.Option("--traffic", help="show the traffic between nodes, and the ratio of local to remote traffic")
]
SourceOption = Annotated[
    str,
    typer.Option(
        "--source",
        help="with --traffic: counted, rebuilt (from loads of memories and links), estimated (from threads and pages) "
        "[the most exact one that is available]",
        show_default=False,
    ),
]
CoverageOption = Annotated[
    bool,
    typer.Option("--coverage", help="show which components were used, and their peaks as shares of the maximum"),
]
CsvOption = Annotated[bool, typer.Option("--csv", help="with --traffic or --coverage: print rows")]


def check_explanation(ctx: typer.Context, shown: Sequence[str], source: str) -> None:
    """Refuse options of `replay` that do not suit each other.

    Args:
        ctx: The given options.
        shown: Names of the options `--traffic`, `--coverage`, `--links` and `--expected` that are in use.
        source: The source of the traffic.

    Raises:
        UsageError: An option needs one of them, or contradicts them.
    """
    from meshmark.watch.traffic.matrix import SOURCES

    if source and source not in SOURCES:
        raise UsageError(f"--source: found '{source}'; allowed: {', '.join(SOURCES)}")
    if source and "--traffic" not in shown:
        raise UsageError("--source: found without --traffic, allowed with it")
    if not shown:
        for name, option in (("begin", "--from"), ("end", "--to"), ("window", "--window"), ("as_csv", "--csv")):
            if given(ctx, name):
                allowed = "--traffic, --coverage" if option == "--csv" else "--traffic, --coverage, --links, --expected"
                raise UsageError(f"{option}: found without one of {allowed}")
        return
    if len(shown) > 1 and set(shown) != {"--traffic", "--coverage"}:
        raise UsageError(f"{shown[1]}: found with {shown[0]}; allowed: one of them")
    refused = {"trace": "--trace", "against": "--against"}
    refused |= {} if "--expected" in shown else {"web": "--web", "page": "--html"}
    refused |= {} if {"--traffic", "--coverage"} & set(shown) else {"as_csv": "--csv"}
    for name, option in refused.items():
        if given(ctx, name):
            raise UsageError(f"{option}: found with {shown[0]}, allowed without it")
    refuse_colours(given_colours(ctx), f"{shown[0]}, which has no map with these colours")


def part_of(recording: RecordingFile, ctx: typer.Context, begin: float, end: float, window: str) -> TimeWindow:
    """Return the part of a recording that the options name."""
    from meshmark.watch.recorder.window import TimeWindow, window_of_command

    if window:
        return window_of_command(recording)
    return TimeWindow(0.0, begin if given(ctx, "begin") else -math.inf, end)


def explain(
    recording: RecordingFile,
    window: TimeWindow,
    traffic: bool,
    coverage: bool,
    source: str,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print the traffic between nodes, or the coverage, or both, of a part of a recording."""
    from meshmark.watch.recorder.window import TimeWindow
    from meshmark.watch.traffic.matrix import TrafficAbsent

    if as_csv and traffic and coverage:
        raise UsageError("--csv: found with --traffic and --coverage; allowed with one of them")
    if traffic:
        try:
            _traffic(recording, window, source, window == TimeWindow(), as_json, as_csv)
        except TrafficAbsent as absence:
            if not coverage:
                raise
            say(str(absence))
    if coverage:
        if traffic and not as_json:
            print()
        _coverage(recording, window, as_json, as_csv)


def _traffic(
    recording: RecordingFile, window: TimeWindow, source: str, whole: bool, as_json: bool, as_csv: bool
) -> None:
    from meshmark.views.content.traffic import traffic_sections, traffic_sentence
    from meshmark.watch.traffic.sources import traffic_of

    matrix = traffic_of(recording.header, window.frames(recording), source, whole)
    if as_json:
        print(json.dumps(matrix.to_json()))
    elif as_csv:
        names = matrix.nodes
        _print_rows(
            ("from", "to", "value", "low", "high", "unit", "source"),
            (
                (a, b, *(f"{m[i, j]:.6g}" for m in (matrix.value, matrix.low, matrix.high)), matrix.unit, matrix.source)
                for i, a in enumerate(names)
                for j, b in enumerate(names)
            ),
        )
    else:
        _print_sections(traffic_sentence(matrix), traffic_sections(matrix))


def _coverage(recording: RecordingFile, window: TimeWindow, as_json: bool, as_csv: bool) -> None:
    from meshmark.views.content.traffic import coverage_sections, coverage_sentence
    from meshmark.watch.traffic.coverage import coverage

    use = coverage(recording.header, window.frames(recording))
    if as_json:
        print(json.dumps(use.to_json()))
    elif as_csv:
        _print_rows(
            ("class", "component", "mean", "peak", "at_limit"),
            (
                (c.component_class, u.name, *(f"{v:.6g}" for v in (u.mean, u.peak, u.at_limit)))
                for c in use.classes
                for u in c.components
            ),
        )
    else:
        _print_sections(coverage_sentence(use), coverage_sections(use))


def _print_rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)


def _print_sections(sentence: str, sections: Sequence[TableSection]) -> None:
    from meshmark.views.terminal.screen import print_sections, table_console

    console = table_console()
    console.print(sentence, soft_wrap=True)
    console.print()
    print_sections(console, sections)
