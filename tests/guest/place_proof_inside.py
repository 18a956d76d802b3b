"""Runs inside a guest of two nodes: places programs wrong or right, and records the reports about them.

    place_proof_inside.py PLAN OUT

PLAN is JSON: `place` (meshmark-place), `library` (libmeshmark-place.so), `repeats` (of every case), `cases` (of the
campaign, by name; empty: all), `parts` (campaign, pages, migrate, next_touch). OUT gets a list of answers; nothing
is judged here. The machine is numa-2: CPUs 0 and 1 on node 0, 2 and 3 on node 1.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from place_proof_campaign import campaign, hog, right_far, right_mask
from place_proof_tools import (
    BIND,
    DEFAULT,
    HUGE_PAGE,
    MAP_HUGETLB,
    MAP_NORESERVE,
    MIB,
    NO_HUGE_PAGE,
    NODES,
    Child,
    address,
    free_bytes,
    memory_on,
    node_bytes,
    pages_at,
    policy,
    run,
    say,
    wait,
    watched,
)

# ------------------------------------------------------------------------------------------------------------- pages


def pages(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the reported pages before and after a program allocated memory on either node, and the true pages."""
    reports = []
    for node in (0, 1):
        (NODES / f"node{node}/hugepages/hugepages-2048kB/nr_hugepages").write_text("8")
    for name, advice, flags in (("small", NO_HUGE_PAGE, 0), ("thp", HUGE_PAGE, 0), ("pool", 0, MAP_HUGETLB)):
        sizes = [12 * MIB, 16 * MIB] if flags else [20 * MIB, 30 * MIB]

        def take(tell: int, sizes: list[int] = sizes, advice: int = advice, flags: int = flags) -> None:
            os.sched_setaffinity(0, {0})
            say(tell)
            wait()
            blocks = [memory_on(n, size, BIND, advice, flags) for n, size in enumerate(sizes)]
            say(tell, [[address(b), len(b)] for b in blocks])
            signal.pause()

        child = Child(take)
        try:
            child.said()
            before = run(plan["place"], "placed", str(child.pid), "--duration", "0.3s", "--json")
            os.kill(child.pid, signal.SIGUSR1)
            blocks = child.said()
            after = run(plan["place"], "placed", str(child.pid), "--duration", "0.3s", "--json")
            # Explicit huge pages report each of their 4 KiB, too.
            truth = [pages_at(child.pid, start, size) for start, size in blocks]
        finally:
            child.end()
        reports.append({"name": name, "sizes": sizes, "before": before, "after": after, "truth": truth})
    for node in (0, 1):
        (NODES / f"node{node}/hugepages/hugepages-2048kB/nr_hugepages").write_text("0")
    return reports


# ----------------------------------------------------------------------------------------------------------- migrate


def holder(node: int, size: int, advice: int = NO_HUGE_PAGE, forks: bool = False) -> tuple[Child, int]:
    def hold(tell: int) -> None:
        block = memory_on(node, size, BIND, advice)
        if forks and os.fork() == 0:
            signal.pause()
        say(tell, address(block))
        signal.pause()

    child = Child(hold)
    return child, int(child.said())


def migrate(plan: dict[str, Any]) -> dict[str, Any]:
    place, outcomes, size = plan["place"], {}, 32 * MIB

    def moved(
        name: str, *words: str, advice: int = NO_HUGE_PAGE, forks: bool = False, user: int = 0, held: int = size
    ) -> None:
        child, start = holder(1, held, advice, forks)
        try:
            answer = run(place, "migrate", str(child.pid), "--json", *words, user=user)
            outcomes[name] = {**answer, "truth": pages_at(child.pid, start, held)}
            outcomes[name]["cpus"] = sorted(os.sched_getaffinity(child.pid))
        finally:
            child.end()

    moved("small", "--to", "0")
    moved("thp", "--to", "0", advice=HUGE_PAGE)
    moved("there", "--to", "1")
    moved("from", "--to", "0", "--from", "0")
    moved("dealt", "--to", "0,1")
    moved("spread", "--to", "0,1", "--spread")
    moved("shared", "--to", "0", forks=True)
    moved("shared too", "--to", "0", "--shared", forks=True)
    moved("threads", "--to", "0", "--with-threads")
    moved("stranger", "--to", "0", user=65534)
    moved("no such node", "--to", "9")
    offsets = [0, 3 * MIB, 2 << 30, (4 << 30) - 4096]

    def hold_sparse(tell: int) -> None:
        block = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        block.madvise(NO_HUGE_PAGE)
        policy(BIND, 1)
        for offset in offsets:
            block[offset] = 1
        say(tell, address(block))
        signal.pause()

    child = Child(hold_sparse)
    try:
        start = int(child.said())
        outcomes["sparse"] = run(place, "migrate", str(child.pid), "--json", "--to", "0", "--from", "1")
        outcomes["sparse"]["nodes"] = [pages_at(child.pid, start + offset, 4096) for offset in offsets]
    finally:
        child.end()
    full = hog()
    try:
        # More than the kernel could free by dropping its cache of files.
        moved("full", "--to", "0", held=free_bytes(0) + node_bytes(0, "FilePages") + size)
    finally:
        full.end()
    outcomes["gone"] = run(place, "migrate", "4194303", "--to", "0")
    outcomes["gone placed"] = run(place, "placed", "4194303")

    group = Path("/sys/fs/cgroup/proof")
    (group.parent / "cgroup.subtree_control").write_text("+cpuset")
    group.mkdir(exist_ok=True)
    (group / "cpuset.mems").write_text("1")
    child, _ = holder(1, size)
    try:
        (group / "cgroup.procs").write_text(str(child.pid))
        outcomes["cpuset"] = run(place, "migrate", str(child.pid), "--to", "0")
        (group / "cpuset.cpus").write_text("2-3")
        outcomes["relative"] = run(place, "placed", str(child.pid), "--duration", "0.1s", "--json")
    finally:
        child.end()
    child = Child(right_mask)
    try:
        child.said()

        def into_group() -> None:
            (group / "cpuset.cpus").write_text("0")
            (group / "cpuset.mems").write_text("0")
            (group / "cgroup.procs").write_text(str(child.pid))

        outcomes["cgroup"] = watched(place, child.pid, "1s", "--cpus", "0-1", then=into_group)
        outcomes["cgroup before"] = run(
            place, "placed", str(child.pid), "--duration", "0.3s", "--cpus", "0-1", "--json"
        )
    finally:
        child.end()
    child = Child(right_far)
    online = Path("/sys/devices/system/cpu/cpu3/online")

    def go_offline() -> None:
        online.write_text("0")

    try:
        child.said()
        outcomes["offline"] = watched(place, child.pid, "1s", "--cpus", "2-3", then=go_offline)
    finally:
        online.write_text("1")
        child.end()
    return outcomes


