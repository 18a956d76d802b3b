"""`meshmark watch`: shows the live map in a terminal or a browser."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.console import say
from meshmark.cli.options import RootOption, SetOption, StoreOption, time_option
from meshmark.cli.watch.audit import audit
from meshmark.cli.watch.command import watch_command
from meshmark.cli.watch.command_in_terminal import has_terminal, watch_command_in_terminal
from meshmark.cli.watch.options import (
    AuditOption,
    CanaryOption,
    CommandArgument,
    FramesOption,
    FullScaleOption,
    HighOption,
    HostOption,
    IntervalOption,
    JsonOption,
    LowOption,
    NoTokenOption,
    OnOption,
    OtlpOption,
    PaletteOption,
    PortOption,
    RateOption,
    SummaryOption,
    TokenFileOption,
    TokenOption,
    WebOption,
    WindowOption,
    WorkloadOption,
    address_of_page,
    colour_bounds,
    has_command,
    live_source,
    past,
    refuse_other_source,
    refuse_settings,
    refuse_with_command,
    serve_page,
    simulated,
    with_view,
)
from meshmark.cli.watch.show import paced, print_frames, show_frames
from meshmark.errors import UsageError, extra

if TYPE_CHECKING:
    from pathlib import Path

    from meshmark.watch.frames import Frame
    from meshmark.watch.live import LiveSampler


def register(app: typer.Typer) -> None:
    """Add the command `watch`. Its options end where the command of the user begins."""
    app.command("watch", context_settings={"allow_interspersed_args": False})(watch)


def watch(
    ctx: typer.Context,
    command: CommandArgument = None,
    web: WebOption = False,
    on: OnOption = None,
    workload: WorkloadOption = "hot_spot",
    rate: RateOption = 1.0,
    duration: Annotated[float, time_option("--duration", "stop after this time [never]")] = 0.0,
    window: WindowOption = 500e-9,
    frames: FramesOption = 200,
    low: LowOption = 0.0,
    high: HighOption = 100.0,
    palette: PaletteOption = "inferno",
    host: HostOption = "127.0.0.1",
    port: PortOption = 8642,
    token: TokenOption = "",
    token_file: TokenFileOption = None,
    no_token: NoTokenOption = False,
    root: RootOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
    otlp: OtlpOption = "",
    interval: IntervalOption = 15.0,
    summary: SummaryOption = False,
    full_scale: FullScaleOption = "sustained",
    canary: CanaryOption = True,
    store: StoreOption = None,
    calibration: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="measure the latency of the probe loads by traffic for 20 s, store it and exit"
        ),
    ] = False,
    auditing: AuditOption = False,
) -> None:
    """Watch the use of CPUs, memories and links on a live map.

    With COMMAND, this ends with the command, prints a summary, and passes on the exit status of the command.

    example: meshmark watch --web --rate 10; meshmark watch -- make
    """
    refuse_settings(on, settings)
    if has_command(command, "watch"):
        refuse_with_command(ctx, "duration", "on", "root", "as_json", "otlp", "calibration", "auditing")
    bounds = colour_bounds(low, high, palette)
    address = address_of_page(web, host, port, token, token_file, no_token)
    if calibration or auditing:
        refuse_other_source(ctx, "--audit" if auditing else "--calibrate")
        (audit if auditing else _calibrate)(as_json)
        return
    if command:
        with _live_for_command(command, web, rate, full_scale, canary, store) as live:
            status = (
                watch_command(command, live, with_view(live.header, ctx), address)
                if web
                else watch_command_in_terminal(command, live, (*bounds, palette))
            )
        raise SystemExit(status)
    if on is not None:
        if otlp:
            raise UsageError(
                "--otlp: found with --on, allowed for this machine only: simulated time is not wall-clock time"
            )
        header, simulated_frames = simulated(on, workload, settings, frames, window)
        if as_json:
            print_frames(header, iter(simulated_frames))
        elif web:
            serve_page(past(with_view(header, ctx), simulated_frames), address)
        else:
            show_frames(header, paced(simulated_frames, 10.0), *bounds, palette)
        return
    with (
        live_source(rate, duration, root, 0.0, full_scale, canary, store) as live,
        _sent_to(otlp, interval, summary, live) as live_frames,
    ):
        if as_json:
            print_frames(live.header, live_frames)
        elif web:
            from meshmark.web.hub import Hub

            serve_page(Hub(with_view(live.header, ctx), live_frames), address)
        elif otlp:
            say(f"sending {live.header.machine} to {otlp} every {interval:g} s; stop with Ctrl-C")
            for _ in live_frames:
                pass
        else:
            show_frames(live.header, live_frames, *bounds, palette)


@contextlib.contextmanager
def _live_for_command(
    words: list[str], web: bool, rate: float, full_scale: str, canary: bool, store: Path | None
) -> Iterator[LiveSampler]:
    """Yield a sampler for the time of a command.

    Raises:
        UsageError: The map needs a terminal.
        CommandError: The command cannot be executed.
    """
    from meshmark.watch.recorder.command import check_command, waiting_for_signals

    if not web and not has_terminal():
        raise UsageError(
            "COMMAND: found without a terminal for the map, allowed with one or with --web",
            "meshmark watch --web -- COMMAND, or meshmark record --out FILE -- COMMAND",
        )
    check_command(words)
    with waiting_for_signals(), live_source(rate, 0.0, None, 0.0, full_scale, canary, store, apart=True) as live:
        yield live


def _calibrate(as_json: bool) -> None:
    """Measure, store and print the calibration curve of the canary."""
    from meshmark.views.tables import TableSection, TextTable
    from meshmark.views.terminal.screen import print_sections, table_console
    from meshmark.watch.canary import calibrate

    say("measuring for 20 s with all CPUs busy; other programs disturb the result")
    path, curve = calibrate(20.0)
    if as_json:
        print(json.dumps(curve))
        return
    head = ["traffic (GB/s)", "load latency (ns)", "range of four rounds (ns)"]
    for node, points in curve["nodes"].items():
        rows = [
            [f"{1e-9 * b:.1f}", f"{1e9 * m:.1f}", f"{1e9 * low:.1f} to {1e9 * high:.1f}"] for b, low, m, high in points
        ]
        print_sections(table_console(), [TableSection(f"node {node}", TextTable(head, rows, numbers=(0, 1, 2)))])
        if not curve["tells"][node]:
            say(f"node {node}: the load latency does not depend on traffic; memory pressure cannot be estimated")
    print(path)


@contextlib.contextmanager
def _sent_to(url: str, interval_s: float, whole: bool, live: LiveSampler) -> Iterator[Iterator[Frame]]:
    """Yield the frames of a machine and also send them to the collector at `url`, unless `url` is empty."""
    if not url:
        yield live.frames()
        return
    with extra("otlp"):
        from meshmark.web.export.otlp import Exporter

    with Exporter(live.header, url, interval_s, say, whole) as exporter:
        yield exporter.tee(live.frames())
