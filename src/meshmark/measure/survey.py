"""The survey: plan, run, store, and the report at the end."""

from __future__ import annotations

import datetime
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from meshmark.errors import MeshmarkError, UsageError
from meshmark.measure.journal import read_journal
from meshmark.measure.plan import Plan, make_plan
from meshmark.measure.repetitions import once, pool_steps
from meshmark.measure.runner import STATE, Report, run_plan, save_state
from meshmark.measure.spec import load_spec
from meshmark.store.files import held, read_json
from meshmark.store.lines import whole_lines
from meshmark.store.record import Record
from meshmark.store.run import Absence, RunInfo
from meshmark.store.store import Store


def run_survey(
    spec: str,
    folder: Path | None,
    runs: Path,
    store_folder: Path,
    resume: bool,
    command: str,
    progress: Callable[[float], Report],
    talk: Callable[[str], None],
) -> Path:
    """Runs or resumes a survey; its records are in the store and in the run folder, which is returned.

    Raises:
        UsageError: the spec is wrong, or --resume finds no plan, or --out holds another run.
        MeshmarkError: nothing could be measured, or the folder cannot be written.
    """
    from importlib.metadata import version

    from meshmark.machine.facts import host_facts, host_id

    store = Store(store_folder)  # refused now rather than after ten minutes
    began = time.monotonic()
    if resume:
        if folder is None or not (folder / "plan.json").exists():
            raise UsageError(f"--resume: found no run in {folder}")
        plan = Plan.load(folder / "plan.json")
        state = _load_state(folder)
        its = host_id(state.get("host", {}))
        if its != (here := host_id()):
            raise UsageError(f"--resume: found a run of {its} in {folder}, this is {here}")
    else:
        host = host_facts()
        plan = make_plan(load_spec(spec), machine=host_id(host))
        started = datetime.datetime.now(datetime.UTC)
        run_id = f"{socket.gethostname()}-{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        folder = folder or runs / run_id
        _no_run_in(folder)
        state = {
            "run_id": run_id,
            "started": started.isoformat(),
            "spec": plan.spec,
            "command": command,
            "version": version("meshmark"),
            "elapsed_s": 0.0,
            "host": host,
            "steps": [],
        }
    with held(folder, resumed=resume):
        if not resume:
            _no_run_in(folder)  # another may have begun there since
            save_state(folder, state)
            plan.save(folder / "plan.json")  # last: it makes the folder a run
        talk(f"meshmark: {len(plan.steps)} steps, at most about {plan.budget_s:.0f} s; run folder {folder}")
        _run_steps(plan, folder, store, state, began, progress, talk)
    return folder


def _no_run_in(folder: Path) -> None:
    if (folder / "plan.json").exists():
        raise UsageError(f"--out: found a run in {folder}", hint="--resume goes on with it")


def _run_steps(
    plan: Plan,
    folder: Path,
    store: Store,
    state: dict[str, Any],
    began: float,
    progress: Callable[[float], Report],
    talk: Callable[[str], None],
) -> None:
    """Runs what is not finished, and says in `run.json` how each step went.

    Args:
        began: of this start, s of the monotonic clock.

    Raises:
        MeshmarkError: nothing could be measured, or the folder cannot be written.
    """
    state |= _load_state(folder)  # as it is now that nobody else writes to it
    results = run_plan(plan, folder, store, state["run_id"], progress(plan.budget_s), talk)
    state["elapsed_s"] = float(state.get("elapsed_s", 0.0)) + time.monotonic() - began
    old = {s["id"]: s for s in state.get("steps", [])}
    state["steps"] = [
        {
            "id": r.step.id,
            "instrument": r.step.instrument,
            "argv": list(r.step.argv),
            "status": old.get(r.step.id, {}).get("status", "ok") if r.status == "resumed" else r.status,
            "elapsed_s": old.get(r.step.id, {}).get("elapsed_s", 0.0) if r.status == "resumed" else r.elapsed_s,
            "message": r.message,
        }
        for r in results
    ]
    save_state(folder, state)
    failed = [r for r in results if r.status == "failed"]
    if not any(r.reading.records for r in results):
        raise MeshmarkError("survey: nothing could be measured" + (f": {failed[0].message}" if failed else ""))


def _load_state(folder: Path) -> dict[str, Any]:
    try:
        state = read_json(folder / STATE)
    except UsageError as why:  # it is ours
        raise MeshmarkError(str(why)) from why
    if not isinstance(state, dict) or not isinstance(state.get("run_id"), str):
        raise MeshmarkError(f"{folder / STATE} is no state of a run")
    return state


def last_run(runs: Path) -> Path:
    """The newest run of a folder of runs.

    Raises:
        UsageError: there is none.
    """
    found = [p for p in runs.glob("*") if (p / "plan.json").exists()]
    if not found:
        raise UsageError(f"found no run in {runs}; name a folder, or measure one: meshmark survey --quick")
    return max(found, key=lambda p: (p / "plan.json").stat().st_mtime)


def find_run(name: str, runs: Path) -> Path:
    """The folder of a run: `latest`, a folder, or a name among `runs`.

    Raises:
        MeshmarkError: there is none of that name; the hint names some that are there.
    """
    if name == "latest":
        return last_run(runs)
    for folder in (Path(name), runs / Path(name).name):
        if (folder / "plan.json").exists():
            return folder
    have = sorted(p.name for p in runs.glob("*"))[-5:]
    raise MeshmarkError(f"found no run '{name}'", "runs here: " + (", ".join(have) or "none yet"))


def load_run(folder: Path) -> tuple[list[Record], list[Absence], RunInfo]:
    """What a run folder holds, from its journals: also of a run that is not finished. Repetitions are pooled.

    Raises:
        MeshmarkError: the folder's plan or state cannot be read.
    """
    plan, state = Plan.load(folder / "plan.json"), _load_state(folder)
    runs = []
    absences: list[Absence] = []
    headers: list[dict[str, Any]] = []
    machine = socket.gethostname()
    messages = {s["id"]: s.get("message", "") for s in state.get("steps", [])}
    for step in plan.steps:
        reading = read_journal(whole_lines(folder / "journal" / f"{step.id}.jsonl"), step.id)
        runs.append((step, reading.records))
        absences += reading.absences
        if reading.header:
            headers.append(reading.header)
            machine = str(reading.header.get("machine", machine))
        reason = messages.get(step.id) or ("" if reading.ended else "this step was not run to its end")
        if spoiled := reading.nonsense + len(reading.wrong):
            reason = reason or f"{spoiled} lines of its journal cannot be read"
        if reason:
            absences.append(Absence(instrument=step.instrument, reason=reason, kind="error", step=step.id))
    info = RunInfo(
        run_id=str(state["run_id"]),
        machine=machine,
        started=str(state.get("started", "")),
        elapsed_s=float(state.get("elapsed_s", 0.0)),
        spec_name=str(state.get("spec", "")),
        command=str(state.get("command", "")),
        version=str(state.get("version", "")),
        headers=headers,
        host=state.get("host", {}),
        steps=state.get("steps", []),
    )
    return pool_steps(runs), once(absences), info
