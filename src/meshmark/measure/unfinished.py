"""What `meshmark measure` was cut off in, so that `--resume` can go on with it.

While it measures, `measuring/RUN` in the data folder holds `plan.json`, `run.json` (store, instrument) and the journals
of the steps. The folder goes when its result was told; one that stays was interrupted or had a step that failed. Who
measures holds the lock of `run.json`, so that nobody else goes on with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.measure.plan import Plan
from meshmark.measure.runner import save_state

KEPT: Final = 8  # unfinished ones; with the next the oldest goes


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A measurement, locked by this process until it ends or `remove` is called."""

    folder: Path
    plan: Plan
    store: Path
    lock: int

    @property
    def run_id(self) -> str:
        return self.folder.name

    @property
    def instrument(self) -> str:
        return self.plan.steps[0].instrument

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)


def begin(parent: Path, run_id: str, plan: Plan, store: Path) -> Unfinished:
    """A new one; of those that nobody goes on with, the oldest are removed.

    Raises:
        MeshmarkError: the folder cannot be written.
    """
    left = []
    for one in _newest_first(parent):
        lock = _locked(one)
        if lock is not None:
            left.append(one)
            os.close(lock)
    for one in left[KEPT - 1 :]:
        shutil.rmtree(one, ignore_errors=True)
    folder = parent / run_id
    save_state(folder, {"run_id": run_id, "store": str(store.absolute())})
    lock = _locked(folder)
    if lock is None:
        raise MeshmarkError(f"{folder}: found another process at it")
    plan.save(folder / "plan.json")  # last: it makes the folder one to go on with
    return Unfinished(folder, plan, store, lock)


def newest(parent: Path, instrument: str = "") -> Unfinished:
    """The newest that no process is at, of an instrument or of any.

    Raises:
        UsageError: there is none. MeshmarkError: it cannot be read.
    """
    for folder in _newest_first(parent):
        lock = _locked(folder)
        if lock is None:
            continue
        plan = Plan.load(folder / "plan.json") if (folder / "plan.json").exists() else Plan("", ())
        if plan.steps and instrument in {"", plan.steps[0].instrument}:
            try:
                store = Path(json.loads((folder / "run.json").read_text())["store"])
            except (OSError, ValueError, KeyError, TypeError) as why:
                raise MeshmarkError(f"cannot read {folder / 'run.json'}: {why}") from why
            return Unfinished(folder, plan, store, lock)
        os.close(lock)
    of = f" of {instrument}" if instrument else ""
    raise UsageError(f"--resume: found no measurement{of} that was cut off in {parent}")


def _newest_first(parent: Path) -> list[Path]:
    found = [(p.stat().st_mtime, p.parent) for p in parent.glob("*/run.json")]
    return [folder for _, folder in sorted(found, reverse=True)]


def _locked(folder: Path) -> int | None:
    """The lock, which the kernel takes back from a process that dies; None: somebody has it."""
    try:
        handle = os.open(folder / "run.json", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # its result was told meanwhile
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
