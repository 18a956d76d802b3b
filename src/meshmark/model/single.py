"""Measures one instrument on a modelled machine and stores the records, for the command line and for Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from meshmark.errors import AbsentError, UsageError, quoted
from meshmark.model.instruments import OnAbsence, Progress
from meshmark.model.instruments import measure as simulated
from meshmark.model.machine import FOLDER, MachineFile
from meshmark.model.published import with_published
from meshmark.store.record import Record
from meshmark.store.store import Store, run_name


def measure(
    instrument: str,
    machine: MachineFile,
    options: Mapping[str, str],
    command: Sequence[str],
    progress: Progress | None = None,
    on_absence: OnAbsence = lambda _: None,
) -> list[Record]:
    """Return the records of one instrument, with the published value of each point that has one.

    Args:
        instrument: Name of the instrument.
        machine: The modelled machine.
        options: Options of the instrument by key, with values as on the command line.
        command: The words after `meshmark measure` that repeat the measurement.
        progress: Function that is called with the progress; None: none is reported.
        on_absence: Called for each point that lacks numbers in the machine file.

    Raises:
        UsageError: A model does not support an option, or a value is invalid.
        AbsentError: The machine file lacks values that the instrument needs.
    """
    seed = options.get("seed", "1")
    if not re.fullmatch("[0-9]{1,18}", seed):
        raise UsageError(f"{instrument}: --seed: found '{quoted(seed)}'; allowed: an integer")
    records = simulated(
        instrument,
        machine,
        options,
        command=shlex.join(command),
        seed=int(seed),
        progress=progress,
        on_absence=on_absence,
    )
    if not records:
        raise AbsentError(f"{instrument}: {machine.path.name} lacks values that this instrument needs")
    return with_published(records)


def keep(store: Path | None, records: list[Record], step: str) -> None:
    """Add the records to the store as a new run; do nothing if `store` is None."""
    if store is None or not records:
        return
    archive, run = Store(store), run_name("model")
    archive.add(run, step, records, (), records[0].machine)
    archive.finish(run)


def assumptions(machine: MachineFile) -> str:
    """Return a line with the number of assumed and unknown values of a machine file; "" if there are none."""
    assumed = sum(1 for o in machine.origins.values() if o.kind == "assumed")
    if not assumed and not machine.unknown:
        return ""
    reference = machine.name if machine.path.parent == FOLDER else machine.path
    return (
        f"note: {machine.name}: {assumed} values assumed, {len(machine.unknown)} unknown; predictions that depend on "
        f"them are uncertain: meshmark model show {reference} --origins"
    )
