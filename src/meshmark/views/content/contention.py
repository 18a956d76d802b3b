"""Computes by how much concurrent swaps slow each other down, by distance and size, and where contention starts.

The factor is the time of the slowest pair when all run at once, divided by the time of the slowest pair alone. Its
bounds are conservative: they combine the far ends of both intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from meshmark.measure.repetitions import measured
from meshmark.statistics.verdicts import Ratio, Word, judge
from meshmark.store.record import Record
from meshmark.values.units import size
from meshmark.views.content.ranking import (
    clearest,
    half_text,
    interval_text,
    ranks_of,
    ratio_of,
    ratio_text,
    transport_of,
)
from meshmark.views.content.selection import number, selected, text_of, value_of
from meshmark.views.tables import Cells, Emphasis, TableSection, TextCell, TextTable

STARTS: Final = 1.1  # contention starts where the whole interval is above this
_NO_PAIRS: Final = "only one pair at each distance, so there is no contention"


@dataclass(frozen=True, slots=True)
class Factor:
    """Contention at one distance and size, with the records that it derives from."""

    ratio: Ratio
    alone: Record  # the slowest pair alone
    together: Record

    @property
    def word(self) -> Word:
        """Return `higher` with contention, `equal` without; neither if a time is flagged or an interval too wide."""
        usable = not measured(self.alone).excluded and not measured(self.together).excluded
        return judge(self.ratio.interval if usable else None, (0, STARTS), STARTS)

    @property
    def starts(self) -> bool:
        """Return whether concurrent swaps are slower, beyond the margin."""
        return self.word == "higher"

    @property
    def flags(self) -> frozenset[str]:
        """Return the flags of both results."""
        return self.alone.flags | self.together.flags


@dataclass(frozen=True, slots=True)
class Contention:
    """Factors of one library with a number of ranks.

    Attributes:
        distances: All measured distances; a distance with only one pair has no cells.
        sizes: Message sizes in bytes, ascending.
        cells: Factors by distance and size.
    """

    machine: str
    library: str
    where: str  # "8 ranks"
    transport: str
    distances: tuple[int, ...]
    sizes: tuple[int, ...]
    cells: Mapping[tuple[int, int], Factor]

    def by_size(self, distance: int) -> list[tuple[int, Factor]]:
        """Return sizes and factors at a distance, ascending by size."""
        return [(s, f) for s in self.sizes if (f := self.cells.get((distance, s)))]

    def start(self, distance: int) -> int | None:
        """Return the smallest message size at which the whole interval is above STARTS, or None."""
        return next((s for s, f in self.by_size(distance) if f.starts), None)


def contentions(records: Iterable[Record]) -> list[Contention]:
    """Return the contention of each library and number of ranks, from the records of `swap`."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for r in selected(
        records,
        "swap",
        "exchange_time",
        numbers=("message_bytes",),
        positive=("distance",),
        texts=("mode",),
        above_zero=True,
    ):
        groups.setdefault((r.machine, text_of(r, "library", "mpi"), ranks_of(r)), []).append(r)
    results = []
    for (machine, library, where), times in groups.items():
        cells = {}
        points: dict[tuple[int, int], list[Record]] = {}
        for r in times:
            distance = max(1, int(value_of(r, "distance")))
            points.setdefault((distance, int(value_of(r, "message_bytes"))), []).append(r)
        for (distance, bytes_), point_times in points.items():
            together = [r for r in point_times if r.conditions["mode"] == "together"]
            pairs: dict[int, list[Record]] = {}
            for r in point_times:
                # Like the instrument: the first rank of a pair is in an even block of `distance` ranks.
                rank = number(r, "from_rank")
                if r.conditions["mode"] == "alone" and rank is not None and rank // distance % 2 == 0:
                    pairs.setdefault(int(rank), []).append(r)
            if together and pairs:
                slowest = max((clearest(same) for same in pairs.values()), key=lambda r: r.value)
                at_once = clearest(together)
                cells[distance, bytes_] = Factor(ratio_of(at_once, slowest), slowest, at_once)
        transport = transport_of(times[0])
        distances, sizes = (tuple(sorted({p[i] for p in points})) for i in (0, 1))
        results.append(Contention(machine, library, where, transport, distances, sizes, cells))
    return results


def start_lines(contention: Contention, known: Collection[str] = ()) -> list[str]:
    """Describe where contention starts, such as `distance 1: from 64 KiB, 1.62 (1.58 – 1.66)`.

    Adjacent distances with the same description share a line.

    Args:
        contention: Factors by distance and size.
        known: Flags to omit, because all results have them.
    """

    def figure(factor: Factor) -> str:
        flags = sorted(factor.flags - set(known))
        return ratio_text(factor.ratio) + (f" [{' '.join(flags)}]" if flags else "")

    def sentence(distance: int) -> tuple[str, str]:
        """Return the part that distances may share, and the part about this distance."""
        cells = contention.by_size(distance)
        if not cells:
            return "only one pair", ""
        start = contention.start(distance)
        if start is None:
            largest = size(cells[-1][0])
            if all(f.word == "equal" for _, f in cells):
                return f"none up to {largest}", ""
            size_bytes, highest = max(cells, key=lambda cell: cell[1].ratio.value)
            return f"inconclusive up to {largest}", f"; at most {figure(highest)} at {size(size_bytes)}"
        unclear = [size(s) for s, f in cells if s > start and not f.starts]
        return f"from {size(start)}", (
            f", {figure(contention.cells[distance, start])}"
            + (f"; inconclusive at {', '.join(unclear)}" if unclear else "")
        )

    lines = []
    for shared, group in groupby(((d, *sentence(d)) for d in contention.distances), key=lambda x: x[1]):
        same = list(group)
        if len(same) == 1:
            lines.append(f"distance {same[0][0]}: {shared}{same[0][2]}")
            continue
        start = contention.start(same[0][0])
        values = [contention.cells[d, start].ratio.value for d, *_ in same] if start is not None else []
        figures = f", {min(values):.2f} to {max(values):.2f}" if values else ""
        lines.append(f"distances {same[0][0]} to {same[-1][0]}: {shared}{figures}")
    return lines


def contention_sections(records: Iterable[Record]) -> list[TableSection]:
    """Return the factors by distance and size, and where contention starts."""
    return [_section(contention) for contention in contentions(records)]


def _section(contention: Contention) -> TableSection:
    def cell(distance: int, size_bytes: int) -> TextCell:
        factor = contention.cells.get((distance, size_bytes))
        if factor is None:
            return TextCell("–", "dim")
        starts: Emphasis = "best" if contention.start(distance) == size_bytes else "bold"
        text = f"{factor.ratio.value:.2f} {half_text(factor.ratio)}"
        return TextCell(text, starts if factor.starts else "dim", factor.flags, hint=interval_text(factor.ratio))

    head = ["distance", *map(size, contention.sizes)]
    rows: list[Cells] = [
        [str(d), *(cell(d, s) for s in contention.sizes)] for d in contention.distances if contention.by_size(d)
    ]
    table = TextTable(head, rows, numbers=range(1, len(head)))
    title = f"{contention.library}, {contention.where}, {contention.transport}"
    about = f"{contention.machine}: contention of swap"
    if not rows:
        return TableSection(title, about=about, lines=[_NO_PAIRS])
    return TableSection(
        title,
        table,
        about,
        notes=[
            f"time of all pairs at once / time of the slowest alone ± half its interval; * first clearly above {STARTS}"
        ],
        heading="contention starts at",
        lines=start_lines(contention, table.common_flags),
        summary=f"Contention with its interval; clearly above {STARTS} in bold",
    )
