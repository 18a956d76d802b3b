"""Finds processes of this system for tests."""

from __future__ import annotations

from pathlib import Path

from support.waiting import until


def descendants_with(mark: str) -> list[int]:
    """Return the processes that have a word in their environment."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark.encode() in (entry / "environ").read_bytes():
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids


def nobody_with(mark: str) -> bool:
    """Wait for all of them to end, and return whether they did."""
    return until(lambda: not descendants_with(mark))


def children_of(pid: int) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids
