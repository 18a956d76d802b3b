"""Runs a command while a recorder writes frames, and marks the start and the end of the command in the recording.

The command inherits the standard streams and stays in the process group of this process, so that Ctrl-C in a terminal
reaches it once, from the terminal. Signals that another process sends to this process are passed on. The recording ends
when the command has ended. The command outlives this process if this process is killed, and it also continues if the
recording fails, for example because the disk is full.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from meshmark import process
from meshmark.errors import MeshmarkError, quoted
from meshmark.values.secrets import mask_words
from meshmark.watch.live import LiveSampler
from meshmark.watch.marks import END, START, Mark

NOT_EXECUTABLE: Final = 126  # exit statuses as in env(1) and shells
NOT_FOUND: Final = 127
_PASSED_ON: Final = frozenset(
    (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
)
_FROM_KERNEL: Final = 0x80  # SI_KERNEL: a terminal sent the signal, to the command too
_LEAST_S: Final = 0.03  # time that a recording lasts at least: a frame of a few ticks of /proc/stat
_CHECK_S: Final = 5.0  # seconds between checks of the command, in case a signal was lost


class CommandError(MeshmarkError):
    """The command cannot be started. Exit status 126 or 127, as of env(1)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class FrameWriter(Protocol):
    """Writes frames and marks to a recording."""

    def add_line(self, line: str) -> None:
        """Add a frame as an unparsed line."""
        ...

    def add_mark(self, mark: Mark) -> None:
        """Write a mark to disk."""
        ...


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        status: Exit status; 128 + N after signal N.
        elapsed_s: Time from its start to its end.
        user_s, system_s: CPU time of the command, of its descendants that it waited for, and of orphans among its
            descendants that ended before it.
        peak_bytes: Largest resident memory of a process of the command; None if it is below `peak_below_bytes`. Linux
            counts the memory of this process before it executed the command, too.
        peak_below_bytes: Resident memory of this process when it started the command.
    """

    status: int
    elapsed_s: float
    user_s: float
    system_s: float
    peak_bytes: int | None
    peak_below_bytes: int

    def mark(self, at: float) -> Mark:
        """Return the mark for the end at wall-clock time `at`, in s since 1970."""
        peak = (
            {"peak_below_bytes": self.peak_below_bytes} if self.peak_bytes is None else {"peak_bytes": self.peak_bytes}
        )
        times = {key: round(getattr(self, key), 6) for key in ("elapsed_s", "user_s", "system_s")}
        return Mark(END, at, {"status": self.status, **times, **peak})


def check_command(words: Sequence[str]) -> None:
    """Raise CommandError if the command cannot be executed.

    Raises:
        CommandError: There is no such program (status 127), or it is not executable (status 126).
    """
    program = words[0]
    if shutil.which(program) is not None:
        return
    folders = [""] if "/" in program else os.environ.get("PATH", os.defpath).split(os.pathsep)
    is_path = "/" in program
    if any((Path(folder) / program).exists() for folder in folders):
        raise CommandError(f"COMMAND: {quoted(program)} is not executable", NOT_EXECUTABLE)
    raise CommandError(f"COMMAND: found no {quoted(program)}{'' if is_path else ' in PATH'}", NOT_FOUND)


@contextlib.contextmanager
def waiting_for_signals() -> Iterator[None]:
    """Block the signals for which `CommandRun` waits, before threads are started that would receive them."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        yield
    finally:
        while signal.sigtimedwait(_PASSED_ON, 0) is not None:
            pass  # they were for the command, which has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


