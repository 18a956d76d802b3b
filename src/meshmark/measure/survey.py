"""Runs and resumes surveys, and reads their run folders."""

from __future__ import annotations

import datetime
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from meshmark import native
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.measure.repetitions import pool_steps, unique
from meshmark.measure.runs.journal import read_journal
from meshmark.measure.runs.plan import SurveyPlan, make_plan
from meshmark.measure.runs.runner import STATE, PlanRunner, Report, StepResult, run_plan
from meshmark.measure.runs.spec import load_spec
from meshmark.store.files import read_json, write_json
from meshmark.store.record import Record
from meshmark.store.run import Absence, RunInfo
from meshmark.store.session import held, whole_lines
from meshmark.store.store import Store


def run_survey(
    spec: str,
    folder: Path | None,
    runs: Path,
    store_folder: Path,
    resume: bool,
    command: str,
    progress: Callable[[float], Report],
    notify: Callable[[str], None],
) -> Path:
    """Run or resume a survey.

    Returns:
        The run folder. The records are in the store and, as journals, in this folder.

    Raises:
        UsageError: The spec is invalid, --resume finds no plan, or --out contains another run.
        MeshmarkError: No step produced a record, or the folder cannot be written.
    """
    from meshmark.machine.facts import host_facts, host_id
    from meshmark.machine.identity import identity
    from meshmark.machine.sources import from_sysfs

    store = Store(store_folder)  # fail now rather than after the first step
    began = time.monotonic()
    if resume:
        if folder is None or not (folder / "plan.json").exists():
            raise UsageError(f"--resume: found no run in {folder}")
        plan = SurveyPlan.load(folder / "plan.json")
        state = _load_state(folder)
        recorded_host = host_id(state.get("host", {}))
        if recorded_host != (current := host_id()):
            raise UsageError(f"--resume: found a run of {recorded_host} in {folder}, this is {current}")
    else:
        host = host_facts()
        plan = make_plan(load_spec(spec), host_id(host), from_sysfs())
        started = datetime.datetime.now(datetime.UTC)
        run_id = f"{identity()['name']}-{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        folder = folder or runs / run_id
        _no_run_in(folder)
        state = {
            "run_id": run_id,
            "started": started.isoformat(),
            "spec": plan.spec,
            "command": command,
            "version": native.VERSION,
            "elapsed_s": 0.0,
            "host": host,
            "steps": [],
        }
    with held(folder, resumed=resume):
        if not resume:
            _no_run_in(folder)  # another process may have started a run since the first check
            write_json(folder / STATE, state)
            plan.save(folder / "plan.json")  # last, because plan.json marks the folder as a run
        unfinished = [step for step in plan.steps if PlanRunner(folder).finished(step) is None]
        budget_s = sum(step.budget_s for step in unfinished)
        complete = f"{len(plan.steps) - len(unfinished)} of " if resume else ""
        steps = f"{complete}{len(plan.steps)} steps{' are complete' if resume else ''}"
        notify(f"meshmark: {steps}, at most about {budget_s:.0f} s{' left' if resume else ''}; run folder {folder}")
        _run_steps(plan, folder, store, state, began, progress(budget_s), notify)
    return folder


def _no_run_in(folder: Path) -> None:
    if (folder / "plan.json").exists():
        raise UsageError(f"--out: found a run in {folder}", hint="use --resume to resume it")


def _run_steps(
    plan: SurveyPlan,
    folder: Path,
    store: Store,
    state: dict[str, Any],
    began: float,
    report: Report,
    notify: Callable[[str], None],
) -> None:
    """Run the unfinished steps and record the status of each in `run.json`.

    Args:
        plan: The plan of the survey.
        folder: Folder of the run.
        store: Store to which the records are added.
        state: Content of `run.json`, which is updated.
        began: Time at which this process started or resumed the run, in s of the monotonic clock.
        report: Function that is called with each line of an instrument.
        notify: Function that is called with messages for the user.

    Raises:
        MeshmarkError: No step produced a record, or the folder cannot be written.
    """
    state |= _load_state(folder)  # read again now that the folder is locked
    results = run_plan(plan, folder, store, state["run_id"], report, notify)
    state["elapsed_s"] = float(state.get("elapsed_s", 0.0)) + time.monotonic() - began
    old_steps = {s["id"]: s for s in state.get("steps", [])}
    state["steps"] = [
        {
            "id": r.step.id,
            "instrument": r.step.instrument,
            "argv": list(r.step.argv),
            "status": old_steps.get(r.step.id, {}).get("status", "ok") if r.status == "resumed" else r.status,
            "elapsed_s": old_steps.get(r.step.id, {}).get("elapsed_s", 0.0) if r.status == "resumed" else r.elapsed_s,
            "message": r.message,
            **_absence_state(r),
        }
        for r in results
    ]
    write_json(folder / STATE, state)
    failed_steps = [r for r in results if r.status == "failed"]
    if not any(r.reading.records for r in results):
        raise MeshmarkError(
            "survey: nothing could be measured" + (f": {failed_steps[0].message}" if failed_steps else "")
        )


