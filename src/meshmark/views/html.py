"""Defines the data of page elements: tiles, tables and cards. `templates/macros.html` renders them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from meshmark.store.record import Record
from meshmark.store.run import Absence


@dataclass(frozen=True, slots=True)
class Cell:
    """A formatted table cell; plain text may be used instead."""

    text: str
    number: bool = False
    bold: bool = False
    code: bool = False
    flags: Collection[str] = ()


Cells = Sequence[Cell | str]


@dataclass(frozen=True, slots=True)
class Table:
    """A scrollable table.

    Attributes:
        numbers: Columns with right-aligned headings.
        wrap: Whether cells may wrap.
    """

    head: Sequence[str]
    rows: Sequence[Cells]
    numbers: Collection[int] = ()
    wrap: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """A table below a heading with what its rows share."""

    heading: str
    table: Table

    @property
    def rows(self) -> int:
        return len(self.table.rows)


@dataclass(frozen=True, slots=True)
class Tile:
    """A key figure; `absent` is the reason if it has no value."""

    title: str
    big: str = ""
    lines: Sequence[str] = ()
    hint: str = ""
    strip: Strip | None = None
    flags: Collection[str] = ()
    absent: str = ""


@dataclass(frozen=True, slots=True)
class Strip:
    """All samples as ticks on a line from minimum to maximum; positions in px."""

    text: str
    ticks: Sequence[float]
    median: float


@dataclass(frozen=True, slots=True)
class Span:
    """Text with a style."""

    text: str
    kind: Literal["", "absent", "code"] = ""


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the memory hierarchy and the footprints that it serves."""

    text: str
    where: str
    flags: Collection[str]


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of a card: name, value and a note."""

    name: str
    value: Sequence[Span] = ()
    note: Sequence[Span] = ()
    levels: Sequence[Level] = ()


@dataclass(frozen=True, slots=True)
class Dot:
    """A ratio with its interval beside 1, on a logarithmic axis; positions in px."""

    at: float
    one: float
    interval: tuple[float, float] | None


def ratio_dot(ratio: float, interval: tuple[float, float] | None, low: float, high: float) -> Dot | None:
    """Return a ratio on an axis from `low` to `high`, clipped at its ends; None if it is not finite and above 0."""
    if not math.isfinite(ratio) or ratio <= 0:
        return None

    def x(v: float) -> float:
        return 4 + 132 * math.log(min(max(v, low), high) / low) / math.log(high / low)

    return Dot(x(ratio), x(1), (x(interval[0]), x(interval[1])) if interval else None)


def numbers(*texts: str) -> list[Cell]:
    return [Cell(t, number=True) for t in texts]


def absent_table(absences: Sequence[Absence]) -> Table | None:
    """Return absent results with their reasons; None if nothing is absent."""
    if not absences:
        return None
    rows: list[Cells] = [
        [
            a.instrument + (f" · {a.metric}" if a.metric else ""),
            "failed" if a.kind == "error" else "absent",
            ", ".join(f"{k} {v}" for k, v in a.conditions.items()),
            a.reason,
            a.enable,
        ]
        for a in absences
    ]
    return Table(["metric", "", "conditions", "reason", "remedy"], rows, wrap=True)


def flag_counts(records: Sequence[Record]) -> list[tuple[str, int]]:
    """Return the number of records with each flag."""
    return [(f, sum(1 for r in records if f in r.flags)) for f in sorted({f for r in records for f in r.flags})]
