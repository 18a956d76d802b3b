"""Check that this host can run a scenario, before anything is measured, synthesised or started."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from meshmark.errors import AbsentError, UsageError, near, quoted
from meshmark.load.scenario.placing import HostResources, check_here, place_copies, threads_of
from meshmark.load.scenario.scenario import Scenario, ScenarioProgram, about_program
from meshmark.values.inputs import quoted_value


def check_scenario(scenario: Scenario, here: HostResources, files: Mapping[str, Path] | None = None) -> None:
    """Check that this host can run a scenario, as far as possible without calibration data.

    Args:
        scenario: the scenario.
        here: CPUs and memory of this host.
        files: programs synthesised earlier for target profiles of the scenario, by program name.

    Raises:
        UsageError: one line that names the program and the key.
    """
    members = []
    memory: dict[str, int] = {}
    for p in scenario.programs:
        if p.cwd and not stat.S_ISDIR(_mode(Path(p.cwd))):
            raise UsageError(f"program {p.name}: cwd: found '{quoted(p.cwd)}'; no such folder")
        if p.described:
            p.described.check()
        elif p.command:
            _check_command(p)
        elif file := p.file or (files or {}).get(p.name):
            with about_program(p.name):
                threads, memory[p.name] = threads_of(file)
            p = replace(p, threads=threads)  # noqa: PLW2901
        else:
            memory[p.name] = 0  # memory_mib is only a limit; the use is known after synthesis
        members.append(p)
    scenario = replace(scenario, programs=tuple(members))
    check_here(scenario, here, memory)
    check_kernels(scenario)
    _check_memory(scenario)
    place_copies(scenario, here)


def _mode(path: Path) -> int:
    """Return the mode from stat(2); 0 if the path does not exist or is not accessible."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _check_command(p: ScenarioProgram) -> None:
    """Check that execvp would find the command from the program's working directory."""
    executable, folder = p.command[0], Path(p.cwd)
    if "/" in executable:
        candidates = [folder / executable]
    else:
        path = p.env.get("PATH", os.environ.get("PATH", os.defpath))
        candidates = [folder / part / executable for part in path.split(":")]
    files = [place for place in candidates if stat.S_ISREG(_mode(place))]
    if not any(os.access(place, os.X_OK) for place in files):
        reason = "is not executable" if files else "no such program"
        raise UsageError(f"program {p.name}: command: found {quoted_value(executable)}; {reason}")


def check_threads(scenario: Scenario, cpus: Collection[int]) -> None:
    """Check that each program with a target profile has a CPU for every thread, unless it may oversubscribe.

    Raises:
        UsageError: a program has too few CPUs; the message names it.
    """
    for p in scenario.programs:
        if p.profile and p.profile.threads > len(cpus) and not p.oversubscribe:
            raise UsageError(
                f"program {p.name}: threads: found {p.profile.threads}; allowed: {len(cpus)}",
                "set oversubscribe = true if this is intended",
            )


def check_kernels(scenario: Scenario, known: Collection[str] | None = None) -> None:
    """Check that the load kernels named in target profiles exist.

    Args:
        scenario: the scenario.
        known: names of load kernels; None: queries the native program if a profile names a kernel.

    Raises:
        UsageError: a kernel does not exist; the message names it.
    """
    for p in scenario.programs:
        for key in ("kernels", "without") if p.profile else ():
            for name in getattr(p.profile, key):
                if known is None:
                    from meshmark.load.synthesis.make import kernels

                    known = {str(row["name"]) for row in kernels()}
                if name not in known:
                    suggestion = near(name, known) or "meshmark load kernels lists them"
                    raise UsageError(
                        f"program {p.name}: {key}: found {quoted_value(name)}; no such load kernel; {suggestion}"
                    )


def _check_memory(scenario: Scenario) -> None:
    """Check that the Linux kernel accepts each memory policy."""
    from meshmark.place import native

    program_by_memory = {p.memory: p.name for p in reversed(scenario.programs) if p.memory}
    for memory, name in program_by_memory.items():
        with about_program(name):
            try:
                native.ask(["run", "--bind", "none", "--no-claim", "--memory", memory, "--", "true"])
            except AbsentError as error:  # an old kernel lacks the policy
                raise UsageError(str(error), error.hint) from error
