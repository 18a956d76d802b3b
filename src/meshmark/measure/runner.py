"""Runs a plan: one probe after the other, every line journalled as it comes, every fault one clear line.

A run folder holds `plan.json`, `journal/<step>.jsonl`, and what the views add. A step is finished when its journal
ends in an `end` line; everything else is done again with `--resume`, which measures only what is missing.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from meshmark.describe import find_probe
from meshmark.errors import AbsentError, MeshmarkError
from meshmark.measure import launch
from meshmark.measure.journal import Reading, parse_line, read_journal
from meshmark.measure.plan import Plan, Step
from meshmark.native import die_with_parent, end_with_parent
from meshmark.store.files import write_file
from meshmark.store.lines import cut_torn_end, whole_lines
from meshmark.store.run import Absence
from meshmark.store.store import Store

STATE = "run.json"  # of a run folder: what is known of the run beside its plan and journals
SILENCE_S = 60.0  # beyond a step's budget nothing legitimate is silent for so long
OVERRUN = 4.0  # a step may take this many budgets (preparation does not count into the budget) and a minute
STDERR_KEPT = 4096
Report = Callable[[Step, Mapping[str, Any]], None]


@dataclass
class StepResult:
    """How one step went: status is `ok`, `absent`, `failed` or `resumed` (nothing was left to do)."""

    step: Step
    status: str
    elapsed_s: float = 0.0
    message: str = ""
    reading: Reading = field(default_factory=Reading)


def _program(step: Step) -> list[str]:
    """The words before a step's own.

    Raises:
        MeshmarkError: it, or the launcher of its ranks, is not here.
    """
    if not step.ranks:
        return [str(find_probe())]
    return launch.words(launch.launcher(step.mpi), step.ranks, launch.cpus())


class Runner:
    """Runs the steps of a plan in a run folder.

    Args:
        folder: the run's folder; made if missing.
        report: called with every progress line, for the progress bar.
        silence_s: a probe that writes nothing for its budget and this many seconds is killed.
    """

    def __init__(self, folder: Path, report: Report | None = None, silence_s: float = SILENCE_S) -> None:
        self.folder = folder
        self.report = report
        self.silence_s = silence_s
        self._processes: list[dict[str, Any]] = []  # of the ranks that run
        find_probe()  # refused at once, not once a step

    def journal(self, step: Step) -> Path:
        return self.folder / "journal" / f"{step.id}.jsonl"

    def run_step(self, step: Step) -> StepResult:
        """Runs or resumes one step. Never raises for what the probe does."""
        journal = self.journal(step)
        earlier = self.finished(step)
        if earlier is not None:
            return self._result(step, "resumed", 0.0, _verdict(0, "", earlier), earlier)
        began = time.monotonic()
        try:
            journal.parent.mkdir(parents=True, exist_ok=True)
            cut_torn_end(journal)
            argv = [*_program(step), *step.argv]
            if journal.exists() and journal.stat().st_size:
                argv += ["--resume", str(journal)]
            with journal.open("ab") as sink:
                status, complaint = self._pump(step, argv, sink)
        except OSError as why:
            status, complaint = -1, f"the journal cannot be written: {why.strerror or why}"
        except AbsentError as why:
            gone = Absence(instrument=step.instrument, reason=str(why), enable=why.hint, step=step.id)
            return self._result(step, "absent", 0.0, "", Reading(absences=[gone]))
        except MeshmarkError as why:
            status, complaint = -1, str(why)
        elapsed = time.monotonic() - began
        reading = read_journal(whole_lines(journal), step.id)
        message = _verdict(status, complaint, reading)
        return self._result(step, "absent" if reading.ended == "absent" else "ok", elapsed, message, reading)

    @staticmethod
    def _result(step: Step, status: str, elapsed_s: float, message: str, reading: Reading) -> StepResult:
        if message:
            status = "failed"
            reading.absences.append(Absence(instrument=step.instrument, reason=message, kind="error", step=step.id))
        return StepResult(step, status, elapsed_s, message, reading)

    def finished(self, step: Step) -> Reading | None:
        """What the step's journal holds if it is complete, else None."""
        reading = read_journal(whole_lines(self.journal(step)), step.id)
        return reading if reading.ended in {"ok", "absent"} else None

    def _pump(self, step: Step, argv: list[str], sink: BinaryIO) -> tuple[int, str]:
        """The probe's lines into the journal; returns its wait status and a complaint of ours (or '')."""
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=end_with_parent if step.ranks else die_with_parent,
                start_new_session=True,
                env=launch.environment(step.mpi),
            )
        except OSError as why:
            return -1, f"the probe cannot be started: {why.strerror or why}"
        assert child.stdout is not None and child.stderr is not None
        complaint, talk, ended = "", b"", False
        self._processes = []
        pending = bytearray()
        hard_end = time.monotonic() + OVERRUN * step.budget_s + 60
        heard = time.monotonic()
        try:
            with selectors.DefaultSelector() as waiting:
                waiting.register(child.stdout, selectors.EVENT_READ, "out")
                waiting.register(child.stderr, selectors.EVENT_READ, "err")
                while waiting.get_map():
                    for key, _ in waiting.select(timeout=0.5):
                        data = os.read(key.fd, 1 << 16)
                        if not data:
                            waiting.unregister(key.fileobj)
                        elif key.data == "err":
                            talk = (talk + data)[-STDERR_KEPT:]
                        else:
                            heard = time.monotonic()
                            pending += data
                            cut = pending.rfind(b"\n") + 1
                            if cut:
                                ours, babble = _told_apart(bytes(pending[:cut]), step)
                                talk = (talk + babble)[-STDERR_KEPT:]
                                self._journal_lines(step, ours, sink)
                                del pending[:cut]
                    now = time.monotonic()
                    if now - heard > step.budget_s + self.silence_s:
                        complaint = f"no word for {now - heard:.0f} s: killed"
                    elif now > hard_end:
                        complaint = f"over its budget of {step.budget_s:g} s by far: killed"
                    if complaint:
                        break
            ended = True
        except OSError as why:
            complaint = f"the journal cannot be written: {why.strerror or why}"
        finally:  # also of an interrupt: what is measured now would be lost
            if complaint or child.poll() is None:
                _kill(child, after_s=2 if ended and not complaint else 0, asked=step.ranks > 0)
        status = child.wait()
        if status < 0 and not complaint and step.ranks:
            complaint = f"the launcher died of {launch.signal_name(-status)}"
        if status not in (0, 77) and not complaint:
            said = talk.decode("utf-8", "replace").strip()
            lines = said.splitlines()
            complaint = launch.complaint(said, self._processes) if step.ranks else lines[-1][:300] if lines else ""
        return status, complaint

    def _journal_lines(self, step: Step, data: bytes, sink: BinaryIO) -> None:
        sink.write(data)
        sink.flush()
        claims = False
        for raw in data.splitlines():
            line = parse_line(raw)
            if line is None:
                continue
            claims = claims or line["type"] in {"point", "end"}
            if line["type"] == "header" and isinstance(line.get("processes"), list):
                self._processes = [p for p in line["processes"] if isinstance(p, dict)]
            if self.report is not None:
                self.report(step, line)
        if claims:
            os.fsync(sink.fileno())


