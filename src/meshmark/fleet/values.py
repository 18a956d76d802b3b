"""The values of a campaign as a matrix, so that a year of them is read in seconds.

    values/date=…/cluster=…/CAMPAIGN.parquet    a row for each point and repetition, with the values of all nodes

It is made from the results when it is first read, and again after they have changed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import MeshmarkError, quoted
from meshmark.fleet.folder import Fleet
from meshmark.store.files import open_regular
from meshmark.store.parquet import write_parquet

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Array = NDArray[np.float32]
else:
    Array = Any

_VERSION: Final = 1
_DERIVED: Final = "bandwidth_gross"  # from the samples of another metric
_META: Final = b"meshmark"


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

    @property
    def sign(self) -> float:
        """Of a logarithm of which higher is worse."""
        return 1.0 if self.better == "lower" else -1.0


@dataclass(frozen=True, slots=True)
class Matrix:
    """What the nodes of a campaign measured. Nodes with doubts are left out.

    Attributes:
        nodes: Names, sorted.
        points, repetitions: Of each row; repetitions begin at 1.
        values: In the unit of the point, shape (rows, nodes). NaN: not measured, or with a flag.
    """

    campaign: str
    nodes: list[str]
    points: list[Point]
    repetitions: list[int]
    values: Array


def read_matrix(fleet: Fleet, campaign: str, cluster: str) -> Matrix:
    """The values of a campaign, which may have none.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    path = _path(fleet, campaign, cluster)
    sources = _sources(fleet, campaign, cluster)
    found = _kept(path, campaign, sources)
    if found is None:
        found = _made(fleet, campaign, cluster)
        with contextlib.suppress(MeshmarkError):  # who may only read the folder makes it each time
            _write(fleet, cluster, found, sources)
    return found


def write_matrix(fleet: Fleet, cluster: str, matrix: Matrix) -> None:
    """Keep the values of a campaign, as made from the results that there are now.

    Raises:
        MeshmarkError: The folder cannot be written.
    """
    _write(fleet, cluster, matrix, _sources(fleet, matrix.campaign, cluster))


def keep_after_joining(fleet: Fleet, campaign: str, cluster: str, old: Sequence[str], new: str) -> None:
    """Keep the values of a campaign, whose sources were joined.

    Args:
        old, new: Names of files of nodes.

    Raises:
        MeshmarkError: The folder cannot be written.
    """
    path = _path(fleet, campaign, cluster)
    sources = sorted({*_sources(fleet, campaign, cluster), *old} - {new})
    matrix = _kept(path, campaign, sources)
    if matrix is not None:
        _write(fleet, cluster, matrix, sorted({*sources, new} - {*old}))


def _write(fleet: Fleet, cluster: str, matrix: Matrix, sources: Sequence[str]) -> None:
    path = _path(fleet, matrix.campaign, cluster)
    write_parquet(path, _table(matrix, sources), use_dictionary=list(_TEXTS))


def _path(fleet: Fleet, campaign: str, cluster: str) -> Path:
    return fleet.table("values", campaign, cluster) / f"{campaign}.parquet"


def _sources(fleet: Fleet, campaign: str, cluster: str) -> list[str]:
    return [p.name for p in fleet.files_of("nodes", campaign, cluster)]


def node_rows(fleet: Fleet, campaigns: Sequence[str], cluster: str) -> list[dict[str, Any]]:
    """A row for each node of each campaign, with the time it took. Of several files of a node, the newest
    complete one counts."""
    text = """SELECT campaign, node, attempt, hash, status, damage, doubt, facts, wrong, elapsed_s FROM read_parquet(?)
              QUALIFY row_number() OVER (PARTITION BY campaign, node
                                         ORDER BY (status = 'ok') DESC, started DESC) = 1 ORDER BY campaign, node"""
    found = query(fleet, "nodes", campaigns, cluster, text)
    rows: list[dict[str, Any]] = found.to_pylist() if found is not None else []
    return rows


def is_sound(row: Mapping[str, Any]) -> bool:
    """Whether the values of a row of `node_rows` count."""
    return not row["doubt"] and row["status"] in {"ok", "interrupted"}


