"""Runs inside a guest of two nodes: allocates memory on a node, starts processes that hold it, and runs `placed` on
them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
SET_MEMPOLICY, MOVE_PAGES = 238, 279  # system call numbers of x86-64; numa-guest supports no other processor
DEFAULT, PREFERRED, BIND = 0, 1, 2
HUGE_PAGE, NO_HUGE_PAGE, POPULATE_WRITE = 14, 15, 23  # arguments of madvise
MAP_HUGETLB, MAP_NORESERVE = 0x40000, 0x4000
NODES = Path("/sys/devices/system/node")
MIB = 1 << 20


def policy(kind: int, node: int = 0) -> None:
    mask = ctypes.c_ulong(1 << node)
    words = (None, 0) if kind == DEFAULT else (ctypes.byref(mask), 64)
    if LIBC.syscall(SET_MEMPOLICY, kind, *words) != 0:
        raise OSError(ctypes.get_errno(), "set_mempolicy")


def memory(size: int, advice: int = NO_HUGE_PAGE, flags: int = 0) -> mmap.mmap:
    """Return touched private memory under the current policy."""
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
    if not flags:
        block.madvise(advice)
    block.madvise(POPULATE_WRITE)
    return block


def memory_on(node: int, size: int, kind: int = BIND, advice: int = NO_HUGE_PAGE, flags: int = 0) -> mmap.mmap:
    """Return touched memory under a policy that is removed afterwards, so that nothing shows the policy."""
    policy(kind, node)
    block = memory(size, advice, flags)
    policy(DEFAULT)
    return block


def address(block: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(block))


def pages_at(pid: int, start: int, size: int) -> dict[str, int]:
    """Return the true location of each page: node (or negative error) -> pages."""
    count = size // 4096
    pages = (ctypes.c_void_p * count)(*range(start, start + size, 4096))
    status = (ctypes.c_int * count)()
    if LIBC.syscall(MOVE_PAGES, pid, ctypes.c_ulong(count), pages, None, status, 0) != 0:
        raise OSError(ctypes.get_errno(), "move_pages")
    pages_by_node: dict[str, int] = {}
    for s in status:
        pages_by_node[str(s)] = pages_by_node.get(str(s), 0) + 1
    return pages_by_node


def node_bytes(node: int, what: str) -> int:
    for line in (NODES / f"node{node}" / "meminfo").read_text().splitlines():
        if f" {what}:" in line:
            return 1024 * int(line.split()[3])
    raise ValueError(f"node{node}/meminfo has no {what}")


def free_bytes(node: int) -> int:
    return node_bytes(node, "MemFree")


def wait() -> None:
    """Wait until the watcher watches."""
    signal.sigwait({signal.SIGUSR1})


def spin(seconds: float) -> None:
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        pass


def say(tell: int, said: Any = None) -> None:
    os.write(tell, json.dumps(said).encode() + b"\n")


class Child:
    """A process that calls a function, has a descriptor to report one object, and can be waited for."""

    def __init__(self, function: Callable[[int], None]) -> None:
        self.ready, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            try:
                function(write_end)
                signal.pause()
            except BaseException as error:
                say(write_end, {"failed": f"{type(error).__name__}: {error}"})
            os._exit(1)
        os.close(write_end)

    def said(self) -> Any:
        data = b""
        while not data.endswith(b"\n"):
            chunk = os.read(self.ready, 1000)
            if not chunk:
                raise RuntimeError("the program ended without a word")
            data += chunk
        answer = json.loads(data)
        if isinstance(answer, dict) and "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer

    def end(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.ready)


def run(*words: str, user: int = 0) -> dict[str, Any]:
    completed = subprocess.run(words, capture_output=True, text=True, check=False, user=user, timeout=120)
    answer: dict[str, Any] = {"status": completed.returncode, "talk": completed.stderr}
    try:
        answer["said"] = json.loads(completed.stdout)
    except ValueError:
        answer["text"] = completed.stdout
    return answer


def watched(place: str, pid: int, duration: str, *words: str, then: Callable[[], None] | None = None) -> dict[str, Any]:
    """Return the report of `placed` on a process; once it has opened files of the process, the process (or `then`)
    continues."""
    command = [place, "placed", str(pid), "--duration", duration, "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        while watch.poll() is None and not any(f"/proc/{pid}/task" in link for link in links(watch.pid)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                watch.wait(0.02)
        if then is None:
            os.kill(pid, signal.SIGUSR1)
        else:
            then()
        out, messages = watch.communicate(timeout=120)
    answer: dict[str, Any] = {"status": watch.returncode, "talk": messages}
    if out:
        answer["said"] = json.loads(out)
    return answer


def links(pid: int) -> list[str]:
    try:
        return [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []
