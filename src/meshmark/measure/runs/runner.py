"""Runs the steps of a plan one after the other and journals their output; every failure becomes one message.

A run folder contains `plan.json`, `run.json`, `journal/<step>.jsonl` and the output of views. A step is finished when
its journal ends with an `end` line. Other steps are run again with `--resume`, which measures only missing points.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from meshmark import process
from meshmark.describe import find_probe, require_built
from meshmark.errors import AbsentError, MeshmarkError
from meshmark.machine.boot import remember
from meshmark.measure.runs import blas, launch
from meshmark.measure.runs.journal import JournalContent, parse_line, read_journal
from meshmark.measure.runs.plan import SurveyPlan, SurveyStep
from meshmark.measure.runs.rank_files import rank_files
from meshmark.store.run import Absence
from meshmark.store.session import open_for_append, whole_lines
from meshmark.store.store import Store

STATE = "run.json"  # in the run folder: metadata of the run, which a report needs beside the records
SILENCE_S = 60.0  # maximum time without output, in addition to the step's budget
OVERRUN = 4.0  # a step may take this many budgets plus one minute, because the budget excludes preparation
TOLERANCE = 1.2  # a plan starts no repetition that is expected to end after this many budgets
STDERR_KEPT = 4096
_USAGE = 2  # exit status of a program that does not accept its options
Report = Callable[[SurveyStep, Mapping[str, Any]], None]


@dataclass
class StepResult:
    """Result of one step. The status is `ok`, `absent`, `failed` or `resumed` (already complete).

    Attributes:
        refused: The program did not accept its options.
    """

    step: SurveyStep
    status: str
    elapsed_s: float = 0.0
    message: str = ""
    reading: JournalContent = field(default_factory=JournalContent)
    refused: bool = False


def program_of(step: SurveyStep) -> list[str]:
    """Return the program and the launcher arguments that precede the step's own arguments.

    Raises:
        AbsentError: The instrument is an application, and these were not built.
        MeshmarkError: The program or the launcher is missing.
    """
    require_built(step.instrument)
    if not step.ranks:
        return [str(find_probe())]
    return launch.launch_argv(launch.launcher(step.mpi), step.ranks, launch.cpus(), threads=step.threads)


class PlanRunner:
    """Runs the steps of a plan in a run folder.

    Args:
        folder: The run's folder, created if missing.
        report: Function that is called with every line of the protocol, for the progress bar.
        silence_s: A probe that prints nothing for its budget plus this time, in s, is killed.
    """

    def __init__(self, folder: Path, report: Report | None = None, silence_s: float = SILENCE_S) -> None:
        self.folder = folder
        self.report = report
        self.silence_s = silence_s
        self._processes: list[dict[str, Any]] = []  # host and process ID of each running rank
        find_probe()  # fail early rather than in every step

    def journal(self, step: SurveyStep) -> Path:
        """Return the path of the journal of a step."""
        return self.folder / "journal" / f"{step.id}.jsonl"

    def run_step(self, step: SurveyStep) -> StepResult:
        """Run or resume one step. Failures of the probe are part of the result, not exceptions."""
        journal = self.journal(step)
        earlier_reading = self.finished(step)
        if earlier_reading is not None:
            return self._result(step, "resumed", 0.0, _failure(0, "", earlier_reading), earlier_reading)
        began = time.monotonic()
        try:
            argv = [*program_of(step), *step.argv]
            with open_for_append(journal) as sink:
                if journal.stat().st_size:
                    argv += ["--resume", str(journal)]
                status, problem = self._pump(step, argv, sink)
        except OSError as error:
            status, problem = -1, f"the journal cannot be written: {error.strerror or error}"
        except AbsentError as error:
            absence = Absence(instrument=step.instrument, reason=str(error), enable=error.hint, step=step.id)
            return self._result(step, "absent", 0.0, "", JournalContent(absences=[absence]))
        except MeshmarkError as error:
            status, problem = -1, str(error)
        elapsed = time.monotonic() - began
        reading = read_journal(whole_lines(journal), step.id)
        message = _failure(status, problem, reading)
        result = self._result(step, "absent" if reading.ended == "absent" else "ok", elapsed, message, reading)
        result.refused = status == _USAGE and not reading.records
        return result

    @staticmethod
    def _result(step: SurveyStep, status: str, elapsed_s: float, message: str, reading: JournalContent) -> StepResult:
        if message:
            status = "failed"
            reading.absences.append(Absence(instrument=step.instrument, reason=message, kind="error", step=step.id))
        return StepResult(step, status, elapsed_s, message, reading)

    def finished(self, step: SurveyStep) -> JournalContent | None:
        """Return the content of the step's journal if it is complete, otherwise None."""
        reading = read_journal(whole_lines(self.journal(step)), step.id)
        return reading if reading.ended in {"ok", "absent"} else None

    def _pump(self, step: SurveyStep, argv: list[str], sink: IO[bytes]) -> tuple[int, str]:
        """Run the program and copy its output to the journal; return its exit status and a problem, or ""."""
        with rank_files(step.mpi if step.ranks else "", len(launch.cpus_of_hosts())) as variables:
            return self._pump_with(
                step, argv, sink, {**launch.environment(step.mpi), **blas.environment(), **variables}
            )

    def _pump_with(self, step: SurveyStep, argv: list[str], sink: IO[bytes], env: Mapping[str, str]) -> tuple[int, str]:
        try:
            child = process.start(
                argv,
                process.TERMINATED_WITH_PARENT if step.ranks else process.KILLED_WITH_PARENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=env,
            )
        except OSError as error:
            return -1, f"the probe cannot be started: {error.strerror or error}"
        assert child.stdout is not None and child.stderr is not None
        problem, stderr, ended = "", b"", False
        self._processes = []
        buffered = bytearray()
        hard_end = time.monotonic() + OVERRUN * step.budget_s + 60
        last_output = time.monotonic()
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(child.stdout, selectors.EVENT_READ, "out")
                selector.register(child.stderr, selectors.EVENT_READ, "err")
                while selector.get_map():
                    for key, _ in selector.select(timeout=0.5):
                        data = os.read(key.fd, 1 << 16)
                        if not data:
                            selector.unregister(key.fileobj)
                        elif key.data == "err":
                            stderr = (stderr + data)[-STDERR_KEPT:]
                        else:
                            last_output = time.monotonic()
                            buffered += data
                            cut = buffered.rfind(b"\n") + 1
                            if cut:
                                protocol, messages = _split_output(bytes(buffered[:cut]), step)
                                stderr = (stderr + messages)[-STDERR_KEPT:]
                                self._journal_lines(step, protocol, sink)
                                del buffered[:cut]
                    now_s = time.monotonic()
                    if now_s - last_output > step.budget_s + self.silence_s:
                        problem = f"no output for {now_s - last_output:.0f} s: killed"
                    elif now_s > hard_end:
                        problem = f"far over its budget of {step.budget_s:g} s: killed"
                    if problem:
                        break
            ended = True
        except OSError as error:
            problem = f"the journal cannot be written: {error.strerror or error}"
        finally:  # also after an interrupt; the child then gets no time to finish
            if problem or child.poll() is None:
                _kill(child, after_s=2 if ended and not problem else 0, term_first=step.ranks > 0)
        status = child.wait()
        if status < 0 and not problem and step.ranks:
            problem = f"the launcher was terminated by {process.signal_name(-status)}"
        if status not in (0, 77) and not problem:
            text = stderr.decode("utf-8", "replace").strip()
            lines = text.splitlines()
            problem = launch.failure_message(text, self._processes) if step.ranks else lines[-1][:300] if lines else ""
        return status, problem

    def _journal_lines(self, step: SurveyStep, data: bytes, sink: IO[bytes]) -> None:
        sink.write(data)
        sink.flush()
        complete = False
        for raw in data.splitlines():
            line = parse_line(raw)
            if line is None:
                continue
            complete = complete or line["type"] in {"point", "end"}
            if line["type"] == "header" and isinstance(line.get("processes"), list):
                self._processes = [p for p in line["processes"] if isinstance(p, dict)]
            if self.report is not None:
                self.report(step, line)
        if complete:
            os.fsync(sink.fileno())


