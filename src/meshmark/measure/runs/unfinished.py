"""Stores interrupted measurements, so that `meshmark measure --resume` can resume them.

During a measurement, `.measuring/RUN` in the store contains `plan.json`, `run.json` (the machine) and the journals of
the steps. The folder is removed when the results have been printed; it remains if the run was interrupted or a step
failed. It is locked meanwhile, so that no other process resumes the run.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.measure.runs.plan import SurveyPlan
from meshmark.measure.runs.runner import STATE
from meshmark.store.files import read_json, write_json
from meshmark.store.session import NoLocksError, held, unlocked_sessions
from meshmark.store.store import MEASURING

KEPT: Final = 8  # maximum number of interrupted measurements; older ones are removed


class PartlyError(MeshmarkError):
    """A step failed after some points, which a resumed measurement does not repeat."""


@dataclass(frozen=True, slots=True)
class UnfinishedMeasurement:
    """A measurement that this process has locked."""

    folder: Path
    plan: SurveyPlan
    store: Path

    @property
    def run_id(self) -> str:
        """Return the id of the run in the store."""
        return self.folder.name


@contextlib.contextmanager
def begin(store: Path, run_id: str, plan: SurveyPlan, machine: str) -> Iterator[UnfinishedMeasurement]:
    """Create a measurement in a store, and remove the oldest interrupted measurements beyond `KEPT`.

    The folder is removed if the block ends, or raises an error after which nothing can be resumed.

    Raises:
        MeshmarkError: The folder cannot be written.
    """
    with contextlib.suppress(NoLocksError):
        for number, folder in enumerate(unlocked_sessions(store / MEASURING, f"*/{STATE}"), 1):
            if number >= KEPT:
                shutil.rmtree(folder, ignore_errors=True)
    folder = store / MEASURING / run_id
    with held(folder), _removed_at_end(folder):
        write_json(folder / STATE, {"machine": machine})
        plan.save(folder / "plan.json")  # last, because only a folder with a plan can be resumed
        yield UnfinishedMeasurement(folder, plan, store)


@contextlib.contextmanager
def newest(store: Path, machine: str, instrument: str = "") -> Iterator[UnfinishedMeasurement]:
    """Lock and return the newest interrupted measurement of a machine, optionally of one instrument.

    The folder is removed as by `begin`.

    Raises:
        UsageError: There is no such measurement.
        MeshmarkError: The measurement cannot be read, or the file system has no locks.
    """
    other_machines = set()
    with contextlib.closing(unlocked_sessions(store / MEASURING, f"*/{STATE}")) as folders:
        for folder in folders:
            plan = SurveyPlan.load(folder / "plan.json") if (folder / "plan.json").exists() else SurveyPlan("", ())
            if not plan.steps or instrument not in {"", plan.steps[0].instrument}:
                continue
            try:
                recorded_machine = str(read_json(folder / STATE)["machine"])
            except (MeshmarkError, KeyError, TypeError) as error:
                raise MeshmarkError(f"cannot read {folder / STATE}: {error}") from error
            if recorded_machine == machine:
                with _removed_at_end(folder):
                    yield UnfinishedMeasurement(folder, plan, store)
                return
            other_machines.add(recorded_machine)
    of_instrument = f" of {instrument}" if instrument else ""
    others_text = f"; found some of other machines: {', '.join(sorted(other_machines))}" if other_machines else ""
    raise UsageError(f"--resume: found no interrupted measurement{of_instrument} on {machine} in {store}{others_text}")


@contextlib.contextmanager
def _removed_at_end(folder: Path) -> Iterator[None]:
    try:
        yield
    except MeshmarkError as error:
        if not isinstance(error, PartlyError):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
