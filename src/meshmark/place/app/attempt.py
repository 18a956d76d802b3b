"""Runs a configuration of an application once: all its copies, within limits, to their last process."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import resource
import select
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark import process
from meshmark.errors import MeshmarkError, UsageError
from meshmark.machine.sources import from_sysfs
from meshmark.place.app.application import Application, absent, filled
from meshmark.place.app.configuration import Configuration, Folders, argv, environment, placeholders
from meshmark.place.app.machine_limits import limited
from meshmark.place.app.neighbours import Beside, beside
from meshmark.place.app.verification import verified
from meshmark.place.figure import Value
from meshmark.place.journal import BUDGET
from meshmark.place.other_work import OtherWork, Shares
from meshmark.place.setting import AS_IT_IS
from meshmark.place.trial import check_space, printable, tail
from meshmark.place.turns import Ended, failure
from meshmark.store.files import make_folder, open_private, write_text
from meshmark.store.record import FLAGS, Better
from meshmark.values.secrets import mask_words
from meshmark.values.units import counted

_TIMES: Final = ("user", "system", "waiting")
_LOOK_S: Final = 0.5  # between looks at the size of what a run writes
_TOKEN: Final = "MESHMARK_APPLICATION"  # in the environment of all processes of a run
_TERM_S: Final = 2.0  # for programs to end by themselves
_GRACE_S: Final = 10.0  # for processes that were killed to end
_VERDICT_BYTES: Final = 1 << 16
UNDER_BYTES: Final = 64 << 20  # that a command under which a copy runs may write to a file
LOWEST: Final = 1e-150  # of a figure: ratios and squares stay finite
HIGHEST: Final = 1e150
_CLASSES: Final = {  # class and priority; those of `other` stay as they are
    "batch": (os.SCHED_BATCH, 0),
    "idle": (os.SCHED_IDLE, 0),
    "fifo": (os.SCHED_FIFO, 1),
}


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One run of a configuration.

    Attributes:
        round: From 1; a warm-up, which does not count, has a number below.
        value: Of the figure of merit, in its unit; None if the run failed, for `reason`.
        elapsed_s: From the start of the first copy to the end of the last.
        times: User, system and waiting time of all copies, in s.
        peak_bytes: Largest resident memory of a process.
        seen: What was observed: `cpus`, and `node_bytes` by node.
        findings: What of the placement was not as asked for.
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
    def shares(self) -> Shares | None:
        """Shares of the CPU time of this machine that other work took."""
        return Shares.of_counts(self.counts, self.elapsed_s)

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> Attempt:
        """An attempt of a line of the journal.

        Raises:
            ValueError, TypeError: The line is none.
        """
        found = Attempt(**{k: v for k, v in line.items() if k != "type"})
        if not (found.value is None or found.value > 0) or found.elapsed_s < 0:
            raise ValueError(f"value {found.value!r}, elapsed_s {found.elapsed_s!r}")
        return found

    def to_json(self) -> dict[str, Any]:
        return {"type": "attempt", **asdict(self)}


@dataclass(slots=True)
class _Copy:
    """A copy that was started, and the files that it writes."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    record: Path
    status: int | None = None


def attempt(
    app: Application,
    one: Configuration,
    folders: Folders,
    number: int,
    *,
    observed: bool = False,
    under: Sequence[str] = (),
    most_s: float = math.inf,
) -> Attempt:
    """Run a configuration once. Failures of its command are part of the result, not exceptions.

    Args:
        number: Of the round.
        observed: Also observe where threads and pages are.
        most_s: What is left of the budget; a run that takes longer is ended.
        under: Command line, such as that of a profiler, that runs the first copy with its placement; it ends with the
            status of what it runs, and writes at most `UNDER_BYTES` to a file.

    Raises:
        UsageError: The command cannot be run.
        AbsentError: Its program is not installed.
        MeshmarkError: The disk of the folder is full.
    """
    found = Attempt(configuration=one.label, round=number)
    began = time.monotonic()
    emptied(folders.run)
    copies = one.count("copies")
    for copy in range(copies):
        write_files(app, one, folders, copy)
    results = [Results(app, one, folders, copy) for copy in range(copies)]
    other_work = OtherWork()
    reason, started = _run_copies(app, one, folders, copies, observed, under, most_s)
    found.elapsed_s, found.reason = started.elapsed_s, reason
    if not found.reason:
        for copy, each in enumerate(started.copies):
            results[copy].add_to(each.out)
            if observed:
                _cut_verdict(each.err)
        _read(found, app, started.copies)
    if not found.reason:
        own_s = found.times.get("user", 0.0) + found.times.get("system", 0.0) + started.beside.cpu_s
        shares = other_work.shares(own_s)
        found.counts |= started.beside.counts | shares.counts
        found.flags = sorted({*found.flags, *shares.flags})
    if all(one.values.get(name, usual) == usual for name, usual in AS_IT_IS.items()):
        found.findings = []  # nothing was asked for
    for copy, each in enumerate(started.copies):
        if found.reason:
            break
        values = placeholders(app, one, folders, copy)
        _verify(found, app, each, home(app, folders, copy), values)
    if found.reason:
        found.value = None
        check_space(folders.run)
        _keep_failed(folders)
    found.spent_s = time.monotonic() - began
    return found


