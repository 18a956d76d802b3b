"""How the classes of a fleet went over time: the middle of each metric, where it changed, and what changed in the
configuration of the nodes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from meshmark.fleet.arrays import Array
from meshmark.fleet.estimates import nan_median
from meshmark.fleet.folder import Fleet
from meshmark.fleet.values import Matrix, Point, query, read_matrix
from meshmark.values.changepoints import Split, splits

_SMALLEST: Final = 0.01  # relative change of a class that is worth a line
_RATE: Final = 0.05  # probability of any false change in a metric of a class
_THREADS: Final = 2  # campaigns that are read at once


@dataclass(frozen=True, slots=True)
class Trend:
    """A class over the campaigns.

    Attributes:
        nodes: Names of its members.
        centre: Medians of its nodes in the unit of the point, shape (campaigns, points). NaN: not measured.
        spread: Half of the range of the middle half of the nodes, relative to the centre.
        counts: Nodes with values, by campaign.
    """

    nodes: Sequence[str]
    points: list[Point]
    centre: Array
    spread: Array
    counts: list[int]


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the level of a class.

    Attributes:
        by: Relative change of the value, such as -0.05.
        worse: Whether it is one to the worse.
        at: Index of the first campaign after it.
        p: Of such a change without a cause, over all metrics of the class.
    """

    point: Point
    by: float
    worse: bool
    at: int
    p: float


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact that became that of most nodes of a class.

    Attributes:
        at: Index of the first campaign with it.
        nodes, of: How many nodes have it then, of how many.
    """

    fact: str
    before: str
    after: str
    at: int
    nodes: int
    of: int


def trends(fleet: Fleet, cluster: str, campaigns: Sequence[str], members: Sequence[Sequence[str]]) -> list[Trend]:
    """The trend of each class.

    Args:
        campaigns: Oldest first.
        members: Names of the nodes of each class.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    import numpy as np

    with ThreadPoolExecutor(_THREADS) as threads:
        found = list(threads.map(lambda name: _middles(read_matrix(fleet, name, cluster), members), campaigns))
    made = []
    for i, nodes in enumerate(members):
        points = {p.key: p for of in found for p in of[i].points}
        at = {key: n for n, key in enumerate(points)}
        centre, spread = (np.full((len(campaigns), len(points)), np.nan) for _ in range(2))
        for row, of in enumerate(found):
            columns = [at[p.key] for p in of[i].points]
            centre[row, columns], spread[row, columns] = of[i].centre, of[i].spread
        made.append(Trend(nodes, list(points.values()), centre, spread, [of[i].count for of in found]))
    return made


@dataclass(frozen=True, slots=True)
class _Middle:
    """A class in one campaign."""

    points: list[Point]
    centre: Array
    spread: Array
    count: int


def _middles(matrix: Matrix, members: Sequence[Sequence[str]]) -> list[_Middle]:
    import numpy as np

    at = {name: i for i, name in enumerate(matrix.nodes)}
    points, values = own_values(matrix)
    made = []
    for nodes in members:
        chosen = values[:, [at[n] for n in nodes if n in at]]
        ordered = np.sort(chosen, axis=1)  # NaN last
        known = (~np.isnan(chosen)).sum(axis=1)
        kept = known > 0
        quarter, middle, three = (
            np.take_along_axis(ordered, (share * np.maximum(known - 1, 0) + 0.5).astype(int)[:, None], 1)[kept, 0]
            for share in (0.25, 0.5, 0.75)
        )
        count = int(known.max(initial=0))
        made.append(
            _Middle([p for p, k in zip(points, kept, strict=True) if k], middle, (three - quarter) / 2 / middle, count)
        )
    return made


def own_values(matrix: Matrix) -> tuple[list[Point], Array]:
    """One value of each node for each point: the median of its repetitions, shape (points, nodes)."""
    import numpy as np

    points = {p.key: p for p in matrix.points}
    if len(points) == len(matrix.points):
        return list(points.values()), matrix.values.astype(float)
    keys = np.array([p.key for p in matrix.points])
    rows = [nan_median(matrix.values[keys == key], axis=0) for key in points]
    return list(points.values()), np.array(rows).reshape(len(points), len(matrix.nodes))


