"""The values of a campaign as a matrix, so that the values of a year are read in seconds.

    values/date=…/cluster=…/CAMPAIGN.parquet    a row for each point and repetition, with the values of all nodes

The file is written from the results when it is first read, and again after results were added.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import MeshmarkError
from meshmark.fleet.folder import Fleet
from meshmark.store.files import open_regular
from meshmark.store.parquet import COMPACTED, QueryError, metadata_of, read, replaced_file_names, write_parquet
from meshmark.store.query import fetch_table
from meshmark.values.arrow import array_of, listed, numbers, row_iterator, rows_of, selected

if TYPE_CHECKING:
    import numpy as np
    from arro3.core import ChunkedArray, Table
    from numpy.typing import NDArray

    Array = NDArray[np.float32]
else:
    Array = Any

_VERSION: Final = 1
_DERIVED: Final = "bandwidth_gross"  # derived from the samples of another metric
_META: Final = "meshmark"


@dataclass(frozen=True, slots=True)
class FleetPoint:
    """A metric at a point.

    Attributes:
        key: Key that `measure.repetitions.point_key` returns.
        better: lower or higher.
    """

    key: str
    instrument: str
    metric: str
    unit: str
    better: str

    @property
    def conditions(self) -> dict[str, Any]:
        """Return the conditions that identify the point."""
        _, _, *conditions = json.loads(self.key)
        return {k: v for group in conditions for k, v in group.items() if v is not None}

    @property
    def sign(self) -> float:
        """Return the sign by which a logarithm is multiplied so that higher is worse."""
        return 1.0 if self.better == "lower" else -1.0


@dataclass(frozen=True, slots=True)
class CampaignValues:
    """The values of the nodes of a campaign. Nodes with doubts are left out.

    Attributes:
        nodes: Names of nodes, sorted.
        points, repetitions: Point and repetition of each row; repetitions begin at 1.
        values: Values in the unit of the point, shape (rows, nodes). NaN: not measured, or with a flag.
    """

    campaign: str
    nodes: list[str]
    points: list[FleetPoint]
    repetitions: list[int]
    values: Array


def read_matrix(fleet: Fleet, campaign: str, cluster: str) -> CampaignValues:
    """Return the values of a campaign, which may be empty.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    path = _path(fleet, campaign, cluster)
    sources = _sources(fleet, campaign, cluster)
    matrix = _kept(path, campaign, sources)
    if matrix is None:
        matrix = _made(fleet, campaign, cluster)
        with contextlib.suppress(MeshmarkError):  # without permission to write, the matrix is computed each time
            write_matrix(fleet, cluster, matrix, sources)
    return matrix


def write_matrix(fleet: Fleet, cluster: str, matrix: CampaignValues, sources: Sequence[str]) -> None:
    """Store the values of a campaign.

    Args:
        fleet: Folder of the fleet.
        cluster: Name of the cluster.
        matrix: The values.
        sources: Names of the files of nodes from which they were computed.

    Raises:
        MeshmarkError: The folder cannot be written.
    """
    path = _path(fleet, matrix.campaign, cluster)
    head = {"version": _VERSION, "nodes": matrix.nodes, "sources": list(sources)}
    write_parquet(path, _table(matrix), metadata={_META: json.dumps(head)})


def _path(fleet: Fleet, campaign: str, cluster: str) -> Path:
    return fleet.table("values", campaign, cluster) / f"{campaign}.parquet"


def _sources(fleet: Fleet, campaign: str, cluster: str) -> list[str]:
    """Return the names of the files that ingestions wrote, which are the same after a compaction."""
    names = {
        name for path in fleet.files_of("nodes", campaign, cluster) for name in (path.name, *replaced_file_names(path))
    }
    return sorted(name for name in names if COMPACTED not in name)


def node_rows(fleet: Fleet, campaigns: Sequence[str], cluster: str) -> list[dict[str, Any]]:
    """Return a row for each node of each campaign, with the elapsed time.

    If a node has several files, the newest complete one counts.
    """
    text = """SELECT campaign, node, attempt, hash, status, damage, doubt, facts, wrong, elapsed_s FROM read_parquet(?)
              QUALIFY row_number() OVER (PARTITION BY campaign, node
                                         ORDER BY (status = 'ok') DESC, started DESC) = 1 ORDER BY campaign, node"""
    table = query(fleet, "nodes", campaigns, cluster, text)
    return rows_of(table) if table is not None else []


def is_sound(row: Mapping[str, Any]) -> bool:
    """Return whether the values of a row of `node_rows` count."""
    return not row["doubt"] and row["status"] in {"ok", "interrupted"}


