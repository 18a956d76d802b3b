"""Tables below the map in the terminal: what components do, how that changed, and the busiest processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from rich.table import Table
from rich.text import Text

from meshmark.values.units import counted, show
from meshmark.views.terminal.live.map import percent
from meshmark.watch.frames import Frame, Header
from meshmark.watch.rates import rates

HISTORY: Final = 60  # frames
MAX_ROWS: Final = 8  # the busiest components of a class
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_CLASSES: Final = ("memory", "link", "io")

_Series = Callable[[Frame], float | None]


def spark(values: Sequence[float | None], top: float) -> str:
    """Return one character per value, from 0 to `top`; a dot for an unknown value.

    >>> spark([0, 0.5, None, 1], 1)
    '▁▅·█'
    """
    steps = len(_BLOCKS) - 1
    return "".join(
        "·" if v is None or top <= 0 else _BLOCKS[min(steps, max(0, round(steps * v / top)))] for v in values
    )


def activity(header: Header, frames: Sequence[Frame]) -> Table:
    """Return a table with a row for all CPUs and for each of the busiest other components.

    A row has the share, absolute values and recent history.

    Args:
        header: The header of the frames.
        frames: The frames up to the frame that is shown, at least one.
    """
    frame, recent = frames[-1], frames[-HISTORY:]
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    table.add_column("", no_wrap=True)
    table.add_column("use", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    table.add_column(f"last {len(recent)} frames", no_wrap=True)

    def add(name: str, series: _Series, text: str, mark: str = "") -> None:
        use = series(frame)
        history = spark([series(f) for f in recent], 1)
        table.add_row(Text(name), f"{mark}{percent(use)} %" if use is not None else "?", Text(text), history)

    def value(f: Frame, metric: str, index: int) -> float | None:
        amount = f.value(metric, index)
        return amount if amount is not None and math.isfinite(amount) else None

    count = header.count("cpu")
    if count:
        cpu = header.use["cpu"]

        def mean(f: Frame) -> float | None:
            shares = [v for v in f.values.get(cpu, ()) if v is not None]
            return fmean(shares) if shares else None

        metric = next((m for m in header.metrics if m.name == cpu), None)
        add(counted(count, "CPU"), mean, metric.what if metric else "")
    for kind in _CLASSES:
        use = header.use[kind]
        mark = "~" if any(m.name == use and m.estimated for m in header.metrics) else ""
        for i in _busiest(header, frame, kind):
            name = str(header.components[kind][i].get("name", i))
            text = rates(header, frame, kind, i)
            add(f"link {name}" if kind == "link" else name, lambda f, i=i, use=use: value(f, use, i), text, mark)  # type: ignore[misc]
        left_out = header.count(kind) - MAX_ROWS
        if left_out > 0:
            table.add_row(Text(f"{left_out} more of {kind}, less busy", "dim"), "", "", "")
    return table


def _busiest(header: Header, frame: Frame, kind: str) -> list[int]:
    """Return at most `MAX_ROWS` components of a class, in their order."""

    def rank(i: int) -> float:
        metrics = (header.use[kind], "io.in", "io.out") if kind == "io" else (header.use[kind],)
        values = [v for metric in metrics if (v := frame.value(metric, i)) is not None]
        return max(values, default=-1.0)

    count = header.count(kind)
    busiest = sorted(range(count), key=rank, reverse=True)[:MAX_ROWS] if count > MAX_ROWS else range(count)
    return sorted(busiest)


def processes(frame: Frame) -> Table | None:
    """Return a table of the busiest processes, or None if there are no processes."""
    if not frame.processes:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, right in (("process", False), ("PID", True), ("CPU", True), ("threads", True), ("on CPU", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("memory", justify="right", no_wrap=True)
    for p in frame.processes[:MAX_ROWS]:
        cells = (p.get("pid"), f"{100 * float(p.get('cpu', 0)):.0f} %", p.get("threads"), p.get("on"))
        table.add_row(Text(str(p.get("name", ""))[:24]), *map(str, cells), show(float(p.get("rss", 0)), "B"))
    return table
