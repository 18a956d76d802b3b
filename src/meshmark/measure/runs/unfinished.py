"""Stores interrupted measurements, so that `meshmark measure --resume` can resume them.

During a measurement, `.measuring/RUN` in the store contains `plan.json`, `run.json` (the machine) and the journals of
the steps. The folder is removed when the results have been printed; it remains if the run was interrupted or a step
failed. The measuring process locks `run.json`, so that no other process resumes the run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.measure.runs.plan import SurveyPlan
from meshmark.measure.runs.runner import STATE, save_state
from meshmark.store.files import read_json
from meshmark.store.session import NoLocksError
from meshmark.store.session import lock as lock_of
from meshmark.store.store import MEASURING

KEPT: Final = 8  # maximum number of interrupted measurements; older ones are removed


@dataclass(frozen=True, slots=True)
class UnfinishedMeasurement:
    """A measurement that this process has locked until it ends or calls `remove`."""

    folder: Path
    plan: SurveyPlan
    store: Path
    lock: int | None

    @property
    def run_id(self) -> str:
        return self.folder.name

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.lock is not None:
            os.close(self.lock)


def begin(store: Path, run_id: str, plan: SurveyPlan, machine: str) -> UnfinishedMeasurement:
    """Create a measurement in a store, and remove the oldest interrupted measurements beyond `KEPT`.

    Raises:
        MeshmarkError: The folder cannot be written.
    """
    with contextlib.suppress(NoLocksError):
        unlocked = 0
        for interrupted in _newest_first(store):
            lock = lock_of(interrupted / STATE)
            if lock is not None:
                unlocked += 1
                if unlocked >= KEPT:
                    shutil.rmtree(interrupted, ignore_errors=True)
                os.close(lock)
    folder = store / MEASURING / run_id
    save_state(folder, {"machine": machine})
    try:
        lock = lock_of(folder / STATE, wait=True)
    except NoLocksError:  # measuring works without a lock, resuming does not
        lock = None
    plan.save(folder / "plan.json")  # last, because only a folder with a plan can be resumed
    return UnfinishedMeasurement(folder, plan, store, lock)


def newest(store: Path, machine: str, instrument: str = "") -> UnfinishedMeasurement:
    """Lock and return the newest interrupted measurement of a machine, optionally of one instrument.

    Raises:
        UsageError: There is no such measurement.
        MeshmarkError: The measurement cannot be read, or the file system has no locks.
    """
    other_machines = set()
    for folder in _newest_first(store):
        try:
            lock = lock_of(folder / STATE)
        except NoLocksError as error:
            raise MeshmarkError(
                f"--resume: {error}", "use --store DIR or XDG_DATA_HOME=DIR on another file system"
            ) from error
        if lock is None:
            continue
        plan = SurveyPlan.load(folder / "plan.json") if (folder / "plan.json").exists() else SurveyPlan("", ())
        if plan.steps and instrument in {"", plan.steps[0].instrument}:
            try:
                recorded_machine = str(read_json(folder / STATE)["machine"])
            except (MeshmarkError, KeyError, TypeError) as error:
                raise MeshmarkError(f"cannot read {folder / STATE}: {error}") from error
            if recorded_machine == machine:
                return UnfinishedMeasurement(folder, plan, store, lock)
            other_machines.add(recorded_machine)
        os.close(lock)
    of_instrument = f" of {instrument}" if instrument else ""
    others_text = f"; found some of other machines: {', '.join(sorted(other_machines))}" if other_machines else ""
    raise UsageError(f"--resume: found no interrupted measurement{of_instrument} on {machine} in {store}{others_text}")


def _newest_first(store: Path) -> list[Path]:
    folders = []
    for state in (store / MEASURING).glob(f"*/{STATE}"):
        with contextlib.suppress(FileNotFoundError):  # removed in the meantime
            folders.append((state.stat().st_mtime, state.parent))
    return [folder for _, folder in sorted(folders, reverse=True)]