def _split_output(data: bytes, step: SurveyStep) -> tuple[bytes, bytes]:
    """Separate lines of the protocol from launcher messages, which MPICH writes to standard output."""
    if not step.ranks:
        return data, b""
    lines = data.splitlines(keepends=True)
    return b"".join(x for x in lines if x[:1] == b"{"), b"".join(x for x in lines if x[:1] != b"{")


def _kill(child: subprocess.Popen[bytes], after_s: float, term_first: bool = False) -> None:
    """Kill the child's process group.

    A launcher gets SIGTERM first (`term_first`), because SIGKILL would leave its files in shared memory.
    """
    attempts = ((signal.SIGTERM, after_s), (signal.SIGKILL, 3.0)) if term_first else ((signal.SIGKILL, after_s),)
    for signal_number, patience_s in attempts:
        try:
            child.wait(timeout=patience_s)
            return
        except subprocess.TimeoutExpired:
            try:
                os.killpg(child.pid, signal_number)
                os.killpg(child.pid, signal.SIGCONT)  # stopped processes handle no other signal
            except ProcessLookupError:
                child.kill()


def _failure(status: int, problem: str, reading: JournalContent) -> str:
    """Return the reason why a step failed, in one line; "" if it succeeded."""
    if problem and reading.error is None:
        return problem
    if status < 0 and not problem:
        return f"the probe was terminated by {process.signal_name(-status)}"
    if reading.error is not None:
        return reading.error
    if reading.invalid_records:
        return f"{len(reading.invalid_records)} results are invalid: {reading.invalid_records[0]}"
    if reading.invalid_lines:
        return f"{reading.invalid_lines} lines of output are not JSON"
    if reading.ended is None:
        return f"the output ends without an end line (exit status {status})"
    return "" if status in (0, 77) else f"exit status {status}"


