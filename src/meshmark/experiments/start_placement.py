"""Finds out where the threads and pages of a run were, from the placement note of `meshmark run --verify --record`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshmark.experiments.trial import evidence
from meshmark.machine.tree import parse_list
from meshmark.place.candidates import BUSY, Candidate

REMOTE: Final = "with remote pages"
MOVED_FAR: Final = "moved between nodes"
SHARED: Final = "shared a CPU"
MOVED: Final = "moved within a node"
STAYED: Final = "stayed"
UNKNOWN: Final = "not observed"
PLACES: Final = (STAYED, MOVED, SHARED, MOVED_FAR, REMOTE, UNKNOWN)  # the least harmful first
_SHARED_THREADS: Final = 0.5  # mean number of runnable threads in excess of the CPUs
_REMOTE_SHARE: Final = 0.01  # a program's first pages are often on the node on which its shell ran


@dataclass(frozen=True, slots=True)
class StartPlacement:
    """The CPUs and nodes that a run used. Threads that only wait do not count.

    Attributes:
        place: One of `PLACES`, the most harmful that applies.
        cpus: CPUs on which its busy threads ran; empty if unknown.
    """

    place: str
    cpus: tuple[int, ...] = ()


def placement_note(text: str) -> Mapping[str, Any] | None:
    """Return the placement note in a file that `meshmark run --record` wrote; None if there is no note.

    Raises:
        ValueError: A line is not JSON.
    """
    lines = map(json.loads, text.splitlines())
    return next((line for line in lines if isinstance(line, dict) and line.get("kind") == "placement"), None)


def placement_of(note: Mapping[str, Any], node_of: Mapping[int, int]) -> StartPlacement:
    """Return where a run was.

    Args:
        note: The placement note.
        node_of: Node by CPU.
    """
    values, _ = evidence(note, Candidate("start"), node_of)
    report = note.get("report")
    raw, seconds = (report.get("threads"), report.get("seconds")) if isinstance(report, dict) else (None, None)
    threads = [t for t in raw if isinstance(t, dict)] if isinstance(raw, list) else []
    elapsed_s = float(seconds) if isinstance(seconds, int | float) else 0.0
    ran_on = [
        parse_list(str(thread.get("ran_on", "")).replace("none", ""))
        for thread in threads
        if _seconds(thread, "user_s", "system_s") > BUSY * elapsed_s
    ]
    ran_on = [cpus for cpus in ran_on if cpus]
    cpus = tuple(sorted({cpu for one in ran_on for cpu in one}))
    # Threads that run one after the other share no CPU. Other programs do not change this sum: a thread that they
    # delay waits instead of running.
    runnable_s = math.fsum(_seconds(thread, "user_s", "system_s", "waiting_s") for thread in threads)
    if not ran_on:
        place = UNKNOWN
    elif values.get("remote_share", 0.0) > _REMOTE_SHARE:
        place = REMOTE
    elif any(len({node_of.get(cpu) for cpu in one}) > 1 for one in ran_on):
        place = MOVED_FAR
    elif runnable_s > (len(cpus) + _SHARED_THREADS) * elapsed_s:
        place = SHARED
    elif any(len(one) > 1 for one in ran_on):
        place = MOVED
    else:
        place = STAYED
    return StartPlacement(place, cpus)


def _seconds(thread: Mapping[str, Any], *names: str) -> float:
    return math.fsum(float(thread.get(name) or 0.0) for name in names)
