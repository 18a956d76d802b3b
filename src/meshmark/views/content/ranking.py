"""Ranks halo protocols by message size, and compares libraries by their halos, messages and collectives.

The module `verdicts` decides what wins, what is equal and what is inconclusive, for each size at which all protocols
were measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import Final, NamedTuple

from meshmark.measure.repetitions import measured
from meshmark.statistics import verdicts
from meshmark.statistics.verdicts import MedianRanking, Ratio
from meshmark.store.record import Record
from meshmark.values.units import counted, number, scale_for
from meshmark.values.units import size as format_bytes
from meshmark.views.content.selection import selected, text_of, value_of
from meshmark.views.tables import Cells, Emphasis, TableSection, TextCell, TextTable

_SHOWN: Final = 6  # most protocols in one line
BEST: Final = "best protocol of each library"


@dataclass(frozen=True, slots=True)
class RankingSubject:
    """The times to rank or compare: a metric of these instruments, by the conditions `names`, over `over`."""

    title: str
    instruments: tuple[str, ...]
    metric: str
    names: tuple[str, ...]  # conditions
    over: str  # a condition

    def size_text(self, at: int) -> str:
        """Return a size in words or in bytes, as the subject counts it."""
        return counted(at, "word") if self.over == "words" else format_bytes(at)


HALO: Final = RankingSubject("halo exchange", ("halo",), "exchange_time", ("protocol",), "words")
MESSAGE: Final = RankingSubject("one message", ("pingpong",), "message_latency", ("protocol",), "message_bytes")
COLLECTIVES: Final = RankingSubject(
    "collectives",
    ("allreduce", "barrier", "bcast", "reduce", "alltoall", "exchange"),
    "collective_time",
    ("operation", "algorithm"),
    "message_bytes",
)


@dataclass(frozen=True, slots=True)
class LibraryRanking:
    """Exchange times of one library with a number of ranks.

    Attributes:
        protocols: Protocols, best first, by the geometric mean of their times relative to the best of each size.
        sizes: Sizes in words, ascending.
        cells: Records by protocol and size; absent results are missing.
    """

    machine: str
    library: str
    where: str  # "2 ranks, grid 2x1"
    transport: str
    protocols: tuple[str, ...]
    sizes: tuple[int, ...]
    cells: Mapping[tuple[str, int], Record]
    subject: RankingSubject = HALO

    @property
    def common(self) -> tuple[int, ...]:
        """Return the sizes at which all protocols were measured: only these are ranked."""
        return tuple(s for s in self.sizes if all((p, s) in self.cells for p in self.protocols))

    def lowest(self, size: int) -> Record:
        """Return the record with the lowest median, whether or not it can be judged."""
        return min((r for (_, s), r in self.cells.items() if s == size), key=lambda r: r.value)

    def over_lowest(self, protocol: str) -> float:
        """Return the geometric mean, over the common sizes, of a protocol's time relative to the lowest time.

        Returns NaN if there are no common sizes.
        """
        logs = [math.log(self.cells[protocol, s].value / self.lowest(s).value) for s in self.common]
        return math.exp(sum(logs) / len(logs)) if logs else math.nan

    def ranked(self, size: int) -> MedianRanking:
        """Return the verdict about the protocols at a size."""
        return verdicts.rank({p: measured(r) for p in self.protocols if (r := self.cells.get((p, size)))})

    def decided(self, size: int) -> bool:
        """Return whether no protocol that cannot be judged may be the fastest at a size."""
        verdict = self.ranked(size)
        return not set(verdict.best) & set(verdict.excluded)

    def best(self, size: int) -> Record | None:
        """Return the fastest protocol that can be judged at a size; None if no protocol can be judged."""
        verdict = self.ranked(size)
        return self.cells[verdict.best[0], size] if verdict.best[0] not in verdict.excluded else None


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Consecutive sizes with one verdict.

    Attributes:
        winner: The protocol that wins or is at least equal at all of the sizes; "" if the sizes are inconclusive.
        others: The protocols equal to the winner at all sizes; without a winner, all protocols that may be the fastest
            at some of the sizes.
    """

    first: int
    last: int
    winner: str
    others: tuple[str, ...]


