"""Derives records, or the reasons of their absence, from the runs of applications on a node, as `measure app` does."""

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

from meshmark import process
from meshmark.applications.application import filled, not_installed
from meshmark.applications.attempt import (
    ConfigurationRun,
    file_too_large,
    no_figure,
    take_figure,
    wrote_too_much,
)
from meshmark.applications.records import INSTRUMENT, records_of
from meshmark.applications.trials import FAILURES
from meshmark.applications.verification import by_pattern, by_status, not_run
from meshmark.errors import MeshmarkError, quoted
from meshmark.experiments.figure import FigureValue
from meshmark.experiments.turns import status_failure
from meshmark.fleet.applications import NodeApplication, of_step
from meshmark.fleet.data.results import NodeResult, NodeStep, ResultError
from meshmark.fleet.plan import load_plan
from meshmark.place.other_work import shares_of
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
    """The exit of the verification command, and the end of its output."""

    how: How
    code: _Code
    out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine(Excerpt):
    """A run, as the runner of a node reports it.

    Attributes:
        number: Number of the run from 1; warm-up runs have a number below 1.
        code: Exit status, signal or error number.
        left: Number of processes that the run left running.
        stuck: Number of processes that were killed and have not ended.
        peak_bytes: Peak memory; 0: unknown, since it is at most about the memory of the runner, which is measured with
            it.
        busy_s, stolen_s: Busy and stolen time of all CPUs together during the run.
        file: The end of its file of results.
        cut: Whether an output is cut, so that only its end is here.
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
        """Return the text that is searched, in the order of `measure app`."""
        return self.out + (f"\n{self.file}" if self.file else "") + f"\n{self.err}"

    @property
    def status(self) -> int | None:
        """Return the exit status, the negated signal, or None after a timeout, as in `process.Exit`."""
        return None if self.how == "time" else -self.code if self.how == "signal" else self.code


@dataclass
class ApplicationOutcome:
    """The outcome of a step with an application.

    Attributes:
        wrong: Wrong results: the node computes wrongly.
    """

    records: list[Record] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def verdicts_of(plans: Path, result: NodeResult) -> dict[str, ApplicationOutcome]:
    """Return the verdicts of the applications of a node, by the ids of their steps.

    Args:
        plans: The folder of the plans.
        result: The file that the node left.

    Raises:
        ResultError: The plan is missing, so that the expected output of the programs is unknown.
    """
    steps = [step for step in result.steps if step.program]
    if not steps:
        return {}
    plan = result.header.plan
    application_by_step: Mapping[str, NodeApplication | None] = {}
    with contextlib.suppress(MeshmarkError):
        application_by_step = _applications(plans / f"{plan}.json") if _PLAN.fullmatch(plan) else {}
    if unknown := [step.id for step in steps if application_by_step.get(step.id) is None]:
        raise ResultError(
            f"{quoted(result.name)}: step {quoted(unknown[0])}: no plan {quoted(plan)} in {plans} has its application"
        )
    provenance: dict[str, Scalar] = {
        "build": result.header.build,
        "command": f"meshmark-node {plan}.json",
        "start": result.header.started,
    }
    machine, verdicts = result.header.machine, dict[str, ApplicationOutcome]()
    for step in steps:
        application = application_by_step[step.id]
        assert application is not None
        verdicts[step.id] = verdict(application, step, machine, provenance)
    return verdicts


@cache
def _applications(plan: Path) -> Mapping[str, NodeApplication | None]:
    """Return the applications of a plan by the ids of its steps; the plan is read once for all nodes of a campaign.

    Raises:
        MeshmarkError: The file is missing or is not a plan.
    """
    return {str(step.get("id")): of_step(step) for step in load_plan(plan).steps if "application" in step}


_PLAN: Final = re.compile(r"[0-9a-f]{16}")
_NOT_RUN: Final = frozenset({126, 127})  # exit status of shells and env if a command cannot be run, or is not found
_NOT_ENDED: Final = frozenset({"left out", "timed out", "failed"})


def verdict(
    what: NodeApplication, step: NodeStep, machine: str, provenance: Mapping[str, Scalar]
) -> ApplicationOutcome:
    """Return the verdict on the runs of a step.

    Args:
        what: The application of the step, with its configuration.
        step: The step, with the lines of its runs.
        machine: Machine of the node.
        provenance: Provenance of its records.
    """
    app, configuration = what.app, what.configuration
    result, runs, failures, last_failure = ApplicationOutcome(), dict[int, ConfigurationRun](), 0, ""
    is_cut = False
    for raw in step.runs:
        try:
            line = checked(RunLine, raw, step.id)
        except MeshmarkError as error:  # the file of the node is damaged
            failures, last_failure = failures + 1, f"its run cannot be read: {error}"
            continue
        attempt = attempt_of(what, line)
        is_cut = is_cut or line.cut
        if line.how == "missing":
            missing = not_installed(app, _program(what))
            result.absences.append(_absence(str(missing), step, kind="absent"))
            return result
        if attempt.reason:
            failures, last_failure = failures + 1, attempt.reason
            result.wrong += [f"{app.name}: {attempt.reason}"] if _is_wrong(what, line, attempt) else []
        elif attempt.round > 0:
            runs[attempt.round] = attempt
    if runs:
        conditions: dict[str, Scalar] = {
            "failed": failures,
            "output_cut": is_cut,
            "verified": bool(app.verify.pattern or app.verify.command),
        }
        records = records_of(app, configuration, runs, machine, {**provenance, **conditions})
        result.records = [_judged(record, what.definition) for record in records]
    if failures >= FAILURES or (last_failure and not runs):
        result.absences.append(_absence(_named(what, last_failure), step))
    elif not runs and step.status in _NOT_ENDED:
        reason = f"{step.status}: {step.reading.error or step.reason}"
        result.absences.append(_absence(_named(what, reason), step))
    return result


def attempt_of(what: NodeApplication, line: RunLine) -> ConfigurationRun:
    """Return a run as an attempt, by the rules of `measure app`."""
    app = what.app
    attempt = ConfigurationRun(
        configuration=what.configuration.label,
        round=line.number,
        elapsed_s=line.elapsed_s,
        spent_s=line.spent_s,
        times={"user": line.user_s, "system": line.system_s},
        peak_bytes=line.peak_bytes,
        counts={k: getattr(line, k) for k in ("minor_faults", "major_faults", "switches_involuntary")},
    )
    attempt.reason = _not_ended_well(what, line)
    if not attempt.reason:
        value = app.judged_by.matched(line.text) if app.figure.pattern else FigureValue(line.elapsed_s, "s", "lower")
        if isinstance(value, str):
            attempt.reason = no_figure(value)
        else:
            take_figure(attempt, app, [value], [line.elapsed_s])
    if not attempt.reason:
        shares = shares_of(line.busy_s, line.stolen_s, line.user_s + line.system_s, line.spent_s, line.cpus)
        attempt.counts |= shares.counts
        attempt.flags = sorted(shares.flags)
        if reason := _unverified(what, line):
            attempt.reason, attempt.flags = reason, sorted({*attempt.flags, "unverified"})
    if attempt.reason:
        attempt.value = None
        if line.cut and "no match in the output" in attempt.reason:
            attempt.reason += ", of which the node kept only the end; a larger output_kib keeps more"
    return attempt


def _not_ended_well(what: NodeApplication, line: RunLine) -> str:
    reason = _why_not_ended_well(what, line)
    stuck = f"; {counted(line.stuck, 'process', 'processes')} cannot be ended" if line.stuck else ""
    return reason + stuck if reason else ""


def _why_not_ended_well(what: NodeApplication, line: RunLine) -> str:
    app = what.app
    if line.how == "start":
        return f"cannot be started: {os.strerror(line.code)}"
    if line.how == "folder":
        return f"its folder on the node cannot be used: {os.strerror(line.code)}"
    if line.how == "output":
        return wrote_too_much(app)
    reason = file_too_large(app, line.status) or status_failure(line.status, line.text, app.limits.timeout_s)
    return reason or process.left_running(line.left)


def _unverified(what: NodeApplication, line: RunLine) -> str:
    """Return why the verification of a run fails; "" if it succeeds."""
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


def _is_wrong(what: NodeApplication, line: RunLine, run: ConfigurationRun) -> bool:
    """Return whether a run computed a wrong result.

    The run printed a number other than the expected one, or its verification command ran and rejected the result.
    Output without a match, or with a missing part, is not evidence.
    """
    if "unverified" not in run.flags:
        return False
    if not line.cut and by_pattern(what.app.verify, line.text).startswith("verify.expected:"):
        return True
    return line.verify is not None and line.verify.how == "status" and line.verify.code not in {0, *_NOT_RUN}


def _judged(record: Record, definition: str) -> Record:
    """Return a record for comparing nodes: the definition identifies it, and event counts are neither good nor bad."""
    better = "none" if record.unit == "1" and record.metric != "figure_of_merit" else record.better
    return replace(record, better=better, conditions={**record.conditions, "definition": definition})


def _program(what: NodeApplication) -> str:
    return filled(what.app.command[0], what.values)


def _named(what: NodeApplication, reason: str) -> str:
    label = f" {what.configuration.label}" if what.configuration.values else ""
    return f"{what.app.name}{label}: {reason}"


def _absence(reason: str, step: NodeStep, kind: Literal["absent", "error"] = "error") -> Absence:
    return Absence(instrument=INSTRUMENT, metric="", reason=reason, kind=kind, step=step.id)
