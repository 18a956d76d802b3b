"""`meshmark watch`, `record`, `replay` and `plot`: show the live map in a terminal or a browser, and recordings."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.completion import machines
from meshmark.cli.console import say
from meshmark.cli.options import RootOption, SetOption, StoreOption, in_folder, time_option
from meshmark.errors import UsageError, extra

if TYPE_CHECKING:
    from meshmark.watch.frames import Frame, Header
    from meshmark.watch.live import LiveSampler
    from meshmark.watch.recording import RecordingFile
    from meshmark.web.hub import Hub, StoredFrames

RateOption = Annotated[float, typer.Option("--rate", min=0.01, max=100, help="frames per second (Hz)")]
OnOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="watch a simulated machine instead of this one",
        show_default=False,
        autocompletion=machines,
    ),
]
WorkloadOption = Annotated[
    str, typer.Option("--workload", help="workload of the simulated machine: hot_spot, random_reads, throughput, …")
]
WebOption = Annotated[bool, typer.Option("--web", help="show the map in a browser")]
HostOption = Annotated[str, typer.Option("--host", help="address to listen on")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="port to listen on; 0: any free port")]
TokenOption = Annotated[
    str,
    typer.Option(
        "--token",
        show_default=False,
        help="access token [random, part of the printed link]; visible to other users in `ps`, so prefer --token-file "
        "or MESHMARK_TOKEN",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", help="file with the access token; must have mode 0600", show_default=False),
]
NoTokenOption = Annotated[
    bool, typer.Option("--no-token", help="let every user of this machine open the page; on loopback only")
]
LowOption = Annotated[float, typer.Option("--from", min=0, max=99, help="value of the lowest colour (%)")]
HighOption = Annotated[float, typer.Option("--to", min=0.1, max=100, help="value of the highest colour (%)")]
PaletteOption = Annotated[str, typer.Option("--palette", help="colour palette: inferno, cividis, spectrum")]
WindowOption = Annotated[
    float, time_option("--window", "length of a frame of the simulated machine", 1e-9, 1e-3, "500ns")
]
FramesOption = Annotated[
    int, typer.Option("--frames", min=1, max=20000, help="number of frames of the simulated machine")
]
OtlpOption = Annotated[
    str, typer.Option("--otlp", help="send summaries to this OpenTelemetry collector, for example http://HOST:4318")
]
SummaryOption = Annotated[
    bool,
    typer.Option("--summary", help="with --otlp: send one value per metric for the whole machine, as fleets need it"),
]
IntervalOption = Annotated[float, time_option("--interval", "time between two summaries", 1, 3600, "15s")]
FullScaleOption = Annotated[
    str,
    typer.Option(
        "--full-scale",
        help="memory bandwidth shown as 100 %: sustained (of this machine's survey, if there is one), theoretical",
    ),
]
CanaryOption = Annotated[
    bool, typer.Option("--canary/--no-canary", help="probe memory contention with a few loads per second")
]
RecordingArgument = Annotated[
    Path,
    typer.Argument(exists=True, help="recording, complete or interrupted (NAME.part), or frames as JSON Lines"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print frames as JSON Lines, preceded by a header")]


def register(app: typer.Typer) -> None:
    """Add the commands `watch`, `record`, `replay` and `plot`."""
    app.command("watch")(watch)
    app.command("record")(record)
    app.command("replay")(replay)
    app.command("plot")(plot)


def simulated(
    name: str, workload: str, settings: list[str] | None, frames: int, window_s: float
) -> tuple[Header, list[Frame]]:
    """Return the header and the frames of a simulated machine under a workload."""
    from meshmark.model.frames import busiest, frame_lines, header_line
    from meshmark.model.machine import find_machine
    from meshmark.watch.frames import frame_of, header_of

    machine = find_machine(name, settings)
    header = header_of(header_line(machine, window_s))
    return header, [
        frame_of(line, header) for line in frame_lines(machine, busiest(machine, workload), 1e9 * window_s, frames)
    ]


def _refuse_settings(on: str | None, settings: list[str] | None) -> None:
    if settings and on is None:
        raise UsageError("--set: found without --on, allowed for a modelled machine only", "meshmark model list")


def _past(header: Header, frames: list[Frame]) -> StoredFrames:
    from meshmark.web.hub import StoredFrames

    return StoredFrames(header, len(frames), lambda begin, count: frames[begin : begin + count])


Address = tuple[str, int, str]  # host, port, token


def _address(web: bool, host: str, port: int, token: str, file: Path | None, off: bool) -> Address:
    """Return address and access token of the page; the token is "" if the map is shown in the terminal."""
    if not web:
        return host, port, ""
    from meshmark.web.guard import chosen_token

    return host, port, chosen_token(token, file, off)


def _serve(what: Hub | StoredFrames, address: Address) -> None:
    from meshmark.web.server import serve

    serve(what, *address, served_at)


def served_at(address: str) -> None:
    """Print the address of a server that accepts connections."""
    print(address, flush=True)
    say("stop with Ctrl-C")


def _given(ctx: typer.Context) -> list[str]:
    """Return the colour options on the command line."""
    options = {"low": "--from", "high": "--to", "palette": "--palette"}
    sources = {option: ctx.get_parameter_source(name) for name, option in options.items()}
    return [option for option, source in sources.items() if source is not None and source.name != "DEFAULT"]


def _refuse_colours(given: list[str]) -> None:
    """Refuse options for the colours of utilisation, because a map of changes has different colours."""
    if given:
        raise UsageError(f"{given[0]}: found with --against, which has its own colours; allowed without --against")


def _viewed(header: Header, ctx: typer.Context) -> Header:
    """Return the header with the colours of the command line; without them, the page uses the colours of its reader."""
    options, parameters = _given(ctx), ctx.params
    view: dict[str, Any] = {"palette": parameters["palette"]} if "--palette" in options else {}
    if "--from" in options or "--to" in options:
        view |= {"low": parameters["low"], "high": parameters["high"]}
    return replace(header, more={**header.more, "view": view}) if view else header


def _bounds(low: float, high: float, palette: str) -> tuple[float, float]:
    from meshmark.watch.palette import PALETTES

    if low >= high:
        raise UsageError(f"--from: found {low:g}; allowed: less than --to ({high:g})")
    if palette not in PALETTES:
        raise UsageError(f"--palette: found '{palette}'; allowed: {', '.join(PALETTES)}")
    return low / 100, high / 100


def _show(header: Header, frames: Iterator[Frame], low: float, high: float, palette: str) -> None:
    """Show the interactive map in a terminal; without a terminal, print the frames one after the other."""
    if sys.stdout.isatty() and sys.stdin.isatty():
        from meshmark.views.terminal.live.app import MeshApp

        MeshApp(header, frames, low, high, palette).run()
        return
    from rich.console import Console
    from rich.text import Text

    from meshmark.views.terminal.live.map import draw, scale_text
    from meshmark.watch.findings.findings import Findings
    from meshmark.watch.layout import map_of

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    machine_map, findings = map_of(header), Findings(header)
    absent = ", ".join(sorted({a["metric"].partition(":")[0] for a in header.absent}))
    for frame in frames:
        console.print(Text(f"{header.machine}  {header.source}  {frame.t_s:.6g} s", style="bold"))
        console.print(scale_text(low, high, palette))
        console.print(draw(header, machine_map, frame, low, high, palette))
        for finding in findings.add(frame):
            console.print(Text(str(finding), style="bold red"))
        if absent:
            console.print(Text(f"not available here: {absent}", style="dim"))


def watch(
    ctx: typer.Context,
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
) -> None:
    """Watch the use of CPUs, memories and links on a live map.

    example: meshmark watch --web --rate 10
    """
    _refuse_settings(on, settings)
    bounds = _bounds(low, high, palette)
    address = _address(web, host, port, token, token_file, no_token)
    if calibration:
        _calibrate(as_json)
        return
    if on is not None:
        if otlp:
            raise UsageError(
                "--otlp: found with --on, allowed for this machine only: simulated time is not wall-clock time"
            )
        header, simulated_frames = simulated(on, workload, settings, frames, window)
        if as_json:
            _print_frames(header, iter(simulated_frames))
        elif web:
            _serve(_past(_viewed(header, ctx), simulated_frames), address)
        else:
            _show(header, _paced(simulated_frames, 10.0), *bounds, palette)
        return
    with (
        _live(rate, duration, root, 0.0, full_scale, canary, store) as live,
        _sent_to(otlp, interval, summary, live) as live_frames,
    ):
        if as_json:
            _print_frames(live.header, live_frames)
        elif web:
            from meshmark.web.hub import Hub

            _serve(Hub(_viewed(live.header, ctx), live_frames), address)
        elif otlp:
            say(f"sending {live.header.machine} to {otlp} every {interval:g} s; stop with Ctrl-C")
            for _ in live_frames:
                pass
        else:
            _show(live.header, live_frames, *bounds, palette)


def _live(
    rate: float, duration: float, root: Path | None, hold_s: float, full_scale: str, canary: bool, store: Path | None
) -> LiveSampler:
    """Return the source of frames of this machine or, with `root`, of a recorded machine."""
    from meshmark.watch.live import LiveSampler, sample_this_host

    if full_scale not in {"sustained", "theoretical"}:
        raise UsageError(f"--full-scale: found '{full_scale}'; allowed: sustained, theoretical")
    if root is not None:
        return LiveSampler(rate, duration, root, hold_s=hold_s)
    return sample_this_host(rate, duration, hold_s, store, full_scale, canary)


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


def _print_frames(header: Header, frames: Iterator[Frame]) -> None:
    from meshmark.watch.findings.findings import Findings, frame_json

    findings = Findings(header)
    print(json.dumps(header.to_json()), flush=True)
    for frame in frames:
        print(json.dumps(frame_json(frame, findings.add(frame))), flush=True)


def _paced(frames: list[Frame], rate_hz: float, speed: float = 0.0) -> Iterator[Frame]:
    """Yield frames at `rate_hz` or, if `speed` is not 0, at this multiple of their recorded rate."""
    import time

    start_s = time.monotonic()
    for i, frame in enumerate(frames):
        due_s = (frame.t_s - frames[0].t_s) / speed if speed else i / rate_hz
        time.sleep(max(0.0, start_s + due_s - time.monotonic()))
        yield frame


def record(
    out: Annotated[Path, typer.Option("--out", help="file to write (Parquet)", callback=in_folder)],
    rate: RateOption = 1.0,
    duration: Annotated[float, time_option("--duration", "stop after this time [at Ctrl-C]")] = 0.0,
    on: OnOption = None,
    workload: WorkloadOption = "hot_spot",
    window: WindowOption = 500e-9,
    frames: FramesOption = 200,
    root: RootOption = None,
    settings: SetOption = None,
    full_scale: FullScaleOption = "sustained",
    canary: CanaryOption = True,
    store: StoreOption = None,
) -> None:
    """Record the frames of meshmark watch to a file. If killed, the recorder loses at most the last second.

    example: meshmark record --rate 10 --duration 60s --out night.parquet
    """
    from meshmark.cli.process import signals_call
    from meshmark.watch.recording import HOLD_S, Recorder

    _refuse_settings(on, settings)
    if on is not None:
        header, simulated_frames = simulated(on, workload, settings, frames, window)
        with Recorder(out, header) as recorder:
            for frame in simulated_frames:
                recorder.add(frame)
    else:
        with (
            _live(rate, duration, root, HOLD_S, full_scale, canary, store) as live,
            signals_call(live.stop),  # buffered frames are written before the end
            Recorder(out, live.header) as recorder,  # its file appears once signals end the recorder cleanly
        ):
            say(f"recording {live.header.machine} at {rate:g} Hz; stop with Ctrl-C")
            for line in live.lines():
                recorder.add_line(line)
    print(out)
    say(f"{recorder.frames} frames, {out.stat().st_size} B; meshmark replay {out}")


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
    """Replay a recording, or show the change between two.

    example: meshmark replay night.parquet --web; meshmark replay night.parquet --trace night.json.gz
    """
    from meshmark.watch.recording import opened

    bounds = _bounds(low, high, palette)
    address = _address(web, host, port, token, token_file, no_token)
    forms = {"--web": web, "--html": page, "--trace": trace, "--json": as_json}
    requested_forms = [name for name, value in forms.items() if value]
    if len(requested_forms) > 1:
        raise UsageError(f"{requested_forms[1]}: found with {requested_forms[0]}; allowed: one of {', '.join(forms)}")
    if trace is not None and against is not None:
        raise UsageError("--trace: found with --against; allowed: a trace of one recording")
    if page is not None:
        from meshmark.web.page import check_out

        check_out(page)
    if against is not None:
        _refuse_colours(_given(ctx))
    recording = opened(file)
    header = _viewed(recording.header, ctx)
    if against is not None:
        _replay_change(opened(against), recording, page, web, as_json, address)
    elif trace is not None:
        from meshmark.watch.trace import write_trace

        count = write_trace(recording, trace)
        print(trace)
        say(f"{count} events; open it with https://ui.perfetto.dev or chrome://tracing")
    elif as_json:
        _print_frames(recording.header, recording.frames())
    elif page is not None:
        from meshmark.web.page import packed_recording

        _write_page(page, header, packed_recording(header, recording.frames(), recording.count()))
    elif web:
        from meshmark.web.hub import StoredFrames
        from meshmark.web.page import thinned

        _serve(StoredFrames(*thinned(header, recording.count(), recording.some)), address)
    else:
        frames = list(recording.frames())
        if not sys.stdout.isatty():
            frames = frames[-1:]  # without a terminal, only the last frame is printed
        simulated_time = recording.header.period_s < 1e-3  # simulated microseconds
        _show(recording.header, _paced(frames, 10.0, 0.0 if simulated_time else speed), *bounds, palette)


def _write_page(out: Path, header: Header, packed: bytes) -> None:
    from meshmark.web.page import write_page

    size = write_page(out, f"{header.machine} – Meshmark", packed)
    print(out)
    say(f"{size} B; opens in any browser, without a network connection")


def _replay_change(
    before: RecordingFile, after: RecordingFile, page: Path | None, web: bool, as_json: bool, address: Address
) -> None:
    """Show the change between two recordings as a map, a page, JSON or a table."""
    from meshmark.watch.difference import RecordingSide, compare, table

    sides = [RecordingSide(r.path.name, r.header, r.count(), r.frames()) for r in (before, after)]
    difference = compare(*sides)
    if as_json:
        print(json.dumps(difference.to_json()))
    elif page is not None:
        from meshmark.web.page import packed_difference

        _write_page(page, after.header, packed_difference(after.header, difference))
    elif web:
        from meshmark.web.hub import StoredFrames

        _serve(StoredFrames(after.header, 0, lambda *_: [], change=difference.to_json()), address)
    else:
        for line in table(difference):
            print(line)


def plot(
    ctx: typer.Context,
    file: RecordingArgument,
    out: Annotated[Path, typer.Option("--out", help="folder to write the pictures to")] = Path("plots"),
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            exists=True,
            help="baseline recording: draw the change from it to FILE",
            show_default=False,
        ),
    ] = None,
    low: LowOption = 0.0,
    high: HighOption = 100.0,
    palette: PaletteOption = "inferno",
) -> None:
    """Plot a recording over time. Writes one PNG and one SVG per class of components.

    example: meshmark plot night.parquet --out plots
    """
    from meshmark.store.files import check_writable
    from meshmark.views.pages.recording import draw_difference, draw_recording
    from meshmark.watch.frames import USE
    from meshmark.watch.recording import opened

    bounds = _bounds(low, high, palette)
    check_writable("--out", out / "cpu.png")
    if against is not None:
        _refuse_colours([option for option in _given(ctx) if option != "--to"])
    recording = opened(file)
    headers = [recording.header]
    if against is None:
        paths = draw_recording(recording.header, recording.frames(), out, *bounds, palette)
    else:
        baseline = opened(against)
        headers.append(baseline.header)
        paths = draw_difference(
            (baseline.header, baseline.frames()), (recording.header, recording.frames()), out, bounds[1] / 2
        )
    for path in paths:
        print(path)
    for kind in USE:
        if headers[0].count(kind) and not any(p.stem.startswith(kind) for p in paths):
            uses = [h.use[kind] for h in headers]
            lacking = next((h for h in headers if uses[0] not in {m.name for m in h.metrics}), headers[0])
            reason = (
                lacking.why_unknown(uses[0]) if len(set(uses)) == 1 else f"it is {uses[1]} before and {uses[0]} after"
            )
            say(f"{kind}: not drawn: {reason}")
