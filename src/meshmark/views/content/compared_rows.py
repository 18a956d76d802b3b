"""Lays out compared results as rows: each result of A beside the results of the other sides.

Terminals, pages and Markdown show these rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

from meshmark.compare.join import MetricMean, ResultComparison, ResultPair
from meshmark.compare.pairing import identity
from meshmark.compare.sides import ResultSide
from meshmark.errors import UsageError
from meshmark.measure.repetitions import point_key
from meshmark.store.record import Record, varying
from meshmark.values.units import ratio_text, scale_for, show
from meshmark.views.content.listing import conditions_text, in_order, shown, title
from meshmark.views.content.selection import modes_of, modes_texts
from meshmark.views.tables import Cells, Emphasis, TextCell, TextTable, ratio_dot

LETTERS: Final = ascii_uppercase
MOST_SIDES: Final = len(LETTERS)
LEGEND: Final = "?: inconclusive; –: not comparable, or no result of this kind"
_SHORT: Final = {"inconclusive": "?", "not comparable": "–"}  # in the columns of tables of several sides
_NAMES: Final = {
    ("latency", "load_latency"): "latency of caches and memory",
    ("latency", "level_latency"): "latency of each level",
    ("latency", "level_capacity"): "capacity of each level",
    ("bandwidth", "bandwidth_net"): "bandwidth",
    ("loaded", "load_latency"): "latency under load",
    ("loaded", "bandwidth_net"): "bandwidth under load",
    ("lines", "line_latency"): "transfers of cache lines between cores",
    ("gups", "update_rate"): "random updates",
    ("clock", "core_frequency"): "clock of the cores",
    ("pingpong", "message_latency"): "latency of messages",
    ("pingpong", "bandwidth_net"): "bandwidth of messages",
    ("io", "bandwidth_net"): "bandwidth of files",
    ("io", "operation_latency"): "latency of files",
    ("peak", "flop_rate"): "peak rate of floating-point operations",
    ("dgemm", "flop_rate"): "matrix multiplication",
}


@dataclass(frozen=True, slots=True)
class ComparisonCell:
    """The result of a side beside the result of A.

    Attributes:
        reason: The reason why there is no verdict or no firmer verdict; "" if there is nothing to say.
        better: Whether the result is shown to be better than that of A; None if it is neither better nor worse.
        at: Ratio and interval, for a plot; None if there is no ratio.
    """

    value: str
    ratio: str
    interval: str
    word: str
    reason: str
    better: bool | None
    at: tuple[float, tuple[float, float] | None] | None = None


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A result of A and the results that it is compared with.

    Attributes:
        point: Conditions in which the results of the block differ; with two sides, also the conditions in which A and B
            differ.
        cells: One cell for each other side; None if the side has no result of this kind.
    """

    point: str
    a: str
    cells: Sequence[ComparisonCell | None]


@dataclass(frozen=True, slots=True)
class ComparisonBlock:
    """The compared results of a metric.

    Attributes:
        common: Conditions that the points share.
        means: The geometric mean of the ratios of each other side, as text; "" for a single pair.
        left_out: Number of rows that were left out because all their results are equal.
    """

    instrument: str
    metric: str
    common: str
    means: Sequence[str]
    lines: Sequence[ComparisonRow]
    left_out: int = 0

    @property
    def name(self) -> str:
        """Return the heading of the block, such as `Memory latency`."""
        name = _NAMES.get((self.instrument, self.metric), named(self.instrument, self.metric).replace("_", " "))
        return name[:1].upper() + name[1:]


def sides_of(comparisons: Sequence[ResultComparison]) -> list[tuple[str, ResultSide]]:
    """Return A and the sides that it is compared with, by their letters."""
    return list(zip(LETTERS, [comparisons[0].a, *(c.b for c in comparisons)], strict=False))


