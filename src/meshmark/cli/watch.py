"""`meshmark watch`, `record` and `replay`: the live map, in a terminal or a browser, and recordings of it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.console import say
from meshmark.cli.options import RootOption, SetOption, StoreOption, time_option
from meshmark.errors import UsageError

if TYPE_CHECKING:
    from meshmark.watch.frames import Frame, Header
    from meshmark.watch.live import Live
    from meshmark.watch.recording import Recording
    from meshmark.web.hub import Hub, Past

RateOption = Annotated[float, typer.Option("--rate", min=0.01, max=100, help="frames a second (Hz)")]
OnOption = Annotated[str | None, typer.Option("--on", help="a simulated machine instead", show_default=False)]
WorkloadOption = Annotated[
    str, typer.Option("--workload", help="of a simulated machine: hot_spot, random_reads, throughput …")
]
WebOption = Annotated[bool, typer.Option("--web", help="in the browser")]
HostOption = Annotated[str, typer.Option("--host", help="address to listen on")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one")]
TokenOption = Annotated[
    str,
    typer.Option(
        "--token",
        show_default=False,
        help="access token [random, in the printed link]; other users see it in `ps`, unlike that of --token-file "
        "or MESHMARK_TOKEN",
    ),
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", help="holds the token; only you may read it (0600)", show_default=False)
]
NoTokenOption = Annotated[
    bool, typer.Option("--no-token", help="every user of this machine can open the page; on loopback only")
]
LowOption = Annotated[float, typer.Option("--from", min=0, max=99, help="lowest colour begins here (%)")]
HighOption = Annotated[float, typer.Option("--to", min=0.1, max=100, help="highest colour ends here (%)")]
PaletteOption = Annotated[str, typer.Option("--palette", help="inferno, cividis, spectrum")]
WindowOption = Annotated[float, time_option("--window", "of a simulated machine's frame", 1e-9, 1e-3, "500ns")]
FramesOption = Annotated[int, typer.Option("--frames", min=1, max=20000, help="of a simulated machine")]
OtlpOption = Annotated[
    str, typer.Option("--otlp", help="send summaries to this OpenTelemetry collector: http://HOST:4318")
]
IntervalOption = Annotated[float, time_option("--interval", "of a summary that is sent", 1, 3600, "15s")]
UseOption = Annotated[
    str,
    typer.Option(
        "--of", help="what 100 % of a memory is: attained (by this machine's survey, where there is one), wire"
    ),
]
CanaryOption = Annotated[
    bool, typer.Option("--canary/--no-canary", help="a few loads a second that show how crowded the memory is")
]
JsonOption = Annotated[bool, typer.Option("--json", help="frames as JSON Lines, a header first")]


def register(app: typer.Typer) -> None:
    app.command("watch")(watch)
    app.command("record")(record)
    app.command("replay")(replay)
    app.command("plot")(plot)


def simulated(
    name: str, workload: str, settings: list[str] | None, frames: int, window_s: float
) -> tuple[Header, list[Frame]]:
    """The header and frames of a simulated machine under a workload."""
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
        raise UsageError("--set: found without --on, a described machine is needed", "meshmark model list")


def _past(header: Header, frames: list[Frame]) -> Past:
    from meshmark.web.hub import Past

    return Past(header, len(frames), lambda begin, count: frames[begin : begin + count])


Address = tuple[str, int, str]  # host, port, token


def _address(web: bool, host: str, port: int, token: str, file: Path | None, off: bool) -> Address:
    """Where to serve, and for whom: options of one command; what the terminal shows has no readers."""
    if not web:
        return host, port, ""
    from meshmark.web.guard import chosen_token

    return host, port, chosen_token(token, file, off)


def _serve(what: Hub | Past, address: Address) -> None:
    from meshmark.web.server import serve

    serve(what, *address, served_at)


def served_at(address: str) -> None:
    """Says where a server can be reached, now that it can."""
    print(address, flush=True)
    say("Ctrl-C ends it")


def _given(ctx: typer.Context) -> list[str]:
    """Which of the options about colours were given."""
    options = {"low": "--from", "high": "--to", "palette": "--palette"}
    sources = {word: ctx.get_parameter_source(name) for name, word in options.items()}
    return [word for word, source in sources.items() if source is not None and source.name != "DEFAULT"]


def _refuse_colours(given: list[str]) -> None:
    """Options about the colours of use, where the map is one of changes."""
    if given:
        raise UsageError(f"{given[0]}: found with --against, whose colours are its own; allowed without it")


def _viewed(header: Header, ctx: typer.Context) -> Header:
    """A header that tells the page which colours were asked for; where none were, it has its reader's own."""
    given, asked = _given(ctx), ctx.params
    view: dict[str, Any] = {"palette": asked["palette"]} if "--palette" in given else {}
    if "--from" in given or "--to" in given:
        view |= {"low": asked["low"], "high": asked["high"]}
    return replace(header, more={**header.more, "view": view}) if view else header


def _bounds(low: float, high: float, palette: str) -> tuple[float, float]:
    from meshmark.watch.palette import PALETTES

    if low >= high:
        raise UsageError(f"--from: found {low:g}, less than --to ({high:g}) is needed")
    if palette not in PALETTES:
        raise UsageError(f"--palette: found '{palette}', allowed are {', '.join(PALETTES)}")
    return low / 100, high / 100


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """What ends a recording or a view leaves it whole, and is no failure."""
    try:
        yield
    except KeyboardInterrupt:
        say("")


def _show(header: Header, frames: Iterator[Frame], low: float, high: float, palette: str) -> None:
    """The map in the terminal, with keys; without a terminal frame by frame as text."""
    if sys.stdout.isatty() and sys.stdin.isatty():
        from meshmark.terminal.app import MeshApp

        MeshApp(header, frames, low, high, palette).run()
        return
    from rich.console import Console
    from rich.text import Text

    from meshmark.terminal.map import draw, scale_text
    from meshmark.watch.hotspots import Detector
    from meshmark.watch.layout import map_of

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    machine_map, detector = map_of(header), Detector(header)
    absent = ", ".join(sorted({a["metric"].partition(":")[0] for a in header.absent}))
    for frame in frames:
        spots = detector.add(frame)
        console.print(Text(f"{header.machine}  {header.source}  {frame.t_s:.6g} s", style="bold"))
        console.print(scale_text(low, high, palette))
        console.print(draw(header, machine_map, frame, low, high, palette))
        for spot in spots:
            console.print(Text(str(spot), style="bold red"))
        if absent:
            console.print(Text(f"not seen here: {absent}", style="dim"))


def watch(
    ctx: typer.Context,
    web: WebOption = False,
    on: OnOption = None,
    workload: WorkloadOption = "hot_spot",
    rate: RateOption = 1.0,
    duration: Annotated[float, time_option("--duration", "then it ends [never]")] = 0.0,
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
    use_of: UseOption = "attained",
    canary: CanaryOption = True,
    store: StoreOption = None,
    calibration: Annotated[
        bool,
        typer.Option("--calibrate", help="measure for 20 s what the canary's loads take at which traffic, and end"),
    ] = False,
) -> None:
    """Watch this machine (or a simulated one) on its own map, coloured by use.

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
            raise UsageError("--otlp: found with --on; only a live machine is sent, a simulated one has no clock")
        header, made = simulated(on, workload, settings, frames, window)
        if as_json:
            _print_frames(header, iter(made))
        elif web:
            _serve(_past(_viewed(header, ctx), made), address)
        else:
            with _ended_by_signals():
                _show(header, _paced(made, 10.0), *bounds, palette)
        return
    with (
        _live(rate, duration, root, 0.0, use_of, canary, store) as live,
        _sent_to(otlp, interval, live) as seen,
        _ended_by_signals(),
    ):
        if as_json:
            _print_frames(live.header, seen)
        elif web:
            from meshmark.web.hub import Hub

            _serve(Hub(_viewed(live.header, ctx), seen), address)
        elif otlp:
            say(f"sending {live.header.machine} to {otlp} every {interval:g} s; Ctrl-C ends it")
            for _ in seen:
                pass
        else:
            _show(live.header, seen, *bounds, palette)


def _live(
    rate: float, duration: float, root: Path | None, hold_s: float, use_of: str, canary: bool, store: Path | None
) -> Live:
    """This machine, or a tree."""
    from meshmark.watch.live import Live, this_host

    if use_of not in {"attained", "wire"}:
        raise UsageError(f"--of: found '{use_of}', allowed are attained, wire")
    if root is not None:
        return Live(rate, duration, root, hold_s=hold_s)
    return this_host(rate, duration, hold_s, store, use_of, canary)


def _calibrate(as_json: bool) -> None:
    """Measures the canary's curve, keeps it and shows it."""
    from rich.console import Console
    from rich.table import Table

    from meshmark.watch.canary import calibrate

    say("20 s with all CPUs busy; other programs disturb it")
    path, found = calibrate(20.0)
    if as_json:
        print(json.dumps(found))
        return
    for node, points in found["nodes"].items():
        heads = ("traffic (GB/s)", "load (ns)", "range of four rounds (ns)")
        table = Table(*heads, title=f"node {node}", title_justify="left")
        for traffic, lowest, middle, highest in points:
            table.add_row(f"{1e-9 * traffic:.1f}", f"{1e9 * middle:.1f}", f"{1e9 * lowest:.1f} to {1e9 * highest:.1f}")
        Console(highlight=False).print(table)
        if not found["tells"][node]:
            say(f"node {node}: traffic does not show in the canary's loads here; no pressure will be estimated")
    print(path)


