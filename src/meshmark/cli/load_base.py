"""Selects the CPUs and calibration data for commands of `meshmark load`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from meshmark.cli.console import say
from meshmark.errors import MeshmarkError, UsageError
from meshmark.values import grammar
from meshmark.values.paths import data_home

if TYPE_CHECKING:
    from meshmark.load.variants import Variant


def cpus_of(text: str) -> tuple[int, ...]:
    """CPUs for a value of `--cpus`; "" is the affinity mask of this process.

    Raises:
        UsageError: The value is not a list of CPUs, or contains CPUs outside the affinity mask.
    """
    from meshmark.machine.tree import format_list

    allowed = tuple(sorted(os.sched_getaffinity(0)))
    if not text:
        return allowed
    cpus = grammar.cpus("--cpus", text)
    if not set(cpus) <= set(allowed):
        raise UsageError(f"--cpus: found '{text}'; allowed: CPUs of {format_list(allowed)}")
    return cpus


def base_variants(name: str) -> tuple[list[Variant], str]:
    """Kernel variants of the calibration data, and their machine.

    Args:
        name: Run with calibration data; "" for the newest one of this machine.

    Raises:
        MeshmarkError: There are no calibration data.
    """
    from meshmark.load.base import base_run, last_base, read_base
    from meshmark.machine.facts import host_id

    machine, runs = host_id(), data_home() / "runs"
    folder = base_run(runs, machine, name)
    if folder is None:
        begun = last_base(runs, machine)
        raise MeshmarkError(
            "found no calibration data of this machine" + (f", only the interrupted run {begun.name}" if begun else ""),
            "meshmark load base --resume completes the newest run, --base RUN uses one as it is"
            if begun
            else "measure them in two minutes with meshmark load base --quick",
        )
    found, notes = read_base(folder)
    for note in notes:
        say(f"warning: calibration data of {folder.name}: {note}")
    return found, machine
