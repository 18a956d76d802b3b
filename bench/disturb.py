"""Measures whether disturbed measurements are flagged and quiet ones are not: one row per kind of disturbance.

Each measurement is a fresh process: a pointer chase and a triad on one CPU. Meanwhile something disturbs it all the
time. The machine should be quiet otherwise. Migration, pages and faults need root; faults also need a file system
that supports a swap file. Not included: a changing frequency, another guest that takes CPU time, and memory of a
wrong node (`tests/guest/`).

example: .venv/bin/python bench/disturb.py --count 40
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from results import add_row, bench_parser, recording

from meshmark.native import find_native

MEASUREMENTS: Final = {
    "chase": ("latency", "--footprint", "16MiB"),
    "triad": ("bandwidth", "--kernel", "triad", "--threads", "1", "--footprint", "64MiB"),
}
THP: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SWAP_BYTES: Final = 512 << 20
PAGED_OUT: Final = 1 << 17  # bytes at a time
PROCESS_MADVISE: Final = 440  # number of the system call, on every architecture
MADV_PAGEOUT: Final = 21
LIBC: Final = ctypes.CDLL(None, use_errno=True)
Disturbance = Callable[[int], AbstractContextManager[None]]  # its argument is the measured process


def threads_of(process: int) -> list[int]:
    """Return the threads of a process; empty if it has ended."""
    with suppress(OSError):
        return [int(t.name) for t in Path(f"/proc/{process}/task").iterdir()]
    return []


@contextmanager
def running(argv: list[str]) -> Iterator[None]:
    """Run a program during the measurement."""
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            yield
        finally:
            child.kill()


@contextmanager
def repeating(act: Callable[[], None], every_s: float) -> Iterator[None]:
    """Repeat an action until the measurement has ended."""
    stopped = threading.Event()

    def loop() -> None:
        while not stopped.wait(every_s):
            with suppress(OSError):
                act()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def hog(cpu: int) -> Disturbance:
    """Return a disturbance that keeps a CPU busy."""
    return lambda _: running(["taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"])


def memory(cpu: int) -> Disturbance:
    """Return a disturbance that streams memory from a CPU."""
    argv = ["taskset", "-c", str(cpu), *probe("bandwidth", "--kernel", "triad", "--threads", "1", "--cpus", str(cpu))]
    return lambda _: running([*argv, "--footprint", "256MiB", "--budget", "60s"])


def migration(cpus: list[int]) -> Disturbance:
    """Return a disturbance that moves all threads to the next CPU every 20 ms."""

    def begin(process: int) -> AbstractContextManager[None]:
        turn = iter(range(1 << 30))

        def move() -> None:
            cpu = cpus[next(turn) % len(cpus)]
            for thread in threads_of(process):
                os.sched_setaffinity(thread, {cpu})

        time.sleep(0.05)  # earlier, the process would be refused the CPU to which it is no longer bound
        return repeating(move, 0.02)

    return begin


@contextmanager
def swapping() -> Iterator[None]:
    """Provide a swap file until the block ends."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="meshmark-swap-") as file:
        os.posix_fallocate(file.fileno(), 0, SWAP_BYTES)
        subprocess.run(["mkswap", "-q", file.name], check=True)
        subprocess.run(["swapon", file.name], check=True)
        try:
            yield
        finally:
            subprocess.run(["swapoff", file.name], check=True)


def faults(process: int) -> AbstractContextManager[None]:
    """Swap out a part of each large mapping that a process writes to, another part each time."""
    turns = itertools.count()
    handle = os.pidfd_open(process)

    def page_out() -> None:
        offset = next(turns) * PAGED_OUT
        for line in map(str.split, Path(f"/proc/{process}/maps").read_text().splitlines()):
            start, end = (int(address, 16) for address in line[0].split("-"))
            parts = (end - start) // PAGED_OUT
            if line[1] == "rw-p" and parts >= 32:
                vector = (ctypes.c_size_t * 2)(start + offset % (parts * PAGED_OUT), PAGED_OUT)
                LIBC.syscall(PROCESS_MADVISE, handle, vector, 1, MADV_PAGEOUT, 0)

    return repeating(page_out, 0.0005)


