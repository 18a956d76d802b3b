"""Shows the progress of `meshmark load run`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshmark.cli.console import say
from meshmark.process import signal_name

if TYPE_CHECKING:
    from meshmark.load.scenario.scenario import Scenario


class LoadProgress:
    """Prints one line per program that ends, and the numbers of running and waiting programs.

    On a terminal, a progress bar shows the numbers and is redrawn once per second; otherwise, a line is printed every
    ten seconds. More output would itself load the machine.
    """

    def __init__(self, scenario: Scenario, expected_s: float) -> None:
        self.expected_s = expected_s
        self.state = {(p.name, copy): "wait" for p in scenario.programs for copy in range(p.copies)}
        self.start_s = self.began = self.last = 0.0
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> LoadProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
                auto_refresh=False,
            )
            self.bar.start()
            self.task = self.bar.add_task("starting", total=self.expected_s or None, left="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def take(self, event: Mapping[str, Any]) -> None:
        """Update the state of a program from an event of `meshmark-load`."""
        kind = event.get("event")
        if kind == "start":
            self.start_s, self.began = float(event["t_s"]), time.monotonic()
            self.last = self.began
            return
        key = (str(event.get("program")), int(event.get("copy", 0)))
        if kind == "released":
            self.state[key] = "run"
        elif kind in {"exit", "failed"}:
            self.state[key] = "ended"
            at_s = float(event["t_s"]) - self.start_s if self.began else 0.0
            outcome = (
                f"not started: {event.get('reason')}"
                if kind == "failed"
                else f"terminated by {signal_name(event['signal'])}"
                if "signal" in event
                else f"exited with status {event['status']}"
                if event.get("status")
                else "ended"
            )
            say(f"{at_s:8.2f} s  {key[0]}, copy {key[1]}: {outcome}")

    def draw(self) -> None:
        """Draw the bar; without a terminal, print a line every ten seconds. Before the first event, do nothing."""
        if not self.began:
            return
        now = time.monotonic()
        elapsed_s = now - self.began
        remaining_s = max(0.0, self.expected_s - elapsed_s)
        states = list(self.state.values())
        states_text = ", ".join(f"{n} {state}" for state in ("wait", "run", "ended") if (n := states.count(state)))
        remaining = f"at least {remaining_s:.0f} s left" if remaining_s else ""
        if self.bar is not None:
            self.bar.update(
                self.task, completed=min(elapsed_s, self.expected_s), description=states_text, left=remaining
            )
            self.bar.refresh()
        elif now - self.last > 10:
            self.last = now
            say(f"{elapsed_s:8.2f} s  " + "; ".join(filter(None, (states_text, remaining))))
