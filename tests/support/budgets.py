"""Tells whether a budget was enough; guests use it, too, so it imports nothing that they lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def budget_ended(lines: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the budget ended before the first sample of a point, as on a busy machine."""
    return any(line["type"] == "absent" and "ended before its first sample" in line["reason"] for line in lines)
