"""Where a scenario's programs run: checks against this machine, copies on CPUs, the plan of the native program."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.prescription import Prescription, RunTime, Threads
from meshmark.load.program import FORMAT
from meshmark.load.scenario import Member, Scenario, about_program
from meshmark.load.variants import MAX_PROGRAM_BYTES, Volume
from meshmark.machine.tree import Tree, format_list, kilobytes
from meshmark.store.files import read_json
from meshmark.values.inputs import LIST, Excerpt, checked, found, shown


@dataclass(frozen=True, slots=True)
class Here:
    """What the host has for a scenario."""

    cpus: tuple[int, ...]  # that may be used
    memory_bytes: int  # that can be had without swapping; 0: unknown

    @staticmethod
    def now() -> Here:
        memory = kilobytes(Tree(Path("/")).text("proc/meminfo"), "MemAvailable") or 0
        return Here(tuple(sorted(os.sched_getaffinity(0))), memory)


def check_here(scenario: Scenario, here: Here, memory_bytes: Mapping[str, int] | None = None) -> None:
    """Whether this host has what a scenario asks for; before anything starts.

    Args:
        memory_bytes: what a copy of each program takes, by name, where that is known better than its memory_mib.

    Raises:
        UsageError: one line that names the program and the key.
    """
    asked = 0.0
    most = ("", 0.0)
    for p in scenario.programs:
        for cpus in p.cpus:
            if not set(cpus) <= set(here.cpus):
                lacking = format_list(sorted(set(cpus) - set(here.cpus)))
                raise UsageError(
                    f"program {p.name}: cpus: found {format_list(cpus)}; {lacking} may not be used here, "
                    f"allowed are {format_list(here.cpus)}"
                )
            room = len(cpus) or len(here.cpus)
            if p.threads > room and not p.oversubscribe:
                those = f"CPUs {format_list(cpus)}" if cpus else f"the machine's CPUs {format_list(here.cpus)}"
                raise UsageError(
                    f"program {p.name}: threads: found {p.threads}, more than {those}; allowed are {room}",
                    "oversubscribe = true, if that is what is to be measured",
                )
        known = (memory_bytes or {}).get(p.name)
        share = p.copies * (float(known) if known is not None else (p.memory_mib or 0.0) * 2**20)
        asked += share
        most = max(most, (p.name, share), key=lambda m: m[1])
    if here.memory_bytes and asked > here.memory_bytes:
        raise UsageError(
            f"program {most[0]}: memory_mib: all programs and copies ask for {asked / 2**20:.0f} MiB, "
            f"{most[0]} for {most[1] / 2**20:.0f} of them; {here.memory_bytes / 2**20:.0f} MiB are available"
        )


def place_copies(scenario: Scenario, here: Here) -> dict[tuple[str, int], tuple[int, ...]]:
    """CPUs of every copy, by program and copy; () where nothing is bound. Copies that one policy places are placed
    together, in the scenario's order.

    Raises:
        MeshmarkError: a policy refused; the message names the program.
    """
    from meshmark.place import native

    out: dict[tuple[str, int], tuple[int, ...]] = {}
    by_policy: dict[str, list[tuple[Member, int]]] = {}
    for p in scenario.programs:
        policy = p.policy or scenario.policy
        for copy in range(p.copies):
            out[p.name, copy] = p.cpus[copy]
            if not p.cpus[copy] and policy not in {"", "none"}:
                by_policy.setdefault(policy, []).append((p, copy))
    for policy, placed in by_policy.items():
        words = [
            "plan",
            "--topology",
            "host",
            "--policy",
            policy,
            "--slots",
            scenario.slots,
            "--jobs",
            ",".join(str(p.threads) for p, _ in placed),
            "--within",
            format_list(here.cpus),
        ]
        with about_program(placed[0][0].name):
            jobs = native.answer(words).get("jobs")
        if not isinstance(jobs, list) or len(jobs) != len(placed):
            raise MeshmarkError(f"policy {policy}: the plan has not a job for each program")
        for (p, copy), job in zip(placed, jobs, strict=True):
            if "refused" in job:
                raise UsageError(f"program {p.name}, copy {copy}: policy {policy}: {job['refused']}")
            out[p.name, copy] = tuple(sorted(map(int, job["cpus"])))
    return out


def stem(program: str, copy: int) -> str:
    """What the files of a copy's output are called, without their ending."""
    return re.sub(r"[^\w.+@-]", "_", program) + f".{copy}"


