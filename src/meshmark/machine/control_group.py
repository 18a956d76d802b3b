"""Finds the control groups of a process, in both versions of their hierarchy, and reads their limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from meshmark.machine.tree import Files, parse_integer

_ROOT = "sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """The groups of one process.

    Attributes:
        paths: Path of the group below the root of its hierarchy, by controllers such as `cpu,cpuacct`; version 2 has
            one path, whose key is "". Empty if the kernel or a recording does not list them.
    """

    paths: Mapping[str, str]

    @property
    def unified(self) -> bool:
        """Return whether the groups are of version 2; version 1 lists controllers by name."""
        return not any(self.paths)

    def path(self, controller: str) -> str:
        """Return the path of the group of a controller; "" if it is unknown."""
        if self.unified:
            return self.paths.get("", "")
        return next((path for names, path in self.paths.items() if controller in names.split(",")), "")

    def folders(self, controller: str) -> list[str]:
        """Return the folders from the group upwards. In a namespace, some folders may not be visible."""
        base = _ROOT if self.unified else f"{_ROOT}/{controller}"
        parts = [part for part in self.path(controller).split("/") if part and part != ".."]
        return ["/".join([base, *parts[:n]]) for n in range(len(parts), -1, -1)]


def control_groups(tree: Files, process: str = "self") -> ControlGroups:
    """Return the control groups of a process."""
    return parse_control_groups(tree.data(f"proc/{process}/cgroup") or b"")


def parse_control_groups(data: bytes) -> ControlGroups:
    """Return the control groups that a file such as /proc/PID/cgroup lists.

    The name of a group may contain any byte but a newline; bytes that are not UTF-8 are decoded like file names.
    """
    lines = [os.fsdecode(line).split(":", 2) for line in data.split(b"\n")]
    return ControlGroups({parts[1]: parts[2].removesuffix(" (deleted)") for parts in lines if len(parts) == 3})


@dataclass(frozen=True, slots=True)
class CpusetHierarchy:
    """The hierarchy of control groups that limits CPUs and memory nodes.

    Attributes:
        folder: Its folder, such as `sys/fs/cgroup/cpuset`.
        unified: Whether it is of version 2.
    """

    folder: str
    unified: bool


def cpuset_hierarchy(tree: Files) -> CpusetHierarchy | None:
    """Return the hierarchy of the controller `cpuset`; None if it is not mounted."""
    names = set(tree.names(_ROOT))
    if "cgroup.controllers" in names:
        return CpusetHierarchy(_ROOT, unified=True)
    for name in sorted(names):
        if "cpuset" in name.split(","):
            return CpusetHierarchy(f"{_ROOT}/{name}", unified=False)
    controllers = (tree.text(f"{_ROOT}/unified/cgroup.controllers") or "").split()
    return CpusetHierarchy(f"{_ROOT}/unified", unified=True) if "cpuset" in controllers else None


def cpu_quota(tree: Files, groups: ControlGroups) -> tuple[float, str] | None:
    """Return the smallest quota of a group and its ancestors, in CPUs, and its folder; None without a quota."""
    quotas: list[tuple[float, str]] = []
    for folder in groups.folders("cpu"):
        if groups.unified:
            words = (tree.text(f"{folder}/cpu.max") or "").split()
        else:
            words = [tree.text(f"{folder}/cpu.cfs_quota_us") or "", tree.text(f"{folder}/cpu.cfs_period_us") or ""]
        quota, period = (parse_integer(w) for w in words) if len(words) == 2 else (None, None)
        if quota is not None and quota > 0 and period is not None and period > 0:
            quotas.append((quota / period, folder))
    return min(quotas, default=None)
