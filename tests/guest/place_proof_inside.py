"""Runs inside a guest of two nodes: puts programs wrong, or right, and writes down what was said of them.

    place_proof_inside.py PLAN OUT

PLAN is JSON: `place` (meshmark-place), `library` (libmeshmark-place.so), `repeats` (of every case), `cases` (of the
campaign, by name; none: all), `parts` (campaign, pages, migrate, next_touch). OUT gets a list of answers; nothing is
judged here. The machine is numa-2: CPUs 0 and 1 on node 0, 2 and 3 on node 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
SET_MEMPOLICY, MOVE_PAGES = 238, 279  # x86-64's numbers of the calls; numa-guest knows no other processor
DEFAULT, PREFERRED, BIND = 0, 1, 2
HUGE_PAGE, NO_HUGE_PAGE, POPULATE_WRITE = 14, 15, 23  # of madvise
MAP_HUGETLB, MAP_NORESERVE = 0x40000, 0x4000
NODES = Path("/sys/devices/system/node")
MIB = 1 << 20
ALL = {0, 1, 2, 3}


def policy(kind: int, node: int = 0) -> None:
    mask = ctypes.c_ulong(1 << node)
    words = (None, 0) if kind == DEFAULT else (ctypes.byref(mask), 64)
    if LIBC.syscall(SET_MEMPOLICY, kind, *words) != 0:
        raise OSError(ctypes.get_errno(), "set_mempolicy")


def memory(size: int, advice: int = NO_HUGE_PAGE, flags: int = 0) -> mmap.mmap:
    """Touched private memory under the policy of now."""
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    if not flags:
        block.madvise(advice)
    block.madvise(POPULATE_WRITE)
    return block


def memory_on(node: int, size: int, kind: int = BIND, advice: int = NO_HUGE_PAGE, flags: int = 0) -> mmap.mmap:
    """The same under a policy that is gone afterwards, so that nothing tells of it."""
    policy(kind, node)
    block = memory(size, advice, flags)
    policy(DEFAULT)
    return block


def address(block: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(block))


def pages_at(pid: int, start: int, size: int) -> dict[str, int]:
    """The truth, page by page: node (or negative error) -> pages."""
    count = size // 4096
    pages = (ctypes.c_void_p * count)(*range(start, start + size, 4096))
    status = (ctypes.c_int * count)()
    if LIBC.syscall(MOVE_PAGES, pid, ctypes.c_ulong(count), pages, None, status, 0) != 0:
        raise OSError(ctypes.get_errno(), "move_pages")
    found: dict[str, int] = {}
    for s in status:
        found[str(s)] = found.get(str(s), 0) + 1
    return found


def node_bytes(node: int, what: str) -> int:
    for line in (NODES / f"node{node}" / "meminfo").read_text().splitlines():
        if f" {what}:" in line:
            return 1024 * int(line.split()[3])
    raise ValueError(f"node{node}/meminfo has no {what}")


def free_bytes(node: int) -> int:
    return node_bytes(node, "MemFree")


def wait() -> None:
    """Until the watcher watches."""
    signal.sigwait({signal.SIGUSR1})


def spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def say(tell: int, said: Any = None) -> None:
    os.write(tell, json.dumps(said).encode() + b"\n")


class Child:
    """A process that calls a function, with a descriptor to say something (one object) on, which can be waited for."""

    def __init__(self, function: Callable[[int], None]) -> None:
        self.ready, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            try:
                function(tell)
                signal.pause()
            except BaseException as why:
                say(tell, {"failed": f"{type(why).__name__}: {why}"})
            os._exit(1)
        os.close(tell)

    def said(self) -> Any:
        got = b""
        while not got.endswith(b"\n"):
            more = os.read(self.ready, 1000)
            if not more:
                raise RuntimeError("the program ended without a word")
            got += more
        said = json.loads(got)
        if isinstance(said, dict) and "failed" in said:
            raise RuntimeError(said["failed"])
        return said

    def end(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.ready)


def run(*words: str, user: int = 0) -> dict[str, Any]:
    done = subprocess.run(words, capture_output=True, text=True, check=False, user=user, timeout=120)
    answer: dict[str, Any] = {"status": done.returncode, "talk": done.stderr}
    try:
        answer["said"] = json.loads(done.stdout)
    except ValueError:
        answer["text"] = done.stdout
    return answer


def watched(place: str, pid: int, duration: str, *words: str, then: Callable[[], None] | None = None) -> dict[str, Any]:
    """What `placed` says of a process; once it has files of it open, the process (or `then`) goes on."""
    command = [place, "placed", str(pid), "--duration", duration, "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        while watch.poll() is None and not any(f"/proc/{pid}/task" in link for link in links(watch.pid)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                watch.wait(0.02)
        if then is None:
            os.kill(pid, signal.SIGUSR1)
        else:
            then()
        out, talk = watch.communicate(timeout=120)
    answer: dict[str, Any] = {"status": watch.returncode, "talk": talk}
    if out:
        answer["said"] = json.loads(out)
    return answer


def links(pid: int) -> list[str]:
    try:
        return [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def ranks(masks: list[set[int]]) -> None:
    """Forks busy processes, each with its own mask."""
    for mask in masks:
        if os.fork() == 0:
            os.sched_setaffinity(0, mask)
            spin(60)
            os._exit(0)


def thread_masks(masks: list[set[int]]) -> None:
    def one(mask: set[int]) -> None:
        os.sched_setaffinity(0, mask)
        spin(60)

    for mask in masks:
        threading.Thread(target=one, args=(mask,), daemon=True).start()


# ---------------------------------------------------------------------------------------------------------- campaign
# A case: the words for `placed`, and what the program does; `tell` says that it is in place, and watching begins.


def mask_narrowed(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    os.sched_setaffinity(0, {1})
    spin(60)


def mask_widened(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    os.sched_setaffinity(0, ALL)
    spin(60)


def mask_for_a_moment(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    os.sched_setaffinity(0, {3})
    spin(0.8)  # an emulated machine on a busy one may not look for half a second
    os.sched_setaffinity(0, {0, 1})
    spin(60)


def mask_of_launcher(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    ranks([{0}, {0}])
    say(tell)


def mask_of_threads(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    thread_masks([{0}, {1}])
    say(tell)
    spin(60)


def mask_of_one_thread(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    thread_masks([{0, 1}, {0, 1}, {2}])
    say(tell)
    spin(60)


def doubled_ranks(tell: int) -> None:
    os.sched_setaffinity(0, {0, 2})
    ranks([{0}, {0}])
    say(tell)


def doubled_threads(tell: int) -> None:
    os.sched_setaffinity(0, {0, 2})
    thread_masks([{2}, {2}])
    say(tell)
    signal.pause()


def node_by_policy(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    policy(BIND, 1)
    block = memory(24 * MIB)
    say(tell)
    spin(60)
    block.close()


def node_before_bound(tell: int) -> None:
    os.sched_setaffinity(0, {2})
    block = memory(24 * MIB)
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    spin(60)
    block.close()


def node_while_watched(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    block = memory_on(1, 24 * MIB)
    spin(60)
    block.close()


def spilled(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    wait()
    policy(PREFERRED, 0)
    block = memory(48 * MIB)
    spin(60)
    block.close()


def right_mask(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    spin(60)


def right_ranks(tell: int) -> None:
    os.sched_setaffinity(0, {0, 2})
    ranks([{0}, {2}])
    say(tell)


def right_threads(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    thread_masks([{0, 1}] * 3)
    say(tell)
    for _ in range(1000):  # and short ones that come and go
        worker = threading.Thread(target=spin, args=(0.01,))
        worker.start()
        worker.join()


def right_programs(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    subprocess.run(["sh", "-c", "while :; do /bin/true; done"], check=False)


def right_memory(tell: int) -> None:
    os.sched_setaffinity(0, {2, 3})
    policy(BIND, 1)
    block = memory(24 * MIB)
    block.close()
    os.dup2(tell, 9)
    os.execv("/bin/sh", ["sh", "-c", "echo null >&9; while :; do :; done"])


def right_far(tell: int) -> None:
    os.sched_setaffinity(0, {2, 3})
    say(tell)
    spin(60)


def right_growth(tell: int) -> None:
    os.sched_setaffinity(0, {0, 1})
    say(tell)
    blocks = []
    for _ in range(10):
        blocks.append(memory(2 * MIB))
        spin(0.05)
    spin(60)


NEAR, FAR, EACH = ["--cpus", "0,1"], ["--cpus", "2,3"], ["--cpus", "0,2", "--each"]
CASES: dict[str, tuple[str, list[str], Callable[[int], None]]] = {
    "mask narrowed": ("mask_changed", NEAR, mask_narrowed),
    "mask widened": ("mask_changed", NEAR, mask_widened),
    "mask for a moment": ("mask_changed", NEAR, mask_for_a_moment),
    "mask of launcher": ("mask_changed", NEAR, mask_of_launcher),
    "mask of threads": ("mask_changed", NEAR, mask_of_threads),
    "mask of one thread": ("mask_changed", NEAR, mask_of_one_thread),
    "doubled ranks": ("doubled", EACH, doubled_ranks),
    "doubled threads": ("doubled", EACH, doubled_threads),
    "node by policy": ("wrong_node", [*NEAR, "--nodes", "0"], node_by_policy),
    "node before bound": ("wrong_node", [*NEAR, "--nodes", "0"], node_before_bound),
    "node while watched": ("wrong_node", [*NEAR, "--nodes", "0"], node_while_watched),
    "spilled": ("spilled", [*NEAR, "--nodes", "0"], spilled),
    "right mask": ("", [*NEAR, "--nodes", "0"], right_mask),
    "right ranks": ("", EACH, right_ranks),
    "right threads": ("", NEAR, right_threads),
    "right programs": ("", [*NEAR, "--nodes", "0"], right_programs),
    "right memory": ("", [*FAR, "--nodes", "1"], right_memory),
    "right growth": ("", [*NEAR, "--nodes", "0"], right_growth),
}


def hog() -> Child:
    """Takes what node 0 has, but for a little."""

    def take(tell: int) -> None:
        os.sched_setaffinity(0, {0})
        # Else the kernel makes room from files while the program fills what is left, and nothing need spill.
        Path("/proc/sys/vm/drop_caches").write_text("1")
        block = memory_on(0, (free_bytes(0) - 24 * MIB) // MIB * MIB)
        say(tell, free_bytes(0))
        signal.pause()
        block.close()

    child = Child(take)
    child.said()
    return child


def campaign(plan: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    # An emulated machine on a busy one is slow: what is injected must happen while it is watched.
    began = time.monotonic()
    memory_on(1, 48 * MIB).close()
    watch = f"{2 + 6 * (time.monotonic() - began):.1f}s"
    # Spills last: whoever fills the node is there only then.
    wanted = sorted(plan.get("cases") or CASES, key=lambda c: c == "spilled")
    for name in wanted:
        injected, words, function = CASES[name]
        full = hog() if injected == "spilled" else None
        for _ in range(plan["repeats"]):
            child = Child(function)
            try:
                child.said()
                answer = watched(plan["place"], child.pid, watch, *words)
            finally:
                child.end()
            found.append({"case": name, "injected": injected, **answer})
        if full is not None:
            full.end()
    return found


# ------------------------------------------------------------------------------------------------------------- pages


def pages(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """What is told of pages before and after a program took so much on either node, and the truth of what it took."""
    found = []
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
            # Explicit huge pages answer for every 4 KiB of theirs, too.
            truth = [pages_at(child.pid, start, size) for start, size in blocks]
        finally:
            child.end()
        found.append({"name": name, "sizes": sizes, "before": before, "after": after, "truth": truth})
    for node in (0, 1):
        (NODES / f"node{node}/hugepages/hugepages-2048kB/nr_hugepages").write_text("0")
    return found


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
    place, found, size = plan["place"], {}, 32 * MIB

    def moved(
        name: str, *words: str, advice: int = NO_HUGE_PAGE, forks: bool = False, user: int = 0, held: int = size
    ) -> None:
        child, start = holder(1, held, advice, forks)
        try:
            answer = run(place, "migrate", str(child.pid), "--json", *words, user=user)
            found[name] = {**answer, "truth": pages_at(child.pid, start, held)}
            found[name]["cpus"] = sorted(os.sched_getaffinity(child.pid))
        finally:
            child.end()

    moved("small", "--to", "0")
    moved("thp", "--to", "0", advice=HUGE_PAGE)
    moved("there", "--to", "1")
    moved("from", "--to", "0", "--from", "0")
    moved("dealt", "--to", "0,1")
    moved("shared", "--to", "0", forks=True)
    moved("shared too", "--to", "0", "--shared", forks=True)
    moved("threads", "--to", "0", "--with-threads")
    moved("stranger", "--to", "0", user=65534)
    moved("no such node", "--to", "9")
    touched = [0, 3 * MIB, 2 << 30, (4 << 30) - 4096]

    def hold_sparse(tell: int) -> None:
        block = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        block.madvise(NO_HUGE_PAGE)
        policy(BIND, 1)
        for at in touched:
            block[at] = 1
        say(tell, address(block))
        signal.pause()

    child = Child(hold_sparse)
    try:
        start = int(child.said())
        found["sparse"] = run(place, "migrate", str(child.pid), "--json", "--to", "0", "--from", "1")
        found["sparse"]["nodes"] = [pages_at(child.pid, start + at, 4096) for at in touched]
    finally:
        child.end()
    full = hog()
    try:
        # More than the kernel could make room for by giving up its cache of files.
        moved("full", "--to", "0", held=free_bytes(0) + node_bytes(0, "FilePages") + size)
    finally:
        full.end()
    found["gone"] = run(place, "migrate", "4194303", "--to", "0")
    found["gone placed"] = run(place, "placed", "4194303")

    group = Path("/sys/fs/cgroup/proof")
    (group.parent / "cgroup.subtree_control").write_text("+cpuset")
    group.mkdir(exist_ok=True)
    (group / "cpuset.mems").write_text("1")
    child, _ = holder(1, size)
    try:
        (group / "cgroup.procs").write_text(str(child.pid))
        found["cpuset"] = run(place, "migrate", str(child.pid), "--to", "0")
        (group / "cpuset.cpus").write_text("2-3")
        found["relative"] = run(place, "placed", str(child.pid), "--duration", "0.1s", "--json")
    finally:
        child.end()
    child = Child(right_mask)
    try:
        child.said()

        def into_group() -> None:
            (group / "cpuset.cpus").write_text("0")
            (group / "cpuset.mems").write_text("0")
            (group / "cgroup.procs").write_text(str(child.pid))

        found["cgroup"] = watched(place, child.pid, "1s", "--cpus", "0-1", then=into_group)
        found["cgroup before"] = run(place, "placed", str(child.pid), "--duration", "0.3s", "--cpus", "0-1", "--json")
    finally:
        child.end()
    child = Child(right_far)
    online = Path("/sys/devices/system/cpu/cpu3/online")

    def go_offline() -> None:
        online.write_text("0")

    try:
        child.said()
        found["offline"] = watched(place, child.pid, "1s", "--cpus", "2-3", then=go_offline)
    finally:
        online.write_text("1")
        child.end()
    return found


# -------------------------------------------------------------------------------------------------------- next touch


class Counts(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulong) for n in ("touched", "moved", "kept", "lost")]


def next_touch(plan: dict[str, Any]) -> dict[str, Any]:
    """Two threads, one a node, each touch their half of memory that is on one node."""

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
        for at in range(0, size, 4096):
            ctypes.memmove(start + at, at.to_bytes(4, "little"), 4)
        policy(DEFAULT)

        def nodes(begin: int, end: int) -> dict[str, int]:
            seen: dict[str, int] = {}
            for at in range(begin, end, 4096):
                n = str(api.mm_where(start + at))
                seen[n] = seen.get(n, 0) + 1
            return seen

        found: dict[str, Any] = {"before": nodes(0, size)}
        found["marked"] = api.mm_next_touch(start, size)
        wrong: list[int] = []

        def touch(cpu: int, begin: int, end: int) -> None:
            os.sched_setaffinity(0, {cpu})
            pages = range(begin, end, 4096)
            wrong.extend(at for at in pages if ctypes.string_at(start + at, 4) != at.to_bytes(4, "little"))

        workers = [threading.Thread(target=touch, args=w) for w in ((0, 0, size // 2), (3, size // 2, size))]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        counts = Counts()
        api.mm_next_touch_count(ctypes.byref(counts))
        found |= {
            "first": nodes(0, size // 2),
            "second": nodes(size // 2, size),
            "wrong": wrong,
            "counts": [counts.touched, counts.moved, counts.kept, counts.lost],
        }
        again = api.mm_next_touch(start, size)
        os.sched_setaffinity(0, {2})
        for at in range(0, size, 4096):
            ctypes.memset(start + at, 1, 1)
        found |= {"again": again, "after again": nodes(0, size)}
        found["left"] = api.mm_migrate(start, size, 0)
        found["migrated"] = nodes(0, size)
        return found

    found = {}
    # It would bring pages to who prepares them before they are marked.
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    for name, advice in (("small", NO_HUGE_PAGE), ("thp", HUGE_PAGE)):
        done = Path("/tmp/next-touch")

        def write(tell: int, advice: int = advice, done: Path = done) -> None:
            done.write_text(json.dumps(case(advice)))
            say(tell)

        child = Child(write)
        child.said()
        child.end()
        found[name] = json.loads(done.read_text())
    return found


def main() -> None:
    near = {0, 1}
    if os.sched_getaffinity(0) != near:  # what children inherit shall be on node 0
        os.sched_setaffinity(0, near)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    plan = json.loads(Path(sys.argv[1]).read_text())
    answers: dict[str, Any] = {}
    for part in plan["parts"]:
        try:
            answers[part] = {"campaign": campaign, "pages": pages, "migrate": migrate, "next_touch": next_touch}[part](
                plan
            )
        except Exception as why:  # the host's side shows it
            answers[part] = {"failed": f"{type(why).__name__}: {why}"}
        Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
