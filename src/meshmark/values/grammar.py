"""Parses sizes, times, lists and ranges: `512KiB`, `10s`, `4KiB..1GiB`, `1..16`, `0-3,8`, `all`.

The native parser (native/base/options/options.cpp) does the work, so that a size or a time means the same in every
command.
All functions raise `UsageError`, which names the field, what was found and what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshmark.errors import UsageError, quoted
from meshmark.native import call_library


def size(field: str, text: str) -> int:
    """Return a size such as `512KiB`, `64MB` or `64` in bytes."""
    return int(_parsed(field, "size", text))


def sizes(field: str, text: str) -> list[int]:
    """Return sizes in bytes, ascending and unique.

    The text is `A`, `A,B`, `A..B` (powers of two and the end) or `A..B/4` (4 per octave).
    """
    return [int(n) for n in _parsed(field, "sizes", text)]


def seconds(field: str, text: str, low: float = 0.0, high: float = float("inf")) -> float:
    """Return a time such as `500ms`, `10s`, `5m` or `10`, in s, between `low` and `high`."""
    time_s = float(_parsed(field, "time", text))
    if not low <= time_s <= high:
        raise UsageError(f"{field}: found '{quoted(text)}'; allowed: {_times(low, high)}")
    return time_s


def integers(field: str, text: str, high: int, low: int = 1, all_: int | None = None) -> list[int]:
    """Return integers from `low` to `high`, ascending and unique.

    The text is such as `1,2,4`, `1..16` (powers of two and the end), `0-3` or `all`.

    Args:
        field: Name of the option or key, for messages.
        text: The list as the user wrote it.
        high: The largest allowed integer.
        low: The smallest allowed integer.
        all_: The integer that `all` stands for; `high` by default.
    """
    numbers = [int(n) for n in _parsed(field, "integers", text, high if all_ is None else all_)]
    if invalid := [n for n in numbers if not low <= n <= high]:
        raise UsageError(f"{field}: found '{invalid[0]}'; allowed: {low} to {high}")
    return numbers


def cpus(field: str, text: str) -> tuple[int, ...]:
    """Return the CPUs of a list such as `0-3,8`, ascending and unique."""
    return tuple(int(n) for n in _parsed(field, "cpus", text))


def choices(field: str, text: str, allowed: Sequence[str]) -> list[str]:
    """Return the items of a comma-separated list, each of which is in `allowed`."""
    items = [item.strip() for item in text.split(",")]
    for item in items:
        if item not in allowed:
            raise UsageError(f"{field}: found '{quoted(item)}'; allowed: {', '.join(allowed)}")
    return items


def _times(low: float, high: float) -> str:
    return f"times from {low:g} s to {high:g} s" if high < float("inf") else f"times from {low:g} s"


def _parsed(field: str, kind: str, text: str, all_: int = 0) -> Any:
    length = len(text.encode(errors="surrogatepass"))  # the parser rejects invalid UTF-8
    answer = call_library("meshmark_parse", kind, text, length, all_)
    if "value" in answer:
        return answer["value"]
    allowed = f"; allowed: {answer['allowed']}" if answer["allowed"] else ""
    raise UsageError(f"{field}: {answer['found']}{allowed}")
