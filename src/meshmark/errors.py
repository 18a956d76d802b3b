"""Exceptions that become one line on standard error, an optional hint and an exit status."""

from __future__ import annotations

from collections.abc import Collection


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
    """A gate could not judge enough results to say that nothing became worse. Exit status 3."""

    status = 3


class AbsentError(MeshmarkError):
    """The requested quantity is not available on this machine; the message is the reason. Exit status 77."""

    status = 77


def quoted(what: object, max_length: int = 100) -> str:
    """`what` as text for an error message: at most `max_length` characters, without control characters."""
    try:
        text = str(what)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or very deep nesting
        text = f"a {type(what).__name__} too long to print"
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def near(text: object, allowed: Collection[str]) -> str:
    """`did you mean X?`, or an empty string."""
    import difflib

    close = difflib.get_close_matches(str(text)[:60], sorted(allowed), 1, 0.5)
    return f"did you mean {close[0]}?" if close else ""
