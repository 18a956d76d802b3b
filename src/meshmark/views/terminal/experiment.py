"""Prints the result of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshmark.values.units import percent, plain, seconds
from meshmark.views.tables import TextTable
from meshmark.views.terminal.screen import print_table, table_console


def interval_text(interval: tuple[float | None, float | None] | None) -> str:
    """Return the 95 % interval of a ratio as text, or a statement that there is no interval yet."""
    low, high = interval or (None, None)
    return "no interval yet" if low is None or high is None else f"95 % {low:.3f} – {high:.3f}"


def print_experiment(found: Mapping[str, Any]) -> None:
    """Print an experiment: the settings with their medians, the ratio, the verdict and how it was reached.

    Args:
        found: The object that `--json` prints.
    """
    console = table_console()
    print_table(console, TextTable(_head(found), _rows(found), numbers=(2, 3), folds=[1]))
    console.print()
    console.print(sentence(found), soft_wrap=True)
    for line in notes(found):
        console.print(line, style="dim", soft_wrap=True)


def _head(found: Mapping[str, Any]) -> list[str]:
    return ["", "setting", f"{found['metric']}, median", "failed runs"]


def _rows(found: Mapping[str, Any]) -> list[list[str]]:
    """Return each setting with its median and its failed runs."""
    values = {side: found[f"of_{side}"] for side in ("a", "b")}
    shown = {side: "–" if value is None else plain(value, found["unit"]) for side, value in values.items()}
    return [[side.upper(), found[side], text, str(found["failed"][side])] for side, text in shown.items()]


def markdown(found: Mapping[str, Any]) -> str:
    """Return the experiment as Markdown, with the verdict first.

    Args:
        found: The object that `--json` prints.
    """
    from meshmark.views.markdown import escaped, folded, table

    command = f"* command: {escaped(' '.join(found['command']))}"
    more = "\n".join([command, *(f"* {escaped(line)}" for line in notes(found))])
    parts = [f"### {sentence(found)}", table(_head(found), _rows(found)), folded("How it was measured", more)]
    return "\n\n".join(parts) + "\n"


def sentence(found: Mapping[str, Any]) -> str:
    """Return the verdict with its evidence."""
    if found["ratio"] is None:
        return f"no result: no pair was completed ({found['stopped']})"
    low, high = found["low"], found["high"]
    evidence = f"B over A {found['ratio']:.3f}, {interval_text((low, high))}, {found['pairs']} pairs"
    margin = f"margin {percent(found['margin'])}".replace("\u00a0", " ")
    if found["verdict"] == "equal":
        return f"A and B are equal: {evidence} ({margin})"
    if found["verdict"] == "inconclusive":
        return f"inconclusive: {evidence} ({margin}; {found['stopped']})"
    return f"B is {found['verdict']}: {evidence} ({margin})"


def notes(found: Mapping[str, Any]) -> list[str]:
    """Return how the result was reached, and reasons to doubt it."""
    lines = [
        f"stopped because {found['stopped']}, after {seconds(found['spent_s'])}; {found['runs']} runs, "
        f"{found['warmup']} warm-up pair{'s' * (found['warmup'] != 1)} left out; seed {found['seed']}"
    ]
    if found["failure"]:
        lines.append(
            f"{percent(found['failed_share'])} of the runs failed, their pairs do not count: {found['failure']}"
        )
    if found["disturbance"]:
        lines.append(f"{found['disturbance']}: the result holds only beside such work")
    if rest := [flag for flag in found["flags"] if flag not in found["disturbance"]]:
        lines.append(f"flagged: {', '.join(rest)}")
    if found["pairs"] and found["low"] is None:
        lines.append("an interval needs at least 8 pairs: allow more time with --budget")
    return [line.replace("\u00a0", " ") for line in lines]
