"""How much memory a process may still allocate: on the machine, in its control groups and on a NUMA node."""

from __future__ import annotations

import re
from pathlib import Path

from meshmark.machine.tree import Tree, kilobytes


def machine_available_bytes(tree: Tree) -> int:
    """Memory that the kernel can allocate without swapping, in B; 0 if the kernel does not report it."""
    return kilobytes(tree.text("proc/meminfo"), "MemAvailable") or 0


def group_available_bytes(tree: Tree) -> int | None:
    """The least that the limits of this process's control group and of its ancestors leave, in B; None without a limit.

    Both versions of control groups are read.
    """
    groups = re.findall(
        r"^[0-9]+:(|memory|[\w,]*,memory|memory,[\w,]*):(/.*)$", tree.text("proc/self/cgroup") or "", re.M
    )
    left: list[int] = []
    for version, group in groups:
        top, limit_file, used_file = (
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            if version
            else ("sys/fs/cgroup", "memory.max", "memory.current")
        )
        at = Path(group.lstrip("/"))
        for each in (at, *at.parents):
            limit, used = tree.number(f"{top}/{each}/{limit_file}"), tree.number(f"{top}/{each}/{used_file}")
            if limit is not None and used is not None:
                left.append(limit - used)
    return min(left, default=None)


def node_available_bytes(tree: Tree, node: int) -> int | None:
    """Free memory of a node and half of its page cache, not all of which can be reclaimed, in B; None if unknown."""
    text = tree.text(f"sys/devices/system/node/node{node}/meminfo")
    free, cache = kilobytes(text, "MemFree"), kilobytes(text, "FilePages")
    return None if free is None else free + (cache or 0) // 2
