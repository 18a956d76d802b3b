"""`meshmark plot`: draws recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshmark.cli.console import say
from meshmark.cli.watch.options import (
    HighOption,
    LowOption,
    PaletteOption,
    RecordingArgument,
    colour_bounds,
    given_colours,
    refuse_colours,
)


def register(app: typer.Typer) -> None:
    """Add the command `plot`."""
    app.command("plot")(plot)


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

    bounds = colour_bounds(low, high, palette)
    check_writable("--out", out / "cpu.png")
    if against is not None:
        refuse_colours([option for option in given_colours(ctx) if option != "--to"])
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
