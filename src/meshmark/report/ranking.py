"""Ranks halo protocols by message size, and compares libraries by their halos, messages and collectives.

Times with overlapping intervals tie: a winner is listed with the protocols that tie with it, and remains the winner
while it ties with the best.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from meshmark.report.selection import number as condition_number
from meshmark.report.selection import selected, text_of, value_of
from meshmark.store.record import Record
from meshmark.values.units import Scale, number, scale_for
from meshmark.values.units import size as format_bytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDE: Final = 160  # columns if standard output is not a terminal
_LETTERS: Final = {
    "migrated": "m",
    "stolen": "s",
    "throttled": "h",
    "noisy": "n",
    "truncated": "t",
    "oversubscribed": "o",
    "misplaced": "p",
    "page_size": "g",
    "faulted": "f",
    "unverified": "u",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The times to rank or compare: a metric of these instruments, by the conditions `names`, over `over`."""

    title: str
    instruments: tuple[str, ...]
    metric: str
    names: tuple[str, ...]  # conditions
    over: str  # a condition

    def size_text(self, at: int) -> str:
        return f"{at} word{'s' if at != 1 else ''}" if self.over == "words" else format_bytes(at)


HALO: Final = Subject("halo exchange", ("halo",), "exchange_time", ("protocol",), "words")
MESSAGE: Final = Subject("one message", ("pingpong",), "message_latency", ("protocol",), "message_bytes")
COLLECTIVES: Final = Subject(
    "collectives",
    ("allreduce", "barrier", "bcast", "reduce", "alltoall", "exchange"),
    "collective_time",
    ("operation", "algorithm"),
    "message_bytes",
)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Exchange times of one library with a number of ranks.

    Attributes:
        protocols: best first, by the geometric mean of their times relative to the best of each size.
        sizes: words, ascending.
        cells: records by protocol and size; absent results are missing.
    """

    machine: str
    library: str
    where: str  # "2 ranks, grid 2x1"
    transport: str
    protocols: tuple[str, ...]
    sizes: tuple[int, ...]
    cells: Mapping[tuple[str, int], Record]
    subject: Subject = HALO

    def best(self, size: int) -> Record:
        return min((r for (_, s), r in self.cells.items() if s == size), key=lambda r: r.value)

    def over_best(self, protocol: str) -> float:
        """Geometric mean, over all sizes, of a protocol's time relative to the best."""
        logs = [math.log(r.value / self.best(s).value) for (p, s), r in self.cells.items() if p == protocol]
        return math.exp(sum(logs) / len(logs))

    def ties(self, size: int) -> list[str]:
        """Protocols that tie with the best of a size, including the best."""
        high = bounds(self.best(size))[1]
        return [p for p in self.protocols if (r := self.cells.get((p, size))) and bounds(r)[0] <= high]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive sizes with one winner; `tied` protocols tie with the best at all of them."""

    first: int
    last: int
    winner: str
    tied: tuple[str, ...]
    flags: tuple[str, ...]  # of the winner's times


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time with the second library divided by the time with the first, with conservative bounds."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the difference is significant: 1 is outside the bounds."""
        return self.low > 1 or self.high < 1

    @property
    def slower(self) -> int:
        """The slower library: 1 the second, -1 the first, 0 if the difference is not significant."""
        return (self.low > 1) - (self.high < 1)


