"""Runs inside a guest of several nodes: runs scenarios and a study of memory domains, and records their results.

    load_inside.py PLAN OUT

PLAN is JSON: `scenarios` (name → TOML text), `files` (name → text of a program), `folder` (which is created for the
runs), `isolation` (`cpus` that it may use, `programs`: file → text, created before; `rate`, `repetitions`). OUT
gets, for every scenario, its `programs`, `threads` and `flags`, the remaining cgroups as `groups`, and for the study
its domains, tests and table. Nothing is judged here.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from booted import answer

from meshmark.load.scenario.journal import read_run
from meshmark.load.scenario.result import LoadRun
from meshmark.load.scenario.run import run_scenario
from meshmark.load.scenario.scenario import parse_scenario
from meshmark.load.studies.isolation import IsolationStudy, memory_domains
from meshmark.load.studies.study import StudyOptions


def printed(file: Path) -> str:
    return file.read_text()[:200] if file.exists() else ""


def said(run: LoadRun) -> dict[str, Any]:
    parts = ("user_s", "system_s", "waiting_s", "sleeping_s")
    return {
        "status": run.status,
        "programs": {
            f"{p.program}.{p.copy}": {
                "how": p.how,
                "reason": p.reason,
                "wall_s": p.wall_s,
                "pages": p.pages,
                "flags": sorted(run.flags(p)),
                "cpus": run.bound[p.program, p.copy],
                "nodes": run.nodes[p.program, p.copy],
                "out": printed(run.folder / "output" / f"{p.program}.{p.copy}.out"),
                **{k: getattr(p, k) for k in parts},
            }
            for p in run.programs
        },
        "threads": [
            {
                "program": f"{t.program}.{t.copy}",
                "wall_s": t.wall_s,
                "cpus": t.cpus,
                **{k: getattr(t, k) for k in parts},
            }
            for t in run.threads
        ],
    }


def gather(plan: dict[str, Any], answers: dict[str, Any]) -> None:
    folder = Path(plan["folder"])
    folder.mkdir()
    for file, text in plan["files"].items():
        (folder / file).write_text(text)
    for name, text in plan["scenarios"].items():
        start_s = time.monotonic()
        run_scenario(parse_scenario(text, name, folder=folder), folder / name)
        answers["scenarios"][name] = {**said(read_run(folder / name)), "took_s": time.monotonic() - start_s}
    answers["groups"] = [p.name for p in Path("/sys/fs/cgroup").iterdir() if p.is_dir()]
    requested = plan["isolation"]
    os.sched_setaffinity(0, requested["cpus"])
    out = folder / "isolation"
    (out / "programs").mkdir(parents=True)
    for file, text in requested["programs"].items():
        (out / "programs" / file).write_text(text)
    start_s = time.monotonic()
    messages: list[str] = []
    measures = IsolationStudy(
        out,
        rate_gb_per_s=requested["rate"],
        options=StudyOptions(repetitions=requested["repetitions"], rounds=0, notify=messages.append),
    ).run()
    answers["isolation"] = {
        "domains": memory_domains(),
        "tests": [dataclasses.asdict(t) for t in measures.tests],
        "table": measures.table,
        "slowdowns": [p.pairs for p in measures.points],
        "talk": messages,
        "took_s": time.monotonic() - start_s,
        "records": [r.to_json() for r in measures.records],
        "absent": [a.reason for a in measures.absences],
        "runs": {r.name: said(read_run(r)) for r in sorted((out / "runs").iterdir())},
    }


if __name__ == "__main__":
    answer(gather, {"scenarios": {}})