class LibraryComparison(NamedTuple):
    """Times with library `b` divided by times with library `a`, by protocol and size."""

    a: LibraryRanking
    b: LibraryRanking
    ratios: Mapping[tuple[str, int], Ratio]

    @property
    def alternated(self) -> int:
        """Return the number of ratios from alternating runs of both libraries; other ratios include a drift."""
        record_pairs = [(self.a.cells[key], self.b.cells[key]) for key in self.ratios]
        return sum(all(value_of(r, "runs", 1) > 1 for r in pair) for pair in record_pairs)

    @property
    def best(self) -> dict[int, Ratio]:
        """Return the ratio of the best protocols of both libraries by size.

        Sizes at which no protocol of a library can be judged are missing. A ratio is inconclusive if a protocol that
        cannot be judged may be the best of its library.
        """
        ratios = {}
        for size in sorted(set(self.a.common) & set(self.b.common)):
            b_best, a_best = self.b.best(size), self.a.best(size)
            if b_best and a_best:
                ratio = ratio_of(b_best, a_best)
                decided = self.a.decided(size) and self.b.decided(size)
                ratios[size] = ratio if decided else replace(ratio, word="inconclusive")
        return ratios

    def ratios_by_size(self, name: str) -> dict[int, Ratio]:
        """Return the ratios of a protocol or collective by size, ascending."""
        return {s: r for (n, s), r in sorted(self.ratios.items()) if n == name}

    @property
    def lines(self) -> dict[str, dict[int, Ratio]]:
        """Return the ratios by name and size; for the halo exchange, the ratios of the best protocols come first."""
        best = {BEST: self.best} if self.a.subject is HALO else {}
        return {**best, **{name: ratios for name in self.a.protocols if (ratios := self.ratios_by_size(name))}}

    def faster(self, ratios: Mapping[int, Ratio]) -> list[str]:
        """Return the verdict by size, such as `up to 64 words: Open MPI 4.1.4`."""
        names = {"higher": self.a.library, "lower": self.b.library, "equal": "equal"}
        parts = [(word, [s for s, _ in group]) for word, group in groupby(ratios.items(), lambda x: x[1].word)]
        lines = [
            f"{_where(i, len(parts), sizes[0], sizes[-1], self.a.subject.size_text)}: {names[word]}"
            for i, (word, sizes) in enumerate(parts)
            if word in names
        ]
        undecided = len(lines) < len(parts) or not parts
        return [*lines, "inconclusive elsewhere" if lines else "inconclusive"] if undecided else lines


def bounds(record: Record) -> tuple[float, float]:
    """Return the bounds of the median in s; (0, inf) if there are too few samples."""
    return record.bounds or (0.0, math.inf)


def ratio_of(one: Record, other: Record) -> Ratio:
    """Return the ratio of the first record to the second."""
    return verdicts.ratio(measured(one), measured(other))


def ratio_text(ratio: Ratio) -> str:
    """Return a ratio with its interval: `1.62 (1.58 – 1.66)`."""
    return f"{ratio.value:.2f} ({interval_text(ratio)})"


def interval_text(ratio: Ratio) -> str:
    """Return the interval of a ratio as text, or that there are too few samples."""
    return f"{ratio.interval[0]:.2f} – {ratio.interval[1]:.2f}" if ratio.interval else "too few samples"


def half_text(ratio: Ratio) -> str:
    """Return half the interval of a ratio, such as `±0.04`."""
    half = (ratio.interval[1] - ratio.interval[0]) / 2 if ratio.interval else math.inf
    return "±?" if half == math.inf else f"±{'>99' if half > 99 else f'{half:.2f}'}"


def rankings(records: Iterable[Record], subject: RankingSubject = HALO) -> list[LibraryRanking]:
    """Return one ranking for each library, number of ranks, and grid or partner, in the order of the records."""
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
    results = []
    for (machine, library, where), points in groups.items():
        cells = {key: clearest(same) for key, same in points.items()}
        sizes = tuple(sorted({size for _, size in cells}))
        transport = transport_of(next(iter(cells.values())))
        protocols = tuple(dict.fromkeys(p for p, _ in cells))
        unsorted = LibraryRanking(machine, library, where, transport, protocols, sizes, cells, subject)
        order = tuple(sorted(unsorted.protocols, key=unsorted.over_lowest))
        results.append(replace(unsorted, protocols=order))
    return results