def steps(trend: Trend) -> list[Step]:
    """The changes of level of a class that are clear and larger than 1 %, oldest first."""
    import numpy as np

    found = []
    for point, centre in zip(trend.points, trend.centre.T, strict=True):
        known = np.flatnonzero(~np.isnan(centre))
        cuts, levels = _levels(centre[known])
        for cut, (before, after) in zip(cuts, pairwise(levels), strict=True):
            by, p = after / before - 1, min(1.0, cut.p * len(trend.points))
            if p <= _RATE and abs(by) >= _SMALLEST:
                found.append(Step(point, by, (by > 0) == (point.sign > 0), int(known[cut.at]), p))
    return sorted(found, key=lambda s: (s.at, -abs(s.by)))


def new_facts(
    fleet: Fleet, cluster: str, campaigns: Sequence[str], members: Sequence[Sequence[str]]
) -> list[list[NewFact]]:
    """For each class, which facts of most of its nodes changed, oldest first."""
    import pyarrow as pa

    of = pa.table(
        {
            "node": [n for nodes in members for n in nodes],
            "class": pa.array([i for i, nodes in enumerate(members) for _ in nodes], pa.int32()),
        }
    )
    text = """SELECT class, campaign, facts, count(DISTINCT node) AS nodes
              FROM read_parquet(?) JOIN members USING (node) WHERE facts <> '{}' GROUP BY ALL"""
    table = query(fleet, "nodes", campaigns, cluster, text, tables={"members": of})
    if table is None:
        return [[] for _ in members]
    rows = table.to_pylist()
    parsed: dict[str, Mapping[str, str]] = {text: json.loads(text) for text in {row["facts"] for row in rows}}
    order = {name: i for i, name in enumerate(campaigns)}
    made = []
    for i in range(len(members)):
        by_campaign: dict[int, dict[str, Counter[str]]] = {}
        for row in rows:
            if row["class"] == i:
                counts = by_campaign.setdefault(order[row["campaign"]], {})
                for fact, text in parsed[row["facts"]].items():
                    counts.setdefault(fact, Counter())[text] += row["nodes"]
        made.append(_new(by_campaign))
    return made


def _new(by_campaign: Mapping[int, Mapping[str, Counter[str]]]) -> list[NewFact]:
    found = []
    last: dict[str, str] = {}
    for at in sorted(by_campaign):
        for fact, counts in by_campaign[at].items():
            value, nodes = counts.most_common(1)[0]
            of = counts.total()
            if 2 * nodes <= of:
                continue
            if last.setdefault(fact, value) != value:
                found.append(NewFact(fact, last[fact], value, at, nodes, of))
                last[fact] = value
    return found


def worse_since(
    fleet: Fleet, cluster: str, campaigns: Sequence[str], cases: Mapping[str, tuple[str, Sequence[str]]]
) -> dict[str, str]:
    """For each node the first campaign in which it was worse than its class, as it is now; "": in all of them.

    Args:
        cases: For each node the key of a point and the names of its class.
    """
    import numpy as np

    series: dict[str, list[tuple[str, float]]] = {node: [] for node in cases}
    for name in campaigns:
        matrix = read_matrix(fleet, name, cluster)
        at = {n: i for i, n in enumerate(matrix.nodes)}
        points, values = own_values(matrix)
        row_of = {p.key: i for i, p in enumerate(points)}
        for node, (key, members) in cases.items():
            if node in at and key in row_of:
                row = values[row_of[key]]
                centre = float(np.nanmedian(row[[at[m] for m in members if m in at]]))
                away = (row[at[node]] / centre) ** points[row_of[key]].sign
                if not np.isnan(away):
                    series[node].append((name, float(away)))
    found = {}
    for node, seen in series.items():
        cuts, levels = _levels([away for _, away in seen])
        worse = [cut.at for cut, (before, after) in zip(cuts, pairwise(levels), strict=True) if after > before]
        found[node] = seen[worse[-1]][0] if worse else ""
    return found


def _levels(values: Sequence[float] | Array) -> tuple[list[Split], list[float]]:
    """Where the level of a series changes, and the levels between."""
    import numpy as np

    cuts = splits(values)
    edges = [0, *(cut.at for cut in cuts), len(values)]
    return cuts, [float(np.median(values[a:b])) if a < b else math.nan for a, b in pairwise(edges)]
