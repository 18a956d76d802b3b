"""Parts of the commands that run a command under several settings: options, completion, progress, interruption."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Final

import typer

from meshmark.cli.completion import beginning, policies
from meshmark.cli.console import say
from meshmark.cli.options import time_option
from meshmark.cli.process import ended
from meshmark.errors import UsageError

_EVERY_S: Final = 10.0  # time between lines of progress without a terminal
_EVERY_ON_TERMINAL_S: Final = 1.0

_HELPS: Final = {
    "same": "the command as it is",
    "slots:": "number of slots of meshmark run",
    "memory:": "memory policy of meshmark run",
    "pages:": "page size of meshmark run",
    "run:": "options of meshmark run",
    "ssh:": "run the command on another machine",
    "shell:": "a shell command before each run",
}

MetricOption = Annotated[
    str,
    typer.Option(
        "--metric",
        help="compare this metric of the records that the command prints with --json [elapsed time]",
        show_default=False,
    ),
]

PatternOption = Annotated[
    str,
    typer.Option(
        "--pattern",
        help="compare the last match of this regular expression in the output, or its first group",
        metavar="REGEX",
        show_default=False,
    ),
]

BetterOption = Annotated[
    str,
    typer.Option(
        "--better",
        help="which values of --pattern or --metric are better: lower, higher",
        autocompletion=lambda: ["lower", "higher"],
        show_default=False,
    ),
]

RestoreOption = Annotated[
    str,
    typer.Option("--restore", help="shell command to run at the end", metavar="COMMAND", show_default=False),
]


SeedOption = Annotated[
    int | None, typer.Option("--seed", help="seed of the order of runs [random]", show_default=False)
]

ResumeOption = Annotated[
    str,
    typer.Option("--resume", help="resume this run, or the run in this folder", metavar="RUN", show_default=False),
]

TimeoutOption = Annotated[float, time_option("--timeout", "maximum time of one run", low=0.001, default="the budget")]


class ProgressTimer:
    """Limits lines of progress on standard error: at most every second on a terminal, otherwise every ten seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._every_s = _EVERY_ON_TERMINAL_S if sys.stderr.isatty() else _EVERY_S

    def is_due(self) -> bool:
        """Return whether a line may be printed now, which then counts as printed."""
        now = time.monotonic()
        if now - self._last < self._every_s:
            return False
        self._last = now
        return True


def end_if_interrupted(stopped: str, verb: str, run: str) -> None:
    """End with the status of the signal if the runs were interrupted.

    Args:
        stopped: Why the runs ended.
        verb: The command that resumes them.
        run: Name of the run.
    """
    from meshmark.experiments.experiment import INTERRUPTED

    if stopped == INTERRUPTED:
        text, status = ended()
        say(f"meshmark: {text}; resume with meshmark {verb} --resume {run}")
        raise SystemExit(status)


def split_at_dashes(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before `--` and those after it, which the parser of options has joined.

    Raises:
        UsageError: The value of an option is `--`.
    """
    after = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    count = len(words) - len(after)
    if count < 0 or words[count:] != after:
        raise UsageError("COMMAND: found '--' as the value of an option; allowed: before the command")
    return words[:count], after


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Return the completions of a setting, with their help."""
    if incomplete.startswith("bind:"):
        return [(f"bind:{word}", text) for word, text in policies(incomplete.removeprefix("bind:"))]
    return beginning({"bind:": "policy of meshmark run", **_HELPS}, incomplete)
