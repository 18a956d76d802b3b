"""Runs inside a guest: changes it while the sampler watches, and judges nothing.

    watch_inside.py PLAN OUT

PLAN is JSON: `watch` (the sampler), `far` (a node that has memory), `bytes` (held there), `unplug` (a CPU that is
taken offline and brought back), `step_s` (the wall clock is set this far ahead, then as far back), `rate` (Hz). OUT
gets the `lines` of the sampler, its `status` and messages, and `marks`: the number of the frame by which an action
was complete.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from booted import answer

SET_MEMPOLICY = 238  # system call number of x86-64; numa-guest supports no other processor
PREFERRED, BIND = 1, 2
NO_HUGE_PAGE, POPULATE_WRITE = 15, 23  # arguments of madvise
NODES = Path("/sys/devices/system/node")


def memory(node: int, policy: int, size: int) -> mmap.mmap:
    """Return touched memory under a policy, in small pages: the kernel counts a huge page as one page."""
    mask = ctypes.c_ulong(1 << node)
    if ctypes.CDLL(None, use_errno=True).syscall(SET_MEMPOLICY, policy, ctypes.byref(mask), 64) != 0:
        raise OSError(ctypes.get_errno(), "set_mempolicy")
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(NO_HUGE_PAGE)
    block.madvise(POPULATE_WRITE)
    return block


def free_bytes(node: int) -> int:
    for line in (NODES / f"node{node}" / "meminfo").read_text().splitlines():
        if "MemFree:" in line:
            return 1024 * int(line.split()[3])
    raise ValueError(f"node{node}/meminfo has no MemFree")


class Program:
    """A process on CPU 0 that holds memory under a policy, and then spins or ends."""

    def __init__(self, node: int, policy: int, size: int, spin: bool) -> None:
        ready, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.sched_setaffinity(0, {0})
            try:
                block = memory(node, policy, size)
                os.write(write_end, b"ok")
                while spin:
                    block[0] = 1
                signal.pause()
            except BaseException as error:
                os.write(write_end, f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        os.close(write_end)
        data = os.read(ready, 1000).decode()
        os.close(ready)
        if data != "ok":
            os.waitpid(self.pid, 0)
            raise RuntimeError(data or "the program ended without a word")

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Watch:
    def __init__(self, sampler: str, rate: float) -> None:
        self.process = subprocess.Popen(
            [sampler, "--rate", str(rate)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout.fileno()
        # Nothing reads while a program fills its memory, which takes seconds on a busy host, and the sampler drops
        # frames that its reader does not take: the largest pipe holds a minute of them.
        fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
        self.torn = b""
        self.lines: list[dict[str, Any]] = []
        while not self.lines:
            self.read()

    def read(self) -> None:
        data = os.read(self.pipe, 1 << 16)
        if not data:
            assert self.process.stderr is not None
            raise RuntimeError(f"the sampler ended: {self.process.stderr.read().decode()}")
        *complete, self.torn = (self.torn + data).split(b"\n")
        self.lines += [json.loads(text) for text in complete]

    def next(self, count: int = 1) -> int:
        """Wait for `count` new frames, and return the number of the last one.

        The second of them covers all that was done before the call: the window of the first one began before it.
        """
        while select.select([self.pipe], [], [], 0)[0]:
            self.read()
        line_count = len(self.lines) + count
        while len(self.lines) < line_count:
            self.read()
        return int(self.lines[line_count - 1]["seq"])

    def placed(self, pid: int) -> int | None:
        """Return the number of the newest frame that states where the pages of a process are; None if no frame does."""
        for line in reversed(self.lines):
            if any(p["pid"] == pid and p.get("nodes") for p in line.get("processes", [])):
                return int(line["seq"])
        return None

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        remaining_lines, messages = self.process.communicate(timeout=120)
        self.lines += [json.loads(text) for text in (self.torn + remaining_lines).splitlines()]
        return self.process.returncode, messages.decode()


def gather(plan: dict[str, Any], answers: dict[str, Any]) -> None:
    far_node, size, marks = plan["far"], plan["bytes"], answers["marks"]
    watch = Watch(plan["watch"], plan["rate"])
    answers["lines"] = watch.lines
    try:
        marks["quiet"] = watch.next(4)

        program = Program(far_node, BIND, size, spin=True)
        answers["program"] = program.pid
        marks["held"] = watch.next(2)
        deadline_s = time.monotonic() + 300  # two scans of the processes: 2 s apart, or 200 times the duration of one
        while time.monotonic() < deadline_s:
            marks["seen"] = watch.next()
            report = watch.placed(program.pid)
            if report is not None:  # perhaps later than the expected frame: a slow guest reads several at once
                marks["seen"] = max(marks["seen"], report)
                break
        free_while_held = free_bytes(far_node)
        program.end()
        # Its memory is freed later if the sampler is reading its page tables at that moment.
        while free_bytes(far_node) < free_while_held + size // 2 and time.monotonic() < deadline_s:
            watch.next()
        marks["ended"] = watch.next(2)

        # More than the free memory of the node: the rest is elsewhere though it was requested here.
        size = free_bytes(far_node) + plan["bytes"] // 2
        answers["wanted"] = size
        Program(far_node, PREFERRED, size, spin=False).end()
        marks["overflowed"] = watch.next(3)

        switch = Path(f"/sys/devices/system/cpu/cpu{plan['unplug']}/online")
        switch.write_text("0")
        marks["offline"] = watch.next(2)
        marks["still_offline"] = watch.next(10)
        switch.write_text("1")
        marks["online"] = watch.next(4)

        for name, step in (("ahead", plan["step_s"]), ("back", -2 * plan["step_s"])):
            marks[f"before_{name}"] = watch.next()
            time.clock_settime(time.CLOCK_REALTIME, time.time() + step)
            marks[name] = watch.next(4)
    finally:
        answers["status"], answers["talk"] = watch.end()


if __name__ == "__main__":
    answer(gather, {"marks": {}})