def query(
    fleet: Fleet,
    kind: str,
    campaigns: Sequence[str],
    cluster: str,
    text: str,
    *values: Any,
    tables: Mapping[str, pa.Table] | None = None,
) -> pa.Table | None:
    """The answer of DuckDB; None if the campaigns have no files.

    Args:
        kind: `results` or `nodes`, whose files are the first value of the query.
        tables: More tables, by the names that the query has for them.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    import duckdb

    def ask(files: Sequence[Path]) -> pa.Table | None:
        if not files:
            return None
        with duckdb.connect() as db:
            try:
                for name, table in (tables or {}).items():
                    db.register(name, table)
                return db.sql(text, params=[list(map(str, files)), *values]).to_arrow_table()
            except duckdb.Error as why:
                reason = quoted(str(why).splitlines()[0], 400)  # with the path
                raise MeshmarkError(f"the results of the fleet cannot be read: {reason}") from why

    return fleet.of_files(kind, campaigns, cluster, ask)


def flagged_results(fleet: Fleet, campaign: str, cluster: str) -> tuple[int, int]:
    """Return the number of results of a campaign that could be judged without their flags, and of those with flags."""
    text = """SELECT count(*) AS results, count(*) FILTER (len(flags) > 0) AS flagged FROM read_parquet(?)
              WHERE status = 'measured' AND point IS NOT NULL AND better <> 'none' AND metric <> ?"""
    counts = query(fleet, "results", [campaign], cluster, text, _DERIVED)
    rows = counts.to_pylist() if counts is not None else []
    return sum(row["results"] for row in rows), sum(row["flagged"] for row in rows)


def _made(fleet: Fleet, campaign: str, cluster: str) -> Matrix:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    sound = [row for row in node_rows(fleet, [campaign], cluster) if is_sound(row)]
    nodes = sorted(row["node"] for row in sound)
    text = """SELECT node, step, point, any_value(instrument) AS instrument, any_value(metric) AS metric,
                     any_value(unit) AS unit, any_value(better) AS better, median(value) AS value
              FROM read_parquet(?) WHERE status = 'measured' AND point IS NOT NULL AND better <> 'none' AND value > 0
                   AND len(flags) = 0 AND metric <> ? AND list_contains(?, attempt)
              GROUP BY node, step, point"""
    attempts = [row["attempt"] for row in sound]
    found = query(fleet, "results", [campaign], cluster, text, _DERIVED, attempts) if sound else None
    if found is None:
        return Matrix(campaign, nodes, [], [], np.empty((0, len(nodes)), np.float32))
    table = found.combine_chunks()
    node_at = np.asarray(pc.index_in(table["node"].combine_chunks(), value_set=pa.array(nodes, pa.string())))
    point_at, keys = _coded(table["point"])
    step_at, steps = _coded(table["step"])
    repetition = np.array([_repetition(s) for s in steps], int)[step_at] if steps else step_at
    width = int(repetition.max(initial=1)) + 1
    rows, first, row_at = np.unique(point_at * width + repetition, return_index=True, return_inverse=True)
    values = np.full((len(rows), len(nodes)), np.nan, np.float32)
    values[row_at, node_at] = table["value"].to_numpy()
    texts = table.select(["instrument", "metric", "unit", "better"]).take(first).to_pylist()
    points = [Point(key=keys[int(of) // width], **text) for of, text in zip(rows, texts, strict=True)]
    return Matrix(campaign, nodes, points, [int(of) % width for of in rows], values)


def _coded(column: pa.ChunkedArray) -> tuple[Any, list[str]]:
    import numpy as np

    encoded = column.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices).astype(int), encoded.dictionary.to_pylist()


def _repetition(step: str) -> int:
    """The steps of a repetition end in .r1, .r2 …"""
    _, dot, number = step.rpartition(".r")
    return int(number) if dot and number.isdecimal() else 1


def _table(matrix: Matrix, sources: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    rows, width = matrix.values.shape
    values = pa.FixedSizeListArray.from_arrays(pa.array(matrix.values.ravel()), width) if width else None
    columns: dict[str, Any] = {
        **{k: pa.array([getattr(p, k) for p in matrix.points], pa.string()) for k in _TEXTS},
        "repetition": pa.array(matrix.repetitions, pa.int32()),
        "values": values if values is not None else pa.nulls(rows),
    }
    head = {"version": _VERSION, "nodes": matrix.nodes, "sources": list(sources)}
    return pa.table(columns).replace_schema_metadata({_META: json.dumps(head)})


_TEXTS: Final = ("key", "instrument", "metric", "unit", "better")


def _kept(path: Path, campaign: str, sources: Sequence[str]) -> Matrix | None:
    """The matrix of a file; None if it is missing, damaged or made from other results."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_regular(path) as file:
            read = pq.ParquetFile(file)
            head = json.loads((read.schema_arrow.metadata or {}).get(_META, b"{}"))
            if head.get("version") != _VERSION or head["sources"] != list(sources):
                return None
            table = read.read()
        texts = zip(*(table[k].to_pylist() for k in _TEXTS), strict=True)
        values = table["values"].combine_chunks()
        flat = values.flatten() if len(head["nodes"]) else pa.array([], pa.float32())
        shaped = np.asarray(flat.to_numpy(zero_copy_only=False), np.float32).reshape(len(table), len(head["nodes"]))
        return Matrix(
            campaign, head["nodes"], [Point(*text) for text in texts], table["repetition"].to_pylist(), shaped
        )
    except (
        OSError,
        MeshmarkError,
        pa.ArrowException,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        return None
