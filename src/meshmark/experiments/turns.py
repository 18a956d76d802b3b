"""Runs the command of an experiment under one of its settings, and reads its value."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from meshmark import process
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.experiments.experiment import ExperimentRun, Side
from meshmark.experiments.plan import SettingsPlan
from meshmark.experiments.start_placement import UNKNOWN, placement_note, placement_of
from meshmark.experiments.trial import check_space, last_line, printable, tail
from meshmark.place.other_work import OtherWork
from meshmark.store.files import open_private
from meshmark.values.secrets import reveal_variables, reveal_words

_VERDICT_BYTES: Final = 1 << 16


class Company:
    """Other processes that run beside a command. This class starts none.

    Attributes:
        cpu_s: CPU time that it used between `begin` and `end`, in s.
        counts: Its results, by name.
    """

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.counts: dict[str, float] = {}

    def begin(self) -> None:
        """Mark the start of the command."""

    def end(self) -> str:
        """Mark its end, and set the results. Return why the run does not count; "" if it counts."""
        return ""


@contextlib.contextmanager
def _nobody(_: Side) -> Iterator[Company]:
    yield Company()


class SettingRunner:
    """Runs the settings of a plan, one run at a time.

    Args:
        folder: Folder for the output of the current run, and of the last run that failed.
        node_of: Node by CPU, if it is to be observed where the threads and the pages of a run are; None if not.
        beside: Function that returns the context in which a run of a setting takes place.

    Raises:
        UsageError: A setting is invalid.
    """

    def __init__(
        self,
        plan: SettingsPlan,
        folder: Path,
        node_of: Mapping[int, int] | None = None,
        beside: Callable[[Side], AbstractContextManager[Company]] = _nobody,
    ) -> None:
        self.plan, self.folder = plan, folder
        self._node_of, self._beside = node_of, beside
        self.settings = plan.settings
        self._through_run = node_of is not None or any(s.options for s in self.settings.values())
        self._limit_s = plan.timeout_s or plan.budget_s
        self._changed = False

    def run(self, pair: int, side: Side, position: int) -> ExperimentRun:
        """Run a setting once. Failures of the command are part of the outcome, not exceptions.

        Raises:
            MeshmarkError: A shell command failed, or the disk of the folder is full.
        """
        start_s, setting = time.monotonic(), self.settings[side]
        if setting.shell:
            self._changed = True
            self._shell(f"{_label(side)}: {setting.shell}", setting.shell_argv())
        out, err = self._files("run")
        record = self.folder / "placement.jsonl"
        observing = []
        if self._node_of is not None:
            record.unlink(missing_ok=True)
            observing = ["--verify", "--record", str(record)]
        argv = setting.argv(self.plan.command, self._through_run, observing)
        with self._beside(side) as company:
            company.begin()
            other_work = OtherWork()
            exit_report = run_to_end(argv, {} if setting.host else setting.environment, out, err, self._limit_s)
            wrong = company.end()
            shares = other_work.shares(exit_report.user_s + exit_report.system_s + company.cpu_s)
        outcome = ExperimentRun(
            pair=pair, side=side, position=position, value=None, elapsed_s=exit_report.elapsed_s, spent_s=0.0
        )
        outcome.beside = dict(company.counts)
        if not setting.host:
            outcome.user_s, outcome.system_s = exit_report.user_s, exit_report.system_s
            outcome.others_share, outcome.stolen_share, outcome.flags = shares.others, shares.stolen, shares.flags
        if self._node_of is not None:
            outcome.place = _place(record, self._node_of)
            cut_verdict(err)
        if reason := failure(exit_report, out, err, self._limit_s) or wrong:
            outcome.reason = reason
        else:
            result = self.plan.figure.read(exit_report.elapsed_s, out, err)
            if isinstance(result, str):
                outcome.reason = result
            else:
                outcome.value, outcome.unit, outcome.better = result.value, result.unit, result.better
                outcome.points, outcome.flags = result.points, sorted({*outcome.flags, *result.flags})
        if outcome.value is None:
            check_space(self.folder)
            for file in (out, err):
                file.replace(file.with_stem("failed"))
        outcome.spent_s = time.monotonic() - start_s
        return outcome

    def restore(self) -> None:
        """Restore the earlier state: run the shell command of the first setting, and the command `restore` of the plan.

        Raises:
            MeshmarkError: A command failed. All commands ran nevertheless.
        """
        commands = []
        if self._changed:
            name, setting = next(iter(self.settings.items()))
            commands.append((f"{_label(name)}: {setting.shell}", setting.shell_argv()))
        if self.plan.restore:
            commands.append((f"--restore: {self.plan.restore}", ["sh", "-c", self.plan.restore]))
        first_error: MeshmarkError | None = None
        for name, argv in commands:
            try:
                self._shell(name, argv)
            except MeshmarkError as error:
                first_error = first_error or error
        for file in (*self._files("run"), self.folder / "placement.jsonl"):
            file.unlink(missing_ok=True)
        if first_error is not None:
            raise first_error

    def _shell(self, name: str, argv: Sequence[str]) -> None:
        out, err = self._files("run")
        exit_report = run_to_end(argv, {}, out, err, self._limit_s)
        if reason := failure(exit_report, out, err, self._limit_s):
            raise MeshmarkError(f"{name}: {reason}")

    def _files(self, stem: str) -> tuple[Path, Path]:
        return self.folder / f"{stem}.out", self.folder / f"{stem}.err"


def _place(record: Path, node_of: Mapping[int, int]) -> str:
    """Return where a run was, from the record of `meshmark run`."""
    try:
        note = placement_note(record.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return UNKNOWN
    return placement_of(note or {}, node_of).place


def cut_verdict(err: Path) -> None:
    """Remove the last lines of an observed run, in which `meshmark run` states whether the placement held."""
    with err.open("r+b") as file:
        start = max(0, file.seek(0, 2) - _VERDICT_BYTES)
        file.seek(start)
        if match := re.search(rb"^placement (?:held|did not hold): ", file.read(), re.M):
            file.truncate(start + match.start())


def _label(side: Side) -> str:
    """Return a label in errors: the settings of an experiment are A and B."""
    return side.upper() if len(side) == 1 else side


def run_to_end(
    argv: Sequence[str],
    environment: Mapping[str, str],
    out: Path,
    err: Path,
    limit_s: float,
    folder: Path | None = None,
) -> process.Exit:
    """Run a command in a new session, and end all its processes if it takes longer than allowed.

    Args:
        argv: The command line.
        environment: Variables in addition to the environment of this process.
        out: File for its standard output.
        err: File for its standard error.
        limit_s: Maximum time, in s.
        folder: Folder in which the command runs; by default the folder of this process.

    Raises:
        UsageError: The program does not exist or cannot be executed.
        MeshmarkError: The files cannot be written.
    """
    try:
        output, errors = open_private(out, "wb"), open_private(err, "wb")
    except OSError as error:
        raise MeshmarkError(f"cannot write {out}: {error.strerror}") from error
    variables = {**os.environ, **reveal_variables(environment)}
    with output, errors:
        try:
            return process.run_in_session(
                reveal_words(argv), process.TERMINATED_WITH_PARENT, output, errors, limit_s, cwd=folder, env=variables
            )
        except OSError as error:
            raise UsageError(f"COMMAND: cannot run {quoted(argv[0])}: {error.strerror or error}") from error


def failure(ended: process.Exit, out: Path, err: Path, limit_s: float) -> str:
    """Return why a command counts as failed, with the last line that it printed; "" if it succeeded."""
    text = tail(out) + "\n" + tail(err) if ended.status else ""
    return status_failure(ended.status, text, limit_s)


def status_failure(status: int | None, text: str, limit_s: float) -> str:
    """Return the same as `failure`, from a status and a text.

    Args:
        status: Status as in `process.Exit`.
        text: Output of the command.
        limit_s: Time limit of the command in s.
    """
    if status is None:
        return f"took longer than {limit_s:.3g} s"
    if status == 0:
        return ""
    lines = text.splitlines()
    # `meshmark run`, not the command, prints lines with these prefixes.
    run_prefixes = ("hint: ", "placement held: ", "placement did not hold: ")
    last = last_line([line for line in lines if not line.startswith(run_prefixes)])
    exit_text = process.status_text(status)
    return f"ended with {exit_text}: {printable(last.removeprefix('meshmark: error: '))}"