@dataclass(slots=True)
class CommandRun:
    """A command that runs while frames are recorded. Use it within `waiting_for_signals`.

    Args:
        words: The command and its arguments.
        margin_s: Time for which the machine is recorded before and after the command.
        warn: Called with the reason if the recording ends before the command.
        streams: Streams of the command, as arguments of `subprocess.Popen`. It inherits the others from this process.
        hung_up: Called after the command has received SIGHUP, for example because the terminal was closed.
    """

    words: Sequence[str]
    margin_s: float
    warn: Callable[[str], None]
    streams: Mapping[str, Any] = field(default_factory=dict)
    hung_up: Callable[[], None] = lambda: None
    failure: MeshmarkError | None = None  # why the recording ended early
    _usage: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # user s, system s, peak bytes

    def record(self, live: LiveSampler, writer: FrameWriter) -> CommandEnd:
        """Run the command, and record frames and marks until it has ended.

        Raises:
            CommandError: The command cannot be started.
            KeyboardInterrupt: A signal arrived before the command was started.
        """
        begin_s, lock = time.monotonic(), threading.Lock()
        locked = _LockedWriter(writer, lock)
        reader = threading.Thread(target=self._write_frames, args=(live, locked), name="recorder")
        reader.start()
        try:
            with process.adopting_orphans():
                if self._pause(self.margin_s):
                    raise KeyboardInterrupt
                earlier_children = set(process.children())
                end, at = self._run(locked, earlier_children)
            self._mark(locked, end.mark(at))
            self._pause(max(self.margin_s, begin_s + _LEAST_S - time.monotonic()))
        finally:
            live.stop()
            reader.join()
        return end

    def _run(self, writer: FrameWriter, earlier_children: set[int]) -> tuple[CommandEnd, float]:
        """Run the command; return how it ended, and the wall-clock time of its end."""
        before_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        begin_s, at = time.monotonic(), time.time()
        try:
            child = process.start(self.words, process.OUTLIVES_PARENT, restore_signals=True, **self.streams)
        except process.PreparationError as error:
            raise MeshmarkError(f"COMMAND: cannot be started: {error.step}: {error.strerror}") from error
        except OSError as error:
            status = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
            raise CommandError(f"COMMAND: {quoted(self.words[0])}: {error.strerror}", status) from error
        self._mark(writer, Mark(START, at, {"command": mask_words(self.words), "pid": child.pid}))
        while not self._has_ended(child.pid):
            self._reap_orphans(child.pid, earlier_children)
            received = signal.sigtimedwait({*_PASSED_ON, signal.SIGCHLD}, _CHECK_S)
            if received is None or received.si_signo == signal.SIGCHLD:
                continue
            if not _has_reached_group(received):
                os.kill(child.pid, received.si_signo)  # the process exists until it is reaped below
            if received.si_signo == signal.SIGHUP:
                self.hung_up()
        end_s, end_at = time.monotonic(), time.time()
        self._reap_orphans(child.pid, earlier_children)
        status = self._reap(child.pid)
        child.returncode = os.waitstatus_to_exitcode(status)
        user_s, system_s, peak = self._usage
        end = CommandEnd(
            child.returncode if child.returncode >= 0 else 128 - child.returncode,
            end_s - begin_s,
            user_s,
            system_s,
            int(peak) if peak > before_bytes else None,
            before_bytes,
        )
        return end, end_at

    def _has_ended(self, pid: int) -> bool:
        """Return whether the command has ended, without reaping it."""
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _reap(self, pid: int, flags: int = 0) -> int:
        reaped, status, usage = os.wait4(pid, flags)
        if reaped:
            self._usage[0] += usage.ru_utime
            self._usage[1] += usage.ru_stime
            self._usage[2] = max(self._usage[2], float(usage.ru_maxrss << 10))
        return status

    def _reap_orphans(self, command: int, earlier_children: set[int]) -> None:
        for pid in process.children():
            if pid != command and pid not in earlier_children:
                with contextlib.suppress(ChildProcessError):
                    self._reap(pid, os.WNOHANG)

    def _pause(self, length_s: float) -> bool:
        """Wait; return whether a signal to end this process has arrived."""
        deadline_s = time.monotonic() + length_s
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            if signal.sigtimedwait(_PASSED_ON, left_s) is not None:
                return True
            if not left_s:
                return False

    def _write_frames(self, live: LiveSampler, writer: FrameWriter) -> None:
        try:
            for line in live.lines():
                writer.add_line(line)
        except MeshmarkError as error:
            self._fail(error)
            live.stop()

    def _mark(self, writer: FrameWriter, mark: Mark) -> None:
        if self.failure is None:
            try:
                writer.add_mark(mark)
            except MeshmarkError as error:
                self._fail(error)

    def _fail(self, error: MeshmarkError) -> None:
        if self.failure is None:
            self.failure = error
            self.warn(f"{error}; the command continues")


def _has_reached_group(received: signal.struct_siginfo) -> bool:
    """Return whether a signal went to the whole process group: from the terminal, or from the map (see `MeshApp`).

    A terminal that is closed signals only the leader of the session.
    """
    if received.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid():
        return False
    return received.si_code == _FROM_KERNEL or received.si_pid == os.getpid()


@dataclass(slots=True)
class _LockedWriter:
    """A writer that two threads use."""

    writer: FrameWriter
    lock: Any

    def add_line(self, line: str) -> None:
        with self.lock:
            self.writer.add_line(line)

    def add_mark(self, mark: Mark) -> None:
        with self.lock:
            self.writer.add_mark(mark)
