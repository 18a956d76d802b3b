"""Errors that end in one line on standard error, an optional hint, and an exit status."""

from __future__ import annotations


class MeshmarkError(Exception):
    """Something that should have worked did not. Exit status 1."""

    status = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(MeshmarkError):
    """The request is wrong: the message names the field, what was found and what is allowed."""

    status = 2


class AbsentError(MeshmarkError):
    """The one thing asked for cannot be had here; the message is the reason."""

    status = 77


def quoted(what: object, most: int = 100) -> str:
    """Text that was found, for one line of an error: at most so many characters, none that a terminal would obey."""
    try:
        said = str(what)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or brackets without end
        said = f"a {type(what).__name__} too long to be shown"
    text = "".join(c if c.isprintable() else " " for c in said)
    return text if len(text) <= most else text[: most - 1] + "…"
