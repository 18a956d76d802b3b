"""Measures the co-run slowdown of each program of a scenario.

Runs of the whole scenario alternate with runs of one copy of each program alone, on the CPUs that the copy has in the
scenario. Confidence intervals need four repetitions. `cells.py` describes the folder, the order and how to resume.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.load.scenario.placing import check_here, place_copies, scenario_json, threads_of
from meshmark.load.scenario.scenario import Scenario
from meshmark.load.studies.outcome import CellRun, StudyCell
from meshmark.load.studies.results import format_slowdown
from meshmark.load.studies.study import Study, identity
from meshmark.statistics.estimates import jain
from meshmark.store.record import Scalar, median_interval

TOGETHER: Final = "together"


@dataclass(kw_only=True)
class ScenarioStudy(Study):
    """Repeats a scenario, and each of its programs alone.

    Copies of a program are averaged, because they are not independent samples. A run in which a program failed is
    excluded, because the other programs did not run under the requested load. `x` of a point is the index of the
    program in the scenario.

    Attributes:
        files: Files of the programs synthesised for the scenario's target profiles, by name.
        alone: Also run each program alone; otherwise, repeat the scenario only.
        median_run: Folder of the scenario run with the median makespan; None if no run is valid.
    """

    study = "scenario"
    scenario: Scenario
    files: Mapping[str, Path] = field(default_factory=dict)
    alone: bool = True

    def __post_init__(self) -> None:
        self.scenario, memory = _with_files(self.scenario, self.files)
        check_here(self.scenario, self.here, memory)
        super().__post_init__()
        self._cpus_by_copy = place_copies(self.scenario, self.here) if self.alone else {}
        self.common |= {"scenario": self.scenario.name, "processes": self.scenario.processes}
        times = ("alone s", "together s", "slowdown") if self.alone else ("median s",)
        self.columns = ("program", *times, "95 %", "waited")

    def parameters(self) -> dict[str, Any]:
        """Return the scenario, and the identities of its applications and files."""
        programs = self.scenario.programs
        return {
            "scenario": scenario_json(self.scenario),
            "applications": {p.name: identity(p.described) for p in programs if p.described},
            "files": {p.name: identity(p.file) for p in programs if p.file},
        }

    def groups(self) -> list[list[StudyCell]]:
        """Return one group: the scenario, and each program, whose copies run in turn, each on its CPUs."""
        cells = [StudyCell(name=TOGETHER, scenarios=(self.scenario,))]
        for p in self.scenario.programs if self.alone else ():
            scenarios = []
            for copy in range(p.copies):
                copy_alone = self.scenario.alone(p.name, copy)
                program = dataclasses.replace(
                    copy_alone.programs[0], cpus=(self._cpus_by_copy[p.name, copy],), policy=""
                )
                scenarios.append(dataclasses.replace(copy_alone, programs=(program,), policy=""))
            cells.append(StudyCell(name=f"{p.name} alone", scenarios=tuple(scenarios)))
        return [cells]

    def add(self, cell: StudyCell, alone: StudyCell) -> None:
        """Add nothing: `conclude` compares the programs of the same runs."""

    def conclude(self) -> str:
        """Compare each program with itself alone, and add makespans and fairness of the scenario."""
        for number, p in enumerate(self.scenario.programs):
            conditions: dict[str, Scalar] = {"program": p.name, "copies": p.copies, "threads": p.threads}
            together = [dataclasses.replace(o, measured=(p.name,)) for o in self.outcomes[TOGETHER]]
            if not self.alone:
                self._add_repeated(together, conditions)
                continue
            point = self.compare(number, p.name, self.outcomes[f"{p.name} alone"], together, conditions)
            if point is not None:
                times = (f"{statistics.median(t):.4g}" for t in (point.alone_s, point.together_s))
                row = [p.name, *times, *format_slowdown(point.slowdown), _waited(together)]
                self.rows.append((row, point.flags))
        outcomes = sorted((o for o in self.outcomes[TOGETHER] if not o.reason), key=lambda o: o.totals.bench_s)
        flags = frozenset().union(*(o.flags for o in outcomes))
        self.results.add("bench", [o.totals.bench_s for o in outcomes], {}, flags)
        if self.points:
            alone_s = {p.label: statistics.median(p.alone_s) for p in self.points}
            shares = [
                [alone_s[u.program] / u.time_s(self.options.clock) for u in o.uses if u.program in alone_s]
                for o in outcomes
            ]
            self.results.add("fairness", [jain(s) for s in shares], {"of": "speeds"}, flags)
        self.median_run = self.folder / "runs" / outcomes[len(outcomes) // 2].run if outcomes else None
        return super().conclude()

    def _add_repeated(self, outcomes: Sequence[CellRun], conditions: Mapping[str, Scalar]) -> None:
        """Add a program that ran in the scenario only."""
        runs = [o for o in outcomes if not o.reason]
        if not runs:
            self.results.absent("elapsed", next((o.reason for o in outcomes), "not run"), conditions)
            return
        times, flags = [o.time_s(self.options.clock) for o in runs], frozenset().union(*(o.flags for o in runs))
        self.results.add("elapsed", times, {**conditions, "company": TOGETHER}, flags)
        interval = median_interval(times)
        bounds = f"{interval[0]:.4g} – {interval[1]:.4g}" if interval else "none below 6 runs"
        row = [str(conditions["program"]), f"{statistics.median(times):.4g}", bounds, _waited(runs)]
        self.rows.append((row, flags))


def _with_files(scenario: Scenario, files: Mapping[str, Path]) -> tuple[Scenario, dict[str, int]]:
    """Replace each target profile by the file of its program.

    Returns:
        The scenario, and the memory of a copy of each synthetic program, B.
    """
    members, memory = [], {}
    for p in scenario.programs:
        if not p.synthesised:
            members.append(p)
            continue
        file = p.file or files.get(p.name)
        if file is None:
            raise UsageError(f"program {p.name}: no program was synthesised", "create it with meshmark load make")
        threads, memory[p.name] = threads_of(file)
        members.append(dataclasses.replace(p, file=file.resolve(), profile=None, threads=threads))
    return dataclasses.replace(scenario, programs=tuple(members)), memory


def _waited(outcomes: Sequence[CellRun]) -> str:
    """Return the median over the runs of the share of the time that a thread waited for a CPU, as text."""
    shares = [
        statistics.fmean(u.waiting_s / (u.threads * u.wall_s) for u in o.copies() if u.wall_s > 0)
        for o in outcomes
        if not o.reason and any(u.wall_s > 0 for u in o.copies())
    ]
    return f"{100 * statistics.median(shares):.0f} %" if shares else "-"
