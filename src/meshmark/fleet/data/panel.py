"""The values of several campaigns as one array, nodes × values × metrics, for judgements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshmark.fleet.data.values import FleetPoint, is_sound, node_rows, query, read_matrix
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.classes import classes
from meshmark.fleet.health.curves import as_distances
from meshmark.statistics.arrays import Array
from meshmark.values.arrow import rows_of


@dataclass(frozen=True, slots=True)
class NodePanel:
    """Values of nodes.

    Attributes:
        nodes: Names of nodes, sorted.
        facts: Configuration of each node in its newest campaign.
        values: Logarithms, where higher is worse, shape (nodes, k, points). NaN: not measured, or with a flag.
            Latencies under load are distances from the curve of the class, see `curves`.
        of: The campaign of each of the k values.
        wrong: Wrong results of kernels and programs in the newest campaign, by node.
        verdicts: For each program and kernel with a wrong result, the number of nodes with a result, right or wrong.
    """

    nodes: list[str]
    facts: list[Mapping[str, str]]
    points: list[FleetPoint]
    values: Array
    of: list[str]
    wrong: Mapping[str, list[str]]
    verdicts: Mapping[str, int]


def read_panel(fleet: Fleet, campaigns: Sequence[str], cluster: str) -> NodePanel:
    """Return the values of campaigns.

    Args:
        fleet: Folder of the fleet.
        campaigns: Names of campaigns, oldest first.
        cluster: Name of the cluster.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    import numpy as np

    facts: dict[str, str] = {}
    wrong: dict[str, list[str]] = {}
    sound_attempts: list[str] = []  # attempts of the newest campaign
    order = {name: i for i, name in enumerate(campaigns)}
    for row in sorted(node_rows(fleet, campaigns, cluster), key=lambda row: order[row["campaign"]]):
        if is_sound(row):
            facts[row["node"]] = row["facts"]
            sound_attempts += [row["attempt"]] if row["campaign"] == campaigns[-1] else []
        if row["wrong"] and row["campaign"] == campaigns[-1]:
            wrong[row["node"]] = list(row["wrong"])
    texts = {text: json.loads(text) for text in set(facts.values())}
    matrices = [read_matrix(fleet, name, cluster) for name in campaigns]
    names = sorted(facts)
    row_of = {name: i for i, name in enumerate(names)}
    points = {p.key: p for m in matrices for p in m.points}
    column_of = {key: i for i, key in enumerate(points)}
    slots = [(m.campaign, r) for m in matrices for r in sorted(set(m.repetitions))]
    slot_at = {slot: i for i, slot in enumerate(slots)}
    values = np.full((len(points), len(slots), len(names)), np.nan)
    for matrix in matrices:
        node_index = np.array([row_of[name] for name in matrix.nodes], int)
        for point, repetition, row in zip(matrix.points, matrix.repetitions, matrix.values, strict=True):
            cell = column_of[point.key], slot_at[matrix.campaign, repetition]
            values[cell][node_index] = np.log(row) * point.sign
    configurations = [texts[facts[n]] for n in names]
    panel = np.ascontiguousarray(values.transpose(2, 1, 0))
    as_distances(panel, list(points.values()), [group.members for group in classes(configurations)])
    return NodePanel(
        names,
        configurations,
        list(points.values()),
        panel,
        [campaign for campaign, _ in slots],
        wrong,
        _verdicts(fleet, campaigns[-1], cluster, wrong, sound_attempts) if wrong else {},
    )


def of_what(wrong: str) -> str:
    """Return the program or kernel of a wrong result."""
    return wrong.partition(": ")[0]


def _verdicts(
    fleet: Fleet, campaign: str, cluster: str, wrong: Mapping[str, Sequence[str]], attempts: Sequence[str]
) -> dict[str, int]:
    """Return `NodePanel.verdicts`; nodes that were refused, or do not have the program, are not counted."""
    text = """SELECT DISTINCT node, instrument, metric, program FROM read_parquet(?)
              WHERE status = 'measured' AND list_contains(?, attempt)"""
    table = query(fleet, "results", [campaign], cluster, text, list(attempts))
    nodes: dict[str, set[str]] = {}
    for node, texts in wrong.items():
        for wrong_text in texts:
            nodes.setdefault(of_what(wrong_text), set()).add(node)
    for row in rows_of(table) if table is not None else ():
        if (name := row["program"] or _kernel(row["instrument"], row["metric"])) in nodes:
            nodes[name].add(row["node"])
    return {name: len(node_names) for name, node_names in nodes.items()}


def _kernel(instrument: str, metric: str) -> str:
    """Return the name that the runner gives to a kernel that computed wrongly, see native/node/limits.cpp."""
    return metric if metric.startswith(instrument) else f"{instrument} {metric}"
