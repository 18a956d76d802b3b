"""Processes of this system, as tests look for them."""

from __future__ import annotations

import time
from pathlib import Path


def descendants_with(mark: str) -> list[int]:
    """Processes that have a word of their own in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def nobody_with(mark: str) -> bool:
    for _ in range(200):
        if not descendants_with(mark):
            return True
        time.sleep(0.05)
    return False


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