@contextlib.contextmanager
def _sent_to(url: str, interval_s: float, live: Live) -> Iterator[Iterator[Frame]]:
    """The frames of a machine, which go to a collector too where one is named."""
    if not url:
        yield live.frames()
        return
    from meshmark.web.otlp import Exporter

    with Exporter(live.header, url, interval_s, say) as exporter:
        yield exporter.tee(live.frames())


def _print_frames(header: Header, frames: Iterator[Frame]) -> None:
    print(json.dumps(header.to_json()), flush=True)
    for frame in frames:
        print(json.dumps(frame.to_json()), flush=True)


def _paced(frames: list[Frame], rate_hz: float, speed: float = 0.0) -> Iterator[Frame]:
    """Frames at a rate that eyes follow; with a speed, at so many times their own pace."""
    import time

    begin = time.monotonic()
    for i, frame in enumerate(frames):
        due = (frame.t_s - frames[0].t_s) / speed if speed else i / rate_hz
        time.sleep(max(0.0, begin + due - time.monotonic()))
        yield frame


def record(
    out: Annotated[Path, typer.Option("--out", help="file to write, Parquet")],
    rate: RateOption = 1.0,
    duration: Annotated[float, time_option("--duration", "then it ends [at Ctrl-C]")] = 0.0,
    on: OnOption = None,
    workload: WorkloadOption = "hot_spot",
    window: WindowOption = 500e-9,
    frames: FramesOption = 200,
    root: RootOption = None,
    settings: SetOption = None,
    use_of: UseOption = "attained",
    canary: CanaryOption = True,
    store: StoreOption = None,
) -> None:
    """Record what watch would show; a recorder that is killed loses at most the last second.

    example: meshmark record --rate 10 --duration 60s --out night.parquet
    """
    from meshmark.cli.process import signals_call
    from meshmark.watch.recording import HOLD_S, Recorder

    _refuse_settings(on, settings)
    if on is not None:
        header, made = simulated(on, workload, settings, frames, window)
        with Recorder(out, header) as recorder:
            for frame in made:
                recorder.add(frame)
    else:
        with (
            _live(rate, duration, root, HOLD_S, use_of, canary, store) as live,
            Recorder(out, live.header) as recorder,
            signals_call(live.stop),  # what it holds comes first, then its end
        ):
            say(f"recording {live.header.machine} at {rate:g} Hz; Ctrl-C ends it")
            for line in live.lines():
                recorder.add_line(line)
    print(out)
    say(f"{recorder.frames} frames, {out.stat().st_size} B; meshmark replay {out}")


