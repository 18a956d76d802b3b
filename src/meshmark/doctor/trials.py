"""Checks by trial: threads are bound and pages touched, and the kernel is asked where they are."""

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

from meshmark.doctor.check import Check
from meshmark.doctor.settings import NEARLY, full_nodes
from meshmark.machine.topology import Topology
from meshmark.machine.tree import Tree, format_list, parse_list

_TOUCHED: Final = 8 << 20  # B a test of pages takes
_HELD_S: Final = 0.01  # for so long a bound thread is watched
MPOL_PREFERRED, _MPOL_BIND = 1, 2
NO_HUGE_PAGES: Final = 15  # MADV_NOHUGEPAGE
_HOME_NODE: Final = 450  # set_mempolicy_home_node, the same everywhere (Linux 5.17)
_ASKED: Final = 64 << 10  # B that each question for the next node takes
MAX_ORDER_S: Final = 10.0  # at most, for the order of all nodes
# Numbers of mbind and move_pages.
_CALLS: Final = {
    "x86_64": (237, 279),
    "aarch64": (235, 239),
    "riscv64": (235, 239),
    "ppc64le": (259, 301),
    "s390x": (268, 310),
}
# ------------------------------------------------------------------ what has to be tried


def _in_thread(work: Callable[[], Any]) -> Any:
    """What `work` answers on a thread of its own, whose binding ends with it."""
    answer: list[Any] = []
    wrong: list[BaseException] = []

    def body() -> None:
        try:
            answer.append(work())
        except BaseException as why:
            wrong.append(why)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if wrong:
        raise wrong[0]
    return answer[0]


def _affinity(topology: Topology, means: str) -> Check:
    libc = ctypes.CDLL(None, use_errno=True)

    def bind(cpu: int) -> bool:
        os.sched_setaffinity(0, {cpu})
        end = time.monotonic() + _HELD_S
        while time.monotonic() < end:
            if libc.sched_getcpu() != cpu:
                return False
            time.sleep(0)
        return os.sched_getaffinity(0) == {cpu}

    wrong = [cpu for cpu in topology.allowed_cpus if not _in_thread(partial(bind, cpu))]
    name = "thread affinity"
    if wrong:
        return Check(
            name,
            "wrong",
            f"a thread bound to CPU {format_list(wrong)} was seen elsewhere",
            means,
            "look for a daemon that moves tasks, or a sandbox that ignores sched_setaffinity",
        )
    return Check(name, "ok", f"set, read back and kept on {len(topology.allowed_cpus)} CPUs", means)


def _calls() -> tuple[int, int]:
    found = _CALLS.get(platform.machine())
    if found is None:
        raise OSError(f"the system calls' numbers of {platform.machine()} are not known")
    return found


def give_policy(base: int, length: int, policy: int, *nodes: int) -> None:
    """mbind(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = max(nodes) // 64 + 1
    mask = (ctypes.c_ulong * words)()
    for node in nodes:
        mask[node // 64] |= 1 << node % 64
    # The kernel reads one bit less than it is told of.
    if libc.syscall(
        _calls()[0], ctypes.c_void_p(base), ctypes.c_ulong(length), policy, mask, ctypes.c_ulong(64 * words + 1), 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, f"mbind to node {format_list(sorted(nodes))}: {os.strerror(number)}")


def node_of_pages(base: int, length: int) -> dict[int, int]:
    """Number of touched pages by node, by move_pages(2)."""
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
    """The kernel looks for pages from this node on, whichever one the toucher runs on: set_mempolicy_home_node(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_HOME_NODE, ctypes.c_void_p(base), ctypes.c_ulong(length), ctypes.c_ulong(node), ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        old = number == errno.ENOSYS
        raise OSError(number, "no CPU there, which takes Linux 5.17" if old else os.strerror(number))


def pages_touched(*bind_to: int, length: int = _TOUCHED, start_from: int | None = None) -> dict[int, int]:
    """Touches fresh pages and asks the kernel where they are: node, number of pages."""
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


def _first_touch(topology: Topology, means: str) -> Check:
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
                f"of pages touched from node {node.os_index}, {100 * away / sum(found.values()):.1f} % are elsewhere"
            )
    if not tried:
        return Check(name, "absent", "no node has both memory and a CPU that is allowed here", means)
    if elsewhere:
        return Check(
            name,
            "wrong",
            "; ".join(elsewhere),
            means,
            "numactl --show tells of an inherited policy; meshmark run --memory local sets it",
        )
    one = ", the only one" if len(topology.nodes) == 1 else ""
    return Check(name, "ok", f"pages lie on the toucher's node: {format_list(tried)}{one}", means)


