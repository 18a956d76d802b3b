"""Runs each configuration of an application once more under the system's sampling profiler, perf.

These runs follow the measured ones and give no samples of any metric. What they found is in `profiles.jsonl`, one line
per configuration, so that a resumed measurement repeats none; the profiles themselves are in the folder `profiles`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.machine.tree import Tree
from meshmark.place.app.attempt import UNDER_BYTES, Attempt
from meshmark.place.app.configuration import Configuration
from meshmark.place.app.profile import FIELDS, Profile, frequency_hz, read_report
from meshmark.place.app.reasons import Usual
from meshmark.place.app.trials import INTERRUPTED, Trials
from meshmark.place.journal import BUDGET, appending, runs_in
from meshmark.place.trial import last_line, printable, tail
from meshmark.place.turns import run_to_end
from meshmark.store.files import sync_folder

JOURNAL: Final = "profiles.jsonl"
FOLDER: Final = "profiles"
MAX_KEPT_BYTES: Final = 512 << 20  # of all profiles of a measurement; further ones are read and removed
_LIMIT_S: Final = 120.0  # of perf, apart from the run
_OPEN: Final = 2  # kernel.perf_event_paranoid up to which users may profile their own programs
_SETTING: Final = "proc/sys/kernel/perf_event_paranoid"
# Neither the settings of the user, nor servers of symbols, change what perf prints.
_ENVIRONMENT: Final = {"PERF_CONFIG": "/dev/null", "DEBUGINFOD_URLS": "", "LC_ALL": "C"}

# Runs a configuration under the words of a command line.
RunUnder = Callable[[Configuration, Sequence[str]], Attempt]


@dataclass(frozen=True, slots=True)
class Perf:
    """The profiler of this machine.

    Attributes:
        program: Its path.
        version: Such as `perf 6.1.187`.
    """

    program: str
    version: str

    def record(self, frequency: int, to: Path) -> list[str]:
        """The words that put a command under the profiler."""
        # Without an event, perf takes cycles, and the CPU clock where no counter is; the report says which.
        limits = ["-F", str(frequency), f"--max-size={(UNDER_BYTES >> 20) - 2}M"]
        return [self.program, "record", "-q", "-N", *limits, "-o", str(to), "--"]

    def report(self, of: Path) -> list[str]:
        """The command that prints what `read_report` reads."""
        columns = ["-n", "-t", "\t", "--sort", FIELDS]
        return [self.program, "report", "--stdio", "--no-children", *columns, "-i", str(of)]


def find_perf(folder: Path, root: Path = Path("/")) -> Perf:
    """The profiler, after a try of it.

    Args:
        folder: For the files of the try.
        root: `/`, or a recorded tree, for the settings of the kernel.

    Raises:
        AbsentError: It is not installed, or not allowed; the hint says what would enable it.
    """
    program = shutil.which("perf")
    if program is None:
        raise AbsentError("perf is not installed", "install the package linux-perf (Debian), or perf")
    out, err, data = (folder / f"perf.{end}" for end in ("out", "err", "data"))
    perf = Perf(program, "perf")
    try:
        tried = run_to_end([*perf.record(frequency_hz(1.0), data), "true"], _ENVIRONMENT, out, err, _LIMIT_S)
        if tried.status != 0:
            raise _refused(tail(err), Tree(root).number(_SETTING))
        run_to_end([program, "--version"], _ENVIRONMENT, out, err, _LIMIT_S)
        return replace(perf, version=printable(tail(out).strip().replace(" version", "", 1)) or "perf")
    except UsageError as why:
        raise AbsentError(f"perf cannot be run: {str(why).rpartition(': ')[2]}") from why
    finally:
        for file in (out, err, data):
            file.unlink(missing_ok=True)


def _refused(text: str, paranoid: int | None) -> AbsentError:
    """Why perf profiles nothing."""
    if paranoid is not None and paranoid > _OPEN:
        return AbsentError(
            f"perf is not allowed: kernel.perf_event_paranoid is {paranoid}",
            f"sysctl kernel.perf_event_paranoid={_OPEN}, or CAP_PERFMON",
        )
    lines = [line.strip() for line in text.splitlines()]
    said = next((line for line in lines if line and line.lower() != "error:"), "it says nothing")
    return AbsentError(f"perf failed: {printable(said)}", "run perf record true, which says more")


def profile_all(
    found: Trials, every: Sequence[Configuration], folder: Path, perf: Perf | AbsentError, run: RunUnder
) -> list[Profile]:
    """The profile of each configuration that ran.

    An interrupt ends it, and is noted in `found`.

    Args:
        every: All configurations, also those that could not be built; files are named by the position in it.
        folder: Of the measurement.
        perf: The profiler, or why there is none.

    Raises:
        MeshmarkError: The journal cannot be read.
    """
    ran = [one for one in every if found.of(one.label)]
    if isinstance(perf, AbsentError):
        return [Profile(configuration=one.label, reason=str(perf), enable=perf.hint) for one in ran]
    if found.stopped == INTERRUPTED:
        return []
    known = {one.configuration: one for one in runs_in(folder / JOURNAL, Profile.from_json)}
    made: list[Profile] = []
    spent_s = found.spent_s
    keep = folder / FOLDER
    keep.mkdir(exist_ok=True)
    with appending(folder / JOURNAL) as write:
        for one in ran:
            if one.label in known:
                made.append(known[one.label])
                continue
            if spent_s + found.usual_s(one.label) > found.plan.budget_s:
                made.append(Profile(configuration=one.label, reason=BUDGET, enable="resume with a larger --budget"))
                continue
            try:
                profile, took_s = _profiled(found, one, keep / f"{every.index(one) + 1}.data", perf, run)
            except KeyboardInterrupt:
                found.stopped = INTERRUPTED
                break
            spent_s += took_s
            write(profile.to_json())
            made.append(profile)
    return made


def _profiled(found: Trials, one: Configuration, to: Path, perf: Perf, run: RunUnder) -> tuple[Profile, float]:
    """Profile one run, and keep the profile; returns how long it took, in s."""
    aside = to.with_name(f".{to.name}")
    out, err = to.with_suffix(".out"), to.with_suffix(".err")
    cpu_s = Usual.of(list(found.of(one.label).values())).cpu_s / one.count("copies")
    profile = Profile(configuration=one.label, tool=perf.version, frequency_hz=frequency_hz(cpu_s))
    try:
        aside.unlink(missing_ok=True)  # of a run that was killed; perf would rename it
        attempt = run(one, perf.record(profile.frequency_hz, aside))
        if attempt.reason:
            return replace(profile, reason=f"its run under perf failed: {attempt.reason}"), attempt.spent_s
        ended = run_to_end(perf.report(aside), _ENVIRONMENT, out, err, _LIMIT_S)
        with out.open(encoding="utf-8", errors="replace") as text:
            read = read_report(text)
        if not read.samples:
            errors = tail(err)
            empty = ended.status == 0 or "no samples" in errors
            said = "it has no samples" if empty else printable(last_line(errors.splitlines()))
            return replace(profile, reason=f"perf report: {said}"), attempt.spent_s
        kept = "" if _size(to.parent) > MAX_KEPT_BYTES else str(to)
        if kept:
            _publish(aside, to)
        profile = replace(profile, event=read.event, samples=read.samples, lost=read.lost, file=kept)
        return replace(profile, functions=read.functions), attempt.spent_s
    except (MeshmarkError, OSError) as why:  # what was measured counts without a profile
        return replace(profile, reason=f"cannot be made: {why}"), 0.0
    finally:
        for file in (aside, out, err):
            file.unlink(missing_ok=True)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _publish(aside: Path, to: Path) -> None:
    """Give a profile its name when it is on the disk."""
    handle = os.open(aside, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    aside.replace(to)
    sync_folder(to.parent)
