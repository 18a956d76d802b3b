"""Defines the data of page elements: tiles and cards. `templates/macros.html` renders them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from meshmark.store.record import Record
from meshmark.store.run import Absence
from meshmark.views.tables import TextTable


@dataclass(frozen=True, slots=True)
class Tile:
    """A key figure; `absent` is the reason if it has no value."""

    title: str
    big: str = ""
    lines: Sequence[str] = ()
    hint: str = ""
    strip: SampleStrip | None = None
    flags: Collection[str] = ()
    absent: str = ""


@dataclass(frozen=True, slots=True)
class SampleStrip:
    """All samples as ticks on a line from minimum to maximum; positions in px."""

    text: str
    ticks: Sequence[float]
    median: float


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Text with a style."""

    text: str
    kind: Literal["", "absent", "code"] = ""


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """A level of the memory hierarchy and the footprints that it serves."""

    text: str
    where: str
    flags: Collection[str]


@dataclass(frozen=True, slots=True)
class CardRow:
    """A row of a card: name, value and a note."""

    name: str
    value: Sequence[TextSpan] = ()
    note: Sequence[TextSpan] = ()
    levels: Sequence[MemoryLevel] = ()


def absent_table(absences: Sequence[Absence]) -> TextTable | None:
    """Return absent results with their reasons; None if nothing is absent."""
    if not absences:
        return None
    rows = [
        [
            a.instrument + (f" · {a.metric}" if a.metric else ""),
            "failed" if a.kind == "error" else "absent",
            ", ".join(f"{k} {v}" for k, v in a.conditions.items()),
            a.reason,
            a.enable,
        ]
        for a in absences
    ]
    return TextTable(["metric", "", "conditions", "reason", "remedy"], rows, folds=(0, 2, 3, 4))


def flag_counts(records: Sequence[Record]) -> list[tuple[str, int]]:
    """Return the number of records with each flag."""
    return [(f, sum(1 for r in records if f in r.flags)) for f in sorted({f for r in records for f in r.flags})]
