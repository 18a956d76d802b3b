"""The plan that every node of a fleet carries out: the instruments to run, and the small files to record.

The native runner reads it (native/node/plan.cpp). A plan is named by a hash of its content, so that results identify
exactly how they were measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from meshmark.errors import MeshmarkError, UsageError
from meshmark.fleet.applications import LONGEST_S, application_of, step_of
from meshmark.fleet.data.results import MAX_BYTES
from meshmark.measure.runs.plan import steps_of
from meshmark.measure.runs.spec import Spec
from meshmark.store.files import read_json
from meshmark.values.inputs import Excerpt, OneOf, checked
from meshmark.values.units import duration

Kind = Literal["survey", "check", "pairs"]
FORMAT: Final = "meshmark node plan"
_SLACK: Final = 3.0  # factor by which a step may exceed its budget, for preparation and the last sample
_START_S: Final = 5.0  # time for the start of a step
_OUTPUTS: Final = MAX_BYTES // 4  # limit of programs' outputs in a node's file, B; in JSON, a byte may become several
# Patterns of glob(7) below / for the files that `machine.boot` and `fleet.facts` read.
FILES: Final = (
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/cmdline",
    "proc/version",
    "proc/loadavg",
    "proc/uptime",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/hostname",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/random/boot_id",
    "proc/sys/vm/swappiness",
    "proc/sys/vm/zone_reclaim_mode",
    "proc/sys/vm/overcommit_memory",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/present",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/smt/*",
    "sys/devices/system/cpu/vulnerabilities/*",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    *(
        f"sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}"
        for name in (
            "scaling_governor",
            "scaling_driver",
            "scaling_max_freq",
            "cpuinfo_min_freq",
            "cpuinfo_max_freq",
            "base_frequency",
            "boost",
        )
    ),
    "sys/devices/system/node/node[0-9]*/meminfo",
    "sys/devices/system/clocksource/clocksource0/*_clocksource",
    "sys/kernel/mm/transparent_hugepage/*",
    "sys/kernel/mm/hugepages/hugepages-*/nr_hugepages",
    "sys/class/dmi/id/bios_*",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/product_name",
    "sys/class/dmi/id/board_*e*",
    "sys/firmware/dmi/tables/DMI",
    "sys/class/thermal/thermal_zone*/temp",
    "sys/devices/system/edac/mc/mc*/*e_count",
)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A plan.

    Attributes:
        alone: Whether the runner refuses to run beside other work.
        limit_s: Time after which no step begins, and the running step is killed.
        steps: Objects with `id`, `argv` and `limit_s`; steps of applications also have `program`, the instructions for
            the runner, and `application`, the tables of the application.
        limits: Objects with `instrument`, `metric`, `conditions`, and `low` or `high`, by the hash of the hardware.
    """

    spec: str
    kind: Kind
    alone: bool
    limit_s: float
    steps: Sequence[Mapping[str, Any]]
    limits: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Return the first 16 hexadecimal digits of the SHA-256 digest of its content."""
        return hashlib.sha256(self._body()).hexdigest()[:16]

    def to_bytes(self) -> bytes:
        """Return the content of the file that the runner reads."""
        body = json.loads(self._body())
        return json.dumps({"format": FORMAT, "version": 1, "id": self.id, **body}, indent=1).encode() + b"\n"

    @property
    def needs_s(self) -> float:
        """Return about how long the plan takes, which is less than its limit."""
        return sum((float(step["limit_s"]) - _START_S) / _SLACK for step in self.steps)

    def within(self, longest_s: float) -> NodePlan:
        """Return the plan with a limit of at most `longest_s`.

        Raises:
            UsageError: The plan takes longer.
        """
        if self.limit_s <= longest_s:
            return self
        if self.needs_s > longest_s:
            raise UsageError(
                f"{self.spec}: found steps that take {duration(round(self.needs_s))} on a node; allowed by the batch "
                f"system: {duration(longest_s) if longest_s >= 1 else 'less than a minute'}",
                "name another queue or partition in fleet.toml, or fewer or shorter steps with --spec",
            )
        return replace(self, limit_s=longest_s)

    def _body(self) -> bytes:
        body = {
            "spec": self.spec,
            "kind": self.kind,
            "alone": self.alone,
            "limit_s": self.limit_s,
            "files": FILES,
            "steps": list(self.steps),
            "limits": {k: list(v) for k, v in self.limits.items()},
        }
        return json.dumps(body, sort_keys=True).encode()


def node_plan(spec: Spec, kind: Kind, limit_s: float = 0.0, folder: Path = Path()) -> NodePlan:
    """Return the plan of a specification, with the steps of a survey of one machine, and with applications.

    Args:
        spec: Specification of a survey.
        kind: Kind of the campaign: `check` or `survey`.
        limit_s: Limit of the whole plan; 0: the sum of the limits of its steps.
        folder: Folder to which the names of application files are relative.

    Raises:
        UsageError: A step needs a launcher or something else that nodes do not have, or the plan may take longer than a
            day.
    """
    numbered_steps = steps_of(spec)
    if with_launcher := [step.instrument for _, step in numbered_steps if step.ranks]:
        raise UsageError(
            f"{spec.name}: found '{with_launcher[0]}', which needs an MPI launcher; allowed: instruments of one process"
        )
    program_steps = {
        i: step_of(application_of(step, folder, f"{spec.name}: step[{i}]"), step)
        for i, step in enumerate(spec.step)
        if step.application
    }
    _check_outputs(spec, {i: step["program"] for i, step in program_steps.items()})
    steps: list[dict[str, Any]] = [
        {"id": s.id, **program_steps[i]}
        if i in program_steps
        else {"id": s.id, "argv": list(s.argv), "limit_s": _SLACK * s.budget_s + _START_S}
        for i, s in numbered_steps
    ]
    whole_s = limit_s or sum(step["limit_s"] for step in steps)
    if whole_s > LONGEST_S:
        raise UsageError(f"{spec.name}: found steps that may take {duration(round(whole_s))}; allowed: a day")
    return NodePlan(spec.name, kind, alone=kind == "check", limit_s=whole_s, steps=steps)


def _check_outputs(spec: Spec, programs: Mapping[int, Mapping[str, Any]]) -> None:
    """Raise UsageError if the outputs of programs may make the file of a node too large to be ingested.

    Args:
        spec: Specification with the repetitions of each step.
        programs: Programs by the index of their step.
    """

    def outputs(i: int) -> int:
        program = programs[i]
        runs = int(program["runs"]) + int(program["warmup"]) + 1  # one failed run is repeated
        return spec.step[i].repetitions * runs * (3 if program["results"] else 2)

    sizes = {i: outputs(i) * programs[i]["kept"] for i in programs}
    if (total := sum(sizes.values())) <= _OUTPUTS:
        return
    largest = max(sizes, key=lambda i: sizes[i])
    most_kib = (_OUTPUTS - total + sizes[largest]) // outputs(largest) >> 10
    finding = f"{programs[largest]['kept'] >> 10}, with which a node may have {total >> 20} MiB of outputs"
    allowed = f"{_OUTPUTS >> 20} MiB" + (f", so at most {most_kib}" if most_kib > 0 else "")
    raise UsageError(
        f"{spec.name}: step[{largest}].output_kib: found {finding}; allowed: {allowed}", "fewer runs or repetitions"
    )


def load_plan(path: Path) -> NodePlan:
    """Read a plan that was written by `NodePlan.to_bytes`.

    Raises:
        MeshmarkError: The file is missing or is not a plan.
    """
    try:
        raw = checked(_PlanFile, read_json(path), "plan")
        for number, step in enumerate(raw.steps):
            checked(_PlanStep, step, f"plan: steps[{number}]")
    except UsageError as error:
        raise MeshmarkError(f"{path}: not the plan of a fleet: {str(error).removeprefix('plan: ')}") from error
    return NodePlan(raw.spec, raw.kind, raw.alone, raw.limit_s, raw.steps, raw.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanFile(Excerpt):
    """The file that `NodePlan.to_bytes` writes."""

    format: Annotated[str, OneOf((FORMAT,))]
    spec: str
    kind: Kind
    alone: bool
    limit_s: Annotated[float, Field(ge=0, le=1e8)]
    steps: list[dict[str, Any]]
    limits: dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanStep(Excerpt):
    """The keys that every step of a plan has."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$", description="letters, digits, _ . -")]
    argv: Annotated[list[str], Field(min_length=1)]
    limit_s: Annotated[float, Field(ge=0, le=1e8)]
