"""Study: tests whether memory domains are independent of each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshmark.errors import AbsentError, UsageError
from meshmark.load.calibration.effects import Equivalence, equivalence
from meshmark.load.scenario.placing import HostResources
from meshmark.load.studies.cells import LEAD_S, OUTLASTS, member
from meshmark.load.studies.outcome import StudyCell
from meshmark.load.studies.results import StudyPoint
from meshmark.load.studies.study import Study, one_cpu_each
from meshmark.machine.sources import from_sysfs
from meshmark.machine.tree import format_list
from meshmark.statistics.verdicts import spoken


def memory_domains() -> list[tuple[int, ...]]:
    """Return the available CPUs of each memory domain of this machine."""
    allowed_cpus = set(HostResources.now().cpus)
    cpu_sets = (tuple(c for c in n.near_cpus or n.cpus if c in allowed_cpus) for n in from_sysfs().nodes if n.cpus)
    return [s for s in cpu_sets if s]


@dataclass(kw_only=True)
class IsolationStudy(Study):
    """Slowdown of programs in one memory domain by the number of loaded domains, from 2 (`x` of a point).

    The first domain runs one program per CPU, in local memory. The other domains follow, one by one, in the same way.

    Attributes:
        domains: CPUs of each domain; empty: the domains of this machine.
        rate_gb_per_s: Rate of one program; 0: 0.7 of the feasible range.
        margin: A slowdown from 1 / (1 + margin) to 1 + margin counts as equal (`effects.equivalence`).
        tests: One test per point.
    """

    study = "isolation"
    measured = ("here",)
    domains: Sequence[Sequence[int]] = ()
    rate_gb_per_s: float = 0.0
    run_time_s: float = 5.0
    margin: float = 0.05

    def __post_init__(self) -> None:
        self.domains = [tuple(d) for d in self.domains] or memory_domains()
        self.cpus = [c for d in self.domains for c in d]
        if len(self.domains) < 2:
            cpus_found = f": CPUs {format_list(self.cpus)}" if self.domains else ""
            raise AbsentError(
                f"isolation: found one memory domain{cpus_found}; at least two are needed",
                "a machine with more than one NUMA node",
            )
        if not all(self.domains) or len(set(self.cpus)) != len(self.cpus):
            raise UsageError("domains: found an empty domain or a CPU in two domains; domains must not overlap")
        if self.options.repetitions < 2:
            raise UsageError(f"repetitions: found {self.options.repetitions}; an equivalence test needs at least 2")
        super().__post_init__()
        given = self.rate_gb_per_s
        rates = self.rates((given,) if given else (), self.target(self.run_time_s))
        self.rate_gb_per_s = rates[0] if given else rates[-2]
        equivalence((1.0, 1.0), self.margin)  # reject an invalid margin before anything runs
        self.tests: list[Equivalence] = []
        self.columns = ("domains", "slowdown", "95 %", "p", f"verdict (±{100 * self.margin:g} %)")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters with the domains as lists of CPUs."""
        return {**super().parameters(), "domains": [format_list(tuple(d)) for d in self.domains]}

    def groups(self) -> list[list[StudyCell]]:
        """Return one group, with a cell per number of domains."""
        rate = self.rate_gb_per_s
        target = self.target(self.run_time_s, {"memory_gb_per_s": rate}, name=f"{rate:g} GB per s")
        file = self.maker.file(f"{rate:g}", target)
        long_file = self.maker.longer(file, OUTLASTS)
        here, *others = self.domains
        cells = []
        for count in range(1, len(self.domains) + 1):
            programs = [member("here", file, one_cpu_each(here), start_s=LEAD_S if count > 1 else 0.0)]
            if count > 1:
                programs.append(member("there", long_file, one_cpu_each([c for d in others[: count - 1] for c in d])))
            cells.append(
                self.cell(
                    f"{count} domains",
                    [dataclasses.replace(p, memory="local") for p in programs],
                    x=count,
                    label=f"{count}",
                    conditions={
                        "domains": count,
                        "memory_rate_asked": rate * 1e9,
                        "margin": self.margin,
                        "copies": len(here),
                    },
                )
            )
        return [cells]

    def add(self, cell: StudyCell, alone: StudyCell) -> StudyPoint | None:
        """Add the point and its test of equivalence."""
        p = super().add(cell, alone)
        if p is None or len(p.pairs) < 2:
            del self.points[len(self.tests) :]
            return None
        test = equivalence(p.pairs, self.margin)
        verdict = test.word if not p.flags else "inconclusive"
        low, high = test.interval
        conditions = {**p.conditions, "ratio": test.ratio, "ratio_low": low, "ratio_high": high, "verdict": verdict}
        self.results.add("equivalence_p", [test.p], conditions, p.flags)
        self.tests.append(test)
        self.rows.append(([*self.row(p), f"{test.p:.3g}", spoken(verdict, "lower", "s")], p.flags))
        return p
