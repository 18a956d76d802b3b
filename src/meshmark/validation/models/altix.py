"""Statements on SGI Altix, measured with PARbench."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from meshmark.model.workloads import trial
from meshmark.validation.models.base import (
    StatementResult,
    check,
    machine,
    rate,
    slowdown,
    within_percent,
)


@check("E01")
def one_cpu_of_the_bus() -> StatementResult:
    m = machine("altix3700")
    read = trial([{"cpus": [0], "chains": int(m.number("cpu.outstanding")), "streams": [{"homes": "local"}]}])
    return within_percent(rate(m, read) / 1e9, 4.5, 5, "GB/s")


def altix_slowdown(name: str, gb_per_s: float, programs: int = 8) -> float:
    """Return the slowdown in per cent of copies of one program against a single copy.

    A PARbench program mixes memory-bound and other kernels (section 3). The copies start together, so they run the same
    kernel at the same time.
    """
    return slowdown(machine(name), range(programs), gb_per_s, in_step=True)


@check("E02")
def two_programs_a_bus() -> StatementResult:
    value = altix_slowdown("altix3700", 2.14)
    return StatementResult(f"{value:.1f} %", abs(value - 24.5) <= 5, error_percent=value - 24.5, numbers=(value,))


FIGURE_5_RATES: Final = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.14, 2.5, 3.0)  # GB/s per program


@check("E03")
def threshold_of_the_shared_bus() -> StatementResult:
    low, high = 0.2, 3.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if altix_slowdown("altix3700", middle, 2) < 10 else (low, middle)
    finding = within_percent(low, 1.0, 20, "GB/s per program", "assumes that the copies stay in step for the whole run")
    curves = {n: tuple(altix_slowdown(n, r, 2) for r in FIGURE_5_RATES) for n in ("altix3700", "altix4700")}
    return replace(finding, series=(("GB/s", FIGURE_5_RATES), *curves.items()))


@check("E04")
def montecito_over_madison() -> StatementResult:
    rates = (1.5, 2.14, 2.5)
    ratios = [altix_slowdown("altix4700", r, 2) / (altix_slowdown("altix3700", r, 2) or 1e-9) for r in rates]
    return within_percent(math.fsum(ratios) / len(ratios), 0.5, 25, reason="the bus of the measured blade is not known")


@check("E05")
def more_boards_change_nothing() -> StatementResult:
    change = altix_slowdown("altix3700", 2.14, 16) - altix_slowdown("altix3700", 2.14, 8)
    return StatementResult(f"{change:+.2f} points", abs(change) <= 1, numbers=(change,))


@check("E06")
def seventeen_jobs_on_sixteen_cpus() -> StatementResult:
    # 15 jobs have a CPU each. Two jobs share a CPU until the others end, then each has a CPU. The total work is
    # 1744.0 s, as published. In the captions of figures 6 and 7, CPUs x makespan is the available CPU time, and
    # almost no CPU is idle. So a CPU counts until its last job ends, and the makespan is the mean over the
    # CPUs, not the end of the last job.
    work, cpus = 1744.0 / 17, 16
    ends_s = [work] * (cpus - 2) + [1.5 * work] * 2
    makespan, runtimes = math.fsum(ends_s) / cpus, 15 * work + 2 * 1.5 * work
    modelled, published_values = (makespan, 17 * work, runtimes, runtimes - 17 * work), (109.0, 1744.0, 1846.1, 102.2)
    inside = all(abs(o / p - 1) <= 0.03 for o, p in zip(modelled, published_values, strict=True))
    reason = f"the last job ends at {max(ends_s):.1f} s; the total work and the rule of figure 6's heading are inputs"
    return StatementResult(", ".join(f"{v:.1f}" for v in modelled) + " s", inside, reason, numbers=modelled)


@check("E07")
def sequential_and_parallel_jobs() -> StatementResult:
    # 12 sequential jobs of 100 s and 4 programs with 4 threads and 100 CPU seconds: 28 threads share 16 CPUs equally.
    # The threads of a parallel program wait for each other.
    total = 12 * 100.0 + 4 * 100.0
    makespan = total / 16
    runtimes = 16 * makespan
    waiting = 28 * makespan - total
    modelled, published_values = (makespan, total, runtimes, waiting), (99.9, 1592.4, 1590.5, 1091.0)
    inside = all(abs(o / p - 1) <= 0.1 for o, p in zip(modelled, published_values, strict=True))
    return StatementResult(
        ", ".join(f"{v:.1f}" for v in modelled) + " s",
        inside,
        "the CPU seconds of the jobs and fair shares of 28 threads on 16 CPUs are inputs",
        numbers=modelled,
    )
