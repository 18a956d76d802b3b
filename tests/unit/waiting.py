"""What tests wait for."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(true: Callable[[], object], within_s: float = 60) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
