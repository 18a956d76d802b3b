"""Names likely causes of a hot spot, each with its evidence in the frames.

The evidence consists of the busiest processes with their pages and threads, the counters of CPUs, the time in
interrupts, and the pages that NUMA balancing moves. Frames state no memory traffic by process and no interrupts by
device: a cause that needs them is not named. Every text begins with the cause and continues with the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from meshmark.values.units import counted, number, percent, show
from meshmark.watch.frames import Frame, Header
from meshmark.watch.rates import STALLS

CONCENTRATED: Final = 0.8  # minimum share of pages, interrupts or huge pages on one node that is called most
REMOTE_TIME: Final = 0.25  # minimum share of the CPU time of a process on other nodes than its pages
BUSY_PROCESS: Final = 0.1  # minimum CPU time of a process that is a cause, as a share of one CPU
MIN_PAGES_BYTES: Final = 64 << 20  # a process with less memory on a node, or fewer huge pages, is not a cause
MIN_BALANCED_HZ: Final = 256  # pages that NUMA balancing moves per second, 1 MiB/s with pages of 4 KiB
NET_SHARE: Final = 0.2  # pages that move back and forth change the use of a node by at most this share of the moves
MIN_INTERRUPTS: Final = 0.1  # CPUs that handle interrupts
WAITING: Final = 0.5  # minimum share of cycles in which a CPU waits for memory that is called most
COMPUTING: Final = 0.2  # a CPU that waits for memory in a smaller share of its cycles is a bottleneck of its own
IDLE: Final = 0.1  # maximum mean use of devices that are called idle
_PAGE_BYTES: Final = 4096


class RecentFrames:
    """Computes means over recent frames.

    Attributes:
        header: describes the frames.
        frames: the recent frames, at least one, in the order of time.
    """

    def __init__(self, header: Header, frames: Sequence[Frame]) -> None:
        self.header = header
        self.frames = frames
        self.processes = frames[-1].processes
        self._means: dict[str, dict[int, float]] = {}
        cpus = header.components.get("cpu", ())
        self._node_of_cpu = {c.get("number", i): c.get("node") for i, c in enumerate(cpus)}

    def mean(self, metric: str, index: int) -> float | None:
        """Return the mean of the known values of a metric; None if no value is known."""
        return self.means(metric).get(index)

    def means(self, metric: str) -> dict[int, float]:
        """Return the mean of every component of which the metric is known, by index."""
        if metric not in self._means:
            rows = [row for f in self.frames if (row := f.values.get(metric))]
            values = np.array(rows, dtype=float) if rows else np.zeros((0, 0))
            known = ~np.isnan(values)
            counts, sums = known.sum(axis=0), np.where(known, values, 0.0).sum(axis=0)
            self._means[metric] = {int(i): float(sums[i] / counts[i]) for i in np.flatnonzero(counts)}
        return self._means[metric]

    def name(self, node: int) -> str:
        """Return the name of a node."""
        nodes = self.header.components.get("node", ())
        return str(nodes[node].get("name", f"node {node}") if node < len(nodes) else f"node {node}")

    def node_of(self, cpu_number: object) -> int | None:
        """Return the node of the CPU with this number; None if it is unknown."""
        node = self._node_of_cpu.get(cpu_number)
        return node if isinstance(node, int) and node >= 0 else None

    def time_by_node(self, process: Mapping[str, Any]) -> dict[int, float]:
        """Return the CPU time of a process by node, as a share of one CPU: of its threads, if these are known."""
        threads = process.get("busiest")
        threads = threads if isinstance(threads, list) else []
        known = [t for t in threads if isinstance(t, dict) and t.get("cpu") is not None]
        parts: Sequence[Mapping[str, Any]] = known or [process]
        times: dict[int, float] = {}
        for part in parts:
            node = self.node_of(part.get("on"))
            if node is not None:
                times[node] = times.get(node, 0.0) + _share(part.get("cpu"))
        return {node: time for node, time in times.items() if time > 0}


def memory_causes(recent: RecentFrames, node: int) -> list[str]:
    """Return the causes of a hot spot in the memory of a node, or in the links that lead to it."""
    return [
        *_misplaced_pages(recent, node),
        *_other_process(recent, node),
        *_balancing(recent),
        *_huge_pages(recent, node),
        *_interrupts(recent),
    ]


def cpu_causes(recent: RecentFrames, cpus: Sequence[int]) -> list[str]:
    """Return the causes of hot CPUs, given by their indices."""
    stolen = [v for i in cpus if (v := recent.mean("cpu.interrupts", i)) is not None]
    mean = sum(stolen) / len(stolen) if stolen else 0.0
    return [f"interrupts: they take {percent(mean)} of the time of these CPUs"] if mean >= REMOTE_TIME else []


def io_causes(recent: RecentFrames, devices: Sequence[int]) -> list[str]:
    """Return the causes of hot devices of one node, given by their indices."""
    return [*_devices_of_one_node(recent, devices), *_interrupts(recent)]


def waiting_share(recent: RecentFrames, cpus: Sequence[int]) -> float | None:
    """Return the mean share of cycles in which CPUs, given by their indices, wait for memory; None if unknown."""
    known = [v for i in cpus if (v := recent.mean("cpu.waiting", i)) is not None]
    return sum(known) / len(known) if known else None


def is_computing(recent: RecentFrames, cpu: int) -> bool:
    """Return whether counters state that a CPU, given by its index, hardly waits for memory.

    Cycles in which it waits are part of the cycles in which it is stalled, so either counter can state it.
    """
    shares = [v for metric in STALLS if (v := recent.mean(metric, cpu)) is not None]
    return min(shares, default=1.0) < COMPUTING


def stalls_text(recent: RecentFrames, cpus: Sequence[int]) -> str:
    """Return the shares of cycles in which busy CPUs, given by their indices, are stalled; "" if they are unknown."""
    texts = []
    for metric, text in (("cpu.stalled", "stalled"), ("cpu.waiting", "waiting for memory")):
        known = [v for i in cpus if (v := recent.mean(metric, i)) is not None]
        if known:
            texts.append(f"{text} in {percent(sum(known) / len(known))}")
    return f"{' and '.join(texts)} of their cycles" if texts else ""


def remote_text(recent: RecentFrames) -> str:
    """Return the share of accesses to memory that are remote; "" if no counter states it.

    The counters of CPUs are weighted by the time for which each CPU is busy.
    """
    remote, busy = recent.means("cpu.remote"), recent.means("cpu.busy")
    weight = sum(busy.get(i, 0.0) for i in remote)
    if weight > 0:
        return f"{percent(sum(v * busy.get(i, 0.0) for i, v in remote.items()) / weight)} of the loads are remote"
    local, total = recent.means("l3.local"), recent.means("l3.total")
    traffic = sum(total[i] for i in local if i in total)
    if traffic > 0:
        share = max(0.0, 1 - sum(v for i, v in local.items() if i in total) / traffic)
        return f"{percent(share)} of the memory traffic is remote"
    return ""


def _share(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _pages(process: Mapping[str, Any]) -> list[float]:
    nodes = process.get("nodes")
    return [max(0.0, _share(n)) for n in nodes] if isinstance(nodes, list) else []


def _title(process: Mapping[str, Any]) -> str:
    return f"{process.get('name')} ({process.get('pid')})"


def _misplaced_pages(recent: RecentFrames, node: int) -> list[str]:
    """Return processes with most of their pages on the node whose threads run on other nodes.

    Threads on several nodes are the sign of first touch: one thread initialised all pages.
    """
    causes = []
    for process in recent.processes:
        pages, times = _pages(process), recent.time_by_node(process)
        total, cpu_time = sum(pages), sum(times.values())
        if node >= len(pages) or pages[node] < max(MIN_PAGES_BYTES, CONCENTRATED * total) or cpu_time < BUSY_PROCESS:
            continue
        others = sorted(n for n in times if n != node)
        remote = sum(times[n] for n in others) / cpu_time
        if remote < REMOTE_TIME:
            continue
        where = ", ".join(map(recent.name, others))
        on_node = f"{percent(pages[node] / total)} of the pages of {_title(process)} are on {recent.name(node)}"
        if len(times) > 1:
            causes.append(f"first touch: {on_node}, but {percent(remote)} of the CPU time of its threads is on {where}")
        else:
            causes.append(f"remote thread: {on_node}, but it runs on {where}")
    return causes


def _other_process(recent: RecentFrames, node: int) -> list[str]:
    """Return the cause that another process than the owner of most pages on the node is the busiest one there."""
    users = [p for p in recent.processes if node < len(_pages(p)) and _pages(p)[node] >= MIN_PAGES_BYTES]
    if len(users) < 2:
        return []
    total = sum(_pages(p)[node] for p in users)
    owner = max(users, key=lambda p: _pages(p)[node])
    weights = {id(p): _share(p.get("cpu")) * _pages(p)[node] / max(1.0, sum(_pages(p))) for p in users}
    busiest = max(users, key=lambda p: weights[id(p)])
    weight_total = sum(weights.values())
    if busiest is owner or _pages(owner)[node] < total / 2 or weights[id(busiest)] < CONCENTRATED * weight_total:
        return []
    return [
        f"another process: {_title(owner)} has {percent(_pages(owner)[node] / total)} of the listed pages on "
        f"{recent.name(node)}, but {_title(busiest)} uses {percent(weights[id(busiest)] / weight_total)} "
        "of the CPU time that belongs to these pages"
    ]


def _balancing(recent: RecentFrames) -> list[str]:
    """Return the cause that NUMA balancing moves pages although the memory in use of each node stays the same."""
    rate = recent.mean("host.pages_balanced", 0)
    first, last = recent.frames[0], recent.frames[-1]
    seconds = last.t_s - first.t_s
    if rate is None or rate < MIN_BALANCED_HZ or seconds <= 0:
        return []
    changes = []
    for n in range(recent.header.count("node")):
        before, after = first.value("node.used", n), last.value("node.used", n)
        if before is None or after is None:
            return []
        changes.append(abs(after - before))
    if len(changes) < 2 or max(changes) > NET_SHARE * rate * seconds * _PAGE_BYTES:
        return []
    return [
        f"NUMA balancing: it moves {number(rate, 2)} pages/s between nodes, while the memory in use of each node "
        f"changes by at most {show(max(changes), 'B')} in {number(seconds, 2)} s: pages go back and forth"
    ]


def _devices_of_one_node(recent: RecentFrames, devices: Sequence[int]) -> list[str]:
    """Return the cause that requests go to the devices of one node, while other nodes have idle ones of this kind."""
    components = recent.header.components.get("io", ())
    hot = {(components[i].get("node"), components[i].get("kind")) for i in devices}
    node, kind = next(iter(hot))
    if len(hot) != 1 or not isinstance(node, int) or node < 0:
        return []
    uses = recent.means(recent.header.use["io"])
    alike = {i: use for i, use in uses.items() if components[i].get("kind") == kind}
    others = {i: use for i, use in alike.items() if components[i].get("node") not in (None, -1, node)}
    if not others or max(others.values()) > IDLE:
        return []
    total = sum(alike.values())
    share = sum(use for i, use in alike.items() if components[i].get("node") == node) / total
    kinds = {"disk": "disks", "network": "network interfaces"}.get(str(kind), "devices")
    names = ", ".join(str(components[i].get("name", i)) for i in others)
    return [
        f"{kinds} of one node: {recent.name(node)} has {percent(share)} of the use of all {kinds}, while {names} "
        f"{'is' if len(others) == 1 else 'are'} at most {percent(max(others.values()))} busy"
    ]


def _huge_pages(recent: RecentFrames, node: int) -> list[str]:
    huge = recent.means("node.huge")
    total = sum(huge.values())
    if len(huge) < 2 or huge.get(node, 0.0) < max(MIN_PAGES_BYTES, CONCENTRATED * total):
        return []
    share = percent(huge[node] / total)
    return [f"huge pages: {share} of the transparent huge pages ({show(total, 'B')}) are on {recent.name(node)}"]


def _interrupts(recent: RecentFrames) -> list[str]:
    """Return the cause that the CPUs of one node handle most interrupts, of a machine with several nodes."""
    times: dict[int, float] = {}
    for i, share in recent.means("cpu.interrupts").items():
        node = recent.header.components["cpu"][i].get("node")
        if isinstance(node, int):
            times[node] = times.get(node, 0.0) + share
    total = sum(times.values())
    if len(times) < 2 or total < MIN_INTERRUPTS:
        return []
    node = max(times, key=lambda n: times[n])
    if times[node] < CONCENTRATED * total:
        return []
    blocked = recent.mean("host.blocked", 0)
    waiting = f", while {counted(round(blocked), 'task')} wait for I/O" if blocked and round(blocked) else ""
    return [
        f"interrupts: the CPUs of {recent.name(node)} handle {percent(times[node] / total)} of them "
        f"({number(total, 2)} CPUs of time){waiting}"
    ]
