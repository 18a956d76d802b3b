"""States who used whose memory, and which components a recording used, as sentences and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.values.units import counted, number, percent, plain
from meshmark.views.tables import TableSection, TextCell, TextTable
from meshmark.watch.traffic.coverage import LIMIT, ClassCoverage, Coverage
from meshmark.watch.traffic.matrix import COUNTED, ESTIMATED, REBUILT, TrafficMatrix, grouped

Floats = NDArray[np.float64]

_MOST_GROUPS: Final = 16  # rows of the matrix; more nodes are added up in groups
_PAIRS: Final = 8  # pairs that are listed
_COMPONENTS: Final = 12  # components that are listed
_SHADES: Final = " ░▒▓█"
_SMALLEST_SHARE: Final = 1e-5  # below, a share is shown as 0
_WIDE: Final = 0.1  # width of the bounds of the remote share from which loads do not determine it
_ORIGIN: Final = {
    COUNTED: "counted",
    REBUILT: "rebuilt from the loads of memories and links",
    ESTIMATED: "estimated from where threads ran and where pages are",
}
_PLURALS: Final = {"cpu": "CPUs", "memory": "memories", "link": "links", "io": "I/O devices"}


def traffic_sentence(matrix: TrafficMatrix) -> str:
    """Return the share of remote traffic, with its bounds and its source."""
    if matrix.total <= 0:
        return f"No memory traffic ({_ORIGIN[matrix.source]})."
    remote = matrix.remote
    amount = f"{plain(matrix.total / matrix.seconds, 'B/s', 3)} of memory traffic" if matrix.unit == "B" else "accesses"
    is_exact = remote.low == remote.high
    text = f"{_share(remote.value)} of the {amount} {'is' if matrix.unit == 'B' else 'are'} remote"
    text += "" if is_exact else f" (bounds: {_share(remote.low)} to {_share(remote.high)})"
    text += f", {_ORIGIN[matrix.source]}; local to remote: {_ratio(remote.value)}"
    text += "" if is_exact else f" ({_ratio(remote.high)} to {_ratio(remote.low)})"
    if matrix.source == REBUILT and remote.high - remote.low > _WIDE:
        text += ". These loads do not determine the matrix: the most even one is shown"
    return f"{text}."


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"


def _ratio(remote: float) -> str:
    if remote < _SMALLEST_SHARE:
        return "all local"
    return "0" if 1 - remote < _SMALLEST_SHARE else number((1 - remote) / remote)


def traffic_sections(matrix: TrafficMatrix) -> list[TableSection]:
    """Return the matrix as a heat table, and its largest pairs with their bounds."""
    if matrix.total <= 0:
        return [TableSection("traffic between nodes", notes=matrix.notes)]
    groups = _groups(len(matrix.nodes))
    shares = grouped(matrix.value, groups) / matrix.total
    names = [_group_name(matrix.nodes, g) for g in groups]
    top = float(shares.max())
    rows: list[list[TextCell | str]] = [
        [f"CPUs of {name}", *(_heat(v, top) for v in row), f"{100 * row.sum():.1f}"]
        for name, row in zip(names, shares, strict=True)
    ]
    rows.append(["all", *(f"{100 * v:.1f}" for v in shares.sum(axis=0)), "100.0"])
    table = TextTable(["", *(f"mem {n}" for n in names), "all"], rows, numbers=range(1, len(names) + 2))
    unit = "traffic" if matrix.unit == "B" else "accesses"
    notes = [f"% of all {unit}: from the CPUs of a node (row) to the memory of a node (column)"]
    if len(groups) < len(matrix.nodes):
        notes.append(f"{len(matrix.nodes)} nodes in {len(groups)} groups; --json and --csv have every pair")
    return [
        TableSection("traffic between nodes", table, notes=[*notes, *matrix.notes]),
        _largest(matrix),
    ]


def _groups(nodes: int) -> list[range]:
    width = math.ceil(nodes / _MOST_GROUPS)
    return [range(begin, min(begin + width, nodes)) for begin in range(0, nodes, width)]


def _group_name(nodes: Sequence[str], group: range) -> str:
    return nodes[group[0]] if len(group) == 1 else f"{nodes[group[0]]}-{nodes[group[-1]]}"


def _heat(share: float, top: float) -> TextCell:
    shade = _SHADES[min(4, math.ceil(4 * share / top))] if share > 0 else " "
    return TextCell(f"{100 * share:.1f}{shade}", "dim" if share < 5e-4 else "")


def _largest(matrix: TrafficMatrix) -> TableSection:
    """Return the pairs with the largest traffic."""
    order = np.argsort(matrix.value, axis=None)[::-1][:_PAIRS]
    is_exact = matrix.source == COUNTED
    rows = []
    for i, j in (np.unravel_index(k, matrix.value.shape) for k in order):
        value, low, high = (float(m[i, j]) for m in (matrix.value, matrix.low, matrix.high))
        if value <= 0:
            break
        rate = plain(value / matrix.seconds, "B/s", 3) if matrix.unit == "B" else ""
        bounds = "" if is_exact else f"{_share(low / matrix.total)} to {_share(high / matrix.total)}"
        rows.append([matrix.nodes[i], matrix.nodes[j], rate, _share(value / matrix.total), bounds])
    head = ["CPUs of node", "memory of node", "rate", "share", "bounds"]
    return TableSection("largest pairs", TextTable(head, rows, numbers=(2, 3)))


def coverage_sentence(coverage: Coverage) -> str:
    """Return how many components were used, and how many reached their maximum."""
    if not coverage.frames:
        return "The recording has no frames."
    classes = [c for c in coverage.classes if c.components]
    if not classes:
        return "No component has a known use."
    saturated = _joined([f"{c.saturated} of {_named(c)}" for c in classes])
    used = _joined([f"{c.used} of {_named(c)}" for c in classes])
    is_all = all(c.saturated == len(c.components) and not c.unknown for c in coverage.classes)
    verdict = "Every component reaches" if is_all else "Not every component reaches"
    return (
        f"The recorded work drives {saturated} to at least {percent(LIMIT)} of their maximum, and uses {used}. "
        f"{verdict} saturation."
    ).replace("\u00a0", " ")


def _named(c: ClassCoverage) -> str:
    return f"{len(c.components) + c.unknown} {_PLURALS[c.component_class]}"


def _joined(texts: Sequence[str]) -> str:
    return ", ".join(texts[:-1]) + (" and " if len(texts) > 1 else "") + texts[-1]


def coverage_sections(coverage: Coverage) -> list[TableSection]:
    """Return a table of classes, and one of the components with the highest peaks."""
    rows = []
    for c in coverage.classes:
        peaks = sorted(u.peak for u in c.components)
        means = [u.mean for u in c.components]
        known = [*map(percent, (float(np.mean(means)), peaks[0], peaks[-1]))] if peaks else ["–", "–", "–"]
        rows.append(
            [
                _PLURALS[c.component_class],
                str(len(c.components) + c.unknown),
                str(c.used) if peaks else "–",
                *known,
                str(c.saturated) if peaks else "–",
                c.maximum + (" (use is estimated)" if c.is_estimated else ""),
            ]
        )
    head = ["class", "number", "used", "mean", "lowest peak", "highest peak", f"≥ {percent(LIMIT)}", "of the maximum"]
    title = f"use of components, {counted(coverage.frames, 'frame')}, {plain(coverage.seconds, 's', 3)}"
    first = TableSection(title, TextTable(head, rows, numbers=range(1, 7)), notes=list(_coverage_notes(coverage)))
    return [first, _highest(coverage)]


def _coverage_notes(coverage: Coverage) -> Iterator[str]:
    yield "mean, peak: shares of the maximum; a peak is the highest frame"
    for c in coverage.classes:
        if c.unknown:
            yield f"{c.unknown} of {_named(c)} unknown: {c.why_unknown}"
        if c.quiet and c.components:
            yield f"{_PLURALS[c.component_class]}: used means a peak of at least {percent(c.quiet)}"


def _highest(coverage: Coverage) -> TableSection:
    uses = [(c, u) for c in coverage.classes for u in c.components if u.peak > 0]
    uses.sort(key=lambda pair: (-pair[1].at_limit, -pair[1].mean, -pair[1].peak))
    rows = [
        [f"{c.component_class} {u.name}", percent(u.mean), percent(u.peak), percent(u.at_limit)]
        for c, u in uses[:_COMPONENTS]
    ]
    notes = [f"{len(uses) - len(rows)} more: --json and --csv have all"] if len(uses) > len(rows) else []
    head = ["component", "mean", "peak", f"time at ≥ {percent(LIMIT)}"]
    return TableSection("busiest components", TextTable(head, rows, numbers=(1, 2, 3)), notes=notes)
