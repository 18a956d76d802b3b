"""`meshmark watch`, `record` and `replay`: the live map, in a terminal or a browser, and recordings of it."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.errors import UsageError
from meshmark.terminal import say

if TYPE_CHECKING:
    from meshmark.watch.frames import Frame, Header
    from meshmark.web.hub import Hub, Past

RateOption = Annotated[float, typer.Option("--rate", min=0.01, max=100, help="frames a second (Hz)")]
RootOption = Annotated[
    Path | None,
    typer.Option("--root", help="a recorded tree with proc and sys instead of this machine", exists=True,
                 file_okay=False, show_default=False),
]  # fmt: skip
OnOption = Annotated[str | None, typer.Option("--on", help="a simulated machine instead", show_default=False)]
WorkloadOption = Annotated[
    str, typer.Option("--workload", help="of a simulated machine: hot_spot, random_reads, throughput …")
]
WebOption = Annotated[bool, typer.Option("--web", help="in the browser")]
HostOption = Annotated[str, typer.Option("--host", help="address to listen on")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one")]
TokenOption = Annotated[
    str, typer.Option("--token", help="needed by who opens the page; for addresses beyond this host")
]
LowOption = Annotated[float, typer.Option("--from", min=0, max=99, help="lowest colour begins here (%)")]
HighOption = Annotated[float, typer.Option("--to", min=0.1, max=100, help="highest colour ends here (%)")]
PaletteOption = Annotated[str, typer.Option("--palette", help="inferno, cividis, spectrum")]
WindowOption = Annotated[float, typer.Option("--window", min=1, help="of a simulated machine's frame (ns)")]
FramesOption = Annotated[int, typer.Option("--frames", min=1, max=20000, help="of a simulated machine")]
JsonOption = Annotated[bool, typer.Option("--json", help="frames as JSON Lines, a header first")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="of a simulated machine: table.key=value; may be repeated", show_default=False),
]


def register(app: typer.Typer) -> None:
    app.command("watch")(watch)
    app.command("record")(record)
    app.command("replay")(replay)
    app.command("plot")(plot)


def simulated(
    name: str, workload: str, settings: list[str] | None, frames: int, window_ns: float
) -> tuple[Header, list[Frame]]:
    """The header and frames of a simulated machine under a workload."""
    from meshmark.model.frames import busiest, frame_lines, header_line
    from meshmark.model.machine import find_machine
    from meshmark.watch.frames import frame_of, header_of

    machine = find_machine(name, settings)
    header = header_of(header_line(machine, window_ns * 1e-9))
    return header, [
        frame_of(line, header) for line in frame_lines(machine, busiest(machine, workload), window_ns, frames)
    ]


def _past(header: Header, frames: list[Frame]) -> Past:
    from meshmark.web.hub import Past

    return Past(header, len(frames), lambda begin, count: frames[begin : begin + count])


def _serve(what: Hub | Past, host: str, port: int, token: str) -> None:
    from meshmark.web.server import serve

    def ready(address: str) -> None:
        print(address, flush=True)
        say("Ctrl-C ends it")

    serve(what, host, port, token, ready)


def _bounds(low: float, high: float, palette: str) -> tuple[float, float]:
    from meshmark.watch.terminal import PALETTES

    if low >= high:
        raise UsageError(f"--from: found {low:g}, less than --to ({high:g}) is needed")
    if palette not in PALETTES:
        raise UsageError(f"--palette: found '{palette}', allowed are {', '.join(PALETTES)}")
    return low / 100, high / 100


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM ends a recording as Ctrl-C does: whole."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        say("")
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(header: Header, frames: Iterator[Frame], low: float, high: float, palette: str) -> None:
    """The map in the terminal, with keys; without a terminal frame by frame as text."""
    if sys.stdout.isatty() and sys.stdin.isatty():
        from meshmark.watch.app import MeshApp

        MeshApp(header, frames, low, high, palette).run()
        return
    from rich.console import Console
    from rich.text import Text

    from meshmark.watch.hotspots import Detector
    from meshmark.watch.layout import map_of
    from meshmark.watch.terminal import draw, scale_text

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
    web: WebOption = False,
    on: OnOption = None,
    workload: WorkloadOption = "hot_spot",
    rate: RateOption = 1.0,
    duration: Annotated[float, typer.Option("--duration", min=0, help="then it ends (s); 0: never")] = 0.0,
    window: WindowOption = 500.0,
    frames: FramesOption = 200,
    low: LowOption = 0.0,
    high: HighOption = 100.0,
    palette: PaletteOption = "inferno",
    host: HostOption = "127.0.0.1",
    port: PortOption = 8642,
    token: TokenOption = "",
    root: RootOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch this machine (or a simulated one) on its own map, coloured by use.

    example: meshmark watch --web --rate 10
    """
    bounds = _bounds(low, high, palette)
    if on is not None:
        header, made = simulated(on, workload, settings, frames, window)
        if as_json:
            _print_frames(header, iter(made))
        elif web:
            _serve(_past(header, made), host, port, token)
        else:
            with _ended_by_signals():
                _show(header, _paced(made, 10.0), *bounds, palette)
        return
    from meshmark.watch.live import Live

    with Live(rate, duration, root) as live, _ended_by_signals():
        if as_json:
            _print_frames(live.header, live.frames())
        elif web:
            from meshmark.web.hub import Hub

            _serve(Hub(live.header, live.frames()), host, port, token)
        else:
            _show(live.header, live.frames(), *bounds, palette)


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
    duration: Annotated[float, typer.Option("--duration", min=0, help="then it ends (s); 0: at Ctrl-C")] = 0.0,
    on: OnOption = None,
    workload: WorkloadOption = "hot_spot",
    window: WindowOption = 500.0,
    frames: FramesOption = 200,
    root: RootOption = None,
    settings: SetOption = None,
) -> None:
    """Record what watch would show; a recorder that is killed loses at most the last second.

    example: meshmark record --rate 10 --duration 60 --out night.parquet
    """
    from meshmark.watch.recording import BATCH_S, Recorder

    if on is not None:
        header, made = simulated(on, workload, settings, frames, window)
        with Recorder(out, header) as recorder:
            for frame in made:
                recorder.add(frame)
    else:
        from meshmark.watch.live import Live

        with (
            Live(rate, duration, root, hold_s=BATCH_S) as live,
            Recorder(out, live.header) as recorder,
            _ended_by_signals(),
        ):
            say(f"recording {live.header.machine} at {rate:g} Hz; Ctrl-C ends it")
            try:
                for frame in live.frames():
                    recorder.add(frame)
            except KeyboardInterrupt:
                live.stop()  # what it holds comes first
                for frame in live.frames():
                    recorder.add(frame)
                say("")
    print(out)
    say(f"{recorder.frames} frames, {out.stat().st_size} B; meshmark replay {out}")


