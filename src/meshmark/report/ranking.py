"""Which protocol of the halo exchange is best at which size: a table, stretches of sizes with their winner, and the
ratio of two libraries.

What is within the intervals of one another is not told apart: a winner is named together with those that tie with it,
and it stays the winner for as long as it ties with the best.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

from meshmark.report.units import Scale, number, scale_for
from meshmark.store.record import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_WIDE: Final = 160  # columns where nobody says how many there are
_LETTERS: Final = {
    "migrated": "m", "stolen": "s", "throttled": "h", "noisy": "n", "truncated": "t", "oversubscribed": "o",
    "misplaced": "p", "page_size": "g", "faulted": "f", "unverified": "u",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ranking:
    """Exchange times of one library among so many ranks.

    Attributes:
        protocols: the best first, by the geometric mean of their times over the best of each size.
        sizes: words, ascending.
        cells: by protocol and size; what could not be had is missing.
    """

    machine: str
    library: str
    where: str  # "2 ranks, grid 2x1"
    transport: str
    protocols: tuple[str, ...]
    sizes: tuple[int, ...]
    cells: Mapping[tuple[str, int], Record]

    def best(self, size: int) -> Record:
        return min((r for (_, s), r in self.cells.items() if s == size), key=lambda r: r.value)

    def over_best(self, protocol: str) -> float:
        """Geometric mean, over its sizes, of its time over the best one's."""
        logs = [math.log(r.value / self.best(s).value) for (p, s), r in self.cells.items() if p == protocol]
        return math.exp(sum(logs) / len(logs))

    def ties(self, size: int) -> list[str]:
        """Protocols that are not told apart from the best of a size, itself included."""
        high = bounds(self.best(size))[1]
        return [p for p in self.protocols if (r := self.cells.get((p, size))) and bounds(r)[0] <= high]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring sizes with one winner; `tied` are those that are nowhere in it told apart from the best."""

    first: int
    last: int
    winner: str
    tied: tuple[str, ...]
    flags: tuple[str, ...]  # of the winner's times


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of the second library over that of the first; the bounds are those of both intervals at their worst."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """It is not 1."""
        return self.low > 1 or self.high < 1


def bounds(record: Record) -> tuple[float, float]:
    """The interval of the median, in s; of too few samples for one it is not known, and told apart from nothing."""
    return record.interval or (0.0, math.inf)


def rankings(records: Iterable[Record]) -> list[Ranking]:
    """One for each library, number of ranks and grid among the records of `halo`, in their order."""
    groups: dict[tuple[str, ...], dict[tuple[str, int], Record]] = {}
    for r in records:
        if r.instrument != "halo" or r.metric != "exchange_time" or not r.value > 0:
            continue
        c = r.conditions
        hosts = f"{c['hosts']} hosts, " if c.get("hosts", 1) != 1 else ""
        name = (r.machine, str(c.get("library", c["mpi"])), f"{c['ranks']} ranks, {hosts}grid {c['grid']}")
        cells = groups.setdefault(name, {})
        key = (str(c["protocol"]), int(str(c["words"])))
        if key not in cells or _doubt(r) < _doubt(cells[key]):
            cells[key] = r
    made = []
    for (machine, library, where), cells in groups.items():
        sizes = tuple(sorted({size for _, size in cells}))
        transport = str(next(iter(cells.values())).conditions.get("transport", "transport not told"))
        protocols = tuple(dict.fromkeys(p for p, _ in cells))
        unsorted = Ranking(machine, library, where, transport, protocols, sizes, cells)
        order = tuple(sorted(unsorted.protocols, key=unsorted.over_best))
        made.append(replace(unsorted, protocols=order))
    return made


def _doubt(r: Record) -> tuple[bool, bool, float]:
    low, high = bounds(r)
    return bool(r.flags), r.interval is None, (high - low) / r.value


def stretches(ranking: Ranking) -> list[Stretch]:
    """As few stretches as there can be: each goes on for as long as one protocol ties with the best of every size."""
    found: list[Stretch] = []
    sizes: list[int] = []
    common: list[str] = []

    def close() -> None:
        def over(protocol: str) -> float:
            return math.prod(ranking.cells[protocol, s].value / ranking.best(s).value for s in sizes)

        winner = min(common, key=over)
        flags = {f for s in sizes for f in ranking.cells[winner, s].flags}
        tied = tuple(p for p in common if p != winner)
        found.append(Stretch(sizes[0], sizes[-1], winner, tied, tuple(sorted(flags))))

    for size in ranking.sizes:
        ties = ranking.ties(size)
        both = [p for p in common if p in ties]
        if sizes and not both:
            close()
            sizes = []
        common = both or ties
        sizes.append(size)
    if sizes:
        close()
    return found


def told(found: Sequence[Stretch], known: Collection[str] = ()) -> list[str]:
    """A line a stretch: `up to 128 words neighbour`, `from 256 words persistent_irecv_isend; tied: packed`; with the
    winner's flags, but for those that are known of all."""
    lines = []
    for i, s in enumerate(found):
        if len(found) == 1:
            where = "at every size"
        elif s.first == s.last:
            where = f"at {s.first} word{'s' if s.first != 1 else ''}"
        elif i == 0:
            where = f"up to {s.last} words"
        elif i == len(found) - 1:
            where = f"from {s.first} words"
        else:
            where = f"from {s.first} to {s.last} words"
        tied = f"; tied: {', '.join(s.tied)}" if s.tied else ""
        own = [f for f in s.flags if f not in known]
        flags = f"  [{' '.join(own)}]" if own else ""
        lines.append(f"{where} {s.winner}{tied}{flags}")
    return lines