def _told_apart(data: bytes, step: Step) -> tuple[bytes, bytes]:
    """Lines of the protocol, and what a launcher says among them, as MPICH's does of ranks that died."""
    if not step.ranks:
        return data, b""
    lines = data.splitlines(keepends=True)
    return b"".join(x for x in lines if x[:1] == b"{"), b"".join(x for x in lines if x[:1] != b"{")


def _kill(child: subprocess.Popen[bytes], after_s: float, asked: bool = False) -> None:
    """With its group. A launcher is asked first: killed at once, it would leave its files in shared memory."""
    ways = ((signal.SIGTERM, after_s), (signal.SIGKILL, 3.0)) if asked else ((signal.SIGKILL, after_s),)
    for how, patience_s in ways:
        try:
            child.wait(timeout=patience_s)
            return
        except subprocess.TimeoutExpired:
            try:
                os.killpg(child.pid, how)
                os.killpg(child.pid, signal.SIGCONT)  # one that was stopped hears nothing else
            except ProcessLookupError:
                child.kill()


def _verdict(status: int, complaint: str, reading: Reading) -> str:
    """One line that says what went wrong, or ''."""
    if complaint and reading.error is None:
        return complaint
    if status < 0 and not complaint:
        return f"the probe died of {launch.signal_name(-status)}"
    if reading.error is not None:
        return reading.error
    if reading.wrong:
        return f"{len(reading.wrong)} results break the contract: {reading.wrong[0]}"
    if reading.nonsense:
        return f"{reading.nonsense} lines of output were no JSON"
    if reading.ended is None:
        return f"the output stops without an end line (exit status {status})"
    return "" if status in (0, 77) else f"exit status {status}"


def run_plan(
    plan: Plan,
    folder: Path,
    store: Store,
    run_id: str,
    report: Report | None = None,
    talk: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> list[StepResult]:
    """Runs all steps; the records of each go to the store when it ends. A failure is one line; the others go on.

    Raises:
        MeshmarkError: the store cannot be written (disk full): what was measured stays in the journal.
    """
    runner = Runner(folder, report)
    results = []
    for step in plan.steps:
        result = runner.run_step(step)
        results.append(result)
        if result.status == "failed":
            talk(f"meshmark: {step.id}: {result.message}")
        store_error = ""
        try:
            reading = result.reading
            store.add(run_id, step.id, reading.records, reading.absences, str(reading.header.get("machine", "")))
        except MeshmarkError as why:
            store_error = str(why)
        if store_error:
            talk(f"meshmark: {step.id}: {store_error}; its journal is kept, --resume stores it")
            result.status, result.message = "failed", store_error
    return results


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """`run.json`: what a report needs beside the records; written aside and renamed."""
    write_file(folder / STATE, json.dumps(state, indent=1, default=str).encode() + b"\n")
