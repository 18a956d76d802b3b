"""The data of what pages share: tiles, tables, cards of facts. `templates/macros.html` draws them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from meshmark.store.record import Record
from meshmark.store.run import Absence


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table; a plain text is one as well."""

    text: str
    number: bool = False
    bold: bool = False
    code: bool = False
    flags: Collection[str] = ()


Cells = Sequence[Cell | str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table that scrolls in its own box.

    Attributes:
        numbers: columns whose titles stand to the right.
        wrap: whether cells may have several lines.
    """

    head: Sequence[str]
    rows: Sequence[Cells]
    numbers: Collection[int] = ()
    wrap: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure of a page; `absent` is the reason why it is not there."""

    title: str
    big: str = ""
    lines: Sequence[str] = ()
    hint: str = ""
    strip: Strip | None = None
    flags: Collection[str] = ()
    absent: str = ""


@dataclass(frozen=True, slots=True)
class Strip:
    """Every sample as a tick on a line from the minimum to the maximum; positions in px."""

    text: str
    ticks: Sequence[float]
    median: float


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a fact."""

    text: str
    kind: Literal["", "absent", "code"] = ""


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the memory hierarchy, with where it reaches."""

    text: str
    where: str
    flags: Collection[str]


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of a card: what it is about, its value, and a remark."""

    name: str
    value: Sequence[Span] = ()
    note: Sequence[Span] = ()
    levels: Sequence[Level] = ()


def numbers(*texts: str) -> list[Cell]:
    return [Cell(t, number=True) for t in texts]


def absent_table(absences: Sequence[Absence]) -> Table | None:
    """What is absent, with its reasons."""
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
    return Table(["what", "", "conditions", "why", "what would help"], rows, wrap=True)


def flag_counts(records: Sequence[Record]) -> list[tuple[str, int]]:
    """Flags of the records, with how many carry each."""
    return [(f, sum(1 for r in records if f in r.flags)) for f in sorted({f for r in records for f in r.flags})]
