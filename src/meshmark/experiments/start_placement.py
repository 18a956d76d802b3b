"""Where the threads and the pages of a run were, from the placement note of `meshmark run --verify --record`."""

from __future__ import annotations

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
_REMOTE_SHARE: Final = 0.01  # a program's first pages are often on the node on which its shell ran


@dataclass(frozen=True, slots=True)
class StartPlacement:
    """Where a run was. Threads that only wait do not count.

    Attributes:
        place: One of `PLACES`, the most harmful that applies.
        cpus: CPUs on which its busy threads ran; empty if unknown.
        migrations: Number of migrations; None if unknown.
        remote_share: Share of its pages on nodes other than the nodes of its CPUs; None if unknown.
    """

    place: str
    cpus: tuple[int, ...] = ()
    migrations: float | None = None
    remote_share: float | None = None


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
    least_s = BUSY * (float(seconds) if isinstance(seconds, int | float) else 0.0)
    ran_on = [
        parse_list(str(thread.get("ran_on", "")).replace("none", ""))
        for thread in threads
        if float(thread.get("user_s") or 0.0) + float(thread.get("system_s") or 0.0) > least_s
    ]
    ran_on = [cpus for cpus in ran_on if cpus]
    cpus = tuple(sorted({cpu for one in ran_on for cpu in one}))
    remote_share = values.get("remote_share")
    if not ran_on:
        place = UNKNOWN
    elif (remote_share or 0.0) > _REMOTE_SHARE:
        place = REMOTE
    elif any(len({node_of.get(cpu) for cpu in one}) > 1 for one in ran_on):
        place = MOVED_FAR
    elif len(cpus) < len(ran_on):
        place = SHARED
    elif any(len(one) > 1 for one in ran_on):
        place = MOVED
    else:
        place = STAYED
    return StartPlacement(place, cpus, values.get("migrations"), remote_share)
