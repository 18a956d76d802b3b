"""Does the operating system do what placing relies on? Each check is ok, wrong or absent, and says what it means.

Read below a root, so that a recorded tree stands in; only the running system is tried: threads are bound, pages are
touched, and programs are started bound and unbound.

Sources: the kernel's documentation (admin-guide/mm/numa_memory_policy, mm/numa, admin-guide/sysctl/vm and kernel,
ABI/stable/sysfs-devices-node), move_pages(2), mbind(2), set_mempolicy_home_node(2); the
scheduling test is that of the study of the Xeon 5500 with LSF (2009), part 3.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from meshmark.errors import MeshmarkError
from meshmark.machine.topology import Topology, from_sysfs
from meshmark.machine.tree import Tree, chosen, format_list, kilobytes, parse_list
from meshmark.native import die_with_parent
from meshmark.place import native

Judged = Literal["ok", "wrong", "absent"]
ORDER: Final[tuple[Judged, ...]] = ("wrong", "absent", "ok")
_NODE, _CPU, _VM, _KERNEL = "sys/devices/system/node", "sys/devices/system/cpu", "proc/sys/vm", "proc/sys/kernel"
_TOUCHED: Final = 8 << 20  # B a test of pages takes
_HELD_S: Final = 0.01  # for so long a bound thread is watched
_MPOL_PREFERRED, _MPOL_BIND = 1, 2
_NO_HUGE_PAGES: Final = 15  # MADV_NOHUGEPAGE
_HOME_NODE: Final = 450  # set_mempolicy_home_node, the same everywhere (Linux 5.17)
_ASKED: Final = 64 << 10  # B that each question for the next node takes
_ORDER_S: Final = 10.0  # at most, for the order of all nodes
_NEARLY: Final = 2  # so much the kernel adds to distances, for a node's CPUs and its number (find_next_best_node)
_LEFT: Final = 64 << 20  # B that a provoked spill leaves available at least, and a twentieth of the memory
_FILLING_S: Final = 60.0  # at most, for one node
# Numbers of mbind and move_pages.
_CALLS: Final = {
    "x86_64": (237, 279),
    "aarch64": (235, 239),
    "riscv64": (235, 239),
    "ppc64le": (259, 301),
    "s390x": (268, 310),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked.

    Attributes:
        found: what it is here; of an absent one, why it could not be checked.
        means: what follows for placing programs, one line.
        remedy: what would change it; empty where nothing need or can be changed.
    """

    name: str
    judged: Judged
    found: str
    means: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        return {
            "name": self.name,
            "judged": self.judged,
            "found": self.found,
            "means": self.means,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the triad: its rate (B/s), the CPUs its threads ran on, their migrations (None: not told), the share
    of its pages on nodes other than those CPUs'."""

    rate: float
    cpus: tuple[int, ...]
    migrations: float | None
    remote_share: float | None


def examine(root: Path = Path("/"), starts: int = 0, threads: int = 0, provoke: bool = False) -> list[Check]:
    """All checks, the wrong ones first.

    Args:
        root: `/`, or a recorded tree with proc and sys, of which only what can be read is checked.
        starts: of the triad, bound and unbound; 0 leaves that test out.
        threads: of the triad; 0: half of the cores.
        provoke: fills each node until it spills.

    Raises:
        MachineError: there is no CPU below the root.
    """
    tree, topology = Tree(root), from_sysfs(root)
    found = [c for check in _PASSIVE for c in check(tree, topology)]
    for name, means, tried in _ACTIVE:
        if not tree.live:
            found.append(Check(name, "absent", "a recorded tree cannot be tried", means))
            continue
        try:
            found.append(tried(topology, means))
        except OSError as why:
            found.append(Check(name, "absent", str(why), means))
    if provoke:
        found.append(_provoked(tree, topology))
    if starts:
        found.append(_scheduling(tree, topology, starts, threads))
    return sorted(found, key=lambda c: ORDER.index(c.judged))


# ------------------------------------------------------------------ what can be read


def _description(tree: Tree, topology: Topology) -> Iterator[Check]:
    means = "what the firmware hides no policy can use: near and far memory look alike"
    name, nodes, packages = "NUMA description", topology.nodes, topology.packages
    if not tree.numbered(_NODE, "node"):
        yield Check(name, "absent", "this kernel shows no NUMA nodes", means, "a kernel with CONFIG_NUMA")
        return
    with_memory = [n for n in nodes if n.memory_bytes != 0]
    shape = f"{len(nodes)} nodes, {len(packages)} packages"
    if len(with_memory) < 2 and len(packages) > 1:
        yield Check(
            name,
            "wrong",
            f"{shape}: the memory of all packages is one node",
            means,
            "in the firmware turn node interleaving off; no numa=off on the kernel's command line",
        )
    elif lost := [c.os_index for c in topology.cpus if c.node is None]:
        yield Check(name, "wrong", f"{shape}: no node has CPUs {format_list(lost)}", means, "update the firmware")
    else:
        yield Check(name, "ok", shape if len(nodes) > 1 else "one node, one package", means)
    yield _distances(topology)


def _distances(topology: Topology) -> Check:
    """ACPI 6.5, 5.2.17: 10 is local, less than 10 is reserved, 255 unreachable."""
    name, means = "node distances", "the kernel spills and policies choose by them"
    remedy = "update the firmware; meshmark place --matrix measured takes measured ones instead"
    table, nodes = topology.distances, topology.nodes
    if len(nodes) < 2:
        return Check(name, "ok", "one node: there are none", means)
    if table is None:
        return Check(name, "wrong", "the nodes have no matrix of distances", means, remedy)
    pairs = [(i, j) for i in range(len(table)) for j in range(len(table)) if i != j]
    if any(table[i][i] != 10 for i in range(len(table))) or any(table[i][j] < 10 for i, j in pairs):
        return Check(name, "wrong", "not a valid SLIT: local must be 10 and remote more", means, remedy)
    if any(table[i][j] == 10 for i, j in pairs):
        return Check(name, "wrong", "flattened: some other node is said to be as near as the own one", means, remedy)
    remote = sorted({table[i][j] for i, j in pairs})
    package = {n.os_index: {c.package for c in topology.cpus if c.node == n.os_index} for n in nodes}
    inside = {table[i][j] for i, j in pairs if _same(package[nodes[i].os_index], package[nodes[j].os_index])}
    across = {table[i][j] for i, j in pairs} - inside
    if inside and any(not _same(package[a.os_index], package[b.os_index]) for a in nodes for b in nodes) and not across:
        return Check(name, "wrong", f"flattened: {remote[0]} within packages and between them", means, remedy)
    doubt = "" if all(table[i][j] == table[j][i] for i, j in pairs) else "; not the same in both directions"
    return Check(name, "ok", f"local 10, remote {', '.join(map(str, remote[:6]))}{doubt}", means)


def _same(a: set[int], b: set[int]) -> bool:
    return bool(a & b)


def _spill(tree: Tree, topology: Topology) -> Iterator[Check]:
    name, means = "spill order", "when a node is full its pages go to these, in this order, without a word"
    table, nodes = topology.distances, topology.nodes
    full = [n for n in _full_nodes(tree) if n in {x.os_index for x in nodes}]
    if len(nodes) < 2:
        yield Check(name, "ok", "one node: nowhere to spill to", means)
        return
    if table is None:
        yield Check(name, "absent", "the nodes have no matrix of distances", means)
        return
    orders = []
    for i, node in enumerate(nodes):
        others = sorted((table[i][j], n.os_index) for j, n in enumerate(nodes) if j != i and n.memory_bytes != 0)
        orders.append(f"{node.os_index}→" + ",".join(str(n) for _, n in others))
    said = "; ".join(orders[:8]) + (" …" if len(orders) > 8 else "")
    if full:
        yield Check(
            name,
            "wrong",
            f"node {format_list(full)} is full now and spills; {said}",
            means,
            "free memory there (meshmark placed PID shows whose), or bind with --memory bind",
        )
    else:
        yield Check(name, "ok", said, means)


def _full_nodes(tree: Tree) -> list[int]:
    """Nodes whose free pages are below the low watermarks of their zones, by /proc/zoneinfo."""
    free: dict[int, int] = {}
    low: dict[int, int] = {}
    node = -1
    for line in (tree.text("proc/zoneinfo") or "").splitlines():
        if found := re.match(r"Node +([0-9]{1,6}), zone", line):
            node = int(found[1])
        elif found := re.match(r" +pages free +([0-9]{1,18})$", line):
            free[node] = free.get(node, 0) + int(found[1])
        elif found := re.match(r" +low +([0-9]{1,18})$", line):
            low[node] = low.get(node, 0) + int(found[1])
    return [n for n in free if low.get(n, 0) and free[n] < low[n]]


def _settings(tree: Tree, topology: Topology) -> Iterator[Check]:
    nodes = len([n for n in topology.nodes if n.memory_bytes != 0])
    name, means = "NUMA balancing", "moves pages after threads: it mends unbound programs and costs bound ones time"
    value = tree.number(f"{_KERNEL}/numa_balancing")
    if value is None:
        yield Check(name, "absent", "not in this kernel, or not to be read", means)
    else:
        also = ", but one node has nothing to balance" if value and nodes < 2 else ""
        advice = "meshmark advise tells for one program; sudo sysctl kernel.numa_balancing=0 turns it off"
        yield Check(name, "ok", ("on" if value else "off") + also, means, advice if value and nodes > 1 else "")
    name, means = "zone reclaim", "if on, a full node throws its page cache away before it spills: programs stall"
    value = tree.number(f"{_VM}/zone_reclaim_mode")
    if value is None:
        yield Check(name, "absent", "not in this kernel, or not to be read", means)
    elif value and nodes > 1:
        yield Check(name, "wrong", f"on ({value})", means, "sudo sysctl vm.zone_reclaim_mode=0")
    else:
        yield Check(name, "ok", "off" if not value else f"on ({value}), but there is one node", means)
    name, means = "transparent huge pages", "never: --pages thp cannot be had; always: programs get them unasked"
    mode = chosen(tree.text("sys/kernel/mm/transparent_hugepage/enabled"))
    if mode is None:
        yield Check(name, "absent", "not in this kernel, or not to be read", means)
    elif mode == "never":
        yield Check(
            name, "wrong", "never", means, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        )
    else:
        yield Check(name, "ok", mode, means)


def _kernel_memory(tree: Tree, topology: Topology) -> Iterator[Check]:
    name, means = "kernel memory per node", "on a crowded node the kernel's own data is remote to all other nodes"
    amounts: dict[int, int] = {}
    for node in (n for n in topology.nodes if n.memory_bytes != 0):
        text = tree.text(f"{_NODE}/node{node.os_index}/meminfo") or ""
        parts = re.findall(r"(?:Slab|KernelStack|PageTables): *([0-9]{1,15}) kB", text)
        if parts:
            amounts[node.os_index] = sum(map(int, parts)) * 1024
    if not amounts:
        yield Check(name, "absent", "the nodes do not tell", means)
        return
    said = ", ".join(f"node {n} {b / 2**20:.0f} MiB" for n, b in list(amounts.items())[:8])
    every = sum(amounts.values())
    crowded = [n for n, b in amounts.items() if len(amounts) > 1 and every and b > (1 + 1 / len(amounts)) / 2 * every]
    if crowded:
        yield Check(
            name,
            "wrong",
            f"{said}: most is on node {crowded[0]}",
            means,
            "start what fills the caches of files on all nodes: meshmark run --memory interleave",
        )
    else:
        yield Check(name, "ok", said, means)


def _cpus(tree: Tree, topology: Topology) -> Iterator[Check]:
    name, means = "SMT", "two threads of one core share it: --slots cores gives a job whole cores"
    per_core = topology.threads_per_core
    yield Check(name, "ok", f"{per_core} threads a core" if per_core > 1 else "one thread a core", means)
    name, means = "isolated CPUs", "nothing is put there unless it is bound, and threads bound to several stay on one"
    isolated = tree.cpus(f"{_CPU}/isolated")
    here = sorted(set(isolated or ()) & set(topology.allowed_cpus))
    if isolated is None:
        yield Check(name, "absent", f"/{_CPU}/isolated is not there", means)
    elif len(here) > 1:
        yield Check(
            name,
            "wrong",
            f"{format_list(here)}: several threads in one mask there share one CPU",
            means,
            "bind one thread to each: meshmark run --each",
        )
    else:
        yield Check(name, "ok", format_list(isolated), means)
    name, means = "offline CPUs", "a CPU that goes away widens the masks of what was bound to it"
    yield Check(name, "ok", format_list(topology.offline_cpus), means)
    name, means = (
        "allowed CPUs",
        "launchers that count from 0 within the cgroup mean other CPUs than the kernel's numbers",
    )
    online = [c.os_index for c in topology.cpus]
    allowed = format_list(topology.allowed_cpus)
    more = "" if len(topology.allowed_cpus) == len(online) else f" of {format_list(online)}"
    yield Check(name, "ok", allowed + more, means)


_PASSIVE: Final[tuple[Callable[[Tree, Topology], Iterator[Check]], ...]] = (
    _description,
    _spill,
    _settings,
    _kernel_memory,
    _cpus,
)


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


def _give_policy(base: int, length: int, policy: int, *nodes: int) -> None:
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


def _where(base: int, length: int) -> dict[int, int]:
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


def _pages_on(*bind_to: int, length: int = _TOUCHED, start_from: int | None = None) -> dict[int, int]:
    """Touches fresh pages and asks the kernel where they are: node, number of pages."""
    with mmap.mmap(-1, length) as memory:
        view = (ctypes.c_char * length).from_buffer(memory)
        base = ctypes.addressof(view)
        try:
            if bind_to:
                _give_policy(base, length, _MPOL_BIND, *bind_to)
            if start_from is not None:
                _start_from(base, length, start_from)
            for at in range(0, length, mmap.PAGESIZE):
                view[at] = b"\1"
            return _where(base, length)
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
            return _pages_on()

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
            found = _pages_on(node.os_index)
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
        found = _pages_on(*left, length=_ASKED, start_from=node if cpu is None else None)
        went = max(found, key=lambda n: found[n])
        if went not in left:
            raise OSError(0, f"pages bound to node {format_list(sorted(left))} went to {went}")
        left.remove(went)
        order.append(went)
    return [*order, *left]


def _order(topology: Topology, means: str) -> Check:
    name, tree, table = "spill order, tried", Tree(Path("/")), topology.distances
    status = re.search(r"^Mems_allowed_list:\s*(\S+)", tree.text("proc/self/status") or "", re.M)
    allowed, full = set(parse_list(status[1])) if status else None, set(_full_nodes(tree))
    usable = [
        n.os_index
        for n in topology.nodes
        if n.memory_bytes != 0 and n.os_index not in full and (allowed is None or n.os_index in allowed)
    ]
    place = {n.os_index: i for i, n in enumerate(topology.nodes)}
    orders: dict[int, list[int]] = {}
    untold: dict[int, str] = {}
    until = time.monotonic() + _ORDER_S
    for node in topology.nodes:
        others = [n for n in usable if n != node.os_index]
        if len(others) < 2 or table is None:
            continue
        if time.monotonic() > until:
            untold[node.os_index] = f"{_ORDER_S:.0f} s were over"
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
        if any(d > min(far[k:]) + _NEARLY for k, d in enumerate(far)):
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


_ACTIVE: Final[tuple[tuple[str, str, Callable[[Topology, str], Check]], ...]] = (
    ("thread affinity", "without it no binding holds", _affinity),
    ("first touch", "a bound thread that initialises its data has it near", _first_touch),
    ("home allocation", "--memory bind puts pages where it says", _home),
    ("spill order, tried", "where pages go when the nodes before are full, to the last", _order),
)


# ------------------------------------------------------------------ a spill, provoked


@dataclass(frozen=True, slots=True)
class Spill:
    """What became of pages that prefer a node: bytes there before others, and of the first elsewhere how many by node.

    `why` tells why none went elsewhere; empty where some did.
    """

    filled: int
    elsewhere: Mapping[int, int]
    why: str = ""


def _room(tree: Tree) -> int:
    """Bytes that may be taken: of what is available, by the machine and by the cgroups, what must be left is off."""
    about = tree.text("proc/meminfo")
    room = (kilobytes(about, "MemAvailable") or 0) - max(_LEFT, (kilobytes(about, "MemTotal") or 0) // 20)
    groups = re.findall(
        r"^[0-9]+:(|memory|[\w,]*,memory|memory,[\w,]*):(/.*)$", tree.text("proc/self/cgroup") or "", re.M
    )
    for version, group in groups:
        top, most, used = (
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            if version
            else ("sys/fs/cgroup", "memory.max", "memory.current")
        )
        at = Path(group.lstrip("/"))
        for each in (at, *at.parents):
            limit, now = tree.number(f"{top}/{each}/{most}"), tree.number(f"{top}/{each}/{used}")
            if limit is not None and now is not None:
                room = min(room, limit - now - _LEFT)
    return room


def _fill(tree: Tree, node: int) -> Spill:
    """Takes pages that prefer a node until some go elsewhere; in a process of its own, which gives them back."""
    blocks: list[mmap.mmap] = []
    filled, until = 0, time.monotonic() + _FILLING_S
    while True:
        free = kilobytes(tree.text(f"{_NODE}/node{node}/meminfo"), "MemFree") or 0
        step = max(4 << 20, min(256 << 20, free // 8)) // mmap.PAGESIZE * mmap.PAGESIZE
        if step > _room(tree):
            return Spill(filled, {}, f"stopped with {filled >> 20} MiB, as too little memory was left")
        if time.monotonic() > until:
            return Spill(filled, {}, f"not full after {_FILLING_S:.0f} s and {filled >> 20} MiB")
        blocks.append(block := mmap.mmap(-1, step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        block.madvise(_NO_HUGE_PAGES)
        base = ctypes.addressof(ctypes.c_char.from_buffer(block))
        _give_policy(base, step, _MPOL_PREFERRED, node)
        ctypes.memset(base, 1, step)
        found = _where(base, step)
        filled += found.pop(node, 0) * mmap.PAGESIZE
        if found:
            return Spill(filled, found)


def _apart(work: Callable[[], Spill]) -> Spill:
    """What `work` answers in a process of its own, which the kernel ends first should memory run out all the same."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            die_with_parent()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
            said = work()
            answer = {
                "filled": said.filled,
                "elsewhere": {str(n): c for n, c in said.elsewhere.items()},
                "why": said.why,
            }
        except BaseException as why:
            answer = {"filled": 0, "elsewhere": {}, "why": getattr(why, "strerror", None) or str(why)}
        os.write(into, json.dumps(answer).encode())
        os._exit(0)
    os.close(into)
    try:
        with os.fdopen(out, "rb") as file:
            data = file.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)  # else it would fill the node to its end
        raise
    finally:
        os.waitpid(child, 0)
    if not data:
        return Spill(0, {}, "the process that filled it was killed")
    raw = json.loads(data)
    return Spill(raw["filled"], {int(n): c for n, c in raw["elsewhere"].items()}, raw["why"])


def _provoked(tree: Tree, topology: Topology) -> Check:
    name, means = "spill, provoked", "a full node's pages go to the nearest node that has room"
    nodes = [n.os_index for n in topology.nodes if n.memory_bytes != 0]
    table = topology.distances
    if not tree.live:
        return Check(name, "absent", "a recorded tree cannot be tried", means)
    if len(nodes) < 2 or table is None:
        why = "one node has memory: nowhere to spill to" if len(nodes) < 2 else "the nodes have no matrix of distances"
        return Check(name, "absent", why, means)
    place = {n.os_index: i for i, n in enumerate(topology.nodes)}
    said: list[str] = []
    wrong: list[int] = []
    seen = 0
    for node in nodes:
        free, room = (kilobytes(tree.text(f"{_NODE}/node{node}/meminfo"), "MemFree") or 0), _room(tree)
        if free > room:
            said.append(f"node {node} not tried: {free >> 20} MiB are free, {max(0, room) >> 20} MiB may be taken")
            continue
        full = set(_full_nodes(tree))
        spill = _apart(partial(_fill, tree, node))
        if spill.why:
            said.append(f"node {node}: {spill.why}")
            continue
        seen += 1
        far = {n: table[place[node]][place[n]] for n in nodes if n != node and (n not in full or n in spill.elsewhere)}
        went = ", ".join(f"{n} (distance {far[n]})" if n in far else f"{n}" for n in sorted(spill.elsewhere))
        said.append(f"node {node} spills to {went} after {spill.filled >> 20} MiB")
        if any(far.get(n, 0) > min(far.values()) + _NEARLY for n in spill.elsewhere):
            wrong.append(node)
    found = "; ".join(said)
    if wrong:
        return Check(
            name,
            "wrong",
            found + f": from node {format_list(wrong)} not to the nearest",
            means,
            "look for node distances that the firmware changed; bind with --memory bind",
        )
    return Check(name, "ok" if seen else "absent", found, means)


# ------------------------------------------------------------------ scheduling quality

# Each thread makes its own arrays after it was started, so that first touch places them, then meets the others.
# The rate counts what this form of the triad (after STREAM) moves: two passes, five operands.
_TRIAD: Final = """
import sys, threading, time
import numpy as np
count, n, passes = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
meet = threading.Barrier(count + 1)
def work():
    a, b, c = np.ones(n), np.ones(n), np.ones(n)
    meet.wait()
    for _ in range(passes):
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)
    meet.wait()
team = [threading.Thread(target=work) for _ in range(count)]
for t in team: t.start()
meet.wait()
began = time.perf_counter()
meet.wait()
print(count * passes * n * 8 * 5 / (time.perf_counter() - began))
"""


def triad(bind: str, threads: int, elements: int, passes: int, node_of: Mapping[int, int]) -> Start:
    """Starts the triad once through `meshmark-place run` and reads back where it was.

    Args:
        bind: none or a policy; elements: of each of a thread's three arrays.

    Raises:
        MeshmarkError: it did not run.
    """
    # A file without a name: whoever is killed leaves nothing.
    with os.fdopen(os.memfd_create("record"), "rb") as record:
        placed = ["-n", str(threads)] if bind != "none" else []
        named = f"/proc/{os.getpid()}/fd/{record.fileno()}"
        done = subprocess.run(
            [
                native.find_place(),
                "run",
                "--bind",
                bind,
                *placed,
                "--verify",
                "--record",
                named,
                "--",
                sys.executable,
                "-c",
                _TRIAD,
                str(threads),
                str(elements),
                str(passes),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=600,
            preexec_fn=die_with_parent,
        )
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        try:
            rate = float(done.stdout)
            lines = [json.loads(x) for x in record.read().splitlines()]
        except ValueError:
            raise MeshmarkError(f"the triad ended with status {done.returncode}: {said}") from None
    from meshmark.place.advise import Candidate, evidence

    note: dict[str, Any] = next(
        (x for x in lines if x.get("type") == "note" and x.get("kind") == "placement"), {"report": {}}
    )
    found, _ = evidence(note, Candidate("triad"), node_of)
    # Its own thread waits for the others; the kernel counts in ticks of 10 ms.
    busy = [t for t in note["report"].get("threads", ()) if t.get("user_s", 0) + t.get("system_s", 0) > 0.03]
    cpus = sorted({c for t in busy for c in parse_list(str(t.get("ran_on", "")).replace("none", ""))})
    return Start(rate, tuple(cpus), found.get("migrations"), found.get("remote_share"))


def told_apart(starts: Sequence[Start], threads: int) -> str:
    """Starts by what happened to them: where their threads ran, and where their pages were."""
    moved = sum(len(s.cpus) > threads for s in starts)
    crowded = sum(0 < len(s.cpus) < threads for s in starts)
    remote = sum((s.remote_share or 0.0) > 0.01 for s in starts)
    clean = sum(len(s.cpus) == threads and (s.remote_share or 0.0) <= 0.01 for s in starts)
    unseen = sum(not s.cpus for s in starts)
    said = [f"{clean} stayed", f"{moved} moved", f"{crowded} shared a CPU", f"{remote} with remote pages"]
    return ", ".join(said + ([f"{unseen} not seen"] if unseen else []))


def spread_of(rates: Sequence[float]) -> tuple[float, float, float]:
    """Mean (in the rates' unit), coefficient of variation, (max - min) / min: of at least two."""
    mean = statistics.fmean(rates)
    return mean, statistics.stdev(rates) / mean, (max(rates) - min(rates)) / min(rates)


def _scheduling(tree: Tree, topology: Topology, starts: int, threads: int) -> Check:
    name = "scheduling quality"
    means = "what the kernel's scheduler costs in spread, start by start; published: 43 % unbound, 0.6 % bound"
    if not tree.live:
        return Check(name, "absent", "a recorded tree cannot be tried", means)
    node_of = {c.os_index: c.node for c in topology.cpus if c.node is not None}
    cores = {c.core for c in topology.cpus if c.os_index in topology.allowed_cpus}
    count = threads or max(1, len(cores) // 2)
    elements, passes = 1 << 21, 12
    runs: dict[str, list[Start]] = {"none": [], "balance": []}
    try:
        for _ in range(starts):
            for bind, found in runs.items():  # by turns, so that what disturbs falls on both
                found.append(triad(bind, count, elements, passes, node_of))
    except (MeshmarkError, subprocess.TimeoutExpired) as why:
        return Check(name, "absent", str(why), means)
    said = []
    for bind, found in runs.items():
        mean, cov, wide = spread_of([s.rate for s in found])
        said.append(
            f"{'unbound' if bind == 'none' else 'bound'}: {mean / 1e9:.3g} GB/s, CoV {100 * cov:.3g} %, spread "
            f"{100 * wide:.3g} % ({told_apart(found, count)})"
        )
    free, bound = (spread_of([s.rate for s in found])[2] for found in runs.values())
    judged: Judged = "wrong" if free > 2 * bound and free > 0.05 else "ok"
    remedy = "bind programs: meshmark run --bind balance" if judged == "wrong" else ""
    return Check(name, judged, f"{starts} starts of {count} threads; " + "; ".join(said), means, remedy)
