"""`meshmark plot`: draws recordings, and prints them as CSV."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.console import say
from meshmark.cli.options import given
from meshmark.cli.watch.options import (
    BeginOption,
    EndOption,
    HighOption,
    LowOption,
    PaletteOption,
    PartOption,
    check_part,
    colour_bounds,
    given_colours,
    refuse_colours,
)
from meshmark.errors import UsageError, quoted

if TYPE_CHECKING:
    from meshmark.watch.frames import Header
    from meshmark.watch.recorder.overlay import UseOverlay
    from meshmark.watch.recorder.window import TimeWindow
    from meshmark.watch.recording import RecordingFile

RecordingsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        exists=True,
        help="recordings, complete or interrupted (NAME.part), or frames as JSON Lines; "
        "several are drawn in one chart, aligned at the start of their command",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command `plot`."""
    app.command("plot")(plot)


def plot(
    ctx: typer.Context,
    files: RecordingsArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="folder to write the pictures to, or FILE.csv to write rows to")
    ] = Path("plots"),
    begin: BeginOption = 0.0,
    end: EndOption = math.inf,
    window: PartOption = "",
    process: Annotated[
        str, typer.Option("--process", help="draw where the threads and pages of this process were: its number or name")
    ] = "",
    threads: Annotated[
        str,
        typer.Option(
            "--threads",
            metavar="N,N,…",
            help="numbers of threads, one for each recording: draw the speed-up of the command, and the use of "
            "the machine, by number of threads",
        ),
    ] = "",
    as_csv: Annotated[bool, typer.Option("--csv", help="print rows: time (s), component, metric, value, unit")] = False,
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
    """Plot recordings over time.

    Writes one PNG and one SVG per class of components for one recording, and one of each for several.

    example: meshmark plot night.parquet --out plots; meshmark plot make.parquet --window command -o make.csv
    example: meshmark plot night.parquet --process postgres; meshmark plot 1.parquet 4.parquet --threads 1,4
    """
    from meshmark.store.files import check_writable
    from meshmark.watch.recording import opened

    bounds = colour_bounds(low, high, palette)
    check_part(ctx, begin, end, window)
    is_file = out.suffix == ".csv"
    if is_file or not as_csv:
        check_writable("--out", out if is_file else out / "cpu.png")
    if as_csv and given(ctx, "out") and not is_file:
        raise UsageError(f"--out: found {out} with --csv; allowed: a file with the suffix .csv, or no --out")
    if process and (len(files) > 1 or against is not None or as_csv or is_file):
        raise UsageError(
            "--process: found with several recordings, --against or CSV; allowed: one recording, as pictures"
        )
    if threads and (process or window or against is not None or as_csv or is_file):
        raise UsageError("--threads: found with --process, --window, --against or CSV; allowed: recordings alone")
    if against is not None:
        _draw_change(ctx, files, against, out, bounds[1], as_csv or is_file)
        return
    recordings = [opened(file) for file in files]
    windows = _windows(recordings, (begin if given(ctx, "begin") else -math.inf, end), window)
    if process:
        refuse_colours(given_colours(ctx), "--process, whose nodes have a colour each")
        _draw_process(recordings[0], windows[0], process, out)
    elif threads:
        refuse_colours(given_colours(ctx), "--threads, whose classes have a colour each")
        _draw_speed_up(recordings, threads, out)
    elif as_csv or is_file:
        _write_csv(recordings, windows, out if is_file else None)
    elif len(recordings) > 1:
        refuse_colours(given_colours(ctx), "several recordings, which have a colour each")
        _draw_together(recordings, windows, out)
    else:
        _draw_one(recordings[0], windows[0], out, bounds, palette)


def _windows(recordings: Sequence[RecordingFile], span_s: tuple[float, float], window: str) -> list[TimeWindow]:
    """Return the span of each recording; several are aligned at the start of their command if all have one."""
    from meshmark.watch.recorder.window import TimeWindow, start_of_command_s, window_of_command

    if window:
        return [window_of_command(r) for r in recordings]
    starts = [start_of_command_s(r) for r in recordings] if len(recordings) > 1 else [None]
    if None in starts and any(s is not None for s in starts):
        say("not all recordings have a marked command: they are aligned at their starts")
    is_aligned = None not in starts
    return [TimeWindow(s if is_aligned and s is not None else 0.0, *span_s) for s in starts]


def _write_csv(recordings: Sequence[RecordingFile], windows: Sequence[TimeWindow], out: Path | None) -> None:
    import io

    from meshmark.store.files import written
    from meshmark.watch.recorder.rows import write_csv

    names = _unique_names([r.path for r in recordings])
    content = [(name, r.header, w.frames(r)) for name, r, w in zip(names, recordings, windows, strict=True)]
    if out is None:
        write_csv(sys.stdout, content)
        return
    with written(out) as file:
        stream = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", write_through=True)
        count = write_csv(stream, content)
        stream.detach()
    print(out)
    say(f"{count} rows")


