"""`meshmark replay`: shows recordings."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.console import say
from meshmark.cli.options import in_folder
from meshmark.cli.watch.explained import (
    CoverageOption,
    CsvOption,
    SourceOption,
    TrafficOption,
    check_explanation,
    explain,
    part_of,
)
from meshmark.cli.watch.links import (
    ExpectedOption,
    LinksOption,
    expected_loads,
    print_expected,
    print_use,
)
from meshmark.cli.watch.options import (
    Address,
    BeginOption,
    EndOption,
    HighOption,
    HostOption,
    JsonOption,
    LowOption,
    NoTokenOption,
    PaletteOption,
    PartOption,
    PortOption,
    RecordingArgument,
    TokenFileOption,
    TokenOption,
    WebOption,
    address_of_page,
    check_part,
    colour_bounds,
    given_colours,
    refuse_colours,
    serve_page,
    with_view,
)
from meshmark.cli.watch.show import paced, print_frames, show_frames
from meshmark.errors import UsageError

if TYPE_CHECKING:
    from meshmark.watch.difference import RecordingDifference
    from meshmark.watch.frames import Header
    from meshmark.watch.recording import RecordingFile


def register(app: typer.Typer) -> None:
    """Add the command `replay`."""
    app.command("replay")(replay)


def replay(
    ctx: typer.Context,
    file: RecordingArgument,
    web: WebOption = False,
    page: Annotated[
        Path | None,
        typer.Option("--html", help="write one self-contained page", show_default=False, callback=in_folder),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            help="write a trace for Perfetto or chrome://tracing (JSON; compressed as NAME.gz)",
            show_default=False,
            callback=in_folder,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            exists=True,
            help="baseline recording: show the change from it to FILE as a table or a map",
            show_default=False,
        ),
    ] = None,
    traffic: TrafficOption = False,
    source: SourceOption = "",
    coverage: CoverageOption = False,
    links: LinksOption = False,
    expected: ExpectedOption = "",
    begin: BeginOption = 0.0,
    end: EndOption = math.inf,
    window: PartOption = "",
    as_csv: CsvOption = False,
    speed: Annotated[float, typer.Option("--speed", min=0.01, max=1000, help="multiple of the recorded rate")] = 1.0,
    low: LowOption = 0.0,
    high: HighOption = 100.0,
    palette: PaletteOption = "inferno",
    host: HostOption = "127.0.0.1",
    port: PortOption = 8642,
    token: TokenOption = "",
    token_file: TokenFileOption = None,
    no_token: NoTokenOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replay a recording, show the change between two, or explain which memories, links and CPUs it used.

    example: meshmark replay night.parquet --web; meshmark replay night.parquet --traffic --coverage
    """
    from meshmark.watch.recording import opened

    bounds = colour_bounds(low, high, palette)
    address = address_of_page(web, host, port, token, token_file, no_token)
    forms = {"--web": web, "--html": page, "--trace": trace, "--json": as_json}
    requested_forms = [name for name, value in forms.items() if value]
    if len(requested_forms) > 1:
        raise UsageError(f"{requested_forms[1]}: found with {requested_forms[0]}; allowed: one of {', '.join(forms)}")
    if trace is not None and against is not None:
        raise UsageError("--trace: found with --against; allowed: a trace of one recording")
    check_part(ctx, begin, end, window)
    explanations = {"--traffic": traffic, "--coverage": coverage, "--links": links, "--expected": bool(expected)}
    check_explanation(ctx, [name for name, is_asked in explanations.items() if is_asked], source)
    if page is not None:
        from meshmark.web.page import check_out

        check_out(page)
    if against is not None:
        refuse_colours(given_colours(ctx), "--against, which has its own colours")
    recording = opened(file)
    part = part_of(recording, ctx, begin, end, window)
    if traffic or coverage:
        explain(recording, part, traffic, coverage, source, as_json, as_csv)
        return
    header = with_view(recording.header, ctx)
    if against is not None:
        _show_change(header, _change(opened(against), recording), page, web, as_json, address)
    elif expected:
        loads = expected_loads(recording, part, expected)
        if page is None and not web:
            print_expected(loads, as_json)
        else:
            _show_change(header, loads.as_difference(header), page, web, as_json, address)
    elif links:
        print_use(recording, part, as_json)
    elif trace is not None or as_json or page is not None or web:
        _write_frames(recording, header, trace, page, as_json, address)
    else:
        frames = list(recording.frames())
        if not sys.stdout.isatty():
            frames = frames[-1:]  # without a terminal, only the last frame is printed
        simulated_time = recording.header.period_s < 1e-3  # simulated microseconds
        show_frames(recording.header, paced(frames, 10.0, 0.0 if simulated_time else speed), *bounds, palette)


def _write_page(out: Path, header: Header, packed: bytes) -> None:
    from meshmark.web.page import write_page

    size = write_page(out, f"{header.machine} – Meshmark", packed)
    print(out)
    say(f"{size} B; opens in any browser, without a network connection")


def _change(before: RecordingFile, after: RecordingFile) -> RecordingDifference:
    """Return the change between two recordings."""
    from meshmark.watch.difference import RecordingSide, compare

    return compare(*(RecordingSide(r.path.name, r.header, r.count(), r.frames()) for r in (before, after)))


def _show_change(
    header: Header, change: RecordingDifference, page: Path | None, web: bool, as_json: bool, address: Address
) -> None:
    """Show a change as a map, a page, JSON or a table."""
    from meshmark.watch.difference import table

    if as_json:
        print(json.dumps(change.to_json()))
    elif page is not None:
        from meshmark.web.page import packed_difference

        _write_page(page, header, packed_difference(header, change))
    elif web:
        from meshmark.web.hub import StoredFrames

        serve_page(StoredFrames(header, 0, lambda *_: [], change=change.to_json()), address)
    else:
        for line in table(change):
            print(line)


def _write_frames(
    recording: RecordingFile, header: Header, trace: Path | None, page: Path | None, as_json: bool, address: Address
) -> None:
    """Write all frames in the one form that was chosen; without `trace`, `page` and `as_json`, serve them as a page."""
    if trace is not None:
        from meshmark.watch.trace import write_trace

        count = write_trace(recording, trace)
        print(trace)
        say(f"{count} events; open it with https://ui.perfetto.dev or chrome://tracing")
    elif as_json:
        print_frames(recording.header, recording.frames())
    elif page is not None:
        from meshmark.web.page import packed_recording

        _write_page(page, header, packed_recording(header, recording.frames(), recording.count()))
    else:
        from meshmark.web.hub import StoredFrames
        from meshmark.web.page import thinned

        serve_page(StoredFrames(*thinned(header, recording.count(), recording.some)), address)
