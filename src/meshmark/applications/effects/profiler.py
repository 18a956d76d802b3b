"""Profiles applications and running processes with the system's sampling profiler, perf.

Each configuration of an application runs once more under the profiler. These runs follow the measured runs and give no
samples of any metric. Their results are in `profiles.jsonl`, one line per configuration, so that a resumed measurement
repeats no run; the profiles themselves are in the folder `profiles`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from meshmark.applications.attempt import UNDER_BYTES, ConfigurationRun
from meshmark.applications.configuration import Configuration
from meshmark.applications.effects.profile import FIELDS, Profile, frequency_hz, read_report
from meshmark.applications.effects.reasons import RunMedians
from meshmark.applications.trials import INTERRUPTED, Trials
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.experiments.trial import BUDGET, last_line, printable, tail
from meshmark.experiments.turns import run_to_end
from meshmark.machine.tree import FileTree
from meshmark.store.files import sync_folder
from meshmark.store.session import Journal

JOURNAL: Final = "profiles.jsonl"
FOLDER: Final = "profiles"
MAX_KEPT_BYTES: Final = 512 << 20  # size of all profiles of a measurement; further profiles are read and removed
_LIMIT_S: Final = 120.0  # time limit of perf, apart from the run
_OPEN: Final = 2  # largest kernel.perf_event_paranoid with which users may profile their own programs
_SETTING: Final = "proc/sys/kernel/perf_event_paranoid"
# With these variables, neither the settings of the user nor servers of symbols change the output of perf.
_ENVIRONMENT: Final = {"PERF_CONFIG": "/dev/null", "DEBUGINFOD_URLS": "", "LC_ALL": "C"}

# Function that runs a configuration under the words of a command line.
RunUnder = Callable[[Configuration, Sequence[str]], ConfigurationRun]


@dataclass(frozen=True, slots=True)
class Perf:
    """The profiler of this machine.

    Attributes:
        program: Path of the program.
        version: Name and version, such as `perf 6.1.187`.
    """

    program: str
    version: str

    def record(self, frequency: int, to: Path) -> list[str]:
        """Return the words that put a command under the profiler."""
        # Without an event, perf uses cycles, or the CPU clock where there is no counter; the report states which.
        limits = ["-F", str(frequency), f"--max-size={(UNDER_BYTES >> 20) - 2}M"]
        return [self.program, "record", "-q", "-N", *limits, "-o", str(to), "--"]

    def attach(self, frequency: int, to: Path, process: int, seconds: float) -> list[str]:
        """Return the command that profiles a running process for a time in s."""
        *words, end = self.record(frequency, to)
        return [*words, "-p", str(process), end, "sleep", f"{seconds:g}"]

    def report(self, of: Path) -> list[str]:
        """Return the command that prints the input of `read_report`."""
        columns = ["-n", "-t", "\t", "--sort", FIELDS]
        return [self.program, "report", "--stdio", "--no-children", *columns, "-i", str(of)]


def find_perf(folder: Path, root: Path = Path("/")) -> Perf:
    """Return the profiler after a trial run.

    Args:
        folder: Folder for the files of the trial run.
        root: `/` or a recorded tree, which contains the settings of the kernel.

    Raises:
        AbsentError: The profiler is not installed or not allowed; the hint states what would enable it.
    """
    program = shutil.which("perf")
    if program is None:
        raise AbsentError("perf is not installed", "install the package linux-perf (Debian), or perf")
    out, err, data = (folder / f"perf.{suffix}" for suffix in ("out", "err", "data"))
    perf = Perf(program, "perf")
    try:
        exit_report = run_to_end([*perf.record(frequency_hz(1.0), data), "true"], _ENVIRONMENT, out, err, _LIMIT_S)
        if exit_report.status != 0:
            raise _refused(tail(err), FileTree(root).number(_SETTING))
        run_to_end([program, "--version"], _ENVIRONMENT, out, err, _LIMIT_S)
        return replace(perf, version=printable(tail(out).strip().replace(" version", "", 1)) or "perf")
    except UsageError as error:
        raise AbsentError(f"perf cannot be run: {str(error).rpartition(': ')[2]}") from error
    finally:
        for file in (out, err, data):
            file.unlink(missing_ok=True)


def _refused(text: str, paranoid: int | None) -> AbsentError:
    """Return the error that states why perf profiles nothing."""
    if paranoid is not None and paranoid > _OPEN:
        return AbsentError(
            f"perf is not allowed: kernel.perf_event_paranoid is {paranoid}",
            f"sysctl kernel.perf_event_paranoid={_OPEN}, or CAP_PERFMON",
        )
    lines = [line.strip() for line in text.splitlines()]
    message = next((line for line in lines if line and line.lower() != "error:"), "it printed no message")
    return AbsentError(f"perf failed: {printable(message)}", "run perf record true for details")


def profile_process(process: int, name: str, seconds: float, cpus: float, folder: Path) -> Profile:
    """Attach the profiler to a running process.

    Args:
        process: Its number; all its threads are profiled.
        name: Name of the process in the profile.
        seconds: Time for which it is profiled, in s.
        cpus: Number of CPUs that it uses.
        folder: Folder for temporary files.

    Returns:
        The profile; without samples, it states the reason.

    Raises:
        MeshmarkError: The temporary files cannot be written.
    """
    data, out, err = (folder / f"attached.{suffix}" for suffix in ("data", "out", "err"))
    try:
        perf = find_perf(folder)
        profile = Profile(configuration=name, tool=perf.version, frequency_hz=frequency_hz(seconds * cpus))
        words = perf.attach(profile.frequency_hz, data, process, seconds)
        if run_to_end(words, _ENVIRONMENT, out, err, seconds + _LIMIT_S).status != 0:
            raise _refused(tail(err), FileTree(Path("/")).number(_SETTING))
        return _reported(profile, perf, data, out, err)
    except AbsentError as error:
        return Profile(configuration=name, reason=str(error), enable=error.hint)


def profile_all(
    trials: Trials, every: Sequence[Configuration], folder: Path, perf: Perf | AbsentError, run: RunUnder
) -> list[Profile]:
    """Return the profile of each configuration that ran.

    An interrupt ends the profiling and is recorded in `trials.stopped`.

    Args:
        trials: The measurement, whose valid runs determine what is profiled.
        every: All configurations, including those that could not be built. Files are named by the position in it.
        folder: Folder of the measurement.
        perf: The profiler, or the reason why it cannot be used.
        run: Function that runs a configuration once under a command line.

    Raises:
        MeshmarkError: The journal cannot be read.
    """
    items = [item for item in every if trials.valid_runs(item.label)]
    if isinstance(perf, AbsentError):
        return [Profile(configuration=item.label, reason=str(perf), enable=perf.hint) for item in items]
    if trials.stopped == INTERRUPTED:
        return []
    journal = Journal(folder / JOURNAL)
    profile_by_label = {item.configuration: item for _, item in journal.entries(Profile.from_json, "a run")}
    profiles: list[Profile] = []
    spent_s = trials.spent_s
    profile_folder = folder / FOLDER
    profile_folder.mkdir(exist_ok=True)
    for item in items:
        if item.label in profile_by_label:
            profiles.append(profile_by_label[item.label])
            continue
        if spent_s + trials.usual_s(item.label) > trials.plan.budget_s:
            profiles.append(Profile(configuration=item.label, reason=BUDGET, enable="resume with a larger --budget"))
            continue
        try:
            profile, took_s = _profiled(trials, item, profile_folder / f"{every.index(item) + 1}.data", perf, run)
        except KeyboardInterrupt:
            trials.stopped = INTERRUPTED
            break
        spent_s += took_s
        journal.append(profile.to_json())
        profiles.append(profile)
    return profiles


def _profiled(
    trials: Trials, configuration: Configuration, to: Path, perf: Perf, run: RunUnder
) -> tuple[Profile, float]:
    """Profile one run and keep the profile. Return the profile and the time of the run, in s."""
    temporary = to.with_name(f".{to.name}")
    out, err = to.with_suffix(".out"), to.with_suffix(".err")
    cpu_s = RunMedians.from_runs(list(trials.valid_runs(configuration.label).values())).cpu_s / configuration.count(
        "copies"
    )
    profile = Profile(configuration=configuration.label, tool=perf.version, frequency_hz=frequency_hz(cpu_s))
    try:
        temporary.unlink(missing_ok=True)  # left by a run that was killed; perf would rename it
        attempt = run(configuration, perf.record(profile.frequency_hz, temporary))
        if attempt.reason:
            return replace(profile, reason=f"its run under perf failed: {attempt.reason}"), attempt.spent_s
        profile = _reported(profile, perf, temporary, out, err)
        if profile.reason:
            return profile, attempt.spent_s
        file_name = "" if _size(to.parent) > MAX_KEPT_BYTES else str(to)
        if file_name:
            _publish(temporary, to)
        return replace(profile, file=file_name), attempt.spent_s
    except (MeshmarkError, OSError) as error:  # the measurements count even without a profile
        return replace(profile, reason=f"cannot be created: {error}"), 0.0
    finally:
        for file in (temporary, out, err):
            file.unlink(missing_ok=True)


def _reported(profile: Profile, perf: Perf, data: Path, out: Path, err: Path) -> Profile:
    """Return a profile with what the profiler reports about its file, or with the reason why it reports nothing.

    Raises:
        MeshmarkError, OSError: The report cannot be written or read.
    """
    exit_report = run_to_end(perf.report(data), _ENVIRONMENT, out, err, _LIMIT_S)
    with out.open(encoding="utf-8", errors="replace") as text:
        report = read_report(text)
    if not report.samples:
        errors = tail(err)
        is_empty = exit_report.status == 0 or "no samples" in errors
        message = "it has no samples" if is_empty else printable(last_line(errors.splitlines()))
        return replace(profile, reason=f"perf report: {message}")
    profile = replace(profile, event=report.event, samples=report.samples, lost=report.lost)
    return replace(profile, functions=report.functions)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _publish(aside: Path, to: Path) -> None:
    """Give a profile its final name when it is on the disk."""
    handle = os.open(aside, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    aside.replace(to)
    sync_folder(to.parent)