def _draw_one(
    recording: RecordingFile, window: TimeWindow, out: Path, bounds: tuple[float, float], palette: str
) -> None:
    from meshmark.views.pages.recording import draw_recording

    paths = draw_recording(recording.header, window.frames(recording), out, *bounds, palette)
    _print_paths(paths, [recording.header])


def _draw_process(recording: RecordingFile, window: TimeWindow, process: str, out: Path) -> None:
    from meshmark.views.charts.residency import draw_residency
    from meshmark.watch.recorder.residency import residency

    where = residency(recording.header, window.frames(recording), process)
    for path in draw_residency(where, out):
        print(path)
    say(f"{where.title}: among the busiest processes of {len(where.at_s)} frames")


def _draw_speed_up(recordings: Sequence[RecordingFile], threads: str, out: Path) -> None:
    from meshmark.values.units import duration, number, percent
    from meshmark.views.charts.speedup import draw_speed_up
    from meshmark.views.tables import TextTable
    from meshmark.views.terminal.screen import print_table, table_console
    from meshmark.watch.recorder.speedup import speed_up

    counts = threads.split(",")
    if not all(count.isascii() and count.isdecimal() and len(count) < 7 for count in counts):
        raise UsageError(
            f"--threads: found '{quoted(threads)}'; allowed: numbers such as 1,2,4, one for each recording"
        )
    points = speed_up(recordings, [int(count) for count in counts])
    for path in draw_speed_up(points, out):
        print(path)
    classes = list(dict.fromkeys(kind for p in points for kind in p.use))
    rows = [
        [
            str(p.threads),
            duration(p.elapsed_s),
            number(p.speed_up),
            *(percent(p.use[kind]) if kind in p.use else "–" for kind in classes),
        ]
        for p in points
    ]
    columns = ["threads", "time", "speed-up", *(f"{kind} use" for kind in classes)]
    print_table(table_console(100), TextTable(columns, rows, list(range(len(columns)))))


def _draw_together(recordings: Sequence[RecordingFile], windows: Sequence[TimeWindow], out: Path) -> None:
    from meshmark.views.charts.recordings import draw_overlay
    from meshmark.watch.frames import USE
    from meshmark.watch.recorder.overlay import overlay

    names = _unique_names([r.path for r in recordings])
    overlays = overlay([(r.header, w.frames(r)) for r, w in zip(recordings, windows, strict=True)])
    origin = "the start of the command" if any(w.origin_s for w in windows) else "the start"
    unit_s = 1e-6 if all(r.header.period_s < 1e-3 for r in recordings) else 1.0
    for path in draw_overlay(overlays, names, origin, unit_s, out):
        print(path)
    for o in overlays:
        say(f"{o.component_class}: {_means_text(o, names)}")
    drawn = {o.component_class for o in overlays}
    for kind in USE:
        header = next((r.header for r in recordings if r.header.count(kind)), None)
        if header is not None and kind not in drawn:
            say(f"{kind}: not drawn: {header.why_unknown(header.use[kind])}")


def _means_text(o: UseOverlay, names: Sequence[str]) -> str:
    """Return the mean use of each recording, and of all with its interval if there are enough."""
    from meshmark.values.units import percent
    from meshmark.watch.recorder.overlay import interval_of_mean

    texts = [f"{name} {percent(mean)}" for name, mean in zip(names, o.means, strict=True)]
    mean, low, high = (float(v[0]) for v in interval_of_mean(o.means[:, None]))
    if math.isfinite(mean):
        texts.append(f"mean {percent(mean)} (95 % interval {percent(low)} to {percent(high)})")
    if len(set(filter(None, o.metrics))) > 1:
        texts.append(f"different metrics: {', '.join(o.metrics)}")
    return ", ".join(texts).replace("\u00a0", " ")


def _unique_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of paths that differ; equal paths get a number."""
    depth = 1
    while depth < 20 and len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    names = ["/".join(path.parts[-depth:]) for path in paths]
    return [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, start=1)]


def _draw_change(
    ctx: typer.Context, files: Sequence[Path], against: Path, out: Path, high: float, as_csv: bool
) -> None:
    """Draw the change from the baseline recording to the only file."""
    from meshmark.views.pages.recording import draw_difference
    from meshmark.watch.recording import opened

    for name, option in (("begin", "--from"), ("end", "--to"), ("window", "--window")):
        if given(ctx, name):
            raise UsageError(f"{option}: found with --against, allowed without it")
    if as_csv:
        raise UsageError("--csv: found with --against, allowed without it")
    if len(files) > 1:
        raise UsageError(f"--against: found with {len(files)} recordings; allowed with one")
    refuse_colours([option for option in given_colours(ctx) if option != "--high"])
    recording, baseline = opened(files[0]), opened(against)
    paths = draw_difference((baseline.header, baseline.frames()), (recording.header, recording.frames()), out, high / 2)
    _print_paths(paths, [recording.header, baseline.header])


def _print_paths(paths: Sequence[Path], headers: Sequence[Header]) -> None:
    """Print the paths of the pictures, and why a class is not drawn."""
    from meshmark.watch.frames import USE

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