@contextmanager
def without_thp() -> Iterator[None]:
    """Switch transparent huge pages off within the context; needs root."""
    setting = THP.read_text().partition("[")[2].partition("]")[0]
    THP.write_text("never")
    try:
        yield
    finally:
        THP.write_text(setting)


def probe(*argv: str) -> list[str]:
    """Return the command line of `meshmark-probe` with these arguments."""
    return [str(find_native("meshmark-probe")), *argv]


def flags_of(name: str, cpu: int, disturb: Disturbance | None, budget: str) -> list[set[str]]:
    """Return the flags of each point of a measurement on a CPU."""
    argv = probe(*MEASUREMENTS[name], "--cpus", str(cpu), "--budget", budget)
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child,
        disturb(child.pid) if disturb else contextlib.nullcontext(),
    ):
        text, _ = child.communicate()
    lines = [json.loads(line) for line in text.splitlines()]
    flags_by_point: dict[str, set[str]] = {}
    for line in lines:
        if line["type"] == "result" and "derived_from" not in line["conditions"]:
            key = json.dumps([line["conditions"].get(k) for k in ("footprint_bytes", "kernel", "store")])
            flags_by_point.setdefault(key, set()).update(line["flags"])
    return list(flags_by_point.values())


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("--count", type=int, default=20, help="measurements of each kind [20]")
    parser.add_argument("--budget", default="1s", help="of each measurement [1s]")
    parser.add_argument("--only", nargs="+", metavar="KIND", help="kinds of disturbance, as printed [all]")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    first_cpu, other = cpus[0], cpus[-1]
    root = os.geteuid() == 0
    kinds: dict[str, tuple[Disturbance | None, set[str]]] = {
        "quiet": (None, set()),
        "hog on the CPU": (hog(first_cpu), {"disturbed", "stolen"}),
        "hog on another CPU": (hog(other), {"disturbed", "stolen"}),
        "memory traffic of another CPU": (memory(other), {"disturbed", "stolen"}),
    }
    if root:
        kinds["moved to another CPU"] = (migration([first_cpu, other]), {"migrated"})
        kinds["pages swapped out"] = (faults, {"faulted"})
    if root and THP.exists():
        kinds["pages of another size"] = (None, {"page_size"})
    if unknown_names := {*(options.only or ())} - kinds.keys():
        parser.error(f"--only: found {sorted(unknown_names)[0]!r}; allowed: {', '.join(kinds)}")
    if options.only:
        kinds = {kind: fixture for kind, fixture in kinds.items() if kind in options.only}
    with recording("Reliability", options):
        count_flags(kinds, first_cpu, options.count, options.budget)


def count_flags(
    kinds: dict[str, tuple[Disturbance | None, set[str]]], first_cpu: int, repetitions: int, budget: str
) -> None:
    """Measure beside each kind of disturbance and print how many points are flagged as expected."""
    fixtures = {"pages of another size": without_thp, "pages swapped out": swapping}
    print(f"{'disturbance':30} {'measured':>8} {'points':>6} {'flagged':>8}  by kind, expected first")
    for kind, (disturb, expected) in kinds.items():
        for name in MEASUREMENTS:
            rows: list[set[str]] = []
            with fixtures.get(kind, contextlib.nullcontext)():
                for _ in range(repetitions):
                    rows += flags_of(name, first_cpu, disturb, budget)
                    time.sleep(0.05)
            flagged_count = sum(bool(f & expected) if expected else bool(f) for f in rows)
            counts = Counter(flag for f in rows for flag in f)
            order = sorted(counts, key=lambda flag: (flag not in expected, -counts[flag]))
            share = 100 * flagged_count / max(1, len(rows))
            text = ", ".join(f"{flag} {counts[flag]}" for flag in order)
            print(f"{kind:30} {name:>8} {len(rows):6d} {share:6.1f} %  {text}", flush=True)
            add_row(
                f"{kind}: {name} flagged" + (" as expected" if expected else ""),
                "%",
                share,
                limits=(95, None) if expected else (None, 2),
                notes=f"of {len(rows)} points; {text}",
            )


if __name__ == "__main__":
    main()
