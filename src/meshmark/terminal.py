"""What the commands print: tables for people on standard output, talk and progress on standard error."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshmark.errors import MeshmarkError
from meshmark.process import ended, find_home

if TYPE_CHECKING:
    from meshmark.store.record import Record
    from meshmark.store.store import Store


def data_home() -> Path:
    """Where stores and runs lie by default.

    Raises:
        MeshmarkError: this user has no home.
    """
    base = os.environ.get("XDG_DATA_HOME")
    if not base and not find_home():
        raise MeshmarkError("this user has no home for results", "set HOME, or XDG_DATA_HOME")
    return Path(base or Path.home() / ".local" / "share") / "meshmark"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def say_broken(store: Store) -> None:
    """What a store left out of its answer, since it cannot be read."""
    for path, why in list(store.broken.items())[:3]:
        say(f"warning: {path.name} was left out: {why}")
    if len(store.broken) > 3:
        say(f"warning: {len(store.broken) - 3} more files were left out; meshmark store verify names them")


@contextlib.contextmanager
def interruptible(after: str) -> Iterator[None]:
    """Ctrl-C, or a batch system's SIGTERM, ends with one line that says what became of what was measured."""
    try:
        yield
    except KeyboardInterrupt:
        text, status = ended()
        say(f"meshmark: {text}; {after}")
        raise SystemExit(status) from None


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print(json.dumps(row, default=str))
        return
    if not rows:
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*[", ".join(map(str, v)) if isinstance(v, list) else str(v) for v in row.values()])
    wide = None if sys.stdout.isatty() else 200
    Console(width=wide, highlight=False, markup=False, emoji=False).print(table)


class counted:  # noqa: N801 (used like a function)
    """A bar over a known number of simulations, on a terminal only: most end within a second."""

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
                    TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("left"),
                    TimeRemainingColumn(), console=Console(stderr=True), transient=True,
                )  # fmt: skip
                self.bar.start()
                self.task = self.bar.add_task(self.label, total=total)
            self.bar.update(self.task, completed=done, total=total)

        return report

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


_HIDDEN = {"derived_from", "memory_groups", "word_bytes"}  # beside what was observed


def scaled(value: float, unit: str) -> str:
    """A value for people: SI prefixes, binary ones for bytes."""
    if unit == "B":
        for prefix in ("B", "KiB", "MiB", "GiB"):
            if abs(value) < 1024 or prefix == "GiB":
                return f"{value:.4g} {prefix}"
            value /= 1024
    if unit == "1" or value == 0:
        return f"{value:.3g}"
    steps = (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")
    for factor, prefix in steps:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value / 1e-12:.3g} p{unit}"


def print_records(records: list[Record]) -> None:
    """Conditions that differ become columns; those in common are said once above. Of no records there is no table."""
    if not records:
        return
    from rich.console import Console
    from rich.table import Table

    from meshmark.store.record import OBSERVED

    keys: list[str] = []
    for r in records:
        keys += [k for k in r.conditions if k not in keys and k not in OBSERVED | _HIDDEN]
    varying = [k for k in keys if len({str(r.conditions.get(k)) for r in records}) > 1]
    common = [f"{k} {records[0].conditions.get(k)}" for k in keys if k not in varying]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("metric", *varying):
        table.add_column(name, overflow="fold")
    for name in ("median", "95 % interval", "best", "spread", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("flags", no_wrap=True)
    order = sorted(records, key=lambda r: [_sort_key(r.conditions.get(k)) for k in varying])
    for r in sorted(order, key=lambda r: r.metric):
        interval = f"{scaled(r.interval[0], r.unit)} – {scaled(r.interval[1], r.unit)}" if r.interval else "–"
        spread = "–" if math.isnan(r.spread) else f"{100 * r.spread:.1f} %"
        table.add_row(
            r.metric, *[_shown(k, r.conditions.get(k)) for k in varying], scaled(r.value, r.unit), interval,
            "–" if r.best is None else scaled(r.best, r.unit), spread, str(len(r.samples)), " ".join(sorted(r.flags)),
        )  # fmt: skip
    # Without markup: a condition may hold brackets, as a topology does.
    console = Console(width=None if sys.stdout.isatty() else 220, highlight=False, markup=False, emoji=False)
    console.print(f"{records[0].machine}: {records[0].instrument}  ({', '.join(common)})", style="dim")
    console.print(table)


def _sort_key(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if _is_number(value) else (1, 0.0, str(value))


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "–"
    return scaled(float(value), "B") if key.endswith("_bytes") and _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    """A number that a float can hold: an import may have any."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


class progress:  # noqa: N801 (used like a function)
    """A bar on a terminal, a line every ten seconds elsewhere; both say the time that remains at most."""

    def __init__(self, budget_s: float, label: str = "") -> None:
        self.budget_s, self.label = max(budget_s, 0.1), label
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> Callable[[Any, Any], None]:
        import time

        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"),
                TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self.bar.start()
            self.task = self.bar.add_task(self.label or "measuring", total=self.budget_s)
        began = last = time.monotonic()
        before_s, current = 0.0, None

        def report(step: Any, line: Any) -> None:
            nonlocal last, before_s, current
            now = time.monotonic()
            if current is not None and current is not step:
                before_s += current.budget_s
            current = step
            within = float(line.get("elapsed_s", 0.0)) if line["type"] in {"progress", "end"} else None
            if within is None:
                return
            done = before_s + (step.budget_s if line["type"] == "end" else min(within, step.budget_s))
            if self.bar is not None:
                self.bar.update(self.task, completed=done, description=step.id)
            elif now - last > 10:
                last = now
                left = max(0.0, self.budget_s - done)
                say(f"{step.id}: {now - began:.0f} s, at most {left:.0f} s to go")

        return report

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


# ------------------------------------------------------------------ survey and report


class progress_of_plan:  # noqa: N801 (used like a function)
    """`progress` for a plan whose budget is known only later: gives the function that starts it."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.made: progress | None = None

    def __enter__(self) -> Callable[[float], Callable[[Any, Any], None]]:
        def start(budget_s: float) -> Callable[[Any, Any], None]:
            self.made = progress(budget_s, self.label)
            return self.made.__enter__()

        return start

    def __exit__(self, *_: object) -> None:
        if self.made is not None:
            self.made.__exit__()
