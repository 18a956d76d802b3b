"""Study: more programs than CPUs, with the breakdown of CPU time and the waiting time of each copy."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final

from meshmark.errors import UsageError
from meshmark.load.studies.cells import Work, member
from meshmark.load.studies.outcome import CellRun, StudyCell
from meshmark.load.studies.results import StudyPoint, format_slowdown
from meshmark.load.studies.study import Study, checked_work
from meshmark.statistics.estimates import jain

# Total by metric.
_TOTALS: Final = {
    "bench": "bench_s",
    "available": "available_s",
    "user_sum": "user_s",
    "system_sum": "system_s",
    "idle": "idle_s",
    "completion": "completion_s",
    "run_sum": "run_s",
    "waiting_sum": "waiting_s",
}


def cpu_shares(outcome: CellRun, *programs: str) -> list[float]:
    """Return the CPU time over CPU and waiting time of each copy."""
    shares = []
    for u in outcome.copies(*programs):
        cpu_s = u.user_s + u.system_s
        shares.append(cpu_s / (cpu_s + u.waiting_s) if cpu_s + u.waiting_s > 0 else 1.0)
    return shares


@dataclass(kw_only=True)
class OverloadStudy(Study):
    """Accounts for CPU and waiting time of one copy of a program, one per CPU, and `extra` more than that.

    All copies share all CPUs, without binding.

    Attributes:
        work: The program; None: it is synthesised from the calibration data.
        extra: Number of copies beyond the number of CPUs.
        run_time_s: Run time of a synthesised program.

    Source:
        Totals after PARbench (Nagel and Linn 1991).
    """

    study = "overload"
    columns = (
        *("programs", "makespan s", "available", "user", "system", "idle", "completion", "run", "waiting"),
        *("used", "fairness", "slowdown", "95 %"),
    )
    measures_waiting = True
    work: Work | None = None
    extra: int = 1
    run_time_s: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.extra <= 1000:
            raise UsageError(f"extra: found {self.extra}; allowed: 1 to 1000")
        if self.work is not None:
            self.work = checked_work(self.work)
        elif not self.variants:
            raise UsageError("work: found neither a program nor calibration data to synthesise one from")
        self._waits: list[str] = []  # lines with the waiting time of each copy in the run with the median makespan

    def groups(self) -> list[list[StudyCell]]:
        """Return one group, with a cell per number of programs."""
        n = len(self.cpus)
        work = self.work or self.maker.file("program", self.target(self.run_time_s, name="sequential"), rounds=0)
        return [
            [
                self.cell(
                    f"{count} on {n}",
                    [member("program", work, [self.cpus] * count)],
                    title=f"{count} on {n} CPUs",
                    x=count,
                    label=f"{count}",
                    conditions={"programs": count, "extra": max(0, count - n)},
                )
                for count in sorted({1, n, n + self.extra})
            ]
        ]

    def add(self, cell: StudyCell, alone: StudyCell) -> StudyPoint | None:
        """Add the totals, the fairness (Jain's index of the copies' CPU shares) and the waiting times."""
        p, count = super().add(cell, alone), int(cell.x)
        runs, flags = self.valid(cell, "bench" if count == 1 else "")
        if not runs:
            return p
        flags |= {"oversubscribed"} if count > len(self.cpus) else set()
        for metric, name in _TOTALS.items():
            self.results.add(metric, [getattr(o.totals, name) for o in runs], cell.conditions, flags)
        fairness = [jain(cpu_shares(o)) for o in runs]
        self.results.add("fairness", fairness, cell.conditions, flags)
        for copy in range(count):
            waiting_s = [o.copies()[copy].waiting_s for o in runs]
            self.results.add("waiting", waiting_s, {**cell.conditions, "copy": copy}, flags)
        run = sorted(runs, key=lambda o: o.totals.bench_s)[(len(runs) - 1) // 2]
        if count > 1:
            self._waits.append(f"{cell.name}: waited {', '.join(f'{u.waiting_s:.3f} s' for u in run.copies())}")
        row = [
            cell.name,
            *(f"{getattr(run.totals, name):.3f}" for name in _TOTALS.values()),
            f"{100 * run.totals.utilisation:.1f} %",
            f"{statistics.median(fairness):.3f}",
            *(format_slowdown(p.slowdown) if p else ("1", "")),
        ]
        self.rows.append((row, flags))
        return p

    def conclude(self) -> str:
        """Add the waiting times to the table."""
        return "\n".join([super().conclude(), *self._waits])
