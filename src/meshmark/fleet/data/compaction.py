"""Joins the many Parquet files of a campaign into one file of results and one file of nodes.

The metadata of a joined file lists the files that it replaces. It appears as a whole, and only then are the replaced
files removed, so that `Fleet.files_of` finds each row once at any moment, also after a kill. Results are joined before
nodes, and only results with complete nodes: an ingestion that is resumed may remove the others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshmark.errors import MeshmarkError, quoted
from meshmark.fleet.data.values import keep_after_joining
from meshmark.fleet.folder import CAMPAIGN, JOINED, REPLACES, Fleet, replaced
from meshmark.store.files import open_regular, unlink, written
from meshmark.store.session import held

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 20_000  # rows of a row group


@dataclass
class FleetCompaction:
    """The outcome of a compaction.

    Attributes:
        files: Number of joined files, by the name of the campaign.
        skipped: The reason why the files of a campaign were not joined, by the name of the campaign.
    """

    files: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def compact(fleet: Fleet, campaign: str = "") -> FleetCompaction:
    """Join the files of a campaign, or of all campaigns.

    Raises:
        MeshmarkError: Another process compacts the fleet, or the folder cannot be written; no row is lost then.
    """
    compacted = FleetCompaction()
    folder = fleet.root / "nodes"
    if not folder.is_dir():
        return compacted
    with held(folder, resumed=True):
        for name, cluster in _campaigns(folder, campaign):
            try:
                count = _compact(fleet, name, cluster)
            except _UnreadableError as error:
                compacted.skipped[name] = str(error)
                continue
            if count:
                compacted.files[name] = count
    return compacted


class _UnreadableError(Exception):
    """A file cannot be read."""


def _campaigns(folder: Path, only: str) -> list[tuple[str, str]]:
    """Return the campaigns with files of nodes, and their clusters."""
    campaigns = set()
    for path in folder.glob("date=*/cluster=*/*.parquet"):
        match = re.match(rf"{CAMPAIGN.pattern}(?=-)", path.name)
        if match and only in {"", match[0]}:
            campaigns.add((match[0], path.parent.name.removeprefix("cluster=")))
    return sorted(campaigns)


def _compact(fleet: Fleet, campaign: str, cluster: str) -> int:
    """Join the files of a campaign and return their number."""
    _remove_replaced(fleet, campaign, cluster)
    nodes = fleet.files_of("nodes", campaign, cluster)
    complete = {path.name for path in nodes}
    # Listed after the nodes, so that the results of all nodes are there.
    results = [
        path
        for path in fleet.files_of("results", campaign, cluster)
        if path.name in complete or path.name.startswith(f"{campaign}-{JOINED}")
    ]
    count = 0
    for kind, files in (("results", results), ("nodes", nodes)):
        if len(files) < 2:
            continue
        joined = _join(files, campaign)
        if kind == "nodes":
            keep_after_joining(fleet, campaign, cluster, [path.name for path in files], joined.name)
        count += len(files)
    _remove_replaced(fleet, campaign, cluster)
    return count


def _remove_replaced(fleet: Fleet, campaign: str, cluster: str) -> None:
    """Remove the files that joined files replace, and incomplete files of a killed compaction.

    Nothing is joined before, so that no removed file replaces a file that still exists.
    """
    for kind in ("results", "nodes"):
        folder = fleet.table(kind, campaign, cluster)
        unlink(folder.glob(f".{campaign}-{JOINED}*"))
        for joined in folder.glob(f"{campaign}-{JOINED}*.parquet"):
            unlink(folder / name for name in sorted(replaced(joined)))


def _join(files: Sequence[Path], campaign: str) -> Path:
    """Write one file with the rows of several files, and return its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [path.name for path in files]
    rows, schemas = 0, []
    for path in files:
        try:
            with open_regular(path) as file:
                footer = pq.read_metadata(file)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
        rows += footer.num_rows
        schemas.append(footer.schema.to_arrow_schema().remove_metadata())
    schema = pa.unify_schemas(schemas).with_metadata({REPLACES: json.dumps(names)})
    digest = hashlib.sha256("".join(names).encode()).hexdigest()[:12]
    joined = files[0].with_name(f"{campaign}-{JOINED}{digest}.parquet")
    with written(joined) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for table in _tables(files, schema):
            rows -= len(table)
            writer.write_table(table)
        if rows:
            raise MeshmarkError(f"{joined}: {rows} rows are missing")
    return joined


def _tables(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of files, at least `_ROWS` at once except for the last, sorted by point and node."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    order = [(name, "ascending") for name in ("point", "node") if name in schema.names]
    waiting: list[pa.Table] = []
    for i, path in enumerate(files):
        try:
            with open_regular(path) as file:
                table = pq.ParquetFile(file).read()
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
        waiting.append(table.replace_schema_metadata(None))
        if sum(map(len, waiting)) >= _ROWS or i == len(files) - 1:
            yield pa.concat_tables(waiting, promote_options="default").sort_by(order)
            waiting = []


def _unreadable(path: Path, error: Exception) -> _UnreadableError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return _UnreadableError(f"{path.name}: cannot be read: {quoted(reason)}")
