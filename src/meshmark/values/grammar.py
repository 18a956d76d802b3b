"""Parses sizes, times, lists and ranges: `512KiB`, `10s`, `4KiB..1GiB`, `1..16`, `0-3,8`, `all`.

The native parser (native/base/options.cpp) does the work, so that a size or a time means the same in every command.
All functions raise `UsageError`, which names the field, what was found and what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshmark.errors import UsageError, quoted
from meshmark.native import call_library


def size(field: str, text: str) -> int:
    """A size such as `512KiB`, `64MB` or `64`, in bytes."""
    return int(_parsed(field, "size", text))


def sizes(field: str, text: str) -> list[int]:
    """Sizes in bytes, ascending and unique: `A`, `A,B`, `A..B` (powers of two and the end), `A..B/4` (4 per octave)."""
    return [int(n) for n in _parsed(field, "sizes", text)]


def seconds(field: str, text: str, low: float = 0.0, high: float = float("inf")) -> float:
    """A time such as `500ms`, `10s`, `5m` or `10`, in s, between `low` and `high`."""
    found = float(_parsed(field, "time", text))
    if not low <= found <= high:
        raise UsageError(f"{field}: found '{quoted(text)}'; allowed: {_times(low, high)}")
    return found


def integers(field: str, text: str, high: int, low: int = 1, all_: int | None = None) -> list[int]:
    """Integers from `low` to `high`, ascending and unique: `1,2,4`, `1..16` (powers of two and the end), `0-3`, `all`.

    Args:
        all_: What `all` means; `high` by default.
    """
    found = [int(n) for n in _parsed(field, "integers", text, high if all_ is None else all_)]
    if wrong := [n for n in found if not low <= n <= high]:
        raise UsageError(f"{field}: found '{wrong[0]}'; allowed: {low} to {high}")
    return found


def cpus(field: str, text: str) -> tuple[int, ...]:
    """CPUs of a list such as `0-3,8`, ascending and unique."""
    return tuple(int(n) for n in _parsed(field, "cpus", text))


def choices(field: str, text: str, allowed: Sequence[str]) -> list[str]:
    """Items of a comma-separated list, each one of `allowed`."""
    found = [part.strip() for part in text.split(",")]
    for part in found:
        if part not in allowed:
            raise UsageError(f"{field}: found '{quoted(part)}'; allowed: {', '.join(allowed)}")
    return found


def _times(low: float, high: float) -> str:
    return f"times from {low:g} s to {high:g} s" if high < float("inf") else f"times from {low:g} s"


def _parsed(field: str, kind: str, text: str, all_: int = 0) -> Any:
    length = len(text.encode(errors="surrogatepass"))  # the parser rejects invalid UTF-8
    answer = call_library("meshmark_parse", kind, text, length, all_)
    if "value" in answer:
        return answer["value"]
    allowed = f"; allowed: {answer['allowed']}" if answer["allowed"] else ""
    raise UsageError(f"{field}: {answer['found']}{allowed}")
