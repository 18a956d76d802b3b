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


def print_experiment(answer: Mapping[str, Any]) -> None:
    """Print an experiment: the settings with their medians, the ratio, the verdict and how it was reached.

    Args:
        answer: The object that `--json` prints.
    """
    console = table_console()
    print_table(console, TextTable(_head(answer), _rows(answer), numbers=(2, 3), folds=[1]))
    console.print()
    console.print(sentence(answer), soft_wrap=True)
    for line in notes(answer):
        console.print(line, style="dim", soft_wrap=True)


def _head(answer: Mapping[str, Any]) -> list[str]:
    return ["", "setting", f"{answer['metric']}, median", "failed runs"]


def _rows(answer: Mapping[str, Any]) -> list[list[str]]:
    """Return each setting with its median and its failed runs."""
    values = {side: answer[f"of_{side}"] for side in ("a", "b")}
    shown = {side: "–" if value is None else plain(value, answer["unit"]) for side, value in values.items()}
    return [[side.upper(), answer[side], text, str(answer["failed"][side])] for side, text in shown.items()]


def markdown(answer: Mapping[str, Any]) -> str:
    """Return the experiment as Markdown, with the verdict first.

    Args:
        answer: The object that `--json` prints.
    """
    from meshmark.views.markdown import escaped, folded, table

    command = f"* command: {escaped(' '.join(answer['command']))}"
    more = "\n".join([command, *(f"* {escaped(line)}" for line in notes(answer))])
    parts = [f"### {sentence(answer)}", table(_head(answer), _rows(answer)), folded("How it was measured", more)]
    return "\n\n".join(parts) + "\n"


def sentence(answer: Mapping[str, Any]) -> str:
    """Return the verdict with its evidence."""
    if answer["ratio"] is None:
        return f"no result: no pair was completed ({answer['stopped']})"
    low, high = answer["low"], answer["high"]
    evidence = f"B over A {answer['ratio']:.3f}, {interval_text((low, high))}, {answer['pairs']} pairs"
    margin = f"margin {percent(answer['margin'])}".replace("\u00a0", " ")
    if answer["verdict"] == "equal":
        return f"A and B are equal: {evidence} ({margin})"
    if answer["verdict"] == "inconclusive":
        return f"inconclusive: {evidence} ({margin}; {answer['stopped']})"
    return f"B is {answer['verdict']}: {evidence} ({margin})"


def notes(answer: Mapping[str, Any]) -> list[str]:
    """Return how the result was reached, and reasons to doubt it."""
    lines = [
        f"stopped because {answer['stopped']}, after {seconds(answer['spent_s'])}; {answer['runs']} runs, "
        f"{answer['warmup']} warm-up pair{'s' * (answer['warmup'] != 1)} left out; seed {answer['seed']}"
    ]
    if answer["failure"]:
        lines.append(
            f"{percent(answer['failed_share'])} of the runs failed, their pairs do not count: {answer['failure']}"
        )
    if answer["disturbance"]:
        lines.append(f"{answer['disturbance']}: the result holds only beside such work")
    if rest := [flag for flag in answer["flags"] if flag not in answer["disturbance"]]:
        lines.append(f"flagged: {', '.join(rest)}")
    if answer["pairs"] and answer["low"] is None:
        lines.append("an interval needs at least 8 pairs: allow more time with --budget")
    return [line.replace("\u00a0", " ") for line in lines]
