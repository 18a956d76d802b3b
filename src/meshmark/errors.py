"""Exceptions that end a command with one line on standard error, an optional hint and an exit status."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final


class MeshmarkError(Exception):
    """An operation failed. Exit status 1."""

    status = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(MeshmarkError):
    """The request is invalid. The message names the field, what was found and what is allowed. Exit status 2."""

    status = 2


class UnjudgedError(MeshmarkError):
    """A gate had too few conclusive results to decide that nothing became worse. Exit status 3."""

    status = 3


class AbsentError(MeshmarkError):
    """The machine or the installation lacks what a command needs; the message is the reason. Exit status 77."""

    status = 77


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Turn the failed import of a package that an extra provides into an error of one line.

    Args:
        name: The extra in `pyproject.toml` that contains the packages which are imported in this context.

    Raises:
        AbsentError: A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).startswith("meshmark"):
            raise
        raise AbsentError(f"{error.name} is not installed: pip install 'meshmark[{name}]'") from error


def quoted(what: object, max_length: int = 100) -> str:
    """Return `what` as text for an error message: at most `max_length` characters, without control characters."""
    try:
        text = str(what)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or very deep nesting
        text = f"a {type(what).__name__} too long to print"
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def near(text: object, allowed: Collection[str]) -> str:
    """Return `did you mean X?` with the most similar allowed text, or "" if none is similar."""
    import difflib

    close = difflib.get_close_matches(str(text)[:60], sorted(allowed), 1, 0.5)
    return f"did you mean {close[0]}?" if close else ""


# Words that mean the same in options of different commands, in the order of preference.
_ALIKE: Final = (
    ("threads", "processes", "ranks", "cpus", "n", "cores", "copies", "jobs"),
    ("footprint", "weights", "size", "sizes", "memory", "bytes", "length", "cells", "edge", "block"),
    ("budget", "duration", "time", "timeout", "seconds", "for"),
    ("out", "output", "file", "html", "save"),
    ("rate", "hz", "frequency"),
    ("repetitions", "repeat", "runs", "times", "iterations"),
    ("memory-node", "node", "numa", "membind", "nodes"),
    ("placement", "policy", "bind", "memory"),
    ("on", "model", "machine", "host"),
    ("interval", "accuracy", "precision", "width"),
)


def near_option(option: str, allowed: Collection[str]) -> str:
    """Return a hint like `near` for an unknown option; it may also be an allowed option with the same meaning.

    >>> near_option("--threads", ["--processes", "--resume"])
    'did you mean --processes?'
    """
    import difflib

    word = option.lstrip("-")
    if difflib.get_close_matches(option, allowed, 1, 0.8):
        return near(option, allowed)
    for group in _ALIKE:
        if word in group:
            for other in group:
                if f"--{other}" in allowed and other != word:
                    return f"did you mean --{other}?"
    return near(option, [a for a in allowed if a[:3] == option[:3]])
