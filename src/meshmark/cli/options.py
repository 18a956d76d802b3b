"""Options that commands share."""

from __future__ import annotations

from typing import Any

import typer


def time_option(name: str, text: str, low: float = 0.0, high: float = float("inf"), default: str = "") -> Any:
    """An option that takes a time as every command does (`500ms`, `10s`, `5m`; a bare number is s) and yields s.

    Args:
        low, high: what is allowed, s.
        default: as the help shows it; the parameter's own default is a number, in s.
    """

    def parse(value: str | float) -> float:
        from meshmark.values.grammar import seconds

        return value if isinstance(value, float) else seconds(name, value, low, high)

    return typer.Option(name, parser=parse, metavar="TIME", help=text, show_default=default or False)
