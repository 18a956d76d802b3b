"""Prints the output of commands: tables on standard output, messages and progress on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from meshmark.cli.process import ended

if TYPE_CHECKING:
    from meshmark.store.store import Store


def say(text: str) -> None:
    """Print a message on standard error."""
    print(text, file=sys.stderr, flush=True)


def say_undrawn(reason: str) -> None:
    """Warn that a page or a folder has no charts, unless the reason is empty."""
    if reason:
        say(f"warning: no charts: {reason}")


def say_broken(store: Store) -> None:
    """Warn about files of the store that cannot be read."""
    for path, reason in list(store.broken.items())[:3]:
        say(f"warning: {path.name} was skipped: {reason}")
    if len(store.broken) > 3:
        say(f"warning: {len(store.broken) - 3} more files were skipped; list them with meshmark store verify")


@contextlib.contextmanager
def interruptible(after: str | Callable[[], str]) -> Iterator[None]:
    """On Ctrl-C, or SIGTERM from a batch system, print a line with the state of the run (`after`) and exit."""
    try:
        yield
    except KeyboardInterrupt:
        text, status = ended()
        say(f"meshmark: {text}; {after if isinstance(after, str) else after()}")
        raise SystemExit(status) from None


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print objects as JSON Lines or as a table, which is split into blocks if it is wider than the terminal."""
    if as_json:
        for row in rows:
            print(json.dumps(row, default=str))
        return
    if not rows:
        return
    from meshmark.views.tables import TextTable
    from meshmark.views.terminal.screen import print_table, table_console

    texts = [{k: ", ".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in row.items()} for row in rows]
    head = [*texts[0]]
    cells = [[row.get(name, "") for name in head] for row in texts]
    print_table(table_console(), TextTable(head, cells, folds=range(len(head))))


class counted:  # noqa: N801 (used like a function)
    """Progress bar over a known number of steps, such as simulations, only on a terminal: most end within a second."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> Callable[[int, int], None]:
        def report(done: int, total: int) -> None:
            if not sys.stderr.isatty():
                return
            if self.bar is None:
                from rich.console import Console
                from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

                self.bar = Progress(
                    TextColumn("{task.description}"),
                    BarColumn(),
                    MofNCompleteColumn(),
                    TextColumn("left"),
                    TimeRemainingColumn(),
                    console=Console(stderr=True),
                    transient=True,
                )
                self.bar.start()
                self.task = self.bar.add_task(self.label, total=total)
            self.bar.update(self.task, completed=done, total=total)

        return report

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


class progress:  # noqa: N801 (used like a function)
    """Progress bar on a terminal, otherwise a line every ten seconds; both show the maximum remaining time.

    Args:
        budget_s: Sum of the budgets of all steps.
        label: Text beside the bar until the first step reports.
        repetitions: Number of steps that repeat the same measurement. If there are several, the bar is preceded by the
            figures of the first.
    """

    def __init__(self, budget_s: float, label: str = "", repetitions: int = 1) -> None:
        self.budget_s, self.label, self.repetitions = max(budget_s, 0.1), label, repetitions
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> Callable[[Any, Any], None]:
        import time

        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self.bar.start()
            self.task = self.bar.add_task(self.label or "measuring", total=self.budget_s)
        start_s = last = time.monotonic()
        before_s, current = 0.0, None
        first_results: list[Any] = []

        def report(step: Any, line: Any) -> None:
            nonlocal last, before_s, current
            now_s = time.monotonic()
            if current is not None and current is not step:
                before_s += current.budget_s
            current = step
            if before_s == 0 and self.repetitions > 1 and self.bar is not None:
                if line["type"] == "result":
                    first_results.append(line)
                elif line["type"] == "end" and first_results:
                    text = f"first of {self.repetitions} runs: {_ranges(first_results)}"
                    self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
            step_elapsed_s = float(line.get("elapsed_s", 0.0)) if line["type"] in {"progress", "end"} else None
            if step_elapsed_s is None:
                return
            done_s = before_s + (step.budget_s if line["type"] == "end" else min(step_elapsed_s, step.budget_s))
            if self.bar is not None:
                self.bar.update(self.task, completed=done_s, description=step.id)
            elif now_s - last > 10:
                last = now_s
                remaining_s = max(0.0, self.budget_s - done_s)
                say(f"{step.id}: {now_s - start_s:.0f} s elapsed, at most {remaining_s:.0f} s left")

        return report

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def _ranges(results: list[Any]) -> str:
    """Return the smallest and the largest value of each metric."""
    from meshmark.values.units import show

    values: dict[tuple[str, str], list[float]] = {}
    for line in results:
        values.setdefault((line["metric"], line["unit"]), []).append(line["value"])
    texts = []
    for (metric, unit), of_metric in values.items():
        least, most = (show(value, unit) for value in (min(of_metric), max(of_metric)))
        texts.append(f"{metric} {least}" + (f" to {most}" if most != least else ""))
    return "; ".join(texts)


# ------------------------------------------------------------------ survey and report


class progress_of_plan:  # noqa: N801 (used like a function)
    """`progress` for a plan with a budget that is not known yet; yields a function that starts it with the budget."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.bar: progress | None = None

    def __enter__(self) -> Callable[[float], Callable[[Any, Any], None]]:
        def start(budget_s: float) -> Callable[[Any, Any], None]:
            self.bar = progress(budget_s, self.label)
            return self.bar.__enter__()

        return start

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.__exit__()
