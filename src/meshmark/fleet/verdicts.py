"""What the runs of applications on a node say: records, or why there are none, by the rules of `measure app`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from meshmark.errors import MeshmarkError, quoted
from meshmark.fleet.applications import NodeApplication, of_step
from meshmark.fleet.plan import load_plan
from meshmark.fleet.results import NodeResult, NodeStep, ResultError
from meshmark.place.app.application import filled, not_installed
from meshmark.place.app.attempt import Attempt, file_too_large, left_running, no_figure, take_figure, wrote_too_much
from meshmark.place.app.records import INSTRUMENT, records_of
from meshmark.place.app.trials import FAILURES
from meshmark.place.app.verification import by_pattern, by_status, not_run
from meshmark.place.figure import Value
from meshmark.place.other_work import shares_of
from meshmark.place.turns import status_failure
from meshmark.store.record import Record, Scalar
from meshmark.store.run import Absence
from meshmark.values.inputs import Excerpt, checked
from meshmark.values.units import counted

How = Literal["status", "signal", "time", "output", "missing", "folder", "start"]
_Positive = Annotated[float, Field(ge=0, le=1e18)]
_Real = Annotated[float, Field(ge=-1e18, le=1e18)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Code = Annotated[int, Field(ge=-(2**31), lt=2**31)]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyLine(Excerpt):
    """How the command of the verification ended, and the end of what it printed."""

    how: How
    code: _Code
    out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine(Excerpt):
    """A run, as the runner of a node reports it.

    Attributes:
        number: From 1; runs that do not count have one below.
        code: Exit status, signal or error number.
        left: Processes that it left running.
        stuck: Processes that were killed and have not ended.
        peak_bytes: 0: no more than the runner takes, which hides it.
        busy_s, stolen_s: CPU time of all CPUs together meanwhile.
        file: The end of its file of results.
        cut: Whether there was more before the end of an output.
    """

    number: Annotated[int, Field(ge=-100, le=100)]
    how: How
    code: _Code
    left: _Count
    elapsed_s: _Positive
    user_s: _Positive
    system_s: _Positive
    peak_bytes: _Positive
    minor_faults: _Count
    major_faults: _Count
    switches_involuntary: _Count
    spent_s: _Positive
    busy_s: _Real
    stolen_s: _Real
    cpus: _Count
    out: str
    err: str
    cut: bool
    stuck: _Count = 0
    file: str = ""
    verify: VerifyLine | None = None

    @property
    def text(self) -> str:
        """What is searched, in the order of `measure app`."""
        return self.out + (f"\n{self.file}" if self.file else "") + f"\n{self.err}"

    @property
    def status(self) -> int | None:
        """As of `place.turns.Ended`."""
        return None if self.how == "time" else -self.code if self.how == "signal" else self.code


@dataclass
class Verdict:
    """What a step with an application gave.

    Attributes:
        wrong: Results that were not right: the node computes wrongly.
    """

    records: list[Record] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def verdicts_of(plans: Path, result: NodeResult) -> dict[str, Verdict]:
    """What the applications of a node gave, by the ids of their steps.

    Args:
        plans: The folder of the plans.

    Raises:
        ResultError: The plan is missing, so that nobody knows what the programs should have printed.
    """
    steps = [step for step in result.steps if step.program]
    if not steps:
        return {}
    plan = result.header.plan
    known: Mapping[str, NodeApplication | None] = {}
    with contextlib.suppress(MeshmarkError):
        known = _applications(plans / f"{plan}.json") if _PLAN.fullmatch(plan) else {}
    if unknown := [step.id for step in steps if known.get(step.id) is None]:
        raise ResultError(
            f"{quoted(result.name)}: step {quoted(unknown[0])}: no plan {quoted(plan)} in {plans} has its application"
        )
    provenance: dict[str, Scalar] = {
        "build": result.header.build,
        "command": f"meshmark-node {plan}.json",
        "start": result.header.started,
    }
    machine, found = result.header.machine, dict[str, Verdict]()
    for step in steps:
        what = known[step.id]
        assert what is not None
        found[step.id] = verdict(what, step, machine, provenance)
    return found


@cache
def _applications(plan: Path) -> Mapping[str, NodeApplication | None]:
    """Those of a plan by the ids of its steps; it is read once for all nodes of a campaign.

    Raises:
        MeshmarkError: It is missing or no plan.
    """
    return {str(step.get("id")): of_step(step) for step in load_plan(plan).steps if "application" in step}


_PLAN: Final = re.compile(r"[0-9a-f]{16}")
_NOT_RUN: Final = frozenset({126, 127})  # of shells and env: the command cannot be run, or is not found
_NOT_ENDED: Final = frozenset({"left out", "timed out", "failed"})


def verdict(what: NodeApplication, step: NodeStep, machine: str, provenance: Mapping[str, Scalar]) -> Verdict:
    """What the runs of a step say.

    Args:
        machine: Of the node.
        provenance: Of its records.
    """
    app, one = what.app, what.one
    found, runs, failures, last = Verdict(), dict[int, Attempt](), 0, ""
    cut = False
    for raw in step.runs:
        try:
            line = checked(RunLine, raw, step.id)
        except MeshmarkError as why:  # the file of the node is damaged
            failures, last = failures + 1, f"its run cannot be read: {why}"
            continue
        made = attempt_of(what, line)
        cut = cut or line.cut
        if line.how == "missing":
            missing = not_installed(app, _program(what))
            found.absences.append(_absence(str(missing), step, kind="absent"))
            return found
        if made.reason:
            failures, last = failures + 1, made.reason
            found.wrong += [f"{app.name}: {made.reason}"] if _is_wrong(what, line, made) else []
        elif made.round > 0:
            runs[made.round] = made
    if runs:
        more: dict[str, Scalar] = {
            "failed": failures,
            "output_cut": cut,
            "verified": bool(app.verify.pattern or app.verify.command),
        }
        made_records = records_of(app, one, runs, machine, {**provenance, **more})
        found.records = [_judged(record, what.definition) for record in made_records]
    if failures >= FAILURES or (last and not runs):
        found.absences.append(_absence(_named(what, last), step))
    elif not runs and step.status in _NOT_ENDED:
        reason = f"{step.status}: {step.reading.error or step.reason}"
        found.absences.append(_absence(_named(what, reason), step))
    return found


def attempt_of(what: NodeApplication, line: RunLine) -> Attempt:
    """A run by the rules of `measure app`."""
    app = what.app
    found = Attempt(
        configuration=what.one.label,
        round=line.number,
        elapsed_s=line.elapsed_s,
        spent_s=line.spent_s,
        times={"user": line.user_s, "system": line.system_s},
        peak_bytes=line.peak_bytes,
        counts={k: getattr(line, k) for k in ("minor_faults", "major_faults", "switches_involuntary")},
    )
    found.reason = _not_ended_well(what, line)
    if not found.reason:
        value = app.judged_by.matched(line.text) if app.figure.pattern else Value(line.elapsed_s, "s", "lower")
        if isinstance(value, str):
            found.reason = no_figure(value)
        else:
            take_figure(found, app, [value], [line.elapsed_s])
    if not found.reason:
        shares = shares_of(line.busy_s, line.stolen_s, line.user_s + line.system_s, line.spent_s, line.cpus)
        found.counts |= shares.counts
        found.flags = sorted(shares.flags)
        if reason := _unverified(what, line):
            found.reason, found.flags = reason, sorted({*found.flags, "unverified"})
    if found.reason:
        found.value = None
        if line.cut and "no match in the output" in found.reason:
            found.reason += ", of which the node kept the end only; output_kib keeps more"
    return found


def _not_ended_well(what: NodeApplication, line: RunLine) -> str:
    why = _why_not_ended_well(what, line)
    stuck = f"; {counted(line.stuck, 'process', 'processes')} cannot be ended" if line.stuck else ""
    return why + stuck if why else ""


def _why_not_ended_well(what: NodeApplication, line: RunLine) -> str:
    app = what.app
    if line.how == "start":
        return f"cannot be started: {os.strerror(line.code)}"
    if line.how == "folder":
        return f"its folder on the node cannot be used: {os.strerror(line.code)}"
    if line.how == "output":
        return wrote_too_much(app)
    why = file_too_large(app, line.status) or status_failure(line.status, line.text, app.limits.timeout_s)
    return why or left_running(line.left)


def _unverified(what: NodeApplication, line: RunLine) -> str:
    """Why a run is wrong; "" if it is right."""
    app = what.app
    if reason := by_pattern(app.verify, line.text):
        return reason
    if app.verify.command is None:
        return ""
    if line.verify is None:
        return "verify.command: did not run"
    if line.verify.how in {"missing", "folder", "start", "output"}:
        return not_run(filled(app.verify.command[0], what.values), os.strerror(line.verify.code))
    status = None if line.verify.how == "time" else line.verify.code * (-1 if line.verify.how == "signal" else 1)
    return by_status(status, line.verify.out)


def _is_wrong(what: NodeApplication, line: RunLine, made: Attempt) -> bool:
    """Whether a run computed a wrong result: it printed another number than the expected one, or its command looked at
    the result and refused it. Output of which nothing matches, or of which a part is missing, says nothing."""
    if "unverified" not in made.flags:
        return False
    if not line.cut and by_pattern(what.app.verify, line.text).startswith("verify.expected:"):
        return True
    return line.verify is not None and line.verify.how == "status" and line.verify.code not in {0, *_NOT_RUN}


def _judged(record: Record, definition: str) -> Record:
    """A record as nodes are compared by it: what runs identifies it, and counts of events are neither good nor bad."""
    better = "none" if record.unit == "1" and record.metric != "figure_of_merit" else record.better
    return replace(record, better=better, conditions={**record.conditions, "definition": definition})


def _program(what: NodeApplication) -> str:
    return filled(what.app.command[0], what.values)


def _named(what: NodeApplication, why: str) -> str:
    label = f" {what.one.label}" if what.one.values else ""
    return f"{what.app.name}{label}: {why}"


def _absence(reason: str, step: NodeStep, kind: Literal["absent", "error"] = "error") -> Absence:
    return Absence(instrument=INSTRUMENT, metric="", reason=reason, kind=kind, step=step.id)
