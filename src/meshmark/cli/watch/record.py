"""`meshmark record`: writes frames to a file, also around a command."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.console import say
from meshmark.cli.options import RootOption, SetOption, StoreOption, given, in_folder, time_option
from meshmark.cli.watch.options import (
    CanaryOption,
    FramesOption,
    FullScaleOption,
    OnOption,
    RateOption,
    WindowOption,
    WorkloadOption,
    live_source,
    refuse_settings,
    simulated,
)
from meshmark.errors import MeshmarkError, UsageError

if TYPE_CHECKING:
    from meshmark.watch.recorder.summary import RecorderCost
    from meshmark.watch.recording import Recorder

CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND", help="command and its arguments, after --; its start and end are marked"),
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
    from meshmark.cli.process import signals_call
    from meshmark.watch.recording import HOLD_S, Recorder

    refuse_settings(on, settings)
    if command or sys.argv[-1:] == ["--"]:
        _check_options(ctx, command or [])
        raise SystemExit(_record_command(command or [], out, margin, rate, full_scale, canary, store))
    if margin:
        raise UsageError("--margin: found without COMMAND, allowed with it", "meshmark record --out FILE -- COMMAND")
    if on is not None:
        header, simulated_frames = simulated(on, workload, settings, frames, window)
        with Recorder(out, header) as recorder:
            for frame in simulated_frames:
                recorder.add(frame)
        print(out)
        say(f"{recorder.frames} frames, {out.stat().st_size} B; meshmark replay {out}")
        return
    with (
        live_source(rate, duration, root, HOLD_S, full_scale, canary, store) as live,
        signals_call(live.stop),  # buffered frames are written before the end
        Recorder(out, live.header) as recorder,  # its file appears once signals end the recorder cleanly
    ):
        say(f"recording {live.header.machine} at {rate:g} Hz; stop with Ctrl-C")
        begin_s = time.process_time()
        for line in live.lines():
            recorder.add_line(line)
        cost = _cost(recorder, time.process_time() - begin_s)
    print(out)
    say(f"{recorder.frames} frames, {out.stat().st_size} B; meshmark replay {out}")
    say(str(cost))


def _check_options(ctx: typer.Context, command: list[str]) -> None:
    """Refuse a missing command, and options that do not apply to a command.

    Raises:
        UsageError: There is no command after `--`, or an option does not apply.
    """
    if not command:
        raise UsageError("COMMAND: missing after --", "meshmark record --out FILE -- COMMAND")
    options = {"duration": "--duration", "on": "--on", "root": "--root"}
    for name, option in options.items():
        if given(ctx, name):
            raise UsageError(f"{option}: found with COMMAND, allowed without it: the recording ends with the command")


def _record_command(
    words: list[str], out: Path, margin_s: float, rate: float, full_scale: str, canary: bool, store: Path | None
) -> int:
    """Record a command and the machine around it; print a summary; return the exit status of the command."""
    from meshmark.watch.recorder.command import CommandError, CommandRun, check_command, waiting_for_signals
    from meshmark.watch.recording import HOLD_S, Recorder

    check_command(words)
    run = CommandRun(words, margin_s, lambda text: say(f"warning: {text}"))
    with waiting_for_signals():
        with live_source(rate, 0.0, None, HOLD_S, full_scale, canary, store, apart=True) as live:
            recorder = Recorder(out, live.header)
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
                _summarise(out, cost)
            else:
                recorder.close_part()
        except MeshmarkError as error:
            say(f"warning: {error}")
    return end.status


def _cost(recorder: Recorder, recorder_s: float) -> RecorderCost:
    from meshmark.watch.recorder.summary import RecorderCost

    return RecorderCost(recorder.sampler_s, recorder_s, recorder.recorded_s, recorder.header.count("cpu"))


def _summarise(out: Path, cost: RecorderCost) -> None:
    """Print a summary of the command and of the machine around it on standard error."""
    from meshmark.views.terminal.recording import summary_sections
    from meshmark.views.terminal.screen import print_sections, table_console
    from meshmark.watch.recorder.summary import command_text, summarise
    from meshmark.watch.recorder.window import command_window
    from meshmark.watch.recording import RecordingFile

    recording = RecordingFile(out)
    window = command_window(recording.header.marks)
    if window is not None:
        for line in command_text(window):
            say(line)
        summary = summarise(recording.header, recording.frames(), window)
        if summary.frames:
            print_sections(table_console(stderr=True), summary_sections(summary))
        else:
            say("the command was too short for a frame")
    say(str(cost))
    say(f"{out}: {recording.count()} frames, {out.stat().st_size} B; meshmark replay {out}")
