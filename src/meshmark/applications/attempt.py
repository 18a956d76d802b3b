"""Runs a configuration of an application once: all its copies, within limits, until their last process has ended."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import select
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark import process
from meshmark.applications.application import Application, absent, filled
from meshmark.applications.configuration import Configuration, Folders, argv, environment, placeholders
from meshmark.applications.resources.machine_limits import limited
from meshmark.applications.resources.neighbours import Neighbours, beside
from meshmark.applications.verification import verified
from meshmark.errors import MeshmarkError, UsageError
from meshmark.experiments.figure import FigureValue
from meshmark.experiments.setting import AS_IT_IS
from meshmark.experiments.trial import BUDGET, check_space, printable, tail
from meshmark.experiments.turns import cut_verdict, failure
from meshmark.machine.sources import from_sysfs
from meshmark.place.other_work import OtherWork, OtherWorkShares
from meshmark.store.files import make_folder, open_private, write_text
from meshmark.store.record import FLAGS, Better
from meshmark.values.secrets import mask_words

_TIMES: Final = ("user", "system", "waiting")
_LOOK_S: Final = 0.5  # time between checks of the size of the output
_TOKEN: Final = "MESHMARK_APPLICATION"  # variable in the environment of all processes of a run
_GRACE_S: Final = 10.0  # time for killed processes to end
UNDER_BYTES: Final = 64 << 20  # maximum size of a file that a command under which a copy runs may write
LOWEST: Final = 1e-150  # limits of a figure, within which ratios and squares stay finite
HIGHEST: Final = 1e150
_CLASSES: Final = {  # scheduling class and priority; `other` changes neither
    "batch": (os.SCHED_BATCH, 0),
    "idle": (os.SCHED_IDLE, 0),
    "fifo": (os.SCHED_FIFO, 1),
}


@dataclass(slots=True, kw_only=True)
class ConfigurationRun:
    """One run of a configuration.

    Attributes:
        round: Number of the round, from 1. A warm-up, which does not count, has a number below 1.
        value: Figure of merit in its unit; None if the run failed, as `reason` states.
        elapsed_s: Time from the start of the first copy to the end of the last.
        times: User, system and waiting time of all copies, in s.
        peak_bytes: Largest resident memory of a process.
        seen: Observations: `cpus`, and `node_bytes` by node.
        findings: Deviations of the placement from the requested one.
    """

    configuration: str
    round: int
    value: float | None = None
    reason: str = ""
    better: Better = "lower"
    elapsed_s: float = 0.0
    spent_s: float = 0.0
    times: dict[str, float] = field(default_factory=dict)
    peak_bytes: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def shares(self) -> OtherWorkShares | None:
        """Return the shares of the CPU time of this machine that other work took."""
        return OtherWorkShares.of_counts(self.counts, self.elapsed_s)

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> ConfigurationRun:
        """Return the attempt that a line of the journal describes.

        Raises:
            ValueError, TypeError: The line is not an attempt.
        """
        run = ConfigurationRun(**{k: v for k, v in line.items() if k != "type"})
        if not (run.value is None or run.value > 0) or run.elapsed_s < 0:
            raise ValueError(f"value {run.value!r}, elapsed_s {run.elapsed_s!r}")
        return run

    def to_json(self) -> dict[str, Any]:
        """Return the line of the journal, of type `attempt`; times are in s."""
        return {"type": "attempt", **asdict(self)}


@dataclass(slots=True)
class _CopyProcess:
    """A copy that has started, and the files that it writes."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    record: Path
    status: int | None = None


def attempt(
    app: Application,
    configuration: Configuration,
    folders: Folders,
    number: int,
    *,
    observed: bool = False,
    under: Sequence[str] = (),
    most_s: float = math.inf,
) -> ConfigurationRun:
    """Run a configuration once. Failures of its command are part of the result, not exceptions.

    Args:
        app: Application to run.
        configuration: Values of its dimensions; `copies` is the number of copies.
        folders: Folders of the measurement; `run` is emptied first.
        number: Number of the round.
        observed: Also observe where threads and pages are.
        under: Command line, for example of a profiler, that runs the first copy with its placement. It ends with the
            status of the copy, and writes at most `UNDER_BYTES` to a file.
        most_s: Rest of the budget in s; a run that takes longer is ended.

    Raises:
        UsageError: The command cannot be run.
        AbsentError: Its program is not installed.
        MeshmarkError: The disk of the folder is full.
    """
    result = ConfigurationRun(configuration=configuration.label, round=number)
    start_s = time.monotonic()
    emptied(folders.run)
    copies = configuration.count("copies")
    for index in range(copies):
        write_files(app, configuration, folders, index)
    results = [ResultsFile(app, configuration, folders, index) for index in range(copies)]
    other_work = OtherWork()
    reason, group = _run_copies(app, configuration, folders, copies, observed, under, most_s)
    result.elapsed_s, result.reason = group.elapsed_s, reason
    if not result.reason:
        for index, copy in enumerate(group.copies):
            results[index].add_to(copy.out)
            if observed:
                cut_verdict(copy.err)
        _read(result, app, group.copies)
    if not result.reason:
        cpu_s = result.times.get("user", 0.0) + result.times.get("system", 0.0) + group.beside.cpu_s
        shares = other_work.shares(cpu_s)
        result.counts |= group.beside.counts | shares.counts
        result.flags = sorted({*result.flags, *shares.flags})
    if all(configuration.values.get(name, default) == default for name, default in AS_IT_IS.items()):
        result.findings = []  # no placement was requested
    for index, copy in enumerate(group.copies):
        if result.reason:
            break
        values = placeholders(app, configuration, folders, index)
        _verify(result, app, copy, home(app, folders, index), values)
    if result.reason:
        result.value = None
        check_space(folders.run)
        _keep_failed(folders)
    result.spent_s = time.monotonic() - start_s
    return result