class Comparison(NamedTuple):
    """Times with library `b` divided by times with library `a`, by protocol and size."""

    a: Ranking
    b: Ranking
    ratios: Mapping[tuple[str, int], Ratio]

    @property
    def alternated(self) -> int:
        """The number of ratios from alternating runs of both libraries; others include drift between the runs."""
        both = [(self.a.cells[key], self.b.cells[key]) for key in self.ratios]
        return sum(all(value_of(r, "runs", 1) > 1 for r in pair) for pair in both)

    @property
    def best(self) -> dict[int, Ratio]:
        """By size, the ratio of the best protocols of both."""
        sizes = sorted(set(self.a.sizes) & set(self.b.sizes))
        return {s: ratio_of(self.b.best(s), self.a.best(s)) for s in sizes}

    def of(self, name: str) -> dict[int, Ratio]:
        return {s: r for (n, s), r in sorted(self.ratios.items()) if n == name}

    def faster(self, ratios: Mapping[int, Ratio]) -> list[str]:
        """The faster library by size, such as `up to 64 words: Open MPI 4.1.4`."""
        parts = [(slower, [s for s, _ in group]) for slower, group in groupby(ratios.items(), lambda x: x[1].slower)]
        lines = [
            f"{_where(i, len(parts), sizes[0], sizes[-1], self.a.subject.size_text)}: "
            f"{self.a.library if slower > 0 else self.b.library}"
            for i, (slower, sizes) in enumerate(parts)
            if slower
        ]
        undecided = len(lines) < len(parts)
        return (
            [*lines, "no significant difference elsewhere" if lines else "no significant difference"]
            if undecided
            else lines
        )


def bounds(record: Record) -> tuple[float, float]:
    """The interval of the median, in s.

    With several runs, it covers the intervals of all, because runs may differ by more than the interval of each. With
    too few samples, it is unbounded, so that the record ties with all others.
    """
    if "run_low" not in record.conditions:
        return record.interval or (0.0, math.inf)
    low, high = condition_number(record, "run_low"), condition_number(record, "run_high")
    if low is None or high is None or not 0 <= low <= record.value <= high:
        return 0.0, math.inf
    return low, high


def ratio_of(one: Record, other: Record) -> Ratio:
    """The ratio of the first to the second."""
    (low, high), (low_other, high_other) = bounds(one), bounds(other)
    return Ratio(one.value / other.value, low / high_other, high / low_other if low_other > 0 else math.inf)


def ratio_text(ratio: Ratio) -> str:
    """`1.62 (1.58 – 1.66)`."""
    known = ratio.high < math.inf
    return f"{ratio.value:.2f} ({f'{ratio.low:.2f} – {ratio.high:.2f}' if known else 'too few samples'})"


def rankings(records: Iterable[Record], subject: Subject = HALO) -> list[Ranking]:
    """One ranking for each library, number of ranks, and grid or partner, in the order of the records."""
    groups: dict[tuple[str, ...], dict[tuple[str, int], list[Record]]] = {}
    for r in selected(
        records, subject.instruments, subject.metric, numbers=(subject.over,), texts=subject.names, above_zero=True
    ):
        c = r.conditions
        details = [f"grid {c['grid']}"] if "grid" in c else []
        details += [f"ranks {text_of(r, 'from_rank')} and {text_of(r, 'to_rank')}"] if "to_rank" in c else []
        where = ", ".join([ranks_of(r), *details])
        several = groups.setdefault((r.machine, text_of(r, "library", "mpi"), where), {})
        key = (", ".join(str(c[k]) for k in subject.names), int(value_of(r, subject.over)))
        several.setdefault(key, []).append(r)
    made = []
    for (machine, library, where), points in groups.items():
        cells = {key: clearest(same) for key, same in points.items()}
        sizes = tuple(sorted({size for _, size in cells}))
        transport = transport_of(next(iter(cells.values())))
        protocols = tuple(dict.fromkeys(p for p, _ in cells))
        unsorted = Ranking(machine, library, where, transport, protocols, sizes, cells, subject)
        order = tuple(sorted(unsorted.protocols, key=unsorted.over_best))
        made.append(replace(unsorted, protocols=order))
    return made


def ranks_of(record: Record) -> str:
    """The number of ranks, and of hosts if there are several."""
    hosts = record.conditions.get("hosts", 1)
    ranks = f"{text_of(record, 'ranks')} ranks" if record.conditions.get("ranks") is not None else "ranks not recorded"
    return ranks + (f", {hosts} hosts" if hosts not in {1, None} else "")