def home(app: Application, folders: Folders, copy: int) -> Path:
    """The folder in which a copy runs."""
    return folders.run / f"copy{copy}" if app.scratch else app.source


def write_files(app: Application, one: Configuration, folders: Folders, copy: int) -> None:
    """Write the files of a copy into its folder."""
    values = placeholders(app, one, folders, copy)
    here = home(app, folders, copy)
    if app.scratch:
        make_folder(here)
    for name, text in app.files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(here / name, filled(text, values))
    for name in app.links:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).symlink_to(folders.inputs / name)


@dataclass(frozen=True, slots=True)
class _Join:
    """What a copy joins before it starts: a group of resctrl, and the CPUs that neighbours leave."""

    tasks: Path | None
    cpus: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _Started:
    copies: Sequence[_Copy]
    elapsed_s: float
    beside: Beside


def _run_copies(
    app: Application,
    one: Configuration,
    folders: Folders,
    copies: int,
    observed: bool,
    under: Sequence[str],
    most_s: float,
) -> tuple[str, _Started]:
    """Start all copies, and wait for their end; returns why they failed, "" if none did."""
    running: list[_Copy] = []
    token = str(folders.root.absolute())
    with limited(one.values, from_sysfs) as tasks, beside(one.values, from_sysfs) as neighbours, _adopting():
        before = set(_children())
        join = _Join(tasks, neighbours.cpus)
        neighbours.begin()
        began = time.perf_counter()
        try:
            running.extend(
                _start(app, one, folders, copy, observed, token, () if copy else under, join) for copy in range(copies)
            )
            reason = _wait(running, app, folders, began, most_s)
            elapsed_s = time.perf_counter() - began
            for each in running:
                reason = reason or _failed(each, app, elapsed_s)
            reason = reason or neighbours.end()
        finally:
            _end_all([each.process for each in running if each.process.returncode is None])
            left = _end_rest(before)
        reason = reason or left_running(left)
    return reason, _Started(running, elapsed_s, neighbours)


def left_running(count: int) -> str:
    """Why a run failed that left so many processes; "" for none."""
    if not count:
        return ""
    return f"left {counted(count, 'process', 'processes')} running, which {'was' if count == 1 else 'were'} killed"


def _start(
    app: Application,
    one: Configuration,
    folders: Folders,
    copy: int,
    observed: bool,
    token: str,
    under: Sequence[str],
    join: _Join,
) -> _Copy:
    values = placeholders(app, one, folders, copy)
    record, out, err = (folders.run / f"{copy}.{kind}" for kind in ("jsonl", "out", "err"))
    words = [*under, *argv(app, one, values, record, observed=observed)]
    here = home(app, folders, copy)
    if missing := absent(app, filled(app.command[0], values), here):
        raise missing
    scheduler = one.values.get("scheduler", "other")
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
                cwd=here,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={
                    **os.environ,
                    **environment(app, one, values),
                    _TOKEN: token,
                    "MESHMARK_RECORDED_COMMAND": json.dumps(
                        mask_words(filled(word, {**values, **one.values}) for word in app.command)
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
    return _Copy(child, out, err, record)


def _limits(app: Application, under: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Resource limits of a copy, which may run under another command such as a profiler."""
    output_bytes = max(int(app.limits.output_mib * (1 << 20)), UNDER_BYTES if under else 0)
    limits = {
        resource.RLIMIT_FSIZE: process.up_to_hard_limit(resource.RLIMIT_FSIZE, output_bytes),
        resource.RLIMIT_CORE: (0, 0),
    }
    if app.limits.memory_mib is not None:
        memory_bytes = int(app.limits.memory_mib * (1 << 20))
        limits[resource.RLIMIT_DATA] = process.up_to_hard_limit(resource.RLIMIT_DATA, memory_bytes)
    return limits


def _wait(running: Sequence[_Copy], app: Application, folders: Folders, began: float, most_s: float) -> str:
    """Wait for all copies; returns why they were stopped, "" if they ended by themselves."""
    until = began + min(app.limits.timeout_s, most_s)
    most = app.limits.output_mib * (1 << 20)
    handles: dict[int, _Copy] = {}
    poll = select.poll()  # select knows no descriptors above 1023
    try:
        for each in running:
            handle = os.pidfd_open(each.process.pid)
            handles[handle] = each
            poll.register(handle, select.POLLIN)
        left = len(running)
        while left:
            now = time.perf_counter()
            if now >= until:
                return BUDGET if most_s < app.limits.timeout_s else f"took longer than {app.limits.timeout_s:.3g} s"
            for handle, _ in poll.poll(1000 * min(_LOOK_S, until - now)):
                poll.unregister(handle)
                left -= 1
                handles[handle].status = handles[handle].process.wait()
            if written_bytes(folders.run) > most:
                return wrote_too_much(app)
    finally:
        for handle in handles:
            os.close(handle)
    return ""


def written_bytes(folder: Path) -> int:
    """Size of all files below a folder."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512  # noqa: PTH118 (many files)
    return total


def wrote_too_much(app: Application) -> str:
    """Why a run failed that wrote too much into its folder."""
    return f"wrote more than {app.limits.output_mib:g} MiB"


def file_too_large(app: Application, status: int | None) -> str:
    """Why a run failed that was ended for the size of a file; "" if its status says something else."""
    return f"{wrote_too_much(app)} to a file" if status in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ) else ""


def _failed(each: _Copy, app: Application, elapsed_s: float) -> str:
    if why := file_too_large(app, each.status):
        return why
    return failure(Ended(each.status, elapsed_s, 0.0, 0.0), each.out, each.err, app.limits.timeout_s)


class Results:
    """The file of results of a copy that is about to run, of which one of an earlier run does not count."""

    def __init__(self, app: Application, one: Configuration, folders: Folders, copy: int) -> None:
        self._path = home(app, folders, copy) / filled(app.output, placeholders(app, one, folders, copy))
        self._before = self._written()

    def text(self) -> str:
        """The end of what the run wrote there, on lines of its own; "" if it wrote nothing."""
        now = self._written()
        return "\n" + tail(self._path) if now and now != self._before else ""

    def add_to(self, out: Path) -> None:
        """Add it to what the run printed."""
        if text := self.text():
            with out.open("ab") as file:
                file.write(text.encode())

    def _written(self) -> tuple[int, ...] | None:
        """When the file was written; None if there is none, or the application names none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return (found.st_ino, found.st_size, found.st_ctime_ns) if stat.S_ISREG(found.st_mode) else None


def _cut_verdict(err: Path) -> None:
    """Remove the last lines of an observed run, in which `meshmark run` says whether the placement held."""
    with err.open("r+b") as file:
        start = max(0, file.seek(0, 2) - _VERDICT_BYTES)
        file.seek(start)
        if found := re.search(rb"^placement (?:held|did not hold): ", file.read(), re.M):
            file.truncate(start + found.start())


def _read(found: Attempt, app: Application, copies: Sequence[_Copy]) -> None:
    """Read the times of the copies, and their figure of merit."""
    values: list[Value] = []
    own: list[float] = []
    for each in copies:
        try:
            lines = [json.loads(x) for x in each.record.read_text(encoding="utf-8", errors="replace").splitlines()]
        except (OSError, ValueError) as why:
            found.reason = f"the record cannot be read: {why}"
            return
        read_record(found, lines, own)
        read = app.judged_by.read(own[-1] if own else 0.0, each.out, each.err)
        if isinstance(read, str):
            found.reason = no_figure(read)
            return
        values.append(read)
    take_figure(found, app, values, own)


def no_figure(why: str) -> str:
    """A reason of `Figure.matched`, for an application."""
    return why.replace("--pattern", "figure.pattern")


def take_figure(found: Attempt, app: Application, values: Sequence[Value], own: Sequence[float]) -> None:
    """Make the value of a run from those of its copies.

    Args:
        own: Elapsed times of the copies, in s.
    """
    found.better = values[0].better
    each_value = [v.value for v in values]
    # Rates of copies that run at the same time add up; of times, the last copy decides.
    total = math.fsum(each_value) if found.better == "higher" else max(each_value)
    found.value = total * app.figure.scale if app.figure.pattern else found.elapsed_s
    if len(values) == 1 and own:
        found.elapsed_s = own[0]
        found.value = found.value if app.figure.pattern else own[0]
    if not LOWEST <= found.value <= HIGHEST:
        found.reason = f"figure.scale: found a figure of {found.value:g}; allowed: {LOWEST:g} to {HIGHEST:g}"


def read_record(found: Attempt, lines: Sequence[Any], own: list[float]) -> None:
    """Add the times of a copy to those of the others, and append its elapsed time."""
    for line in lines:
        if line.get("type") == "result":
            metric, value = str(line["metric"]), float(line["value"])
            if metric == "elapsed":
                own.append(value)
                conditions = line["conditions"]
                found.peak_bytes = max(found.peak_bytes, float(conditions.get("largest_bytes", 0)))
                for key in ("minor_faults", "major_faults", "switches_involuntary"):
                    found.counts[key] = found.counts.get(key, 0.0) + float(conditions.get(key, 0))
            elif metric in _TIMES:
                found.times[metric] = found.times.get(metric, 0.0) + value
            found.flags = sorted({*found.flags, *line["flags"]} & FLAGS)
        elif line.get("type") == "note" and line.get("kind") == "placement" and "report" in line:
            _see(found, line["report"])


def _see(found: Attempt, report: Mapping[str, Any]) -> None:
    """Note where the threads and pages of a copy were."""
    cpus = {str(t.get("ran_on", "")) for t in report.get("threads", ()) if t.get("ran_on") not in (None, "", "none")}
    before = set(filter(None, str(found.seen.get("cpus", "")).split(" ")))
    found.seen["cpus"] = " ".join(sorted(before | cpus))
    pages: dict[str, float] = found.seen.setdefault("node_bytes", {})
    for node, size in (report.get("pages") or {}).items():
        pages[str(node)] = pages.get(str(node), 0.0) + float(size)
    found.findings += [printable(str(f)) for f in report.get("findings", ())]


def _verify(found: Attempt, app: Application, each: _Copy, here: Path, values: Mapping[str, str]) -> None:
    text = tail(each.out) + "\n" + tail(each.err)
    found.reason = verified(app.verify, text, here, values)
    if found.reason:
        found.flags = sorted({*found.flags, "unverified"})


# ------------------------------------------------------------------ processes and files


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Makes this process the parent of processes that its descendants leave behind."""
    libc = ctypes.CDLL(None)
    before = ctypes.c_int()
    libc.prctl(37, ctypes.byref(before))  # PR_GET_CHILD_SUBREAPER
    libc.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    try:
        yield
    finally:
        libc.prctl(36, before.value)


def _end_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End copies and all processes that they started; all at once, since each may take its time."""
    for number, grace_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _GRACE_S)):
        for child in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
        until = time.monotonic() + grace_s
        for child in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, until - time.monotonic()))


def _end_rest(before: set[int]) -> int:
    """End the children that this process did not have before a run, and return how many of them still ran."""
    met: set[int] = set()
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until:
        left = [pid for pid in _children() if pid not in before]
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    met.add(pid)
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
    return len(met)


def end_earlier(folder: Path) -> int:
    """End what still runs of a measurement that was killed, and return the number of processes.

    Args:
        folder: Of the measurement, which this process has locked.
    """
    met: set[int] = set()
    until = time.monotonic() + _GRACE_S
    while left := [pid for pid in _processes() if _belongs(pid, str(folder.absolute()))]:
        if time.monotonic() >= until:
            raise MeshmarkError(f"{folder}: process {left[0]} of its last run does not end", f"kill -KILL {left[0]}")
        met.update(left)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return len(met)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def _belongs(pid: int, token: str) -> bool:
    try:
        return os.fsencode(f"{_TOKEN}={token}") in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def emptied(folder: Path) -> None:
    """Make a folder empty.

    Raises:
        MeshmarkError: It cannot be emptied.
    """
    try:
        if folder.exists():
            try:
                shutil.rmtree(folder)
            except PermissionError:  # the program made a folder that cannot be emptied
                _open_up(folder)
                shutil.rmtree(folder)  # or fail: files of an earlier run could be taken for results
        make_folder(folder)
    except OSError as why:
        raise MeshmarkError(f"cannot empty {folder}: {why.strerror or why}") from why


def _open_up(folder: Path) -> None:
    for root, names, _ in os.walk(folder):
        for path in (Path(root, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o700)


def _keep_failed(folders: Folders) -> None:
    """Keep the output of the last run that failed, of all its copies."""
    failed = folders.root / "failed"
    emptied(failed)
    for path in folders.run.glob("*.*"):
        if not path.is_dir():
            path.replace(failed / f"copy{path.name}")
