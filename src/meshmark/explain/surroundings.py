"""Settings of the kernel and of the control group that act on a running program, and what they did meanwhile.

Sources: sched(7), proc_pid_task(5), the kernel's documentation (admin-guide/cgroup-v2, admin-guide/mm/transhuge,
admin-guide/sysctl/kernel, ABI/testing/sysfs-kernel-mm-memory-tiers).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from meshmark.doctor.settings import thp_mode
from meshmark.doctor.strain import group_counts, increases, stopped_s, throttle_counts
from meshmark.explain.devices import Device, devices_of, interrupt_counts, interrupts_by_node
from meshmark.machine.control_group import ControlGroups, control_groups, cpu_quota
from meshmark.machine.tree import FileTree, parse_list

_THREADS: Final = 300  # threads whose scheduling is read
_CLASSES: Final = {
    os.SCHED_OTHER: "normal",
    os.SCHED_BATCH: "batch",
    os.SCHED_IDLE: "idle",
    os.SCHED_FIFO: "real-time (FIFO)",
    os.SCHED_RR: "real-time (RR)",
    6: "deadline",
    7: "extensible",
}
_BALANCED: Final = "proc/vmstat/numa_pages_migrated"
_TIERS: Final = "sys/devices/virtual/memory_tiering"


@dataclass(frozen=True, slots=True)
class Cpuset:
    """CPUs and memory nodes that a control group permits, and its path below the root of its hierarchy."""

    path: str
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings and limits under which a program runs, and their effects during an observation.

    Attributes:
        scheduling: Number of threads by class and nice value.
        huge_pages: When the kernel gives transparent huge pages: "always", "madvise" or "never"; "" if unknown.
        balancing: Whether NUMA balancing moves pages towards threads; None if the kernel has none.
        balanced_pages: Pages that it moved on the whole machine during the observation; None if unknown.
        cpuset: What the control group of the first process permits; None if that is unknown or it permits everything.
        cpu_quota: Quota of the control group, in CPUs; None without one.
        throttled_s: Time for which the quota stopped threads during the observation, summed over CPUs, s.
        memory_limits: Limit in B by file of the control group: `memory.high`, `memory.max` or `memory.limit_in_bytes`.
        memory_used: Memory that counts towards these limits, B; None without limits, or if unknown.
        reclaims: How often the program reached `memory.high` during the observation and had to free memory.
        tiers: Memory nodes by tier, the fastest first; empty if the kernel has none or one.
        interrupts: Interrupts during the observation, by device that it may use and by node of the CPUs.
    """

    scheduling: Mapping[tuple[str, int], int] = field(default_factory=dict)
    huge_pages: str = ""
    balancing: bool | None = None
    balanced_pages: int | None = None
    cpuset: Cpuset | None = None
    cpu_quota: float | None = None
    throttled_s: float = 0.0
    memory_limits: Mapping[str, int] = field(default_factory=dict)
    memory_used: int | None = None
    reclaims: int = 0
    tiers: Sequence[tuple[int, ...]] = ()
    interrupts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


class SurroundingsObserver:
    """Reads the counts that grow, once before and once after an observation."""

    def __init__(self, root: Path, processes: Sequence[int]) -> None:
        """Read the counts before the observation.

        Args:
            root: Root of the file system, / for the live system.
            processes: The program; the first one stands for all where they share something.
        """
        self._tree, self._processes = FileTree(root), processes
        self._groups: ControlGroups = control_groups(self._tree, str(processes[0]))
        self._devices: list[Device] = devices_of(root, processes[0])
        self._before = self._counts()

    def finish(self, node_of: Mapping[int, int]) -> Surroundings:
        """Read everything after the observation.

        Args:
            node_of: Node of each CPU.
        """
        tree, grown = self._tree, increases(self._before, self._counts())
        quota = cpu_quota(tree, self._groups)
        balancing = tree.number("proc/sys/kernel/numa_balancing")
        limits, used = self._memory()
        return Surroundings(
            _scheduling(tree, self._processes),
            thp_mode(tree)[0] or "",
            None if balancing is None else balancing > 0,
            grown.get(_BALANCED),
            self._cpuset(),
            quota[0] if quota else None,
            max((stopped_s(grown, folder) for folder in self._groups.folders("cpu")), default=0.0),
            limits,
            used,
            max((n for key, n in grown.items() if key.endswith("/high")), default=0),
            _tiers(tree),
            interrupts_by_node(grown, node_of),
        )

    def _counts(self) -> dict[str, int]:
        tree = self._tree
        events = group_counts(tree, self._groups, "memory", "memory.events")
        moved = re.search(r"^numa_pages_migrated (\d{1,19})$", tree.text("proc/vmstat") or "", re.M)
        balanced = {_BALANCED: int(moved[1])} if moved else {}
        return throttle_counts(tree, self._groups) | events | balanced | interrupt_counts(tree, self._devices)

    def _cpuset(self) -> Cpuset | None:
        tree, base, path = self._tree, self._groups.folders("cpuset"), self._groups.path("cpuset")
        files = [("cpuset.cpus.effective", "cpuset.mems.effective"), ("cpuset.effective_cpus", "cpuset.effective_mems")]
        for depth, folder in enumerate(base[:-1]):
            for cpus, nodes in files:
                permitted = tree.cpus(f"{folder}/{cpus}"), tree.cpus(f"{folder}/{nodes}")
                if permitted[0] and permitted[1]:
                    return Cpuset(
                        "/".join(path.rstrip("/").split("/")[: len(base) - depth]), permitted[0], permitted[1]
                    )
        return None

    def _memory(self) -> tuple[dict[str, int], int | None]:
        """Return the tightest limit of each kind of the group and its ancestors, and what counts towards them."""
        tree, folders = self._tree, self._groups.folders("memory")
        limits: dict[str, int] = {}
        for folder in folders:
            for name in ("memory.high", "memory.max", "memory.limit_in_bytes"):
                limit = tree.number(f"{folder}/{name}")  # `max` is no number
                if limit is not None and limit < 1 << 60:  # version 1 has a huge number instead
                    limits[name] = min(limit, limits.get(name, limit))
        used = [tree.number(f"{folders[0]}/{name}") for name in ("memory.current", "memory.usage_in_bytes") if folders]
        return limits, next((n for n in used if n is not None and limits), None)


def _scheduling(tree: FileTree, processes: Sequence[int]) -> dict[tuple[str, int], int]:
    counts: Counter[tuple[str, int]] = Counter()
    for process in processes:
        for thread in tree.numbered(f"proc/{process}/task", ""):
            if counts.total() >= _THREADS:
                return dict(counts)
            try:
                kind = os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK
                counts[_CLASSES.get(kind, f"class {kind}"), os.getpriority(os.PRIO_PROCESS, thread)] += 1
            except OSError:
                continue  # it has ended
    return dict(counts)


def _tiers(tree: FileTree) -> tuple[tuple[int, ...], ...]:
    """Return the nodes of each memory tier; the lowest number is the fastest tier."""
    nodes = [
        parse_list(text)
        for n in tree.numbered(_TIERS, "memory_tier")
        if (text := tree.text(f"{_TIERS}/memory_tier{n}/nodelist"))
    ]
    return tuple(nodes) if len(nodes) > 1 else ()
