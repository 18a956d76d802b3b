"""The folder of a fleet and its files.

    fleet.toml                            the site, see `fleet.site`
    plans/ID.json                         plans, by their hash
    campaigns/NAME/journal.jsonl          submitted jobs and how they ended
    campaigns/NAME/inbox/NODE.jsonl.gz    files of nodes that are not yet ingested
    campaigns/NAME/logs/                  output of jobs
    campaigns/NAME/taken/TOKEN/           files that an ingestion is reading, or was reading when it was killed
    results/date=…/cluster=…/*.parquet    results, one row each; a folder of a store, see `store.layout`
    nodes/date=…/cluster=…/*.parquet      one row for each file of a node, in files with the names of their results
    values/date=…/cluster=…/*.parquet     see `data.values`
    judgements/…                          see `cases` and `health.assessment`

The date is the date on which the campaign began, in UTC, by the clock of the host that submitted it, since clocks of
nodes may be wrong. Date and cluster are not in the files: readers of such folders take them from the path, and some
readers refuse files that have them, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import AbsentError, UsageError, quoted
from meshmark.store.layout import date_of, result_files

NODE_TEXTS: Final = (
    "campaign",
    "node",
    "attempt",
    "machine",
    "hash",
    "boot",
    "hostname",
    "started",
    "plan",
    "kind",
    "status",
    "damage",
    "doubt",
    "build",
    "facts",
)
NODE_NUMBERS: Final = ("elapsed_s", "cpu_s", "peak_bytes", "steps", "steps_ok")
# Types of the columns of the files of nodes, with a row for each node and attempt.
NODE_TYPES: Final[dict[str, str]] = {
    **dict.fromkeys(NODE_TEXTS, "VARCHAR"),
    **dict.fromkeys(NODE_NUMBERS, "DOUBLE"),
    "wrong": "VARCHAR[]",
}
_ENTRIES: Final = frozenset({"fleet.toml", "plans", "campaigns", "results", "nodes"})  # each fleet has one of them
CAMPAIGN: Final = re.compile(r"[a-z]+-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)-[0-9a-f]{4,8}")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The folder of a fleet."""

    root: Path

    @property
    def site(self) -> Path:
        """Return the path of the settings of the site."""
        return self.root / "fleet.toml"

    @property
    def plans(self) -> Path:
        """Return the folder of the plans, each named by its id."""
        return self.root / "plans"

    def check(self, may_be_new: bool = False) -> None:
        """Check that the folder is the folder of a fleet.

        Args:
            may_be_new: Whether the folder may be missing or empty, or contain only TOML and JSON files, such as the
                steps or applications of a first campaign.

        Raises:
            UsageError: The path is another folder, or not a folder.
            AbsentError: The folder is missing or empty.
        """
        try:
            entries = {path.name for path in self.root.iterdir()}
        except FileNotFoundError:
            entries = set()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"FOLDER: found {quoted(self.root)}: {reason}; allowed: the folder of a fleet") from error
        if may_be_new and all(name.endswith((".toml", ".json")) for name in entries):
            return
        if entries and entries.isdisjoint(_ENTRIES):
            raise UsageError(
                f"FOLDER: found {quoted(self.root)}, which is not the folder of a fleet: it has no fleet.toml and no "
                "campaigns",
                "meshmark fleet check turns a new or empty folder into one",
            )
        if not entries:
            raise AbsentError(f"{quoted(self.root)}: has no campaign", f"meshmark fleet check {self.root}")

    def campaign(self, name: str) -> Path:
        """Return the folder of a campaign.

        Raises:
            UsageError: The name is not the name of a campaign.
        """
        if not CAMPAIGN.fullmatch(name):
            raise UsageError(
                f"campaign: found '{quoted(name)}'; allowed: a name such as survey-20261126T120000-1a2b, or latest"
            )
        return self.root / "campaigns" / name

    def campaigns(self) -> list[str]:
        """Return the names of all campaigns, oldest first."""
        folder = self.root / "campaigns"
        names = [p.name for p in folder.iterdir() if CAMPAIGN.fullmatch(p.name)] if folder.is_dir() else []
        return sorted(names, key=lambda name: (name.partition("-")[2], name))

    def table(self, kind: str, campaign: str, cluster: str) -> Path:
        """Return the folder of the `results`, the `nodes` or the `values` of a campaign."""
        return self.root / kind / f"date={date_of(campaign)}" / f"cluster={cluster}"

    def files_of(self, kind: str, campaign: str, cluster: str) -> list[Path]:
        """Return the files of the `results` or the `nodes` of a campaign, without files that others replace."""
        return [file.path for file in result_files(self.root / kind, campaign, f"cluster={cluster}")]


def time_of(campaign: str) -> str:
    """Return the time at which a campaign began in UTC, ISO 8601."""
    match = CAMPAIGN.fullmatch(campaign)
    assert match is not None
    return "-".join(match.groups()[:3]) + "T" + ":".join(match.groups()[3:])
