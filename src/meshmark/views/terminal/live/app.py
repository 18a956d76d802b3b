"""Shows the live map in the terminal, with keys: the same view as in the browser, usable over ssh."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from meshmark.errors import MeshmarkError
from meshmark.values.units import duration
from meshmark.views.terminal.live.audit import audit_text
from meshmark.views.terminal.live.map import draw, scale_text
from meshmark.views.terminal.live.panels import HISTORY, activity, processes
from meshmark.watch.findings.findings import Findings
from meshmark.watch.frames import Frame, Header
from meshmark.watch.layout import map_of
from meshmark.watch.palette import PALETTES

KEPT = 36_000  # frames: one hour at ten per second
RANGES = ((0.0, 1.0), (0.01, 0.1), (0.0, 0.5), (0.5, 1.0))


class MeshApp(App[None]):
    """Shows frames as they arrive; keys step back in time and change colours and numbers.

    Args:
        header: Header of the stream.
        frames: The stream, read in a thread until it ends.
        low: Share at which the colours begin, 0 to 1.
        high: Share at which the colours end, 0 to 1.
        palette: Name of the colour palette.
        command_output: Returns the last lines that the watched command wrote, if there is a command. The map then
            closes when the stream ends, and Ctrl-C interrupts the process group, in which SIGINT has to be blocked in
            this process.
    """

    TITLE = "Meshmark"
    CSS = (
        "VerticalScroll { padding: 0 1; } #spots { color: $error; } #activity, #processes { margin-top: 1; }"
        " #output { display: none; padding: 0 1; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("space", "hold", "pause"),
        Binding("left", "step(-1)", "back"),
        Binding("right", "step(1)", "forward"),
        Binding("r", "range", "range"),
        Binding("p", "palette", "palette"),
        Binding("n", "numbers", "numbers"),
        Binding("ctrl+c", "interrupt", "interrupt the command", priority=True),
    ]

    def __init__(
        self,
        header: Header,
        frames: Iterator[Frame],
        low: float = 0.0,
        high: float = 1.0,
        palette: str = "inferno",
        command_output: Callable[[], str] | None = None,
    ) -> None:
        super().__init__()
        self.header = header
        self._command_output = command_output
        self._frames = frames
        self._map = map_of(header)
        self._findings = Findings(header)
        self._kept: list[tuple[Frame, list[str]]] = []  # frames with their findings as text
        self._at = -1  # index of the frame that is shown
        self._follows = True
        self._bounds = (low, high)
        self._palette = palette
        self._numbers = True
        self._ended = ""

    def compose(self) -> ComposeResult:
        """Yield the parts of the screen from top to bottom."""
        yield Static(id="title")
        with VerticalScroll():
            yield Static(id="spots")
            yield Static(id="map")
            yield Static(id="activity")
            yield Static(id="processes")
            yield Static(id="absent")
        yield Static(id="output")
        yield Footer()

    def on_mount(self) -> None:
        """Show what is absent on this machine, and start to read frames."""
        absent = [f"{a['metric']}: {a['why']}" for a in self.header.absent]
        lines = ["not available here:", *absent] if absent else []
        if "audit" in self.header.more:
            lines.append(audit_text(self.header.more["audit"]))
        self.query_one("#absent", Static).update(Text("\n".join(lines), "dim"))
        threading.Thread(target=self._read, name="frames", daemon=True).start()

    def _read(self) -> None:
        state = "ended"
        try:
            for frame in self._frames:
                self.call_from_thread(self._take, frame)
        except MeshmarkError as error:
            state = str(error)
        except RuntimeError:
            return  # the view is closed
        self._ended = state
        try:
            self.call_from_thread(self.exit if self._command_output else self._draw)
        except RuntimeError:
            return

    def _take(self, frame: Frame) -> None:
        self._kept.append((frame, [*map(str, self._findings.add(frame))]))
        if len(self._kept) > KEPT:
            del self._kept[0]
            self._at = max(0, self._at - 1)
        if self._follows:
            self._at = len(self._kept) - 1
            self._draw()

    def _draw(self) -> None:
        if not self._kept:
            return
        frame, sentences = self._kept[self._at]
        low, high = self._bounds
        state = self._ended or ("live" if self._follows else f"paused, {len(self._kept) - 1 - self._at} frames back")
        title = Text(f"{self.header.machine}  {self.header.source}  {self._time(frame)}  {state}", "bold", no_wrap=True)
        self.query_one("#title", Static).update(Group(title, scale_text(self.header, low, high, self._palette)))
        picture = draw(self.header, self._map, frame, low, high, self._palette, self._numbers)
        self.query_one("#map", Static).update(picture)
        self.query_one("#spots", Static).update(Text("\n".join(sentences)))
        shown = [frame for frame, _ in self._kept[max(0, self._at + 1 - HISTORY) : self._at + 1]]
        self.query_one("#activity", Static).update(activity(self.header, shown))
        self.query_one("#processes", Static).update(processes(frame) or "")
        if self._command_output and (lines := self._command_output()):
            title = Text("last output of the command:\n", "dim")
            output = self.query_one("#output", Static)
            output.update(title.append(lines, "not dim"))
            output.display = True

    def _time(self, frame: Frame) -> str:
        """Return the time since the start and, if the source has a clock, the time of day."""
        elapsed = duration(frame.t_s) if frame.t_s >= 60 or frame.t_s < 1e-3 else f"{frame.t_s:.1f} s"
        return f"{elapsed}  {datetime.fromtimestamp(frame.at):%H:%M:%S}" if frame.at > 0 else elapsed

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key has a meaning: only a command can be interrupted."""
        return action != "interrupt" or self._command_output is not None

    def action_hold(self) -> None:
        """Pause at the current frame, or continue with the newest frame."""
        self._follows = not self._follows
        if self._follows:
            self._at = len(self._kept) - 1
        self._draw()

    def action_step(self, by: int) -> None:
        """Show an earlier or a later frame."""
        self._follows = False
        self._at = min(len(self._kept) - 1, max(0, self._at + by))
        self._draw()

    def action_range(self) -> None:
        """Select the next predefined colour range."""
        index = RANGES.index(self._bounds) if self._bounds in RANGES else -1
        self._bounds = RANGES[(index + 1) % len(RANGES)]
        self._draw()

    def action_palette(self) -> None:
        """Use the next colour scheme."""
        names = list(PALETTES)
        self._palette = names[(names.index(self._palette) + 1) % len(names)]
        self._draw()

    def action_numbers(self) -> None:
        """Show or hide the numbers."""
        self._numbers = not self._numbers
        self._draw()

    def action_interrupt(self) -> None:
        """Interrupt the command as Ctrl-C does without a map: the whole process group receives the signal."""
        os.killpg(0, signal.SIGINT)