def run_plan(
    plan: SurveyPlan,
    folder: Path,
    store: Store,
    run_id: str,
    report: Report | None = None,
    notify: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    *,
    stops_at_refusal: bool = False,
) -> list[StepResult]:
    """Run all steps and add the records of each step to the store. A failed step does not affect the others.

    If the store cannot be written, the step fails; its results stay in the journal.

    Args:
        folder: Folder of the run, which gets the journals.
        store: Store to which the records are added.
        run_id: Id of the run in the store.
        report: Function that is called with each line of an instrument; None: none is.
        notify: Function that is called with messages for the user.
        stops_at_refusal: Stop at a step that did not accept its options, and store none of its results.
    """
    runner = PlanRunner(folder, report)
    results = []
    try:
        remember(store)
    except MeshmarkError as error:
        notify(f"meshmark: the facts of this machine are not stored: {error}")
    pace = Pace(plan.budget_s)
    for step in plan.steps:
        result = runner.run_step(step) if pace.allows(step) else _left_out(step)
        pace.add(result)
        results.append(result)
        if result.refused and stops_at_refusal:
            break
        if result.status == "failed":
            notify(f"meshmark: {step.id}: {result.message}")
        store_error = ""
        try:
            reading = result.reading
            store.add(run_id, step.id, reading.records, reading.absences, str(reading.header.get("machine", "")))
        except MeshmarkError as error:
            store_error = str(error)
        if store_error:
            notify(f"meshmark: {step.id}: {store_error}; the journal is kept, and --resume stores it")
            result.status, result.message = "failed", store_error
    try:
        store.finish(run_id)
    except MeshmarkError as error:
        notify(f"meshmark: {error}; the steps of the run stay files of their own")
    return results


class Pace:
    """Keeps a plan near its budget: leaves out repetitions of steps that would exceed the budget.

    The budget of a process limits the time of its samples. Before the samples, the process touches memory and verifies
    results, which on a slow machine takes longer than the samples themselves. Every step runs at least once.

    Args:
        budget_s: Budget of the whole plan, s.
    """

    def __init__(self, budget_s: float) -> None:
        self.limit_s = TOLERANCE * budget_s
        self.elapsed_s = 0.0
        self._took: dict[str, list[float]] = {}

    def allows(self, step: SurveyStep) -> bool:
        """Return whether the step is the first of its repetitions, or is expected to end in time."""
        durations_s = self._took.get(step.repeats)
        return durations_s is None or self.elapsed_s + sum(durations_s) / len(durations_s) <= self.limit_s

    def add(self, result: StepResult) -> None:
        """Count the time of a step that ran; steps that were skipped or refused are ignored."""
        if result.status not in {"ok", "failed"}:
            return
        self.elapsed_s += result.elapsed_s
        self._took.setdefault(result.step.repeats, []).append(result.elapsed_s)


def _left_out(step: SurveyStep) -> StepResult:
    absence = Absence(
        instrument=step.instrument, reason="the budget ended before this repetition", enable="a larger --budget"
    )
    return StepResult(step, "absent", reading=JournalContent(absences=[absence]))