# -------------------------------------------------------------------------------------------------------- next touch


class Counts(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulong) for n in ("touched", "moved", "kept", "lost")]


def next_touch(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the pages after two threads, one per node, each touched half of a memory area that was on one node."""

    def case(advice: int) -> dict[str, Any]:
        api = ctypes.CDLL(plan["library"], use_errno=True)
        api.mm_where.argtypes = [ctypes.c_void_p]
        api.mm_next_touch.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        api.mm_migrate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        api.mm_migrate.restype = ctypes.c_long
        size = 8 * MIB
        policy(BIND, 1)
        block = mmap.mmap(-1, size + 2 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.madvise(advice)
        start = (address(block) + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)
        for offset in range(0, size, 4096):
            ctypes.memmove(start + offset, offset.to_bytes(4, "little"), 4)
        policy(DEFAULT)

        def nodes(begin: int, end: int) -> dict[str, int]:
            pages_of_thread: dict[str, int] = {}
            for offset in range(begin, end, 4096):
                n = str(api.mm_where(start + offset))
                pages_of_thread[n] = pages_of_thread.get(n, 0) + 1
            return pages_of_thread

        answers_of_case: dict[str, Any] = {"before": nodes(0, size)}
        answers_of_case["marked"] = api.mm_next_touch(start, size)
        problems: list[int] = []

        def touch(cpu: int, begin: int, end: int) -> None:
            os.sched_setaffinity(0, {cpu})
            pages = range(begin, end, 4096)
            problems.extend(
                page_address
                for page_address in pages
                if ctypes.string_at(start + page_address, 4) != page_address.to_bytes(4, "little")
            )

        workers = [threading.Thread(target=touch, args=w) for w in ((0, 0, size // 2), (3, size // 2, size))]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        counts = Counts()
        api.mm_next_touch_count(ctypes.byref(counts))
        answers_of_case |= {
            "first": nodes(0, size // 2),
            "second": nodes(size // 2, size),
            "wrong": problems,
            "counts": [counts.touched, counts.moved, counts.kept, counts.lost],
        }
        answer = api.mm_next_touch(start, size)
        os.sched_setaffinity(0, {2})
        for offset in range(0, size, 4096):
            ctypes.memset(start + offset, 1, 1)
        answers_of_case |= {"again": answer, "after again": nodes(0, size)}
        answers_of_case["left"] = api.mm_migrate(start, size, 0)
        answers_of_case["migrated"] = nodes(0, size)
        return answers_of_case

    answers_by_name = {}
    # It would move pages to the thread that prepares them before they are marked.
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    for name, advice in (("small", NO_HUGE_PAGE), ("thp", HUGE_PAGE)):
        ready = Path("/tmp/next-touch")

        def write(tell: int, advice: int = advice, done: Path = ready) -> None:
            done.write_text(json.dumps(case(advice)))
            say(tell)

        child = Child(write)
        child.said()
        child.end()
        answers_by_name[name] = json.loads(ready.read_text())
    return answers_by_name


def main() -> None:
    near_nodes = {0, 1}
    if os.sched_getaffinity(0) != near_nodes:  # children inherit this, and must be on node 0
        os.sched_setaffinity(0, near_nodes)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    plan = json.loads(Path(sys.argv[1]).read_text())
    answers: dict[str, Any] = {}
    for part in plan["parts"]:
        try:
            answers[part] = {"campaign": campaign, "pages": pages, "migrate": migrate, "next_touch": next_touch}[part](
                plan
            )
        except Exception as error:  # the host shows it
            answers[part] = {"failed": f"{type(error).__name__}: {error}"}
        Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