def ranks_of(record: Record) -> str:
    """Return the number of ranks as text, with their threads and the hosts if there are several."""
    count, threads, hosts = (record.conditions.get(key) for key in ("ranks", "threads", "hosts"))
    ranks = "ranks not recorded" if count is None else "1 rank" if count == 1 else f"{text_of(record, 'ranks')} ranks"
    threads_text = f" of {threads} threads" if threads not in {1, None} else ""
    return ranks + threads_text + (f", {hosts} hosts" if hosts not in {1, None} else "")


def transport_of(record: Record) -> str:
    """Return the transport of the messages, or that it was not recorded."""
    return str(record.conditions.get("transport", "transport not recorded"))


def clearest(same: Iterable[Record]) -> Record:
    """Return the clearest of several measurements of a point: an unflagged one with the narrowest interval."""
    return min(same, key=_uncertainty)


def _uncertainty(r: Record) -> tuple[bool, bool, float]:
    low, high = bounds(r)
    return bool(r.flags), r.bounds is None, (high - low) / r.value


def stretches(ranking: LibraryRanking) -> list[SizeRange]:
    """Split the common sizes into the fewest stretches in which one protocol wins or is equal at every size."""
    result: list[SizeRange] = []
    sizes: list[int] = []
    names: list[str] = []
    decided = True

    def close() -> None:
        def over(protocol: str) -> float:
            return math.prod(ranking.cells[protocol, s].value / ranking.lowest(s).value for s in sizes)

        order = sorted(names, key=over)
        winner = order.pop(0) if decided else ""
        result.append(SizeRange(sizes[0], sizes[-1], winner, tuple(order)))

    for size in ranking.common:
        verdict = ranking.ranked(size)
        is_decided = verdict.word != "inconclusive"
        shared_names = (
            [p for p in names if p in verdict.best] if is_decided else list(dict.fromkeys([*names, *verdict.best]))
        )
        if sizes and (is_decided != decided or (is_decided and not shared_names)):
            close()
            sizes, shared_names = [], list(verdict.best)
        names, decided = shared_names if sizes else list(verdict.best), is_decided
        sizes.append(size)
    if sizes:
        close()
    return result


def winner_lines(ranking: LibraryRanking) -> list[str]:
    """Describe each stretch, such as `from 256 words: persistent; equal: packed`, and what is not ranked."""
    parts, lines = stretches(ranking), []
    for i, s in enumerate(parts):
        where = _where(i, len(parts), s.first, s.last, HALO.size_text)
        names = ", ".join(s.others)
        if s.winner:
            lines.append(f"{where}: {s.winner}{f'; equal: {names}' if names else ''}")
        else:
            lines.append(f"{where}: inconclusive{f': {names}' if names else ''}")
    if unranked := [s for s in ranking.sizes if s not in ranking.common]:
        sizes = f"{HALO.size_text(unranked[0])}{' and others' if len(unranked) > 1 else ''}"
        lines.append(f"not ranked: {sizes}, where not every protocol was measured")
    return lines + _exclusions(ranking)


def _exclusions(ranking: LibraryRanking) -> list[str]:
    """Return the protocols that were not judged, with reasons, in at most one line."""
    counts: Counter[tuple[str, str]] = Counter()
    for size in ranking.common:
        for name, reason in ranking.ranked(size).excluded.items():
            counts[name, "too wide" if reason.startswith("±") else reason] += 1
    size_count, reasons = len(ranking.common), {reason for _, reason in counts}
    if len(reasons) == 1 and counts.total() == size_count * len(ranking.protocols):
        return [f"not judged: all protocols at every size ({reasons.pop()})"]
    texts = [f"{name} ({reason}, at {n} of {size_count} sizes)" for (name, reason), n in counts.items()]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return [f"not judged: {', '.join(texts[:_SHOWN])}{more}"] if texts else []


def _where(i: int, stretches: int, first: int, last: int, text: Callable[[int], str]) -> str:
    """Describe the sizes of the i-th stretch."""
    if stretches == 1:
        return "at every size"
    if first == last:
        return f"at {text(first)}"
    if i == 0:
        return f"up to {text(last)}"
    return f"from {text(first)}" if i == stretches - 1 else f"from {text(first)} to {text(last)}"


def comparisons(rankings: Sequence[LibraryRanking]) -> list[LibraryComparison]:
    """Compare pairs of libraries with the same number of ranks and grid, at the points that both have."""
    pairs = []
    for a, b in combinations(rankings, 2):
        if a.library == b.library or (a.machine, a.where, a.subject) != (b.machine, b.where, b.subject):
            continue
        ratios = {key: ratio_of(b.cells[key], a_record) for key, a_record in a.cells.items() if key in b.cells}
        if ratios:
            pairs.append(LibraryComparison(a, b, ratios))
    return pairs


