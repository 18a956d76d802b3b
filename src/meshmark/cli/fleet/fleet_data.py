"""`meshmark fleet compact`: joins the Parquet files of a fleet."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from meshmark.cli.console import say
from meshmark.cli.options import JsonOption
from meshmark.errors import UsageError
from meshmark.values.units import counted


def compact(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of the fleet", file_okay=False)],
    campaign: Annotated[str, typer.Option("--campaign", help="name of a campaign [all]", show_default=False)] = "",
    as_json: JsonOption = False,
) -> None:
    """Join the Parquet files of each campaign into one of results and one of nodes.

    Campaigns, ingestions and queries of Meshmark may run at the same time. A compaction that was killed is completed by
    the next one.

    example: meshmark fleet compact /shared/fleet
    """
    from meshmark.fleet.data.compaction import compact
    from meshmark.fleet.folder import Fleet

    fleet = Fleet(folder.absolute())
    fleet.check()
    files = f"nodes/date=*/cluster=*/{campaign}--*.parquet"
    if campaign and not fleet.campaign(campaign).is_dir() and not any(fleet.root.glob(files)):
        raise UsageError(f"--campaign: found '{campaign}', which is not in {fleet.root}")
    result = compact(fleet, campaign)
    if as_json:
        print(json.dumps({"type": "compacted", **dataclasses.asdict(result)}))
        return
    for name, reason in result.skipped.items():
        say(f"warning: {name} was skipped: {reason}")
    files, campaigns = counted(sum(result.files.values()), "file"), counted(len(result.files), "campaign")
    say(f"meshmark: joined {files} of {campaigns}")
