"""The start of processes that read the results of nodes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # signals of terminals and batch systems


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer signals that end this process, and block them in processes that it starts meanwhile.

    A signal must not interrupt the start of a process, and only this process handles a signal that a terminal sends to
    all of them; it ends the others. Call this in the main thread.
    """
    pending: list[int] = []
    # Blocking is not sufficient: another thread may receive a signal, whose handler runs in the main thread.
    handlers = {number: signal.signal(number, lambda received, _: pending.append(received)) for number in _ENDING}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for received in pending[:1]:
            signal.raise_signal(received)
