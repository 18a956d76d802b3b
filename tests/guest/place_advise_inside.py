"""Runs inside a guest: checks its operating system, lets a program be advised; judges nothing.

    place_advise_inside.py PLAN OUT

PLAN is JSON: `check` and `advise` (words of the commands), `folder` (of the advice). OUT gets for each its `status`,
`out` and `talk`, and of the advice the `journal`.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

SET_MEMPOLICY, PREFERRED = 238, 1  # of x86_64
# Its memory is where the inherited policy wants it, unless it is bound.
PROGRAM = """
import mmap, time
size = 32 << 20
block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
until = time.monotonic() + 0.5
while time.monotonic() < until:
    for at in range(0, size, 4096): block[at] = 1
"""


def meshmark(words: list[str], env: dict[str, str]) -> dict[str, Any]:
    argv = [sys.executable, "-c", "from meshmark.cli import main; main()", *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    return {"status": done.returncode, "out": done.stdout, "talk": done.stderr}


def gather(plan: dict[str, Any], answers: dict[str, Any]) -> None:
    site = Path("/run/site.toml")
    site.write_text("")
    env = os.environ | {"MESHMARK_LEDGER": "/run/claims", "MESHMARK_SITE_CONFIG": str(site), "HOME": "/run"}
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    answers["check"] = meshmark(["check-os", *plan["check"]], env)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SET_MEMPOLICY, PREFERRED, ctypes.byref(ctypes.c_ulong(1 << 1)), ctypes.c_ulong(65)):
        raise OSError(ctypes.get_errno(), "set_mempolicy")
    command = [sys.executable, "-SEc", PROGRAM]
    answers["advise"] = meshmark(["advise", "--out", plan["folder"], *plan["advise"], "--", *command], env)
    journal = Path(plan["folder"]) / "journal.jsonl"
    answers["journal"] = [json.loads(x) for x in journal.read_text().splitlines()] if journal.exists() else []


def main() -> None:
    answers: dict[str, Any] = {}
    try:
        gather(json.loads(Path(sys.argv[1]).read_text()), answers)
    except Exception:  # the host's side shows it
        answers["failed"] = traceback.format_exc()
    Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
