"""Starts, limits and ends child processes, with their own CPUs, scheduling class and resource limits.

A native program, `meshmark-start`, prepares the child between fork and exec. `preexec_fn` of `subprocess.Popen` is not
used, because it runs in a forked copy of this interpreter. If a thread of Arrow held a lock during the fork, the copy
would wait for it forever, and the parent, to which no time limit applies, would wait for the copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from meshmark.native import find_native, start_error

_TERM_S: Final = 2.0  # time for a process group to end after SIGTERM
_KILL_S: Final = 10.0  # time for the kernel to end it after SIGKILL


class PreparationError(OSError):
    """A child process could not be prepared, so its program was not executed. `step` names what failed."""

    def __init__(self, step: str, error: int) -> None:
        super().__init__(error, os.strerror(error))
        self.step = step


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Preparations of a child process before it executes its program.

    Attributes:
        at_parent_death: Signal that the child gets when the thread that started it ends. SIGKILL is for programs that
            need not clean up. SIGTERM is for launchers, which end their ranks on other hosts, and for recorders, which
            complete their file. None is for programs that must outlive this process.
        cpus: CPUs that the child may use; empty for the CPUs of this process.
        scheduler: Scheduling class and priority for `sched_setscheduler`; None to inherit both from this process.
        limits: Soft and hard value of each resource limit, by its constant in the module `resource`.
        group: File to which process IDs are written, such as `tasks` of resctrl; None to stay in the group of this
            process.
    """

    at_parent_death: signal.Signals | None = signal.SIGKILL
    cpus: Collection[int] = ()
    scheduler: tuple[int, int] | None = None
    limits: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    group: Path | None = None

    def steps(self) -> list[str]:
        """Return the arguments of `meshmark-start` for these preparations."""
        steps = [f"limit={number}:{_unsigned(soft)}:{_unsigned(hard)}" for number, (soft, hard) in self.limits.items()]
        if self.group is not None:  # before the process gets a scheduling class that may starve others
            steps.insert(0, f"join={self.group}")
        if self.cpus:
            steps.append("cpus=" + ",".join(map(str, sorted(self.cpus, reverse=True))))
        if self.scheduler is not None:
            steps.append("scheduler={}:{}".format(*self.scheduler))
        return steps


KILLED_WITH_PARENT = Preparation()
TERMINATED_WITH_PARENT = Preparation(at_parent_death=signal.SIGTERM)
OUTLIVES_PARENT = Preparation(at_parent_death=None)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended: its status, its elapsed time, and the CPU time of the program and its children, in s.

    `status` is negative after a signal, and None if the program exceeded its time limit and was ended.
    """

    status: int | None
    elapsed_s: float
    user_s: float = 0.0
    system_s: float = 0.0


def start(
    argv: Sequence[str | os.PathLike[str]],
    preparation: Preparation = KILLED_WITH_PARENT,
    *,
    pass_fds: Collection[int] = (),
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a program in a child process, and return as soon as the program runs.

    Args:
        argv: The program, which is looked up in PATH if it has no slash, and its arguments.
        preparation: Preparations of the child before it executes the program.
        pass_fds: File descriptors that the program inherits.
        options: Further arguments of `subprocess.Popen`, except `preexec_fn` and `executable`.

    Raises:
        PreparationError: A preparation failed.
        OSError: The program cannot be executed, or no process can be started.
        MeshmarkError: Meshmark's own program `meshmark-start` is missing, or was built for another processor.
    """
    starter = find_native("meshmark-start", "MESHMARK_START")
    report, report_end = os.pipe()
    with open(report, "rb") as reader:
        try:
            child = subprocess.Popen(
                [
                    str(starter),
                    str(report_end),
                    str(os.getpid()),
                    str(int(preparation.at_parent_death or 0)),
                    *preparation.steps(),
                    "--",
                    *argv,
                ],
                pass_fds=(report_end, *pass_fds),
                **options,
            )
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                raise start_error(starter, error) from error
            raise
        finally:
            os.close(report_end)
        try:
            failure = reader.read().split()  # ends when the program is executed, or the child has died
        except BaseException:  # an interrupt
            _discard(child)
            raise
    if failure:
        _discard(child)
        step, error_number = failure[0].decode(), int(failure[1])
        if step == "exec":
            raise OSError(error_number, os.strerror(error_number), os.fspath(argv[0]))
        raise PreparationError(step, error_number)
    return child