def _home(topology: Topology, means: str) -> Check:
    name = "home allocation"
    wrong: list[str] = []
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
            wrong.append(f"{100 * away / sum(found.values()):.1f} % of the pages bound to node {node.os_index}")
    if wrong:
        return Check(
            name, "wrong", "; ".join(wrong) + " are elsewhere", means, "meshmark placed PID; update the kernel"
        )
    if len(refused) == len(nodes):
        return Check(name, "absent", next(iter(refused.values()), "no node has memory"), means)
    some = f"; refused: {'; '.join(refused.values())}" if refused else ""
    kept = format_list([n.os_index for n in nodes if n.os_index not in refused])
    return Check(name, "ok", f"bound pages lie on their node: {kept}{some}", means)


def _next_nodes(node: int, cpu: int | None, others: Sequence[int]) -> list[int]:
    """All others in the order in which the kernel would spill to them from a node.

    Nothing need be filled for that: pages bound to some nodes go to the first of them in that very order.

    Args:
        cpu: of that node, on which to ask; None: it has none that is allowed.

    Raises:
        OSError: the kernel does not tell, or refuses.
    """
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    left, order = set(others), list[int]()
    while len(left) > 1:
        found = pages_touched(*left, length=_ASKED, start_from=node if cpu is None else None)
        went = max(found, key=lambda n: found[n])
        if went not in left:
            raise OSError(0, f"pages bound to node {format_list(sorted(left))} went to {went}")
        left.remove(went)
        order.append(went)
    return [*order, *left]


def fallback_order(topology: Topology, means: str) -> Check:
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
    untold: dict[int, str] = {}
    until = time.monotonic() + MAX_ORDER_S
    for node in topology.nodes:
        others = [n for n in usable if n != node.os_index]
        if len(others) < 2 or table is None:
            continue
        if time.monotonic() > until:
            untold[node.os_index] = f"{MAX_ORDER_S:.0f} s were over"
            continue
        cpus = sorted(set(node.cpus) & set(topology.allowed_cpus))
        try:
            orders[node.os_index] = _in_thread(partial(_next_nodes, node.os_index, cpus[0] if cpus else None, others))
        except OSError as why:
            untold[node.os_index] = why.strerror or str(why)
    if not orders and not untold:
        why_not = "the nodes have no matrix of distances" if table is None else "no node has two others with room"
        return Check(name, "absent", why_not, means)
    not_tried = "; ".join(f"node {n} not tried: {why}" for n, why in list(untold.items())[:4])
    if table is None or not orders:
        return Check(name, "absent", not_tried, means)
    wrong = []
    for node_number, order in orders.items():
        far = [table[place[node_number]][place[n]] for n in order]
        if any(d > min(far[k:]) + NEARLY for k, d in enumerate(far)):
            wrong.append(node_number)
    shown = [*wrong, *(n for n in orders if n not in wrong)][:8]
    said = "; ".join(f"{n}→{','.join(map(str, orders[n]))}" for n in sorted(shown))
    said += (" …" if len(orders) > 8 else "") + ("; " + not_tried if not_tried else "")
    if wrong:
        return Check(
            name,
            "wrong",
            f"{said}: from node {format_list(wrong)} not by distance",
            means,
            "look for node distances that the firmware changed; bind with --memory bind",
        )
    return Check(name, "ok", said, means)


BY_TRIAL: Final[tuple[tuple[str, str, Callable[[Topology, str], Check]], ...]] = (
    ("thread affinity", "without it no binding holds", _affinity),
    ("first touch", "a bound thread that initialises its data has it near", _first_touch),
    ("home allocation", "--memory bind puts pages where it says", _home),
    ("spill order, tried", "where pages go when the nodes before are full, to the last", fallback_order),
)
