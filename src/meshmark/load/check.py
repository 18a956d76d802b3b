"""What a scenario asks for, checked before anything is measured, made or started."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from meshmark.errors import AbsentError, UsageError, quoted
from meshmark.load.placing import Here, check_here, place_copies, threads_of
from meshmark.load.scenario import Member, Scenario, about_program
from meshmark.values.inputs import found, near


def check_scenario(scenario: Scenario, here: Here, files: Mapping[str, Path] | None = None) -> None:
    """Whether this host has what a scenario asks for, as far as that can be told without base data.

    Args:
        files: of programs that were made before for what the scenario prescribes, by name.

    Raises:
        UsageError: one line that names the program and the key.
    """
    members = []
    memory: dict[str, int] = {}
    for p in scenario.programs:
        if p.cwd and not stat.S_ISDIR(_mode(Path(p.cwd))):
            raise UsageError(f"program {p.name}: cwd: found '{quoted(p.cwd)}'; no such folder")
        if p.command:
            _check_command(p)
        elif file := p.file or (files or {}).get(p.name):
            with about_program(p.name):
                threads, memory[p.name] = threads_of(file)
            p = replace(p, threads=threads)  # noqa: PLW2901
        else:
            memory[p.name] = 0  # memory_mib is a limit, and only its synthesis tells what it takes
        members.append(p)
    scenario = replace(scenario, programs=tuple(members))
    check_here(scenario, here, memory)
    check_kernels(scenario)
    _check_memory(scenario)
    place_copies(scenario, here)


def _mode(path: Path) -> int:
    """As stat(2) tells it; 0 of what is not there, or may not be seen."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _check_command(p: Member) -> None:
    """Looks where execvp will look: in the PATH and from the folder that the program is given."""
    word, folder = p.command[0], Path(p.cwd)
    if "/" in word:
        places = [folder / word]
    else:
        path = p.env.get("PATH", os.environ.get("PATH", os.defpath))
        places = [folder / part / word for part in path.split(":")]
    there = [place for place in places if stat.S_ISREG(_mode(place))]
    if not any(os.access(place, os.X_OK) for place in there):
        why = "is no program that may be executed" if there else "no such program"
        raise UsageError(f"program {p.name}: command: found {found(word)}; {why}")


def check_threads(scenario: Scenario, cpus: Collection[int]) -> None:
    """Whether each program that is prescribed has a CPU for every thread, or need not have one.

    Raises:
        UsageError: by the name of the program.
    """
    for p in scenario.programs:
        if p.prescription and p.prescription.threads > len(cpus) and not p.oversubscribe:
            raise UsageError(
                f"program {p.name}: threads: found {p.prescription.threads}, allowed are {len(cpus)}",
                "oversubscribe = true, if that is what is to be measured",
            )


def check_kernels(scenario: Scenario, known: Collection[str] | None = None) -> None:
    """Whether the load kernels that prescriptions name exist at all.

    Args:
        known: names of load kernels; None: asks the native program, where one is named.

    Raises:
        UsageError: one does not, by its name.
    """
    for p in scenario.programs:
        for key in ("kernels", "without") if p.prescription else ():
            for name in getattr(p.prescription, key):
                if known is None:
                    from meshmark.load.make import kernels

                    known = {str(row["name"]) for row in kernels()}
                if name not in known:
                    also = near(name, known) or "meshmark load kernels lists them"
                    raise UsageError(f"program {p.name}: {key}: found {found(name)}; no such load kernel; {also}")


def _check_memory(scenario: Scenario) -> None:
    """Whether the operating-system kernel takes each memory policy."""
    from meshmark.place import native

    first = {p.memory: p.name for p in reversed(scenario.programs) if p.memory}
    for memory, name in first.items():
        with about_program(name):
            try:
                native.ask(["run", "--bind", "none", "--no-claim", "--memory", memory, "--", "true"])
            except AbsentError as why:  # as an old kernel's
                raise UsageError(str(why), why.hint) from why