def run(
    argv: Sequence[str | os.PathLike[str]],
    preparation: Preparation = KILLED_WITH_PARENT,
    *,
    timeout_s: float | None = None,
    input: str | bytes | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program until it ends, and capture its standard output and error. The child is prepared as in `start`.

    Args:
        argv: The program and its arguments.
        preparation: Preparations of the child before it executes the program.
        timeout_s: Maximum time, in s; None for no limit.
        input: Standard input of the program; None for an empty one.
        options: Further arguments of `subprocess.Popen`.

    Raises:
        subprocess.TimeoutExpired: The program took longer than `timeout_s` and was killed.
        PreparationError, OSError, MeshmarkError: See `start`.
    """
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    options = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with start(argv, preparation, **options) as child:
        try:
            output, errors = child.communicate(input, timeout_s)
        except BaseException:
            child.kill()
            raise
    return subprocess.CompletedProcess(child.args, child.returncode, output, errors)


def run_text(argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program like `run`, and return its output as text, in which bytes that are not UTF-8 are replaced."""
    return run(argv, encoding="utf-8", errors="replace", **options)


def run_in_session(
    argv: Sequence[str | os.PathLike[str]],
    preparation: Preparation,
    out: IO[bytes],
    err: IO[bytes],
    limit_s: float,
    **options: Any,
) -> Exit:
    """Run a program in a new session, and end all its processes if it takes too long or this process is interrupted.

    Args:
        argv: The program and its arguments.
        preparation: Preparations of the child before it executes the program.
        out: File for its standard output.
        err: File for its standard error.
        limit_s: Maximum time, in s.
        options: Further arguments of `subprocess.Popen`.

    Raises:
        PreparationError, OSError, MeshmarkError: See `start`.
    """
    start_s = time.perf_counter()
    child = start(
        argv, preparation, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, **options
    )
    try:
        in_time = _ends_within(child, limit_s)
        elapsed_s = time.perf_counter() - start_s
    except BaseException:
        end([child])
        raise
    if not in_time:
        end([child])
        return Exit(None, elapsed_s)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return Exit(child.returncode, elapsed_s, usage.ru_utime, usage.ru_stime)


def _ends_within(child: subprocess.Popen[Any], limit_s: float) -> bool:
    """Return whether the child ends in time. A child that has ended is not reaped.

    `Popen.wait` with a timeout would only check every 50 ms whether the child has ended.
    """
    handle = os.pidfd_open(child.pid)
    try:
        return bool(select.select([handle], [], [], limit_s)[0])
    finally:
        os.close(handle)


def end(children: Sequence[subprocess.Popen[Any]]) -> None:
    """End children that lead process groups, and all processes of their groups, at the same time."""
    for number, grace_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
        for child in children:
            _signal_group(child, number)
        deadline = time.monotonic() + grace_s
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
    for child in children:
        _signal_group(child, signal.SIGKILL)  # orphans that survived the first signal


def _signal_group(leader: subprocess.Popen[Any], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, number)


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make this process the parent of processes that its descendants leave behind."""
    libc = ctypes.CDLL(None)
    previous = ctypes.c_int()
    libc.prctl(37, ctypes.byref(previous))  # PR_GET_CHILD_SUBREAPER
    libc.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    try:
        yield
    finally:
        libc.prctl(36, previous.value)


def children() -> list[int]:
    """Return the process IDs of the children of this process, including those that have ended but were not reaped."""
    pids: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            pids += map(int, (task / "children").read_text(encoding="ascii").split())
    return pids


def end_children(before: Collection[int]) -> int:
    """End the children that this process did not have before a program ran, and return how many were still running.

    Args:
        before: Process IDs of the earlier children.
    """
    pids: set[int] = set()
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline:
        new_children = [pid for pid in children() if pid not in before]
        if not new_children:
            break
        for pid in new_children:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    pids.add(pid)
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
    return len(pids)


def left_running(count: int) -> str:
    """Return why a run that left `count` processes failed; "" if it left none."""
    if not count:
        return ""
    return f"left {count} process{'' if count == 1 else 'es'} running, which {'was' if count == 1 else 'were'} killed"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL; `signal 77` if it has no name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def status_text(status: int) -> str:
    """Return how a program ended: `status 3`, or the name of the signal that ended it if the status is negative."""
    return signal_name(-status) if status < 0 else f"status {status}"


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent, which has the process ID `parent`, ends.

    A new interpreter calls this function first.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def up_to_hard_limit(limit: int, value: int) -> tuple[int, int]:
    """Return soft and hard value for `Preparation.limits`: `value`, but at most the hard limit of this process."""
    hard = resource.getrlimit(limit)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return allowed, allowed


def _discard(child: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    child.wait()


def _unsigned(value: int) -> int:
    return value % (1 << 64)  # RLIM_INFINITY is -1 in Python
