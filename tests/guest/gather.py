"""Runs inside a guest: records the output of the native probe and of the topology readers, and judges nothing.

    gather.py PLAN OUT    PLAN is JSON: {"probe": path, "steps": [step, …]}; OUT gets {name: answer}

A step has a `name` and one of
    run      words for the probe; with `affinity` (CPUs), `cpuset` ({"cpus", "mems"}) or `offline` (a CPU
             that is taken offline as soon as there is a sample, and brought back afterwards);
             with `budgets`, the next budget is tried if one ended before the first sample, as on a busy host
    write    {file: text}, before anything else: huge pages, settings
    topology true: the live machine as the reader of Meshmark and the files of the kernel describe it
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from support.budgets import budget_ended

CGROUP = Path("/sys/fs/cgroup")


def in_cpuset(name: str, limits: dict[str, str]) -> Path:
    """Return a cgroup v2 cpuset with these limits."""
    (CGROUP / "cgroup.subtree_control").write_text("+cpuset")
    group = CGROUP / name
    group.mkdir(exist_ok=True)
    for key, value in limits.items():
        (group / f"cpuset.{key}").write_text(value)
    return group / "cgroup.procs"


def run(probe: str, step: dict[str, Any]) -> dict[str, Any]:
    procs = in_cpuset(step["name"], step["cpuset"]) if "cpuset" in step else None

    def enter() -> None:
        if procs is not None:
            procs.write_text(str(os.getpid()))
        if "affinity" in step:
            os.sched_setaffinity(0, step["affinity"])

    start_s = time.monotonic()
    with subprocess.Popen(
        [probe, *step["run"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=enter,  # noqa: PLW1509 (no threads here)
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        out = ""
        if "offline" in step:
            switch = Path(f"/sys/devices/system/cpu/cpu{step['offline']}/online")
            for line in child.stdout:
                out += line
                if '"sample"' in line:
                    switch.write_text("0")
                    break
        remaining_output, err = child.communicate(timeout=300)
        if "offline" in step:
            switch.write_text("1")
    lines = []
    for line in (out + remaining_output).splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            lines.append({"type": "torn", "text": line})
    records = [x for x in lines if x["type"] not in {"sample", "progress"}]
    return {"status": child.returncode, "lines": records, "talk": err, "elapsed_s": time.monotonic() - start_s}


def measured(probe: str, step: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a step of the probe, with the first of its budgets that is enough."""
    if "budgets" not in step:
        return run(probe, step)
    for budget in step["budgets"]:
        answer = run(probe, {**step, "run": [*step["run"], "--budget", budget]})
        if not budget_ended(answer["lines"]):
            break
    return answer


def topology() -> dict[str, Any]:
    from meshmark.machine.sources import from_hwloc_xml, from_sysfs, lstopo

    kernel = {p.name: (p / "cpulist").read_text().strip() for p in Path("/sys/devices/system/node").glob("node[0-9]*")}
    answer: dict[str, Any] = {"sysfs": from_sysfs().to_dict(), "kernel": kernel}
    try:
        answer["hwloc"] = from_hwloc_xml(lstopo("--no-io")).to_dict()
    except Exception as error:  # hwloc may be missing: the host reports it
        answer["hwloc_missing"] = str(error)
    return answer


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    answers: dict[str, Any] = {}
    for step in plan["steps"]:
        try:
            for name, text in step.get("write", {}).items():
                Path(name).write_text(text)
            answers[step["name"]] = topology() if step.get("topology") else measured(plan["probe"], step)
        except Exception as error:  # the host shows it in the test that needs this answer
            answers[step["name"]] = {"failed": f"{type(error).__name__}: {error}"}
        Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
