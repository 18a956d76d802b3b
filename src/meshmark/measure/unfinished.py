"""What `meshmark measure` was cut off in, so that `--resume` can go on with it.

While it measures, `.measuring/RUN` in the store holds `plan.json`, `run.json` (the machine) and the journals of the
steps. The folder goes when its result was told; one that stays was interrupted or had a step that failed. Who measures
holds the lock of `run.json`, so that nobody else goes on with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.measure.plan import Plan
from meshmark.measure.runner import STATE, save_state
from meshmark.store.files import NoLocksError, read_json
from meshmark.store.files import lock as lock_of
from meshmark.store.store import MEASURING

KEPT: Final = 8  # unfinished ones; with the next the oldest goes


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A measurement, locked by this process until it ends or `remove` is called."""

    folder: Path
    plan: Plan
    store: Path
    lock: int | None

    @property
    def run_id(self) -> str:
        return self.folder.name

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.lock is not None:
            os.close(self.lock)


def begin(store: Path, run_id: str, plan: Plan, machine: str) -> Unfinished:
    """A new one in a store; of those that nobody goes on with, the oldest are removed.

    Raises:
        MeshmarkError: the folder cannot be written.
    """
    with contextlib.suppress(NoLocksError):
        left = 0
        for one in _newest_first(store):
            lock = lock_of(one / STATE)
            if lock is not None:
                left += 1
                if left >= KEPT:
                    shutil.rmtree(one, ignore_errors=True)
                os.close(lock)
    folder = store / MEASURING / run_id
    save_state(folder, {"machine": machine})
    try:
        lock = lock_of(folder / STATE, wait=True)
    except NoLocksError:  # to measure it needs none
        lock = None
    plan.save(folder / "plan.json")  # last: it makes the folder one to go on with
    return Unfinished(folder, plan, store, lock)


def newest(store: Path, machine: str, instrument: str = "") -> Unfinished:
    """The newest in a store, of a machine that no process is at, of an instrument or of any.

    Raises:
        UsageError: there is none. MeshmarkError: it cannot be read.
    """
    others = set()
    for folder in _newest_first(store):
        try:
            lock = lock_of(folder / STATE)
        except NoLocksError as why:
            raise MeshmarkError(
                f"--resume: {why}", "--store DIR, or XDG_DATA_HOME=DIR, on another file system"
            ) from why
        if lock is None:
            continue
        plan = Plan.load(folder / "plan.json") if (folder / "plan.json").exists() else Plan("", ())
        if plan.steps and instrument in {"", plan.steps[0].instrument}:
            try:
                its = str(read_json(folder / STATE)["machine"])
            except (MeshmarkError, KeyError, TypeError) as why:
                raise MeshmarkError(f"cannot read {folder / STATE}: {why}") from why
            if its == machine:
                return Unfinished(folder, plan, store, lock)
            others.add(its)
        os.close(lock)
    of = f" of {instrument}" if instrument else ""
    there = f"; of other machines there are {', '.join(sorted(others))}" if others else ""
    raise UsageError(f"--resume: found no measurement{of} on {machine} that was cut off in {store}{there}")


def _newest_first(store: Path) -> list[Path]:
    found = []
    for state in (store / MEASURING).glob(f"*/{STATE}"):
        with contextlib.suppress(FileNotFoundError):  # its result was told meanwhile
            found.append((state.stat().st_mtime, state.parent))
    return [folder for _, folder in sorted(found, reverse=True)]