def replay(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="a recording, whole or cut (NAME.part)")],
    web: WebOption = False,
    page: Annotated[
        Path | None,
        typer.Option("--html", help="write a page, one file that opens without a server", show_default=False),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", help="another recording: the change from it to FILE, a table or a map", show_default=False
        ),
    ] = None,
    speed: Annotated[float, typer.Option("--speed", min=0.01, max=1000, help="times its own pace")] = 1.0,
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
    """Show a recording as if it were live, or what changed between two.

    example: meshmark replay night.parquet --web; meshmark replay night.parquet --html night.html
    """
    from meshmark.watch.recording import Recording

    bounds = _bounds(low, high, palette)
    address = _address(web, host, port, token, token_file, no_token)
    asked = [name for name, is_asked in (("--web", web), ("--html", page), ("--json", as_json)) if is_asked]
    if len(asked) > 1:
        raise UsageError(f"{asked[1]}: found with {asked[0]}, allowed is one of --web, --html, --json")
    if page is not None:
        from meshmark.web.page import check_out

        check_out(page)
    if against is not None:
        _refuse_colours(_given(ctx))
    recording = Recording(file)
    viewed = _viewed(recording.header, ctx)
    if against is not None:
        _replay_change(Recording(against), recording, page, web, as_json, address)
    elif as_json:
        _print_frames(recording.header, recording.frames())
    elif page is not None:
        from meshmark.web.page import packed_recording

        _write_page(page, viewed, packed_recording(viewed, recording.frames(), recording.count()))
    elif web:
        from meshmark.web.hub import Past
        from meshmark.web.page import thinned

        _serve(Past(*thinned(viewed, recording.count(), recording.some)), address)
    else:
        frames = list(recording.frames())
        if not sys.stdout.isatty():
            frames = frames[-1:]  # nobody sees it move
        with _ended_by_signals():
            slow = recording.header.period_s < 1e-3  # a model's microseconds
            _show(recording.header, _paced(frames, 10.0, 0.0 if slow else speed), *bounds, palette)


def _write_page(out: Path, header: Header, packed: bytes) -> None:
    from meshmark.web.page import write_page

    size = write_page(out, f"{header.machine} – Meshmark", packed)
    print(out)
    say(f"{size} B; any browser opens it, without a network")


def _replay_change(
    before: Recording, after: Recording, page: Path | None, web: bool, as_json: bool, address: Address
) -> None:
    """What changed between two recordings: as a map, as a page, as JSON or as a table."""
    from meshmark.watch.difference import Side, compare, table

    sides = [Side(r.path.name, r.header, r.count(), r.frames()) for r in (before, after)]
    difference = compare(*sides)
    if as_json:
        print(json.dumps(difference.to_json()))
    elif page is not None:
        from meshmark.web.page import packed_difference

        _write_page(page, after.header, packed_difference(after.header, difference))
    elif web:
        from meshmark.web.hub import Past

        _serve(Past(after.header, 0, lambda *_: [], change=difference.to_json()), address)
    else:
        for line in table(difference):
            print(line)


def plot(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="a recording, whole or cut (NAME.part)")],
    out: Annotated[Path, typer.Option("--out", help="folder for the pictures")] = Path("plots"),
    against: Annotated[
        Path | None, typer.Option("--against", help="another recording: the change from it to FILE", show_default=False)
    ] = None,
    low: LowOption = 0.0,
    high: HighOption = 100.0,
    palette: PaletteOption = "inferno",
) -> None:
    """Draw a recording on paper: every component over time, a PNG and an SVG a class.

    example: meshmark plot night.parquet --out plots
    """
    from meshmark.report.recording import draw_difference, draw_recording
    from meshmark.watch.frames import USE
    from meshmark.watch.recording import Recording

    bounds = _bounds(low, high, palette)
    if against is not None:
        _refuse_colours([word for word in _given(ctx) if word != "--to"])
    recording = Recording(file)
    headers = [recording.header]
    if against is None:
        paths = draw_recording(recording.header, recording.frames(), out, *bounds, palette)
    else:
        before = Recording(against)
        headers.append(before.header)
        paths = draw_difference(
            (before.header, before.frames()), (recording.header, recording.frames()), out, bounds[1] / 2
        )
    for path in paths:
        print(path)
    for kind in USE:
        if headers[0].count(kind) and not any(p.stem.startswith(kind) for p in paths):
            uses = [h.use[kind] for h in headers]
            lacks = next((h for h in headers if uses[0] not in {m.name for m in h.metrics}), headers[0])
            why = lacks.why_unknown(uses[0]) if len(set(uses)) == 1 else f"it is {uses[1]} before and {uses[0]} after"
            say(f"{kind}: not drawn: {why}")
