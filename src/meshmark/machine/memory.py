"""Reads how much memory a process may still allocate: on the machine, in its control groups and on a NUMA node."""

from __future__ import annotations

import re
from pathlib import Path

from meshmark.machine.tree import FileTree, kilobytes


def machine_available_bytes(tree: FileTree) -> int:
    """Return the memory that the kernel can allocate without swapping, in B; 0 if the kernel does not report it."""
    return kilobytes(tree.text("proc/meminfo"), "MemAvailable") or 0


def group_available_bytes(tree: FileTree) -> int | None:
    """Return how much memory the limits of this process's control group and its ancestors leave, in B.

    None without a limit. Both versions of control groups are read.
    """
    groups = re.findall(
        r"^[0-9]+:(|memory|[\w,]*,memory|memory,[\w,]*):(/.*)$", tree.text("proc/self/cgroup") or "", re.M
    )
    room_bytes: list[int] = []
    for version, group in groups:
        top, limit_file, used_file = (
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            if version
            else ("sys/fs/cgroup", "memory.max", "memory.current")
        )
        path = Path(group.lstrip("/"))
        for folder in (path, *path.parents):
            limit, usage = tree.number(f"{top}/{folder}/{limit_file}"), tree.number(f"{top}/{folder}/{used_file}")
            if limit is not None and usage is not None:
                room_bytes.append(limit - usage)
    return min(room_bytes, default=None)


def node_available_bytes(tree: FileTree, node: int) -> int | None:
    """Return the free memory of a node plus half of its page cache, in B; None if unknown.

    The kernel cannot reclaim all of the page cache.
    """
    text = tree.text(f"sys/devices/system/node/node{node}/meminfo")
    free, cache = kilobytes(text, "MemFree"), kilobytes(text, "FilePages")
    return None if free is None else free + (cache or 0) // 2
