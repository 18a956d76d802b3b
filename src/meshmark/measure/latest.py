"""Finds the newest run of a machine, whichever command wrote it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError
from meshmark.measure.survey import surveys
from meshmark.store.store import Store

LATEST: Final = "latest"
_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"


def newest_run(store: Path, runs: Path, machine: str) -> Path | str:
    """Return the folder of the newest survey, or the name of a run of the store that started later.

    Imported results of other tools are not runs of the machine.

    Args:
        store: Folder of the store; it may be missing.
        runs: Folder of the surveys.
        machine: Name of the machine in the store.

    Raises:
        UsageError: There is no run.
    """
    # A survey appears in the store only after its steps have ended; its folder exists earlier.
    folders = {folder.name: folder for folder in surveys(runs)}
    started = {name: _start(folder) for name, folder in folders.items()}
    if store.is_dir():
        for row in Store(store).runs():
            if row["machine"] == machine and row["source"] != "tool" and row["start"]:
                started[str(row["run"])] = str(row["start"])
    if not started:
        raise UsageError(f"{LATEST}: found no run of this machine", "meshmark survey --quick")
    newest = max(started, key=lambda name: (started[name][:19], name))
    return folders.get(newest, newest)


def _start(folder: Path) -> str:
    """Return the time at which a survey was planned, ISO 8601."""
    return datetime.fromtimestamp((folder / "plan.json").stat().st_mtime, UTC).strftime(_FORM)
