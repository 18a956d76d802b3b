"""Base of the studies that run one program alone and one copy per CPU."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshmark.errors import UsageError
from meshmark.load.studies.cells import member
from meshmark.load.studies.outcome import StudyCell
from meshmark.load.studies.results import StudyPoint
from meshmark.load.studies.study import Study, one_cpu_each
from meshmark.store.record import Scalar
from meshmark.values.inputs import quoted_value


@dataclass(kw_only=True)
class EqualPrograms(Study):
    """Runs a program alone on each CPU in turn, and copies of it on all CPUs.

    Attributes:
        copies: Number of copies that run together, one per CPU; 0: one copy for each CPU.
        run_time_s: Run time of a program alone.
    """

    needs_two_cpus = True
    copies: int = 0
    run_time_s: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.copies = self.copies or len(self.cpus)
        if not 2 <= self.copies <= len(self.cpus):
            raise UsageError(f"copies: found {self.copies}; allowed: 2 to {len(self.cpus)}, one per CPU")

    def pair(
        self, x: float, name: str, metrics: Mapping[str, float], conditions: Mapping[str, Scalar]
    ) -> list[StudyCell]:
        """Return the cells of the program with these metrics; none if the program is impossible."""
        requested = {k: conditions[k] for k in ("write_fraction", "memory_rate_asked") if conditions[k] is not None}
        target = self.target(self.run_time_s, metrics, name=name.replace("/", " per "))
        file = self.make_program(f"{x:g}", target, requested)
        if file is None:
            return []
        cpus = one_cpu_each(self.cpus[: self.copies])
        return [
            self.cell(f"{name} alone", *([member("program", file, [c])] for c in cpus)),
            self.cell(
                f"{name} together",
                [member("program", file, cpus)],
                title=f"{name}, {self.copies} copies",
                x=x,
                label=name,
                conditions=conditions,
            ),
        ]

    def add(self, cell: StudyCell, alone: StudyCell) -> StudyPoint | None:
        """Add the point; its condition `memory_rate` is the median bandwidth of one copy alone, by its counts."""
        uses = [u for o in self.outcomes[alone.name] for u in o.copies()]
        rate = statistics.median(u.memory_rate(self.options.clock) for u in uses) if uses else 0.0
        return super().add(replace(cell, conditions={**cell.conditions, "memory_rate": rate}), alone)


def checked_fraction(value: float) -> float:
    """Return a share of writes.

    Raises:
        UsageError: The value is not a number from 0 to 1.
    """
    if not (isinstance(value, int | float) and 0 <= value <= 1):
        raise UsageError(f"write_fraction: found {quoted_value(value)}; allowed: 0 to 1")
    return float(value)