def _said(cpus: tuple[int, ...]) -> str:
    return format_list(cpus) if cpus else ""


def run_plan(
    scenario: Scenario,
    cpus: Mapping[tuple[str, int], tuple[int, ...]],
    program_argv: Mapping[str, Sequence[str]],
    output: Path,
) -> dict[str, Any]:
    """The plan that `meshmark-load run` reads.

    Args:
        cpus: of each copy, of `place_copies`.
        program_argv: how a synthesised program is started, by name.
        output: folder for what programs print.
    """
    programs: list[dict[str, Any]] = []
    for p in scenario.programs:
        environment = dict(p.env)
        if p.threads > 1 or p.synthesised:
            environment.setdefault("OMP_NUM_THREADS", str(p.threads))
        if p.wait_policy:
            environment.setdefault("OMP_WAIT_POLICY", p.wait_policy)
        programs += [
            {
                "name": p.name,
                "copy": copy,
                "argv": list(p.command or program_argv[p.name]),
                "synthesised": p.synthesised,
                "start_s": p.start_s[copy],
                "cpus": _said(cpus[p.name, copy]),
                "nice": p.nice,
                "priority": p.priority,
                "memory": p.memory,
                "env": environment,
                "cgroup": p.cgroup,
                "cwd": p.cwd,
                "stdout": str(output / f"{stem(p.name, copy)}.out"),
                "stderr": str(output / f"{stem(p.name, copy)}.err"),
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


def scenario_json(scenario: Scenario) -> dict[str, Any]:
    """What a run folder keeps of its scenario."""

    def member(p: Member) -> dict[str, Any]:
        return {
            "name": p.name,
            "copies": p.copies,
            "threads": p.threads,
            "start_s": list(p.start_s),
            "cpus": [_said(c) for c in p.cpus],
            "policy": p.policy or scenario.policy,
            "nice": p.nice,
            "priority": p.priority,
            "wait_policy": p.wait_policy,
            "memory": p.memory,
            "memory_mib": p.memory_mib,
            "cgroup": p.cgroup,
            "env": dict(p.env),
            "oversubscribe": p.oversubscribe,
            "command": list(p.command),
            "file": str(p.file) if p.file else None,
            "prescription": p.prescription.to_json() if p.prescription else None,
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
    """Threads and B of memory of a program's file, without taking all of it for a program.

    Raises:
        UsageError: it cannot be read, or is no program.
    """
    glance = _looked_into(path)[1]
    return glance.prescription.threads, sum(v.volume_bytes for v in glance.variants)


@dataclass(frozen=True, slots=True)
class _Wish(Excerpt):
    threads: Threads = 1
    run_time_s: RunTime = 0.0


@dataclass(frozen=True, slots=True)
class _Volume(Excerpt):
    volume_bytes: Volume


@dataclass(frozen=True, slots=True)
class _Glance(Excerpt):
    prescription: _Wish
    variants: Annotated[tuple[_Volume, ...], LIST]


def _looked_into(path: Path) -> tuple[dict[str, Any], _Glance]:
    """The prescription of a program's file as it is, and what is needed of the file."""
    raw = read_json(path, MAX_PROGRAM_BYTES)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise UsageError(f"{path}: is no program of meshmark load make")
    glance = checked(_Glance, raw, str(path))
    return raw["prescription"], glance


def run_time_of(path: Path) -> float:
    """Run time that a program's file was made for, s; 0 where it does not say.

    Raises:
        UsageError: it cannot be read, or is no program.
    """
    return _looked_into(path)[1].prescription.run_time_s


def made_for_another(path: Path, wish: Prescription) -> str:
    """By what a program's file was made for something else than is asked now, as `run_time_s = 6.0, now 7.0`; "" if by
    nothing.

    Raises:
        UsageError: it cannot be read, or is no program.
    """
    was, asked = _looked_into(path)[0], wish.to_json()
    for key in {**asked, **was}:
        if was.get(key) != asked.get(key):
            return f"{shown(key)} = {found(was.get(key))}, now {found(asked.get(key))}"
    return ""
