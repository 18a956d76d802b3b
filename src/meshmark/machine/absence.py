"""Marks missing facts, which always have a reason."""

from __future__ import annotations


def absent(reason: str) -> dict[str, str]:
    """Return the value of a missing fact."""
    return {"absent": reason}


def is_absent(value: object) -> bool:
    """Return whether a fact is missing: `{"absent": reason}`."""
    return isinstance(value, dict) and set(value) == {"absent"}
