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

from meshmark.doctor.finding import HostFinding
from meshmark.doctor.settings import NEARLY, full_nodes
from meshmark.machine.topology import Topology
from meshmark.machine.tree import FileTree, format_list, parse_list

_TOUCHED: Final = 8 << 20  # B touched per test
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
    """Run `work` in a new thread, so that its binding ends with the thread."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _affinity(topology: Topology, means: str) -> HostFinding:
    libc = ctypes.CDLL(None, use_errno=True)

    def bind(cpu: int) -> bool:
        os.sched_setaffinity(0, {cpu})
        deadline = time.monotonic() + _HELD_S
        while time.monotonic() < deadline:
            if libc.sched_getcpu() != cpu:
                return False
            time.sleep(0)
        return os.sched_getaffinity(0) == {cpu}

    failed_cpus = [cpu for cpu in topology.allowed_cpus if not _in_thread(partial(bind, cpu))]
    name = "thread affinity"
    if failed_cpus:
        return HostFinding(
            name,
            f"a thread bound to CPU {format_list(failed_cpus)} ran elsewhere",
            "wrong",
            means,
            "check for a daemon that moves tasks, or a sandbox that ignores sched_setaffinity",
        )
    return HostFinding(name, f"set, read back and kept on {len(topology.allowed_cpus)} CPUs", "ok", means)


def _calls() -> tuple[int, int]:
    numbers = _CALLS.get(platform.machine())
    if numbers is None:
        raise OSError(f"system call numbers of {platform.machine()} are unknown")
    return numbers


def give_policy(base: int, length: int, policy: int, *nodes: int) -> None:
    """Set the policy of a range of memory with mbind(2)."""
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
    """Return the number of touched pages by node, from move_pages(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    count = length // mmap.PAGESIZE
    pages = (ctypes.c_void_p * count)(*range(base, base + length, mmap.PAGESIZE))
    status = (ctypes.c_int * count)()
    if libc.syscall(_calls()[1], 0, ctypes.c_ulong(count), pages, None, status, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"move_pages: {os.strerror(number)}")
    counts: dict[int, int] = {}
    for node in status:
        counts[node] = counts.get(node, 0) + 1
    return counts


def _start_from(base: int, length: int, node: int) -> None:
    """Make the kernel allocate as if the thread ran on this node, with set_mempolicy_home_node(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_HOME_NODE, ctypes.c_void_p(base), ctypes.c_ulong(length), ctypes.c_ulong(node), ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        old = number == errno.ENOSYS
        raise OSError(number, "it has no CPU, which needs Linux 5.17" if old else os.strerror(number))


def pages_touched(*bind_to: int, length: int = _TOUCHED, start_from: int | None = None) -> dict[int, int]:
    """Touch new pages and return the number of pages by node."""
    with mmap.mmap(-1, length) as memory:
        view = (ctypes.c_char * length).from_buffer(memory)
        base = ctypes.addressof(view)
        try:
            if bind_to:
                give_policy(base, length, _MPOL_BIND, *bind_to)
            if start_from is not None:
                _start_from(base, length, start_from)
            for offset in range(0, length, mmap.PAGESIZE):
                view[offset] = b"\1"
            return node_of_pages(base, length)
        finally:
            del view


def _first_touch(topology: Topology, means: str) -> HostFinding:
    name = "first touch"
    problems: list[str] = []
    tested_nodes: list[int] = []
    for node in topology.nodes:
        cpus = sorted(set(node.cpus) & set(topology.allowed_cpus))
        if not cpus or node.memory_bytes == 0:
            continue

        def touch(cpu: int = cpus[0]) -> dict[int, int]:
            os.sched_setaffinity(0, {cpu})
            return pages_touched()

        tested_nodes.append(node.os_index)
        pages_by_node = _in_thread(touch)
        misplaced = sum(c for n, c in pages_by_node.items() if n != node.os_index)
        if misplaced:
            problems.append(
                f"{100 * misplaced / sum(pages_by_node.values()):.1f} % of the pages touched on node "
                f"{node.os_index} are elsewhere"
            )
    if not tested_nodes:
        return HostFinding(name, "no node has both memory and an allowed CPU", "unknown", means)
    if problems:
        return HostFinding(
            name,
            "; ".join(problems),
            "wrong",
            means,
            "check for an inherited policy (numactl --show); set it with meshmark run --memory local",
        )
    suffix = ", the only one" if len(topology.nodes) == 1 else ""
    return HostFinding(
        name, f"pages are on the node of the first touch: {format_list(tested_nodes)}{suffix}", "ok", means
    )


def _home(topology: Topology, means: str) -> HostFinding:
    name = "home allocation"
    problems: list[str] = []
    refusals: dict[int, str] = {}
    nodes = [n for n in topology.nodes if n.memory_bytes != 0]
    for node in nodes:
        try:
            pages_by_node = pages_touched(node.os_index)
        except OSError as error:
            refusals[node.os_index] = str(error.strerror or error)
            continue
        misplaced = sum(c for n, c in pages_by_node.items() if n != node.os_index)
        if misplaced:
            problems.append(
                f"{100 * misplaced / sum(pages_by_node.values()):.1f} % of the pages bound to node {node.os_index}"
            )
    if problems:
        return HostFinding(
            name, "; ".join(problems) + " are elsewhere", "wrong", means, "meshmark placed PID; update the kernel"
        )
    if len(refusals) == len(nodes):
        return HostFinding(name, next(iter(refusals.values()), "no node has memory"), "unknown", means)
    suffix = f"; refused: {'; '.join(refusals.values())}" if refusals else ""
    bound_nodes = format_list([n.os_index for n in nodes if n.os_index not in refusals])
    return HostFinding(name, f"bound pages are on their node: {bound_nodes}{suffix}", "ok", means)


def _next_nodes(node: int, cpu: int | None, others: Sequence[int]) -> list[int]:
    """Return all other nodes, in the order in which the kernel spills to them from a node.

    No node needs to be full: pages bound to a set of nodes are allocated on the first of these nodes in this order.

    Args:
        cpu: An allowed CPU of the node; None if no CPU of the node is allowed.
        others: The other nodes.

    Raises:
        OSError: The kernel does not support the query, or refuses it.
    """
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    candidates, order = set(others), list[int]()
    while len(candidates) > 1:
        pages_by_node = pages_touched(*candidates, length=_QUERY_BYTES, start_from=node if cpu is None else None)
        target = max(pages_by_node, key=lambda n: pages_by_node[n])
        if target not in candidates:
            raise OSError(0, f"pages bound to node {format_list(sorted(candidates))} went to {target}")
        candidates.remove(target)
        order.append(target)
    return [*order, *candidates]


def fallback_order(topology: Topology, means: str) -> HostFinding:
    """Return a finding about whether pages of each full node would go to other nodes in the order of their distance.

    Args:
        topology: Topology of this host.
        means: Text that says how the order matters.
    """
    name, tree, table = "spill order, tried", FileTree(Path("/")), topology.distances
    status = re.search(r"^Mems_allowed_list:\s*(\S+)", tree.text("proc/self/status") or "", re.M)
    allowed, full = set(parse_list(status[1])) if status else None, set(full_nodes(tree))
    usable_nodes = [
        n.os_index
        for n in topology.nodes
        if n.memory_bytes != 0 and n.os_index not in full and (allowed is None or n.os_index in allowed)
    ]
    index_by_node = {n.os_index: i for i, n in enumerate(topology.nodes)}
    orders: dict[int, list[int]] = {}
    test_errors: dict[int, str] = {}
    deadline = time.monotonic() + MAX_ORDER_S
    for node in topology.nodes:
        other_nodes = [n for n in usable_nodes if n != node.os_index]
        if len(other_nodes) < 2 or table is None:
            continue
        if time.monotonic() > deadline:
            test_errors[node.os_index] = f"time limit of {MAX_ORDER_S:.0f} s"
            continue
        cpus = sorted(set(node.cpus) & set(topology.allowed_cpus))
        try:
            orders[node.os_index] = _in_thread(
                partial(_next_nodes, node.os_index, cpus[0] if cpus else None, other_nodes)
            )
        except OSError as error:
            test_errors[node.os_index] = error.strerror or str(error)
    if not orders and not test_errors:
        reason = "the nodes have no matrix of distances" if table is None else "no node has two others with free memory"
        return HostFinding(name, reason, "unknown", means)
    untested_text = "; ".join(f"node {n} not tested: {error}" for n, error in list(test_errors.items())[:4])
    if table is None or not orders:
        return HostFinding(name, untested_text, "unknown", means)
    wrong_nodes = []
    for node_number, order in orders.items():
        distances = [table[index_by_node[node_number]][index_by_node[n]] for n in order]
        if any(d > min(distances[k:]) + NEARLY for k, d in enumerate(distances)):
            wrong_nodes.append(node_number)
    shown_nodes = [*wrong_nodes, *(n for n in orders if n not in wrong_nodes)][:8]
    orders_text = "; ".join(f"{n}→{','.join(map(str, orders[n]))}" for n in sorted(shown_nodes))
    orders_text += (" …" if len(orders) > 8 else "") + ("; " + untested_text if untested_text else "")
    if wrong_nodes:
        return HostFinding(
            name,
            f"{orders_text}: from node {format_list(wrong_nodes)} not by distance",
            "wrong",
            means,
            "check whether the firmware changed node distances; bind with --memory bind",
        )
    return HostFinding(name, orders_text, "ok", means)


BY_TRIAL: Final[tuple[tuple[str, str, Callable[[Topology, str], HostFinding]], ...]] = (
    ("thread affinity", "without it no binding is enforced", _affinity),
    ("first touch", "a bound thread that initializes its data has them on its node", _first_touch),
    ("home allocation", "--memory bind allocates pages on the requested nodes", _home),
    ("spill order, tried", "where pages are allocated while the preceding nodes are full", fallback_order),
)