def transport_of(record: Record) -> str:
    return str(record.conditions.get("transport", "transport not recorded"))


def clearest(same: Iterable[Record]) -> Record:
    """Of several measurements of a point, an unflagged one with the narrowest interval."""
    return min(same, key=_uncertainty)


def _uncertainty(r: Record) -> tuple[bool, bool, float]:
    low, high = bounds(r)
    return bool(r.flags), r.interval is None, (high - low) / r.value


def stretches(ranking: Ranking) -> list[Stretch]:
    """Splits the sizes into the fewest stretches in which one protocol ties with the best at every size."""
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


def winner_lines(found: Sequence[Stretch], known: Collection[str] = ()) -> list[str]:
    """Describes each stretch, such as `from 256 words: persistent_irecv_isend; tied: packed`.

    Args:
        known: flags to omit, because all results have them.
    """
    lines = []
    for i, s in enumerate(found):
        where = _where(i, len(found), s.first, s.last, HALO.size_text)
        tied = f"; tied: {', '.join(s.tied)}" if s.tied else ""
        own = [f for f in s.flags if f not in known]
        flags = f"  [{' '.join(own)}]" if own else ""
        lines.append(f"{where}: {s.winner}{tied}{flags}")
    return lines


def _where(i: int, stretches: int, first: int, last: int, text: Callable[[int], str]) -> str:
    """Describes the sizes of the i-th stretch."""
    if stretches == 1:
        return "at every size"
    if first == last:
        return f"at {text(first)}"
    if i == 0:
        return f"up to {text(last)}"
    return f"from {text(first)}" if i == stretches - 1 else f"from {text(first)} to {text(last)}"


def comparisons(found: Sequence[Ranking]) -> list[Comparison]:
    """Compares pairs of libraries with the same number of ranks and grid, at the points that both have."""
    pairs = []
    for a, b in combinations(found, 2):
        if a.library == b.library or (a.machine, a.where, a.subject) != (b.machine, b.where, b.subject):
            continue
        ratios = {key: ratio_of(b.cells[key], one) for key, one in a.cells.items() if key in b.cells}
        if ratios:
            pairs.append(Comparison(a, b, ratios))
    return pairs


def half_percent(record: Record) -> str:
    """Half the interval relative to the median, such as `±1.2%`; `±?` without an interval."""
    low, high = bounds(record)
    if high == math.inf:
        return "±?"
    half = 50 * (high - low) / record.value
    return "±>999%" if half > 999 else f"±{half:.1f}%" if half < 9.95 else f"±{half:.0f}%"


def letters(flags: Iterable[str]) -> str:
    """Abbreviates flags to letters, such as `n` for noisy."""
    return "".join(sorted(_LETTERS.get(f, "?") for f in flags))


def legend(records: Iterable[Record]) -> str:
    """Explains the letters of these records' flags."""
    used = sorted({f for r in records for f in r.flags})
    return ", ".join(f"{letters([f])} {f}" for f in used)


def column_scales(ranking: Ranking) -> dict[int, Scale]:
    """The unit of each size, common to all protocols."""
    return {s: scale_for("s", ranking.best(s).value) for s in ranking.sizes}


# ------------------------------------------------------------------ in the terminal


def print_rankings(records: Sequence[Record]) -> bool:
    """Prints tables, winners and ratios of libraries; returns whether there were any records to rank."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, markup=False)
    found = rankings(records)
    for i, ranking in enumerate(found):
        if i:
            console.print()
        _print_ranking(console, ranking)
    for pair in comparisons(found):
        _print_ratios(console, pair)
    return bool(found)


def print_comparisons(records: Sequence[Record]) -> None:
    """Prints the ratios of libraries for messages and collectives, if there are several libraries."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, markup=False)
    for subject in (MESSAGE, COLLECTIVES):
        for pair in comparisons(rankings(records, subject)):
            _print_ratios(console, pair)


