"""Lays out the hottest functions of profiled programs, for terminals and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from meshmark.views.tables import Cells, TextCell, TextTable


class HotFunction(NamedTuple):
    """A function with its share of the samples, and the interval of the share."""

    name: str
    object: str
    share: float
    interval: Sequence[float]


def function_table(
    profiles: Iterable[tuple[str, Iterable[HotFunction]]], most: int, subject: str = "configuration"
) -> TextTable:
    """Return the first functions of each configuration.

    Args:
        profiles: Each configuration, or process, with its functions, the hottest first.
        most: Most functions of a configuration.
        subject: Heading of the first column.
    """
    rows: list[Cells] = []
    for configuration, functions in profiles:
        for position, f in enumerate([*functions][:most]):
            interval = " – ".join(f"{100 * end:.1f}" for end in f.interval)
            first = "" if position else configuration
            rows.append([first, TextCell(f.name, "code"), f.object, f"{100 * f.share:.1f} %", f"{interval} %"])
    return TextTable([subject, "hottest functions", "in", "share", "95 % interval"], rows, (3, 4), (0, 1, 2))
