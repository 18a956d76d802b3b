"""Carries out a campaign that was begun: its jobs, and then the ingestion of what its nodes left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from meshmark.errors import MeshmarkError
from meshmark.fleet.campaign import Campaign, Progress
from meshmark.fleet.engines.engine import Engine, Work
from meshmark.fleet.folder import Fleet
from meshmark.fleet.ingest import Ingested, ingest, measured_nodes
from meshmark.fleet.site import Site
from meshmark.store.files import written


class Shown(Protocol):
    """Shows how far a campaign is."""

    def __call__(self, progress: Progress) -> None:
        """A look at the engine."""

    def took_in(self, read: int, of: int) -> None:
        """So many files of nodes were read."""


class Unseen:
    """Shows nothing."""

    def __call__(self, progress: Progress) -> None:
        pass

    def took_in(self, read: int, of: int) -> None:
        pass


UNSEEN: Final = Unseen()


def carry_out(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    name: str,
    runner: Path,
    show: Shown = UNSEEN,
    wait_s: float = float("inf"),
) -> tuple[Progress, Ingested]:
    """Drive a campaign to its end, or go on with it; no node whose results were taken in measures again.

    Args:
        runner: The native program, where nodes can read it.
        wait_s: As of `Campaign.drive`.

    Raises:
        MeshmarkError: As `Campaign.drive` and `ingest`.
    """
    limits = site.max_jobs, site.max_nodes
    return measured(fleet, site, engine, name, lambda campaign: work_of(campaign, runner), limits, show, wait_s)


def measured(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    name: str,
    work: Callable[[Campaign], Work],
    limits: tuple[int, int],
    show: Shown,
    wait_s: float,
) -> tuple[Progress, Ingested]:
    """As `carry_out`, for any work.

    Args:
        limits: Jobs at once, and nodes in a job.
    """
    known = frozenset(Campaign.load(fleet, name).nodes)
    # What an ingestion had claimed that was killed, or found the disk full, has been measured, too.
    found = ingest(fleet, name, site.cluster, known, show.took_in)
    campaign = Campaign.load(fleet, name, measured_nodes(fleet, name, site.cluster))
    progress = campaign.drive(engine, work(campaign), *limits, show, wait_s)
    return progress, found.joined(ingest(fleet, name, site.cluster, known, show.took_in))


def shared_copy(fleet: Fleet, program: Path) -> Path:
    """A copy of a native program in the folder of the fleet, which nodes can read."""
    stat = program.stat()
    copy = fleet.root / "bin" / f"{program.name}-{stat.st_size:x}-{int(stat.st_mtime):x}"
    if not copy.exists():
        with written(copy) as out, program.open("rb") as source:
            shutil.copyfileobj(source, out)
        copy.chmod(0o755)
    return copy


def work_of(campaign: Campaign, runner: Path) -> Work:
    """What each node of a campaign does."""
    fleet, begun = campaign.fleet, campaign.begun
    return Work(
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
    """The folder of a campaign's output of jobs."""
    return fleet.campaign(name) / "logs"


def nothing_measured(fleet: Fleet, name: str) -> MeshmarkError:
    """The error of a campaign without a result, with the reason of its first node."""
    node, why = next(iter(Campaign.load(fleet, name).left.items()), ("", ""))
    return MeshmarkError(f"{name}: no node has measured" + (why and f": {node}: {why}"), f"see {logs(fleet, name)}")
