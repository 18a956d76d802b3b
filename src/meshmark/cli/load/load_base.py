"""Selects the CPUs and calibration data for commands of `meshmark load`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshmark.cli.console import say
from meshmark.errors import MeshmarkError, UsageError
from meshmark.values import grammar
from meshmark.values.paths import data_home

if TYPE_CHECKING:
    from meshmark.load.calibration.variants import Variant

BUSY: Final = 0.10  # maximum share of CPU time of other processes; a larger share would distort the calibration data


def _others_busy(cpus: tuple[int, ...], seconds: float = 0.5) -> float:
    """Return the busy share of these CPUs, 0 to 1, measured while this process sleeps."""

    def cpu_ticks() -> tuple[int, int]:
        busy = total = 0
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(" ")
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus:
                ticks = [int(x) for x in rest.split()[:8]]
                total += sum(ticks)
                busy += sum(ticks) - ticks[3] - ticks[4]
        return busy, total

    start = cpu_ticks()
    time.sleep(seconds)
    end = cpu_ticks()
    return (end[0] - start[0]) / max(1, end[1] - start[1])


def check_idle(force: bool) -> None:
    """Refuse calibration data of a busy machine; with `force`, print a warning instead.

    Raises:
        MeshmarkError: Other processes use the CPUs.
    """
    busy = _others_busy(tuple(sorted(os.sched_getaffinity(0))))
    if busy <= BUSY:
        return
    text = f"calibration data: other processes use {100 * busy:.0f} % of the CPUs; allowed: {100 * BUSY:.0f} %"
    if not force:
        raise MeshmarkError(
            text, "stop them, restrict this command to idle CPUs (taskset -c 4-7 meshmark …), or use --force"
        )
    say(f"warning: {text}; programs generated from these data will be too short on an idle machine")


def cpus_of(text: str) -> tuple[int, ...]:
    """Return the CPUs for a value of `--cpus`; "" stands for the affinity mask of this process.

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
    """Return the kernel variants of the calibration data, and their machine.

    Args:
        name: Run with calibration data; "" for the newest run of this machine.

    Raises:
        MeshmarkError: This machine has no calibration data.
    """
    from meshmark.load.calibration.base import base_run, last_base, read_base
    from meshmark.machine.facts import host_id

    machine, runs = host_id(), data_home() / "runs"
    folder = base_run(runs, machine, name)
    if folder is None:
        interrupted = last_base(runs, machine)
        raise MeshmarkError(
            "found no calibration data of this machine"
            + (f", only the interrupted run {interrupted.name}" if interrupted else ""),
            "meshmark load base --resume completes the newest run, --base RUN uses one as it is"
            if interrupted
            else "measure them in two minutes with meshmark load base --quick",
        )
    variants, notes = read_base(folder)
    for note in notes:
        say(f"warning: calibration data of {folder.name}: {note}")
    return variants, machine
