"""Place a scenario on this host: check its resources, assign CPUs to copies, and write the native program's plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.profile import RunTime, TargetProfile, Threads
from meshmark.load.calibration.variants import MAX_PROGRAM_BYTES, Volume
from meshmark.load.scenario.scenario import Scenario, ScenarioProgram, about_program, file_stem
from meshmark.load.synthesis.program import FORMAT
from meshmark.machine.tree import FileTree, format_list, kilobytes
from meshmark.store.files import read_json
from meshmark.values.inputs import LIST, PRINTABLE, Excerpt, checked, key_text, quoted_value
from meshmark.values.secrets import mask_variables, mask_words

if TYPE_CHECKING:
    from meshmark.load.scenario.application import ApplicationCopies


@dataclass(frozen=True, slots=True)
class HostResources:
    """Resources of the host."""

    cpus: tuple[int, ...]  # CPUs that this process may use
    memory_bytes: int  # available without swapping; 0: unknown

    @staticmethod
    def now() -> HostResources:
        """Return the CPUs that this process may use, and the available memory in B; 0 if it is unknown."""
        memory = kilobytes(FileTree(Path("/")).text("proc/meminfo"), "MemAvailable") or 0
        return HostResources(tuple(sorted(os.sched_getaffinity(0))), memory)


def check_here(scenario: Scenario, here: HostResources, memory_bytes: Mapping[str, int] | None = None) -> None:
    """Check that this host has the CPUs and the memory for a scenario.

    Args:
        scenario: the scenario.
        here: CPUs and memory of this host.
        memory_bytes: memory of one copy of each program, by name, where it is known more precisely than memory_mib.

    Raises:
        UsageError: one line that names the program and the key.
    """
    total_bytes = 0.0
    largest_request = ("", 0.0)
    for p in scenario.programs:
        for cpus in p.cpus:
            if not set(cpus) <= set(here.cpus):
                forbidden_cpus = format_list(sorted(set(cpus) - set(here.cpus)))
                raise UsageError(
                    f"program {p.name}: cpus: found {format_list(cpus)}; {forbidden_cpus} may not be used here; "
                    f"allowed: {format_list(here.cpus)}"
                )
            slots = len(cpus) or len(here.cpus)
            if p.threads > slots and not p.oversubscribe:
                available = f"CPUs {format_list(cpus)}" if cpus else f"the machine's CPUs {format_list(here.cpus)}"
                raise UsageError(
                    f"program {p.name}: threads: found {p.threads}, more than {available}; allowed: {slots}",
                    "set oversubscribe = true if this is intended",
                )
        exact_bytes = (memory_bytes or {}).get(p.name)
        request_bytes = p.copies * (float(exact_bytes) if exact_bytes is not None else (p.memory_mib or 0.0) * 2**20)
        total_bytes += request_bytes
        largest_request = max(largest_request, (p.name, request_bytes), key=lambda m: m[1])
    if here.memory_bytes and total_bytes > here.memory_bytes:
        raise UsageError(
            f"program {largest_request[0]}: memory_mib: all programs and copies request {total_bytes / 2**20:.0f} MiB, "
            f"{largest_request[0]} requests {largest_request[1] / 2**20:.0f} MiB of it; "
            f"{here.memory_bytes / 2**20:.0f} MiB are available"
        )


def place_copies(scenario: Scenario, here: HostResources) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return the CPUs of every copy, by program and copy; () for copies that are not bound.

    Copies with the same policy are placed together, in the order of the scenario.

    Raises:
        MeshmarkError: a policy cannot place a copy; the message names the program.
    """
    from meshmark.place import native

    cpus_by_copy: dict[tuple[str, int], tuple[int, ...]] = {}
    by_policy: dict[str, list[tuple[ScenarioProgram, int]]] = {}
    for p in scenario.programs:
        policy = p.policy or scenario.policy
        for copy in range(p.copies):
            cpus_by_copy[p.name, copy] = p.cpus[copy]
            if not p.cpus[copy] and policy not in {"", "none"}:
                by_policy.setdefault(policy, []).append((p, copy))
    for policy, copies in by_policy.items():
        argv = [
            "plan",
            "--topology",
            "host",
            "--policy",
            policy,
            "--slots",
            scenario.slots,
            "--jobs",
            ",".join(str(p.threads) for p, _ in copies),
            "--within",
            format_list(here.cpus),
        ]
        with about_program(copies[0][0].name):
            jobs = native.answer(argv).get("jobs")
        if not isinstance(jobs, list) or len(jobs) != len(copies):
            raise MeshmarkError(f"policy {policy}: the plan does not have one job for each copy")
        for (p, copy), job in zip(copies, jobs, strict=True):
            if "refused" in job:
                raise UsageError(f"program {p.name}, copy {copy}: policy {policy}: {job['refused']}")
            cpus_by_copy[p.name, copy] = tuple(sorted(map(int, job["cpus"])))
    return cpus_by_copy


def _cpu_list(cpus: tuple[int, ...]) -> str:
    return format_list(cpus) if cpus else ""


