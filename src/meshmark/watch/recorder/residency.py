"""Follows a process in a recording: on which nodes its threads ran and its pages were, over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from meshmark.errors import UsageError, quoted
from meshmark.watch.findings.causes import RecentFrames
from meshmark.watch.frames import Frame, Header

_LISTED = 8  # programs that an error names


@dataclass(slots=True)
class Residency:
    """A process in a recording.

    Attributes:
        title: Its name and number.
        at_s: Times at which it was among the busiest processes, s after the start.
        cpus: CPUs that its threads used at these times, by node.
        memory: Its memory at these times by node, B; of a machine with one node, its resident memory.
    """

    title: str
    at_s: list[float] = field(default_factory=list)
    cpus: list[Mapping[str, float]] = field(default_factory=list)
    memory: list[Mapping[str, float]] = field(default_factory=list)


def residency(header: Header, frames: Iterable[Frame], process: str) -> Residency:
    """Return on which nodes the threads and pages of a process were, over time.

    Args:
        header: Describes the frames.
        frames: The frames, in the order of time. Only the busiest processes of each frame are known.
        process: Its number or name; of several with the name, the one that used most CPU time.

    Raises:
        UsageError: The recording has no such process.
    """
    found: dict[int, Residency] = {}
    used: dict[int, float] = {}
    names: dict[str, float] = {}
    for frame in frames:
        at = RecentFrames(header, [frame])
        for one in frame.processes:
            name, pid, cpu = str(one.get("name", "")), int(one.get("pid", -1)), float(one.get("cpu") or 0.0)
            names[name] = names.get(name, 0.0) + cpu
            if process not in {name, str(pid)}:
                continue
            entry = found.setdefault(pid, Residency(f"{name} ({pid})"))
            used[pid] = used.get(pid, 0.0) + cpu
            entry.at_s.append(frame.t_s)
            entry.cpus.append({at.name(node): share for node, share in sorted(at.time_by_node(one).items())})
            entry.memory.append(_memory(at, one))
    if not found:
        listed = ", ".join(sorted(names, key=lambda name: -names[name])[:_LISTED]) or "none"
        raise UsageError(
            f"--process: found '{quoted(process)}', which is not among the busiest processes of the recording; "
            f"allowed: a number or name, such as {listed}"
        )
    return found[max(found, key=lambda pid: used[pid])]


def _memory(at: RecentFrames, process: Mapping[str, Any]) -> dict[str, float]:
    pages = process.get("nodes") or [process.get("rss") or 0.0]
    return {at.name(node): float(b) for node, b in enumerate(pages)}
