"""Running a scenario by `meshmark-load`.

A run folder holds `scenario.json`, `plan.json` (the native program's input), `run.jsonl` (its output, line by line as
it came) and `output/` (what the programs printed).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.journal import JOURNAL, read_run
from meshmark.load.metrics import Metrics
from meshmark.load.native import find_load
from meshmark.load.placing import Here, check_here, place_copies, run_plan, run_time_of, scenario_json, threads_of
from meshmark.load.result import LoadRun
from meshmark.load.scenario import Scenario, read_scenario
from meshmark.machine.tree import format_list
from meshmark.native import die_with_parent
from meshmark.store.files import write_file
from meshmark.store.store import run_name

_SYNC_S: Final = 1.0
# ---------------------------------------------------------------- running


class RunCutError(MeshmarkError):
    """The runner did not get to the end of its scenario; what it had written by then is in `run`."""

    def __init__(self, message: str, run: LoadRun) -> None:
        super().__init__(message)
        self.run = run


def run_scenario(
    scenario: Scenario | Path,
    out: Path,
    base_programs: Mapping[str, Path] | None = None,
    report: Callable[[Mapping[str, Any]], None] | None = None,
    own: Metrics | None = None,
    here: Here | None = None,
    tick: Callable[[], None] | None = None,
) -> LoadRun:
    """Runs a scenario in a new folder and reads it back. What a program does wrong is an event, not an error.

    Args:
        scenario: or the file that describes it.
        out: the run's folder; made, and refused where a run lies in it already.
        base_programs: files of the programs that were synthesised for what the scenario prescribes, by name.
        report: called with every event (`ready`, `released`, `exit`, …) as soon as it is known, in order.
        own: metrics of the user's that a scenario's file may prescribe beside the shipped ones and its own.
        here: what the host has; None: asks it.
        tick: called about once a second while it runs.

    Raises:
        UsageError: the scenario asks for what is not here (CPUs, threads, memory), or a program has no file.
        RunCutError: the native program was killed, or ended before its time.
        MeshmarkError: the folder cannot be written.
        KeyboardInterrupt: after all programs were ended and what there is was written.
    """
    if isinstance(scenario, Path):
        scenario = read_scenario(scenario, own)
    here = Here.now() if here is None else here
    load = find_load()
    files: dict[str, Path] = {}
    memory: dict[str, int] = {}
    members = []
    for p in scenario.programs:
        if p.synthesised:
            file = p.file or (base_programs or {}).get(p.name)
            if file is None:
                raise UsageError(
                    f"program {p.name}: nothing was synthesised for it", "meshmark load make makes a program's file"
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
    plan = run_plan(scenario, cpus, {n: (str(load), "program", str(f), "--wait") for n, f in files.items()}, output)
    try:
        output.mkdir(parents=True, exist_ok=True)
        journal = (out / JOURNAL).open("xb")
    except FileExistsError:
        refuse_run_in(out)
        raise
    except OSError as why:
        raise MeshmarkError(f"cannot run the scenario in {out}: {why.strerror or why}") from why
    with journal:  # the folder is ours from here on
        about = {**scenario_json(scenario), "available_cpus": format_list(here.cpus)}
        write_file(out / "scenario.json", json.dumps(about, indent=1).encode() + b"\n")
        write_file(out / "plan.json", json.dumps(plan, indent=1).encode() + b"\n")
        complaint, status = _run(load, out, journal, report, tick)
    run = read_run(out)
    if status < 0:
        complaint = f"its runner was ended by {signal.Signals(-status).name}"
    elif run.status == "stopped":
        complaint = f"its runner was ended by {_signal_of(run)}"
    elif status in {0, 1} and not run.cut:
        return run
    raise RunCutError(f"the run was cut: {complaint or f'exit status {status}'}; what there is lies in {out}", run)


def refuse_run_in(out: Path) -> None:
    """
    Raises:
        UsageError: a run lies in the folder.
    """
    if os.path.lexists(out / JOURNAL):
        raise UsageError(f"{out}: contains a run already", "name another folder with --out")


def _signal_of(run: LoadRun) -> str:
    try:
        return signal.Signals(int(run.end.get("signal", 0))).name
    except ValueError:
        return "a signal"


def expected_end_s(scenario: Scenario, files: Mapping[str, Path]) -> float:
    """When the last program whose run time is known ends at the earliest, s after the clock's start; 0: of none it is.

    Args:
        files: of the programs that were synthesised for what the scenario prescribes, by name.
    """
    last_s = 0.0
    for p in scenario.programs:
        file = p.file or files.get(p.name)
        if p.synthesised and file is not None:
            last_s = max(last_s, max(p.start_s) + run_time_of(file))
    return min(last_s, scenario.timeout_s) if scenario.timeout_s else last_s


def _run(
    load: Path,
    out: Path,
    sink: IO[bytes],
    report: Callable[[Mapping[str, Any]], None] | None,
    tick: Callable[[], None] | None,
) -> tuple[str, int]:
    """Its last words and its exit status. It writes the journal itself, and sends a byte with every event: who looks on
    should not be a load."""
    talk = out / "run.err"
    try:
        with talk.open("wb") as errors:
            listen, notify = os.pipe()
            with open(listen, "rb", buffering=0) as news:
                try:
                    child = subprocess.Popen(
                        [load, "run", out / "plan.json"],
                        stdin=subprocess.DEVNULL,
                        stdout=sink,
                        stderr=errors,
                        preexec_fn=die_with_parent,
                        start_new_session=True,
                        pass_fds=(notify,),
                        env={**os.environ, "MESHMARK_NOTIFY": str(notify)},
                    )
                finally:
                    os.close(notify)
                try:
                    _look_on(news, sink, out / JOURNAL, report, tick)
                except BaseException:
                    child.send_signal(signal.SIGINT)
                    raise
                finally:
                    child.wait()
                    os.fsync(sink.fileno())
    except OSError as why:
        raise MeshmarkError(f"cannot run the scenario in {out}: {why.strerror or why}") from why
    said = talk.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return (said[-1].removeprefix("meshmark: ")[:300] if said else ""), child.returncode


def _look_on(
    news: IO[bytes],
    sink: IO[bytes],
    journal: Path,
    report: Callable[[Mapping[str, Any]], None] | None,
    tick: Callable[[], None] | None,
) -> None:
    """Until nobody can send news any more."""
    poll = select.poll()
    poll.register(news, select.POLLIN)
    told, last_s, over = 0, time.monotonic(), False
    while not over:
        if poll.poll(1000 * _SYNC_S):
            over = not news.read(1 << 16)
        if report is not None:
            told = _report(journal, told, report)
        if time.monotonic() - last_s >= _SYNC_S:
            last_s = time.monotonic()
            os.fsync(sink.fileno())
            if tick is not None:
                tick()


def _report(journal: Path, at: int, report: Callable[[Mapping[str, Any]], None]) -> int:
    """Tells the events from an offset on; returns where the next ones begin."""
    with journal.open("rb") as lines:
        lines.seek(at)
        data = lines.read()
    end = data.rfind(b"\n") + 1
    for raw in data[:end].splitlines():
        if raw.startswith(b'{"type":"event"'):
            report(json.loads(raw))
    return at + end


def new_folder(home: Path) -> Path:
    """A name for a run's folder that no other run has."""
    return home / run_name("load")
