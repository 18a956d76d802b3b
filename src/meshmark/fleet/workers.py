"""How processes that read the results of nodes are started."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # of terminals and batch systems


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer signals that end this process, and block them in processes that it starts meanwhile.

    A signal must not interrupt the start of a process, and one that a terminal sends to all of them is left to this
    process, which ends the others. The main thread calls this.
    """
    pending: list[int] = []
    # Blocking does not suffice: another thread may receive a signal, and its handler runs in the main thread.
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
