"""Study: throughput by the number of copies of one program."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from meshmark.errors import UsageError
from meshmark.load.studies.cells import Work, member
from meshmark.load.studies.outcome import StudyCell
from meshmark.load.studies.results import StudyPoint, format_slowdown
from meshmark.load.studies.study import Study, checked_work
from meshmark.values.inputs import quoted_value


@dataclass(kw_only=True)
class CopiesStudy(Study):
    """Run time, throughput and slowdown by the number of copies of a program (`x` of a point, from 2).

    Attributes:
        counts: Numbers of copies; empty: 1 to the number of CPUs, by powers of two beyond 8. 1 is always included.
        bind: Bind copies to CPUs round-robin; otherwise, all copies share the CPUs.
        throughput: By number of copies: copies per second from the common start to the end of the last copy, median.
    """

    study = "copies"
    columns = ("copies", "run time s", "copies/s", "efficiency", "slowdown", "95 %")
    work: Work
    counts: Sequence[int] = ()
    bind: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.work = checked_work(self.work)
        if any(not (isinstance(c, int) and 1 <= c <= 4096) for c in self.counts):
            raise UsageError(f"counts: found {quoted_value(list(self.counts))}; allowed: 1 to 4096 copies")
        n = len(self.cpus)
        default = range(1, n + 1) if n <= 8 else [*range(1, 9), *(c for k in range(4, 13) if (c := 1 << k) < n), n]
        self.counts = sorted({1, *(self.counts or default)})
        self.throughput: dict[int, float] = {}

    def groups(self) -> list[list[StudyCell]]:
        """Return one group, with a cell per number of copies. One copy runs on each CPU in turn."""
        cells = []
        for c in self.counts:
            cpu_sets = [(self.cpus[i % len(self.cpus)],) if self.bind else self.cpus for i in range(c)]
            placements = [[(cpu,)] for cpu in self.cpus] if c == 1 and self.bind else [cpu_sets]
            cells.append(
                self.cell(
                    f"{c} copies",
                    *([member("program", self.work, p)] for p in placements),
                    title=f"{c}",
                    x=c,
                    label=f"{c}",
                    conditions={"copies": c, "binding": "soft" if self.bind else "none"},
                )
            )
        return [cells]

    def add(self, cell: StudyCell, alone: StudyCell) -> StudyPoint | None:
        """Add run times and throughput."""
        p, count, clock = super().add(cell, alone), int(cell.x), self.options.clock
        runs, flags = self.valid(cell, "elapsed" if count == 1 else "")
        if not runs:
            return p
        times = [o.time_s(clock) for o in runs]
        if count == 1:
            self.results.add("elapsed", times, {**cell.conditions, "company": "alone"}, flags)
        rates = [count / max(u.time_s(clock) for u in o.copies()) for o in runs]
        rate = self.throughput[count] = statistics.median(rates)
        self.results.add("throughput", rates, cell.conditions, flags)
        efficiency = rate / (count * next(iter(self.throughput.values())))
        slowdown = format_slowdown(p.slowdown) if p else ("1", "")
        row = [cell.label, f"{statistics.median(times):.3f}", f"{rate:.3f}", f"{100 * efficiency:.1f} %", *slowdown]
        self.rows.append((row, flags | (p.flags if p else frozenset())))
        return p
