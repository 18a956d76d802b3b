"""Functions that wait for tests."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(true: Callable[[], object], within_s: float = 60, step_s: float = 0.02) -> bool:
    """Return whether `true` became true in time; it is called every `step_s`."""
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(step_s)
    return True


def listening(address: str) -> bool:
    """Return whether a server accepts connections at the host and port of this URL."""
    parts = urllib.parse.urlsplit(address)
    with contextlib.suppress(OSError), socket.create_connection((parts.hostname or "", parts.port or 80), 1):
        return True
    return False


def take(seconds: float) -> None:
    """Sleep like a slow program, reader or server. A test that waits for something uses `until`."""
    time.sleep(seconds)