def comparisons(found: Sequence[Ranking]) -> list[tuple[Ranking, Ranking, dict[tuple[str, int], Ratio]]]:
    """Pairs of libraries that were asked the same (of as many ranks on the same grid), with what both have."""
    pairs = []
    for a, b in combinations(found, 2):
        if a.library == b.library or (a.machine, a.where) != (b.machine, b.where):
            continue
        ratios = {}
        for key, one in a.cells.items():
            other = b.cells.get(key)
            if other is None:
                continue
            (low_a, high_a), (low_b, high_b) = bounds(one), bounds(other)
            ratios[key] = Ratio(other.value / one.value, low_b / high_a, high_b / low_a)
        if ratios:
            pairs.append((a, b, ratios))
    return pairs


def half_percent(record: Record) -> str:
    """Half of the interval over the median: `±1.2%`; `±?` of too few samples for an interval."""
    if record.interval is None:
        return "±?"
    low, high = record.interval
    half = 50 * (high - low) / record.value
    return "±>999%" if half > 999 else f"±{half:.1f}%" if half < 9.95 else f"±{half:.0f}%"


def letters(flags: Iterable[str]) -> str:
    """A letter a flag: `n` for noisy."""
    return "".join(sorted(_LETTERS.get(f, "?") for f in flags))


def legend(records: Iterable[Record]) -> str:
    """What the letters mean, of those that are there."""
    used = sorted({f for r in records for f in r.flags})
    return ", ".join(f"{letters([f])} {f}" for f in used)


def column_scales(ranking: Ranking) -> dict[int, Scale]:
    """The prefix of each size: all protocols of one size are told in the same unit."""
    return {s: scale_for("s", ranking.best(s).value) for s in ranking.sizes}


# ------------------------------------------------------------------ in the terminal


def print_rankings(records: Sequence[Record]) -> None:
    """Tables that fit the terminal, then the winners, then the ratio of libraries where there are two."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, markup=False)
    found = rankings(records)
    for i, ranking in enumerate(found):
        if i:
            console.print()
        _print_ranking(console, ranking)
    for a, b, ratios in comparisons(found):
        _print_ratios(console, a, b, ratios)


def _print_ranking(console: Console, ranking: Ranking) -> None:
    from rich.text import Text

    cells = list(ranking.cells.values())
    everywhere = frozenset.intersection(*(r.flags for r in cells))
    said = f"; all {', '.join(sorted(everywhere))}" if everywhere else ""
    console.print(
        f"{ranking.machine}: halo, {ranking.library}, {ranking.where}, {ranking.transport}{said}", style="dim"
    )
    scales = column_scales(ranking)
    columns = []
    for size in ranking.sizes:
        factor, best = scales[size].factor, ranking.best(size)
        column = [Text(f"{size}"), Text(scales[size].symbol)]
        for protocol in ranking.protocols:
            r = ranking.cells.get((protocol, size))
            if r is None:
                column.append(Text("–", style="dim"))
                continue
            mark = letters(r.flags - everywhere)
            text = f"{number(r.value / factor)} {half_percent(r)}{' ' + mark if mark else ''}"
            column.append(Text(("*" if r is best else "") + text, style="bold" if r is best else ""))
        columns.append(column)
    first = [Text("words"), Text(""), *(Text(p) for p in ranking.protocols)]
    over = [Text("over"), Text("best"), *(Text(f"{ranking.over_best(p):.2f}") for p in ranking.protocols)]
    _print_columns(console, [first, over], columns)
    key = legend(r for r in cells if r.flags - everywhere)
    console.print("median ± half of its 95 % interval; * best of its size" + (f"; {key}" if key else ""), style="dim")
    console.print("winner:")
    for line in told(stretches(ranking), everywhere):
        console.print(f"  {line}", soft_wrap=True)


def _print_ratios(console: Console, a: Ranking, b: Ranking, ratios: Mapping[tuple[str, int], Ratio]) -> None:
    from rich.text import Text

    console.print(f"\n{b.library} over {a.library}: ratio of times ± half of its interval; bold where it is clear")
    sizes = sorted({s for _, s in ratios})
    protocols = [p for p in a.protocols if any(q == p for q, _ in ratios)]
    columns = []
    for size in sizes:
        column = [Text(str(size))]
        for p in protocols:
            ratio = ratios.get((p, size))
            half = (ratio.high - ratio.low) / 2 if ratio else 0
            text = f"{number(ratio.value)} ±{'>99' if half > 99 else f'{half:.2f}'}" if ratio else "–"
            column.append(Text(text, style="bold" if ratio and ratio.clear else "dim"))
        columns.append(column)
    _print_columns(console, [[Text("words"), *(Text(p) for p in protocols)]], columns)
    slower = sum(r.low > 1 for r in ratios.values())
    faster = sum(r.high < 1 for r in ratios.values())
    rest = len(ratios) - slower - faster
    console.print(f"{b.library} takes longer in {slower} of {len(ratios)}, less in {faster}; {rest} are not told apart")


def _print_columns(console: Console, fixed: Sequence[Sequence[Text]], columns: Sequence[Sequence[Text]]) -> None:
    """As many columns side by side as fit, then the next ones below; the fixed ones stand before each lot."""
    from rich.table import Table

    def width(column: Sequence[Text]) -> int:
        return max(len(t) for t in column) + 2

    room = console.width - sum(map(width, fixed))
    lots: list[list[Sequence[Text]]] = [[]]
    used = 0
    for column in columns:
        if lots[-1] and used + width(column) > room:
            lots.append([])
            used = 0
        lots[-1].append(column)
        used += width(column)
    for lot in lots:
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for i in range(len(fixed) + len(lot)):
            table.add_column(justify="left" if i == 0 else "right", no_wrap=True)
        for row in zip(*fixed, *lot, strict=True):
            table.add_row(*row)
        console.print(table)