def _print_ranking(console: Console, ranking: Ranking) -> None:
    from rich.text import Text

    cells = list(ranking.cells.values())
    everywhere = frozenset.intersection(*(r.flags for r in cells))
    common = f"; all {', '.join(sorted(everywhere))}" if everywhere else ""
    console.print(
        f"{ranking.machine}: halo, {ranking.library}, {ranking.where}, {ranking.transport}{common}", style="dim"
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
    relative = [Text("vs."), Text("best"), *(Text(f"{ranking.over_best(p):.2f}") for p in ranking.protocols)]
    print_columns(console, [first, relative], columns)
    key = legend(r for r in cells if r.flags - everywhere)
    console.print("median ± half its 95 % interval; * best of its size" + (f"; {key}" if key else ""), style="dim")
    console.print("fastest protocol:")
    for line in winner_lines(stretches(ranking), everywhere):
        console.print(f"  {line}", soft_wrap=True)


def _print_ratios(console: Console, pair: Comparison) -> None:
    from rich.text import Text

    a, b, ratios = pair
    console.print(f"\n{b.library} relative to {a.library}, {a.where}", style="dim", soft_wrap=True)
    console.print("ratio of times ± half its interval; significant differences in bold")
    sizes = sorted({s for _, s in ratios})
    protocols = [p for p in a.protocols if any(q == p for q, _ in ratios)]
    columns = []
    for at in sizes:
        column = [Text(str(at) if a.subject.over == "words" else format_bytes(at))]
        for p in protocols:
            ratio = ratios.get((p, at))
            half = (ratio.high - ratio.low) / 2 if ratio else 0
            text = f"{ratio.value:.2f} ±{'>99' if half > 99 else f'{half:.2f}'}" if ratio else "–"
            column.append(Text(text, style="bold" if ratio and ratio.clear else "dim"))
        columns.append(column)
    print_columns(console, [[Text(a.subject.over.partition("_")[0]), *(Text(p) for p in protocols)]], columns)
    slower = sum(r.slower > 0 for r in ratios.values())
    faster = sum(r.slower < 0 for r in ratios.values())
    rest = len(ratios) - slower - faster
    console.print(
        f"{b.library} is slower in {slower} of {len(ratios)}, faster in {faster}; no significant difference in {rest}"
    )
    if a.subject is HALO:
        console.print("faster library, by the best protocol of each:")
        for line in pair.faster(pair.best):
            console.print(f"  {line}", soft_wrap=True)
    else:
        console.print("faster library:")
        for p in protocols:
            console.print(f"  {p}: {'; '.join(pair.faster(pair.of(p)))}", soft_wrap=True)
    console.print(run_order_note(pair), style="dim")


def run_order_note(pair: Comparison) -> str:
    """Explains how far the order of the runs affects the comparison."""
    if not pair.alternated:
        return "measured one library after the other: changes of the machine in between appear as differences"
    single = len(pair.ratios) - pair.alternated
    rest = f"; {single} of {len(pair.ratios)} compare a single run of a library" if single else ""
    return f"measured in several alternating runs of each library; intervals include the variation between runs{rest}"


def print_columns(console: Console, fixed: Sequence[Sequence[Text]], columns: Sequence[Sequence[Text]]) -> None:
    """Prints columns side by side, in several blocks if they are too wide; each block starts with the fixed columns."""
    from rich.table import Table

    def width(column: Sequence[Text]) -> int:
        return max(len(t) for t in column) + 2

    room = console.width - sum(map(width, fixed))
    blocks: list[list[Sequence[Text]]] = [[]]
    used = 0
    for column in columns:
        if blocks[-1] and used + width(column) > room:
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += width(column)
    for block in blocks:
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for i in range(len(fixed) + len(block)):
            table.add_column(justify="left" if i == 0 else "right", no_wrap=True)
        for row in zip(*fixed, *block, strict=True):
            table.add_row(*row)
        console.print(table)
