"""Runs inside a guest of two nodes: starts programs that are placed wrong or right, and records the reports of
`placed`.

The machine is numa-2: CPUs 0 and 1 on node 0, 2 and 3 on node 1.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from place_proof_tools import (
    BIND,
    MIB,
    PREFERRED,
    Child,
    free_bytes,
    memory,
    memory_on,
    policy,
    say,
    spin,
    wait,
    watched,
)

ALL = {0, 1, 2, 3}


@cache
def step_s() -> float:
    """Return how long some work takes on this machine, measured by the first call, in seconds.

    An emulated machine on a busy one is slow, and may not sample for a second.
    """
    start_s = time.monotonic()
    memory_on(1, 48 * MIB).close()
    return time.monotonic() - start_s


def ranks(masks: list[set[int]]) -> None:
    """Fork busy processes, one per mask."""
    for mask in masks:
        if os.fork() == 0:
            os.sched_setaffinity(0, mask)
            spin(60)
            os._exit(0)


def thread_masks(masks: list[set[int]]) -> None:
    def one(mask: set[int]) -> None:
        os.sched_setaffinity(0, mask)
        spin(60)

    for mask in masks:
        threading.Thread(target=one, args=(mask,), daemon=True).start()


# A case: the words for `placed`, and what the program does; `tell` reports that it is placed, and watching begins.


def mask_narrowed(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    os.sched_setaffinity(0, {1})
    spin(60)


def mask_widened(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    os.sched_setaffinity(0, ALL)
    spin(60)


def mask_for_a_moment(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    os.sched_setaffinity(0, {3})
    spin(1.5 + 4 * step_s())
    os.sched_setaffinity(0, {0, 1})
    spin(60)


def mask_of_launcher(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    ranks([{0}, {0}])
    say(tell)


def mask_of_threads(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    thread_masks([{0}, {1}])
    say(tell)
    spin(60)


def mask_of_one_thread(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    thread_masks([{0, 1}, {0, 1}, {2}])
    say(tell)
    spin(60)


def doubled_ranks(tell: int) -> None:
    os.sched_setaffinity(0, {0, 2})
    ranks([{0}, {0}])
    say(tell)


def doubled_threads(tell: int) -> None:
    os.sched_setaffinity(0, {0, 2})
    thread_masks([{2}, {2}])
    say(tell)
    signal.pause()


def node_by_policy(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    policy(BIND, 1)
    block = memory(24 * MIB)
    say(tell)
    spin(60)
    block.close()


def node_before_bound(tell: int) -> None:
    os.sched_setaffinity(0, {2})
    block = memory(24 * MIB)
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    spin(60)
    block.close()


def node_while_watched(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    block = memory_on(1, 24 * MIB)
    spin(60)
    block.close()


def spilled(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    policy(PREFERRED, 0)
    block = memory(48 * MIB)
    spin(60)
    block.close()


def right_mask(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    spin(60)


def right_ranks(tell: int) -> None:
    os.sched_setaffinity(0, {0, 2})
    ranks([{0}, {2}])
    say(tell)


def right_threads(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    thread_masks([{0, 1}] * 3)
    say(tell)
    for _ in range(1000):  # and short-lived ones that come and go
        worker = threading.Thread(target=spin, args=(0.01,))
        worker.start()
        worker.join()


def right_programs(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    subprocess.run(["sh", "-c", "while :; do /bin/true; done"], check=False)


def right_memory(tell: int) -> None:
    os.sched_setaffinity(0, {2, 3})
    policy(BIND, 1)
    block = memory(24 * MIB)
    block.close()
    os.dup2(tell, 9)
    os.execv("/bin/sh", ["sh", "-c", "echo null >&9; while :; do :; done"])


def right_far(tell: int) -> None:
    os.sched_setaffinity(0, {2, 3})
    say(tell)
    spin(60)


def right_growth(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    blocks = []
    for _ in range(10):
        blocks.append(memory(2 * MIB))
        spin(0.05)
    spin(60)


NEAR, FAR, EACH = ["--cpus", "0,1"], ["--cpus", "2,3"], ["--cpus", "0,2", "--each"]
CASES: dict[str, tuple[str, list[str], Callable[[int], None]]] = {
    "mask narrowed": ("mask_changed", NEAR, mask_narrowed),
    "mask widened": ("mask_changed", NEAR, mask_widened),
    "mask for a moment": ("mask_changed", NEAR, mask_for_a_moment),
    "mask of launcher": ("mask_changed", NEAR, mask_of_launcher),
    "mask of threads": ("mask_changed", NEAR, mask_of_threads),
    "mask of one thread": ("mask_changed", NEAR, mask_of_one_thread),
    "doubled ranks": ("doubled", EACH, doubled_ranks),
    "doubled threads": ("doubled", EACH, doubled_threads),
    "node by policy": ("wrong_node", [*NEAR, "--nodes", "0"], node_by_policy),
    "node before bound": ("wrong_node", [*NEAR, "--nodes", "0"], node_before_bound),
    "node while watched": ("wrong_node", [*NEAR, "--nodes", "0"], node_while_watched),
    "spilled": ("spilled", [*NEAR, "--nodes", "0"], spilled),
    "right mask": ("", [*NEAR, "--nodes", "0"], right_mask),
    "right ranks": ("", EACH, right_ranks),
    "right threads": ("", NEAR, right_threads),
    "right programs": ("", [*NEAR, "--nodes", "0"], right_programs),
    "right memory": ("", [*FAR, "--nodes", "1"], right_memory),
    "right growth": ("", [*NEAR, "--nodes", "0"], right_growth),
}


def hog() -> Child:
    """Allocate almost all free memory of node 0 in a child."""

    def take(tell: int) -> None:
        os.sched_setaffinity(0, {0})
        # Otherwise the kernel would drop cached files while the program allocates, and nothing would spill.
        Path("/proc/sys/vm/drop_caches").write_text("1")
        block = memory_on(0, (free_bytes(0) - 24 * MIB) // MIB * MIB)
        say(tell, free_bytes(0))
        signal.pause()
        block.close()

    child = Child(take)
    child.said()
    return child


def campaign(plan: dict[str, Any]) -> list[dict[str, Any]]:
    reports = []
    watch = f"{2 + 6 * step_s():.1f}s"  # the injection must happen while the program is watched
    # Spills come last: only then is there a process that fills the node.
    expected = sorted(plan.get("cases") or CASES, key=lambda c: c == "spilled")
    for name in expected:
        injected, words, function = CASES[name]
        full = hog() if injected == "spilled" else None
        for _ in range(plan["repeats"]):
            child = Child(function)
            try:
                child.said()
                answer = watched(plan["place"], child.pid, watch, *words)
            finally:
                child.end()
            reports.append({"case": name, "injected": injected, **answer})
        if full is not None:
            full.end()
    return reports