def check_number(sides: int) -> None:
    """Check the number of sides.

    Raises:
        UsageError: There are fewer than two sides, or more sides than letters.
    """
    if not 2 <= sides <= MOST_SIDES:
        raise UsageError(f"compare: found {sides} side{'s' * (sides != 1)}; allowed: 2 to {MOST_SIDES}")


def blocks(comparisons: Sequence[ResultComparison], *, with_equal: bool = True) -> list[ComparisonBlock]:
    """Return the compared results by instrument and metric, in the order of the results.

    Args:
        comparisons: The comparisons of A with each of the other sides.
        with_equal: Include rows all of whose results are equal.
    """
    groups: dict[tuple[str, str], dict[str, list[ResultPair | None]]] = {}
    for i, c in enumerate(comparisons):
        for n, p in enumerate(c.pairs):
            rows = groups.setdefault((p.a.instrument, p.a.metric), {})
            rows.setdefault(_row_key(p, n, len(comparisons)), [None] * len(comparisons))[i] = p
    means = [{(m.instrument, m.metric): m for m in c.means()} for c in comparisons]
    return [
        _block(comparisons, *name, [*rows.values()], [m.get(name) for m in means], with_equal)
        for name, rows in groups.items()
    ]


def _row_key(p: ResultPair, number: int, comparisons: int) -> str:
    """Return the key of a row.

    Results of the other sides that are compared with the same result of A share a row, unless one of them has the same
    number of threads and the other has not: all threads of two and two threads of sixteen are two rows.
    """
    return str(number) if comparisons == 1 else f"{point_key(p.a)} {p.a.value} {'threads' in p.differ}"


def _block(
    comparisons: Sequence[ResultComparison],
    instrument: str,
    metric: str,
    rows: Sequence[Sequence[ResultPair | None]],
    means: Sequence[MetricMean | None],
    with_equal: bool,
) -> ComparisonBlock:
    first = [next(p for p in row if p is not None) for row in rows]
    a_records = [p.a for p in first]
    keys = list(dict.fromkeys(k for r in a_records for k in identity(r)))
    keys = [k for k in keys if k != "cpus" or "threads" not in keys]  # implied by the number of threads
    columns = varying(keys, a_records)
    common = conditions_text(
        [k for k in keys if k not in columns and a_records[0].conditions.get(k) is not None], a_records[0]
    )
    listed = [i for i, row in enumerate(rows) if with_equal or any(p and p.word != "equal" for p in row)]
    order = sorted(listed, key=lambda i: [in_order(a_records[i].conditions.get(k)) for k in columns])
    return ComparisonBlock(
        instrument,
        metric,
        common,
        [mean_text(mean) if mean is not None and mean.pairs > 1 else "" for mean in means],
        [_line(comparisons, rows[i], first[i], columns) for i in order],
        len(rows) - len(listed),
    )


def _line(
    comparisons: Sequence[ResultComparison], row: Sequence[ResultPair | None], first: ResultPair, columns: Sequence[str]
) -> ComparisonRow:
    cells = [None if p is None else _cell(c, p) for c, p in zip(comparisons, row, strict=True)]
    return ComparisonRow(_point(first, columns, len(row) == 1), _value(comparisons[0].a, first.a), cells)


def _point(p: ResultPair, columns: Sequence[str], two_sides: bool) -> str:
    differing = [k for k in p.differ if k != "cpus" or "threads" not in p.differ] if two_sides else []
    present = [k for k in columns if k not in differing and p.a.conditions.get(k) is not None]
    differences = [
        f"{title(k)} {shown(k, p.a.conditions.get(k))} | {shown(k, p.b.conditions.get(k))}" for k in differing
    ]
    point = [conditions_text(present, p.a), *differences] if present else differences
    if p.kind and (not point or p.a.source != p.b.source):  # sources state different conditions
        point = [p.kind, *point]
    return ", ".join(point)


