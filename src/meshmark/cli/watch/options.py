"""Options, sources of frames and views that the commands `watch`, `record`, `replay` and `plot` share."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.completion import machines
from meshmark.cli.console import say
from meshmark.cli.options import given, time_option
from meshmark.errors import UsageError

if TYPE_CHECKING:
    from meshmark.watch.frames import Frame, Header
    from meshmark.watch.live import LiveSampler
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
LowOption = Annotated[float, typer.Option("--low", min=0, max=99, help="value of the lowest colour (%)")]
HighOption = Annotated[float, typer.Option("--high", min=0.1, max=100, help="value of the highest colour (%)")]
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
AuditOption = Annotated[
    bool,
    typer.Option(
        "--audit",
        help="run loads of prescribed rates, print the factor by which each counter of memory and links is wrong, "
        "store the result and exit",
    ),
]
BeginOption = Annotated[float, time_option("--from", "only from this time after the start")]
EndOption = Annotated[float, time_option("--to", "only until this time after the start")]
PartOption = Annotated[
    str, typer.Option("--window", help="only this part of the recording: command (between its marks)")
]
RecordingArgument = Annotated[
    Path,
    typer.Argument(exists=True, help="recording, complete or interrupted (NAME.part), or frames as JSON Lines"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print frames as JSON Lines, preceded by a header")]


CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND", help="command and its arguments, after --"),
]


def has_command(command: list[str] | None, form: str) -> bool:
    """Return whether the command line has a command.

    Args:
        command: The words after the options.
        form: What precedes `-- COMMAND` in the hint.

    Raises:
        UsageError: Nothing follows `--`.
    """
    if not command and sys.argv[-1:] == ["--"]:
        raise UsageError("COMMAND: missing after --", f"meshmark {form} -- COMMAND")
    return bool(command)


def refuse_with_command(ctx: typer.Context, *names: str) -> None:
    """Refuse options, by the names of their parameters, that do not apply to the time of a command."""
    for parameter in ctx.command.params:
        if parameter.name in names and given(ctx, str(parameter.name)):
            raise UsageError(
                f"{parameter.opts[0]}: found with COMMAND, allowed without it: the command determines when it ends"
                if parameter.name == "duration"
                else f"{parameter.opts[0]}: found with COMMAND, allowed without it"
            )


def refuse_other_source(ctx: typer.Context, option: str) -> None:
    """Refuse options for frames of another source than this machine, on which `option` measures."""
    for name in ("on", "root"):
        if given(ctx, name):
            raise UsageError(f"--{name}: found with {option}, which measures this machine; allowed without it")


def simulated(
    name: str, workload: str, settings: list[str] | None, frames: int, window_s: float
) -> tuple[Header, list[Frame]]:
    """Return the header and the frames of a simulated machine under a workload."""
    from meshmark.model.frames import busiest, frames_and_pairs, header_line
    from meshmark.model.machine import find_machine
    from meshmark.model.traffic import stated_traffic
    from meshmark.watch.frames import frame_of, header_of

    machine = find_machine(name, settings)
    run = busiest(machine, workload)
    lines, pairs = frames_and_pairs(machine, run, 1e9 * window_s, frames)
    header = header_of(header_line(machine, window_s, pairs, stated_traffic(machine, run, workload)))
    return header, [frame_of(line, header) for line in lines]


def check_part(ctx: typer.Context, begin: float, end: float, window: str) -> None:
    """Refuse an empty span, and spans that contradict each other.

    Raises:
        UsageError: The options do not name one span.
    """
    if window not in {"", "command"}:
        raise UsageError(f"--window: found '{window}'; allowed: command")
    for name, option in (("begin", "--from"), ("end", "--to")):
        if window and given(ctx, name):
            raise UsageError(f"{option}: found with --window; allowed: one of them")
    if begin >= end:
        raise UsageError(f"--from: found {begin:g} s; allowed: less than --to ({end:g} s)")


def refuse_settings(on: str | None, settings: list[str] | None) -> None:
    """Refuse `--set` without `--on`."""
    if settings and on is None:
        raise UsageError("--set: found without --on, allowed for a modelled machine only", "meshmark model list")


def past(header: Header, frames: list[Frame]) -> StoredFrames:
    """Return frames as the page reads them from a recording."""
    from meshmark.web.hub import StoredFrames

    return StoredFrames(header, len(frames), lambda begin, count: frames[begin : begin + count])


Address = tuple[str, int, str]  # host, port, token


def address_of_page(web: bool, host: str, port: int, token: str, file: Path | None, off: bool) -> Address:
    """Return address and access token of the page; the token is "" if the map is shown in the terminal."""
    if not web:
        return host, port, ""
    from meshmark.web.guard import chosen_token

    return host, port, chosen_token(token, file, off)


def serve_page(what: Hub | StoredFrames, address: Address) -> None:
    """Serve the page with the live map until a signal arrives."""
    from meshmark.web.server import serve

    serve(what, *address, served_at)


def served_at(address: str) -> None:
    """Print the address of a server that accepts connections."""
    print(address, flush=True)
    say("stop with Ctrl-C")


def given_colours(ctx: typer.Context) -> list[str]:
    """Return the colour options on the command line."""
    options = {"low": "--low", "high": "--high", "palette": "--palette"}
    sources = {option: ctx.get_parameter_source(name) for name, option in options.items()}
    return [option for option, source in sources.items() if source is not None and source.name != "DEFAULT"]


def refuse_colours(given: list[str], form: str = "--against, which has its own colours") -> None:
    """Refuse options for the colours of utilisation, because another form of view has different colours."""
    if given:
        raise UsageError(f"{given[0]}: found with {form}; allowed without {form.partition(',')[0]}")


def with_view(header: Header, ctx: typer.Context) -> Header:
    """Return the header with the colours of the command line; without them, the page uses the colours of its reader."""
    options, parameters = given_colours(ctx), ctx.params
    view: dict[str, Any] = {"palette": parameters["palette"]} if "--palette" in options else {}
    if "--low" in options or "--high" in options:
        view |= {"low": parameters["low"], "high": parameters["high"]}
    return replace(header, more={**header.more, "view": view}) if view else header


def colour_bounds(low: float, high: float, palette: str) -> tuple[float, float]:
    """Return the values of the lowest and the highest colour as shares.

    Raises:
        UsageError: The range is empty, or there is no such palette.
    """
    from meshmark.watch.palette import PALETTES

    if low >= high:
        raise UsageError(f"--low: found {low:g}; allowed: less than --high ({high:g})")
    if palette not in PALETTES:
        raise UsageError(f"--palette: found '{palette}'; allowed: {', '.join(PALETTES)}")
    return low / 100, high / 100


def live_source(
    rate: float,
    duration: float,
    root: Path | None,
    hold_s: float,
    full_scale: str,
    canary: bool,
    store: Path | None,
    *,
    apart: bool = False,
) -> LiveSampler:
    """Return the source of frames of this machine or, with `root`, of a recorded machine.

    `apart`: Ctrl-C in a terminal does not end the sampler.
    """
    from meshmark.watch.live import LiveSampler, sample_this_host

    if full_scale not in {"sustained", "theoretical"}:
        raise UsageError(f"--full-scale: found '{full_scale}'; allowed: sustained, theoretical")
    if root is not None:
        return LiveSampler(rate, duration, root, hold_s=hold_s)
    return sample_this_host(rate, duration, hold_s, store, full_scale, canary, apart)
