"""Reads the processes of a tree and their control groups, once.

Sources: proc(5) (`hidepid`), proc_pid_cgroup(5), cgroups(7), the kernel's documentation (admin-guide/cgroup-v2).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from meshmark.machine.activity import ProcessStat, process_stat
from meshmark.machine.control_group import ControlGroups, cpuset_hierarchy, parse_control_groups
from meshmark.machine.tree import Files

_ROOT: Final = "sys/fs/cgroup"
_MAX_DEPTH: Final = 64
_CONTROL_FILE: Final = re.compile(
    r"(?:cgroup|cpu|cpuacct|cpuset|memory|io|pids|blkio|devices|freezer|hugetlb|rdma|misc|net_cls|net_prio|perf_event"
    r"|dmem|irq)\..*|tasks|notify_on_release|release_agent",
    re.S,
)


class ProcessTable:
    """The processes that are visible in a tree. Each file is read at most once; processes that vanish are left out.

    Attributes:
        tree: The files.
        pids: Numbers of the processes, ascending.
    """

    def __init__(self, tree: Files) -> None:
        self.tree = tree
        self.pids = tree.numbered("proc", "")
        self._stats: dict[int, ProcessStat | None] = {}

    @cached_property
    def groups(self) -> Mapping[int, ControlGroups]:
        """Return the control groups by process, without processes that vanished or cannot be read."""
        groups: dict[int, ControlGroups] = {}
        parsed: dict[bytes, ControlGroups] = {}  # most processes share the groups of others
        for pid in self.pids:
            data = self.tree.data(f"proc/{pid}/cgroup")
            if data is not None:
                if data not in parsed:
                    parsed[data] = parse_control_groups(data)
                groups[pid] = parsed[data]
        return groups

    @cached_property
    def hides(self) -> bool:
        """Return whether /proc hides processes of other users from this user, wholly or in part (`hidepid`)."""
        if any(pid not in self.groups and self.tree.exists(f"proc/{pid}") for pid in self.pids):
            return True
        mounts = self.tree.text("proc/self/mounts") or self.tree.text("proc/mounts") or ""
        options = re.findall(r"^\S+ /proc proc (\S+)", mounts, re.M)
        hidden = bool(options) and re.search(r"\bhidepid=(?!0\b|off\b)", options[-1]) is not None
        return hidden and 1 not in self.groups  # root sees all processes nevertheless

    def stat(self, pid: int) -> ProcessStat | None:
        """Return the stat of a process; None if it has vanished."""
        if pid not in self._stats:
            self._stats[pid] = process_stat(self.tree, pid)
        return self._stats[pid]

    def arguments(self, pid: int) -> list[str]:
        """Return the command line of a process; empty if it has vanished or belongs to the kernel."""
        data = self.tree.data(f"proc/{pid}/cmdline") or b""
        return data.rstrip(b"\0").decode("utf-8", "replace").split("\0") if data else []

    def variables(self, pid: int) -> dict[str, str]:
        """Return the environment with which a process started; empty if this user may not read it."""
        data = (self.tree.data(f"proc/{pid}/environ") or b"").decode("utf-8", "replace")
        return dict(pair.split("=", 1) for pair in data.split("\0") if "=" in pair)

    def named(self, *names: str) -> list[int]:
        """Return the processes whose program has one of these names, which have at most 15 characters."""
        return [pid for pid in self.pids if (stat := self.stat(pid)) is not None and stat.name in names]

    def running(self, pids: Collection[int]) -> tuple[int, ...]:
        """Return the processes among `pids` that have neither vanished nor ended, in ascending order."""
        stats = ((pid, self.stat(pid)) for pid in sorted(pids))
        return tuple(pid for pid, stat in stats if stat is not None and not stat.ended)

    @cached_property
    def _children(self) -> Mapping[int, list[int]]:
        children: dict[int, list[int]] = {}
        for pid in self.pids:
            if (stat := self.stat(pid)) is not None:
                children.setdefault(stat.parent, []).append(pid)
        return children

    def descendants(self, pid: int) -> set[int]:
        """Return a process and the processes that descend from it."""
        family, queue = {pid}, [pid]
        while queue:
            new = [child for child in self._children.get(queue.pop(), ()) if child not in family]
            family.update(new)
            queue += new
        return family

    def only_child(self, pid: int) -> int | None:
        """Return the child of a process; None unless it has exactly one."""
        children = self._children.get(pid, [])
        return children[0] if len(children) == 1 else None

    def root_of(self, pids: Collection[int]) -> int | None:
        """Return the process from which the others descend; for a container, its init process. None without one."""
        stats = {pid: self.stat(pid) for pid in pids}
        tops = [pid for pid, stat in stats.items() if stat is not None and stat.parent not in stats]
        if len(tops) == 1:
            return tops[0]
        depths = {pid: len(numbers) for pid in tops if len(numbers := self._numbers(pid)) > 1 and numbers[-1] == "1"}
        inits = [pid for pid, depth in depths.items() if depth == min(depths.values())]
        return inits[0] if len(inits) == 1 else None

    def _numbers(self, pid: int) -> list[str]:
        """Return the number of a process in each PID namespace, from the outermost to the innermost."""
        match = re.search(r"^NSpid:\s*([0-9\t ]+)$", self.tree.text(f"proc/{pid}/status") or "", re.M)
        return match[1].split() if match else []

    @cached_property
    def paths(self) -> Mapping[str, list[int]]:
        """Return the processes by the path of their control group in any hierarchy; the cpuset hierarchy is first."""
        return {
            path: list(dict.fromkeys(pids)) for path, pids in {**self.paths_in("cpuset"), **self.paths_in()}.items()
        }

    def paths_in(self, hierarchy: str = "") -> dict[str, list[int]]:
        """Return the processes by the path of their control group in one hierarchy.

        Args:
            hierarchy: Name of the folder of the hierarchy, such as `cpu,cpuacct`, `systemd` or `unified`; "" for all.
        """
        keys = {hierarchy, f"name={hierarchy}", *([""] if hierarchy == "unified" else [])}
        members: dict[str, list[int]] = {}
        for pid, groups in self.groups.items():
            for names, path in groups.paths.items():
                if not hierarchy or names in keys or (names and not keys.isdisjoint(names.split(","))):
                    members.setdefault(path, []).append(pid)
        return members

    @cached_property
    def inhabited(self) -> set[str]:
        """Return the paths of the control groups that have processes, themselves or in a group below them."""
        parts = [path.split("/") for path in self.paths]
        return {"/".join(words[:n]) for words in parts for n in range(2, len(words) + 1)}

    def main_path(self, pid: int) -> str:
        """Return the path of the control group of a process in the cpuset hierarchy, or else in another one."""
        groups = self.groups.get(pid)
        return (groups.path("cpuset") or next(iter(groups.paths.values()), "")) if groups else ""

    def members(self, groups: Collection[str]) -> set[int]:
        """Return the processes in control groups and in the groups below them, in any hierarchy."""
        return {pid for path, pids in self.paths.items() if is_below(path, groups) for pid in pids}

    @cached_property
    def hierarchies(self) -> list[str]:
        """Return the folders of the mounted hierarchies of control groups; the one of cpuset is first."""
        names = set(self.tree.names(_ROOT))
        if "cgroup.controllers" in names:
            return [_ROOT]
        cpuset = cpuset_hierarchy(self.tree)
        folders = [f"{_ROOT}/{name}" for name in sorted(names) if self.tree.exists(f"{_ROOT}/{name}/cgroup.procs")]
        return sorted(folders, key=lambda folder: cpuset is None or folder != cpuset.folder)

    def folders_below(self, folder: str, depth: int = _MAX_DEPTH) -> Iterator[str]:
        """Yield a folder of a control group and the folders of the groups below it, the outermost first."""
        yield folder
        for name in sorted(self.tree.names(folder)):
            inner = f"{folder}/{name}"
            if depth and not _CONTROL_FILE.fullmatch(name) and self.tree.exists(f"{inner}/cgroup.procs"):
                yield from self.folders_below(inner, depth - 1)

    def listed_paths(self) -> list[str]:
        """Return the paths of all control groups of the first hierarchy, also of those whose processes are hidden."""
        return [path for h in self.hierarchies[:1] for folder in self.folders_below(h) if (path := folder[len(h) :])]

    def hidden_members(self, groups: Collection[str]) -> set[int]:
        """Return the processes that control groups list and that /proc hides from this user."""
        if not self.hides:
            return set()
        base = next((h for h in self.hierarchies if any(self.tree.exists(h + group) for group in groups)), "")
        folders = [folder for group in groups if base for folder in self.folders_below(base + group)]
        listed = {pid for folder in folders for pid in self._listed(folder) if pid not in self.groups}
        hidden = {pid for pid in listed if self.tree.data(f"proc/{pid}/cgroup") is None}  # the others are new
        return {
            pid for folder in folders if hidden for pid in self._listed(folder) & hidden
        }  # without those that ended

    def _listed(self, folder: str) -> set[int]:
        words = (self.tree.text(f"{folder}/cgroup.procs") or "").split()
        return {int(word) for word in words if re.fullmatch("[1-9][0-9]{0,8}", word)}  # 0: of another PID namespace

    def cpusets(self, groups: Collection[str]) -> CpusetFolders:
        """Return the folders that limit the CPUs and memory nodes of control groups."""
        hierarchy = cpuset_hierarchy(self.tree)
        if hierarchy is None:
            return CpusetFolders(2, (), ())
        folders = [hierarchy.folder + group for group in groups if ".." not in group.split("/")]
        if not hierarchy.unified:
            limited = [f for f in folders if self.tree.exists(f"{f}/cpuset.cpus")]
            nested = [inner for folder in limited for inner in self.folders_below(folder)]
            return CpusetFolders(1, tuple(f"/{folder}" for folder in reversed(nested)), ())
        existing = [folder for folder in folders if self.tree.exists(folder)]
        without: dict[str, None] = {}
        for folder in existing:
            parts = folder[len(hierarchy.folder) :].split("/")
            outer = [hierarchy.folder + "/".join(parts[:n]) for n in range(1, len(parts))]
            if not self.tree.exists(f"{folder}/cpuset.cpus"):
                lacking = (
                    f for f in outer if "cpuset" not in (self.tree.text(f"{f}/cgroup.subtree_control") or "").split()
                )
                without.update({f"/{f}": None for f in lacking})
        return CpusetFolders(2, tuple(f"/{folder}" for folder in existing), tuple(without))


@dataclass(frozen=True, slots=True)
class CpusetFolders:
    """The folders with the limits of control groups; see the attributes of the same names of `Target`."""

    version: Literal[1, 2]
    cpusets: tuple[str, ...]
    without_cpuset: tuple[str, ...]


def is_below(path: str, groups: Collection[str]) -> bool:
    """Return whether a control group is one of `groups` or a group below them."""
    parts = path.split("/")
    return any("/".join(parts[:n]) in groups for n in range(2, len(parts) + 1))