def _cell(c: ResultComparison, p: ResultPair) -> ComparisonCell:
    has_ratio = p.ratio is not None and math.isfinite(p.ratio.value)
    return ComparisonCell(
        value=_value(c.b, p.b, p.a),
        ratio=ratio_text(p.ratio.value) if p.ratio is not None and has_ratio else "–",
        interval=interval_text(p.ratio.interval if p.ratio else None),
        word=p.word,
        reason=p.reason,
        better=None if p.word in {"equal", "inconclusive", "not comparable"} or p.a.better == "none" else not p.worse,
        at=(p.ratio.value, p.ratio.interval) if p.ratio is not None and has_ratio and p.ratio.value > 0 else None,
    )


def _value(side: ResultSide, record: Record, scaled_as: Record | None = None) -> str:
    """Return the value of a record, or the values of its modes, as text."""
    if modes := modes_of(side.records, record):
        return modes_texts(modes)[0]
    scale = scale_for(record.unit, (scaled_as or record).value)
    return show(record.value, record.unit, scale)


def compared_table(lines: Sequence[ComparisonRow], axis: tuple[float, float] | None = None) -> TextTable:
    """Return a table of results of A and the other sides, with ratios and verdicts.

    Args:
        lines: Rows, at least one.
        axis: Range of the axis on which pages draw the ratios of two sides; None: they are not drawn.
    """
    others = LETTERS[1 : len(lines[0].cells) + 1]
    if len(others) > 1:
        head = ["point", "A", *(name for letter in others for name in (letter, "over A"))]
        rows: list[Cells] = [
            [line.point or "–", line.a, *(part for cell in line.cells for part in _of_several(cell))] for line in lines
        ]
        return TextTable(head, rows, numbers=(1, *range(2, len(head), 2)), folds=[0])
    ends = " to ".join(map(ratio_text, axis)) if axis else ""
    rows = [
        [
            *(line.point or "–", line.a, cell.value, cell.ratio, cell.interval),
            TextCell("", dot=ratio_dot(*cell.at, *axis) if axis and cell.at else None),
            TextCell(cell.word, verdict_emphasis(cell.better)),
            TextCell(cell.reason, "dim"),
        ]
        for line in lines
        for cell in line.cells
        if cell
    ]
    head = ["point", "A", "B", "B over A", "95 %", ends, "B is", "because"]
    return TextTable(head, rows, numbers=range(1, 5), folds=(0, 7))


def _of_several(cell: ComparisonCell | None) -> tuple[str, TextCell | str]:
    if cell is None:
        return "–", ""
    text = f"{cell.ratio} {_SHORT.get(cell.word, cell.word)}"
    return cell.value, TextCell(text, verdict_emphasis(cell.better), hint=cell.interval)


def verdict_emphasis(better: bool | None) -> Emphasis:
    """Return how a verdict is shown that is better, worse or neither (None)."""
    return "verdict" if better is None else "good" if better else "bad"


def mean_text(mean: MetricMean) -> str:
    """Return a mean as text: `1.07 (1.05 – 1.09), geometric mean of 12`."""
    more = f", {text}" if (text := remark(mean)) else ""
    bounds = f" ({interval_text(mean.interval)})" if mean.interval else ""
    return f"{ratio_text(mean.value)}{bounds}, geometric mean of {mean.pairs}{more}"


def remark(mean: MetricMean) -> str:
    """Return the doubts about a mean: `3 doubtful, 2 not comparable`; "" if all pairs have a reliable ratio."""
    doubtful = f"{mean.doubtful} doubtful" if mean.doubtful else ""
    left_out = f"{mean.left_out} not comparable" if mean.left_out else ""
    return ", ".join(text for text in (doubtful, left_out) if text)


def interval_text(interval: tuple[float, float] | None) -> str:
    """Return the interval of a ratio as text; "–" without an interval."""
    return " – ".join(map(ratio_text, interval)) if interval else "–"


def named(instrument: str, metric: str) -> str:
    """Return the name of an instrument's metric, without the instrument if the metric already names it."""
    return metric if metric.startswith(instrument) else f"{instrument} {metric}"
