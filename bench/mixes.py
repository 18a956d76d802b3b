"""Measures mixes of jobs: the time to simulate a day of a batch system, and simulated against real runs.

    bench/mixes.py [--jobs 10000] [--repeats 3] [--run] [--repetitions 6] [--record]

The day is synthetic: submissions at random times, run times with a log-normal distribution (median 55 s), 1 to 8 slots,
on a machine of 64 cores in four sockets and on a modelled GS1280 with 64 CPUs. With --run, 50 jobs of 0.1 to 1.5 s of
CPU time run on this machine under four policies without a limit of slots, so that `none` and `balance` oversubscribe
CPUs while `any` and `pack` wait; the times of submission are drawn anew in each repetition.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from results import add_row, bench_parser, recording

POLICIES: Final = "none balance pack compact"
MACHINES: Final = {
    "64 cores in 4 sockets": ("--topology", "pack:4 [numa] core:16 pu:1"),
    "gs1280-64": ("--on", "gs1280-64"),
}
RUN_JOBS: Final = 50
RUN_LOAD: Final = 0.9  # of the CPUs while jobs are submitted


def write_day(path: Path, count: int) -> None:
    """Write a day of jobs in the Standard Workload Format."""
    source, time_s, lines = random.Random(1), 0.0, []
    for number in range(count):
        time_s += source.expovariate(count / 86400)
        slots = source.choice((1, 1, 1, 2, 4, 8))
        run_s = source.lognormvariate(4, 1.2)
        lines.append(f"{number} {time_s:.0f} 0 {run_s:.0f} {slots} -1 -1 {slots} -1 -1 1 1 1 -1 1 -1 -1 -1\n")
    path.write_text("".join(lines), encoding="utf-8")


def write_mix(path: Path, cpus: int) -> None:
    """Write a mix of jobs that use CPU time, for this machine."""
    source = random.Random(2)
    kinds = [(min(1.5, max(0.1, source.lognormvariate(-1.3, 0.8))), source.choice((1, 1, 2))) for _ in range(10)]
    each = RUN_JOBS // len(kinds)
    work_s = sum(run_s * min(slots, cpus) for run_s, slots in kinds) / cpus / RUN_LOAD
    text = '[mix]\nname = "50 jobs"\npolicies = ["none", "balance", "any", "pack"]\nslots = "threads"\nmax_slots = 0\n'
    for number, (run_s, slots) in enumerate(kinds):
        text += f'[[job]]\nname = "job {number}"\ncopies = {each}\nevery_s = {work_s:.3f}\n'
        text += f"run_time_s = {run_s:.3f}\nslots = {min(slots, cpus)}\n"
    path.write_text(text, encoding="utf-8")


def answer(*words: str | Path) -> dict[str, Any]:
    """Return the JSON that `meshmark load queue` prints."""
    completed = subprocess.run(
        [sys.executable, "-m", "meshmark", "load", "queue", *words, "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    if completed.returncode:
        sys.exit(completed.stderr)
    content: dict[str, Any] = json.loads(completed.stdout)
    return content


def measure_day(folder: Path, jobs: int, repeats: int) -> None:
    """Measure the whole command, with the start of the interpreter."""
    write_day(folder / "day.swf", jobs)
    for machine, words in MACHINES.items():
        times_s: list[float] = []
        for _ in range(repeats):
            begin_s = time.monotonic()
            content = answer("--swf", folder / "day.swf", "--policies", POLICIES, *words)
            times_s.append(time.monotonic() - begin_s)
        add_row(
            f"a day of {jobs:,} jobs simulated under four policies, {machine}",
            "s",
            times_s,
            limits=(None, 60.0),
            notes=f"{content['jobs']:,} jobs ran; `load queue --swf`, whole command",
        )


def columns(repetitions: list[list[dict[str, Any]]], figure: str) -> list[list[float]]:
    """Return the values of a figure over repetitions, for each policy; of a distribution, the mean."""
    rows = [[s[figure] if figure == "total_s" else s[figure]["mean"] for s in row] for row in repetitions]
    return [list(column) for column in zip(*rows, strict=True)]


def measure_runs(folder: Path, cpus: int, repetitions: int) -> None:
    """Run 50 jobs really, and compare the order of policies and the times with the simulation."""
    write_mix(folder / "mix.toml", cpus)
    content = answer(folder / "mix.toml", "--run", "--out", folder / "runs", "--repetitions", str(repetitions))
    same, pairs = content["agreement"]["same_order"], content["agreement"]["pairs"]
    rows, simulated = content["repetitions"], content["simulated"]
    errors = [
        abs(median(modelled) / median(measured) - 1)
        for figure in ("total_s", "turnaround_s")
        for measured, modelled in zip(columns(rows, figure), columns(simulated, figure), strict=True)
    ]
    add_row(
        "pairs of policies with the same order in real runs of 50 jobs as in their simulation",
        "1",
        same / pairs if pairs else float("nan"),
        limits=(1.0, None),
        notes=f"{same} of {pairs} pairs that differ by more than 2 %, {repetitions} repetitions, this machine",
    )
    add_row(
        "simulated total time and mean turnaround against real runs: median error",
        "%",
        [100 * error for error in errors],
        notes="range over four policies and both figures",
    )


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--repetitions", type=int, default=6)
    options = parser.parse_args()
    with recording("Mixes", options), tempfile.TemporaryDirectory() as scratch:
        measure_day(Path(scratch), options.jobs, options.repeats)
        if options.run:
            measure_runs(Path(scratch), len(os.sched_getaffinity(0)), options.repetitions)


if __name__ == "__main__":
    main()
