"""Runs inside a guest: checks its operating system and advises on a program; judges nothing.

    place_advise_inside.py PLAN OUT

PLAN is JSON: `check` and, if requested, `advise` (words of the commands) and `folder` (of the advice), or `fill`:
the node to fill. OUT gets for each command its `status`, `out` and `talk`, for the advice the `journal`, and in
`order` the nodes on which pages appeared, until all nodes had some.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from booted import answer

SET_MEMPOLICY, MOVE_PAGES, PREFERRED = 238, 279, 1  # numbers for x86_64
# Its memory follows the inherited policy, unless it is bound.
PROGRAM = """
import mmap, time
size = 32 << 20
block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
until = time.monotonic() + 0.5
while time.monotonic() < until:
    for at in range(0, size, 4096): block[at] = 1
"""


def meshmark(words: list[str], env: dict[str, str]) -> dict[str, Any]:
    argv = [sys.executable, "-m", "meshmark", *words]
    completed = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    return {"status": completed.returncode, "out": completed.stdout, "talk": completed.stderr}


def order_of_filling(node: int) -> list[int]:
    """Allocate pages that prefer a node until all nodes have some, in a child, whose exit frees them."""
    out, write_end = os.pipe()
    if os.fork() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(SET_MEMPOLICY, PREFERRED, ctypes.byref(ctypes.c_ulong(1 << node)), ctypes.c_ulong(65))
        Path("/proc/self/oom_score_adj").write_text("1000")
        blocks, filled, size = list[mmap.mmap](), list[int](), 1 << 20
        nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
        status = (ctypes.c_int * (size // 4096))()
        while len(filled) < nodes:
            blocks.append(block := mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            block.madvise(15)  # small pages
            start = ctypes.addressof(ctypes.c_char.from_buffer(block))
            ctypes.memset(start, 1, size)
            pages = (ctypes.c_void_p * len(status))(*range(start, start + size, 4096))
            libc.syscall(MOVE_PAGES, 0, ctypes.c_ulong(len(status)), pages, None, status, 0)
            for n in dict.fromkeys(status):
                if n not in filled:
                    filled.append(n)
                    os.write(write_end, f"{n}\n".encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(out) as pipe:
        order = [int(x) for x in pipe]
    os.wait()
    return order


def gather(plan: dict[str, Any], answers: dict[str, Any]) -> None:
    site = Path("/run/site.toml")
    site.write_text("")
    env = os.environ | {"MESHMARK_LEDGER": "/run/claims", "MESHMARK_SITE_CONFIG": str(site), "HOME": "/run"}
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    answers["check"] = meshmark(["check-os", *plan["check"]], env)
    if "fill" in plan:
        answers["order"] = order_of_filling(plan["fill"])
    if "advise" not in plan:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SET_MEMPOLICY, PREFERRED, ctypes.byref(ctypes.c_ulong(1 << 1)), ctypes.c_ulong(65)):
        raise OSError(ctypes.get_errno(), "set_mempolicy")
    command = [sys.executable, "-SEc", PROGRAM]
    answers["advise"] = meshmark(["advise", "--out", plan["folder"], *plan["advise"], "--", *command], env)
    journal = Path(plan["folder"]) / "journal.jsonl"
    answers["journal"] = [json.loads(x) for x in journal.read_text().splitlines()] if journal.exists() else []


if __name__ == "__main__":
    answer(gather, {})
