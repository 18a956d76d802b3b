"""Shows frames in a terminal, or prints them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshmark.watch.frames import Frame, Header


def show_frames(header: Header, frames: Iterator[Frame], low: float, high: float, palette: str) -> None:
    """Show the interactive map in a terminal; without a terminal, print the frames one after the other."""
    if sys.stdout.isatty() and sys.stdin.isatty():
        from meshmark.views.terminal.live.app import MeshApp

        MeshApp(header, frames, low, high, palette).run()
        return
    from rich.console import Console
    from rich.text import Text

    from meshmark.views.terminal.live.audit import audit_text
    from meshmark.views.terminal.live.map import draw, scale_text
    from meshmark.watch.findings.findings import Findings
    from meshmark.watch.layout import map_of

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    machine_map, findings = map_of(header), Findings(header)
    audited = audit_text(header.more["audit"]) if "audit" in header.more else ""
    absent = ", ".join(sorted({a["metric"].partition(":")[0] for a in header.absent}))
    for frame in frames:
        console.print(Text(f"{header.machine}  {header.source}  {frame.t_s:.6g} s", style="bold"))
        console.print(scale_text(header, low, high, palette))
        console.print(draw(header, machine_map, frame, low, high, palette))
        for finding in findings.add(frame):
            console.print(Text(str(finding), style="bold red"))
        if audited:
            console.print(Text(audited, style="dim"))
        if absent:
            console.print(Text(f"not available here: {absent}", style="dim"))


def print_frames(header: Header, frames: Iterator[Frame]) -> None:
    """Print the header and the frames as JSON Lines."""
    from meshmark.watch.findings.findings import Findings, frame_json

    findings = Findings(header)
    print(json.dumps(header.to_json()), flush=True)
    for frame in frames:
        print(json.dumps(frame_json(frame, findings.add(frame))), flush=True)


def paced(frames: list[Frame], rate_hz: float, speed: float = 0.0) -> Iterator[Frame]:
    """Yield frames at `rate_hz` or, if `speed` is not 0, at this multiple of their recorded rate."""
    import time

    start_s = time.monotonic()
    for i, frame in enumerate(frames):
        due_s = (frame.t_s - frames[0].t_s) / speed if speed else i / rate_hz
        time.sleep(max(0.0, start_s + due_s - time.monotonic()))
        yield frame
