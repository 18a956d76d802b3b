"""Observes running processes for a moment: on which nodes their threads ran, where their pages are, and what waited.

`meshmark-place sample` reads threads and pages at a bounded cost; see docs/explanation/placed.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark.errors import MeshmarkError
from meshmark.explain.surroundings import Surroundings, SurroundingsObserver
from meshmark.machine.tree import FileTree, parse_list
from meshmark.place.native import ask

_MOST: Final = 3000  # processes that are named to the sampler, so that they fit into its command line; it reads fewer


@dataclass(frozen=True, slots=True)
class PagesByNode:
    """Pages of one process.

    Attributes:
        own: Bytes of the process by node, without files and shared libraries; of a sample of the pages unless `exact`.
        files_bytes: Bytes of files and shared libraries, likewise.
        huge_bytes: The part of `own` in huge pages.
        sampled: Number of pages on which the shares rest.
        exact: Whether all pages were counted.
        truncated: Whether only the first mappings were read, because the kernel is older than 6.11.
        policies: Bytes of `own` by memory policy; empty unless `exact`.
    """

    own: Mapping[int, int]
    files_bytes: int = 0
    huge_bytes: int = 0
    sampled: int = 0
    exact: bool = False
    truncated: bool = False
    policies: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MaskUse:
    """Threads that may run on the same CPUs; times in s during the observation."""

    cpus: tuple[int, ...]
    threads: int
    ran_s: float
    waited_s: float


@dataclass(frozen=True, slots=True)
class ObservedProcess:
    """One process during the observation; times in s, sums over its observed threads.

    Attributes:
        ran_by_node: Time on the CPUs of each node.
        allowed_nodes: Memory nodes that its cpuset permits; empty if unknown.
        pages: None if they cannot be sampled; `pages_absent` is then the reason.
    """

    process: int
    command: str
    threads: int
    observed_threads: int
    ran_s: float
    waited_s: float
    ran_by_node: Mapping[int, float]
    masks: tuple[MaskUse, ...]
    resident_bytes: int
    swapped_bytes: int
    allowed_nodes: tuple[int, ...]
    pages: PagesByNode | None
    pages_absent: str

    @property
    def own_pages(self) -> Mapping[int, int]:
        """Return the bytes of the process by node, see `PagesByNode.own`; empty if they are unknown."""
        return self.pages.own if self.pages else {}


@dataclass(frozen=True, slots=True)
class Observation:
    """Processes during `seconds`.

    Attributes:
        cost_s: CPU time of the sampler.
        count: Number of processes that existed at the start; `processes` may be fewer.
        idle_by_node: CPUs of each node that were idle, on average.
        idle_by_cpu: Share of the time in which each CPU was idle.
    """

    seconds: float
    cost_s: float
    count: int
    processes: tuple[ObservedProcess, ...]
    idle_by_node: Mapping[int, float]
    idle_by_cpu: Mapping[int, float] = field(default_factory=dict)
    surroundings: Surroundings = field(default_factory=Surroundings)

    @property
    def ran_s(self) -> float:
        """Return the CPU time of all processes."""
        return sum(p.ran_s for p in self.processes)

    @property
    def waited_s(self) -> float:
        """Return the time in which threads could run, but waited for a CPU."""
        return sum(p.waited_s for p in self.processes)

    @property
    def masks(self) -> list[MaskUse]:
        """Return the threads of all processes by the CPUs on which they may run."""
        total: dict[tuple[int, ...], MaskUse] = {}
        for m in (m for p in self.processes for m in p.masks):
            t = total.get(m.cpus, MaskUse(m.cpus, 0, 0.0, 0.0))
            total[m.cpus] = MaskUse(m.cpus, t.threads + m.threads, t.ran_s + m.ran_s, t.waited_s + m.waited_s)
        return list(total.values())

    @property
    def pages_by_node(self) -> Mapping[int, float]:
        """Return the estimated bytes of all processes by node."""
        total: dict[int, float] = {}
        for p in self.processes:
            if p.pages is None:
                continue
            sampled_bytes = sum(p.pages.own.values()) + p.pages.files_bytes
            scale = 1.0 if p.pages.exact or not sampled_bytes else p.resident_bytes / sampled_bytes
            for node, b in p.pages.own.items():
                total[node] = total.get(node, 0.0) + scale * b
        return dict(sorted(total.items()))

    @property
    def ran_by_node(self) -> Mapping[int, float]:
        """Return the CPU time of all processes by node, s."""
        total: dict[int, float] = {}
        for p in self.processes:
            for node, s in p.ran_by_node.items():
                total[node] = total.get(node, 0.0) + s
        return dict(sorted(total.items()))


def observe(
    tree: FileTree, processes: Sequence[int], node_of: Mapping[int, int], duration_s: float = 1.0
) -> Observation:
    """Observe processes of this host.

    Args:
        tree: The live system.
        processes: Their numbers. Those that have ended are left out.
        node_of: Node of each CPU.
        duration_s: How long to observe.

    Raises:
        MeshmarkError: None of the processes exists at the end, or the sampler does not run.
    """
    step = -(-len(processes) // _MOST)
    named = ",".join(map(str, processes[::step]))
    surroundings = SurroundingsObserver(tree.root, processes)
    idle, start_s = _idle_ticks(tree), time.monotonic()
    answer = json.loads(ask(["sample", named, "--duration", f"{duration_s:g}s"], timeout_s=60 + duration_s))
    elapsed_s = time.monotonic() - start_s
    observed = tuple(map(_process, answer["observed"]))
    if not observed:
        raise MeshmarkError(f"the processes have ended while they were observed, within {elapsed_s:.1f} s")
    idle_by_cpu = _idle_by_cpu(idle, _idle_ticks(tree), node_of)
    return Observation(
        answer["seconds"],
        answer["cost_s"],
        answer["processes"] * step,
        observed,
        _by_node(idle_by_cpu, node_of),
        idle_by_cpu,
        surroundings.finish(node_of),
    )


def _process(one: Mapping[str, Any]) -> ObservedProcess:
    pages = one["pages"]
    return ObservedProcess(
        process=one["process"],
        command=one["command"],
        threads=one["threads"],
        observed_threads=one["observed_threads"],
        ran_s=one["ran_s"],
        waited_s=one["waited_s"],
        ran_by_node={int(n): s for n, s in one["ran_by_node"].items()},
        masks=tuple(MaskUse(parse_list(m["cpus"]), m["threads"], m["ran_s"], m["waited_s"]) for m in one["masks"]),
        resident_bytes=one["resident_bytes"],
        swapped_bytes=one["swapped_bytes"],
        allowed_nodes=parse_list(one["allowed_nodes"]) if one["allowed_nodes"] else (),
        pages=None
        if pages is None
        else PagesByNode(
            {int(n): b for n, b in pages["own"].items()},
            sum(pages["files"].values()),
            pages["huge_bytes"],
            pages["pages"],
            pages["exact"],
            pages["truncated"],
            pages["policies"],
        ),
        pages_absent=one["pages_absent"],
    )


def _idle_ticks(tree: FileTree) -> Mapping[int, tuple[int, int]]:
    """Return idle time and all time of each CPU since boot, in clock ticks."""
    ticks: dict[int, tuple[int, int]] = {}
    for line in (tree.text("proc/stat") or "").splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(words) >= 8:
            times = [int(w) for w in words[:8]]
            ticks[int(name[3:])] = (times[3] + times[4], sum(times))
    return ticks


def _idle_by_cpu(
    before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]], cpus: Iterable[int]
) -> dict[int, float]:
    """Return the share of the time between two readings in which CPUs were idle, of those in both."""
    idle: dict[int, float] = {}
    for cpu in cpus:
        if cpu in before and cpu in after:
            passed = after[cpu][1] - before[cpu][1]
            idle[cpu] = max(0.0, min(1.0, (after[cpu][0] - before[cpu][0]) / passed)) if passed > 0 else 0.0
    return idle


def _by_node(idle_by_cpu: Mapping[int, float], node_of: Mapping[int, int]) -> Mapping[int, float]:
    """Return how many CPUs of each node were idle, on average."""
    idle: dict[int, float] = dict.fromkeys(sorted(set(node_of.values())), 0.0)
    for cpu, share in idle_by_cpu.items():
        idle[node_of[cpu]] += share
    return idle
