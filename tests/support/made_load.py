"""Simulated folders of load runs and studies, for tests of their views: measured values equal requested ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshmark.load.scenario.journal import JOURNAL
from meshmark.load.scenario.result import Totals, slowdown
from meshmark.load.studies.outcome import JOURNAL as STUDY_JOURNAL
from meshmark.load.studies.outcome import PLAN, RECORDS, CellRun, CopyUse
from meshmark.load.studies.results import StudyResults

EPOCH = datetime(2026, 11, 22, 8, 30, tzinfo=UTC).timestamp()  # time of the header
BEGIN_S = 0.5  # from the header to the start of the clock
TICK_S = 0.1


def made_load(
    folder: Path,
    programs: Mapping[str, Sequence[float]],
    *,
    name: str = "made",
    machine: str = "n042",
    waiting: float = 0.0,
    cpus: str = "0-1",
    died: Sequence[str] = (),
    cut: bool = False,
    moved: float = 0.0,
    conditions: Mapping[str, Any] | None = None,
    done: Mapping[str, Mapping[str, float]] | None = None,
    **about: Any,
) -> Path:
    """Write a run whose copies last as long as stated (s), each on a separate CPU from the start of the clock on.

    Args:
        programs: Run times of the copies of each program.
        waiting: Share of the time that each copy waits for a CPU.
        died: Programs that a signal ends.
        cut: Whether the end of the run is missing.
        moved: B/s to memory that each copy reports in windows of 0.1 s.
        done: Values that each copy of a synthetic program counts itself, by program.
        about: Keys of every program in the scenario.
    """
    folder.mkdir(parents=True)
    start = datetime.fromtimestamp(EPOCH, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    copies = [(p, c, s) for p, times in programs.items() for c, s in enumerate(times)]
    scenario = {
        "name": name,
        "sample_s": TICK_S,
        "available_cpus": cpus,
        "programs": [
            {"name": p, "copies": len(t), "threads": 1, "start_s": [0.0] * len(t), "command": ["x"], **about}
            for p, t in programs.items()
        ],
    }
    (folder / "scenario.json").write_text(json.dumps(scenario))
    lines: list[dict[str, Any]] = [
        {
            "type": "header",
            "schema": 1,
            "instrument": "load",
            "machine": machine,
            "scenario": name,
            "start": start,
            "sample_s": TICK_S,
            "build": "1",
            "compiler": "none",
            "tick_s": 0.01,
            "conditions": {"kernel_release": "6", "cpus_allowed": cpus, "load_1min": 0.5, **(conditions or {})},
            "programs": [{"program": p, "copy": c, "command": ["x"], "cpus": cpus} for p, c, _ in copies],
        },
        {"type": "event", "event": "start", "t_s": BEGIN_S},
    ]
    for i, (p, c, wall) in enumerate(copies):
        keys = {"program": p, "copy": c}
        lines.append({"type": "event", "event": "released", "t_s": BEGIN_S, **keys})
        thread = {"thread": i, **keys, "pid": 100 + i, "tid": 100 + i, "command": "x"}
        lines.append({"type": "thread", "t_s": BEGIN_S, **thread})
        for k in range(1, round(wall / TICK_S) + 1):
            cpu_time_s = [round(share * TICK_S * 1e9) for share in (1 - waiting, waiting)]
            lines.append(
                {"type": "sample", "t_s": BEGIN_S + k * TICK_S, "threads": [[i, "R", i % 2, *cpu_time_s, 9, 1]]}
            )
            if moved:
                lines.append(
                    {
                        "type": "window",
                        "t_s": BEGIN_S + k * TICK_S,
                        **keys,
                        "from_s": (k - 1) * TICK_S,
                        "to_s": k * TICK_S,
                        "memory_read_bytes": 0.75 * moved * TICK_S,
                        "memory_write_bytes": 0.25 * moved * TICK_S,
                    }
                )
        cpu_times = {
            "user_s": 0.9 * (1 - waiting) * wall,
            "system_s": 0.1 * (1 - waiting) * wall,
            "waiting_s": waiting * wall,
            "sleeping_s": 0.0,
            "migrations": 0,
        }
        end_s = BEGIN_S + wall
        lines.append(
            {
                "type": "thread_total",
                "t_s": end_s,
                **thread,
                "from_s": BEGIN_S,
                "to_s": end_s,
                **cpu_times,
                "cpus": str(i % 2),
            }
        )
        if p in (done or {}):
            lines.append({"type": "done", "t_s": end_s, **keys, **(done or {})[p]})
        exit_report = {"how": "signal", "signal": 9} if p in died else {"how": "ok", "status": 0}
        lines.append(
            {
                "type": "total",
                "t_s": end_s,
                **keys,
                "pid": 100 + i,
                **exit_report,
                "setup_s": 0.25,
                "released_s": BEGIN_S,
                "ended_s": end_s,
                "wall_s": wall,
                **cpu_times,
                "unseen_s": 0.0,
                "threads": 1,
                "processes": 1,
                "largest_bytes": 1 << 20,
                "pages": {},
            }
        )
    longest = max((w for _, _, w in copies), default=0.0)
    if not cut:
        cpu_time_s = sum(w for _, _, w in copies) * (1 - waiting)
        lines.append(
            {
                "type": "end",
                "t_s": BEGIN_S + longest,
                "status": "ok",
                "bench_s": longest,
                "sampling": {"cpu_s": 0.0, "share": 0.001, "late_s": 0.0},
                "machine": {"busy_s": [cpu_time_s / 2, cpu_time_s / 2], "steal_s": [0.0, 0.0]},
            }
        )
    text = "".join(json.dumps(x, separators=(",", ":")) + "\n" for x in lines)
    (folder / JOURNAL).write_text(text)
    return folder


def made_study(folder: Path, study: str = "shared_bus", finished: bool = True) -> Path:
    """Write a study of two points with four repetitions each; the second repetition is flagged."""
    folder.mkdir(parents=True)
    (folder / PLAN).write_text(json.dumps({"format": "meshmark load study", "version": 1, "study": study}))
    use = CopyUse(
        program="program", copy=0, how="ok", wall_s=1.0, waiting_s=0.0, user_s=1.0, system_s=0.0, threads=1, counts={}
    )
    totals = Totals(
        bench_s=1.0,
        cpus=2,
        available_s=2.0,
        user_s=1.0,
        system_s=0.0,
        idle_s=1.0,
        completion_s=1.0,
        run_s=1.0,
        waiting_s=0.0,
    )
    outcomes = [
        CellRun(
            cell="alone",
            repetition=r,
            run=f"000-{r:02d}",
            start=f"2026-11-22T08:3{r}:00Z",
            measured=("program",),
            uses=(use,),
            totals=totals,
            flags=frozenset({"disturbed"} if r == 3 else ()),
        )
        for r in range(4)
    ]
    (folder / STUDY_JOURNAL).write_text("".join(json.dumps(o.to_json()) + "\n" for o in outcomes))
    if not finished:
        return folder
    provenance = {"start": "2026-11-22T08:30:00Z", "seed": 0, "repetitions": 4, "build": "1"}
    results = StudyResults(study=study, machine="n042", common={"cpus": "0-1", "clock": "wall"}, provenance=provenance)
    for k, (rate, together) in enumerate(((2e9, (1.01, 1.02, 1.0, 1.03)), (8e9, (1.31, 1.38, 1.35, 1.33)))):
        alone = (1.0, 1.01, 0.99, 1.0)
        s = slowdown(alone, together)
        conditions = {
            "memory_rate": rate,
            "copies": 2,
            "neighbour_rate": rate,
            "class": f"kind {k}",
            "neighbour": "<b>",
            "program": f"p{k}",
        }
        flags = frozenset({"disturbed"} if k else ())
        for company, times in (("alone", alone), ("together", together)):
            results.add("elapsed", times, {**conditions, "company": company}, flags)
        assert s.interval is not None
        results.add(
            "slowdown",
            [t / a for t, a in zip(together, alone, strict=True)],
            {
                **conditions,
                "estimate": s.ratio,
                "estimate_low": s.interval[0],
                "estimate_high": s.interval[1],
                "alone_runs": 4,
                "together_runs": 4,
            },
            flags,
        )
    results.absent("slowdown", "42 GB per s: memory_mib: found 512; needs <640>", {"memory_rate": 42e9})
    results.write(folder)
    assert (folder / RECORDS).is_file()
    return folder