def home(app: Application, folders: Folders, copy: int) -> Path:
    """Return the folder in which a copy runs."""
    return folders.run / f"copy{copy}" if app.scratch else app.source


def write_files(app: Application, configuration: Configuration, folders: Folders, copy: int) -> None:
    """Write the files of a copy into its folder."""
    values = placeholders(app, configuration, folders, copy)
    copy_folder = home(app, folders, copy)
    if app.scratch:
        make_folder(copy_folder)
    for name, text in app.files.items():
        (copy_folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(copy_folder / name, filled(text, values))
    for name in app.links:
        (copy_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (copy_folder / name).symlink_to(folders.inputs / name)


@dataclass(frozen=True, slots=True)
class _CopyLimits:
    """Restrictions of a copy that apply before it starts: a group of resctrl, and the CPUs that neighbours leave."""

    tasks: Path | None
    cpus: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _StartedCopies:
    copies: Sequence[_CopyProcess]
    elapsed_s: float
    beside: Neighbours


def _run_copies(
    app: Application,
    configuration: Configuration,
    folders: Folders,
    copies: int,
    observed: bool,
    under: Sequence[str],
    most_s: float,
) -> tuple[str, _StartedCopies]:
    """Start all copies and wait for their end. Return why they failed, "" if all succeeded, and the copies."""
    running: list[_CopyProcess] = []
    token = str(folders.root.absolute())
    with (
        limited(configuration.values, from_sysfs) as tasks,
        beside(configuration.values, from_sysfs) as neighbours,
        process.adopting_orphans(),
    ):
        earlier_children = set(process.children())
        join = _CopyLimits(tasks, neighbours.cpus)
        neighbours.begin()
        start_s = time.perf_counter()
        try:
            running.extend(
                _start(app, configuration, folders, index, observed, token, () if index else under, join)
                for index in range(copies)
            )
            reason = _wait(running, app, folders, start_s, most_s)
            elapsed_s = time.perf_counter() - start_s
            for copy in running:
                reason = reason or _failed(copy, app, elapsed_s)
            reason = reason or neighbours.end()
        finally:
            process.end([copy.process for copy in running if copy.process.returncode is None])
            survivors = process.end_children(earlier_children)
        reason = reason or process.left_running(survivors)
    return reason, _StartedCopies(running, elapsed_s, neighbours)


def _start(
    app: Application,
    configuration: Configuration,
    folders: Folders,
    copy: int,
    observed: bool,
    token: str,
    under: Sequence[str],
    join: _CopyLimits,
) -> _CopyProcess:
    values = placeholders(app, configuration, folders, copy)
    record, out, err = (folders.run / f"{copy}.{kind}" for kind in ("jsonl", "out", "err"))
    words = [*under, *argv(app, configuration, values, record, observed=observed)]
    copy_folder = home(app, folders, copy)
    if missing := absent(app, filled(app.command[0], values), copy_folder):
        raise missing
    scheduler = configuration.values.get("scheduler", "other")
    preparation = process.Preparation(
        at_parent_death=signal.SIGTERM,
        cpus=join.cpus or (),
        scheduler=_CLASSES.get(scheduler),
        limits=_limits(app, under),
        group=join.tasks,
    )
    with open_private(out, "wb") as output, open_private(err, "wb") as errors:
        try:
            child = process.start(
                words,
                preparation,
                cwd=copy_folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={
                    **os.environ,
                    **environment(app, configuration, values),
                    _TOKEN: token,
                    "MESHMARK_RECORDED_COMMAND": json.dumps(
                        mask_words(filled(word, {**values, **configuration.values}) for word in app.command)
                    ),
                },
                start_new_session=True,
            )
        except process.PreparationError as error:
            if error.step == "scheduler":
                raise UsageError(f"dimensions.scheduler: found {scheduler}, which this user may not set") from error
            if error.step == "join":
                raise MeshmarkError(f"dimensions.cache: no process can join {join.tasks}") from error
            raise MeshmarkError(f"a copy cannot be started: {error.step}: {error.strerror}") from error
    return _CopyProcess(child, out, err, record)


def _limits(app: Application, under: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Return the resource limits of a copy, which may run under another command such as a profiler."""
    output_bytes = max(int(app.limits.output_mib * (1 << 20)), UNDER_BYTES if under else 0)
    limits = {
        resource.RLIMIT_FSIZE: process.up_to_hard_limit(resource.RLIMIT_FSIZE, output_bytes),
        resource.RLIMIT_CORE: (0, 0),
    }
    if app.limits.memory_mib is not None:
        memory_bytes = int(app.limits.memory_mib * (1 << 20))
        limits[resource.RLIMIT_DATA] = process.up_to_hard_limit(resource.RLIMIT_DATA, memory_bytes)
    return limits


def _wait(running: Sequence[_CopyProcess], app: Application, folders: Folders, began: float, most_s: float) -> str:
    """Wait for all copies. Return why they were stopped, "" if they ended by themselves."""
    deadline = began + min(app.limits.timeout_s, most_s)
    max_bytes = app.limits.output_mib * (1 << 20)
    handles: dict[int, _CopyProcess] = {}
    poll = select.poll()  # select cannot handle descriptors above 1023
    try:
        for copy in running:
            handle = os.pidfd_open(copy.process.pid)
            handles[handle] = copy
            poll.register(handle, select.POLLIN)
        running_count = len(running)
        while running_count:
            time_s = time.perf_counter()
            if time_s >= deadline:
                return BUDGET if most_s < app.limits.timeout_s else f"took longer than {app.limits.timeout_s:.3g} s"
            for handle, _ in poll.poll(1000 * min(_LOOK_S, deadline - time_s)):
                poll.unregister(handle)
                running_count -= 1
                handles[handle].status = handles[handle].process.wait()
            if written_bytes(folders.run) > max_bytes:
                return wrote_too_much(app)
    finally:
        for handle in handles:
            os.close(handle)
    return ""


def written_bytes(folder: Path) -> int:
    """Return the size of all files below a folder, in B."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512  # noqa: PTH118 (many files)
    return total


def wrote_too_much(app: Application) -> str:
    """Return why a run that wrote too much into its folder failed."""
    return f"wrote more than {app.limits.output_mib:g} MiB"


def file_too_large(app: Application, status: int | None) -> str:
    """Return why a run that wrote too large a file failed; "" if its status has another reason."""
    return f"{wrote_too_much(app)} to a file" if status in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ) else ""


def _failed(each: _CopyProcess, app: Application, elapsed_s: float) -> str:
    if reason := file_too_large(app, each.status):
        return reason
    return failure(process.Exit(each.status, elapsed_s), each.out, each.err, app.limits.timeout_s)


class ResultsFile:
    """The file of results of a copy that is about to run. A file that an earlier run wrote does not count."""

    def __init__(self, app: Application, configuration: Configuration, folders: Folders, copy: int) -> None:
        self._path = home(app, folders, copy) / filled(app.output, placeholders(app, configuration, folders, copy))
        self._before = self._written()

    def text(self) -> str:
        """Return the end of the file, on separate lines; "" if the run did not write the file."""
        state = self._written()
        return "\n" + tail(self._path) if state and state != self._before else ""

    def add_to(self, out: Path) -> None:
        """Append the text of the file to the output of the run."""
        if text := self.text():
            with out.open("ab") as file:
                file.write(text.encode())

    def _written(self) -> tuple[int, ...] | None:
        """Return inode, size and time of change; None if the file does not exist or the application names no file."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return (status.st_ino, status.st_size, status.st_ctime_ns) if stat.S_ISREG(status.st_mode) else None


def _read(run: ConfigurationRun, app: Application, copies: Sequence[_CopyProcess]) -> None:
    """Read the times and the figures of merit of the copies."""
    values: list[FigureValue] = []
    elapsed_times: list[float] = []
    for copy in copies:
        try:
            lines = [json.loads(x) for x in copy.record.read_text(encoding="utf-8", errors="replace").splitlines()]
        except (OSError, ValueError) as error:
            run.reason = f"the record cannot be read: {error}"
            return
        read_record(run, lines, elapsed_times)
        value = app.judged_by.read(elapsed_times[-1] if elapsed_times else 0.0, copy.out, copy.err)
        if isinstance(value, str):
            run.reason = no_figure(value)
            return
        values.append(value)
    take_figure(run, app, values, elapsed_times)


def no_figure(reason: str) -> str:
    """Return a reason of `FigureOfMerit.matched` with the name of the key of the application file."""
    return reason.replace("--pattern", "figure.pattern")


def take_figure(
    run: ConfigurationRun, app: Application, values: Sequence[FigureValue], own_values: Sequence[float]
) -> None:
    """Set the value of a run from the values of its copies.

    Args:
        run: The run, which is changed.
        app: Application, with the scale of its figure of merit.
        values: Figures of merit of the copies, at least one.
        own_values: Elapsed times of the copies, in s.
    """
    run.better = values[0].better
    values_of_copies = [v.value for v in values]
    # The rates of copies that run at the same time add up; the time of a run is the time of its last copy.
    total = math.fsum(values_of_copies) if run.better == "higher" else max(values_of_copies)
    run.value = total * app.figure.scale if app.figure.pattern else run.elapsed_s
    if len(values) == 1 and own_values:
        run.elapsed_s = own_values[0]
        run.value = run.value if app.figure.pattern else own_values[0]
    if not LOWEST <= run.value <= HIGHEST:
        run.reason = f"figure.scale: found a figure of {run.value:g}; allowed: {LOWEST:g} to {HIGHEST:g}"


def read_record(run: ConfigurationRun, lines: Sequence[Any], own: list[float]) -> None:
    """Add the times of a copy to the times of the run, and append its elapsed time to `own`."""
    for line in lines:
        if line.get("type") == "result":
            metric, value = str(line["metric"]), float(line["value"])
            if metric == "elapsed":
                own.append(value)
                conditions = line["conditions"]
                run.peak_bytes = max(run.peak_bytes, float(conditions.get("largest_bytes", 0)))
                for key in ("minor_faults", "major_faults", "switches_involuntary"):
                    run.counts[key] = run.counts.get(key, 0.0) + float(conditions.get(key, 0))
            elif metric in _TIMES:
                run.times[metric] = run.times.get(metric, 0.0) + value
            run.flags = sorted({*run.flags, *line["flags"]} & FLAGS)
        elif line.get("type") == "note" and line.get("kind") == "placement" and "report" in line:
            _see(run, line["report"])


def _see(run: ConfigurationRun, report: Mapping[str, Any]) -> None:
    """Record where the threads and pages of a copy were."""
    cpus = {str(t.get("ran_on", "")) for t in report.get("threads", ()) if t.get("ran_on") not in (None, "", "none")}
    known_cpus = set(filter(None, str(run.seen.get("cpus", "")).split(" ")))
    run.seen["cpus"] = " ".join(sorted(known_cpus | cpus))
    pages: dict[str, float] = run.seen.setdefault("node_bytes", {})
    for node, size in (report.get("pages") or {}).items():
        pages[str(node)] = pages.get(str(node), 0.0) + float(size)
    run.findings += [printable(str(f)) for f in report.get("findings", ())]


def _verify(run: ConfigurationRun, app: Application, each: _CopyProcess, here: Path, values: Mapping[str, str]) -> None:
    text = tail(each.out) + "\n" + tail(each.err)
    run.reason = verified(app.verify, text, here, values)
    if run.reason:
        run.flags = sorted({*run.flags, "unverified"})


# ------------------------------------------------------------------ processes and files


def end_earlier(folder: Path) -> int:
    """End all remaining processes of a measurement that was killed, and return their number.

    Args:
        folder: Folder of the measurement, which this process has locked.
    """
    pids: set[int] = set()
    deadline = time.monotonic() + _GRACE_S
    while alive := [pid for pid in _processes() if _belongs(pid, str(folder.absolute()))]:
        if time.monotonic() >= deadline:
            raise MeshmarkError(f"{folder}: process {alive[0]} of its last run does not end", f"kill -KILL {alive[0]}")
        pids.update(alive)
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return len(pids)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _belongs(pid: int, token: str) -> bool:
    try:
        return os.fsencode(f"{_TOKEN}={token}") in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def emptied(folder: Path) -> None:
    """Make a folder empty.

    Raises:
        MeshmarkError: The folder cannot be emptied.
    """
    try:
        if folder.exists():
            try:
                shutil.rmtree(folder)
            except PermissionError:  # the program made a folder that cannot be emptied
                _open_up(folder)
                shutil.rmtree(folder)  # may raise, since files of an earlier run could be taken for results
        make_folder(folder)
    except OSError as error:
        raise MeshmarkError(f"cannot empty {folder}: {error.strerror or error}") from error


def _open_up(folder: Path) -> None:
    for root, names, _ in os.walk(folder):
        for path in (Path(root, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o700)


def _keep_failed(folders: Folders) -> None:
    """Keep the output of all copies of the last run that failed."""
    failed_folder = folders.root / "failed"
    emptied(failed_folder)
    for path in folders.run.glob("*.*"):
        if not path.is_dir():
            path.replace(failed_folder / f"copy{path.name}")
