"""Runs inside a guest: starts a program under many bindings, and records where it and its pages were; judges nothing.

    place_bind_inside.py PLAN OUT

PLAN is JSON: `place` (the program meshmark-place), `cgroup` (1: the cpuset controller is mounted as version 1; 2: as
booted), `inside` (CPUs of the cpuset in which everything runs, or ""), `cases` (name → words of `run`). OUT gets for
each case its `status`, `talk`, and what the program `saw`, and `left`: cgroups that still exist afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from booted import answer

UNIFIED, OLD = Path("/sys/fs/cgroup"), Path("/run/cpuset")
# The mapping is identified by its size.
PROGRAM = """
import json, mmap, os, re
size = 24 << 20
block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.madvise(15)  # small pages
for at in range(0, size, 4096): block[at] = 1
cpus = sorted(os.sched_getaffinity(0))
try: os.sched_setaffinity(0, range(64))
except OSError: pass
saw = {"cpus": cpus, "widened": sorted(os.sched_getaffinity(0)), "nodes": {}}
for line in open("/proc/self/numa_maps"):
    words = line.split()
    nodes = {n: int(p) for n, p in re.findall(r" N(\\d+)=(\\d+)", line)}
    if "file=" not in line and sum(nodes.values()) >= size // 4096:
        saw["policy"], saw["nodes"] = words[1], nodes
saw["mems"] = next(x.split()[1] for x in open("/proc/self/status") if x.startswith("Mems_allowed_list"))
saw["cgroup"] = open("/proc/self/cgroup").read()
print(json.dumps(saw))
"""


def left() -> list[str]:
    return sorted(str(p) for root in (UNIFIED, OLD) if root.is_dir() for p in root.rglob("meshmark-*"))


def enter(plan: dict[str, Any]) -> None:
    """Move this process into a new cpuset, as a batch system does with a job."""
    if plan["cgroup"] == 1:
        OLD.mkdir()
        subprocess.run(["mount", "-t", "cgroup", "-o", "cpuset", "cpuset", str(OLD)], check=True)
    if plan["inside"]:
        root = OLD if plan["cgroup"] == 1 else UNIFIED
        job = root / "job"
        if plan["cgroup"] == 2:
            (root / "cgroup.subtree_control").write_text("+cpuset")
        job.mkdir()
        (job / "cpuset.cpus").write_text(plan["inside"])
        (job / "cpuset.mems").write_text(
            (root / "cpuset.mems.effective").read_text() if plan["cgroup"] == 2 else (root / "cpuset.mems").read_text()
        )
        (job / "cgroup.procs").write_text(str(os.getpid()))


def gather(plan: dict[str, Any], answers: dict[str, Any]) -> None:
    enter(plan)
    site = Path("/run/site.toml")
    site.write_text("")
    env = os.environ | {"MESHMARK_LEDGER": "/run/claims", "MESHMARK_SITE_CONFIG": str(site), "HOME": "/run"}
    for name, words in plan["cases"].items():
        prefix = words[: words.index("run")] if "run" in words else []
        after_prefix = words[len(prefix) + 1 :] if "run" in words else words
        program = ["true"] if prefix else [sys.executable, "-c", PROGRAM]  # another user may not inspect our processes
        completed = subprocess.run(
            [*prefix, plan["place"], "run", *after_prefix, "--", *program],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        report = json.loads(completed.stdout) if completed.stdout else None
        answers["cases"][name] = {"status": completed.returncode, "talk": completed.stderr, "saw": report}
    result = subprocess.run([plan["place"], "slots", "--json"], env=env, capture_output=True, text=True, check=True)
    answers["slots"], answers["left"] = json.loads(result.stdout), left()


if __name__ == "__main__":
    answer(gather, {"cases": {}})