def half_percent(record: Record) -> str:
    """Return half the interval relative to the median, such as `±1.2%`; `±?` without an interval."""
    low, high = bounds(record)
    if high == math.inf:
        return "±?"
    half = 50 * (high - low) / record.value
    return "±>999%" if half > 999 else f"±{half:.1f}%" if half < 9.95 else f"±{half:.0f}%"


# ------------------------------------------------------------------ tables


def ranking_sections(records: Iterable[Record]) -> list[TableSection]:
    """Return the times of halo protocols by size, with the winners; the best time of each size is marked."""
    return [_ranking_section(ranking) for ranking in rankings(records)]


def _ranking_section(ranking: LibraryRanking) -> TableSection:
    scales = {s: scale_for("s", ranking.lowest(s).value) for s in ranking.sizes}
    best = {s: ranking.best(s) for s in ranking.common}

    def cell(protocol: str, size: int) -> TextCell:
        r = ranking.cells.get((protocol, size))
        if r is None:
            return TextCell("–", "dim")
        text = f"{number(r.value / scales[size].factor)} {half_percent(r)}"
        return TextCell(text, "best" if r is best.get(size) else "", r.flags)

    head = ["protocol", "vs. lowest", *(f"{HALO.size_text(s)}\n{scales[s].symbol}" for s in ranking.sizes)]
    rows: list[Cells] = [
        [p, _relative_text(ranking, p), *(cell(p, s) for s in ranking.sizes)] for p in ranking.protocols
    ]
    return TableSection(
        f"{ranking.library}, {ranking.where}, {ranking.transport}",
        TextTable(head, rows, numbers=range(1, len(head))),
        about=f"{ranking.machine}: halo",
        notes=["median ± half its 95 % interval; * lowest that can be judged"],
        heading="fastest protocol",
        lines=winner_lines(ranking),
        summary=f"Ranking of {len(ranking.protocols)} protocols",
    )


def _relative_text(ranking: LibraryRanking, protocol: str) -> str:
    ratio = ranking.over_lowest(protocol)
    return "–" if math.isnan(ratio) else f"{ratio:.2f}"


def comparison_sections(records: Iterable[Record], subject: RankingSubject) -> list[TableSection]:
    """Return the ratios of each pair of libraries, and which library is faster at which sizes."""
    return [_ratio_section(pair) for pair in comparisons(rankings(records, subject))]


def _ratio_section(pair: LibraryComparison) -> TableSection:
    a, b, ratios = pair
    sizes = sorted({s for _, s in ratios})

    def cell(ratio: Ratio | None) -> TextCell:
        if ratio is None:
            return TextCell("–", "dim")
        emphasis: Emphasis = "bold" if ratio.differs else "dim"
        return TextCell(f"{ratio.value:.2f} {half_text(ratio)}", emphasis, hint=interval_text(ratio))

    rows: list[Cells] = [[name, *(cell(by_size.get(s)) for s in sizes)] for name, by_size in pair.lines.items()]
    words = Counter(r.word for r in ratios.values())
    return TableSection(
        f"{b.library} relative to {a.library}, {a.where}",
        TextTable(
            [", ".join(a.subject.names), *map(a.subject.size_text, sizes)], rows, numbers=range(1, len(sizes) + 1)
        ),
        notes=[
            "ratio of times ± half its interval; differences in bold",
            f"{b.library} is slower in {words['higher']} of {len(ratios)}, faster in {words['lower']}; "
            f"equal in {words['equal']}, inconclusive in {words['inconclusive']}",
            run_order_note(pair),
        ],
        heading="faster library",
        lines=[f"{name}: {'; '.join(pair.faster(by_size))}" for name, by_size in pair.lines.items()],
        summary="Ratios of times",
    )


def run_order_note(pair: LibraryComparison) -> str:
    """Explain how far the order of the runs affects the comparison."""
    if not pair.alternated:
        return "measured one library after the other: changes of the machine in between appear as differences"
    single = len(pair.ratios) - pair.alternated
    remark = f"; {single} of {len(pair.ratios)} compare a single run of a library" if single else ""
    return f"measured in several alternating runs of each library; intervals include the variation between runs{remark}"
