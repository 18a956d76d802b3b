"""This process: its standard streams, the signals that end it, and its limits. Imports nothing else of ours."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NoReturn

# What a terminal in ISO-8859-1 or ASCII shows instead; anything else becomes a question mark.
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
    """Makes the standard streams fit to be used, whatever they were given as.

    A closed input or error stream becomes the null device: the next file to be opened would take its number, and
    Python would print errors on standard output. What the encoding of the locale lacks is replaced.

    Returns:
        Whether there is a standard output.
    """
    there = True
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            there = there and number != 1
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (of the process)
    codecs.register_error("meshmark", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="meshmark")
    return there


def _replaced(why: UnicodeError) -> tuple[str, int]:
    if not isinstance(why, UnicodeEncodeError):
        raise why
    return "".join(_INSTEAD.get(c, "?") for c in why.object[why.start : why.end]), why.end


def flushed() -> OSError | None:
    """Writes what standard output still holds. Returns why it cannot be written; then the rest is dropped."""
    try:
        sys.stdout.flush()
    except OSError as why:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python would complain at its end
        return why
    return None


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ended_by = signal.SIGINT  # the parser swallows the exception of a signal, so its number is kept here
_limit = ""  # OpenBLAS, which comes with NumPy, interrupts who loads it where it can start no thread: why it cannot


def end_by_signals() -> None:
    """Ctrl-C, SIGTERM and SIGHUP do the same: keep what is to be kept, remove what is temporary, say so. A signal that
    is ignored (`nohup`) stays so."""

    own = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        global _ended_by, _limit  # noqa: PLW0603
        if os.getpid() != own:
            os._exit(128 + number)  # a child of ours before it becomes its program: an exception would be printed
        _ended_by = signal.Signals(number)
        if number == signal.SIGINT:
            _limit = _no_thread()
        raise KeyboardInterrupt

    for number in _ENDING:
        if signal.getsignal(number) in {signal.SIG_DFL, signal.default_int_handler}:
            signal.signal(number, end)


@contextlib.contextmanager
def signals_call(stop: Callable[[], None]) -> Iterator[None]:
    """Meanwhile the same signals call `stop`, and interrupt nothing: of a line that is half read nothing is lost."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(status: int) -> NoReturn:
    """Ends the process when all is done and said. What Python and libraries do at their end is left out: a signal
    would be a traceback there, and threads of Arrow abort one of ten processes that end right after reading a file."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(status)


def ended() -> tuple[str, int]:
    """Of a KeyboardInterrupt: what happened, for people, and the exit status."""
    if _limit:
        return _limit, 1
    text = "interrupted" if _ended_by == signal.SIGINT else f"ended by {_ended_by.name}"
    return text, 128 + _ended_by


def _no_thread() -> str:
    """Why no thread can be started, "" if one can."""
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
    """`ulimit -v allows 146 MiB`, where this process may have less memory than so many bytes; else ""."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    limited = soft != resource.RLIM_INFINITY and soft < below_bytes
    return f"ulimit -v allows {soft >> 20} MiB" if limited else ""
