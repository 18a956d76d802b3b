"""Defines tables as data. There are two renderers: `terminal/screen.py`, and `table` in `templates/macros.html`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Emphasis = Literal["", "bold", "best", "dim", "code", "verdict", "good", "bad", "doubtful"]

_LETTERS: Final = {
    "migrated": "m",
    "stolen": "s",
    "clock_varied": "c",
    "disturbed": "d",
    "stopped": "e",
    "oversubscribed": "o",
    "misplaced": "p",
    "page_size": "g",
    "faulted": "f",
    "unverified": "u",
    "off_plan": "n",
}


@dataclass(frozen=True, slots=True)
class Dot:
    """A ratio with its interval beside 1, on a logarithmic axis; positions in px."""

    at: float
    one: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class TextCell:
    """A cell of a table; plain text may be used instead.

    Attributes:
        emphasis: `best` is bold with a star; `good` and `bad` are verdicts.
        flags: Flags of the result in the cell or in the row; None if the cell does not show a result.
        dot: A ratio that pages draw.
        hint: Text that pages show while the pointer is over the cell.
    """

    text: str
    emphasis: Emphasis = ""
    flags: Collection[str] | None = None
    dot: Dot | None = None
    hint: str = ""

    @property
    def trace(self) -> str:
        """Return the text that is "" only if a page shows nothing in the cell."""
        return self.text or ("…" if self.flags or self.dot else "")


Cells = Sequence[TextCell | str]


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table whose cells are formatted text.

    Attributes:
        head: The names of the columns; a unit follows on a line of its own.
        numbers: Columns that are aligned to the right.
        folds: Columns whose cells may take several lines.
        spare: Columns that a narrow terminal omits, the least informative first.
    """

    head: Sequence[str]
    rows: Sequence[Cells]
    numbers: Collection[int] = ()
    folds: Collection[int] = ()
    spare: Sequence[int] = ()

    @property
    def columns(self) -> list[int]:
        """Return the columns to show: all that have content, and columns of plain text with a heading."""
        return self.columns_with([[c if isinstance(c, str) else c.trace for c in row] for row in self.rows])

    def columns_with(self, texts: Sequence[Sequence[str]]) -> list[int]:
        """Return the columns to show if the cells are shown as these texts."""
        filled = {i for row in texts for i, text in enumerate(row) if text}
        special = {i for row in self.rows for i, cell in enumerate(row) if isinstance(cell, TextCell)}
        return [i for i, name in enumerate(self.head) if i in filled or (name and i not in special)]

    @property
    def common_flags(self) -> frozenset[str]:
        """Return the flags that all results of the table have."""
        cells = [cell for row in self.rows for cell in row if isinstance(cell, TextCell)]
        results = [frozenset(cell.flags) for cell in cells if cell.flags is not None]
        return frozenset.intersection(*results) if results else frozenset()


@dataclass(frozen=True, slots=True)
class TableSection:
    """A table with its title and the conclusions from it.

    Attributes:
        about: Machine and instrument, which precede the title in a terminal; a page shows them elsewhere.
        notes: Explanations of the table, one line each.
        heading: Introduces the lines; "" if they need no introduction.
        lines: Conclusions.
        summary: If not "", pages fold the table, show this text instead, and put the lines above it.
    """

    title: str
    table: TextTable = TextTable((), ())
    about: str = ""
    notes: Sequence[str] = ()
    heading: str = ""
    lines: Sequence[str] = ()
    summary: str = ""


def ratio_dot(ratio: float, interval: tuple[float, float] | None, low: float, high: float) -> Dot | None:
    """Return a ratio on an axis from `low` to `high`, clipped at its ends; None if it is not finite and above 0."""
    if not math.isfinite(ratio) or ratio <= 0:
        return None

    def x(v: float) -> float:
        return 4 + 132 * math.log(min(max(v, low), high) / low) / math.log(high / low)

    return Dot(x(ratio), x(1), (x(interval[0]), x(interval[1])) if interval else None)


def ratio_range(ratios: Iterable[float]) -> tuple[float, float]:
    """Return the range of an axis of ratios, which includes 1 and is at most from 0.01 to 100."""
    ends = [1.0, *(r for r in ratios if math.isfinite(r) and r > 0)]
    return max(0.01, min(0.9, 0.97 * min(ends))), min(100.0, max(1.1, 1.03 * max(ends)))


def letters(flags: Iterable[str]) -> str:
    """Abbreviate flags to letters, such as `d` for disturbed."""
    return "".join(sorted(_LETTERS.get(f, "?") for f in flags))


def legend(flags: Iterable[str]) -> list[str]:
    """Explain the letters of flags: `d disturbed`."""
    return [f"{letters([f])} {f}" for f in sorted(flags)]
