"""Tests that runs which limit the machine follow one another."""

from __future__ import annotations

import threading
from collections.abc import Callable

from meshmark.applications.resources.machine_limits import limited
from support.made_caches import machine
from support.waiting import until


def wait_for_each_other(name: str, first: str, other: str, check: Callable[[], None]) -> None:
    """Assert that a run with one value of a dimension waits for a run with another value to end, then call `check`."""
    order: list[str] = []

    def next_run() -> None:
        with limited({name: other}, machine):
            order.append("other")
            check()

    with limited({name: first}, machine):
        waiting = threading.Thread(target=next_run)
        waiting.start()
        assert not until(lambda: order, within_s=0.2)
        order.append("first")
    waiting.join(60)
    assert order == ["first", "other"]