def replay(
    file: Annotated[Path, typer.Argument(help="a recording, whole or cut (NAME.part)")],
    web: WebOption = False,
    speed: Annotated[float, typer.Option("--speed", min=0.01, max=1000, help="times its own pace")] = 1.0,
    low: LowOption = 0.0,
    high: HighOption = 100.0,
    palette: PaletteOption = "inferno",
    host: HostOption = "127.0.0.1",
    port: PortOption = 8642,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show a recording as if it were live.

    example: meshmark replay night.parquet --web
    """
    from meshmark.watch.recording import Recording

    bounds = _bounds(low, high, palette)
    recording = Recording(file)
    if as_json:
        _print_frames(recording.header, recording.frames())
    elif web:
        from meshmark.web.hub import Past

        _serve(Past(recording.header, recording.count(), recording.some), host, port, token)
    else:
        frames = list(recording.frames())
        if not sys.stdout.isatty():
            frames = frames[-1:]  # nobody sees it move
        with _ended_by_signals():
            slow = recording.header.period_s < 1e-3  # a model's microseconds
            _show(recording.header, _paced(frames, 10.0, 0.0 if slow else speed), *bounds, palette)


def plot(
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
    from meshmark.watch.recording import Recording

    bounds = _bounds(low, high, palette)
    recording = Recording(file)
    if against is None:
        paths = draw_recording(recording.header, recording.frames(), out, *bounds, palette)
    else:
        before = Recording(against)
        paths = draw_difference(
            (before.header, before.frames()), (recording.header, recording.frames()), out, bounds[1] / 2
        )
    for path in paths:
        print(path)