def query(
    fleet: Fleet,
    kind: str,
    campaigns: Sequence[str],
    cluster: str,
    text: str,
    *values: Any,
    tables: Mapping[str, Table] | None = None,
) -> Table | None:
    """Return the answer of DuckDB to a query; None if the campaigns have no files.

    Args:
        fleet: Folder of the fleet.
        kind: `results` or `nodes`; the list of their files is the first parameter of the query.
        campaigns: Names of campaigns.
        cluster: Name of the cluster.
        text: The query.
        values: Further parameters of the query.
        tables: Further tables, by their names in the query.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    while True:
        files = [path for name in campaigns for path in fleet.files_of(kind, name, cluster)]
        if not files:
            return None
        try:
            return fetch_table(text, [list(map(str, files)), *values], tables or {})
        except QueryError as error:
            if all(path.exists() for path in files):  # otherwise another process has joined them
                raise MeshmarkError(f"the results of the fleet cannot be read: {error}") from error


def flagged_results(fleet: Fleet, campaign: str, cluster: str) -> tuple[int, int]:
    """Return how many results of a campaign could be judged if they had no flags, and how many of them have flags."""
    text = """SELECT count(*) AS results, count(*) FILTER (len(flags) > 0) AS flagged FROM read_parquet(?)
              WHERE status = 'measured' AND point IS NOT NULL AND better <> 'none' AND metric <> ?"""
    counts = query(fleet, "results", [campaign], cluster, text, _DERIVED)
    rows = rows_of(counts) if counts is not None else []
    return sum(row["results"] for row in rows), sum(row["flagged"] for row in rows)


def _made(fleet: Fleet, campaign: str, cluster: str) -> CampaignValues:
    import numpy as np

    sound_rows = [row for row in node_rows(fleet, [campaign], cluster) if is_sound(row)]
    nodes = sorted(row["node"] for row in sound_rows)
    text = """SELECT node, step, point, any_value(instrument) AS instrument, any_value(metric) AS metric,
                     any_value(unit) AS unit, any_value(better) AS better, median(value) AS value
              FROM read_parquet(?) WHERE status = 'measured' AND point IS NOT NULL AND better <> 'none' AND value > 0
                   AND len(flags) = 0 AND metric <> ? AND list_contains(?, attempt)
              GROUP BY node, step, point"""
    attempts = [row["attempt"] for row in sound_rows]
    answer = query(fleet, "results", [campaign], cluster, text, _DERIVED, attempts) if sound_rows else None
    if answer is None:
        return CampaignValues(campaign, nodes, [], [], np.empty((0, len(nodes)), np.float32))
    node_index = {node: i for i, node in enumerate(nodes)}
    node_at = np.array([node_index[node] for node in listed(answer["node"])], int)
    point_at, keys = _coded(answer["point"])
    step_at, steps = _coded(answer["step"])
    repetition = np.array([_repetition(s) for s in steps], int)[step_at] if steps else step_at
    width = int(repetition.max(initial=1)) + 1
    rows, first, row_at = np.unique(point_at * width + repetition, return_index=True, return_inverse=True)
    values = np.full((len(rows), len(nodes)), np.nan, np.float32)
    values[row_at, node_at] = numbers(answer["value"])
    texts = row_iterator(selected(answer.select(["instrument", "metric", "unit", "better"]), first))
    points = [FleetPoint(key=keys[int(row_key) // width], **text) for row_key, text in zip(rows, texts, strict=True)]
    return CampaignValues(campaign, nodes, points, [int(row_key) % width for row_key in rows], values)


def _coded(column: ChunkedArray) -> tuple[Any, list[str]]:
    """Return the index of each text among the texts of a column, and these texts in order of appearance."""
    import numpy as np

    indices: dict[str, int] = {}
    return np.array([indices.setdefault(text, len(indices)) for text in listed(column)], int), list(indices)


def _repetition(step: str) -> int:
    """Return the repetition of a step, whose id ends in .r1, .r2 …; 1 without such a suffix."""
    _, dot, number = step.rpartition(".r")
    return int(number) if dot and number.isdecimal() else 1


def _table(matrix: CampaignValues) -> Table:
    from arro3.core import Array, Table, fixed_size_list_array

    width = len(matrix.nodes)
    values = fixed_size_list_array(Array(matrix.values.ravel()), width) if width else None
    return Table.from_pydict(
        {
            **{k: array_of([getattr(p, k) for p in matrix.points], "VARCHAR") for k in _TEXTS},
            "repetition": array_of(matrix.repetitions, "INTEGER"),
            "values": values if values is not None else array_of([None] * len(matrix.points), "FLOAT[]"),
        }
    )


_TEXTS: Final = ("key", "instrument", "metric", "unit", "better")


def _kept(path: Path, campaign: str, sources: Sequence[str]) -> CampaignValues | None:
    """Return the matrix in a file; None if the file is missing, damaged or computed from other results."""
    import numpy as np
    from arro3.core import list_flatten

    try:
        with open_regular(path) as file:
            head = json.loads(metadata_of(file)[_META])
        if head["version"] != _VERSION or head["sources"] != list(sources):
            return None
        table = read(path)
        texts = zip(*(listed(table[k]) for k in _TEXTS), strict=True)
        shaped = np.empty((table.num_rows, len(head["nodes"])), np.float32)
        if shaped.size:
            shaped[:] = list_flatten(table["values"].combine_chunks()).to_numpy().reshape(shaped.shape)
        return CampaignValues(
            campaign, head["nodes"], [FleetPoint(*text) for text in texts], listed(table["repetition"]), shaped
        )
    except (OSError, QueryError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
