"""Prepares standard streams, handles signals and checks limits of this process.

This module does not import any other module of Meshmark.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NoReturn

# Replacements on terminals that use ISO-8859-1 or ASCII; other characters become question marks.
_INSTEAD: Final = {
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "×": "x",
    "·": "*",
    "µ": "u",
    "μ": "u",
    "≥": ">=",
    "≤": "<=",
    "±": "+-",
    "→": "->",
    "←": "<-",
    "°": " deg",
    "²": "^2",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "\u00a0": " ",
    "\u202f": " ",
    "─": "-",
    "━": "-",
    "│": "|",
    "┃": "|",
    "█": "#",
    "▏": "|",
    "╸": "-",
    "╺": "-",
}


def open_streams() -> bool:
    """Make the standard streams usable.

    Closed streams become the null device; otherwise, the next opened file would get the descriptor, and error messages
    could be written to it. Characters that the encoding of the locale lacks are replaced.

    Returns:
        Whether standard output is open.
    """
    has_output = True
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is `number`
            has_output = has_output and number != 1
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (open until the process ends)
    codecs.register_error("meshmark", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="meshmark")
    return has_output


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_INSTEAD.get(c, "?") for c in error.object[error.start : error.end]), error.end


def flushed() -> OSError | None:
    """Flush standard output. If this fails, return the error and discard the rest of the output; otherwise None."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise Python would report the error again at exit
        return error
    return None


def output_is_full() -> bool:
    """Return whether standard output is full; nothing is left to flush then, because Python drops failed output."""
    try:
        os.write(1, b"")
        return stat.S_ISREG(os.fstat(1).st_mode) and os.fstatvfs(1).f_bavail == 0
    except OSError:
        return True


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ended_by = signal.SIGINT  # the last signal; stored because the parser catches the exception that it causes
_RETRY_S: Final = 0.01
_limit = ""  # why threads cannot be started: OpenBLAS, part of NumPy, raises SIGINT in this case


def end_by_signals() -> None:
    """Make SIGINT, SIGTERM, SIGHUP and SIGQUIT raise KeyboardInterrupt. Ignored signals (`nohup`) stay ignored.

    While a module is being imported, the exception is deferred: C++ libraries abort if an exception leaves their
    initialization. If a destructor or a callback of the interpreter swallows the exception, it is raised again.
    """
    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        global _ended_by, _limit  # noqa: PLW0603
        if os.getpid() != owner:
            os._exit(128 + number)  # a forked child before exec, which would print the exception
        _ended_by = signal.Signals(number)
        if number == signal.SIGINT:
            _limit = _no_thread()
        finish(number, frame)

    def finish(_: int, frame: FrameType | None) -> None:
        if _imports(frame):
            signal.signal(signal.SIGALRM, finish)
            signal.setitimer(signal.ITIMER_REAL, _RETRY_S)
        else:
            raise KeyboardInterrupt

    def swallowed(what: sys.UnraisableHookArgs) -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(what)
            return
        signal.signal(signal.SIGALRM, finish)
        signal.setitimer(signal.ITIMER_REAL, _RETRY_S)

    sys.unraisablehook = swallowed
    for number in _ENDING:
        if signal.getsignal(number) in {signal.SIG_DFL, signal.default_int_handler}:
            signal.signal(number, end)


def _imports(frame: FrameType | None) -> bool:
    """Return whether a module is being imported in this frame or in a caller."""
    while frame and "importlib._bootstrap" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def signals_call(stop: Callable[[], None]) -> Iterator[None]:
    """Make the signals of `end_by_signals` call `stop` instead of raising: a partially read line must not get lost."""
    previous = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop())
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def leave(status: int) -> NoReturn:
    """End the process without the finalization of Python and libraries.

    A signal during finalization would print a traceback, and threads of Arrow abort about one in ten processes that end
    immediately after reading a file.
    """
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(status)


def ended() -> tuple[str, int]:
    """Return the message and the exit status for a KeyboardInterrupt."""
    if _limit:
        return _limit, 1
    message = "interrupted" if _ended_by == signal.SIGINT else f"ended by {_ended_by.name}"
    return message, 128 + _ended_by


def _no_thread() -> str:
    """Return why threads cannot be started; "" if they can."""
    import resource
    import threading

    thread = threading.Thread(target=lambda: None)
    try:
        thread.start()
    except RuntimeError:
        soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        limit = "" if soft == resource.RLIM_INFINITY else f": ulimit -u allows {soft} processes and threads"
        return f"error: no thread can be started{limit}"
    thread.join()
    return ""


def memory_limit(below_bytes: int = sys.maxsize) -> str:
    """Return `ulimit -v allows 146 MiB` or the like if memory is limited to less than `below_bytes`; otherwise ""."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    is_limited = soft != resource.RLIM_INFINITY and soft < below_bytes
    return f"ulimit -v allows {soft >> 20} MiB" if is_limited else ""
