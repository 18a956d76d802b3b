"""Runs the jobs of a campaign that was begun, and then ingests the files of its nodes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from meshmark.errors import MeshmarkError
from meshmark.fleet.campaigns.campaign import Campaign, CampaignProgress
from meshmark.fleet.data.ingest import IngestResult, ingest, measured_nodes
from meshmark.fleet.engines.engine import Engine, JobWork
from meshmark.fleet.folder import Fleet
from meshmark.fleet.site import Site
from meshmark.store.files import written


class ProgressDisplay(Protocol):
    """Shows the progress of a campaign."""

    def __call__(self, progress: CampaignProgress) -> None:
        """Show the state of the nodes after a query of the engine."""

    def took_in(self, read: int, total: int) -> None:
        """Show that `read` of `total` files of nodes were read."""


class NoDisplay:
    """Shows nothing."""

    def __call__(self, progress: CampaignProgress) -> None:
        """Ignore the progress."""

    def took_in(self, read: int, total: int) -> None:
        """Ignore the number of ingested files."""


UNSEEN: Final = NoDisplay()


def carry_out(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    name: str,
    runner: Path,
    show: ProgressDisplay = UNSEEN,
    wait_s: float = float("inf"),
) -> tuple[CampaignProgress, IngestResult]:
    """Drive a campaign to its end, or resume it; a node whose results were ingested does not measure again.

    Args:
        fleet: Folder of the fleet.
        site: Settings of the site.
        engine: Engine that runs the jobs.
        name: Name of the campaign.
        runner: The native program, at a path that nodes can read.
        show: Display of the progress.
        wait_s: Passed to `Campaign.drive`.

    Raises:
        MeshmarkError: `Campaign.drive` or `ingest` raises this error.
    """
    limits = site.max_jobs, site.max_nodes
    return measured(fleet, site, engine, name, lambda campaign: work_of(campaign, runner), limits, show, wait_s)


def measured(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    name: str,
    work: Callable[[Campaign], JobWork],
    limits: tuple[int, int],
    show: ProgressDisplay,
    wait_s: float,
) -> tuple[CampaignProgress, IngestResult]:
    """Drive a campaign like `carry_out`, with any work.

    Args:
        fleet: Folder of the fleet.
        site: Settings of the site.
        engine: Engine that runs the jobs.
        name: Name of the campaign.
        work: Returns the work of the campaign.
        limits: Largest number of jobs at once, and of nodes in a job.
        show: Display of the progress.
        wait_s: Passed to `Campaign.drive`.
    """
    nodes = frozenset(Campaign.load(fleet, name).nodes)
    # An ingestion that was killed, or found the disk full, may have claimed files; their nodes have measured, too.
    ingested = ingest(fleet, name, site.cluster, nodes, show.took_in)
    campaign = Campaign.load(fleet, name, measured_nodes(fleet, name, site.cluster))
    progress = campaign.drive(engine, work(campaign), *limits, show, wait_s)
    return progress, ingested.joined(ingest(fleet, name, site.cluster, nodes, show.took_in))


def shared_copy(fleet: Fleet, program: Path) -> Path:
    """Copy a native program to the folder of the fleet, which nodes can read, and return the path of the copy."""
    stat = program.stat()
    copy = fleet.root / "bin" / f"{program.name}-{stat.st_size:x}-{int(stat.st_mtime):x}"
    if not copy.exists():
        with written(copy) as out, program.open("rb") as source:
            shutil.copyfileobj(source, out)
        copy.chmod(0o755)
    return copy


def work_of(campaign: Campaign, runner: Path) -> JobWork:
    """Return the work of each node of a campaign."""
    fleet, begun = campaign.fleet, campaign.begun
    return JobWork(
        runner=runner,
        plan=fleet.plans / f"{begun['plan']}.json",
        inbox=fleet.campaign(campaign.name) / "inbox",
        logs=logs(fleet, campaign.name),
        limit_s=float(begun["limit_s"]),
        options=(
            "--once",
            *(("--beside",) if begun.get("beside") else ()),
            *(("--scratch", str(begun["scratch"])) if begun.get("scratch") else ()),
        ),
    )


def logs(fleet: Fleet, name: str) -> Path:
    """Return the folder of the output of a campaign's jobs."""
    return fleet.campaign(name) / "logs"


def nothing_measured(fleet: Fleet, name: str) -> MeshmarkError:
    """Return the error of a campaign without a result, with the reason of its first node."""
    node, reason = next(iter(Campaign.load(fleet, name).left.items()), ("", ""))
    return MeshmarkError(
        f"{name}: no node has returned measurements" + (reason and f": {node}: {reason}"), f"see {logs(fleet, name)}"
    )
