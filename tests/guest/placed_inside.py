"""Runs inside a guest of two nodes: starts programs, observes, changes and restores them, and judges nothing.

    placed_inside.py PLAN OUT

PLAN is JSON: `folder` (for what a change replaces) and `programs`, by name: `cpus`, `node` of the memory, `mib` of each
process, the number of `processes`, and `fix`. OUT gets the answer for each program; with `fix` also
what was done, and the answers afterwards and after the restoration. Each answer has the masks of the processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from booted import answer

from meshmark.explain import answer as answers
from meshmark.explain.change import carry_out, undo
from meshmark.explain.situation import situation
from meshmark.explain.targets import find_target
from meshmark.explain.verdict import judge
from meshmark.machine.sources import from_sysfs
from meshmark.machine.tree import FileTree

OBSERVE_S: Final = 3.0  # on a busy host, an emulated CPU may not run for a second


# A new interpreter, because a fork would share the pages of this one.
WORKER: Final = """
import ctypes, mmap, os, sys
node, mib, processes, *cpus = map(int, sys.argv[1:])
for _ in range(processes - 1):
    if os.fork() == 0:
        break
libc = ctypes.CDLL(None, use_errno=True)
assert libc.syscall(238, 2, ctypes.byref(ctypes.c_ulong(1 << node)), 64) == 0  # set_mempolicy on x86-64: bind
block = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.madvise(15)  # no huge pages
for at in range(0, len(block), 4096):
    block[at] = 1
assert libc.syscall(238, 0, None, 0) == 0
os.sched_setaffinity(0, cpus)
os.write(1, b"1")
while True:
    sum(range(1000))
"""


def started(program: dict[str, Any]) -> int:
    """Start the processes of a program, wait until all compute, and return their parent."""
    words = [program["node"], program["mib"], program["processes"], *program["cpus"]]
    child = subprocess.Popen([sys.executable, "-S", "-c", WORKER, *map(str, words)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.read(program["processes"])
    return child.pid


def observed(name: str) -> tuple[Any, Any, dict[str, Any]]:
    current = situation(from_sysfs(), find_target(FileTree(Path("/")), "process", name), OBSERVE_S, [])
    verdict = judge(current)
    said = answers.answer(current, verdict)
    said["masks"] = {str(p): sorted(os.sched_getaffinity(p)) for p in current.target.processes}
    return current, verdict, said


def tried(program: dict[str, Any]) -> dict[str, Any]:
    parent = started(program)
    try:
        current, verdict, said = observed(str(parent))
        result: dict[str, Any] = {"first": said}
        if program["fix"] and verdict.action is not None:
            result["changes"] = carry_out(current, verdict.action)
            _, _, result["fixed"] = observed(str(parent))
            result["undone"] = undo(current.target)
            _, _, result["restored"] = observed(str(parent))
        return result
    finally:
        for child in find_target(FileTree(Path("/")), "process", str(parent)).processes:
            os.kill(child, signal.SIGKILL)
        os.waitpid(parent, 0)


def gather(plan: dict[str, Any], out: dict[str, Any]) -> None:
    os.environ["XDG_DATA_HOME"] = plan["folder"]
    Path("/proc/sys/kernel/numa_balancing").write_text("0")  # it would move the pages, too
    for name, program in plan["programs"].items():
        out[name] = tried(program)


if __name__ == "__main__":
    answer(gather, {})