def run_plan(
    scenario: Scenario,
    cpus: Mapping[tuple[str, int], tuple[int, ...]],
    program_argv: Mapping[str, Sequence[str]],
    output: Path,
    applications: Mapping[str, ApplicationCopies],
) -> dict[str, Any]:
    """Return the plan that `meshmark-load run` reads.

    Args:
        scenario: the scenario.
        cpus: CPUs of each copy, from `place_copies`.
        program_argv: command lines of synthetic programs, by program name.
        output: folder for the output of programs.
        applications: copies of the programs that application files describe, by program name.
    """
    programs: list[dict[str, Any]] = []
    for p in scenario.programs:
        environment = dict(p.env)
        if (p.threads > 1 and p.described is None) or p.synthesised:
            environment.setdefault("OMP_NUM_THREADS", str(p.threads))
        if p.wait_policy:
            environment.setdefault("OMP_WAIT_POLICY", p.wait_policy)
        copies = applications.get(p.name)
        programs += [
            {
                "name": p.name,
                "copy": copy,
                "argv": copies.command(copy) if copies else list(p.command or program_argv[p.name]),
                "synthesised": p.synthesised,
                "start_s": p.start_s[copy],
                "cpus": _cpu_list(cpus[p.name, copy]),
                "nice": p.nice,
                "priority": p.priority,
                "memory": p.memory,
                "env": {**copies.environment(copy), **environment} if copies else environment,
                "cgroup": p.cgroup,
                "cwd": str(copies.home(copy)) if copies else p.cwd,
                "stdout": str(output / f"{file_stem(p.name)}.{copy}.out"),
                "stderr": str(output / f"{file_stem(p.name)}.{copy}.err"),
            }
            for copy in range(p.copies)
        ]
    return {
        "format": "meshmark load plan",
        "version": 1,
        "scenario": scenario.name,
        "sample_s": scenario.sample_s,
        "timeout_s": scenario.timeout_s,
        "canary": {
            "before_s": scenario.canary.before_s,
            "after_s": scenario.canary.after_s,
            "during": scenario.canary.during,
        },
        "programs": programs,
    }


def without_secrets(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan as `plan.json` stores it: without the values of variables that look like secrets."""
    programs = [{**p, "argv": mask_words(p["argv"]), "env": mask_variables(p["env"])} for p in plan["programs"]]
    return {**plan, "programs": programs}


def scenario_json(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as `scenario.json` of a run folder stores it."""

    def member(p: ScenarioProgram) -> dict[str, Any]:
        return {
            "name": p.name,
            "copies": p.copies,
            "threads": p.threads,
            "start_s": list(p.start_s),
            "cpus": [_cpu_list(c) for c in p.cpus],
            "policy": p.policy or scenario.policy,
            "nice": p.nice,
            "priority": p.priority,
            "wait_policy": p.wait_policy,
            "memory": p.memory,
            "memory_mib": p.memory_mib,
            "cgroup": p.cgroup,
            "env": mask_variables(p.env),
            "oversubscribe": p.oversubscribe,
            "command": mask_words(p.described.app.command if p.described else p.command),
            "application": p.application,
            "configuration": p.described.configuration.label if p.described else "",
            "file": str(p.file) if p.file else None,
            "prescription": p.profile.to_json() if p.profile else None,
        }

    return {
        "name": scenario.name,
        "sample_s": scenario.sample_s,
        "timeout_s": scenario.timeout_s,
        "policy": scenario.policy,
        "slots": scenario.slots,
        "programs": [member(p) for p in scenario.programs],
    }


def threads_of(path: Path) -> tuple[int, int]:
    """Return the threads of a program's file and its memory in bytes, without validating the whole file.

    Raises:
        UsageError: the file cannot be read, or is not a program.
    """
    excerpt = _read_excerpt(path)[1]
    return excerpt.prescription.threads, sum(v.volume_bytes for v in excerpt.variants)


@dataclass(frozen=True, slots=True)
class _ProfileExcerpt(Excerpt):
    threads: Threads = 1
    run_time_s: RunTime = 0.0


@dataclass(frozen=True, slots=True)
class _VariantExcerpt(Excerpt):
    volume_bytes: Volume


@dataclass(frozen=True, slots=True)
class _ProgramExcerpt(Excerpt):
    prescription: _ProfileExcerpt
    variants: Annotated[tuple[_VariantExcerpt, ...], LIST]
    notes: Annotated[tuple[Annotated[str, PRINTABLE], ...], LIST] = ()


def _read_excerpt(path: Path) -> tuple[dict[str, Any], _ProgramExcerpt]:
    """Return the raw target profile of a program's file, and the fields that this module needs."""
    raw = read_json(path, MAX_PROGRAM_BYTES)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise UsageError(f"{path}: not a program of meshmark load make")
    excerpt = checked(_ProgramExcerpt, raw, str(path))
    return raw["prescription"], excerpt


def run_time_of(path: Path) -> float:
    """Return the planned run time of a program's file in s; 0 if the file has none.

    Raises:
        UsageError: the file cannot be read, or is not a program.
    """
    return _read_excerpt(path)[1].prescription.run_time_s


def compared(path: Path, profile: TargetProfile) -> tuple[str, tuple[str, ...]]:
    """Compare a program's file with the requested profile.

    Returns:
        The first difference between the file's target profile and `profile`, such as `run_time_s = 6.0, now 7.0`, or
        ""; and where the program deviates from its target profile, one line each.

    Raises:
        UsageError: the file cannot be read, or is not a program.
    """
    stored, excerpt = _read_excerpt(path)
    profile_values = profile.to_json()
    for key in {**profile_values, **stored}:
        if stored.get(key) != profile_values.get(key):
            return (
                f"{key_text(key)} = {quoted_value(stored.get(key))}, now {quoted_value(profile_values.get(key))}",
                excerpt.notes,
            )
    return "", excerpt.notes
