"""What tests wait for."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether that process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(true: Callable[[], object], within_s: float = 60, step_s: float = 0.02) -> bool:
    """Whether it came true in time; looks every `step_s`."""
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(step_s)
    return True


def listening(address: str) -> bool:
    """Whether somebody accepts connections at the host and port of this URL."""
    parts = urllib.parse.urlsplit(address)
    with contextlib.suppress(OSError), socket.create_connection((parts.hostname or "", parts.port or 80), 1):
        return True
    return False


def take(seconds: float) -> None:
    """Takes so long, as a slow program, reader or server does. A test that waits for something uses `until`."""
    time.sleep(seconds)
