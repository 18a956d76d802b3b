"""The values of several campaigns as one array, nodes × values × metrics, for judging."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshmark.fleet.arrays import Array
from meshmark.fleet.classes import classes
from meshmark.fleet.curves import as_distances
from meshmark.fleet.folder import Fleet
from meshmark.fleet.values import Point, is_sound, node_rows, query, read_matrix


@dataclass(frozen=True, slots=True)
class Panel:
    """Values of nodes.

    Attributes:
        nodes: Names, sorted.
        facts: Configuration of each node in its newest campaign.
        values: Logarithms, of which higher is worse, shape (nodes, k, points). NaN: not measured, or with a flag.
            Latencies under load are distances from the curve of the class, see `curves`.
        of: The campaign of each of the k values.
        wrong: Nodes with wrong results of kernels in the newest campaign, and which.
        verdicts: Of each program and kernel with a wrong result, the number of nodes that gave any, right or wrong.
    """

    nodes: list[str]
    facts: list[Mapping[str, str]]
    points: list[Point]
    values: Array
    of: list[str]
    wrong: Mapping[str, list[str]]
    verdicts: Mapping[str, int]


def read_panel(fleet: Fleet, campaigns: Sequence[str], cluster: str) -> Panel:
    """The values of campaigns, oldest first.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    import numpy as np

    facts: dict[str, str] = {}
    wrong: dict[str, list[str]] = {}
    sound: list[str] = []  # attempts of the newest campaign
    order = {name: i for i, name in enumerate(campaigns)}
    for row in sorted(node_rows(fleet, campaigns, cluster), key=lambda row: order[row["campaign"]]):
        if is_sound(row):
            facts[row["node"]] = row["facts"]
            sound += [row["attempt"]] if row["campaign"] == campaigns[-1] else []
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
        place = np.array([row_of[name] for name in matrix.nodes], int)
        for point, repetition, row in zip(matrix.points, matrix.repetitions, matrix.values, strict=True):
            at = column_of[point.key], slot_at[matrix.campaign, repetition]
            values[at][place] = np.log(row) * point.sign
    configurations = [texts[facts[n]] for n in names]
    panel = np.ascontiguousarray(values.transpose(2, 1, 0))
    as_distances(panel, list(points.values()), [one.members for one in classes(configurations)])
    return Panel(
        names,
        configurations,
        list(points.values()),
        panel,
        [campaign for campaign, _ in slots],
        wrong,
        _verdicts(fleet, campaigns[-1], cluster, wrong, sound) if wrong else {},
    )


def of_what(wrong: str) -> str:
    """The program or kernel of a wrong result."""
    return wrong.partition(": ")[0]


def _verdicts(
    fleet: Fleet, campaign: str, cluster: str, wrong: Mapping[str, Sequence[str]], attempts: Sequence[str]
) -> dict[str, int]:
    """As `Panel.verdicts`. Nodes that were refused, or have not the program, say nothing about it."""
    text = """SELECT DISTINCT node, instrument, metric, program FROM read_parquet(?)
              WHERE status = 'measured' AND list_contains(?, attempt)"""
    found = query(fleet, "results", [campaign], cluster, text, list(attempts))
    nodes: dict[str, set[str]] = {}
    for node, texts in wrong.items():
        for one in texts:
            nodes.setdefault(of_what(one), set()).add(node)
    for row in found.to_pylist() if found is not None else ():
        if (name := row["program"] or _kernel(row["instrument"], row["metric"])) in nodes:
            nodes[name].add(row["node"])
    return {name: len(those) for name, those in nodes.items()}


def _kernel(instrument: str, metric: str) -> str:
    """How the runner names what computed wrongly, see native/node/limits.cpp."""
    return metric if metric.startswith(instrument) else f"{instrument} {metric}"
