"""Shows the progress of a campaign: a bar on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from meshmark.cli.console import say
from meshmark.values.units import duration

if TYPE_CHECKING:
    from meshmark.fleet.campaigns.campaign import CampaignProgress

_LINE_S: Final = 10.0  # minimum time between lines


class fleet_progress:  # noqa: N801 (used like a function)
    """Shows the number of nodes by status, the elapsed time, and an estimate of the remaining time.

    The last state stays on the terminal. Trouble with the engine is printed when it begins.

    Args:
        label: Label of the bar.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.bar: Any = None
        self.task: Any = None
        self.first: CampaignProgress | None = None
        self.first_ended = 0
        self.unsaid = ""  # the latest line if it is not printed yet
        self.said_s = -_LINE_S
        self.trouble = ""
        self.taking_s = time.monotonic()

    def __enter__(self) -> fleet_progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            self.bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[counts]}", table_column=Column(no_wrap=True)),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
                console=Console(stderr=True),
                transient=True,
                expand=True,
            )
            self.task = self.bar.add_task(self.label, total=None, counts="", left="")
            self.bar.start()
        return self

    def __call__(self, progress: CampaignProgress) -> None:
        """Show the progress that the engine reports."""
        counts = progress.counts()
        ended_count = counts["done"] + counts["failed"] + counts["out"]
        if self.first is None:
            self.first, self.first_ended = progress, ended_count
        if progress.trouble != self.trouble:
            self.trouble = progress.trouble
            if self.trouble:
                self._line(f"warning: {self.trouble}; trying again")
        text = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        left_s = self._left_s(progress, ended_count)
        left = "" if left_s is None else f"about {_time(max(1.0, left_s))} left"
        times = ", ".join(filter(None, (_time(progress.elapsed_s), left)))
        self.unsaid = f"{progress.campaign}: {text} ({times})"
        if self.bar is not None:
            self.bar.update(
                self.task,
                description=self.label,
                completed=ended_count,
                total=len(progress.nodes),
                counts=text,
                left=left,
            )
        elif progress.elapsed_s - self.said_s >= _LINE_S:
            self.said_s = progress.elapsed_s
            self._say_last()

    def took_in(self, read: int, total: int) -> None:
        """Show that `read` of `total` files of nodes were read."""
        text = f"{read} of {total} files read"
        if self.bar is not None:
            self.bar.update(self.task, description="ingestion", completed=read, total=total, counts=text, left="")
        elif time.monotonic() - self.taking_s >= _LINE_S:
            self.taking_s = time.monotonic()
            self._say_last()
            say(text)

    def _left_s(self, progress: CampaignProgress, ended: int) -> float | None:
        """Return the remaining time at the rate since the first report; None if it is unknown."""
        assert self.first is not None
        since_s, newly_ended = progress.elapsed_s - self.first.elapsed_s, ended - self.first_ended
        remaining = len(progress.nodes) - ended
        return since_s * remaining / newly_ended if newly_ended > 0 and remaining else None

    def _say_last(self) -> None:
        if self.unsaid:
            say(self.unsaid)
            self.unsaid = ""

    def _line(self, text: str) -> None:
        """Print a line, on a terminal above the bar."""
        if self.bar is None:
            say(text)
        else:
            self.bar.console.print(text, markup=False, highlight=False)

    def __exit__(self, *_: tuple[type[BaseException], BaseException, TracebackType]) -> None:
        if self.bar is not None:
            self.bar.stop()
        self._say_last()


def _time(length_s: float) -> str:
    return f"{length_s:.0f} s" if length_s < 59.5 else duration(round(length_s))
