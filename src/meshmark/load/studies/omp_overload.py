"""Study: OpenMP programs that share CPUs with sequential programs, by wait policy."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError
from meshmark.load.calibration.variants import Variant
from meshmark.load.scenario.result import LoadRun
from meshmark.load.scenario.scenario import WAIT_POLICIES
from meshmark.load.studies.bench import DEFAULT_OPTIONS, Bench, StudyOptions, StudyResult, work_identity
from meshmark.load.studies.cells import LEAD_S, Work, member, scenario
from meshmark.load.studies.outcome import Cell, Outcome
from meshmark.load.studies.overload import cpu_shares, wall_only
from meshmark.load.studies.results import Point, Results, format_slowdown, table
from meshmark.store.record import Scalar
from meshmark.values.inputs import found

OMP_OUTLASTS: Final = (
    1000.0  # run time of a sequential program relative to the parallel program, see `run_time_s` of omp_overload
)


@dataclass(frozen=True, kw_only=True)
class OmpCase:
    policy: str
    point: Point
    serialisation_alone: float
    serialisation: float  # medians over the repetitions
    running: float  # mean number of threads that ran at once
    cpu_share: float  # CPU time of the sequential programs over their CPU and waiting time


@dataclass(frozen=True, kw_only=True)
class OmpOverload(StudyResult):
    cases: tuple[OmpCase, ...]


def running(run: LoadRun, program: str, copy: int) -> list[tuple[float, float]]:
    """Return (duration in s, mean number of running threads) of a copy for each sampling period.

    The check at the end of a synthetic program is not included.
    """
    use = next(p for p in run.programs if (p.program, p.copy) == (program, copy))
    start_s = use.released_s
    end_s = start_s + use.running_s
    step_s = float(run.header.get("sample_s", 0.1))
    bins = max(1, math.ceil((end_s - start_s) / step_s - 1e-9))
    running_s = [0.0] * bins
    for thread in run.threads:
        if (thread.program, thread.copy) != (program, copy):
            continue
        for s in thread.spans:
            cpu, width = s.user_s + s.system_s, s.to_s - s.from_s
            if cpu <= 0 or width <= 0:
                continue
            for i in range(max(0, int((s.from_s - start_s) / step_s)), bins):
                low, high = start_s + i * step_s, min(end_s, start_s + (i + 1) * step_s)
                if low >= s.to_s:
                    break
                running_s[i] += cpu * max(0.0, min(high, s.to_s) - max(low, s.from_s)) / width
    widths = [min(end_s, start_s + (i + 1) * step_s) - start_s - i * step_s for i in range(bins)]
    return [(w, r / w) for w, r in zip(widths, running_s, strict=True) if w > 0]


def serialisation(samples: Sequence[tuple[float, float]]) -> float:
    """Return the serialisation index: the share of the time in which fewer than 2 threads ran, 0 to 1.

    Only the mean number of running threads in each sampling period is known. For a mean from 1 to 2, the share is taken
    as 2 - mean. This is exact if there are two threads and at least one always runs, and a lower bound otherwise. A
    spinning thread (OMP_WAIT_POLICY=active) counts as running; the run time shows the cost of spinning.

    Args:
        samples: (s, threads) from `running`.
    """
    total_s = sum(w for w, _ in samples)
    return sum(w * min(1.0, max(0.0, 2.0 - r)) for w, r in samples) / total_s if total_s > 0 else math.nan


def _check(threads: int, copies: int, sequentials: int, policies: Sequence[str]) -> None:
    """Raise UsageError if an argument is invalid."""
    if threads < 2 or copies < 1 or sequentials < 1:
        raise UsageError(
            f"threads: found {threads} with {copies} copies and {sequentials} sequential programs; "
            "allowed: at least 2 threads, 1 copy and 1 program"
        )
    for policy in policies:
        if policy not in WAIT_POLICIES:
            raise UsageError(f"policies: found {found(policy)}; allowed: {', '.join(WAIT_POLICIES)}")
    if not policies:
        raise UsageError(f"policies: found none; allowed: {', '.join(WAIT_POLICIES)}")


def _cells(
    bench: Bench, policy: str, parallel_work: Work, sequential_work: Work, threads: int, copies: int, sequentials: int
) -> tuple[Cell, Cell]:
    """Return the cells of the parallel programs alone and next to endless sequential programs."""
    parallel_programs = [
        member(
            "parallel",
            parallel_work,
            [bench.cpus] * copies,
            threads=threads,
            wait_policy=policy,
            start_s=start,
            oversubscribe=threads > len(bench.cpus),
        )
        for start in (0.0, LEAD_S)
    ]
    neighbours = member("sequential", sequential_work, [bench.cpus] * sequentials, endless=True)
    return (
        Cell(
            name=f"{policy} alone",
            measured=("parallel",),
            scenarios=(scenario(f"omp_overload: {policy} alone", parallel_programs[0], sample_s=0.05),),
        ),
        Cell(
            name=f"{policy} together",
            measured=("parallel",),
            scenarios=(scenario(f"omp_overload: {policy} together", parallel_programs[1], neighbours, sample_s=0.05),),
        ),
    )


def _cases(
    bench: Bench,
    results: Results,
    outcomes: Mapping[str, Sequence[Outcome]],
    groups: Mapping[str, tuple[Cell, Cell]],
    common: Mapping[str, Scalar],
) -> list[OmpCase]:
    """Return one case per wait policy with a slowdown, and add its records to `results`."""
    cases = []
    for policy, (cell_alone, cell_together) in groups.items():
        conditions: dict[str, Scalar] = {"wait_policy": policy, **common}
        p = bench.point(
            results,
            float(str(common["programs"])),
            policy,
            outcomes[cell_alone.name],
            outcomes[cell_together.name],
            conditions,
        )
        if p is None:
            continue
        indices: dict[str, list[float]] = {}
        for company, cell in (("alone", cell_alone), ("together", cell_together)):
            indices[company] = [o.more["serialisation"] for o in outcomes[cell.name]]
            results.add("serialisation", indices[company], {**conditions, "company": company}, p.flags)
        running_threads = [o.more["running"] for o in outcomes[cell_together.name]]
        results.add("running_threads", running_threads, {**conditions, "company": "together"}, p.flags)
        shares = [statistics.fmean(cpu_shares(o, "sequential")) for o in outcomes[cell_together.name]]
        results.add("attained", shares, {**conditions, "program": "sequential"}, p.flags)
        cases.append(
            OmpCase(
                policy=policy,
                point=p,
                serialisation_alone=statistics.median(indices["alone"]),
                serialisation=statistics.median(indices["together"]),
                running=statistics.median(running_threads),
                cpu_share=statistics.median(shares),
            )
        )
    return cases


def omp_overload(
    out: Path,
    *,
    variants: Sequence[Variant] = (),
    parallel: Work | None = None,
    sequential: Work | None = None,
    threads: int = 0,
    copies: int = 1,
    sequentials: int = 0,
    cpus: Sequence[int] = (),
    policies: Sequence[str] = WAIT_POLICIES,
    run_time_s: float = 0.5,
    options: StudyOptions = DEFAULT_OPTIONS,
) -> OmpOverload:
    """Run OpenMP programs next to endless sequential programs on the same CPUs, by OMP_WAIT_POLICY.

    Args:
        variants: Calibration data to synthesise programs from where `parallel` or `sequential` is None.
        threads: Threads of a parallel program; 0: one per CPU.
        copies: Copies of the parallel program.
        sequentials: Number of sequential programs; 0: one per CPU.
        run_time_s: Run time of a parallel program alone. Its threads synchronise after each call, thousands of times a
            second. If they spin while one thread has no CPU, each barrier takes a time slice of the scheduler, and the
            program takes a hundred times as long. `StudyOptions.timeout_s` limits a run, by default to a minute.

    Raises:
        UsageError: An argument is invalid, or the clock is not `wall`.
    """
    options = dataclasses.replace(options, timeout_s=options.timeout_s or max(60.0, 100 * run_time_s))
    bench = Bench(
        "omp_overload",
        out,
        options,
        cpus,
        {
            "parallel": None if parallel is None else work_identity(parallel),
            "sequential": None if sequential is None else work_identity(sequential),
            "threads": threads,
            "copies": copies,
            "sequentials": sequentials,
            "policies": list(policies),
            "run_time_s": run_time_s,
        },
        variants,
    )
    wall_only(options)
    n = len(bench.cpus)
    threads, sequentials = threads or max(2, n), sequentials or n
    _check(threads, copies, sequentials, policies)
    if (parallel is None or sequential is None) and not variants:
        raise UsageError("parallel: found neither programs nor calibration data to synthesise them from")
    parallel_work = parallel if parallel is None else bench.work(parallel, "parallel")
    sequential_work = sequential if sequential is None else bench.work(sequential, "sequential")
    bench.begin()
    if parallel_work is None:
        # Kernels that only exchange lines or wait at barriers slow down hundreds of times if one thread has no CPU,
        # which is not representative of programs.
        parallel_work = bench.maker.file(
            "parallel",
            bench.target(run_time_s, threads=threads, name="parallel"),
            only=lambda v: v.kind != "sharing",
            rounds=0,
        )
    if sequential_work is None:
        file = bench.maker.file("sequential", bench.target(run_time_s, name="sequential"), rounds=0)
        sequential_work = bench.maker.longer(file, OMP_OUTLASTS)
    groups = [
        _cells(bench, policy, parallel_work, sequential_work, threads, copies, sequentials) for policy in policies
    ]

    def inspect(run: LoadRun) -> dict[str, float]:
        per_copy = [running(run, "parallel", c) for c in range(copies)]
        total_s = sum(w for samples in per_copy for w, _ in samples)
        return {
            "serialisation": statistics.fmean(serialisation(x) for x in per_copy),
            "running": sum(w * r for samples in per_copy for w, r in samples) / total_s if total_s > 0 else 0.0,
        }

    outcomes, results = bench.run(groups, inspect)
    conditions: dict[str, Scalar] = {"threads": threads, "copies": copies, "programs": sequentials}
    cases = _cases(bench, results, outcomes, dict(zip(policies, groups, strict=True)), conditions)
    rows = [
        [
            c.policy,
            *format_slowdown(c.point.slowdown),
            f"{c.serialisation_alone:.3f}",
            f"{c.serialisation:.3f}",
            f"{c.running:.2f} of {threads}",
            f"{100 * c.cpu_share:.1f} %",
        ]
        for c in cases
    ]
    text = table(
        ["OMP_WAIT_POLICY", "slowdown", "95 %", "serial alone", "serial together", "running", "others got"],
        rows,
        [c.point.flags for c in cases],
    )
    return OmpOverload(cases=tuple(cases), **bench.end(results, text))
