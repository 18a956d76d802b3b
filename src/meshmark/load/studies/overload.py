"""Study: more programs than CPUs, with the breakdown of CPU time and the waiting time of each copy."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError
from meshmark.load.calibration.variants import Variant
from meshmark.load.scenario.result import Totals, jain
from meshmark.load.studies.bench import DEFAULT_OPTIONS, Bench, StudyOptions, StudyResult, work_identity
from meshmark.load.studies.cells import Work, member, scenario
from meshmark.load.studies.outcome import Cell, Outcome
from meshmark.load.studies.results import Point, Results, format_slowdown, table
from meshmark.store.record import Scalar

_HEAD: Final = [
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


@dataclass(frozen=True, kw_only=True)
class OverloadCase:
    programs: int
    totals: Totals  # of the run with the median bench time
    waiting_s: tuple[float, ...]  # waiting time of each copy in that run
    fairness: float  # Jain's index of the copies' CPU shares
    point: Point | None  # compared with one program alone; None for one program alone
    flags: frozenset[str] = frozenset()  # flags of the runs


@dataclass(frozen=True, kw_only=True)
class Overload(StudyResult):
    cases: tuple[OverloadCase, ...]

    def waited(self, share: float = 0.01) -> tuple[int, ...]:
        """Return the copies of the last case that waited longer than this share of the bench time."""
        case = self.cases[-1]
        return tuple(i for i, w in enumerate(case.waiting_s) if w > share * case.totals.bench_s)


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


def cpu_shares(outcome: Outcome, *programs: str) -> list[float]:
    """Return the CPU time over CPU and waiting time of each copy."""
    shares = []
    for u in outcome.of(*programs):
        cpu_s = u.user_s + u.system_s
        shares.append(cpu_s / (cpu_s + u.waiting_s) if cpu_s + u.waiting_s > 0 else 1.0)
    return shares


def _cases(
    bench: Bench, results: Results, outcomes: Mapping[str, Sequence[Outcome]], cells: Mapping[int, Cell]
) -> list[OverloadCase]:
    """Return one case per number of programs, and add its records to `results`."""
    n = len(bench.cpus)
    outcomes_alone = outcomes[cells[1].name]
    cases: list[OverloadCase] = []
    for count, cell in cells.items():
        runs = [o for o in outcomes[cell.name] if not o.reason]
        conditions: dict[str, Scalar] = {"programs": count, "extra": max(0, count - n)}
        point = (
            bench.point(results, count, f"{count}", outcomes_alone, outcomes[cell.name], conditions)
            if count > 1
            else None
        )
        if not runs:
            if count == 1:
                results.absent("bench", next((o.reason for o in outcomes[cell.name]), "not run"), conditions)
            continue
        flags = frozenset().union(*(o.flags for o in runs)) | ({"oversubscribed"} if count > n else set())
        for metric in _counted(runs[0].totals):
            results.add(metric, [_counted(o.totals)[metric] for o in runs], conditions, flags)
        results.add("fairness", [jain(cpu_shares(o)) for o in runs], conditions, flags)
        for copy in range(count):
            results.add("waiting", [o.of()[copy].waiting_s for o in runs], {**conditions, "copy": copy}, flags)
        median_run = sorted(runs, key=lambda o: o.totals.bench_s)[(len(runs) - 1) // 2]
        cases.append(
            OverloadCase(
                programs=count,
                totals=median_run.totals,
                waiting_s=tuple(u.waiting_s for u in median_run.of()),
                fairness=statistics.median(jain(cpu_shares(o)) for o in runs),
                point=point,
                flags=flags,
            )
        )
    return cases


def overload(
    out: Path,
    *,
    variants: Sequence[Variant] = (),
    work: Work | None = None,
    cpus: Sequence[int] = (),
    extra: int = 1,
    run_time_s: float = 5.0,
    options: StudyOptions = DEFAULT_OPTIONS,
) -> Overload:
    """Run one copy of a program, one per CPU, and `extra` more than that, and account for CPU and waiting time.

    Args:
        variants: Calibration data to synthesise the program from if `work` is None.
        extra: Number of copies beyond the number of CPUs.
        cpus: CPUs that all copies share, without binding; empty: all available CPUs.

    Raises:
        UsageError: An argument is invalid, or the clock is not `wall`.

    Source:
        Totals after PARbench (Nagel and Linn 1991).
    """
    bench = Bench(
        "overload",
        out,
        options,
        cpus,
        {
            "work": None if work is None else work_identity(work),
            "extra": extra,
            "run_time_s": run_time_s,
        },
        variants,
    )
    wall_only(options)
    if not 1 <= extra <= 1000:
        raise UsageError(f"extra: found {extra}; allowed: 1 to 1000")
    if work is not None:
        work = bench.work(work)
    elif not variants:
        raise UsageError("work: found neither a program nor calibration data to synthesise one from")
    bench.begin()
    if work is None:
        work = bench.maker.file("program", bench.target(run_time_s, name="sequential"), rounds=0)
    n = len(bench.cpus)
    cells = {
        count: Cell(
            name=f"{count} on {n}",
            scenarios=(scenario(f"overload: {count} on {n} CPUs", member("program", work, [bench.cpus] * count)),),
        )
        for count in sorted({1, n, n + extra})
    }
    outcomes, results = bench.run([list(cells.values())])
    cases = _cases(bench, results, outcomes, cells)
    rows = [
        [
            f"{c.programs} on {n}",
            *(f"{v:.3f}" for v in _counted(c.totals).values()),
            f"{100 * c.totals.utilisation:.1f} %",
            f"{c.fairness:.3f}",
            *(format_slowdown(c.point.slowdown) if c.point else ("1", "")),
        ]
        for c in cases
    ]
    waiting_lines = [
        f"{c.programs} on {n}: waited " + ", ".join(f"{w:.3f} s" for w in c.waiting_s) for c in cases if c.programs > 1
    ]
    result_fields = bench.end(results, "\n".join([table(_HEAD, rows, [c.flags for c in cases]), *waiting_lines]))
    return Overload(cases=tuple(cases), **result_fields)


def wall_only(options: StudyOptions) -> None:
    if options.clock != "wall":
        raise UsageError(f"clock: found {options.clock}; allowed: wall, because the study measures waiting for a CPU")
