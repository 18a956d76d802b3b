"""Run a scenario with `meshmark-load`.

A run folder contains `scenario.json`, `plan.json` (the input of the native program), `run.jsonl` (its output) and
`output/` (the output of the programs). For programs that application files describe, it also contains `copies/` (the
folders in which they run), `applications/` (their builds and inputs) and `applications.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from meshmark import process
from meshmark.applications.attempt import ResultsFile
from meshmark.applications.configuration import Folders
from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.metrics import Metrics
from meshmark.load.calibration.native import find_load
from meshmark.load.scenario.application import ApplicationCopies, save_verdicts
from meshmark.load.scenario.journal import JOURNAL, read_run
from meshmark.load.scenario.placing import (
    HostResources,
    check_here,
    place_copies,
    run_plan,
    run_time_of,
    scenario_json,
    threads_of,
    without_secrets,
)
from meshmark.load.scenario.result import LoadRun
from meshmark.load.scenario.scenario import Scenario, file_stem, read_scenario
from meshmark.machine.tree import format_list
from meshmark.store.files import make_folder, open_private, write_json
from meshmark.store.session import held
from meshmark.store.store import run_name

_SYNC_S: Final = 1.0


class RunCutError(MeshmarkError):
    """The native runner ended before its scenario; `run` contains the results up to this time."""

    def __init__(self, message: str, run: LoadRun) -> None:
        super().__init__(message)
        self.run = run


def run_scenario(
    scenario: Scenario | Path,
    out: Path,
    program_files: Mapping[str, Path] | None = None,
    report: Callable[[Mapping[str, Any]], None] | None = None,
    user_metrics: Metrics | None = None,
    here: HostResources | None = None,
    tick: Callable[[], None] | None = None,
    builds: Path | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> LoadRun:
    """Run a scenario in a new folder and read the result. A program that fails is an event, not an error.

    Args:
        scenario: the scenario or its file.
        out: folder of the run, created if necessary; refused if it contains a run.
        program_files: programs synthesised for the target profiles of the scenario, by program name.
        report: called with every event (`ready`, `released`, `exit`, …), in order.
        user_metrics: The user's metrics for target profiles, beside the built-in metrics and the metrics in the file.
        here: resources of the host; None: `HostResources.now()`.
        tick: called about once per second during the run.
        builds: folder for builds and inputs of applications, which several runs may share; None: `out`.
        notify: called with messages about these builds and inputs.

    Raises:
        AbsentError: the program of an application is not installed.
        UsageError: the host lacks resources of the scenario (CPUs, threads, memory), or a program has no file.
        RunCutError: the native program was killed, or ended early.
        MeshmarkError: the folder cannot be written.
        KeyboardInterrupt: raised after all programs are terminated and their results written.
    """
    if isinstance(scenario, Path):
        scenario = read_scenario(scenario, user_metrics)
    here = HostResources.now() if here is None else here
    load = find_load()
    files: dict[str, Path] = {}
    memory: dict[str, int] = {}
    members = []
    for p in scenario.programs:
        if p.synthesised:
            file = p.file or (program_files or {}).get(p.name)
            if file is None:
                raise UsageError(
                    f"program {p.name}: no program was synthesised for it", "meshmark load make creates one"
                )
            threads, memory[p.name] = threads_of(file)
            files[p.name] = file.resolve()
            p = replace(p, threads=threads)  # noqa: PLW2901
        members.append(p)
    scenario = replace(scenario, programs=tuple(members))
    check_here(scenario, here, memory)
    refuse_run_in(out)
    cpus = place_copies(scenario, here)
    output = out.resolve() / "output"
    applications = _applications(scenario, out, builds or out)
    argv = {n: (str(load), "program", str(f), "--wait") for n, f in files.items()}
    plan = run_plan(scenario, cpus, argv, output, applications)
    public = without_secrets(plan)
    for program, public_program in zip(plan["programs"], public["programs"], strict=True):
        program["recorded"] = public_program["argv"]
    with held(out) if applications else contextlib.nullcontext():  # builds may take long
        refuse_run_in(out)
        for copies in applications.values():
            copies.prepare(notify)
        journal = _claimed(out)
    with journal:  # creating the journal claims the folder
        content = {**scenario_json(scenario), "available_cpus": format_list(here.cpus)}
        write_json(out / "scenario.json", content)
        write_json(out / "plan.json", public)
        results = {name: copies.results() for name, copies in applications.items()}
        error, status = _run(load, plan, out, journal, report, tick)
    if applications:
        _judge(out, applications, results)
    run = read_run(out)
    if status < 0:
        error = f"the runner was terminated by {signal.Signals(-status).name}"
    elif run.status == "stopped":
        error = f"the runner was terminated by {_signal_of(run)}"
    elif status in {0, 1} and not run.cut:
        return run
    raise RunCutError(
        f"the run was interrupted: {error or f'exit status {status}'}; its results so far are in {out}", run
    )


def _claimed(out: Path) -> IO[bytes]:
    """Create the journal of a run in a folder that does not contain another run."""
    try:
        make_folder(out / "output")
        return open_private(out / JOURNAL, "xb")
    except FileExistsError:
        refuse_run_in(out)
        raise
    except OSError as error:
        raise MeshmarkError(f"cannot run the scenario in {out}: {error.strerror or error}") from error


def _applications(scenario: Scenario, out: Path, builds: Path) -> dict[str, ApplicationCopies]:
    """Return the copies of the programs that application files describe, by program name."""
    return {
        p.name: ApplicationCopies(
            p.name,
            p.described,
            p.copies,
            Folders(builds.resolve() / "applications" / name, out.resolve() / "copies" / name),
        )
        for p in scenario.programs
        if p.described is not None
        for name in [file_stem(p.name)]
    }


def _judge(
    out: Path, applications: Mapping[str, ApplicationCopies], before: Mapping[str, Sequence[ResultsFile]]
) -> None:
    """Write the verdict on each copy that ended with status 0."""
    verdicts = []
    for p in read_run(out, samples=False, judged=False).programs:
        if p.program in applications and p.how == "ok":
            name = f"{file_stem(p.program)}.{p.copy}"
            stdout, stderr = (out / "output" / f"{name}.{kind}" for kind in ("out", "err"))
            verdicts.append(applications[p.program].verdict(p.copy, before[p.program][p.copy], stdout, stderr))
    save_verdicts(out, verdicts)


def refuse_run_in(out: Path) -> None:
    """Refuse a folder that contains a run.

    Raises:
        UsageError: the folder contains a run.
    """
    if os.path.lexists(out / JOURNAL):
        raise UsageError(f"{out}: contains a run already", "name another folder with --out")


def _signal_of(run: LoadRun) -> str:
    try:
        return signal.Signals(int(run.end.get("signal", 0))).name
    except ValueError:
        return "a signal"


def expected_end_s(scenario: Scenario, files: Mapping[str, Path]) -> float:
    """Return the earliest end of the last program with a known run time, in s after the clock start; 0 if unknown.

    Args:
        scenario: the scenario.
        files: programs synthesised for the target profiles of the scenario, by program name.
    """
    last_s = 0.0
    for p in scenario.programs:
        file = p.file or files.get(p.name)
        if p.synthesised and file is not None:
            last_s = max(last_s, max(p.start_s) + run_time_of(file))
    return min(last_s, scenario.timeout_s) if scenario.timeout_s else last_s


def _run(
    load: Path,
    plan: Mapping[str, Any],
    out: Path,
    sink: IO[bytes],
    report: Callable[[Mapping[str, Any]], None] | None,
    tick: Callable[[], None] | None,
) -> tuple[str, int]:
    """Run the native program, and return the last line of its standard error and its exit status.

    The program writes the journal itself and sends one byte per event, so that monitoring it costs little CPU time.
    It reads the plan from memory, because no file may contain the values of secrets.
    """
    stderr_path = out / "run.err"
    try:
        with open_private(stderr_path, "wb") as stderr:
            receiver, notify = os.pipe()
            with open(receiver, "rb", buffering=0) as notifications, _in_memory(plan) as plan_file:
                try:
                    child = process.start(
                        [load, "run", "/proc/self/fd/0"],
                        stdin=plan_file,
                        stdout=sink,
                        stderr=stderr,
                        start_new_session=True,
                        pass_fds=(notify,),
                        env={**os.environ, "MESHMARK_NOTIFY": str(notify)},
                    )
                finally:
                    os.close(notify)
                try:
                    _monitor(notifications, sink, out / JOURNAL, report, tick)
                except BaseException:
                    child.send_signal(signal.SIGINT)
                    raise
                finally:
                    child.wait()
                    os.fsync(sink.fileno())
    except OSError as error:
        raise MeshmarkError(f"cannot run the scenario in {out}: {error.strerror or error}") from error
    lines = stderr_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return (lines[-1].removeprefix("meshmark: ")[:300] if lines else ""), child.returncode


@contextlib.contextmanager
def _in_memory(plan: Mapping[str, Any]) -> Iterator[IO[bytes]]:
    """Open a file without a name that contains the plan, and that only this process and its children can read."""
    with open(os.memfd_create("plan"), "wb+", buffering=0) as file:
        file.write(json.dumps(plan).encode())
        yield file


def _monitor(
    notifications: IO[bytes],
    sink: IO[bytes],
    journal: Path,
    report: Callable[[Mapping[str, Any]], None] | None,
    tick: Callable[[], None] | None,
) -> None:
    """Report events until all writers of `notifications` have closed it."""
    poll = select.poll()
    poll.register(notifications, select.POLLIN)
    offset, last_s, closed = 0, time.monotonic(), False
    while not closed:
        if poll.poll(1000 * _SYNC_S):
            closed = not notifications.read(1 << 16)
        if report is not None:
            offset = _report(journal, offset, report)
        if time.monotonic() - last_s >= _SYNC_S:
            last_s = time.monotonic()
            os.fsync(sink.fileno())
            if tick is not None:
                tick()


def _report(journal: Path, offset: int, report: Callable[[Mapping[str, Any]], None]) -> int:
    """Report the events from an offset on, and return the offset after them."""
    with journal.open("rb") as lines:
        lines.seek(offset)
        data = lines.read()
    end = data.rfind(b"\n") + 1
    for raw in data[:end].splitlines():
        if raw.startswith(b'{"type":"event"'):
            report(json.loads(raw))
    return offset + end


def new_folder(home: Path) -> Path:
    """Return a unique name for the folder of a run."""
    return home / run_name("load")
