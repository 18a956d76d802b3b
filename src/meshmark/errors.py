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
