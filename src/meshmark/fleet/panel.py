"""The values of a fleet as an array: nodes × values × metrics, for judging."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import MeshmarkError, quoted
from meshmark.fleet.folder import Fleet, date_of
from meshmark.store.query import QueryError, fetched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
else:
    Array = Any

DERIVED: Final = "bandwidth_gross"  # from the samples of another metric


@dataclass(frozen=True, slots=True)
class Point:
    """A metric at a point.

    Attributes:
        key: As of `measure.repetitions.point_key`.
        better: lower or higher.
    """

    key: str
    instrument: str
    metric: str
    unit: str
    better: str

    @property
    def conditions(self) -> dict[str, Any]:
        """Those that identify it."""
        _, _, *conditions = json.loads(self.key)
        return {k: v for of in conditions for k, v in of.items() if v is not None}


@dataclass(frozen=True, slots=True)
class Panel:
    """Values of nodes.

    Attributes:
        nodes: Names, sorted.
        facts: Configuration of each node in its newest campaign.
        values: Logarithms, of which higher is worse, shape (nodes, k, points). NaN: not measured, or with a flag.
        of: The campaign of each of the k values.
        wrong: Nodes with wrong results of kernels, and which.
    """

    nodes: list[str]
    facts: list[Mapping[str, str]]
    points: list[Point]
    values: Array
    of: list[str]
    wrong: Mapping[str, list[str]]


def read_panel(fleet: Fleet, campaigns: Sequence[str], cluster: str) -> Panel:
    """The values of campaigns, oldest first.

    Of several files of a node in one campaign, the newest complete one counts. Nodes with doubts are left out.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    import numpy as np
    import pyarrow as pa

    dates = sorted({date_of(name) for name in campaigns})
    files = {
        kind: [str(p) for d in dates for p in fleet.files(kind, d) if p.parent.name == f"cluster={cluster}"]
        for kind in ("nodes", "results")
    }
    if not files["nodes"] or not files["results"]:
        return Panel([], [], [], np.empty((0, 0, 0)), [], {})
    nodes = _rows(
        """SELECT * FROM read_parquet(?) WHERE list_contains(?, campaign)
           QUALIFY row_number() OVER (PARTITION BY campaign, node
                                      ORDER BY (status = 'ok') DESC, started DESC) = 1 ORDER BY campaign, node""",
        [files["nodes"], list(campaigns)],
    )
    sound = [row for row in nodes if not row["doubt"] and row["status"] in {"ok", "interrupted"}]
    table = _table(
        """SELECT node, campaign, step, point, any_value(instrument) AS instrument, any_value(metric) AS metric,
                  any_value(unit) AS unit, any_value(better) AS better, median(value) AS value
           FROM read_parquet(?) WHERE status = 'measured' AND point IS NOT NULL AND better <> 'none' AND value > 0
                AND len(flags) = 0 AND metric <> ? AND list_contains(?, attempt)
           GROUP BY node, campaign, step, point""",
        [files["results"], DERIVED, [row["attempt"] for row in sound]],
    )
    names = sorted({row["node"] for row in sound})
    facts: dict[str, Mapping[str, str]] = {row["node"]: json.loads(row["facts"]) for row in sound}
    wrong = {row["node"]: list(row["wrong"]) for row in nodes if row["wrong"]}

    def coded(column: pa.ChunkedArray) -> tuple[Any, list[str]]:
        encoded = column.combine_chunks().dictionary_encode()
        return np.asarray(encoded.indices), encoded.dictionary.to_pylist()

    point_at, keys = coded(table["point"])
    node_at, node_names = coded(table["node"])
    campaign_at, campaign_names = coded(table["campaign"])
    step_at, step_names = coded(table["step"])
    row_of = {name: i for i, name in enumerate(names)}
    place = np.array([row_of[n] for n in node_names], int)[node_at]
    # A value is one repetition of one campaign; the steps of a repetition end in .r2, .r3 …
    repetition = np.array([_repetition(s) for s in step_names], int)[step_at] if step_names else step_at
    order = {name: i for i, name in enumerate(campaigns)}
    rank = np.array([order[c] for c in campaign_names], int)[campaign_at] if campaign_names else campaign_at
    slots = sorted(set(zip(rank.tolist(), repetition.tolist(), strict=True)))
    slot_at = {slot: i for i, slot in enumerate(slots)}
    at = np.array([slot_at[s] for s in zip(rank.tolist(), repetition.tolist(), strict=True)], int)
    lower = np.asarray(table["better"].combine_chunks().to_numpy(zero_copy_only=False) == "lower")
    values = np.full((len(names), len(slots), len(keys)), np.nan)
    values[place, at, point_at] = np.log(table["value"].to_numpy()) * np.where(lower, 1.0, -1.0)
    first = {k: i for i, k in reversed(list(enumerate(point_at.tolist())))}
    texts = table.select(["instrument", "metric", "unit", "better"])
    points = [Point(keys[k], *(texts[c][first[k]].as_py() for c in texts.column_names)) for k in range(len(keys))]
    return Panel(names, [facts[n] for n in names], points, values, [campaigns[r] for r, _ in slots], wrong)


def _repetition(step: str) -> int:
    _, dot, number = step.rpartition(".r")
    return int(number) if dot and number.isdecimal() else 1


def _rows(query: str, values: list[Any]) -> list[dict[str, Any]]:
    try:
        return fetched(query, values)
    except QueryError as why:
        raise MeshmarkError(f"the results of the fleet cannot be read: {quoted(why)}") from why


def _table(query: str, values: list[Any]) -> Any:
    import duckdb

    with duckdb.connect() as db:
        try:
            return db.sql(query, params=values).to_arrow_table()
        except duckdb.Error as why:
            raise MeshmarkError(f"the results of the fleet cannot be read: {quoted(str(why).splitlines()[0])}") from why