def _absence_state(result: StepResult) -> dict[str, Any]:
    """Return the reasons why a step is absent that did not start, and so has no journal."""
    if result.status != "absent" or result.reading.header:
        return {}
    return {"absent": [{"reason": a.reason, "enable": a.enable} for a in result.reading.absences]}


def _load_state(folder: Path) -> dict[str, Any]:
    try:
        state = read_json(folder / STATE)
    except UsageError as error:  # Meshmark wrote the file, so this is not a usage error
        raise MeshmarkError(str(error)) from error
    if not isinstance(state, dict) or not isinstance(state.get("run_id"), str):
        raise MeshmarkError(f"{folder / STATE}: not the metadata of a run")
    return state


def is_survey(folder: Path) -> bool:
    """Return whether a folder contains a survey. `advise` also writes plan.json, but only surveys write run.json."""
    return (folder / "plan.json").is_file() and (folder / STATE).is_file()


def surveys(runs: Path) -> list[Path]:
    """Return the folders of surveys in a folder of runs."""
    return [folder for folder in runs.glob("*") if is_survey(folder)]


def last_run(runs: Path) -> Path:
    """Return the newest survey in a folder of runs.

    Raises:
        UsageError: The folder contains no survey.
    """
    candidates = surveys(runs)
    if not candidates:
        raise UsageError(f"found no survey in {runs}; name a run folder, or start a survey: meshmark survey --quick")
    return max(candidates, key=lambda p: (p / "plan.json").stat().st_mtime)


def find_run(name: str, runs: Path) -> Path:
    """Return the folder of a run.

    Args:
        name: `latest`, a path, or a name in `runs`.
        runs: Folder of the runs.

    Raises:
        UsageError: The run does not exist; the hint lists recent runs.
    """
    if name == "latest":
        return last_run(runs)
    for folder in (Path(name), runs / Path(name).name):
        if is_survey(folder):
            return folder
    recent_names = sorted(folder.name for folder in surveys(runs))[-5:]
    raise UsageError(f"found no run '{quoted(name)}'", "recent runs: " + (", ".join(recent_names) or "none"))


RunResults = tuple[list[Record], list[Absence], RunInfo]


def load_run(folder: Path) -> RunResults:
    """Return records (repetitions pooled), absences and metadata of a run folder; the run may be unfinished.

    Raises:
        MeshmarkError: The plan or the metadata cannot be read.
    """
    return load_run_and_steps(folder)[0]


def load_run_and_steps(folder: Path) -> tuple[RunResults, list[tuple[str, Record]]]:
    """Return the results of `load_run`, and step and record of every result without pooling of repetitions.

    Raises:
        MeshmarkError: The plan or the metadata cannot be read.
    """
    from meshmark.machine.facts import host_id

    plan, state = SurveyPlan.load(folder / "plan.json"), _load_state(folder)
    runs = []
    absences: list[Absence] = []
    headers: list[dict[str, Any]] = []
    machine = ""
    states = {s["id"]: s for s in state.get("steps", [])}
    for step in plan.steps:
        reading = read_journal(whole_lines(folder / "journal" / f"{step.id}.jsonl"), step.id)
        runs.append((step, reading.records))
        absences += reading.absences
        if reading.header:
            headers.append(reading.header)
            machine = str(reading.header.get("machine", machine))
        step_state = states.get(step.id, {})
        if not_started := step_state.get("absent"):
            absences += [Absence(instrument=step.instrument, step=step.id, **a) for a in not_started]
            continue
        reason = step_state.get("message") or ("" if reading.ended else "this step is incomplete")
        if invalid := reading.invalid_lines + len(reading.invalid_records):
            reason = reason or f"{invalid} lines of its journal are invalid"
        if reason:
            absences.append(Absence(instrument=step.instrument, reason=reason, kind="error", step=step.id))
    info = RunInfo(
        run_id=str(state["run_id"]),
        machine=machine or host_id(state.get("host", {})),
        started=str(state.get("started", "")),
        elapsed_s=float(state.get("elapsed_s", 0.0)),
        spec_name=str(state.get("spec", "")),
        command=str(state.get("command", "")),
        version=str(state.get("version", "")),
        headers=headers,
        host=state.get("host", {}),
        steps=state.get("steps", []),
    )
    steps = [(step.id, record) for step, records in runs for record in records]
    return (pool_steps(runs), unique(absences), info), steps
