"""`meshmark record`: writes frames to a file, also around a command."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.console import say
from meshmark.cli.options import RootOption, SetOption, StoreOption, in_folder, time_option
from meshmark.cli.watch.options import (
    CanaryOption,
    CommandArgument,
    FramesOption,
    FullScaleOption,
    OnOption,
    RateOption,
    WindowOption,
    WorkloadOption,
    has_command,
    live_source,
    refuse_settings,
    refuse_with_command,
    simulated,
)
from meshmark.cli.watch.summary import print_summary
from meshmark.errors import MeshmarkError, UsageError
from meshmark.values.units import counted

if TYPE_CHECKING:
    from meshmark.watch.frames import Frame, Header
    from meshmark.watch.live import LiveSampler
    from meshmark.watch.recorder.parts import RotatingRecorder
    from meshmark.watch.recorder.summary import RecorderCost
    from meshmark.watch.recording import Recorder

RotateOption = Annotated[
    str,
    typer.Option(
        "--rotate", help="begin a new file, OUT-000001 and so on, after this time or size: 1h, 500MiB", metavar="LIMIT"
    ),
]
KeepOption = Annotated[
    str,
    typer.Option(
        "--keep", help="remove the oldest files of --rotate above this number or size: 24, 5GiB", metavar="LIMIT"
    ),
]
MarginOption = Annotated[float, time_option("--margin", "also record this time before and after COMMAND [0s]")]


def register(app: typer.Typer) -> None:
    """Add the command `record`. Its options end where the command of the user begins."""
    app.command("record", context_settings={"allow_interspersed_args": False})(record)


def record(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="file to write (Parquet)", callback=in_folder)],
    command: CommandArgument = None,
    rate: RateOption = 1.0,
    duration: Annotated[float, time_option("--duration", "stop after this time [at Ctrl-C]")] = 0.0,
    margin: MarginOption = 0.0,
    rotate: RotateOption = "",
    keep: KeepOption = "",
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

    With COMMAND, the recording begins and ends with the command, whose exit status is passed on.

    example: meshmark record --rate 10 --duration 60s --out night.parquet; meshmark record --out make.parquet -- make
    """
    refuse_settings(on, settings)
    if has_command(command, "record --out FILE"):
        refuse_with_command(ctx, "duration", "on", "root")
    elif margin:
        raise UsageError("--margin: found without COMMAND, allowed with it", "meshmark record --out FILE -- COMMAND")
    if on is not None:
        if rotate or keep:
            raise UsageError("--rotate: found with --on, allowed for this machine only")
        _record_simulated(out, simulated(on, workload, settings, frames, window))
        return
    open_recorder = _opener(out, rotate, keep)
    if command:
        raise SystemExit(_record_command(command, open_recorder, margin, rate, full_scale, canary, store))
    _record_machine(
        lambda hold_s: live_source(rate, duration, root, hold_s, full_scale, canary, store), open_recorder, rate
    )


def _opener(out: Path, rotate: str, keep: str) -> Callable[[Header], Recorder | RotatingRecorder]:
    """Return the function that opens the recording, or the next of its parts, when the header is known."""
    from meshmark.watch.recorder.parts import RotatingRecorder, rotation_plan
    from meshmark.watch.recording import Recorder

    if not (rotate or keep):
        return lambda header: Recorder(out, header)
    plan = rotation_plan(rotate, keep)
    return lambda header: RotatingRecorder(out, header, plan, lambda text: say(f"warning: {text}"))


def _record_simulated(out: Path, source: tuple[Header, list[Frame]]) -> None:
    from meshmark.watch.recording import Recorder

    header, frames = source
    with Recorder(out, header) as recorder:
        for frame in frames:
            recorder.add(frame)
    print(out)
    _say_size(recorder)


def _record_machine(
    source: Callable[[float], LiveSampler],
    open_recorder: Callable[[Header], Recorder | RotatingRecorder],
    rate: float,
) -> None:
    """Record this machine until a signal arrives or the sampler ends."""
    from meshmark.cli.process import signals_call
    from meshmark.watch.recording import HOLD_S

    with (
        source(HOLD_S) as live,
        signals_call(live.stop),  # buffered frames are written before the end
        open_recorder(live.header) as recorder,  # its file appears once signals end the recorder cleanly
    ):
        say(f"recording {live.header.machine} at {rate:g} Hz; stop with Ctrl-C")
        begin_s = time.process_time()
        for line in live.lines():
            recorder.add_line(line)
        cost = _cost(recorder, time.process_time() - begin_s)
    for path in recorder.paths:
        print(path)
    _say_size(recorder)
    say(str(cost))


def _say_size(recorder: Recorder | RotatingRecorder) -> None:
    """State the number of frames and the size of the recording."""
    paths = recorder.paths
    size = sum(path.stat().st_size for path in paths)
    files = f" in {len(paths)} files" if len(paths) > 1 else ""
    frames = counted(recorder.frames, "frame")
    say(f"{frames}, {size} B{files}; meshmark replay {paths[-1] if paths else recorder.out}")


def _record_command(
    words: list[str],
    open_recorder: Callable[[Header], Recorder | RotatingRecorder],
    margin_s: float,
    rate: float,
    full_scale: str,
    canary: bool,
    store: Path | None,
) -> int:
    """Record a command and the machine around it; print a summary; return the exit status of the command."""
    from meshmark.watch.recorder.command import CommandError, CommandRun, check_command, waiting_for_signals
    from meshmark.watch.recording import HOLD_S

    check_command(words)
    run = CommandRun(words, margin_s, lambda text: say(f"warning: {text}"))
    with waiting_for_signals():
        with live_source(rate, 0.0, None, HOLD_S, full_scale, canary, store, apart=True) as live:
            recorder = open_recorder(live.header)
            begin_s = time.process_time()
            try:
                end = run.record(live, recorder)
            except (CommandError, KeyboardInterrupt):
                recorder.discard()
                raise
            cost = _cost(recorder, time.process_time() - begin_s)
        try:
            if run.failure is None:
                recorder.close()
                _summarise(recorder, cost)
            else:
                recorder.close_part()
        except MeshmarkError as error:
            say(f"warning: {error}")
    return end.status


def _cost(recorder: Recorder | RotatingRecorder, recorder_s: float) -> RecorderCost:
    from meshmark.watch.recorder.summary import RecorderCost

    return RecorderCost(recorder.sampler_s, recorder_s, recorder.recorded_s, recorder.header.count("cpu"))


def _summarise(recorder: Recorder | RotatingRecorder, cost: RecorderCost) -> None:
    """Print a summary of the command and of the machine around it on standard error."""
    from meshmark.watch.recorder.parts import command_marks
    from meshmark.watch.recorder.summary import summarise
    from meshmark.watch.recorder.window import command_window
    from meshmark.watch.recording import RecordingFile

    parts = [RecordingFile(path) for path in recorder.paths]
    window = command_window(command_marks(parts))
    if window is not None:
        frames = (frame for part in parts for frame in part.frames())
        print_summary(window, lambda: summarise(recorder.header, frames, window))
    if sum(part.count() for part in parts) < recorder.frames:
        say("the oldest files were removed: the summary of the machine covers the others")
    say(str(cost))
    _say_size(recorder)
