"""Tests of binding: bind threads, touch pages, and query the kernel for their location."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from meshmark.doctor.finding import Finding
from meshmark.doctor.settings import NEARLY, full_nodes
from meshmark.machine.topology import Topology
from meshmark.machine.tree import Tree, format_list, parse_list

_TOUCHED: Final = 8 << 20  # B per test of pages
_HELD_S: Final = 0.01  # observation time of a bound thread
MPOL_PREFERRED, _MPOL_BIND = 1, 2
NO_HUGE_PAGES: Final = 15  # MADV_NOHUGEPAGE
_HOME_NODE: Final = 450  # set_mempolicy_home_node, same number on all architectures (Linux 5.17)
_QUERY_BYTES: Final = 64 << 10  # B allocated per query for the next node
MAX_ORDER_S: Final = 10.0  # time limit for the order of all nodes
# System call numbers of mbind and move_pages.
_CALLS: Final = {
    "x86_64": (237, 279),
    "aarch64": (235, 239),
    "riscv64": (235, 239),
    "ppc64le": (259, 301),
    "s390x": (268, 310),
}


def _in_thread(work: Callable[[], Any]) -> Any:
    """Runs `work` in a new thread, so that its binding ends with the thread."""
    answer: list[Any] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            answer.append(work())
        except BaseException as why:
            errors.append(why)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answer[0]


def _affinity(topology: Topology, means: str) -> Finding:
    libc = ctypes.CDLL(None, use_errno=True)

    def bind(cpu: int) -> bool:
        os.sched_setaffinity(0, {cpu})
        end = time.monotonic() + _HELD_S
        while time.monotonic() < end:
            if libc.sched_getcpu() != cpu:
                return False
            time.sleep(0)
        return os.sched_getaffinity(0) == {cpu}

    errors = [cpu for cpu in topology.allowed_cpus if not _in_thread(partial(bind, cpu))]
    name = "thread affinity"
    if errors:
        return Finding(
            name,
            f"a thread bound to CPU {format_list(errors)} ran elsewhere",
            "wrong",
            means,
            "check for a daemon that moves tasks, or a sandbox that ignores sched_setaffinity",
        )
    return Finding(name, f"set, read back and kept on {len(topology.allowed_cpus)} CPUs", "ok", means)


def _calls() -> tuple[int, int]:
    found = _CALLS.get(platform.machine())
    if found is None:
        raise OSError(f"system call numbers of {platform.machine()} are unknown")
    return found


def give_policy(base: int, length: int, policy: int, *nodes: int) -> None:
    """mbind(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    longs = max(nodes) // 64 + 1
    mask = (ctypes.c_ulong * longs)()
    for node in nodes:
        mask[node // 64] |= 1 << node % 64
    # The kernel reads one bit less than maxnode.
    if libc.syscall(
        _calls()[0], ctypes.c_void_p(base), ctypes.c_ulong(length), policy, mask, ctypes.c_ulong(64 * longs + 1), 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, f"mbind to node {format_list(sorted(nodes))}: {os.strerror(number)}")


def node_of_pages(base: int, length: int) -> dict[int, int]:
    """Number of touched pages by node, from move_pages(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    count = length // mmap.PAGESIZE
    pages = (ctypes.c_void_p * count)(*range(base, base + length, mmap.PAGESIZE))
    status = (ctypes.c_int * count)()
    if libc.syscall(_calls()[1], 0, ctypes.c_ulong(count), pages, None, status, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"move_pages: {os.strerror(number)}")
    found: dict[int, int] = {}
    for node in status:
        found[node] = found.get(node, 0) + 1
    return found


def _start_from(base: int, length: int, node: int) -> None:
    """Makes the kernel allocate as if the thread ran on this node: set_mempolicy_home_node(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_HOME_NODE, ctypes.c_void_p(base), ctypes.c_ulong(length), ctypes.c_ulong(node), ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        old = number == errno.ENOSYS
        raise OSError(number, "it has no CPU, which needs Linux 5.17" if old else os.strerror(number))


def pages_touched(*bind_to: int, length: int = _TOUCHED, start_from: int | None = None) -> dict[int, int]:
    """Touches new pages; returns the number of pages by node."""
    with mmap.mmap(-1, length) as memory:
        view = (ctypes.c_char * length).from_buffer(memory)
        base = ctypes.addressof(view)
        try:
            if bind_to:
                give_policy(base, length, _MPOL_BIND, *bind_to)
            if start_from is not None:
                _start_from(base, length, start_from)
            for at in range(0, length, mmap.PAGESIZE):
                view[at] = b"\1"
            return node_of_pages(base, length)
        finally:
            del view


def _first_touch(topology: Topology, means: str) -> Finding:
    name = "first touch"
    elsewhere: list[str] = []
    tried: list[int] = []
    for node in topology.nodes:
        cpus = sorted(set(node.cpus) & set(topology.allowed_cpus))
        if not cpus or node.memory_bytes == 0:
            continue

        def touch(cpu: int = cpus[0]) -> dict[int, int]:
            os.sched_setaffinity(0, {cpu})
            return pages_touched()

        tried.append(node.os_index)
        found = _in_thread(touch)
        away = sum(c for n, c in found.items() if n != node.os_index)
        if away:
            elsewhere.append(
                f"{100 * away / sum(found.values()):.1f} % of the pages touched on node {node.os_index} are elsewhere"
            )
    if not tried:
        return Finding(name, "no node has both memory and an allowed CPU", "unknown", means)
    if elsewhere:
        return Finding(
            name,
            "; ".join(elsewhere),
            "wrong",
            means,
            "check for an inherited policy (numactl --show); set it with meshmark run --memory local",
        )
    one = ", the only one" if len(topology.nodes) == 1 else ""
    return Finding(name, f"pages are on the node of the first touch: {format_list(tried)}{one}", "ok", means)


def _home(topology: Topology, means: str) -> Finding:
    name = "home allocation"
    errors: list[str] = []
    refused: dict[int, str] = {}
    nodes = [n for n in topology.nodes if n.memory_bytes != 0]
    for node in nodes:
        try:
            found = pages_touched(node.os_index)
        except OSError as why:
            refused[node.os_index] = str(why.strerror or why)
            continue
        away = sum(c for n, c in found.items() if n != node.os_index)
        if away:
            errors.append(f"{100 * away / sum(found.values()):.1f} % of the pages bound to node {node.os_index}")
    if errors:
        return Finding(
            name, "; ".join(errors) + " are elsewhere", "wrong", means, "meshmark placed PID; update the kernel"
        )
    if len(refused) == len(nodes):
        return Finding(name, next(iter(refused.values()), "no node has memory"), "unknown", means)
    some = f"; refused: {'; '.join(refused.values())}" if refused else ""
    kept = format_list([n.os_index for n in nodes if n.os_index not in refused])
    return Finding(name, f"bound pages are on their node: {kept}{some}", "ok", means)


def _next_nodes(node: int, cpu: int | None, others: Sequence[int]) -> list[int]:
    """All other nodes, in the order in which the kernel spills to them from a node.

    No node needs to be full: pages bound to a set of nodes are allocated on the first of them in the same order.

    Args:
        node: The node.
        cpu: An allowed CPU of the node; None if it has none.
        others: The other nodes.

    Raises:
        OSError: The kernel does not support the query, or refuses it.
    """
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    left, order = set(others), list[int]()
    while len(left) > 1:
        found = pages_touched(*left, length=_QUERY_BYTES, start_from=node if cpu is None else None)
        spilled_to = max(found, key=lambda n: found[n])
        if spilled_to not in left:
            raise OSError(0, f"pages bound to node {format_list(sorted(left))} went to {spilled_to}")
        left.remove(spilled_to)
        order.append(spilled_to)
    return [*order, *left]


def fallback_order(topology: Topology, means: str) -> Finding:
    name, tree, table = "spill order, tried", Tree(Path("/")), topology.distances
    status = re.search(r"^Mems_allowed_list:\s*(\S+)", tree.text("proc/self/status") or "", re.M)
    allowed, full = set(parse_list(status[1])) if status else None, set(full_nodes(tree))
    usable = [
        n.os_index
        for n in topology.nodes
        if n.memory_bytes != 0 and n.os_index not in full and (allowed is None or n.os_index in allowed)
    ]
    place = {n.os_index: i for i, n in enumerate(topology.nodes)}
    orders: dict[int, list[int]] = {}
    untested: dict[int, str] = {}
    until = time.monotonic() + MAX_ORDER_S
    for node in topology.nodes:
        others = [n for n in usable if n != node.os_index]
        if len(others) < 2 or table is None:
            continue
        if time.monotonic() > until:
            untested[node.os_index] = f"time limit of {MAX_ORDER_S:.0f} s"
            continue
        cpus = sorted(set(node.cpus) & set(topology.allowed_cpus))
        try:
            orders[node.os_index] = _in_thread(partial(_next_nodes, node.os_index, cpus[0] if cpus else None, others))
        except OSError as why:
            untested[node.os_index] = why.strerror or str(why)
    if not orders and not untested:
        why_not = (
            "the nodes have no matrix of distances" if table is None else "no node has two others with free memory"
        )
        return Finding(name, why_not, "unknown", means)
    not_tried = "; ".join(f"node {n} not tested: {why}" for n, why in list(untested.items())[:4])
    if table is None or not orders:
        return Finding(name, not_tried, "unknown", means)
    errors = []
    for node_number, order in orders.items():
        far = [table[place[node_number]][place[n]] for n in order]
        if any(d > min(far[k:]) + NEARLY for k, d in enumerate(far)):
            errors.append(node_number)
    shown = [*errors, *(n for n in orders if n not in errors)][:8]
    orders_text = "; ".join(f"{n}→{','.join(map(str, orders[n]))}" for n in sorted(shown))
    orders_text += (" …" if len(orders) > 8 else "") + ("; " + not_tried if not_tried else "")
    if errors:
        return Finding(
            name,
            f"{orders_text}: from node {format_list(errors)} not by distance",
            "wrong",
            means,
            "check whether the firmware changed node distances; bind with --memory bind",
        )
    return Finding(name, orders_text, "ok", means)


BY_TRIAL: Final[tuple[tuple[str, str, Callable[[Topology, str], Finding]], ...]] = (
    ("thread affinity", "without it no binding is enforced", _affinity),
    ("first touch", "a bound thread that initializes its data has them on its node", _first_touch),
    ("home allocation", "--memory bind allocates pages on the requested nodes", _home),
    ("spill order, tried", "where pages are allocated while the preceding nodes are full", fallback_order),
)
