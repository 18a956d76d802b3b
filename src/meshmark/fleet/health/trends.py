"""Trends of the classes of a fleet: medians of metrics over time, their changes, and changes of the configuration."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from meshmark.fleet.data.values import CampaignValues, FleetPoint, query, read_matrix
from meshmark.fleet.folder import Fleet
from meshmark.statistics.arrays import Array
from meshmark.statistics.changepoints import LevelSplit, splits
from meshmark.statistics.estimates import nan_median
from meshmark.values.arrow import rows_of, table_of

_SMALLEST: Final = 0.01  # least relative change of a class that is reported
_RATE: Final = 0.05  # probability of a false change in any metric of a class
_THREADS: Final = 2  # campaigns that are read at once


@dataclass(frozen=True, slots=True)
class Trend:
    """The values of a class over the campaigns.

    Attributes:
        nodes: Names of its members.
        centre: Medians of its nodes in the unit of the point, shape (campaigns, points). NaN: not measured.
        spread: Half of the interquartile range of the nodes, relative to the centre, shape (campaigns, points).
        counts: Number of nodes with values, by campaign.
    """

    nodes: Sequence[str]
    points: list[FleetPoint]
    centre: Array
    spread: Array
    counts: list[int]


@dataclass(frozen=True, slots=True)
class ClassLevelChange:
    """A change of the level of a class.

    Attributes:
        by: Relative change of the value, such as -0.05.
        worse: Whether the new level is worse.
        at: Index of the first campaign after the change.
        p: Probability of such a change without a cause, corrected for the metrics of the class.
    """

    point: FleetPoint
    by: float
    worse: bool
    at: int
    p: float


@dataclass(frozen=True, slots=True)
class NewFact:
    """A new value of a fact for most nodes of a class.

    Attributes:
        at: Index of the first campaign with the new value.
        nodes, of: Number of nodes with the new value in this campaign, and number of all nodes with the fact.
    """

    fact: str
    before: str
    after: str
    at: int
    nodes: int
    of: int


def trends(fleet: Fleet, cluster: str, campaigns: Sequence[str], members: Sequence[Sequence[str]]) -> list[Trend]:
    """Return the trend of each class.

    Args:
        fleet: Folder of the fleet.
        cluster: Name of the cluster.
        campaigns: Names of campaigns, oldest first.
        members: Names of the nodes of each class.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    import numpy as np

    with ThreadPoolExecutor(_THREADS) as threads:
        middles_by_campaign = list(
            threads.map(lambda name: _middles(read_matrix(fleet, name, cluster), members), campaigns)
        )
    result = []
    for i, nodes in enumerate(members):
        points = {p.key: p for middles in middles_by_campaign for p in middles[i].points}
        column_by_key = {key: n for n, key in enumerate(points)}
        centre, spread = (np.full((len(campaigns), len(points)), np.nan) for _ in range(2))
        for row, middles in enumerate(middles_by_campaign):
            columns = [column_by_key[p.key] for p in middles[i].points]
            centre[row, columns], spread[row, columns] = middles[i].centre, middles[i].spread
        result.append(
            Trend(nodes, list(points.values()), centre, spread, [middles[i].count for middles in middles_by_campaign])
        )
    return result


@dataclass(frozen=True, slots=True)
class _ClassMedians:
    """The values of a class in one campaign."""

    points: list[FleetPoint]
    centre: Array
    spread: Array
    count: int


def _middles(matrix: CampaignValues, members: Sequence[Sequence[str]]) -> list[_ClassMedians]:
    import numpy as np

    index = {name: i for i, name in enumerate(matrix.nodes)}
    points, values = own_values(matrix)
    middles = []
    for nodes in members:
        chosen = values[:, [index[n] for n in nodes if n in index]]
        ordered = np.sort(chosen, axis=1)  # NaN last
        counts = (~np.isnan(chosen)).sum(axis=1)
        is_known = counts > 0
        quarter, middle, three_quarters = (
            np.take_along_axis(ordered, (share * np.maximum(counts - 1, 0) + 0.5).astype(int)[:, None], 1)[is_known, 0]
            for share in (0.25, 0.5, 0.75)
        )
        count = int(counts.max(initial=0))
        middles.append(
            _ClassMedians(
                [p for p, k in zip(points, is_known, strict=True) if k],
                middle,
                (three_quarters - quarter) / 2 / middle,
                count,
            )
        )
    return middles


def own_values(matrix: CampaignValues) -> tuple[list[FleetPoint], Array]:
    """Return the points, and the median of the repetitions for each node, shape (points, nodes)."""
    import numpy as np

    points = {p.key: p for p in matrix.points}
    if len(points) == len(matrix.points):
        return list(points.values()), matrix.values.astype(float)
    keys = np.array([p.key for p in matrix.points])
    rows = [nan_median(matrix.values[keys == key], axis=0) for key in points]
    return list(points.values()), np.array(rows).reshape(len(points), len(matrix.nodes))


