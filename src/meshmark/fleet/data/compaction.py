"""Joins the many Parquet files of a campaign into one file of results and one file of nodes.

Results are joined before nodes, and only results with complete nodes: an ingestion that is resumed may remove the
others.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from meshmark.fleet.folder import Fleet
from meshmark.store.files import leftovers, unlink
from meshmark.store.layout import result_files
from meshmark.store.parquet import COMPACTED, UnreadableError, join, remove_replaced
from meshmark.store.session import held


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
        for name, partition in sorted({(file.run, file.path.parent.name) for file in result_files(folder, campaign)}):
            try:
                count = _compact(fleet, name, partition.removeprefix("cluster="))
            except UnreadableError as error:
                compacted.skipped[name] = str(error)
                continue
            if count:
                compacted.files[name] = count
        for kind in ("results", "nodes"):
            unlink(leftovers(fleet.root / kind))
    return compacted


def _compact(fleet: Fleet, campaign: str, cluster: str) -> int:
    """Join the files of a campaign and return their number."""
    nodes = fleet.files_of("nodes", campaign, cluster)
    complete = {path.name for path in nodes}
    # Listed after the nodes, so that the results of all nodes are there.
    results = [
        path for path in fleet.files_of("results", campaign, cluster) if path.name in complete or COMPACTED in path.name
    ]
    count = 0
    for kind, files, order in (("results", results, ["point", "node"]), ("nodes", nodes, ["node"])):
        folder, prefix = fleet.table(kind, campaign, cluster), f"{campaign}--"
        remove_replaced(folder, prefix)
        if len(files) > 1:
            join(files, folder / f"{prefix}{COMPACTED}{secrets.token_hex(6)}.parquet", order)
            count += len(files)
    return count
