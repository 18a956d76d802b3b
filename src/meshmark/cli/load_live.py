"""Shows the progress of `meshmark load run`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshmark.cli.console import say

if TYPE_CHECKING:
    from meshmark.load.scenario import Scenario


class Live:
    """Prints one line per program that ends, and the numbers of running and waiting programs.

    On a terminal, the numbers are a progress bar, redrawn once per second; otherwise one line every ten seconds. More
    output would itself load the machine.
    """

    def __init__(self, scenario: Scenario, expected_s: float) -> None:
        self.expected_s = expected_s
        self.state = {(p.name, copy): "wait" for p in scenario.programs for copy in range(p.copies)}
        self.start_s = self.began = self.last = 0.0
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> Live:
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
        what = event.get("event")
        if what == "start":
            self.start_s, self.began = float(event["t_s"]), time.monotonic()
            self.last = self.began
            return
        key = (str(event.get("program")), int(event.get("copy", 0)))
        if what == "released":
            self.state[key] = "run"
        elif what in {"exit", "failed"}:
            self.state[key] = "ended"
            at_s = float(event["t_s"]) - self.start_s if self.began else 0.0
            how = (
                f"not started: {event.get('reason')}"
                if what == "failed"
                else f"terminated by signal {event['signal']}"
                if "signal" in event
                else f"exited with status {event['status']}"
                if event.get("status")
                else "ended"
            )
            say(f"{at_s:8.2f} s  {key[0]}, copy {key[1]}: {how}")

    def draw(self) -> None:
        if not self.began:
            return
        now = time.monotonic()
        done_s = now - self.began
        left = max(0.0, self.expected_s - done_s)
        states = list(self.state.values())
        states_text = ", ".join(f"{n} {what}" for what in ("wait", "run", "ended") if (n := states.count(what)))
        remaining = f"at least {left:.0f} s left" if left else ""
        if self.bar is not None:
            self.bar.update(self.task, completed=min(done_s, self.expected_s), description=states_text, left=remaining)
            self.bar.refresh()
        elif now - self.last > 10:
            self.last = now
            say(f"{done_s:8.2f} s  " + "; ".join(filter(None, (states_text, remaining))))