def steps(trend: Trend) -> list[ClassLevelChange]:
    """Return the changes of the level of a class that are significant and at least 1 %, oldest first."""
    import numpy as np

    result = []
    for point, centre in zip(trend.points, trend.centre.T, strict=True):
        measured = np.flatnonzero(~np.isnan(centre))
        cuts, levels = _levels(centre[measured])
        for cut, (before, after) in zip(cuts, pairwise(levels), strict=True):
            by, p = after / before - 1, min(1.0, cut.p * len(trend.points))
            if p <= _RATE and abs(by) >= _SMALLEST:
                result.append(ClassLevelChange(point, by, (by > 0) == (point.sign > 0), int(measured[cut.at]), p))
    return sorted(result, key=lambda s: (s.at, -abs(s.by)))


def new_facts(
    fleet: Fleet, cluster: str, campaigns: Sequence[str], members: Sequence[Sequence[str]]
) -> list[list[NewFact]]:
    """Return for each class the facts that changed on most of its nodes, oldest first."""
    member_rows = [{"node": node, "class": i} for i, nodes in enumerate(members) for node in nodes]
    member_table = table_of(member_rows, {"node": "VARCHAR", "class": "INTEGER"})
    text = """SELECT class, campaign, facts, count(DISTINCT node) AS nodes
              FROM read_parquet(?) JOIN members USING (node) WHERE facts <> '{}' GROUP BY ALL"""
    table = query(fleet, "nodes", campaigns, cluster, text, tables={"members": member_table})
    if table is None:
        return [[] for _ in members]
    rows = rows_of(table)
    parsed: dict[str, Mapping[str, str]] = {text: json.loads(text) for text in {row["facts"] for row in rows}}
    order = {name: i for i, name in enumerate(campaigns)}
    facts_by_class = []
    for i in range(len(members)):
        by_campaign: dict[int, dict[str, Counter[str]]] = {}
        for row in rows:
            if row["class"] == i:
                counts = by_campaign.setdefault(order[row["campaign"]], {})
                for fact, text in parsed[row["facts"]].items():
                    counts.setdefault(fact, Counter())[text] += row["nodes"]
        facts_by_class.append(_new(by_campaign))
    return facts_by_class


def _new(by_campaign: Mapping[int, Mapping[str, Counter[str]]]) -> list[NewFact]:
    facts = []
    last: dict[str, str] = {}
    for campaign_index in sorted(by_campaign):
        for fact, counts in by_campaign[campaign_index].items():
            value, nodes = counts.most_common(1)[0]
            total = counts.total()
            if 2 * nodes <= total:
                continue
            if last.setdefault(fact, value) != value:
                facts.append(NewFact(fact, last[fact], value, campaign_index, nodes, total))
                last[fact] = value
    return facts


def worse_since(
    fleet: Fleet, cluster: str, campaigns: Sequence[str], cases: Mapping[str, tuple[str, Sequence[str]]]
) -> dict[str, str]:
    """Return for each node the first campaign since which it is worse than its class; "": it was in all campaigns.

    Args:
        fleet: Folder of the fleet.
        cluster: Name of the cluster.
        campaigns: Names of campaigns, oldest first.
        cases: For each node, the key of a point and the names of the nodes of its class.
    """
    import numpy as np

    series: dict[str, list[tuple[str, float]]] = {node: [] for node in cases}
    for name in campaigns:
        matrix = read_matrix(fleet, name, cluster)
        index = {n: i for i, n in enumerate(matrix.nodes)}
        points, values = own_values(matrix)
        row_of = {p.key: i for i, p in enumerate(points)}
        for node, (key, members) in cases.items():
            if node in index and key in row_of:
                row = values[row_of[key]]
                centre = float(np.nanmedian(row[[index[m] for m in members if m in index]]))
                ratio = (row[index[node]] / centre) ** points[row_of[key]].sign
                if not np.isnan(ratio):
                    series[node].append((name, float(ratio)))
    first_campaigns = {}
    for node, measured in series.items():
        cuts, levels = _levels([ratio for _, ratio in measured])
        worse = [cut.at for cut, (before, after) in zip(cuts, pairwise(levels), strict=True) if after > before]
        first_campaigns[node] = measured[worse[-1]][0] if worse else ""
    return first_campaigns


def _levels(values: Sequence[float] | Array) -> tuple[list[LevelSplit], list[float]]:
    """Return the changes of the level of a series, and the levels between them."""
    import numpy as np

    cuts = splits(values)
    edges = [0, *(cut.at for cut in cuts), len(values)]
    return cuts, [float(np.median(values[a:b])) if a < b else math.nan for a, b in pairwise(edges)]
