"""Options and exit statuses of gates, which all commands with `--fail-on` share.

The exit status of a gate is 0 if no result became worse by more than the limit, 1 if a result did, and 3 if too few
results could be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from meshmark.cli.console import say
from meshmark.errors import MeshmarkError, UnjudgedError, UsageError

MinJudgedOption = Annotated[
    int,
    typer.Option(
        "--min-judged",
        help="with --fail-on: exit with status 3 if fewer results than this can be judged",
        metavar="N",
        min=1,
    ),
]
AllowUnjudgedOption = Annotated[
    bool,
    typer.Option(
        "--allow-unjudged", help="with --fail-on: exit with status 0, not status 3, if too few results can be judged"
    ),
]


def check_used(fail_on: str, min_judged: int, allow_unjudged: bool) -> None:
    """Refuse options of a gate without `--fail-on`.

    Raises:
        UsageError: `--min-judged` or `--allow-unjudged` is given without `--fail-on`.
    """
    if not fail_on and (min_judged != 1 or allow_unjudged):
        name = "--allow-unjudged" if allow_unjudged else "--min-judged"
        raise UsageError(f"{name}: found without --fail-on; allowed only with it")


def check_results(
    command: str,
    counts: tuple[int, int, str],
    worse: Sequence[str],
    limit: str,
    min_judged: int,
    allow_unjudged: bool,
    reason: str,
) -> None:
    """End a gate over several results: print how many were judged and how many are worse.

    Args:
        command: Name of the command, for errors.
        counts: Number of judged results, number of all results, and their name, such as `results`.
        worse: A sentence about each result that is worse by more than the limit, the most important first.
        limit: Value of `--fail-on` as typed.
        min_judged: Smallest number of results that must be judged.
        allow_unjudged: Whether too few judged results are a warning instead of an error.
        reason: Why the other results could not be judged; "" if unknown.

    Raises:
        MeshmarkError: A result is worse.
        UnjudgedError: Too few results were judged.
    """
    judged_count, total, noun = counts
    message = f"{judged_count} of {total} {noun} judged"
    say(f"meshmark: {message}, {len(worse)} worse by more than {limit}")
    if worse:
        raise MeshmarkError(worse[0] + (f", and {len(worse) - 1} more" if len(worse) > 1 else ""))
    check_judged(f"{command}: {message}", judged_count, min_judged, allow_unjudged, reason)


def check_judged(message: str, judged: int, min_judged: int, allow_unjudged: bool, reason: str) -> None:
    """End a gate in which no result is worse.

    Args:
        message: Text about the number of judged results.
        judged: Number of judged results.
        min_judged: Smallest number that is enough.
        allow_unjudged: Whether fewer are a warning instead of an error.
        reason: Why the other results could not be judged; "" if unknown.

    Raises:
        UnjudgedError: Too few results were judged.
    """
    if judged >= min_judged:
        return
    required = f"{message}; --fail-on requires at least {min_judged}"
    text = f"{required}: {reason}" if reason else required
    if not allow_unjudged:
        raise UnjudgedError(text, "--allow-unjudged exits with status 0 in this case")
    say(f"warning: {text}")
