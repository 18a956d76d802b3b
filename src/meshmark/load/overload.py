"""Studies of more programs than CPUs: where the time goes, who waits, and what OpenMP programs make of it."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError
from meshmark.load.run import LoadRun, Totals, jain
from meshmark.load.scenario import WAIT_POLICIES
from meshmark.load.study import (
    LEAD_S,
    USUAL,
    Bench,
    Cell,
    How,
    Outcome,
    Point,
    StudyResult,
    Work,
    member,
    said,
    said_work,
    scenario,
    table,
)
from meshmark.load.variants import Variant, found
from meshmark.store.record import Scalar

OMP_OUTLASTS: Final = 1000.0  # times as long as a parallel program alone: see omp_overload, run_time_s


@dataclass(frozen=True, kw_only=True)
class OverloadCase:
    programs: int
    totals: Totals  # of the run of median bench time
    waiting_s: tuple[float, ...]  # of each copy in that run
    fairness: float  # Jain's, of the parts of the CPU time that each wanted and got
    point: Point | None  # against one alone; None for that one


@dataclass(frozen=True, kw_only=True)
class Overload(StudyResult):
    cases: tuple[OverloadCase, ...]

    def waited(self, share: float = 0.01) -> tuple[int, ...]:
        """Copies of the last case that waited more than this share of the bench time."""
        last = self.cases[-1]
        return tuple(i for i, w in enumerate(last.waiting_s) if w > share * last.totals.bench_s)


@dataclass(frozen=True, kw_only=True)
class OmpCase:
    policy: str
    point: Point
    serialisation_alone: float
    serialisation: float  # medians over the repetitions
    running: float  # mean number of its threads that ran at once
    attained: float  # of the sequential programs: part of the CPU time that they wanted and got


@dataclass(frozen=True, kw_only=True)
class OmpOverload(StudyResult):
    cases: tuple[OmpCase, ...]


def _counted(totals: Totals) -> dict[str, float]:
    return {
        "bench": totals.bench_s,
        "available": totals.available_s,
        "user_sum": totals.user_s,
        "system_sum": totals.system_s,
        "idle": totals.idle_s,
        "completion": totals.completion_s,
        "run_sum": totals.run_s,
        "waiting_sum": totals.waiting_s,
    }


def _attained(outcome: Outcome, *programs: str) -> list[float]:
    out = []
    for u in outcome.of(*programs):
        ran = u.user_s + u.system_s
        out.append(ran / (ran + u.waiting_s) if ran + u.waiting_s > 0 else 1.0)
    return out


def overload(
    out: Path,
    *,
    variants: Sequence[Variant] = (),
    work: Work | None = None,
    cpus: Sequence[int] = (),
    extra: int = 1,
    run_time_s: float = 5.0,
    how: How = USUAL,
) -> Overload:
    """One sequential program, as many as there are CPUs, and `extra` more: where the time goes and who waits.

    Args:
        variants: the program is made of them where `work` is None.
        cpus: that all of them share; no copy is bound to one of them.

    Raises:
        UsageError: by the argument, also where the clock is not `wall`: waiting is the question.

    Source:
        Totals as of PARbench (Nagel and Linn 1991).
    """
    bench = Bench(
        "overload",
        out,
        how,
        cpus,
        {
            "work": None if work is None else said_work(work),
            "extra": extra,
            "run_time_s": run_time_s,
        },
        variants,
    )
    _wall_only(how)
    if not 1 <= extra <= 1000:
        raise UsageError(f"extra: found {extra}; allowed are 1 to 1000")
    if work is not None:
        work = bench.work(work)
    elif not variants:
        raise UsageError("work: found neither a program nor base data to make one of")
    bench.begin()
    if work is None:
        work = bench.maker.file("program", bench.wish(run_time_s, name="sequential"), rounds=0)
    n = len(bench.cpus)
    cells = {
        many: Cell(
            name=f"{many} on {n}",
            scenarios=(scenario(f"overload: {many} on {n} CPUs", member("program", work, [bench.cpus] * many)),),
        )
        for many in sorted({1, n, n + extra})
    }
    outcomes, results = bench.run([list(cells.values())])
    alone = outcomes[cells[1].name]
    cases: list[OverloadCase] = []
    for many, cell in cells.items():
        runs = [o for o in outcomes[cell.name] if not o.reason]
        about: dict[str, Scalar] = {"programs": many, "extra": max(0, many - n)}
        p = bench.point(results, many, f"{many}", alone, outcomes[cell.name], about) if many > 1 else None
        if not runs:
            if many == 1:
                results.absent("bench", next((o.reason for o in outcomes[cell.name]), "it was not run"), about)
            continue
        flags = frozenset().union(*(o.flags for o in runs)) | ({"oversubscribed"} if many > n else set())
        for metric in _counted(runs[0].totals):
            results.add(metric, [_counted(o.totals)[metric] for o in runs], about, flags)
        results.add("fairness", [jain(_attained(o)) for o in runs], about, flags)
        for copy in range(many):
            results.add("waiting", [o.of()[copy].waiting_s for o in runs], {**about, "copy": copy}, flags)
        middle = sorted(runs, key=lambda o: o.totals.bench_s)[(len(runs) - 1) // 2]
        cases.append(
            OverloadCase(
                programs=many,
                totals=middle.totals,
                waiting_s=tuple(u.waiting_s for u in middle.of()),
                fairness=statistics.median(jain(_attained(o)) for o in runs),
                point=p,
            )
        )
    rows = [
        [
            f"{c.programs} on {n}",
            *(f"{v:.3f}" for v in _counted(c.totals).values()),
            f"{100 * c.totals.utilisation:.1f} %",
            f"{c.fairness:.3f}",
            *(said(c.point.slowdown) if c.point else ("1", "")),
        ]
        for c in cases
    ]
    head = [
        "programs",
        "bench s",
        "available",
        "user",
        "system",
        "idle",
        "completion",
        "run",
        "waiting",
        "used",
        "fairness",
        "slowdown",
        "95 %",
    ]
    waits = [
        f"{c.programs} on {n}: waited " + ", ".join(f"{w:.3f} s" for w in c.waiting_s) for c in cases if c.programs > 1
    ]
    base = bench.end(results, "\n".join([table(head, rows), *waits]))
    return Overload(cases=tuple(cases), **base)


def _wall_only(how: How) -> None:
    if how.clock != "wall":
        raise UsageError(f"clock: found {how.clock}; allowed is wall: what programs wait for a CPU is the question")


def running(run: LoadRun, program: str, copy: int) -> list[tuple[float, float]]:
    """How many threads of a copy ran at once, on average: (s, threads) of each look of the sampler, while it computed
    (of a synthesised program without its check at the end)."""
    use = next(p for p in run.programs if (p.program, p.copy) == (program, copy))
    begin = use.released_s
    end = begin + float(use.done.get("wall_s", use.wall_s))
    step = float(run.header.get("sample_s", 0.1))
    bins = max(1, math.ceil((end - begin) / step - 1e-9))
    ran = [0.0] * bins
    for thread in run.threads:
        if (thread.program, thread.copy) != (program, copy):
            continue
        for s in thread.spans:
            cpu, width = s.user_s + s.system_s, s.to_s - s.from_s
            if cpu <= 0 or width <= 0:
                continue
            for i in range(max(0, int((s.from_s - begin) / step)), bins):
                low, high = begin + i * step, min(end, begin + (i + 1) * step)
                if low >= s.to_s:
                    break
                ran[i] += cpu * max(0.0, min(high, s.to_s) - max(low, s.from_s)) / width
    widths = [min(end, begin + (i + 1) * step) - begin - i * step for i in range(bins)]
    return [(w, r / w) for w, r in zip(widths, ran, strict=True) if w > 0]


def serialisation(looks: Sequence[tuple[float, float]]) -> float:
    """Serialisation index: share of a parallel program's time in which fewer than 2 of its threads ran; 0: always at
    least 2 did, 1: never.

    Of each look only the mean number of running threads is known. From 1 to 2 it is taken as a change between one and
    two, so that the share is 2 - mean: exact for two threads of which one always runs, else the least that is
    possible. A thread that spins counts as one that runs (OMP_WAIT_POLICY=active); what that costs the run time shows.

    Args:
        looks: (s, threads) of `running`.
    """
    whole = sum(w for w, _ in looks)
    return sum(w * min(1.0, max(0.0, 2.0 - r)) for w, r in looks) / whole if whole > 0 else math.nan


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
    how: How = USUAL,
) -> OmpOverload:
    """Programs of T OpenMP threads while sequential programs run endlessly on the same CPUs, by OMP_WAIT_POLICY.

    Args:
        variants: programs are made of them where `parallel` or `sequential` is None.
        threads: of a parallel program; 0: one a CPU.
        copies: of the parallel program.
        sequentials: 0: one a CPU.
        run_time_s: of a parallel program alone. Its threads meet after each call, some thousand times a second; where
            they wait spinning for one that has no CPU, that takes a scheduler's slice each time, and all of it a
            hundred times as long. A run is given up after `How.timeout_s`, here a minute where that is 0.

    Raises:
        UsageError: by the argument, also where the clock is not `wall`.
    """
    how = dataclasses.replace(how, timeout_s=how.timeout_s or max(60.0, 100 * run_time_s))
    bench = Bench(
        "omp_overload",
        out,
        how,
        cpus,
        {
            "parallel": None if parallel is None else said_work(parallel),
            "sequential": None if sequential is None else said_work(sequential),
            "threads": threads,
            "copies": copies,
            "sequentials": sequentials,
            "policies": list(policies),
            "run_time_s": run_time_s,
        },
        variants,
    )
    _wall_only(how)
    n = len(bench.cpus)
    threads, sequentials = threads or max(2, n), sequentials or n
    if threads < 2 or copies < 1 or sequentials < 1:
        raise UsageError(
            f"threads: found {threads} with {copies} copies and {sequentials} sequential programs; "
            "allowed are 2 threads, 1 copy, 1 program, or more"
        )
    for policy in policies:
        if policy not in WAIT_POLICIES:
            raise UsageError(f"policies: found {found(policy)}; allowed are {', '.join(WAIT_POLICIES)}")
    if not policies:
        raise UsageError(f"policies: found none; allowed are {', '.join(WAIT_POLICIES)}")
    if (parallel is None or sequential is None) and not variants:
        raise UsageError("parallel: found neither programs nor base data to make them of")
    many = parallel if parallel is None else bench.work(parallel, "parallel")
    single = sequential if sequential is None else bench.work(sequential, "sequential")
    bench.begin()
    if many is None:
        # Threads that do nothing but hand each other lines or wait at barriers take hundreds of times as long where one
        # of them has no CPU: what is asked is how usual programs fare.
        many = bench.maker.file(
            "parallel",
            bench.wish(run_time_s, threads=threads, name="parallel"),
            only=lambda v: v.kind != "sharing",
            rounds=0,
        )
    if single is None:
        short = bench.maker.file("sequential", bench.wish(run_time_s, name="sequential"), rounds=0)
        single = bench.maker.longer(short, OMP_OUTLASTS)
    groups = []
    for policy in policies:
        ours = [
            member(
                "parallel",
                many,
                [bench.cpus] * copies,
                threads=threads,
                wait_policy=policy,
                start_s=start,
                oversubscribe=threads > n,
            )
            for start in (0.0, LEAD_S)
        ]
        beside = member("sequential", single, [bench.cpus] * sequentials, endless=True)
        groups.append(
            (
                Cell(
                    name=f"{policy} alone",
                    measured=("parallel",),
                    scenarios=(scenario(f"omp_overload: {policy} alone", ours[0], sample_s=0.05),),
                ),
                Cell(
                    name=f"{policy} together",
                    measured=("parallel",),
                    scenarios=(scenario(f"omp_overload: {policy} together", ours[1], beside, sample_s=0.05),),
                ),
            )
        )

    def look(run: LoadRun) -> dict[str, float]:
        seen = [running(run, "parallel", c) for c in range(copies)]
        whole = sum(w for looks in seen for w, _ in looks)
        return {
            "serialisation": statistics.fmean(serialisation(x) for x in seen),
            "running": sum(w * r for looks in seen for w, r in looks) / whole if whole > 0 else 0.0,
        }

    outcomes, results = bench.run(groups, look)
    cases = []
    for policy, (alone, together) in zip(policies, groups, strict=True):
        about: dict[str, Scalar] = {
            "wait_policy": policy,
            "threads": threads,
            "copies": copies,
            "programs": sequentials,
        }
        p = bench.point(results, float(sequentials), policy, outcomes[alone.name], outcomes[together.name], about)
        if p is None:
            continue
        index: dict[str, list[float]] = {}
        for company, cell in (("alone", alone), ("together", together)):
            index[company] = [o.more["serialisation"] for o in outcomes[cell.name]]
            results.add("serialisation", index[company], {**about, "company": company}, p.flags)
        ran = [o.more["running"] for o in outcomes[together.name]]
        results.add("running_threads", ran, {**about, "company": "together"}, p.flags)
        got = [statistics.fmean(_attained(o, "sequential")) for o in outcomes[together.name]]
        results.add("attained", got, {**about, "program": "sequential"}, p.flags)
        cases.append(
            OmpCase(
                policy=policy,
                point=p,
                serialisation_alone=statistics.median(index["alone"]),
                serialisation=statistics.median(index["together"]),
                running=statistics.median(ran),
                attained=statistics.median(got),
            )
        )
    rows = [
        [
            c.policy,
            *said(c.point.slowdown),
            f"{c.serialisation_alone:.3f}",
            f"{c.serialisation:.3f}",
            f"{c.running:.2f} of {threads}",
            f"{100 * c.attained:.1f} %",
        ]
        for c in cases
    ]
    text = table(
        ["OMP_WAIT_POLICY", "slowdown", "95 %", "serial alone", "serial together", "running", "others got"], rows
    )
    return OmpOverload(cases=tuple(cases), **bench.end(results, text))
